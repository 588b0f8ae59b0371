//! Output for people: the options, the summary, a failing history, its trace.

use crate::campaign::{Campaign, Length, Summary, replay_line};
use crate::history::Recipe;
use crate::minutes::Spent;
use crate::run::{Run, Scenario};
use crate::systematic::{self, Search, Task, Verdict};
use machine::trace::Track;
use machine::unrest::turns::Schedule;
use serde_json::json;
use std::fmt::Arguments;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// True while standard output is for the JSON alone.
static HAS_JSON: AtomicBool = AtomicBool::new(false);

/// From now on prints on standard error: the JSON goes to standard output.
pub(crate) fn leave_standard_output() {
    HAS_JSON.store(true, Relaxed);
}

/// Prints a line. A reader that has closed the pipe (`| head`) is no failure: the search and its files go on.
pub(crate) fn say(line: Arguments<'_>) {
    let _ = match HAS_JSON.load(Relaxed) {
        true => writeln!(std::io::stderr().lock(), "{line}"),
        false => writeln!(std::io::stdout().lock(), "{line}"),
    };
}

/// Prints the names that options accept.
pub(crate) fn list(scenarios: &[&'static dyn Scenario]) {
    for scenario in scenarios {
        say(format_args!("{:<14} {}", scenario.name(), scenario.about()));
        say(format_args!("{:<14} faults: {}", "", scenario.fault_kinds().join(", ")));
        for bench in scenario.benches() {
            say(format_args!("{:<14} {bench}", ""));
        }
    }
    say(format_args!("unrest: {}", crate::unrest::kinds().collect::<Vec<_>>().join(", ")));
}

/// The seed and every option, before anything runs.
pub(crate) fn options(campaign: &Campaign) {
    let names: Vec<_> = campaign.scenarios.iter().map(|scenario| scenario.name()).collect();
    let length = match campaign.length {
        Length::Seeds(seeds) => format!("{seeds} histories a scenario"),
        Length::Time(time) => format!("{:.1} minutes", time.as_secs_f64() / 60.0),
        Length::Part { from, count } => format!("histories {from} to {}", from + count - 1),
    };
    // The common recipe prints as the options of a replay; the seed is the first.
    let recipe = Recipe { seed: campaign.first_seed, ..campaign.recipe.clone() }.to_string();
    let recipe = recipe.replacen("--replay", "--seed", 1);
    say(format_args!("check {recipe} --jobs {}: {length} of {}", campaign.jobs, names.join(", ")));
}

/// The work done and the findings.
pub(crate) fn summary(summary: &Summary) {
    for (scenario, coverage) in &summary.coverage {
        say(format_args!("\n{scenario}: transitions seen"));
        for (transition, times) in coverage.iter().filter(|(_, times)| *times > 0) {
            say(format_args!("  {times:>12}  {transition}"));
        }
        for transition in coverage.missing() {
            say(format_args!("  {:>12}  {transition}", "never"));
        }
    }
    spent(&summary.spent);
    let faults: Vec<_> = summary.faults.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    say(format_args!("\nfaults injected: {}", if faults.is_empty() { "none".into() } else { faults.join(", ") }));
    say(format_args!(
        "{} histories, {} I/Os, {} interrupts, {:.3} s simulated, in {:.1} s: {:.0} I/Os a second a core (measured)",
        summary.histories,
        summary.ios,
        summary.interrupts,
        summary.simulated.0 as f64 / 1e12,
        summary.seconds,
        summary.ios_per_second_per_core
    ));
    for found in &summary.failures {
        say(format_args!("\nFAILED {}\nchecker: {}\nreplay: {}", found.failure, found.failure.checker, found.replay()));
    }
    if summary.failures.is_empty() {
        say(format_args!("no failure"));
    }
}

/// What a given time went to: a line for each scenario and family.
fn spent(spent: &[Spent]) {
    if spent.is_empty() {
        return;
    }
    say(format_args!("\nthe time of all workers went to"));
    let mut lines: Vec<(&str, Vec<String>)> = Vec::new();
    for Spent { on, search, seconds, units, complete } in spent {
        let what = match *search {
            "random" => "histories",
            "orders" => "sets of operations",
            "faults" => "machines with a fault",
            _ => "histories in all forms",
        };
        let all = if *complete { ", all" } else { "" };
        let text = format!("{seconds:.1} s {units} {what}{all}");
        match lines.iter_mut().find(|(name, _)| name == on) {
            Some((_, texts)) => texts.push(text),
            None => lines.push((on, vec![text])),
        }
    }
    lines.iter().for_each(|(name, texts)| say(format_args!("  {name:<14} {}", texts.join("; "))));
}

/// What a systematic search will do.
pub(crate) fn search(search: &Search) {
    let Search { tasks, bound, budget, jobs } = search;
    say(format_args!(
        "systematic: {} sets of operations, at most {bound} preemptions, at most {budget} schedules of each, {jobs} jobs",
        tasks.len()
    ));
}

/// The result of a systematic search: a line for each machine, or, if `each`, for each set of operations.
pub(crate) fn verdicts(verdicts: &[Verdict], each: bool, took: Duration) {
    let mut machines: Vec<(String, [u64; 4])> = Vec::new();
    for verdict in verdicts {
        let explored = &verdict.explored;
        let name = format!("{} {}", verdict.scenario.name(), verdict.task);
        let cut: u64 = explored.cut.iter().sum();
        if each && (verdict.task.strike.is_none() || explored.struck > 0) {
            let points: Vec<_> = explored.points.iter().map(u32::to_string).collect();
            let left = if cut == 0 { "all".into() } else { format!("{cut} left out") };
            say(format_args!("{name:<44} {:>8} schedules, {left}; points {}", explored.schedules(), points.join("+")));
        }
        let machine = name.split('/').next().unwrap_or_default();
        if machines.last().is_none_or(|(last, _)| last != machine) {
            machines.push((machine.into(), [0; 4]));
        }
        let sums = &mut machines.last_mut().expect("there is one").1;
        let add = [1, u64::from(explored.is_complete()), explored.schedules(), cut];
        sums.iter_mut().zip(add).for_each(|(sum, add)| *sum += add);
    }
    for (machine, [sets, complete, schedules, cut]) in &machines {
        say(format_args!(
            "{machine:<22} {sets:>4} sets, {complete:>4} complete; {schedules:>9} schedules run, {cut:>9} left out"
        ));
    }
    for verdict in verdicts {
        if let (Some((_, failure)), Some(replay)) = (&verdict.explored.failure, verdict.replay()) {
            say(format_args!("\nFAILED {failure}\nchecker: {}\nreplay: {replay}", failure.checker));
        }
    }
    let sum = |of: fn(&Verdict) -> u64| verdicts.iter().map(of).sum::<u64>();
    let failed = sum(|verdict| verdict.explored.failure.is_some().into());
    let struck = match sum(|verdict| verdict.explored.struck) {
        0 => String::new(),
        struck => format!(", {struck} of them struck by a fault,"),
    };
    say(format_args!(
        "{} sets of operations, {} complete, {} schedules{struck} in {:.1} s (measured), {failed} failed; digest {:#018x}",
        verdicts.len(),
        sum(|verdict| verdict.explored.is_complete().into()),
        sum(|verdict| verdict.explored.schedules()),
        took.as_secs_f64(),
        verdicts.iter().fold(0, |digest: u64, verdict| digest.rotate_left(5) ^ verdict.explored.digest)
    ));
}

/// One directed schedule.
pub(crate) fn directed(scenario: &dyn Scenario, task: &Task, schedule: &Schedule, run: &Run) {
    say(format_args!("\nschedule: {}", systematic::replay_line(scenario, task, schedule)));
    say(format_args!("{}", run.history.to_string().trim_end()));
    for turn in &run.turns {
        let agent = char::from(b'a' + turn.agent);
        say(format_args!("  {agent} from point {} to {} ({:?})", turn.from, turn.to, turn.cause));
    }
    match &run.failure {
        Some(failure) => say(format_args!("{failure}\n{}", run.state)),
        None => say(format_args!("passed: digest {:#018x}", run.digest)),
    }
}

/// A history and its failure.
pub(crate) fn history(scenario: &dyn Scenario, recipe: &Recipe, run: &Run) -> String {
    let mut text = format!("history: {}\n", replay_line(scenario.name(), recipe));
    text += run.history.to_string().trim_end();
    if let Some(failure) = &run.failure {
        text += &format!("\n{failure}\n{}", run.state);
    }
    text
}

/// Writes the run as Chrome's trace events: one track for each CPU and model, and one for managers' steps and faults.
pub(crate) fn write_trace(path: &Path, run: &Run) -> std::io::Result<()> {
    let us = |ps: u64| ps as f64 / 1e6;
    let mut events = Vec::new();
    for span in &run.spans {
        let (process, track) = match span.track {
            Track::Cpu(cpu) => (1, cpu),
            Track::Model(model) => (2, model.0),
        };
        events.push(json!({"name": span.name, "ph": "X", "ts": us(span.start.0), "dur": us(span.duration.0),
            "pid": process, "tid": track, "args": {"argument": span.argument}}));
    }
    for event in &run.history.events {
        let start = run.started.0 + event.at_ns * 1000;
        let length = event.until_ns.map_or(0, |until_ns| (until_ns - event.at_ns) * 1000);
        let track = event.manager.map_or(0, |manager| manager + 1);
        events.push(json!({"name": event.text, "ph": "X", "ts": us(start), "dur": us(length),
            "pid": 3, "tid": track, "args": {"number": event.number}}));
    }
    if let Some(failure) = &run.failure {
        events.push(json!({"name": failure.text, "ph": "i", "s": "g", "ts": us(failure.at.0), "pid": 3, "tid": 0}));
    }
    for (process, name) in [(1, "CPUs"), (2, "models"), (3, "history")] {
        events.push(json!({"name": "process_name", "ph": "M", "pid": process, "args": {"name": name}}));
    }
    let document = json!({"displayTimeUnit": "ns", "traceEvents": events});
    std::fs::write(path, document.to_string())
}

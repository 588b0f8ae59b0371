//! Every single fault: a small machine does each of its operations once, and one fault strikes at one position.
//!
//! A first run without the fault notes the times at which it can strike: a message, an invalidation, an entry, a doorbell,
//! an acknowledgement. Each is a **position**. A further run for each of them is the same up to the position before; from
//! there to just behind its own the fault lasts. All checkers listen, and the history ends as any other does. Nothing is
//! drawn.

use crate::cli::{self, CheckArgs, CheckError};
use crate::report;
use crate::run::{Run, Scenario};
use crate::verdict::Failure;
use machine::time::Ps;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

/// Most positions of a machine and fault.
const BUDGET_DEFAULT: u64 = 2_000;
/// Spans of a failure's trace.
const TRACE_SPANS_MAX: usize = 200_000;

/// A small machine and a fault.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Case {
    /// Which machine of the scenario.
    pub bench: usize,
    /// Which of its single faults.
    pub fault: usize,
    /// Machine and fault: `its/message-late`.
    pub name: String,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// A case and its result.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    scenario: &'static str,
    name: String,
    /// Positions that there are.
    pub positions: u64,
    /// Those that were run.
    pub run: u64,
    /// Over the digests of all runs.
    digest: u64,
    /// The first that failed.
    #[serde(skip)]
    pub failure: Option<(u64, Failure)>,
}

/// The window of position `index`: from behind the position before to just behind its own.
fn window(positions: &[Ps], index: usize) -> (Ps, Ps) {
    let before = if index == 0 { Ps(0) } else { positions[index - 1] };
    (before + Ps(1), positions[index] + Ps(1))
}

fn one(scenario: &dyn Scenario, case: &Case, lasts: Option<(Ps, Ps)>, spans: usize) -> Result<Run, CheckError> {
    scenario.single(case, lasts, spans).map_err(|error| CheckError::Input(error.to_string()))
}

/// Runs all positions of a case; if there are more than `budget`, so many, evenly from all. Stops at the first failure.
///
/// # Errors
/// A knob that the machine does not have.
pub fn explore(scenario: &dyn Scenario, case: &Case, budget: u64) -> Result<Verdict, CheckError> {
    let calm = one(scenario, case, None, 0)?;
    let positions = calm.occasions;
    let (total, taken) = (positions.len() as u64, budget.min(positions.len() as u64));
    let (name, digest) = (case.name.clone(), calm.digest);
    let mut verdict = Verdict { scenario: scenario.name(), name, positions: total, run: 0, digest, failure: None };
    if let Some(failure) = calm.failure {
        verdict.failure = Some((0, failure));
        return Ok(verdict);
    }
    for place in 0..taken {
        let index = (u128::from(place) * u128::from(total) / u128::from(taken)) as usize;
        let run = one(scenario, case, Some(window(&positions, index)), 0)?;
        verdict.run += 1;
        verdict.digest = (verdict.digest.rotate_left(5) ^ run.digest).wrapping_mul(0x517c_c1b7_2722_0a95);
        if let Some(failure) = run.failure {
            verdict.failure = Some((index as u64 + 1, failure));
            break;
        }
    }
    Ok(verdict)
}

/// `campanile check --single-faults`.
pub(crate) fn execute(args: &CheckArgs, scenarios: &[&'static dyn Scenario], wanted: &str) -> Result<u8, CheckError> {
    let of = |scenario: &&'static dyn Scenario| {
        let scenario = *scenario;
        scenario.singles().into_iter().map(move |case| (scenario, case))
    };
    let mut cases: Vec<_> = scenarios.iter().flat_map(of).collect();
    let known: BTreeSet<_> = cases.iter().map(|(_, case)| case.name.clone()).collect();
    match args.position {
        Some(_) => cases.retain(|(_, case)| case.name == wanted),
        None => cases.retain(|(_, case)| case.name.contains(wanted)),
    }
    if cases.is_empty() {
        let known = known.into_iter().collect::<Vec<_>>().join(", ");
        return Err(CheckError::Input(format!("--single-faults {wanted}: valid is one of these, or a part: {known}")));
    }
    if let Some(position) = args.position {
        return replay(args, &cases, position);
    }
    let start = Instant::now();
    let verdicts = run_all(&cases, args.budget.unwrap_or(BUDGET_DEFAULT), cli::jobs(args))?;
    print(&verdicts, start.elapsed().as_secs_f64());
    #[derive(Serialize)]
    struct Document<'a> {
        single_faults: &'a [Verdict],
    }
    cli::write_json(args, &cli::document(&Document { single_faults: &verdicts }, None))?;
    let failure = verdicts.iter().find_map(|verdict| verdict.failure.as_ref());
    Ok(failure.map_or(0, |(_, failure)| failure.kind.exit_code()))
}

fn run_all(cases: &[(&'static dyn Scenario, Case)], budget: u64, jobs: usize) -> Result<Vec<Verdict>, CheckError> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Relaxed);
                    let Some((scenario, case)) = cases.get(index) else { break };
                    let verdict = explore(*scenario, case, budget);
                    done.lock().expect("no panic while it is held").push((index, verdict));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no panic while it is held");
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, verdict)| verdict).collect()
}

fn replay(args: &CheckArgs, cases: &[(&'static dyn Scenario, Case)], position: u64) -> Result<u8, CheckError> {
    let [(scenario, case)] = cases else {
        return Err(CheckError::Input("--position: needs one --scenario".into()));
    };
    let positions = one(*scenario, case, None, 0)?.occasions;
    let index = usize::try_from(position).ok().and_then(|position| position.checked_sub(1));
    let Some(index) = index.filter(|index| *index < positions.len()) else {
        let text = format!("--position {position}: {case} has 1 to {}", positions.len());
        return Err(CheckError::Input(text));
    };
    let run = one(*scenario, case, Some(window(&positions, index)), TRACE_SPANS_MAX)?;
    report::say(format_args!(
        "\n{}\n{}",
        line(scenario.name(), &case.name, position),
        run.history.to_string().trim_end()
    ));
    let Some(failure) = &run.failure else {
        report::say(format_args!("passed: digest {:#018x}", run.digest));
        return Ok(0);
    };
    report::say(format_args!("{failure}\n{}", run.state));
    report::write_trace(&args.trace, &run).map_err(|error| CheckError::Write(args.trace.clone(), error))?;
    report::say(format_args!("trace: {}", args.trace.display()));
    Ok(failure.kind.exit_code())
}

/// The line that runs one position again.
fn line(scenario: &str, name: &str, position: u64) -> String {
    format!("campanile check --scenario {scenario} --single-faults {name} --position {position}")
}

fn print(verdicts: &[Verdict], took_s: f64) {
    for verdict in verdicts.iter().filter(|verdict| verdict.positions > 0) {
        let left = verdict.positions - verdict.run;
        let name = format!("{} {}", verdict.scenario, verdict.name);
        report::say(format_args!(
            "{name:<40} {:>6} positions, {:>6} run, {left:>6} left out",
            verdict.positions, verdict.run
        ));
    }
    for verdict in verdicts {
        if let Some((position, failure)) = &verdict.failure {
            let replay = line(verdict.scenario, &verdict.name, *position);
            report::say(format_args!("\nFAILED {failure}\nchecker: {}\nreplay: {replay}", failure.checker));
        }
    }
    let sum = |of: fn(&Verdict) -> u64| verdicts.iter().map(of).sum::<u64>();
    report::say(format_args!(
        "{} machines and faults, {} with positions; {} positions, {} run in {took_s:.1} s (measured), {} failed; digest {:#018x}",
        verdicts.len(),
        sum(|verdict| (verdict.positions > 0).into()),
        sum(|verdict| verdict.positions),
        sum(|verdict| verdict.run),
        sum(|verdict| verdict.failure.is_some().into()),
        verdicts.iter().fold(0, |digest: u64, verdict| digest.rotate_left(5) ^ verdict.digest)
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_lasts_from_the_one_before_to_its_own() {
        let positions = [Ps(10), Ps(25)];
        assert_eq!(window(&positions, 0), (Ps(1), Ps(11)));
        assert_eq!(window(&positions, 1), (Ps(11), Ps(26)));
    }
}

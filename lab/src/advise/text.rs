//! The advice on a terminal: a table where it fits, and else a block a remedy, within any number of columns.

use super::change::{Change, Criterion};
use super::needs::Possible;
use super::rank::Verdict;
use super::{Advice, Candidate, Refused};
use crate::outcome::Unit;
use crate::report::figure::{self, counted};

/// Most moved constants that are named.
const MOVED_MAX: usize = 8;

/// Above the remedies.
const HEADING: &str = "Changes in per cent of today, and from where to where seeds and constants leave them open";

/// The whole text, no line longer than `columns`, but for single words.
pub fn text(advice: &Advice, columns: u16) -> String {
    let width = usize::from(columns);
    let mut lines = Vec::new();
    if advice.interrupted {
        lines.push("INTERRUPTED: the figures cover only the completed runs.".to_owned());
    }
    lines.extend(head(advice));
    lines.push(String::new());
    lines.extend(conclusion(advice));
    let mut text = wrapped(&lines, width);
    text += "\n";
    text += &wrapped(&[HEADING.to_owned()], width);
    text += &ranked(&advice.candidates, columns);
    if !advice.over_budget.is_empty() {
        text += "\nOver the budget of CPUs\n";
        text += &ranked(&advice.over_budget, columns);
    }
    if !advice.without_effect.is_empty() {
        text += &wrapped(&[format!("Without any effect: {}", advice.without_effect.join(", "))], width);
    }
    text += "\n";
    text += &wrapped(&ways(advice), width);
    text + "\n" + &wrapped(&basis(advice), width)
}

/// The server as it is.
pub(super) fn head(advice: &Advice) -> Vec<String> {
    let today = &advice.today;
    let own = if advice.is_own { " (yours)" } else { "" };
    let latency =
        |name: &str, ns: Option<f64>| ns.map(|ns| format!(", {name} {}", figure::value(Unit::Nanoseconds, ns)));
    let cpu = today.cpu_ns.map(|ns| format!(", {} of CPU time each", figure::value(Unit::Nanoseconds, ns)));
    let rate = |value: f64| figure::value(Unit::PerSecond, value);
    let parts = [latency("p99", today.p99_ns), latency("p99.9", today.p99_9_ns), cpu];
    vec![
        format!("{} on platform {}{own}", advice.scenario, advice.platform),
        format!(
            "Today, {}: {} ({} to {}) {}{}; {:.1} of {} busy",
            today.delivery,
            rate(today.throughput),
            rate(today.throughput_range[0]),
            rate(today.throughput_range[1]),
            today.what,
            parts.into_iter().flatten().collect::<String>(),
            today.busy_cpus,
            counted(today.cpus, "CPU")
        ),
        format!("Bottleneck today: {}", today.bottleneck),
    ]
}

/// The verdicts in sentences.
pub(super) fn conclusion(advice: &Advice) -> Vec<String> {
    let mut lines: Vec<String> = advice.caution.iter().map(|why| format!("Not to be relied on: {why}.")).collect();
    let Advice { candidates, over_budget, without_effect, .. } = advice;
    let is_judged = !candidates.is_empty() || !without_effect.is_empty();
    let verdict = match (is_judged, over_budget.is_empty()) {
        (false, true) => Some("Nothing was tried: none of the remedies that were asked for can be tried here."),
        (false, false) => Some("Nothing was judged: no remedy that can be tried keeps within the budget of CPUs."),
        _ => Some("None needed: nothing that can be switched on here gains in throughput or tail latency.")
            .filter(|_| advice.is_none_needed()),
    };
    lines.extend(verdict.map(str::to_owned));
    if is_judged {
        lines.extend(advice.verdicts.iter().map(|verdict| sentence(advice, verdict)));
    }
    lines
}

fn sentence(advice: &Advice, verdict: &Verdict) -> String {
    let what = match verdict.by {
        Criterion::Throughput => "Throughput",
        Criterion::Tail => "Tail latency (p99)",
        Criterion::Cpu => "CPU time of an I/O",
    };
    let change = |name: &str| {
        let found = advice.candidates.iter().find(|candidate| candidate.name == name);
        let of = |candidate: &Candidate| match verdict.by {
            Criterion::Throughput => candidate.changes.throughput,
            Criterion::Tail => candidate.changes.p99,
            Criterion::Cpu => candidate.changes.cpu,
        };
        found.and_then(of).map_or(String::new(), |change| format!(" {} %", figure::signed(change.percent)))
    };
    let named = |name: &String| format!("{name}{}", change(name));
    let servers = |name: &String| {
        let found = advice.candidates.iter().find(|candidate| candidate.name == *name);
        let of = |([gaining, points], expected): ([usize; 2], f64)| {
            let mean = figure::signed(expected);
            format!(
                ", which gains on {gaining} of {} that could have been measured so, {mean} % in the mean",
                counted(points, "server")
            )
        };
        found.and_then(|candidate| candidate.gaining.zip(candidate.expected)).map_or(String::new(), of)
    };
    let mut text = match &verdict.first {
        Some(first) => format!("{what}: {}", named(first)),
        None => match &verdict.perhaps {
            Some(perhaps) => format!("{what}: not sure; perhaps {}{}", named(perhaps), servers(perhaps)),
            None => format!("{what}: none needed"),
        },
    };
    if !verdict.tied.is_empty() {
        let tied: Vec<String> = verdict.tied.iter().map(named).collect();
        text += &format!("; not to be told apart from it: {}", tied.join(", "));
    }
    if let Some(unless) = &verdict.unless {
        text += &format!("; more, if its condition holds: {}", named(unless));
    }
    if let Some(polling) = &verdict.polling {
        text += &format!("; by polling: {}", named(polling));
    }
    text + "."
}

/// `+35.2 (34.8 to 35.5)`.
pub(super) fn change(change: Option<Change>) -> String {
    let Some(Change { percent, low, high }) = change else { return "–".into() };
    format!("{} ({} to {})", figure::signed(percent), figure::signed(low), figure::signed(high))
}

/// `=` for those that share the place of another.
pub(super) fn place(candidates: &[Candidate], of: &Candidate) -> String {
    let shared = candidates.iter().filter(|one| one.place == of.place).count() > 1;
    format!("{}{}", of.place, if shared { "=" } else { "" })
}

/// Marks that a name carries: `?` a condition, `*` a custom kernel.
pub(super) fn marks(candidate: &Candidate) -> &'static str {
    match (&candidate.possible, candidate.effort) {
        (Possible::If(_), _) => " ?",
        (_, 2) => " *",
        _ => "",
    }
}

/// The same in less room: `+35.2 ±0.4` where both sides are alike, and else the ends alone, `+34.8..+35.4`.
fn short(change: Option<Change>) -> String {
    let Some(Change { percent, low, high }) = change else { return "–".into() };
    let [below, above] = [percent - low, high - percent].map(|side| format!("{side:.1}"));
    if below == above {
        return format!("{} ±{above}", figure::signed(percent));
    }
    format!("{}..{}", figure::signed(low), figure::signed(high))
}

/// The remedies as the widest form that fits: a table with both ends of each interval, one with their width, or a block
/// each.
fn ranked(candidates: &[Candidate], columns: u16) -> String {
    if candidates.is_empty() {
        return "  none\n".into();
    }
    let tables = [table(candidates, change), table(candidates, short)];
    let fits = |text: &String| text.lines().all(|line| line.chars().count() <= usize::from(columns));
    tables.into_iter().find(fits).unwrap_or_else(|| blocks(candidates, columns))
}

fn cells(candidate: &Candidate, shown: fn(Option<Change>) -> String) -> [String; 4] {
    let changes = &candidate.changes;
    [changes.throughput, changes.p99, changes.p99_9, changes.cpu].map(shown)
}

fn blocks(candidates: &[Candidate], columns: u16) -> String {
    let width = usize::from(columns);
    let block = |candidate: &Candidate| {
        let head = format!("{} {}{}", place(candidates, candidate), candidate.name, marks(candidate));
        let names = ["throughput", "p99", "p99.9", "CPU an I/O"];
        let lines = names.into_iter().zip(cells(candidate, change)).filter(|(_, cell)| cell != "–");
        let lines: String = lines.map(|(name, cell)| wrapped(&[format!("  {name} {cell}")], width)).collect();
        wrapped(&[head], width) + &lines
    };
    candidates.iter().map(block).collect()
}

fn table(candidates: &[Candidate], shown: fn(Option<Change>) -> String) -> String {
    let header = ["", "remedy", "throughput", "p99", "p99.9", "CPU an I/O"].map(str::to_owned);
    let line = |candidate: &Candidate| {
        let [throughput, p99, p99_9, cpu] = cells(candidate, shown);
        let name = format!("{}{}", candidate.name, marks(candidate));
        [place(candidates, candidate), name, throughput, p99, p99_9, cpu]
    };
    let rows: Vec<[String; 6]> = std::iter::once(header).chain(candidates.iter().map(line)).collect();
    // A column that no remedy has is left out.
    let has = |column: usize| column < 2 || rows[1..].iter().any(|row| row[column] != "–");
    let kept: Vec<usize> = (0..6).filter(|&column| has(column)).collect();
    let wide = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let cell = |row: &[String; 6], column: usize| {
        let pad = " ".repeat(wide(column) - row[column].chars().count());
        if column < 2 { format!("{}{pad}", row[column]) } else { format!("{pad}{}", row[column]) }
    };
    let line = |row: &[String; 6]| {
        let cells: Vec<String> = kept.iter().map(|&column| cell(row, column)).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// How each is switched on, and what each needs.
fn ways(advice: &Advice) -> Vec<String> {
    let mut lines = vec!["How (? if the condition holds, * custom kernel)".to_owned()];
    let mut told: Vec<(&str, String)> = Vec::new();
    for candidate in advice.candidates.iter().chain(&advice.over_budget) {
        // Steps with one way and the same needs are told once.
        let key = (candidate.how, remarks(candidate));
        if told.contains(&key) {
            continue;
        }
        told.push(key);
        lines.push(format!("  {}: {}{}", candidate.name, candidate.how, remarks(candidate)));
    }
    if !advice.refused.is_empty() {
        lines.push("Not ranked".to_owned());
        lines.extend(advice.refused.iter().map(|refused| format!("  {}: {}", refused.name, refused.why)));
    }
    if !advice.not_applicable.is_empty() {
        lines.push("Does not apply".to_owned());
        lines.extend(not_applicable(advice).into_iter().map(|(names, why)| format!("  {names}: {why}")));
    }
    lines
}

/// What does not apply, and why: those with one reason together.
pub(super) fn not_applicable(advice: &Advice) -> Vec<(String, &str)> {
    let mut told: Vec<(String, &str)> = Vec::new();
    for Refused { name, why } in &advice.not_applicable {
        match told.iter_mut().find(|(_, known)| known == why) {
            Some((names, _)) => *names += &format!(", {name}"),
            None => told.push((name.clone(), why)),
        }
    }
    told
}

/// What a remedy needs, behind the way.
pub(super) fn remarks(candidate: &Candidate) -> String {
    match &candidate.possible {
        Possible::Yes(remarks) if remarks.is_empty() => String::new(),
        Possible::Yes(remarks) => format!(" [{}]", remarks.join("; ")),
        Possible::If(conditions) => format!(" [if {}]", conditions.join("; ")),
        Possible::No(why) => format!(" [{why}]"),
    }
}

/// What the figures stand on.
pub(super) fn basis(advice: &Advice) -> Vec<String> {
    let points = counted(advice.points, "point");
    let moved = match advice.moved.len() {
        0 => "no constant of the platform is fitted, so none was moved".to_owned(),
        count if count > MOVED_MAX => {
            let first = advice.moved[..MOVED_MAX].join(", ");
            format!("{points} of {count} constants ({first}, and {} more)", count - MOVED_MAX)
        }
        count => format!("{points} of {} ({})", counted(count, "constant"), advice.moved.join(", ")),
    };
    let class = if advice.is_own { "yours, simulated" } else { "simulated, predicted" };
    vec![
        format!(
            "Figures: {class}. {} of {} each; {moved}. Other constants were held.",
            counted(advice.seeds, "seed"),
            figure::duration(advice.span_ns as f64)
        ),
        "Places with = cannot be told apart; among them the least effort stands first.".to_owned(),
    ]
}

/// Lines broken at blanks. A broken line goes on below its own indent and two more.
fn wrapped(lines: &[String], width: usize) -> String {
    let mut text = String::new();
    for line in lines {
        let indent = line.len() - line.trim_start().len();
        let mut now = " ".repeat(indent);
        let mut is_empty = true;
        for word in line.split_whitespace() {
            if !is_empty && now.chars().count() + 1 + word.chars().count() > width {
                text += now.trim_end();
                text += "\n";
                now = " ".repeat(indent + 2);
                is_empty = true;
            }
            if !is_empty {
                now.push(' ');
            }
            now += word;
            is_empty = false;
        }
        text += now.trim_end();
        text += "\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::change::Changes;
    use super::*;

    #[test]
    fn lines_are_broken_at_blanks_and_indented() {
        let lines = ["  one two three".to_owned(), String::new()];
        assert_eq!(wrapped(&lines, 10), "  one two\n    three\n\n");
    }

    #[test]
    fn forty_columns_hold_a_remedy() {
        let some = Some(Change { percent: 35.2, low: 34.8, high: 35.5 });
        let mut candidate = Candidate { name: "posted".into(), place: 1, effort: 2, ..Candidate::blank() };
        candidate.changes = Changes { throughput: some, p99: some, p99_9: some, cpu: some };
        let text = ranked(&[candidate.clone()], 40);
        assert!(text.starts_with("1 posted *\n  throughput +35.2 (+34.8 to +35.5)\n"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
        let middle = ranked(&[candidate.clone()], 80);
        assert!(middle.lines().count() == 2 && middle.contains("+34.8..+35.5"), "{middle}");
        let even = Change { percent: 35.2, low: 34.8, high: 35.6 };
        assert_eq!(short(Some(even)), "+35.2 ±0.4");
        candidate.changes.p99_9 = None;
        let wide = ranked(&[candidate], 130);
        assert!(wide.lines().count() == 2 && wide.contains("+34.8 to") && !wide.contains("p99.9"), "{wide}");
    }
}

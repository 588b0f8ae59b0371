//! Every single fault: a small machine does each of its operations once, and one fault strikes at one position.
//!
//! A **position** is a time at which the fault acts. The hardware tells of each act, so the fault itself finds its positions:
//! injected behind one of them, it strikes at the next. A further run is the same up to there; the fault lasts until just
//! behind its position, so it strikes once. A fault that acts at its injection, such as a spurious interrupt, is injected
//! behind each fact of a kind, and the report says how often it did something. All checkers listen, and the history ends as
//! any other does. Nothing is drawn.
//!
//! A fault that strikes several times has a position for each act that the others follow: the first try of something fails, and
//! so does what the software then does about it.

use crate::cli::{self, CheckArgs, CheckError, TRACE_SPANS_MAX};
use crate::parallel;
use crate::report;
use crate::run::{Run, Scenario};
use crate::verdict::Failure;
use machine::time::Ps;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;
use std::time::Instant;

/// Most positions of a machine and fault.
const BUDGET_DEFAULT: u64 = 2_000;

/// A small machine and a fault.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Case {
    /// Which machine of the scenario.
    pub bench: usize,
    /// Which of its single faults.
    pub fault: usize,
    /// The fault ends by itself, so it is injected just before its position.
    pub lasts: bool,
    /// The fault acts at its injection.
    pub behind: bool,
    /// How often it acts at a position: there, and at what it meets behind it.
    pub acts_times: usize,
    /// No fault, but a setback of the bring-up, as its knob has it: a position is an act of the software that comes up.
    pub sets_back: Option<u64>,
    /// Machine and fault: `its/message-late`.
    pub name: String,
}

impl Case {
    /// One of a machine.
    pub(crate) fn at(bench: usize) -> Self {
        Self { bench, fault: 0, lasts: false, behind: false, acts_times: 1, sets_back: None, name: String::new() }
    }

    /// The fault strikes by itself, and tells of it.
    pub(crate) fn tells(&self) -> bool {
        !self.behind && self.sets_back.is_none()
    }

    /// The first position behind `behind`.
    ///
    /// # Errors
    /// Those of `run`.
    fn find<E>(&self, behind: Ps, run: impl Fn(When) -> Result<Run, E>) -> Result<Found, E> {
        let from = behind + Ps(1);
        let mut found = run(When::From(from))?;
        found.struck.sort_unstable();
        let struck = (found.struck.first(), found.struck.get(self.acts_times - 1));
        let (Some(&first), Some(&last)) = struck else { return Ok(Found::None(Box::new(found), When::From(from))) };
        Ok(Found::At(first.max(from), window(self, from, last.max(from))))
    }

    /// The history of `run` at the position of this number, from 1 on. If there are fewer, one without the fault, which ends early.
    ///
    /// # Errors
    /// Those of `run`.
    pub(crate) fn nth<E>(&self, number: u32, run: impl Fn(When) -> Result<Run, E>) -> Result<Run, E> {
        let (mut at, mut when) = (Ps(0), When::Never);
        for _ in 0..number {
            (at, when) = match self.find(at, &run)? {
                Found::At(at, when) => (at, when),
                Found::None(run, _) => return Ok(*run),
            };
        }
        run(when)
    }
}

/// What a search for the next position came to.
enum Found {
    /// Its time, and when the fault lasts.
    At(Ps, When),
    /// There is none: the history in which the fault had nothing to strike, and from when on it was there.
    None(Box<Run>, When),
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// When the fault of a case is injected and healed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// Never.
    Never,
    /// From this time until it does something. Then the run is over: it tells when that was.
    From(Ps),
    /// From when to when.
    During(Ps, Ps),
    /// Behind so many acts of the software that comes up.
    Spared(u32),
}

/// A case and its result.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    scenario: &'static str,
    name: String,
    /// Positions that were found and run.
    pub positions: u64,
    /// Positions at which the fault did something.
    pub acted: u64,
    /// There are more positions than the budget allows.
    pub cut: bool,
    /// Over the digests of all runs.
    digest: u64,
    /// The first that failed; 0: the run without the fault.
    #[serde(skip)]
    pub failure: Option<(u64, Failure)>,
}

/// Finds the positions of a case, one after the other.
struct Positions<'a> {
    scenario: &'a dyn Scenario,
    case: &'a Case,
    /// Where a fault that acts at its injection may be injected.
    occasions: Vec<Ps>,
    /// The last position.
    last: Ps,
    /// Acts before the next position of a setback.
    spared: u32,
}

/// The next position, or a failure on the way to it.
enum Step {
    At(When),
    Failed(Failure, When),
    End,
}

impl<'a> Positions<'a> {
    fn new(scenario: &'a dyn Scenario, case: &'a Case, calm: &Run) -> Self {
        let mut occasions = calm.occasions.clone();
        occasions.reverse();
        Self { scenario, case, occasions, last: Ps(0), spared: 0 }
    }

    fn next(&mut self) -> Result<Step, CheckError> {
        if self.case.sets_back.is_some() {
            self.spared += 1;
            return Ok(Step::At(When::Spared(self.spared - 1)));
        }
        if self.case.behind {
            return Ok(self.occasions.pop().map_or(Step::End, |at| Step::At(When::During(at + Ps(1), at + Ps(2)))));
        }
        let run = |when| one(self.scenario, self.case, when, 0);
        Ok(match self.case.find(self.last, run)? {
            Found::At(at, when) => {
                self.last = at;
                Step::At(when)
            }
            Found::None(run, when) => run.failure.map_or(Step::End, |failure| Step::Failed(failure, when)),
        })
    }
}

/// From behind the position before to just behind `at`; or from just before it, if the fault ends by itself.
fn window(case: &Case, from: Ps, at: Ps) -> When {
    let from = if case.lasts { from.max(Ps(at.0.saturating_sub(1))) } else { from };
    When::During(from, at + Ps(1))
}

fn one(scenario: &dyn Scenario, case: &Case, when: When, spans: usize) -> Result<Run, CheckError> {
    scenario.single(case, when, spans).map_err(|error| CheckError::Input(error.to_string()))
}

/// Finds and runs the positions of a case, at most `budget` of them. Stops at the first failure.
///
/// # Errors
/// A knob that the machine does not have.
pub fn explore(scenario: &dyn Scenario, case: &Case, budget: u64) -> Result<Verdict, CheckError> {
    let calm = one(scenario, case, When::Never, 0)?;
    let (name, digest) = (case.name.clone(), calm.digest);
    let mut verdict =
        Verdict { scenario: scenario.name(), name, positions: 0, acted: 0, cut: false, digest, failure: None };
    let mut positions = Positions::new(scenario, case, &calm);
    if let Some(failure) = calm.failure {
        verdict.failure = Some((0, failure));
        return Ok(verdict);
    }
    loop {
        let failure = match positions.next()? {
            Step::End => break,
            Step::At(_) if verdict.positions == budget => {
                verdict.cut = true;
                break;
            }
            Step::Failed(failure, _) => {
                verdict.positions += 1;
                Some(failure)
            }
            Step::At(when) => {
                let run = one(scenario, case, when, 0)?;
                // A setback behind the last act changes nothing.
                if case.sets_back.is_some() && !run.set_back && run.failure.is_none() {
                    break;
                }
                verdict.positions += 1;
                verdict.acted += u64::from(run.set_back || !run.struck.is_empty());
                verdict.digest = (verdict.digest.rotate_left(5) ^ run.digest).wrapping_mul(0x517c_c1b7_2722_0a95);
                run.failure
            }
        };
        if let Some(failure) = failure {
            verdict.failure = Some((verdict.positions, failure));
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
    let budget = args.budget.unwrap_or(BUDGET_DEFAULT);
    let verdicts = parallel::map(&cases, "machines and faults", cli::jobs(args), |(scenario, case)| {
        explore(*scenario, case, budget)
    });
    let verdicts = verdicts.into_iter().collect::<Result<Vec<_>, _>>()?;
    print(&verdicts, start.elapsed().as_secs_f64());
    #[derive(Serialize)]
    struct Document<'a> {
        single_faults: &'a [Verdict],
    }
    cli::write_json(args, &cli::document(&Document { single_faults: &verdicts }, None))?;
    let failure = verdicts.iter().find_map(|verdict| verdict.failure.as_ref());
    Ok(failure.map_or(0, |(_, failure)| failure.kind.exit_code()))
}

fn replay(args: &CheckArgs, cases: &[(&'static dyn Scenario, Case)], position: u64) -> Result<u8, CheckError> {
    let [(scenario, case)] = cases else {
        return Err(CheckError::Input("--position: needs one --scenario".into()));
    };
    let run = one(*scenario, case, locate(*scenario, case, position)?, TRACE_SPANS_MAX)?;
    let acted = match run.struck.first() {
        Some(at) => format!("the fault acted at {at}"),
        None if run.set_back => "the setback struck".to_owned(),
        None => "the fault did nothing".to_owned(),
    };
    report::say(format_args!(
        "\n{}\n{}\n  {acted}",
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

/// When the fault lasts at this position; 0: never.
fn locate(scenario: &dyn Scenario, case: &Case, position: u64) -> Result<When, CheckError> {
    if position == 0 {
        return Ok(When::Never);
    }
    let calm = one(scenario, case, When::Never, 0)?;
    let mut positions = Positions::new(scenario, case, &calm);
    for number in 1..=position {
        match positions.next()? {
            Step::At(when) | Step::Failed(_, when) if number == position => return Ok(when),
            Step::At(_) => {}
            Step::End | Step::Failed(..) => {
                let text = format!("--position {position}: {case} has 1 to {}, and 0 for no fault", number - 1);
                return Err(CheckError::Input(text));
            }
        }
    }
    unreachable!("the last position is returned or refused")
}

/// The line that runs one position again.
pub(crate) fn line(scenario: &str, name: &str, position: u64) -> String {
    format!("campanile check --scenario {scenario} --single-faults {name} --position {position}")
}

fn print(verdicts: &[Verdict], took_s: f64) {
    for verdict in verdicts.iter().filter(|verdict| verdict.positions > 0) {
        let name = format!("{} {}", verdict.scenario, verdict.name);
        let idle = verdict.positions - verdict.acted;
        let cut = if verdict.cut { ", and there are more" } else { "" };
        report::say(format_args!(
            "{name:<42} {:>6} positions, {:>6} acted, {idle:>6} did not{cut}",
            verdict.positions, verdict.acted
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
        "{} machines and faults, {} with positions; {} positions run in {took_s:.1} s (measured), {} acted, {} failed; {} cut; \
         digest {:#018x}",
        verdicts.len(),
        sum(|verdict| (verdict.positions > 0).into()),
        sum(|verdict| verdict.positions),
        sum(|verdict| verdict.acted),
        sum(|verdict| verdict.failure.is_some().into()),
        sum(|verdict| verdict.cut.into()),
        verdicts.iter().fold(0, |digest: u64, verdict| digest.rotate_left(5) ^ verdict.digest)
    ));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::KnobError;
    use crate::history::Recipe;
    use crate::systematic::{BenchNames, Task};
    use crate::verdict::Kind;
    use machine::unrest::turns::Schedule;

    /// A stack that panics at its third allocation, if that fails, and makes five.
    struct Panics;

    impl Scenario for Panics {
        fn name(&self) -> &'static str {
            "panics"
        }
        fn about(&self) -> &'static str {
            ""
        }
        fn fault_kinds(&self) -> &'static [&'static str] {
            &[]
        }
        fn run(&self, _: &Recipe) -> Result<Run, KnobError> {
            Ok(Run::default())
        }
        fn benches(&self) -> Vec<BenchNames> {
            Vec::new()
        }
        fn direct(&self, _: &Task, _: &Schedule, _: usize) -> Result<Run, KnobError> {
            Ok(Run::default())
        }
        fn singles(&self) -> Vec<Case> {
            Vec::new()
        }
        fn single(&self, _: &Case, when: When, _: usize) -> Result<Run, KnobError> {
            let failure = (when == When::Spared(2)).then(|| Failure::new(Kind::Crash, "panic", Ps(0), "no memory"));
            let set_back = failure.is_none() && matches!(when, When::Spared(0..5));
            Ok(Run { failure, set_back, ..Run::default() })
        }
    }

    /// Defect: such an attempt never tells that it was set back, and was taken for the end of the positions.
    #[test]
    fn an_attempt_that_panics_is_a_failure_and_not_the_end() {
        let case = Case { sets_back: Some(1), ..Case::at(0) };
        let verdict = explore(&Panics, &case, 10).expect("nothing is set wrongly");
        assert_eq!(verdict.failure.map(|(position, failure)| (position, failure.kind)), Some((3, Kind::Crash)));
    }

    #[test]
    fn a_position_lasts_from_the_one_before_to_its_own() {
        let case = |lasts| Case { lasts, ..Case::at(0) };
        assert_eq!(window(&case(false), Ps(11), Ps(25)), When::During(Ps(11), Ps(26)));
        assert_eq!(window(&case(true), Ps(11), Ps(25)), When::During(Ps(24), Ps(26)));
        assert_eq!(window(&case(true), Ps(11), Ps(11)), When::During(Ps(11), Ps(12)));
    }
}

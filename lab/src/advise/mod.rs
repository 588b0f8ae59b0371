//! `campanile advise`: every remedy that the lab has, tried on a server and a job, and ranked.
//!
//! | file | content |
//! |---|---|
//! | `remedies.rs` | the one table of remedies: what each tries, needs, and how it is switched on |
//! | `needs.rs` | what hardware, kernel, device and application allow |
//! | `choose.rs` | which steps are tried here, and why the others are not |
//! | `measure.rs` | the runs: today's server and each remedy, over seeds and moved constants |
//! | `change.rs` | what a remedy changes, with its interval |
//! | `rank.rs` | places, ties, and the verdicts |
//! | `text.rs`, `page.rs` | the terminal's tables and the page |

pub mod change;
mod choose;
mod measure;
pub mod needs;
mod page;
pub mod rank;
pub mod remedies;
mod text;

pub use change::Criterion;
pub use page::page;
pub use text::text;

use crate::input::{InputError, Place, Warning, nearest};
use crate::interrupt::StopFlag;
use crate::plan::{Plan, Spans};
use crate::scenario::Request;
use change::{Changes, Figures, Points};
use choose::{Choice, Tried, choose};
use measure::Measured;
use needs::{Possible, Stated};
use rank::Verdict;
use remedies::REMEDIES;
use serde::Serialize;
use std::fmt;

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// The job or scenario, and its platform. Its only delivery, or else the first, is today's.
    pub request: Request,
    /// The remedies to try, by their ids; empty: all.
    pub among: Vec<String>,
    /// What is known of the server beside its platform.
    pub stated: Stated,
    /// The CPUs that the job may keep busy.
    pub cpu_budget: Option<Budget>,
    /// What places follow.
    pub by: Criterion,
    /// Points at which the platform's constants are moved; none: all of its region, or 4.
    pub points: Option<u32>,
}

/// A bound on busy CPUs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Budget {
    /// So many CPUs.
    Cpus(f64),
    /// A share of the machine's, in per cent.
    Percent(f64),
}

impl Budget {
    /// `4`, or `50%`.
    ///
    /// # Errors
    /// It is neither, or not above zero.
    pub fn read(text: &str) -> Result<Self, InputError> {
        let number = |text: &str| text.trim().parse::<f64>().ok().filter(|value| value.is_finite() && *value > 0.0);
        let found = match text.trim().strip_suffix('%') {
            Some(percent) => number(percent).filter(|percent| *percent <= 100.0).map(Self::Percent),
            None => number(text).map(Self::Cpus),
        };
        let valid = "CPUs above 0, such as 4, or their share above 0% and up to 100%, such as 50%";
        let wrong = || InputError::value(&Place::option("--cpu-budget"), "", text, "is no budget", valid);
        found.ok_or_else(wrong)
    }

    /// How many CPUs that are, of so many.
    fn cpus(self, of: u32) -> f64 {
        match self {
            Self::Cpus(cpus) => cpus,
            Self::Percent(percent) => percent / 100.0 * f64::from(of),
        }
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpus(cpus) => write!(f, "{cpus}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// A remedy that was tried.
#[derive(Clone, Debug, Serialize)]
pub struct Candidate {
    /// The family, as `--among` names it.
    pub remedy: &'static str,
    /// Its name.
    pub name: String,
    /// Its place by the question's criterion, from 1. Those that cannot be told apart share one.
    pub place: usize,
    /// What it changes, in per cent of today's figures.
    pub changes: Changes,
    /// On how many of the servers that could be this one it gains throughput that counts, and how many those are; none of a
    /// platform that keeps no such servers.
    pub gaining: Option<[usize; 2]>,
    /// What it gains in throughput over those servers in the mean, in per cent.
    pub expected: Option<f64>,
    /// CPUs that it keeps busy.
    pub busy_cpus: f64,
    /// What limits with it.
    pub bottleneck: String,
    /// Whether it can be switched on here.
    #[serde(flatten)]
    pub possible: Possible,
    /// 0: a setting or a parameter; 1: another application; 2: a custom kernel.
    pub effort: u8,
    /// It gives CPU time to polling.
    pub polls: bool,
    /// How it is switched on.
    pub how: &'static str,
}

#[cfg(test)]
impl Candidate {
    fn blank() -> Self {
        Self {
            remedy: "",
            name: String::new(),
            place: 0,
            changes: Changes { throughput: None, p99: None, p99_9: None, cpu: None },
            gaining: None,
            expected: None,
            busy_cpus: 0.0,
            bottleneck: String::new(),
            possible: Possible::Yes(Vec::new()),
            effort: 0,
            polls: false,
            how: "",
        }
    }
}

/// A remedy that was not ranked, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// Its name.
    pub name: String,
    /// Why.
    pub why: String,
}

/// The server as it is.
#[derive(Clone, Debug, Serialize)]
pub struct Today {
    /// Its variant.
    pub delivery: String,
    /// The name of the throughput's quantity.
    pub what: &'static str,
    /// Throughput a second.
    pub throughput: f64,
    /// The least and the greatest over the seeds and the points; wider where the points are drawn servers
    /// ([`Points::ends`]).
    pub throughput_range: [f64; 2],
    /// 99th percentile of the latency, in ns.
    pub p99_ns: Option<f64>,
    /// 99.9th percentile, in ns.
    pub p99_9_ns: Option<f64>,
    /// CPU time of an I/O, in ns.
    pub cpu_ns: Option<f64>,
    /// CPUs that are busy.
    pub busy_cpus: f64,
    /// CPUs of the machine.
    pub cpus: u32,
    /// What limits.
    pub bottleneck: String,
}

/// The answer.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// The scenario's or job's name.
    pub scenario: String,
    /// The platform's name.
    pub platform: String,
    /// The platform is the reader's own.
    pub is_own: bool,
    /// Why the ranking is not to be relied on: the platform misses what it was fitted to.
    pub caution: Option<String>,
    /// The server as it is.
    pub today: Today,
    /// The remedies, best first.
    pub candidates: Vec<Candidate>,
    /// Those above the budget of CPUs.
    pub over_budget: Vec<Candidate>,
    /// Remedies that change no figure at all.
    pub without_effect: Vec<String>,
    /// Those that were not tried, or that failed.
    pub refused: Vec<Refused>,
    /// Remedies, or steps of them, that do not apply to this server and job.
    pub not_applicable: Vec<Refused>,
    /// What places follow.
    pub by: Criterion,
    /// The advice by each criterion.
    pub verdicts: Vec<Verdict>,
    /// Seeds of each side.
    pub seeds: usize,
    /// The simulated span of a run, in ns.
    pub span_ns: u64,
    /// Points at which constants were moved.
    pub points: usize,
    /// The constants that were moved, each with its share (`fabric.remap_service ±2.0 %`) or its range over the region
    /// (`-3.1 to +4.0 %`).
    pub moved: Vec<String>,
    /// Warnings about the input.
    pub warnings: Vec<String>,
    /// Ctrl-C ended it: some runs are missing.
    pub interrupted: bool,
    /// Today's plan with the span that was simulated, for the manifest.
    #[serde(skip)]
    pub plan: Plan,
}

/// Why there is no advice.
#[derive(Debug)]
pub enum AdviseError {
    /// The input.
    Input(InputError),
    /// Today's server does not run.
    Run(String),
    /// Ctrl-C before anything could be compared.
    Stopped,
}

impl fmt::Display for AdviseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(error) => error.fmt(f),
            Self::Run(error) => write!(f, "as it is today: {error}"),
            Self::Stopped => f.write_str("interrupted before anything could be compared"),
        }
    }
}

impl std::error::Error for AdviseError {}

impl From<InputError> for AdviseError {
    fn from(error: InputError) -> Self {
        Self::Input(error)
    }
}

/// I/Os of a storage run that are enough: its span is shortened to about so many.
const IOS_ENOUGH: f64 = 40_000.0;
/// The shortest span that a run is shortened to.
const SPAN_MIN_NS: u64 = 2_000_000;

/// Tries every remedy and ranks them.
///
/// # Errors
/// [`AdviseError`].
pub fn advise(question: &Question, stop: &StopFlag) -> Result<Advice, AdviseError> {
    let mut today = today(&question.request)?;
    known(&question.among)?;
    shorten(&mut today, stop)?;
    let Choice { tried, mut refused, not_applicable } = choose(question, &today);
    let plans: Vec<&Plan> = std::iter::once(&today).chain(tried.iter().map(|one| &one.plan)).collect();
    let measured = measure::run(&plans, question.points, stop)?;
    let base = measured.of(0).map_err(AdviseError::Run)?;
    if base.seeds.len() < today.seeds.len() {
        return Err(AdviseError::Stopped);
    }
    let as_it_is = as_it_is(&today, base, measured.are);
    if as_it_is.throughput == 0.0 {
        return Err(AdviseError::Run(nothing_ended(today.spans)));
    }
    let mut candidates = Vec::new();
    for (index, one) in tried.into_iter().enumerate() {
        match measured.of(index + 1) {
            // A remedy whose runs were stopped has no seed for each of today's.
            Ok(ours) if ours.seeds.len() < base.seeds.len() => {}
            Ok(ours) => candidates.push(candidate(one, base, ours, measured.are)),
            Err(error) => refused.push(Refused { name: one.step.name, why: error }),
        }
    }
    let (candidates, without): (Vec<_>, Vec<_>) =
        candidates.into_iter().partition(|candidate: &Candidate| candidate.changes.are_some());
    let budget = question.cpu_budget.map_or(f64::INFINITY, |budget| budget.cpus(today.cpus));
    let mut warnings: Vec<String> = Warning::texts(&today.warnings);
    if as_it_is.busy_cpus > budget {
        let busy = as_it_is.busy_cpus;
        warnings.push(format!("--cpu-budget: {busy:.1} CPUs are busy today, above the budget of {budget}"));
    }
    let (mut candidates, mut over_budget): (Vec<_>, Vec<_>) =
        candidates.into_iter().partition(|candidate| candidate.busy_cpus <= budget);
    rank::place(&mut candidates, question.by);
    rank::place(&mut over_budget, question.by);
    let by = [Criterion::Throughput, Criterion::Tail, Criterion::Cpu];
    let has = |by: &Criterion| {
        *by == Criterion::Throughput || candidates.iter().any(|candidate| candidate.changes.gain(*by).is_some())
    };
    let verdicts = by.into_iter().filter(has).map(|by| Verdict::of(&candidates, by)).collect();
    Ok(Advice {
        scenario: today.name.clone(),
        platform: today.platform.name.clone(),
        is_own: today.platform.is_own,
        caution: today.platform.caution(),
        today: as_it_is,
        candidates,
        over_budget,
        without_effect: without.into_iter().map(|candidate| candidate.name).collect(),
        refused,
        not_applicable,
        by: question.by,
        verdicts,
        seeds: base.seeds.len(),
        span_ns: base.seeds.iter().map(|seed| seed.span_ns).max().unwrap_or(today.spans.measured_ns),
        points: base.points.iter().flatten().count(),
        moved: measured.moved.clone(),
        warnings,
        interrupted: stop.is_set(),
        plan: today,
    })
}

/// Why nothing can be compared.
fn nothing_ended(Spans { ramp_ns, measured_ns, .. }: Spans) -> String {
    let ms = |ns: u64| ns as f64 / 1e6;
    format!(
        "nothing ended in the simulated {} ms behind a ramp of {} ms, so that nothing can be compared; valid: a longer span \
         (--set ramp=TIME --set duration=TIME)",
        ms(measured_ns),
        ms(ramp_ns)
    )
}

/// The plan of the server as it is: in one variant.
fn today(request: &Request) -> Result<Plan, InputError> {
    let plan = request.plan()?;
    let names = plan.work.names();
    let first = names.first().cloned().into_iter().collect();
    if names.len() == 1 {
        return Ok(plan);
    }
    Request { deliveries: Some(first), ..request.clone() }.plan()
}

/// Refuses an id that no remedy has.
fn known(among: &[String]) -> Result<(), InputError> {
    let unknown = among.iter().find(|id| REMEDIES.iter().all(|remedy| remedy.id != **id));
    unknown.map_or(Ok(()), |id| {
        let valid = nearest(id, REMEDIES.iter().map(|remedy| remedy.id)).join(", ");
        Err(InputError::value(&Place::option("--among"), "", id, "is no remedy", valid))
    })
}

/// Shortens the span of a storage job to as many I/Os as are enough. The rate is that of a short run.
fn shorten(today: &mut Plan, stop: &StopFlag) -> Result<(), AdviseError> {
    let is_plain = today.storage().is_some_and(|storage| !storage.staged);
    if !is_plain || today.spans.measured_ns <= SPAN_MIN_NS {
        return Ok(());
    }
    let mut short = today.clone();
    short.seeds.truncate(1);
    short.spans = Spans { measured_ns: SPAN_MIN_NS, ..today.spans };
    let Some(run) = crate::run::run_all(&short, false, stop)
        .map_err(|error| AdviseError::Run(error.to_string()))?
        .into_iter()
        .next()
    else {
        return Err(AdviseError::Stopped);
    };
    let rate = Figures::of(&run.outcome).throughput.unwrap_or(0.0);
    let enough_ns = if rate > 0.0 { (IOS_ENOUGH / rate * 1e9) as u64 } else { u64::MAX };
    today.spans.measured_ns = today.spans.measured_ns.min(enough_ns.max(SPAN_MIN_NS));
    Ok(())
}

fn candidate(tried: Tried, base: &Measured, ours: &Measured, are: Points) -> Candidate {
    let Tried { remedy, step, possible, .. } = tried;
    let pairs: Vec<(Figures, Figures)> = base.seeds.iter().copied().zip(ours.seeds.iter().copied()).collect();
    let points = base.points.iter().zip(&ours.points).filter_map(|(today, then)| Some(((*today)?, (*then)?)));
    let points: Vec<(Figures, Figures)> = points.collect();
    let gain = |(today, then): &(Figures, Figures)| Some((then.throughput? / today.throughput? - 1.0) * 100.0);
    let gains: Vec<f64> = points.iter().filter_map(gain).collect();
    let are_servers = are == Points::Servers && !gains.is_empty();
    let gaining = gains.iter().filter(|gain| **gain >= rank::LEAST_THROUGHPUT).count();
    Candidate {
        remedy: remedy.id,
        name: step.name,
        place: 0,
        changes: Changes::of(&pairs, &points, are),
        gaining: are_servers.then_some([gaining, gains.len()]),
        expected: are_servers.then(|| gains.iter().sum::<f64>() / gains.len() as f64),
        busy_cpus: mean(ours, |figures| Some(figures.busy_cpus)).unwrap_or(0.0),
        bottleneck: ours.bottleneck.clone(),
        effort: Possible::effort(&step.needs),
        possible,
        polls: step.polls,
        how: step.how,
    }
}

fn mean(of: &Measured, value: fn(&Figures) -> Option<f64>) -> Option<f64> {
    let values: Vec<f64> = of.seeds.iter().filter_map(value).collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn range(of: &Measured, are: Points) -> [f64; 2] {
    let throughput = |figures: &Figures| figures.throughput;
    let of_seeds = Points::Corners.ends(of.seeds.iter().filter_map(throughput));
    let of_points = are.ends(of.points.iter().flatten().filter_map(throughput));
    let both = of_seeds.into_iter().chain(of_points);
    both.reduce(|[low, high], [least, most]| [low.min(least), high.max(most)]).unwrap_or([0.0; 2])
}

fn as_it_is(plan: &Plan, base: &Measured, are: Points) -> Today {
    Today {
        delivery: plan.work.names().swap_remove(0),
        what: base.what,
        throughput: mean(base, |figures| figures.throughput).unwrap_or(0.0),
        throughput_range: range(base, are),
        p99_ns: mean(base, |figures| figures.p99),
        p99_9_ns: mean(base, |figures| figures.p99_9),
        cpu_ns: mean(base, |figures| figures.cpu_ns),
        busy_cpus: mean(base, |figures| Some(figures.busy_cpus)).unwrap_or(0.0),
        cpus: plan.cpus,
        bottleneck: base.bottleneck.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_a_count_or_a_share_of_the_cpus() {
        assert_eq!(Budget::read("4").unwrap().cpus(32), 4.0);
        assert_eq!(Budget::read(" 50% ").unwrap().cpus(32), 16.0);
        assert_eq!(Budget::read(" 50% ").unwrap().to_string(), "50%");
        for wrong in ["", "0", "-1", "101%", "many"] {
            assert!(Budget::read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_unknown_remedy_is_refused_with_the_known_ones() {
        let error = known(&["postd".into()]).unwrap_err().to_string();
        assert!(error.ends_with("`postd` is no remedy; valid: posted"), "{error}");
        let error = known(&["more of everything".into()]).unwrap_err().to_string();
        assert!(error.contains("valid: batch, budget, check, coalescing"), "{error}");
    }
}

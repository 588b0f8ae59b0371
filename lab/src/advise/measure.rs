//! The runs: each plan with every seed, and with its first seed at points of the constants.

use super::change::Figures;
use crate::calibrate::{Family, FreeConstant};
use crate::input::InputError;
use crate::interrupt::StopFlag;
use crate::outcome::{Finding, Outcome};
use crate::plan::Plan;
use crate::progress::Progress;
use crate::run::{self, RunError};
use machine::Stream;
use rayon::prelude::*;

/// How far a free constant is moved whose file does not say how far its fit leaves it open: the tolerance of a fitted
/// row.
const UNCERTAINTY: f64 = 0.02;
/// The seed of the drawn points.
const SEED: u64 = 1;

/// The runs of one plan.
#[derive(Debug, Default)]
pub(super) struct Measured {
    /// The figures of each seed.
    pub seeds: Vec<Figures>,
    /// Those of the first seed at each point of the constants; none where the machine does not run.
    pub points: Vec<Option<Figures>>,
    /// What limits.
    pub bottleneck: String,
    /// The name of the throughput's quantity.
    pub what: &'static str,
}

/// The runs of all plans.
pub(super) struct All {
    plans: Vec<Result<Measured, String>>,
    /// The constants that were moved, with their shares.
    pub moved: Vec<String>,
}

impl All {
    /// Those of a plan, by its index; the first error of one that does not run.
    pub(super) fn of(&self, plan: usize) -> Result<&Measured, String> {
        self.plans[plan].as_ref().map_err(Clone::clone)
    }
}

/// One run: the plan, and the seed or the point.
#[derive(Clone, Copy)]
enum At {
    Seed(u64),
    Point(usize),
}

/// Runs all plans, on all cores, with progress. The first one's platform says which constants are free.
///
/// # Errors
/// A base of the platform cannot be read.
pub(super) fn run(plans: &[&Plan], points: u32, stop: &StopFlag) -> Result<All, InputError> {
    let free = free(plans[0])?;
    let points = if free.is_empty() { Vec::new() } else { drawn(&free, points) };
    let runs: Vec<(usize, At)> = (0..plans.len())
        .flat_map(|plan| {
            let seeds = plans[plan].seeds.iter().map(move |&seed| (plan, At::Seed(seed)));
            seeds.chain((0..points.len()).map(move |point| (plan, At::Point(point))))
        })
        .collect();
    let progress = Progress::new(runs.len() as u64, "remedies");
    let results: Vec<(usize, At, Result<Outcome, RunError>)> = runs
        .into_par_iter()
        .filter(|_| !stop.is_set())
        .map(|(plan, at)| {
            let outcome = one(plans[plan], at, &free, &points, stop);
            progress.step();
            (plan, at, outcome)
        })
        .collect();
    let mut all: Vec<(Vec<Outcome>, Result<Measured, String>)> = plans
        .iter()
        .map(|_| (Vec::new(), Ok(Measured { points: vec![None; points.len()], ..Measured::default() })))
        .collect();
    for (plan, at, outcome) in results {
        let (outcomes, measured) = &mut all[plan];
        match (at, outcome) {
            (At::Seed(_), Ok(outcome)) => outcomes.push(outcome),
            (At::Seed(_), Err(error)) => *measured = Err(error.to_string()),
            (At::Point(point), outcome) => {
                if let Ok(measured) = measured {
                    measured.points[point] = outcome.ok().map(|outcome| Figures::of(&outcome));
                }
            }
        }
    }
    let moved = free.iter().map(|(free, share)| format!("{} ±{:.1} %", free.key, share * 100.0)).collect();
    Ok(All { plans: all.into_iter().map(|(outcomes, measured)| finished(&outcomes, measured)).collect(), moved })
}

fn finished(outcomes: &[Outcome], measured: Result<Measured, String>) -> Result<Measured, String> {
    let measured = measured?;
    let what = outcomes.first().map_or("", |outcome| outcome.section.measured().headline().name);
    let seeds = outcomes.iter().map(Figures::of).collect();
    Ok(Measured { seeds, bottleneck: Finding::of(outcomes).to_string(), what, ..measured })
}

fn one(
    plan: &Plan,
    at: At,
    free: &[(FreeConstant, f64)],
    points: &[Vec<f64>],
    stop: &StopFlag,
) -> Result<Outcome, RunError> {
    match at {
        At::Seed(seed) => Ok(run::run_one(&plan.trials()[0], seed, false, stop)?.outcome),
        At::Point(point) => {
            let mut plan = plan.clone();
            for ((free, _), step) in free.iter().zip(&points[point]) {
                free.move_in(&mut plan.platform, *step);
            }
            Ok(run::run_one(&plan.trials()[0], plan.seeds[0], false, stop)?.outcome)
        }
    }
}

/// The free constants of a plan's platform and of its bases, and how far each is moved.
fn free(plan: &Plan) -> Result<Vec<(FreeConstant, f64)>, InputError> {
    let share = |free: &FreeConstant| {
        let constants = plan.platform.constants();
        let found = constants.iter().find(|(key, ..)| *key == free.key);
        found.and_then(|(.., constant)| constant.uncertainty).unwrap_or(UNCERTAINTY)
    };
    let constants = Family::of(&plan.platform)?.constants.into_iter();
    Ok(constants.map(|free| (share(&free), free)).map(|(share, free)| (free, share)).collect())
}

/// Points: each constant at one or the other end of its range, drawn.
fn drawn(free: &[(FreeConstant, f64)], points: u32) -> Vec<Vec<f64>> {
    let mut stream = Stream::new(SEED, 0);
    let step = |share: f64, stream: &mut Stream| {
        let log = (1.0 + share).ln();
        if stream.next() & 1 == 0 { -log } else { log }
    };
    (0..points).map(|_| free.iter().map(|(_, share)| step(*share, &mut stream)).collect()).collect()
}

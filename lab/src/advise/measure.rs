//! The runs: each plan with every seed, and with its first seed at points of the constants.

use super::change::{Figures, Points};
use crate::calibrate::{Family, FreeConstant};
use crate::input::InputError;
use crate::interrupt::StopFlag;
use crate::outcome::{Finding, Outcome};
use crate::plan::Plan;
use crate::progress::Progress;
use crate::run::{self, RunError};
use machine::Stream;
use rayon::prelude::*;
use std::fmt;

/// How far a free constant is moved whose file does not say how far its fit leaves it open: the tolerance of a fitted
/// row.
const UNCERTAINTY: f64 = 0.02;
/// Points of a platform without a region, unless the question says how many.
const POINTS: usize = 4;
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
    /// What the points are.
    pub are: Points,
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
pub(super) fn run(plans: &[&Plan], points: Option<u32>, stop: &StopFlag) -> Result<All, InputError> {
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
    let moved = free.iter().map(|(free, open)| format!("{} {open}", free.key)).collect();
    let is_region = free.iter().any(|(_, open)| matches!(open, Open::Region(_)));
    Ok(All {
        are: if is_region { Points::Servers } else { Points::Corners },
        plans: all.into_iter().map(|(outcomes, measured)| finished(&outcomes, measured)).collect(),
        moved,
    })
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
    free: &[(FreeConstant, Open)],
    points: &[Vec<f64>],
    stop: &StopFlag,
) -> Result<Outcome, RunError> {
    match at {
        At::Seed(seed) => Ok(run::run_one(&plan.trials()[0], seed, false, stop)?.outcome),
        At::Point(point) => {
            let mut plan = plan.clone();
            let moved = free.iter().map(|(free, _)| free).zip(points[point].iter().copied());
            FreeConstant::move_all(&mut plan.platform, moved);
            Ok(run::run_one(&plan.trials()[0], plan.seeds[0], false, stop)?.outcome)
        }
    }
}

/// How far a constant is open.
enum Open {
    /// To either side, by this share.
    Share(f64),
    /// At these factors, of which the first belong together with the other constants' first, and so on.
    Region(Vec<f64>),
}

impl fmt::Display for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share(share) => write!(f, "±{:.1} %", share * 100.0),
            Self::Region(factors) => {
                let ends = factors
                    .iter()
                    .fold([1.0, 1.0], |[low, high], &factor| [f64::min(low, factor), f64::max(high, factor)]);
                let [low, high] = ends.map(|factor| (factor - 1.0) * 100.0);
                write!(f, "{low:+.1} to {high:+.1} %")
            }
        }
    }
}

/// The constants that are open: those that the platform's file gives a region, and the free ones of it and of its bases.
fn free(plan: &Plan) -> Result<Vec<(FreeConstant, Open)>, InputError> {
    let mut open: Vec<(FreeConstant, Open)> = FreeConstant::with_regions(&plan.platform)
        .into_iter()
        .map(|(free, factors)| (free, Open::Region(factors)))
        .collect();
    let share = |free: &FreeConstant| {
        let constants = plan.platform.constants();
        let found = constants.iter().find(|(key, ..)| *key == free.key);
        found.and_then(|(.., constant)| constant.uncertainty).unwrap_or(UNCERTAINTY)
    };
    for free in Family::of(&plan.platform)?.constants {
        if open.iter().all(|(known, _)| known.key != free.key) {
            open.push((free.clone(), Open::Share(share(&free))));
        }
    }
    Ok(open)
}

/// Points: those of the region, and each other constant at one or the other end of its range, drawn.
fn drawn(free: &[(FreeConstant, Open)], points: Option<u32>) -> Vec<Vec<f64>> {
    let of_region = free.iter().filter_map(|(_, open)| match open {
        Open::Region(factors) => Some(factors.len()),
        Open::Share(_) => None,
    });
    let count = points.map_or_else(|| of_region.max().unwrap_or(POINTS), |points| points as usize);
    let mut stream = Stream::new(SEED, 0);
    let mut step = |open: &Open, point: usize| match open {
        Open::Region(factors) => factors[point % factors.len()].ln(),
        Open::Share(share) => {
            let log = (1.0 + share).ln();
            if stream.next() & 1 == 0 { -log } else { log }
        }
    };
    (0..count).map(|point| free.iter().map(|(_, open)| step(open, point)).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Request;

    #[test]
    fn points_are_those_of_the_region_and_corners_of_the_rest() {
        let mut plan = Request::of("emr-4-drives").plan().unwrap();
        let shares = free(&plan).unwrap();
        assert!(!shares.is_empty() && drawn(&shares, None).len() == POINTS);
        assert!(shares.iter().all(|(_, open)| matches!(open, Open::Share(_))));
        plan.platform.fabric.remap_service.region = vec![0.5, 2.0, 1.25];
        // Of both, the region counts.
        plan.platform.fabric.remap_service.uncertainty = Some(0.03);
        plan.platform.cpu.irq_entry.region = vec![1.0, 0.75, 1.5];
        let open = free(&plan).unwrap();
        assert_eq!(
            open.len(),
            shares.len()
                + usize::from(!plan.platform.fabric.remap_service.fit)
                + usize::from(!plan.platform.cpu.irq_entry.fit)
        );
        let at = |key: &str| open.iter().position(|(free, _)| free.key == key).unwrap();
        let points = drawn(&open, None);
        let factors = |key: &str| points.iter().map(|point| (point[at(key)].exp() * 100.0).round()).collect::<Vec<_>>();
        assert_eq!(factors("fabric.remap_service"), [50.0, 200.0, 125.0]);
        assert_eq!(factors("cpu.irq_entry"), [100.0, 75.0, 150.0]);
        assert_eq!(open[at("fabric.remap_service")].1.to_string(), "-50.0 to +100.0 %");
        assert_eq!((drawn(&open, Some(4)).len(), drawn(&open, Some(0)).len()), (4, 0));
    }
}

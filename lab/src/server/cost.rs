//! What a measurement costs to simulate, and which measurements a fit can afford: an import ends within two minutes of two
//! cores.
//!
//! The cost is counted in events of the machine, not in seconds, so that the same archive gives the same platform on every
//! host. Only a run that takes far longer than any of use is cut off by the clock.

use super::choose::{self, FITTED_MAX};
use super::gather::Measurement;
use crate::calibrate;
use crate::interrupt::StopFlag;
use crate::plan::Plan;
use crate::run;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

/// Most events of the short runs that a fit repeats, some thousand times.
const EVENTS_MAX: u64 = 700_000;
/// A run that takes longer is of no use to a fit.
const RUN_MAX: Duration = Duration::from_secs(8);
/// First runs of all measurements together take no longer.
const ALL_MAX: Duration = Duration::from_secs(25);

/// The measurements that are used, each with whether it is fitted, and their plans.
pub(super) struct Used {
    pub measurements: Vec<Measurement>,
    pub is_fitted: Vec<bool>,
    pub plans: BTreeMap<String, Plan>,
}

/// Runs each measurement once, and chooses: those that are most unlike each other are fitted as long as their runs are
/// affordable; the others are only compared. What takes too long is left out, and noted.
pub(super) fn affordable(
    measurements: Vec<Measurement>,
    mut plans: BTreeMap<String, Plan>,
    path_of: &(dyn Fn(&Measurement) -> String + Sync),
    notes: &mut Vec<String>,
    stop: &StopFlag,
) -> Used {
    let order = choose::order(&measurements);
    if order.len() < measurements.len() {
        notes.push(format!(
            "{} of {} measurements are used, those that are most unlike each other; the others are left out",
            order.len(),
            measurements.len()
        ));
    }
    let all = stop.until(ALL_MAX);
    let costs: Vec<Option<u64>> = order
        .par_iter()
        .map(|&at| plans.get(&path_of(&measurements[at])).and_then(|plan| events(plan, &all)))
        .collect();
    for (&at, _) in order.iter().zip(&costs).filter(|(_, cost)| cost.is_none()) {
        let name = &measurements[at].name;
        notes.push(format!(
            "{name}: takes too long to simulate, and is left out; a shorter job with fewer threads tells as much"
        ));
    }
    let Split { is_used, is_fitted } = Split::of(measurements.len(), &order, &costs);
    plans.retain(|name, _| measurements.iter().zip(&is_used).any(|(one, is_used)| *is_used && path_of(one) == *name));
    let kept = |(at, one): (usize, Measurement)| is_used[at].then_some((one, is_fitted[at]));
    let (measurements, is_fitted) = measurements.into_iter().enumerate().filter_map(kept).unzip();
    Used { measurements, is_fitted, plans }
}

/// Which of many measurements are used, and which of those are fitted.
#[derive(PartialEq, Debug)]
struct Split {
    is_used: Vec<bool>,
    is_fitted: Vec<bool>,
}

impl Split {
    /// Of `count` measurements, those of `order` whose run has a cost are used. They are fitted in that order as long as all
    /// together are affordable; the first one always is.
    fn of(count: usize, order: &[usize], costs: &[Option<u64>]) -> Self {
        let mut split = Self { is_used: vec![false; count], is_fitted: vec![false; count] };
        let (mut total, mut fitted) = (0u64, 0);
        for (&at, cost) in order.iter().zip(costs) {
            let Some(cost) = *cost else { continue };
            split.is_used[at] = true;
            if fitted == 0 || (fitted < FITTED_MAX && total.saturating_add(cost) <= EVENTS_MAX) {
                split.is_fitted[at] = true;
                (total, fitted) = (total.saturating_add(cost), fitted + 1);
            }
        }
        split
    }
}

/// The events of a plan's short run, by those of its first one; none if that takes too long. A run that fails is left to the
/// fit, which says why.
fn events(plan: &Plan, stop: &StopFlag) -> Option<u64> {
    let stop = stop.until(RUN_MAX);
    let trials = plan.trials();
    let found = run::run_one(trials.first()?, *plan.seeds.first()?, false, &stop);
    if stop.is_set() {
        return None;
    }
    let events = found.as_ref().map_or(0, |run| run.outcome.engine.events);
    let share = match found.ok().filter(|_| is_together(plan)) {
        Some(run) => {
            let directions = run.outcome.storage().map(|storage| storage.directions.clone()).unwrap_or_default();
            let ios: u64 = directions.iter().map(|direction| direction.ios).sum();
            (calibrate::TOGETHER_IOS_SHORT as f64 / ios.max(1) as f64).min(1.0)
        }
        // What is counted is the measured span.
        None => calibrate::short_ns(plan) / plan.spans.measured_ns.max(1) as f64,
    };
    Some((events as f64 * share) as u64)
}

/// True if jobs are stopped together: their I/Os are bounded, and not their span.
fn is_together(plan: &Plan) -> bool {
    let mut loads = plan.storage().into_iter().flat_map(|storage| &storage.jobs).filter_map(|job| job.load.as_ref());
    loads.any(|load| load.ends.together_ns.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Request;

    #[test]
    fn what_is_fitted_is_affordable_together() {
        let of = |costs: &[Option<u64>]| {
            let order: Vec<usize> = (0..costs.len()).rev().collect();
            let split = Split::of(costs.len(), &order, costs);
            // In the order in which they are taken.
            let taken = |of: &[bool]| order.iter().map(|&at| of[at]).collect::<Vec<bool>>();
            (taken(&split.is_used), taken(&split.is_fitted))
        };
        let (used, fitted) = of(&[Some(EVENTS_MAX - 10), Some(11), None, Some(10), Some(1), Some(0)]);
        assert_eq!(used, [true, true, false, true, true, true]);
        assert_eq!(fitted, [true, false, false, true, false, true], "a cheap one still has room");
        assert_eq!(
            of(&[None, Some(u64::MAX), Some(1)]).1,
            [false, true, false],
            "the first is fitted whatever it costs"
        );
        let many = of(&[Some(1); FITTED_MAX + 3]);
        assert!(many.0.iter().all(|is_used| *is_used));
        assert_eq!(many.1.iter().filter(|is_fitted| **is_fitted).count(), FITTED_MAX);
    }

    #[test]
    fn a_run_that_the_clock_ends_has_no_cost() {
        let plan = Request { sets: vec!["duration=1ms".into()], ..Request::of("emr-4-drives") }.plan().unwrap();
        let stop = StopFlag::default();
        assert!(events(&plan, &stop).is_some_and(|events| events > 1_000));
        assert_eq!(events(&plan, &stop.until(Duration::ZERO)), None);
    }
}

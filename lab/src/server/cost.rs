//! What a measurement costs to simulate, and which measurements a fit can afford: an import ends within two minutes of two
//! cores.
//!
//! The cost is counted in events of the machine, not in seconds, so that the same archive gives the same platform on every
//! host. Only a run that takes far longer than any of use is cut off by the clock.

use super::choose::{self, FITTED_MAX};
use super::gather::Measurement;
use crate::interrupt::StopFlag;
use crate::plan::Plan;
use crate::run;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

/// Most events of the runs that a fit repeats, some hundred times.
const EVENTS_MAX: u64 = 1_500_000;
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
    let mut is_fitted = vec![false; measurements.len()];
    let (mut total, mut count) = (0, 0);
    let mut is_used = vec![false; measurements.len()];
    for (&at, cost) in order.iter().zip(&costs) {
        let Some(cost) = *cost else {
            let name = &measurements[at].name;
            notes.push(format!(
                "{name}: takes too long to simulate, and is left out; a shorter job with fewer threads tells as much"
            ));
            continue;
        };
        is_used[at] = true;
        if count == 0 || (count < FITTED_MAX && total + cost <= EVENTS_MAX) {
            is_fitted[at] = true;
            (total, count) = (total + cost, count + 1);
        }
    }
    plans.retain(|name, _| measurements.iter().zip(&is_used).any(|(one, is_used)| *is_used && path_of(one) == *name));
    let kept = |(at, one): (usize, Measurement)| is_used[at].then_some((one, is_fitted[at]));
    let (measurements, is_fitted) = measurements.into_iter().enumerate().filter_map(kept).unzip();
    Used { measurements, is_fitted, plans }
}

/// The events of a plan's first run; none if it takes too long. A run that fails is left to the fit, which says why.
fn events(plan: &Plan, stop: &StopFlag) -> Option<u64> {
    let stop = stop.until(RUN_MAX);
    let trials = plan.trials();
    let found = run::run_one(trials.first()?, *plan.seeds.first()?, false, &stop);
    if stop.is_set() {
        return None;
    }
    Some(found.map_or(0, |run| run.outcome.engine.events))
}

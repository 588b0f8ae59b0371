//! Short runs of carried scenarios, for the tests beside this folder.

#![allow(dead_code, reason = "each test file uses some of it")]

use lab::interrupt::StopFlag;
use lab::outcome::{Outcome, Summary};
use lab::plan::{Delivery, Plan, Variant};
use lab::run;
use lab::scenario::Request;

/// A scenario with settings over it.
pub(crate) fn plan(scenario: &str, sets: &[&str]) -> Plan {
    let sets = sets.iter().map(ToString::to_string).collect();
    Request { sets, ..Request::of(scenario) }.plan().unwrap()
}

/// Its first `seeds` seeds with one variant, one after another.
pub(crate) fn outcomes(plan: &Plan, variant: impl Into<Variant>, seeds: u64) -> Vec<Outcome> {
    let (stop, variant) = (StopFlag::default(), variant.into());
    (1..=seeds).map(|seed| run::run_one(plan, variant, seed, false, &stop).unwrap().outcome).collect()
}

/// What they say together.
pub(crate) fn summary(scenario: &str, delivery: Delivery, sets: &[&str], seeds: u64) -> Summary {
    Summary::over(&outcomes(&plan(scenario, sets), delivery, seeds)).unwrap()
}

/// Mean of a quantity.
pub(crate) fn mean(summary: &Summary, id: &str) -> f64 {
    summary.estimate(id).unwrap_or_else(|| panic!("{id} has no value")).mean
}

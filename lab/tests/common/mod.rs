//! Short runs of carried scenarios, for the tests beside this folder.

#![allow(dead_code, reason = "each test file uses some of it")]

pub(crate) mod fio;

use lab::interrupt::StopFlag;
use lab::kinds::Variant;
use lab::kinds::storage::StorageVariant;
use lab::outcome::{Outcome, Summary};
use lab::plan::Plan;
use lab::run;
use lab::scenario::Request;

/// A scenario with its settings replaced by these.
pub(crate) fn plan(scenario: &str, sets: &[&str]) -> Plan {
    let sets = sets.iter().map(ToString::to_string).collect();
    Request { sets, ..Request::of(scenario) }.plan().unwrap()
}

/// Its first `seeds` seeds with one variant, one after another.
pub(crate) fn outcomes(plan: &Plan, variant: impl Variant, seeds: u64) -> Vec<Outcome> {
    let (stop, trial) = (StopFlag::default(), plan.trial(variant).unwrap());
    (1..=seeds).map(|seed| run::run_one(&trial, seed, false, &stop).unwrap().outcome).collect()
}

/// The summary of the runs.
pub(crate) fn summary(scenario: &str, delivery: StorageVariant, sets: &[&str], seeds: u64) -> Summary {
    Summary::over(&outcomes(&plan(scenario, sets), delivery, seeds)).unwrap()
}

/// Mean of a quantity.
pub(crate) fn mean(summary: &Summary, id: &str) -> f64 {
    summary.estimate(id).unwrap_or_else(|| panic!("{id} has no value")).mean
}

//! The whole simulated server: how many of its I/Os a host core simulates in a second.

use super::BenchError;
use crate::interrupt::StopFlag;
use crate::kinds::storage::StorageOutcome;
use crate::kinds::storage::StorageVariant;
use crate::plan::Plan;
use crate::run;
use crate::scenario::Request;

/// The cost of one run of the server.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cost {
    /// I/Os that the jobs saw completed in the measured span.
    pub ios: u64,
    /// Host time of that span alone, in ns. Building the server, bringing it up and the ramp are excluded.
    pub host_ns: u64,
    /// Coroutine switches in the span.
    pub switches: u64,
    /// Events in the span that an agent of the server could see.
    pub events: u64,
}

impl Cost {
    /// Simulated I/Os a host second.
    pub fn ios_per_second(&self) -> f64 {
        self.ios as f64 * 1e9 / self.host_ns as f64
    }
}

/// The plan of the carried scenario `emr-4-drives`, measured for `measured_ns` after a ramp of 1 ms.
///
/// # Errors
/// [`BenchError::Input`] when the scenario is not valid.
pub fn plan(measured_ns: u64) -> Result<Plan, BenchError> {
    let mut plan = Request::of("emr-4-drives").plan().map_err(BenchError::Input)?;
    plan.spans.ramp_ns = 1_000_000;
    plan.spans.measured_ns = measured_ns;
    Ok(plan)
}

/// Runs `plan` once with seed 1 on this thread.
///
/// # Errors
/// [`BenchError::Run`] when the server does not run, [`BenchError::Input`] when it cannot in this variant.
pub fn cost(plan: &Plan, variant: StorageVariant) -> Result<Cost, BenchError> {
    let trial = plan.trial(variant).map_err(BenchError::Input)?;
    let outcome = run::run_one(&trial, 1, false, &StopFlag::default()).map_err(BenchError::Run)?.outcome;
    Ok(Cost {
        ios: outcome.storage().map_or(0, StorageOutcome::ios),
        host_ns: outcome.engine.host_ns,
        switches: outcome.engine.switches,
        events: outcome.engine.events,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_is_rarer_than_the_issue_allows() {
        let plan = plan(500_000).expect("the carried scenario is valid");
        let cost = cost(&plan, StorageVariant::Posted).expect("it runs");
        assert!(cost.ios > 1_000, "{cost:?}");
        assert!(cost.switches <= 8 * cost.ios, "{cost:?}");
        assert!(cost.ios_per_second() > 0.0);
    }
}

//! The measurements of an experiment on a threaded interrupt.

use super::page;
use crate::kinds::{Measured, Section};
use crate::outcome::quantity::{CPU, per_second, quantity};
use crate::outcome::{Headline, Outcome, Quantity, Unit, ratio};
use crate::report::RunReport;
use Unit::{Nanoseconds, PerSecond, Ratio};
use serde::{Deserialize, Serialize};

/// The measurements of one run. A cycle is one raise, one interrupt, one run of its thread, and the raiser's
/// observation of that run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadedOutcome {
    /// Cycles that ended in the span.
    pub cycles: u64,
    /// Cycles a second of each iteration, in order.
    pub rates: Vec<f64>,
    /// Accesses to the interrupt controller.
    pub accesses: Accesses,
}

/// Accesses to the interrupt controller, as its model saw them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accesses {
    /// Reads of the distributor and the redistributors.
    pub distributor_reads: u64,
    /// Reads of a control register, where RWP is polled; part of `distributor_reads`.
    pub control_reads: u64,
    /// Writes to the distributor and the redistributors.
    pub distributor_writes: u64,
    /// Writes that disable a line.
    pub mask_writes: u64,
    /// Writes that enable a line.
    pub unmask_writes: u64,
    /// Writes that set a line pending: the raise.
    pub raise_writes: u64,
    /// Reads and writes of the CPU interface.
    pub interface: u64,
}

impl ThreadedOutcome {
    /// The rate that the given percentage of the iterations does not exceed (nearest rank).
    fn percentile(&self, percent: usize) -> Option<f64> {
        let mut sorted = self.rates.clone();
        sorted.sort_by(f64::total_cmp);
        let rank = (sorted.len() * percent).div_ceil(100);
        sorted.get(rank.checked_sub(1)?).copied()
    }

    fn mean(&self) -> Option<f64> {
        (!self.rates.is_empty()).then(|| self.rates.iter().sum::<f64>() / self.rates.len() as f64)
    }
}

impl Measured for ThreadedOutcome {
    fn quantities(&self) -> Vec<Quantity> {
        [RATES, ACCESSES, CPU].concat()
    }

    fn headline(&self) -> Headline {
        Headline { id: "irqs", unit: PerSecond, name: "cycles a second", beside: ("cycle", Nanoseconds, "a cycle") }
    }

    fn page(&self, report: &RunReport) -> String {
        page::sections(report)
    }
}

impl From<ThreadedOutcome> for Section {
    fn from(outcome: ThreadedOutcome) -> Self {
        Self::Threaded(outcome)
    }
}

impl Outcome {
    /// Rates and accesses of an experiment on a threaded interrupt.
    pub fn threaded(&self) -> Option<&ThreadedOutcome> {
        self.own()
    }
}

const CYCLES: &str = "Cycles a second";
const A_CYCLE: &str = "Of one cycle";

const RATES: &[Quantity] = &[
    quantity("irqs", "mean", PerSecond, CYCLES, |o| o.threaded()?.mean()),
    quantity("irqs_p50", "median", PerSecond, CYCLES, |o| o.threaded()?.percentile(50)),
    quantity("irqs_p90", "p90", PerSecond, CYCLES, |o| o.threaded()?.percentile(90)),
    quantity("irqs_p99", "p99", PerSecond, CYCLES, |o| o.threaded()?.percentile(99)),
];

const ACCESSES: &[Quantity] = &[
    quantity("cycle", "time", Nanoseconds, A_CYCLE, |o| Some(1e9 / per_second(o, o.threaded()?.cycles)?)),
    quantity("raises", "writes that raise it", Ratio, A_CYCLE, |o| a_cycle(o, |accesses| accesses.raise_writes)),
    quantity("masks", "writes that mask it", Ratio, A_CYCLE, |o| a_cycle(o, |accesses| accesses.mask_writes)),
    quantity("rwp_polls", "reads of RWP", Ratio, A_CYCLE, |o| a_cycle(o, |accesses| accesses.control_reads)),
    quantity("unmasks", "writes that unmask it", Ratio, A_CYCLE, |o| a_cycle(o, |accesses| accesses.unmask_writes)),
    quantity("distributor_accesses", "distributor, all accesses", Ratio, A_CYCLE, |o| {
        a_cycle(o, |accesses| accesses.distributor_reads + accesses.distributor_writes)
    }),
    quantity("interface_accesses", "CPU interface", Ratio, A_CYCLE, |o| a_cycle(o, |accesses| accesses.interface)),
];

fn a_cycle(outcome: &Outcome, of: fn(&Accesses) -> u64) -> Option<f64> {
    let threaded = outcome.threaded()?;
    ratio(of(&threaded.accesses), threaded.cycles)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let of =
            |count: u32| ThreadedOutcome { rates: (1..=count).rev().map(f64::from).collect(), ..Default::default() };
        let all = |count| [50, 90, 99].map(|percent| of(count).percentile(percent));
        assert_eq!(all(20), [10.0, 18.0, 20.0].map(Some));
        assert_eq!(all(1), [Some(1.0); 3]);
        assert_eq!(all(0), [None; 3]);
        assert_eq!((of(20).mean(), of(0).mean()), (Some(10.5), None));
    }
}

//! The counters of the controller and the bench thread at one moment, and their difference between two moments.

use super::bench::Bench;
use crate::kinds::threaded::{Accesses, ThreadedOutcome};
use crate::outcome::Interrupts;
use crate::run::Counted;
use crate::run::span::{Counters, counter};
use machine::model::ModelId;
use machine::{Machine, SimHal};
use systems::arm::Arm;

/// Every cumulative counter, at one moment.
pub(super) struct Snapshot {
    gic: Counters,
    cycles: u64,
}

impl Snapshot {
    /// Reads the counters now.
    pub(super) fn take(machine: &mut Machine, gic: ModelId, bench: &Bench) -> Self {
        Self { gic: machine.with_any_model(gic, |model| model.counters()), cycles: bench.cycles() }
    }
}

/// The outcome of the span between two snapshots.
pub(super) fn outcome(arm: &Arm<SimHal>, bench: &Bench, [start, end]: [&Snapshot; 2]) -> Counted<ThreadedOutcome> {
    let gic = |name: &str| counter(&end.gic, name) - counter(&start.gic, name);
    let cycles = end.cycles - start.cycles;
    Counted {
        interrupts: Interrupts {
            vectors: 1,
            dispatched: gic("acknowledged"),
            handlers: cycles,
            ..Interrupts::default()
        },
        servers: Vec::new(),
        interrupt_table: arm.interrupts().to_string(),
        own: ThreadedOutcome {
            cycles,
            rates: bench.rates(),
            accesses: Accesses {
                distributor_reads: gic("distributor_reads") + gic("redistributor_reads"),
                control_reads: gic("control_reads"),
                distributor_writes: gic("distributor_writes") + gic("redistributor_writes"),
                mask_writes: gic("mask_writes"),
                unmask_writes: gic("unmask_writes"),
                raise_writes: gic("pend_writes"),
                interface: gic("interface_reads") + gic("interface_writes"),
            },
        },
    }
}

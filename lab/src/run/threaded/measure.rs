//! What the controller and the bench thread have counted at one moment, and what happened between two.

use super::bench::Bench;
use super::system::System;
use crate::outcome::{Accesses, Interrupts, Outcome, Section, ThreadedOutcome};
use crate::run::span::{Counters, counter};
use machine::Machine;
use machine::model::ModelId;

/// Everything that counts for ever, at one moment.
pub(super) struct Snapshot {
    gic: Counters,
    cycles: u64,
}

impl Snapshot {
    /// Counts now.
    pub(super) fn take(machine: &mut Machine, gic: ModelId, bench: &Bench) -> Self {
        Self { gic: machine.with_any_model(gic, |model| model.counters()), cycles: bench.cycles() }
    }
}

/// The outcome of the span between two snapshots.
pub(super) fn outcome(system: &System, bench: &Bench, [start, end]: [&Snapshot; 2]) -> Outcome {
    let gic = |name: &str| counter(&end.gic, name) - counter(&start.gic, name);
    let cycles = end.cycles - start.cycles;
    Outcome {
        interrupts: Interrupts {
            vectors: 1,
            dispatched: gic("acknowledged"),
            handlers: cycles,
            ..Interrupts::default()
        },
        interrupt_table: system.core.interrupts().to_string(),
        section: Section::Threaded(ThreadedOutcome {
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
        }),
        ..Outcome::default()
    }
}

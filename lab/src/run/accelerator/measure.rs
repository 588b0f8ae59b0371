//! What devices and drivers have counted at one moment, and what happened between two.

use super::system::System;
use crate::outcome::{AcceleratorOutcome, Interrupts, Latency, Outcome, Section, StreamDevice};
use crate::run::pcie::{self, Pcie, PcieCounters, Site};
use crate::run::span::{Counters, Span, counter};
use drivers::dsa::QueueCounters;
use irq::posted::Statistics;
use machine::Machine;

/// Everything that counts for ever, at one moment.
pub(super) struct Snapshot {
    devices: Vec<Counters>,
    pcie: PcieCounters,
    queues: QueueCounters,
    posted: Statistics,
    dispatched: u64,
}

impl Snapshot {
    /// Counts now.
    pub(super) fn take(machine: &mut Machine, pcie: &Pcie, devices: &[Site], system: &System) -> Self {
        // First what drivers know, since asking them may let the machine run on a little.
        let queues = system.queues();
        let posted = system.pc.posted_statistics();
        let dispatched = system.pc.count(&system.lines);
        Self {
            devices: devices.iter().map(|site| machine.with_any_model(site.model, |model| model.counters())).collect(),
            pcie: pcie.count(machine),
            queues,
            posted,
            dispatched,
        }
    }

    /// A counter of the devices, summed.
    pub(super) fn devices(&self, name: &str) -> u64 {
        self.devices.iter().map(|device| counter(device, name)).sum()
    }

    /// Notifications taken.
    pub(super) fn notifications(&self) -> u64 {
        self.posted.notifications
    }
}

/// The outcome of the span between two snapshots.
pub(super) fn outcome(
    pcie: &Pcie,
    sites: &[Site],
    system: &System,
    span: &Span,
    [start, end]: [&Snapshot; 2],
) -> Outcome {
    let grown = |of: &dyn Fn(&Snapshot) -> u64| of(end) - of(start);
    let device = |(index, site): (usize, &Site)| {
        let port = pcie.port_index(site.port);
        let share = |of: &dyn Fn(&Snapshot) -> u64| span.share(grown(of));
        let link = |name: &'static str| share(&|at: &Snapshot| counter(&at.pcie.ports[port], name));
        StreamDevice {
            descriptors: grown(&|at: &Snapshot| counter(&at.devices[index], "completed")),
            engine_busy: share(&|at: &Snapshot| counter(&at.devices[index], "service_ps")),
            link_busy: link("link_ps"),
            link_held: link("order_ps"),
        }
    };
    Outcome {
        interrupts: Interrupts {
            vectors: system.lines.len() as u64,
            msis: grown(&|at: &Snapshot| at.devices("msis")),
            notifications: grown(&Snapshot::notifications),
            empty_notifications: grown(&|at: &Snapshot| at.posted.empty_notifications),
            dispatched: grown(&|at: &Snapshot| at.dispatched),
            handlers: grown(&|at: &Snapshot| at.queues.interrupts),
            empty_handlers: grown(&|at: &Snapshot| at.queues.empty_interrupts),
            reaped_by_interrupt: grown(&|at: &Snapshot| at.queues.interrupt_completions),
            ..Interrupts::default()
        },
        servers: pcie::servers(span, &start.pcie, &end.pcie),
        interrupt_table: system.pc.core.interrupts().to_string(),
        section: Section::Accelerator(AcceleratorOutcome {
            descriptors: grown(&|at: &Snapshot| at.queues.completed),
            bytes: grown(&|at: &Snapshot| at.queues.bytes),
            errors: grown(&|at: &Snapshot| at.queues.errors),
            passes: grown(&|at: &Snapshot| at.posted.passes),
            latency: Latency::from(&system.latency()),
            timer_wait: system.ticker.as_ref().map_or_else(Latency::default, |ticker| Latency::from(&ticker.waits())),
            devices: sites.iter().enumerate().map(device).collect(),
        }),
        ..Outcome::default()
    }
}

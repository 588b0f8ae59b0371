//! The counters of devices and drivers at one moment, and their difference between two moments.

use super::host::StreamHost;
use crate::kinds::accelerator::{AcceleratorOutcome, StreamDevice};
use crate::outcome::{Interrupts, Latency};
use crate::run::Counted;
use crate::run::pcie::{self, Pcie, PcieCounters, Site};
use crate::run::span::{Counters, Span, counter};
use drivers::dsa::QueueCounters;
use irq::posted::Statistics;
use machine::Machine;

/// Every cumulative counter, at one moment.
pub(super) struct Snapshot {
    devices: Vec<Counters>,
    pcie: PcieCounters,
    queues: QueueCounters,
    posted: Statistics,
    dispatched: u64,
}

impl Snapshot {
    /// Reads the counters now.
    pub(super) fn take(machine: &mut Machine, pcie: &Pcie, devices: &[Site], host: &StreamHost) -> Self {
        // The drivers come first: a query of a driver may let the machine run on a little.
        let queues = host.queues();
        let posted = host.pc.posted_statistics();
        let dispatched = host.pc.count(&host.lines);
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
    host: &StreamHost,
    span: &Span,
    [start, end]: [&Snapshot; 2],
) -> Counted<AcceleratorOutcome> {
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
    Counted {
        interrupts: Interrupts {
            vectors: host.lines.len() as u64,
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
        interrupt_table: host.pc.core.interrupts().to_string(),
        own: AcceleratorOutcome {
            descriptors: grown(&|at: &Snapshot| at.queues.completed),
            bytes: grown(&|at: &Snapshot| at.queues.bytes),
            errors: grown(&|at: &Snapshot| at.queues.errors),
            passes: grown(&|at: &Snapshot| at.posted.passes),
            latency: Latency::from(&host.latency()),
            timer_wait: host.ticker.as_ref().map_or_else(Latency::default, |ticker| Latency::from(&ticker.waits())),
            devices: sites.iter().enumerate().map(device).collect(),
        },
    }
}

//! The counters of the device and the driver at one moment, and their difference between two moments.

use super::guest::Guest;
use super::hardware::Hardware;
use crate::kinds::network::{FlowOutcome, NetworkOutcome};
use crate::outcome::Interrupts;
use crate::run::Counted;
use crate::run::span::{Counters, counter};
use drivers::virtio::net::ReceiveCounters;
use machine::Machine;
use machine::virtio::net::{FlowCounts, Net};

/// Every cumulative counter, at one moment.
pub(super) struct Snapshot {
    device: Counters,
    flows: Vec<FlowCounts>,
    receive: Vec<ReceiveCounters>,
    dispatched: u64,
}

impl Snapshot {
    /// Reads the counters now.
    pub(super) fn take(machine: &mut Machine, hardware: &Hardware, guest: &Guest) -> Self {
        // The driver comes first: a query of the driver may let the machine run on a little.
        let receive = (0..guest.net.pairs()).filter_map(|pair| guest.net.receive_counters(pair)).collect();
        let dispatched = guest.pc.count(&guest.lines);
        let device = machine.with_any_model(hardware.device, |model| model.counters());
        Self { device, flows: hardware.net(machine, |net: &mut Net| net.flows()), receive, dispatched }
    }

    /// Packets that came back.
    pub(super) fn returned(&self) -> u64 {
        self.flows.iter().map(|flow| flow.returned).sum()
    }

    /// Interrupts that the device raised.
    pub(super) fn interrupts(&self) -> u64 {
        counter(&self.device, "interrupts")
    }

    fn receive(&self, of: fn(&ReceiveCounters) -> u64) -> u64 {
        self.receive.iter().map(of).sum()
    }
}

/// The outcome of the span between two snapshots.
pub(super) fn outcome(guest: &Guest, [start, end]: [&Snapshot; 2]) -> Counted<NetworkOutcome> {
    let grown = |of: &dyn Fn(&Snapshot) -> u64| of(end) - of(start);
    let device = |name: &str| grown(&|at: &Snapshot| counter(&at.device, name));
    let receive = |of: fn(&ReceiveCounters) -> u64| grown(&|at: &Snapshot| at.receive(of));
    let flow = |index: usize| {
        let flow = |of: fn(&FlowCounts) -> u64| grown(&|at: &Snapshot| of(&at.flows[index]));
        FlowOutcome {
            sent: flow(|counts| counts.sent),
            returned: flow(|counts| counts.returned),
            timed: flow(|counts| counts.timed),
            under_way_ns: flow(|counts| counts.under_way.as_ns()),
        }
    };
    Counted {
        interrupts: Interrupts {
            vectors: guest.lines.len() as u64,
            dispatched: grown(&|at: &Snapshot| at.dispatched),
            handlers: receive(|counters| counters.interrupts + counters.empty_interrupts),
            empty_handlers: receive(|counters| counters.empty_interrupts),
            reaped_by_poll: receive(|counters| counters.packets),
            ..Interrupts::default()
        },
        servers: Vec::new(),
        interrupt_table: guest.pc.core.interrupts().to_string(),
        own: NetworkOutcome {
            flows: (0..end.flows.len()).map(flow).collect(),
            interrupts: device("interrupts"),
            kicks: device("kicks"),
            status_reads: device("status_reads"),
            acknowledgements: device("acknowledgements"),
            polls: receive(|counters| counters.polls),
            packets: receive(|counters| counters.packets),
            reflect_drops: receive(|counters| counters.reflect_drops),
            disordered: grown(&|at: &Snapshot| at.flows.iter().map(|flow| flow.disordered).sum()),
        },
    }
}

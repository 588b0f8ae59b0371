//! What the device and the driver have counted at one moment, and what happened between two.

use super::hardware::Hardware;
use super::system::System;
use crate::outcome::{FlowOutcome, Interrupts, NetworkOutcome, Outcome, Section};
use crate::run::span::{Counters, counter};
use drivers::virtio::net::ReceiveCounters;
use machine::Machine;
use machine::virtio::net::{FlowCounts, Net};

/// Everything that counts for ever, at one moment.
pub(super) struct Snapshot {
    device: Counters,
    flows: Vec<FlowCounts>,
    receive: Vec<ReceiveCounters>,
    dispatched: u64,
}

impl Snapshot {
    /// Counts now.
    pub(super) fn take(machine: &mut Machine, hardware: &Hardware, system: &System) -> Self {
        // First what the driver knows, since asking it may let the machine run on a little.
        let receive = (0..system.net.pairs()).filter_map(|pair| system.net.receive_counters(pair)).collect();
        let dispatched = system.pc.count(&system.lines);
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
pub(super) fn outcome(system: &System, [start, end]: [&Snapshot; 2]) -> Outcome {
    let grown = |of: &dyn Fn(&Snapshot) -> u64| of(end) - of(start);
    let device = |name: &str| grown(&|at: &Snapshot| counter(&at.device, name));
    let receive = |of: fn(&ReceiveCounters) -> u64| grown(&|at: &Snapshot| at.receive(of));
    let flow = |index: usize| {
        let flow = |of: fn(&FlowCounts) -> u64| grown(&|at: &Snapshot| of(&at.flows[index]));
        FlowOutcome { sent: flow(|counts| counts.sent), returned: flow(|counts| counts.returned) }
    };
    Outcome {
        interrupts: Interrupts {
            vectors: system.lines.len() as u64,
            dispatched: grown(&|at: &Snapshot| at.dispatched),
            handlers: receive(|counters| counters.interrupts + counters.empty_interrupts),
            empty_handlers: receive(|counters| counters.empty_interrupts),
            reaped_by_poll: receive(|counters| counters.packets),
            ..Interrupts::default()
        },
        interrupt_table: system.pc.core.interrupts().to_string(),
        section: Section::Network(NetworkOutcome {
            flows: (0..end.flows.len()).map(flow).collect(),
            interrupts: device("interrupts"),
            kicks: device("kicks"),
            status_reads: device("status_reads"),
            acknowledgements: device("acknowledgements"),
            polls: receive(|counters| counters.polls),
            packets: receive(|counters| counters.packets),
            reflect_drops: receive(|counters| counters.reflect_drops),
            disordered: grown(&|at: &Snapshot| at.flows.iter().map(|flow| flow.disordered).sum()),
        }),
        ..Outcome::default()
    }
}

//! One-way flows from the host's sender through the guest and back to the host's receiver.

use super::frame;
use super::{Net, code};
use crate::time::Ps;
use crate::virtio::Bus;

/// The senders of a device's flows: threads that send as fast as they can, a flow each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flows {
    /// How many. Flow f goes to receive queue f, modulo the queues in use.
    pub count: u16,
    /// The sender's cost of a packet.
    pub sent: Ps,
    /// Cost of a packet for its sender when the device's backlog is full and the packet is dropped.
    pub dropped: Ps,
}

/// The results of one flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowCounts {
    /// Packets that its sender sent, dropped or not.
    pub sent: u64,
    /// Of them, packets dropped because the backlog was full.
    pub dropped: u64,
    /// Packets that came back.
    pub returned: u64,
    /// Of them, packets that returned behind a later one. Queues keep their order, so this is a driver's fault.
    pub disordered: u64,
}

/// One flow.
#[derive(Default)]
pub(super) struct Flow {
    pub(super) counts: FlowCounts,
    /// The last returned sequence number, plus one.
    returned_next: u64,
}

impl Net {
    /// Every sender starts, or they all stop.
    pub(super) fn run_flows(&mut self, bus: &mut Bus<'_, '_>, run: bool) {
        if run == self.flows_run {
            return;
        }
        self.flows_run = run;
        // Sends of an earlier run that are still under way are stale.
        self.flow_runs += u32::from(run);
        for flow in 0..if run { self.flows.len() } else { 0 } {
            // Each within its own first packet's time, so that they do not go in step.
            let delay = Ps(bus.world().random() % self.config.host.flows.sent.0.max(1));
            self.schedule_send(bus, flow as u16, delay);
        }
    }

    fn schedule_send(&self, bus: &mut Bus<'_, '_>, flow: u16, delay: Ps) {
        bus.schedule(delay, code::SEND, u64::from(self.flow_runs) << 32 | u64::from(flow));
    }

    /// The sender of the flow in `arg` sends a packet.
    pub(super) fn send(&mut self, bus: &mut Bus<'_, '_>, arg: u64) {
        let (flow, is_current) = (arg as u16, self.flows_run && arg >> 32 == self.flow_runs.into());
        let Some(state) = self.flows.get_mut(usize::from(flow)).filter(|_| is_current) else { return };
        let sequence = state.counts.sent;
        state.counts.sent += 1;
        let pair = flow % self.active_pairs;
        let host = &self.config.host;
        let Flows { sent, dropped, .. } = host.flows;
        let is_room = self.backlogs[usize::from(pair)].len() < host.backlog.into();
        let cost = if is_room {
            let packet = frame::build(flow, sequence, self.config.mac);
            self.backlogs[usize::from(pair)].push_back(packet);
            self.wake_receive(bus, pair);
            sent
        } else {
            state.counts.dropped += 1;
            dropped
        };
        let cost = bus.world().jitter(cost);
        self.schedule_send(bus, flow, cost.max(Ps(1)));
    }

    /// A packet from the guest arrives at the host's receiver.
    pub(super) fn deliver(&mut self, pair: u16, packet: Vec<u8>) {
        self.counters.transmitted += 1;
        match frame::parse(&packet, self.flows.len() as u16) {
            Some((flow, sequence)) => {
                let flow = &mut self.flows[usize::from(flow)];
                flow.counts.returned += 1;
                flow.counts.disordered += u64::from(sequence < flow.returned_next);
                flow.returned_next = flow.returned_next.max(sequence + 1);
            }
            None if self.received.len() < RECEIVED_MAX => self.received.push((pair, packet)),
            None => {}
        }
    }
}

/// Keeps packets that belong to no flow, for a later query.
const RECEIVED_MAX: usize = 1024;

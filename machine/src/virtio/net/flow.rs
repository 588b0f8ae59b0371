//! One-way flows from the host's sender through the guest and back to the host's receiver.

use super::frame;
use super::{Net, code};
use crate::time::Ps;
use crate::virtio::Bus;
use std::collections::VecDeque;

/// The senders of a device's flows: threads that send as fast as they can, a flow each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flows {
    /// How many. Flow f goes to receive queue f, modulo the queues in use.
    pub count: u16,
    /// What a packet costs its sender.
    pub sent: Ps,
    /// What a packet costs that finds the device's backlog full, and is dropped.
    pub dropped: Ps,
}

/// What became of one flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowCounts {
    /// Packets that its sender sent, dropped or not.
    pub sent: u64,
    /// Of them: dropped for want of room in the backlog.
    pub dropped: u64,
    /// Packets that came back.
    pub returned: u64,
    /// Of them: behind a later one. Queues keep their order, so this is a driver's fault.
    pub disordered: u64,
}

/// One flow.
#[derive(Default)]
pub(super) struct Flow {
    pub(super) counts: FlowCounts,
    /// One more than the sequence number that came back last.
    returned_next: u64,
}

/// What waits for a receive queue at the host's end (a tap's ring).
#[derive(Default)]
pub(super) struct Backlog {
    pub(super) packets: VecDeque<Vec<u8>>,
}

impl Net {
    /// Every sender starts, or they all stop.
    pub(super) fn run_flows(&mut self, bus: &mut Bus<'_, '_>, run: bool) {
        let started = !std::mem::replace(&mut self.flows_run, run) && run;
        for flow in 0..if started { self.flows.len() } else { 0 } {
            // Each within its own first packet's time, so that they do not go in step.
            let delay = Ps(bus.world().random() % self.config.host.flows.sent.0.max(1));
            bus.schedule(delay, code::SEND, flow as u64);
        }
    }

    /// The sender of `flow` sends a packet.
    pub(super) fn send(&mut self, bus: &mut Bus<'_, '_>, flow: u16) {
        let Some(state) = self.flows.get_mut(usize::from(flow)).filter(|_| self.flows_run) else { return };
        let sequence = state.counts.sent;
        state.counts.sent += 1;
        let pair = flow % self.active_pairs;
        let host = &self.config.host;
        let Flows { sent, dropped, .. } = host.flows;
        let is_room = self.backlogs[usize::from(pair)].packets.len() < host.backlog.into();
        let cost = if is_room {
            let packet = frame::build(flow, sequence, self.config.mac);
            self.backlogs[usize::from(pair)].packets.push_back(packet);
            self.wake_receive(bus, pair);
            sent
        } else {
            state.counts.dropped += 1;
            dropped
        };
        let cost = bus.world().jitter(cost);
        bus.schedule(cost.max(Ps(1)), code::SEND, flow.into());
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

/// Packets of no flow that are kept for whoever asks.
const RECEIVED_MAX: usize = 1024;

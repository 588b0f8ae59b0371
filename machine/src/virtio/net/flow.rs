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
    /// Of those that came back: in order, with a known time of sending.
    pub timed: u64,
    /// The sum of their times from the sender to the receiver.
    pub under_way: Ps,
}

/// One flow.
#[derive(Default)]
pub(super) struct Flow {
    pub(super) counts: FlowCounts,
    /// The last returned sequence number, plus one.
    returned_next: u64,
    /// Sequence number and time of sending of the packets under way, in order.
    sent_at: VecDeque<(u64, Ps)>,
}

/// Most times of sending that a flow keeps: more than a backlog and a queue hold. A guest that returns nothing would
/// otherwise let them grow.
const SENT_MAX: usize = 1 << 17;

impl Flow {
    fn note_sent(&mut self, sequence: u64, now: Ps) {
        if self.sent_at.len() == SENT_MAX {
            self.sent_at.pop_front();
        }
        self.sent_at.push_back((sequence, now));
    }

    /// Packet `sequence` is back. Earlier packets that are not back yet were lost in the guest or come out of order:
    /// they are not timed.
    fn note_returned(&mut self, sequence: u64, now: Ps) {
        self.counts.returned += 1;
        self.counts.disordered += u64::from(sequence < self.returned_next);
        self.returned_next = self.returned_next.max(sequence + 1);
        while let Some((first, sent)) = self.sent_at.pop_front_if(|(first, _)| *first <= sequence) {
            if first == sequence {
                self.counts.timed += 1;
                self.counts.under_way += now.saturating_sub(sent);
            }
        }
    }
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
            self.flows[usize::from(flow)].note_sent(sequence, bus.now());
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
    pub(super) fn deliver(&mut self, pair: u16, packet: Vec<u8>, now: Ps) {
        self.counters.transmitted += 1;
        match frame::parse(&packet, self.flows.len() as u16) {
            Some((flow, sequence)) => {
                self.flows[usize::from(flow)].note_returned(sequence, now);
            }
            None if self.received.len() < RECEIVED_MAX => self.received.push((pair, packet)),
            None => {}
        }
    }
}

/// Keeps packets that belong to no flow, for a later query.
const RECEIVED_MAX: usize = 1024;

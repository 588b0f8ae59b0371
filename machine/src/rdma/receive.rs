//! The receiving side of a queue pair.

use super::send::{reaches, region_of};
use super::wire::Packet;
use super::{Nic, code};
use crate::time::Ps;
use crate::world::World;
use spec::rdma::{Operation, RECEIVE_BYTES, Send, Status};

impl Nic {
    /// A packet arrives.
    pub(super) fn arrives(&mut self, world: &mut World<'_>, ticket: u64) {
        let Some(packet) = self.wire.take(ticket) else { return };
        match packet {
            Packet::Answer { to, sequence, status } => {
                if self.queue_pairs.get(usize::from(to)).is_some() {
                    self.answered(world, to, sequence, status);
                }
            }
            Packet::Request { from, to, .. } => {
                let connected = |pair: &super::QueuePair| pair.runs() && pair.remote == from.into();
                let Some(pair) = self.queue_pairs.get_mut(usize::from(to)).filter(|pair| connected(pair)) else {
                    return self.answer(world, packet, Status::RECEIVER_NOT_READY);
                };
                pair.waiting.push_back(packet);
                self.deliver(world, to);
            }
        }
    }

    /// The receive doorbell: receives up to `posted` are there.
    pub(super) fn receives_posted(&mut self, world: &mut World<'_>, number: u16, posted: u32) {
        let Some(pair) = self.queue_pairs.get_mut(usize::from(number)) else { return };
        if !pair.control.enable() {
            return self.fault(world, "doorbell of a queue pair that is off", format!("queue pair {number}"));
        }
        if posted.wrapping_sub(pair.receive_taken) > 1 << pair.queues.receive_shift() {
            self.fault(world, "receive doorbell out of range", format!("queue pair {number}, {posted} posted"));
            return self.stop(world, number);
        }
        pair.receive_posted = posted;
        if pair.control.error() {
            return self.flush(world, number);
        }
        pair.is_patient = false;
        self.deliver(world, number);
    }

    /// Processes the requests that wait at a queue pair, up to a message without a receive.
    fn deliver(&mut self, world: &mut World<'_>, number: u16) {
        loop {
            let pair = &mut self.queue_pairs[usize::from(number)];
            let Some(&packet @ Packet::Request { send, .. }) = pair.waiting.front() else { return };
            let is_send = send.head.operation() == Operation::SEND.0;
            if is_send && pair.receive_taken == pair.receive_posted {
                return self.wait_for_receive(world, number);
            }
            pair.waiting.pop_front();
            let status = if is_send { self.fill(world, number, &send) } else { self.write_remote(world, &send) };
            self.answer(world, packet, status);
            if status != Status::SUCCESS {
                return self.stop(world, number);
            }
        }
    }

    fn wait_for_receive(&mut self, world: &mut World<'_>, number: u16) {
        let pair = &mut self.queue_pairs[usize::from(number)];
        if !core::mem::replace(&mut pair.is_patient, true) {
            self.counters.waited += 1;
            pair.patience = pair.patience.wrapping_add(1);
            let arg = u64::from(number) | u64::from(pair.patience) << 32;
            let patience = Ps::from_ns(u64::from(self.config.patience_10us) * 10_000);
            world.schedule(world.now() + patience, code::PATIENCE, arg);
        }
    }

    /// No receive was posted.
    pub(super) fn patience_ends(&mut self, world: &mut World<'_>, number: u16, patience: u32) {
        let pair = &self.queue_pairs[usize::from(number)];
        if pair.runs() && pair.is_patient && pair.patience == patience && !pair.waiting.is_empty() {
            self.stop(world, number);
        }
    }

    /// A message goes into the next receive, which completes.
    fn fill(&mut self, world: &mut World<'_>, number: u16, send: &Send) -> Status {
        let pair = &mut self.queue_pairs[usize::from(number)];
        let index = pair.receive_taken & ((1 << pair.queues.receive_shift()) - 1);
        let at = pair.receive_base.wrapping_add(u64::from(index) * RECEIVE_BYTES as u64);
        pair.receive_taken = pair.receive_taken.wrapping_add(1);
        let [Ok(id), Ok(local), Ok(room)] = [0, 8, 16].map(|offset| world.read64(at.wrapping_add(offset))) else {
            self.fault(world, "receive queue outside memory", format!("queue pair {number}"));
            return Status::REMOTE_ACCESS;
        };
        let length = send.head.length();
        let status = if u64::from(length) > room {
            Status::LENGTH
        } else if copy(world, send.local, local, length.into()) {
            Status::SUCCESS
        } else {
            Status::LOCAL_ACCESS
        };
        self.complete_request(world, number, id, (Operation::RECEIVE, status), length);
        if status == Status::LOCAL_ACCESS { Status::REMOTE_ACCESS } else { status }
    }

    /// Writes bytes to the address in the request, if its key permits this.
    fn write_remote(&mut self, world: &mut World<'_>, send: &Send) -> Status {
        let bytes = u64::from(send.head.length());
        let region = self.regions.get(region_of(send.key));
        let may = region.is_some_and(|region| region.may_be_written(send.key as u32, send.remote, bytes));
        if may && copy(world, send.local, send.remote, bytes) { Status::SUCCESS } else { Status::REMOTE_ACCESS }
    }

    /// Informs the sender of `request`. A sender that asked for no completion gets errors only.
    pub(super) fn answer(&mut self, world: &mut World<'_>, request: Packet, status: Status) {
        let Packet::Request { from, to, sequence, send } = request else { return };
        if status == Status::SUCCESS && !send.head.signalled() {
            return;
        }
        let Some(peer) = self.wire.peer(world.me()) else { return };
        let latency = world.jitter(self.config.timing.latency);
        let mut arrival = world.now() + latency;
        if let Some(pair) = self.queue_pairs.get_mut(usize::from(to)) {
            // Answers of a queue pair do not overtake each other either.
            arrival = arrival.max(pair.last_answer);
            pair.last_answer = arrival;
        }
        let ticket = self.wire.put(Packet::Answer { to: from, sequence, status });
        world.schedule_for(peer, arrival, code::ARRIVES, ticket);
    }
}

/// Copies whole words; false when memory is not there.
fn copy(world: &mut World<'_>, from: u64, to: u64, bytes: u64) -> bool {
    if !reaches(world, from, bytes) || !reaches(world, to, bytes) {
        return false;
    }
    (0..bytes).step_by(8).all(|at| world.read64(from + at).and_then(|word| world.write64(to + at, word)).is_ok())
}

//! The sending side of a queue pair: from the doorbell to the wire, and the answers.

use super::objects::Flying;
use super::wire::Packet;
use super::{Nic, code};
use crate::time::Ps;
use crate::world::World;
use spec::rdma::registers::MR_MAX;
use spec::rdma::{EventKind, Operation, RECEIVE_BYTES, SEND_BYTES, Send, Status};

/// Bytes of a packet besides its payload: headers and checksums of a routable RDMA packet.
const HEADER_BYTES: u64 = 78;

impl Nic {
    /// The send doorbell: requests up to `posted` are there.
    pub(super) fn sends_posted(&mut self, world: &mut World<'_>, number: u16, posted: u32) {
        let Some(pair) = self.queue_pairs.get_mut(usize::from(number)) else { return };
        if !pair.control.enable() {
            return self.fault(world, "doorbell of a queue pair that is off", format!("queue pair {number}"));
        }
        if posted.wrapping_sub(pair.send_taken) > 1 << pair.queues.send_shift() {
            self.fault(world, "send doorbell out of range", format!("queue pair {number}, {posted} posted"));
            return self.stop(world, number);
        }
        pair.send_posted = posted;
        if pair.control.error() {
            return self.flush(world, number);
        }
        self.queue(world, number);
    }

    /// Gives a queue pair to the engine if it has requests.
    fn queue(&mut self, world: &mut World<'_>, number: u16) {
        let pair = &mut self.queue_pairs[usize::from(number)];
        if !pair.queued && pair.send_taken != pair.send_posted {
            pair.queued = true;
            self.ready.push_back(number);
        }
        self.serve(world);
    }

    fn serve(&mut self, world: &mut World<'_>) {
        if self.serving {
            return;
        }
        let Some(number) = self.ready.pop_front() else { return };
        self.serving = true;
        let service = world.jitter(self.config.timing.service);
        let arg = u64::from(number) | u64::from(self.queue_pairs[usize::from(number)].epoch) << 32;
        world.schedule(world.now() + service, code::SERVED, arg);
    }

    /// The engine has read a request.
    pub(super) fn served(&mut self, world: &mut World<'_>, number: u16, epoch: u32) {
        self.serving = false;
        let pair = &mut self.queue_pairs[usize::from(number)];
        if pair.epoch == epoch && pair.runs() && pair.send_taken != pair.send_posted {
            pair.queued = false;
            let index = pair.send_taken & ((1 << pair.queues.send_shift()) - 1);
            let at = pair.send_base.wrapping_add(u64::from(index) * SEND_BYTES as u64);
            let sequence = pair.send_taken;
            pair.send_taken = sequence.wrapping_add(1);
            self.counters.requests += 1;
            self.execute(world, number, sequence, at);
        }
        if self.queue_pairs[usize::from(number)].runs() {
            self.queue(world, number);
        }
        self.serve(world);
    }

    /// The request at `at` goes on the wire, or fails.
    fn execute(&mut self, world: &mut World<'_>, number: u16, sequence: u32, at: u64) {
        let words = [0, 8, 16, 24, 32].map(|offset| world.read64(at.wrapping_add(offset)).ok());
        let [Some(head), Some(id), Some(local), Some(remote), Some(key)] = words else {
            self.fault(world, "send queue outside memory", format!("queue pair {number}"));
            return self.stop(world, number);
        };
        let send = Send::from_words([head, id, local, remote, key]);
        let operation = Operation(send.head.operation());
        let flying = Flying { sequence, id, operation, signalled: send.head.signalled() };
        self.queue_pairs[usize::from(number)].flying.push_back(flying);
        let bytes = u64::from(send.head.length());
        let status = if !matches!(operation, Operation::SEND | Operation::WRITE) {
            Status::OPERATION
        } else if !reaches(world, local, bytes) {
            Status::LOCAL_ACCESS
        } else {
            Status::SUCCESS
        };
        let Some(peer) = self.wire.peer(world.me()).filter(|_| status == Status::SUCCESS) else {
            let status = if status == Status::SUCCESS { Status::RECEIVER_NOT_READY } else { status };
            return self.answered(world, number, sequence, status);
        };
        let length = ((bytes + HEADER_BYTES) * self.byte_time_q20) >> 20;
        self.link_free = self.link_free.max(world.now()) + Ps(length);
        self.counters.bytes += bytes;
        let latency = world.jitter(self.config.timing.latency);
        let pair = &mut self.queue_pairs[usize::from(number)];
        let arrival = (self.link_free + latency).max(pair.last_arrival);
        pair.last_arrival = arrival;
        let packet = Packet::Request { from: number, to: pair.remote as u16, sequence, send };
        world.schedule_for(peer, arrival, code::ARRIVES, self.wire.put(packet));
    }

    /// An end reports the result of a request. All earlier requests ended well.
    pub(super) fn answered(&mut self, world: &mut World<'_>, number: u16, sequence: u32, status: Status) {
        let pair = &mut self.queue_pairs[usize::from(number)];
        if !pair.runs() {
            return;
        }
        while let Some(flying) = pair.flying.pop_front() {
            if flying.sequence != sequence {
                continue;
            }
            if flying.signalled || status != Status::SUCCESS {
                self.complete_request(world, number, flying.id, (flying.operation, status), 0);
            }
            break;
        }
        if status != Status::SUCCESS {
            self.stop(world, number);
        }
    }

    /// A queue pair stops: all its requests end, and its event queue is informed.
    pub(super) fn stop(&mut self, world: &mut World<'_>, number: u16) {
        let pair = &mut self.queue_pairs[usize::from(number)];
        if !pair.runs() {
            return;
        }
        pair.control.set_error(true);
        let receive_cq = usize::from(pair.queues.receive_cq());
        let waiting = core::mem::take(&mut pair.waiting);
        self.counters.stopped += 1;
        for packet in waiting {
            self.answer(world, packet, Status::RECEIVER_NOT_READY);
        }
        self.flush(world, number);
        let event_queue = self.completion_queues[receive_cq].control.event_queue();
        self.notify(world, event_queue, number, EventKind::QP_ERROR);
    }

    /// Ends every request and receive of a queue pair that stopped.
    pub(super) fn flush(&mut self, world: &mut World<'_>, number: u16) {
        let pair = &mut self.queue_pairs[usize::from(number)];
        let mut ended: Vec<_> = pair.flying.drain(..).map(|flying| (flying.id, flying.operation)).collect();
        while pair.send_taken != pair.send_posted {
            let index = pair.send_taken & ((1 << pair.queues.send_shift()) - 1);
            let at = pair.send_base.wrapping_add(u64::from(index) * SEND_BYTES as u64);
            let operation = world.read64(at).map_or(0, |head| head as u8);
            ended.push((world.read64(at.wrapping_add(8)).unwrap_or(0), Operation(operation)));
            pair.send_taken = pair.send_taken.wrapping_add(1);
        }
        while pair.receive_taken != pair.receive_posted {
            let index = pair.receive_taken & ((1 << pair.queues.receive_shift()) - 1);
            let at = pair.receive_base.wrapping_add(u64::from(index) * RECEIVE_BYTES as u64);
            ended.push((world.read64(at).unwrap_or(0), Operation::RECEIVE));
            pair.receive_taken = pair.receive_taken.wrapping_add(1);
        }
        for (id, operation) in ended {
            self.complete_request(world, number, id, (operation, Status::FLUSHED), 0);
        }
    }
}

/// Whether memory has these bytes, whole words of them.
pub(super) fn reaches(world: &World<'_>, address: u64, bytes: u64) -> bool {
    let last = address.checked_add(bytes.saturating_sub(8));
    bytes.is_multiple_of(8)
        && bytes > 0
        && world.read64(address).is_ok()
        && last.is_some_and(|last| world.read64(last).is_ok())
}

/// The region that a key names.
pub(super) fn region_of(key: u64) -> usize {
    (key as usize & 0xff).min(MR_MAX as usize)
}

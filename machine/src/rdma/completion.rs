//! Completion queues, their events, and moderation.

use super::{Nic, code};
use crate::time::Ps;
use crate::world::World;
use spec::rdma::{CQE_BYTES, CqeTail, EQE_BYTES, Eqe, EventKind, Operation, Status};

/// The phase of the entry that is produced as the `produced`th.
fn phase(produced: u32, shift: u8) -> bool {
    produced >> shift & 1 == 0
}

/// Where the `produced`th entry lies.
fn address(base: u64, produced: u32, shift: u8, bytes: usize) -> u64 {
    let index = u64::from(produced & ((1 << shift) - 1));
    base.wrapping_add(index * bytes as u64)
}

impl Nic {
    /// Writes an entry, its last word last, and tells of it if that is due.
    pub(super) fn complete(&mut self, world: &mut World<'_>, number: u16, id: u64, tail: CqeTail) {
        let Some(queue) = self.completion_queues.get_mut(usize::from(number)) else { return };
        let (control, shift) = (queue.control, queue.control.entries_shift());
        if !control.enable() || control.error() {
            self.counters.overruns += 1;
            return self.fault(world, "completion for a queue that is off", format!("completion queue {number}"));
        }
        if queue.produced.wrapping_sub(queue.taken) >> shift != 0 {
            // Only a queue that looks full has its record read.
            queue.taken = world.read64(queue.record).map_or(queue.taken, |taken| taken as u32);
            if queue.produced.wrapping_sub(queue.taken) >> shift != 0 {
                return self.stop_completion_queue(world, number, "completion queue overrun");
            }
        }
        let tail = tail.with_phase(phase(queue.produced, shift));
        let at = address(queue.base, queue.produced, shift, CQE_BYTES);
        queue.produced = queue.produced.wrapping_add(1);
        queue.new = queue.new.saturating_add(1);
        let written = world.write64(at, id).and_then(|()| world.write64(at.wrapping_add(8), tail.into_bits()));
        self.counters.completions += 1;
        match written {
            Ok(()) => self.tell(world, number),
            Err(_) => self.stop_completion_queue(world, number, "completion queue outside memory"),
        }
    }

    /// Its entries have nowhere to go: the queue stops, and its event queue is informed.
    fn stop_completion_queue(&mut self, world: &mut World<'_>, number: u16, why: &'static str) {
        let queue = &mut self.completion_queues[usize::from(number)];
        queue.control.set_error(true);
        let event_queue = queue.control.event_queue();
        self.counters.overruns += 1;
        self.fault(world, why, format!("completion queue {number}"));
        self.notify(world, event_queue, number, EventKind::CQ_ERROR);
    }

    /// Software armed a completion queue and says how many entries it has taken.
    pub(super) fn arm(&mut self, world: &mut World<'_>, number: u16, taken: u32) {
        let Some(queue) = self.completion_queues.get_mut(usize::from(number)) else { return };
        let new = queue.produced.wrapping_sub(taken);
        if !queue.control.enable() || new > 1 << queue.control.entries_shift() {
            let text = format!("completion queue {number}, {taken} taken of {}", queue.produced);
            return self.fault(world, "completion queue armed out of range", text);
        }
        (queue.armed, queue.new) = (true, new);
        // The period runs from the first entry that is still new.
        queue.timing &= new > 0;
        self.tell(world, number);
    }

    /// Sends an event for new entries if moderation allows it. Otherwise makes sure that one will follow.
    pub(super) fn tell(&mut self, world: &mut World<'_>, number: u16) {
        let queue = &mut self.completion_queues[usize::from(number)];
        if !queue.armed || queue.new == 0 {
            return;
        }
        let (count, period_us) = (queue.moderation.count(), queue.moderation.period_us());
        if count <= 1 || period_us == 0 || queue.new >= count.into() {
            return self.event(world, number);
        }
        if !queue.timing {
            queue.timing = true;
            queue.timer = queue.timer.wrapping_add(1);
            let arg = u64::from(number) | u64::from(queue.timer) << 32;
            world.schedule(world.now() + Ps::from_ns(u64::from(period_us) * 1_000), code::PERIOD, arg);
        }
    }

    /// The period since the first new entry is over.
    pub(super) fn period_ends(&mut self, world: &mut World<'_>, number: u16, timer: u32) {
        let Some(queue) = self.completion_queues.get_mut(usize::from(number)) else { return };
        if queue.timing && queue.timer == timer {
            self.counters.period_events += 1;
            self.event(world, number);
        }
    }

    fn event(&mut self, world: &mut World<'_>, number: u16) {
        let queue = &mut self.completion_queues[usize::from(number)];
        (queue.armed, queue.timing) = (false, false);
        let event_queue = queue.control.event_queue();
        self.counters.events += 1;
        self.notify(world, event_queue, number, EventKind::COMPLETION);
    }

    /// An event queue entry, and the message if the queue is armed.
    pub(super) fn notify(&mut self, world: &mut World<'_>, number: u16, object: u16, kind: EventKind) {
        let Some(queue) = self.event_queues.get_mut(usize::from(number)) else { return };
        let shift = queue.control.entries_shift();
        let full = queue.produced.wrapping_sub(queue.taken) >> shift != 0;
        if !queue.control.enable() || full {
            queue.control.set_overrun(full);
            self.counters.overruns += 1;
            return self.fault(world, "event lost", format!("event queue {number}, {kind:?} of {object}"));
        }
        let entry = Eqe::new().with_object(object).with_kind(kind.0).with_phase(phase(queue.produced, shift));
        let at = address(queue.base, queue.produced, shift, EQE_BYTES);
        queue.produced = queue.produced.wrapping_add(1);
        let armed = core::mem::replace(&mut queue.armed, false);
        if world.write64(at, entry.into_bits()).is_err() {
            return self.fault(world, "event queue outside memory", format!("event queue {number}"));
        }
        if armed {
            self.pci.signal(world, number);
        }
    }

    /// Software has taken events and wants to be informed of the next one.
    pub(super) fn events_taken(&mut self, world: &mut World<'_>, number: u16, taken: u32) {
        let Some(queue) = self.event_queues.get_mut(usize::from(number)) else { return };
        let left = queue.produced.wrapping_sub(taken);
        if !queue.control.enable() || left > 1 << queue.control.entries_shift() {
            let text = format!("event queue {number}, {taken} taken of {}", queue.produced);
            return self.fault(world, "event queue doorbell out of range", text);
        }
        queue.taken = taken;
        queue.armed = left == 0;
        if left > 0 {
            self.pci.signal(world, number);
        }
    }

    /// A completion of queue pair `pair`.
    pub(super) fn complete_request(
        &mut self,
        world: &mut World<'_>,
        pair: u16,
        id: u64,
        (operation, status): (Operation, Status),
        length: u32,
    ) {
        let queues = self.queue_pairs[usize::from(pair)].queues;
        let receives = operation == Operation::RECEIVE;
        let queue = if receives { queues.receive_cq() } else { queues.send_cq() };
        let tail =
            CqeTail::new().with_length(length).with_queue_pair(pair).with_operation(operation.0).with_status(status.0);
        self.complete(world, queue, id, tail);
    }
}

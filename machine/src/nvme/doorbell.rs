//! Doorbells (PCIe 3.1.2), and how an entry gets into its completion queue.

use super::async_event::ErrorEvent;
use super::faults::EntryFault;
use super::{Correction, Nvme, code};
use crate::observe::Fact;
use crate::world::World;
use spec::nvme::{Completion, Status, StatusField};

impl Nvme {
    /// A write at `offset` from the first doorbell. Only a running controller handles it.
    pub(super) fn doorbell(&mut self, world: &mut World<'_>, offset: u32, value: u32) {
        if !self.controller.runs() {
            return;
        }
        let stride = 4u32 << self.config.doorbell_stride;
        let index = offset / stride;
        let qid = (index / 2) as u16;
        let value = value & 0xffff;
        if !offset.is_multiple_of(stride) || index / 2 > self.config.io_queues_max.into() {
            return self.doorbell_error(world, ErrorEvent::INVALID_REGISTER, offset, value);
        }
        let is_completion = !index.is_multiple_of(2);
        world.tell(|| Fact::Doorbell { device: world.me(), queue: qid, value, is_completion });
        if !is_completion { self.sq_doorbell(world, qid, value) } else { self.cq_doorbell(world, qid, value) }
    }

    fn sq_doorbell(&mut self, world: &mut World<'_>, qid: u16, tail: u32) {
        let Some(sq) = self.queues.sq(qid) else {
            return self.doorbell_error(world, ErrorEvent::INVALID_REGISTER, qid.into(), tail);
        };
        let waited = sq.waiting();
        if !sq.advance(tail) {
            return self.doorbell_error(world, ErrorEvent::INVALID_VALUE, qid.into(), tail);
        }
        if qid == 0 {
            self.begin_admin(world);
        } else {
            let waiting = self.queues.sqs[usize::from(qid)].waiting();
            self.backlog_is(world, self.backlog.0 + u64::from(waiting) - u64::from(waited));
            self.ready.set(qid, self.queues.may_fetch(qid));
            self.begin_fetch(world);
        }
    }

    /// Sets the number of I/O commands that wait to be fetched.
    pub(super) fn backlog_is(&mut self, world: &World<'_>, waiting: u64) {
        let (waited, since) = self.backlog;
        self.counters.fetch_wait_ps += waited * (world.now() - since).0;
        self.backlog = (waiting, world.now());
    }

    /// Recounts the waiting commands after queues were created or deleted.
    pub(super) fn recount_backlog(&mut self, world: &World<'_>) {
        let waiting = self.queues.sqs.iter().skip(1).map(|sq| u64::from(sq.waiting())).sum();
        self.backlog_is(world, waiting);
    }

    fn cq_doorbell(&mut self, world: &mut World<'_>, qid: u16, head: u32) {
        let Some(cq) = self.queues.cq(qid) else {
            return self.doorbell_error(world, ErrorEvent::INVALID_REGISTER, qid.into(), head);
        };
        let Some(taken) = cq.acknowledge(head) else {
            return self.doorbell_error(world, ErrorEvent::INVALID_VALUE, qid.into(), head);
        };
        if let Some(vector) = cq.vector {
            self.acknowledged(world, vector, taken);
        }
        if !self.queues.cqs[usize::from(qid)].waiting.is_empty() {
            self.drain(world, qid);
        }
    }

    /// Posts entries that found the queue full. Its submission queues continue when no such entry is left.
    fn drain(&mut self, world: &mut World<'_>, cqid: u16) {
        loop {
            let cq = &mut self.queues.cqs[usize::from(cqid)];
            if cq.is_full() {
                return;
            }
            let Some(entry) = cq.waiting.pop_front() else { break };
            self.put(world, cqid, entry);
        }
        for qid in (0..self.queues.sqs.len() as u16).filter(|&qid| qid != 0) {
            self.ready.set(qid, self.queues.may_fetch(qid));
        }
        self.begin_fetch(world);
        self.begin_admin(world);
    }

    fn doorbell_error(&mut self, world: &mut World<'_>, event: ErrorEvent, place: u32, value: u32) {
        self.counters.doorbell_errors += 1;
        world.fault(
            event.text(),
            self.config.requester.into(),
            format!("queue or offset {place:#x}, value {value:#x}"),
        );
        self.raise_event(world, event);
    }

    /// Completes a command: posts its entry, or lets it wait while the queue is full. Never overwrites.
    pub(super) fn complete(&mut self, world: &mut World<'_>, sqid: u16, cid: u16, status: Status, dw0: u32) {
        self.counters.errors += u64::from(status != Status::SUCCESS);
        let cqid = self.queues.sqs[usize::from(sqid)].cqid;
        let failed = status != Status::SUCCESS;
        let field = StatusField::new().with_status(status).with_dnr(failed && is_final(status));
        let entry = Completion { dw0, sqid, cid, status: field, ..Completion::default() };
        let cq = &mut self.queues.cqs[usize::from(cqid)];
        if !cq.waiting.is_empty() || cq.is_full() {
            self.counters.queue_full_waits += 1;
            cq.waiting.push_back(entry);
            self.block_users(cqid);
            return;
        }
        self.put(world, cqid, entry);
    }

    /// For a full completion queue, no more commands are fetched.
    fn block_users(&mut self, cqid: u16) {
        for qid in 1..self.queues.sqs.len() as u16 {
            if self.queues.sqs[usize::from(qid)].cqid == cqid {
                self.ready.set(qid, false);
            }
        }
    }

    /// Posts an entry that has room, after the fault plan has changed it.
    fn put(&mut self, world: &mut World<'_>, cqid: u16, mut entry: Completion) {
        entry.sqhd = self.queues.sq_head(entry.sqid);
        let mut fault = EntryFault::default();
        if cqid != 0 {
            self.counters.completions += 1;
            let right = entry;
            fault = self.config.faults.spoil(self.counters.completions, &mut entry);
            if right != entry || fault != EntryFault::default() {
                world.tell(|| Fact::Struck { source: world.me(), fault: "entry" });
            }
            if fault == EntryFault::default() {
                fault = self.config.faults.random.spoil(&mut self.fault_stream, world.now(), &entry);
            }
        }
        if fault.lost {
            world.tell(|| Fact::EntryLost { device: world.me(), sqid: entry.sqid, cid: entry.cid });
        } else {
            self.write_entry(world, cqid, entry, fault);
        }
        let second = fault.stray.or(fault.duplicate.then_some(entry));
        if let Some(second) = second.filter(|_| !self.queues.cqs[usize::from(cqid)].is_full()) {
            self.write_entry(world, cqid, second, EntryFault::default());
        }
    }

    /// Corrects the phase tag of an entry, if its queue still exists.
    pub(super) fn correct(&mut self, world: &mut World<'_>, number: u64) {
        let Some(Correction { cqid, address, word }) = self.corrections.remove(&number) else { return };
        if world.write64(address, word).is_ok() {
            let cid = Completion::from_words([0, word]).cid;
            world.tell(|| Fact::EntryCorrected { device: world.me(), cqid, cid });
            if let Some(vector) = self.queues.cqs[usize::from(cqid)].vector {
                self.signal_again(world, vector);
            }
        }
    }

    fn write_entry(&mut self, world: &mut World<'_>, cqid: u16, entry: Completion, fault: EntryFault) {
        let wrong_phase = fault.wrong_phase;
        let cq = &mut self.queues.cqs[usize::from(cqid)];
        let (Completion { sqid, cid, .. }, vector) = (entry, cq.vector);
        world.tell(|| Fact::EntryPosted { device: world.me(), cqid, sqid, cid, vector, wrong_phase });
        match cq.post(world, entry, wrong_phase) {
            Ok((address, word)) => {
                if let Some(after) = fault.corrected_after {
                    let correction = Correction { cqid, address, word: word ^ 1 << Completion::PHASE_BIT };
                    self.corrections.insert(self.correction_next, correction);
                    world.schedule(world.now() + after, code::CORRECT, self.correction_next);
                    self.correction_next += 1;
                }
                if let Some(vector) = vector {
                    self.posted(world, vector, cqid == 0);
                }
            }
            Err(error) => self.fatal(world, "NVMe completion queue outside memory", format!("queue {cqid}: {error}")),
        }
    }
}

/// True if the same command would fail again (Base 3.3.3.2.1, DNR). False for aborted commands and bus errors.
fn is_final(status: Status) -> bool {
    !matches!(
        status,
        Status::ABORT_REQUESTED | Status::ABORTED_SQ_DELETION | Status::DATA_TRANSFER_ERROR | Status::INTERNAL_ERROR
    )
}

//! One job: a thread that keeps a drive busy the way fio does.
//!
//! It submits until `iodepth` I/Os are in flight, waits for `iodepth_batch_complete_min` completions, takes up to
//! `iodepth_batch_complete_max`, and submits again. The time of application and kernel is charged as named work. The
//! driver does queueing, doorbells and completions. An I/O that is too long for a command becomes several, and is done
//! with the last of them.

use super::mailbox::{Letter, Mailbox};
use super::meter::{Operation, SharedMeter};
use super::queues::Queues;
use super::sequence::Sequence;
use super::split::{self, PAGE_BYTES};
use super::tally::{self, Counts, JobCounts, Latencies};
use crate::kinds::storage::{IoEngine, JobPlan};
use crate::work;
use drivers::nvme::{IoOp, IoRequest, Refusal};
use hal::{Dma as _, Hal, Threads, Work};
use machine::{SimHal, Stream};
use std::sync::{Arc, Mutex};

/// The work of a job's engine, per I/O.
#[derive(Clone, Copy)]
pub(crate) struct EngineWork {
    pub(super) user: Work,
    pub(super) submit: Work,
    /// The context that reaps the completion does this work.
    pub(crate) complete: Work,
}

impl EngineWork {
    pub(crate) fn of(engine: IoEngine, polled: bool) -> Self {
        match (engine, polled) {
            (_, true) => Self { user: work::USER_POLLED, submit: work::SUBMIT_POLLED, complete: work::COMPLETE_POLLED },
            // A call of its own for each I/O is charged as libaio's two calls are.
            (IoEngine::Libaio | IoEngine::Sync { .. } | IoEngine::Null, false) => {
                Self { user: work::USER_AIO, submit: work::SUBMIT_AIO, complete: work::COMPLETE_AIO }
            }
            (IoEngine::IoUring { .. }, false) => {
                Self { user: work::USER_URING, submit: work::SUBMIT_URING, complete: work::COMPLETE_URING }
            }
        }
    }
}

/// What a job needs beside its plan.
pub(crate) struct JobParts {
    pub(crate) plan: JobPlan,
    pub(crate) index: u32,
    /// Its drives, each once: the plan's first, then those of its other files.
    pub(crate) targets: Vec<Target>,
    pub(crate) mailbox: Arc<Mailbox<SimHal>>,
    pub(crate) polled: bool,
    pub(crate) seed: u64,
    pub(crate) verify: bool,
    pub(crate) counts: Counts,
    pub(crate) latencies: Arc<Mutex<Latencies>>,
    /// None if threads are not measured apart.
    pub(crate) meter: Option<SharedMeter>,
}

/// A drive as a job sees it.
#[derive(Clone)]
pub(crate) struct Target {
    /// Index of the drive in the plan.
    pub(crate) drive: usize,
    /// The drive's queues. An I/O goes to the queue of the CPU on which its job runs at that moment.
    pub(crate) queues: Arc<Queues>,
    /// Blocks of the drive, of the namespace's size.
    pub(crate) lba_count: u64,
    pub(crate) lba_bytes: u32,
    /// The kernel sends a Flush for a sync only then.
    pub(crate) has_volatile_cache: bool,
}

/// An operation under way on a buffer.
#[derive(Clone, Copy)]
pub(super) struct UnderWay {
    pub(super) op: IoOp,
    /// The first block.
    pub(super) lba: u64,
    /// As the job counts them.
    pub(super) len_bytes: u32,
    /// Index into [`JobParts::targets`].
    pub(super) target: u32,
}

/// A running job.
pub(crate) struct Job {
    pub(super) parts: JobParts,
    pub(super) work: EngineWork,
    sequence: Sequence,
    buffers: machine::memory::Dma,
    /// The batch that is being submitted; kept to reuse its memory.
    batch: Vec<IoRequest>,
    /// Buffers that no I/O uses.
    pub(super) free: Vec<u32>,
    /// For each buffer, the operation under way.
    pub(super) under_way: Vec<UnderWay>,
    /// Nothing is counted: the job is in its ramp.
    pub(super) silent: bool,
    /// Targets and numbers of the queues on which a polled job may have I/Os; the last one it used comes last.
    used: Vec<(usize, usize)>,
}

/// Bytes that all buffers of a job take: page-aligned, as `direct=1` wants them. If no byte moves, one buffer serves all
/// its I/Os.
pub(in super::super) fn buffer_bytes(plan: &JobPlan, moves_bytes: bool) -> usize {
    let buffers = if moves_bytes { slots(plan) as usize } else { 1 };
    buffers * plan.block_bytes.next_multiple_of(PAGE_BYTES) as usize
}

/// I/Os that a job can have under way: its depth, and for buffered writes those of the write-back.
pub(super) fn slots(plan: &JobPlan) -> u32 {
    let is_buffered = plan.load.as_ref().is_some_and(|load| load.syncs.buffered);
    if is_buffered { plan.iodepth + WRITE_BACK_SLOTS } else { plan.iodepth }
}

/// Writes that the page cache has under way for a job; then its writers wait (`balance_dirty_pages`).
pub(crate) const WRITE_BACK_SLOTS: u32 = 64;

impl Job {
    /// Allocates the job's buffers.
    ///
    /// # Errors
    /// When the machine's memory does not hold them.
    pub(crate) fn new(parts: JobParts) -> Result<Self, hal::DmaError> {
        let slots = slots(&parts.plan);
        let first = &parts.targets[0];
        let buffers = SimHal.dma_alloc(buffer_bytes(&parts.plan, parts.verify), PAGE_BYTES as usize)?;
        // Models use random streams from 0 up; the jobs' streams are far above those.
        let random = Stream::new(parts.seed, 1 << 32 | u64::from(parts.index));
        Ok(Self {
            work: EngineWork::of(parts.plan.engine, parts.polled),
            sequence: Sequence::new(&parts.plan, (first.lba_count, first.lba_bytes), random),
            buffers,
            batch: Vec::new(),
            free: (0..slots).rev().collect(),
            under_way: vec![UnderWay { op: IoOp::Read, lba: 0, len_bytes: 0, target: 0 }; slots as usize],
            silent: false,
            used: Vec::new(),
            parts,
        })
    }

    /// Runs until the machine stops.
    pub(crate) fn run(mut self) {
        self.parts.mailbox.attend(SimHal.current_thread());
        loop {
            self.submit_all();
            self.reap();
        }
    }

    /// Fills the queue to the job's depth.
    fn submit_all(&mut self) {
        while !self.free.is_empty() {
            if self.sequence.sync_is_due() {
                self.sync();
                continue;
            }
            let most = self.free.len().min(self.parts.plan.batch_submit as usize);
            let mut batch = std::mem::take(&mut self.batch);
            batch.clear();
            let (count, waits) = self.push_batch(&mut batch, most);
            SimHal.work(self.work.user, count as u32);
            let start_ns = SimHal.now_ns();
            SimHal.work(self.work.submit, count as u32);
            if batch.len() > count {
                SimHal.work(work::SPLIT, (batch.len() - count) as u32);
            }
            self.submit(0, &batch);
            let spent_ns = SimHal.now_ns() - start_ns;
            self.latencies(|latencies| latencies.submission.saturating_record(spent_ns));
            self.measure_call(&batch, start_ns);
            self.batch = batch;
            if let Some(buffer) = waits {
                self.wait_for(buffer);
            }
        }
    }

    /// Submits all commands to a target, to the queue of this CPU. While the queue is full, the call waits for room, as Linux waits
    /// for a tag; it goes on with the queue of the CPU on which it wakes.
    pub(super) fn submit(&mut self, target: usize, batch: &[IoRequest]) {
        let thread = SimHal.current_thread();
        let queues = self.parts.targets[target].queues.clone();
        let mut rest = batch;
        let mut listed: Option<usize> = None;
        loop {
            let number = queues.number_of(SimHal.cpu());
            let queue = queues.get(number);
            self.note_use(target, number);
            let submitted = queue.pair.submit(rest);
            rest = &rest[submitted.accepted..];
            match submitted.refused {
                None => break,
                Some(Refusal::Full) if self.parts.polled => self.poll_once(),
                Some(Refusal::Full) if listed == Some(number) => {
                    SimHal.park();
                    listed = None;
                }
                Some(Refusal::Full) => {
                    if let Some(left) = listed.replace(number) {
                        queues.get(left).room.leave(thread);
                    }
                    queue.room.enlist(thread);
                }
                Some(_) => {
                    // The queue is dead, and this job with it.
                    self.counts(|counts| counts.errors += 1);
                    SimHal.park();
                }
            }
        }
        if let Some(number) = listed {
            queues.get(number).room.leave(thread);
        }
    }

    /// Remembers where to poll.
    fn note_use(&mut self, target: usize, number: usize) {
        let queue = (target, number);
        if self.parts.polled && self.used.last() != Some(&queue) {
            self.used.retain(|&used| used != queue);
            self.used.push(queue);
        }
    }

    /// The longest command; the same on all queues of a drive.
    fn transfer_bytes_max(&self, target: usize) -> u32 {
        self.parts.targets[target].queues.get(0).pair.transfer_bytes_max()
    }

    /// Appends the commands of at most `most` next I/Os, up to one that the job waits for or to a sync. Returns the number
    /// of I/Os, and the buffer of one to wait for.
    fn push_batch(&mut self, batch: &mut Vec<IoRequest>, most: usize) -> (usize, Option<u32>) {
        for count in 1..=most {
            let io = self.next_request();
            self.push(0, batch, io);
            // A trim is a call that returns when it is done (the BLKDISCARD ioctl).
            if io.op == IoOp::Deallocate {
                return (count, Some(io.tag as u32));
            }
            if self.sequence.waits_for_sync() {
                return (count, None);
            }
        }
        (most, None)
    }

    /// Appends the commands of an I/O.
    pub(super) fn push(&self, target: usize, batch: &mut Vec<IoRequest>, io: IoRequest) {
        let most = self.transfer_bytes_max(target);
        let commands = split::commands(io.len_bytes, most);
        if commands == 1 || io.op == IoOp::Deallocate {
            batch.push(io);
        } else {
            self.parts.mailbox.expect(io.tag as u32, commands);
            batch.extend(split::split(io, most, self.parts.targets[target].lba_bytes));
        }
    }

    fn next_request(&mut self) -> IoRequest {
        let (op, lba) = self.sequence.next();
        self.request(UnderWay { op, lba, len_bytes: self.parts.plan.block_bytes, target: 0 })
    }

    /// An operation on a free buffer.
    pub(super) fn request(&mut self, io: UnderWay) -> IoRequest {
        let UnderWay { op, lba, len_bytes, target } = io;
        let buffer = self.free.pop().expect("the caller counted the free buffers");
        self.under_way[buffer as usize] = io;
        let offset = self.buffer_offset(buffer);
        if self.parts.verify && op == IoOp::Write {
            let lba_bytes = self.parts.targets[target as usize].lba_bytes;
            // An odd length may touch a block more.
            for block in 0..len_bytes.div_ceil(lba_bytes) + u32::from(!len_bytes.is_multiple_of(lba_bytes)) {
                let at = (offset + (block * lba_bytes) as usize) / 8;
                hal::Word::set(&self.buffers.words()[at], lba + u64::from(block));
            }
        }
        IoRequest {
            tag: u64::from(self.parts.index) << 32 | u64::from(buffer),
            op,
            lba,
            buffer: self.buffers.device_address().offset(offset as u64),
            len_bytes,
        }
    }

    /// fsync or fdatasync of the drive. Only a volatile write cache makes a Flush of it. The job waits for its end; that
    /// of io_uring is one of its I/Os in flight.
    fn sync(&mut self) {
        let called_ns = SimHal.now_ns();
        SimHal.work(self.work.user, 1);
        if !self.parts.targets[0].has_volatile_cache {
            self.measure_sync(SimHal.now_ns() - called_ns);
            return;
        }
        SimHal.work(self.work.submit, 1);
        let start_ns = SimHal.now_ns();
        let flush = self.request(UnderWay { op: IoOp::Flush, lba: 0, len_bytes: 0, target: 0 });
        self.submit(0, &[flush]);
        self.measure_call(&[flush], start_ns);
        if !matches!(self.parts.plan.engine, IoEngine::IoUring { .. }) {
            self.wait_for(flush.tag as u32);
        }
    }

    /// Waits until the operation on `buffer` is done. What completes meanwhile is taken only then, as the job's call does
    /// not return before.
    fn wait_for(&mut self, buffer: u32) {
        let mut taken = Vec::new();
        while taken.last().is_none_or(|last: &Letter| last.tag as u32 != buffer) {
            self.await_letters(1);
            taken.extend(self.parts.mailbox.take());
        }
        taken.iter().for_each(|letter| self.completed(letter));
    }

    /// Bytes from the first buffer to this one.
    fn buffer_offset(&self, buffer: u32) -> usize {
        let stride = self.parts.plan.block_bytes.next_multiple_of(PAGE_BYTES) as usize;
        if self.parts.verify { buffer as usize * stride } else { 0 }
    }

    /// Waits for completions and takes them.
    fn reap(&mut self) {
        let in_flight = (self.under_way.len() - self.free.len()) as u64;
        let plan = &self.parts.plan;
        let min = u64::from(plan.batch_complete_min).clamp(1, in_flight.max(1));
        let max = u64::from(plan.batch_complete_max).max(min);
        let waits = self.await_letters(min);
        let mut taken = 0;
        while taken < max
            && let Some(completed) = self.parts.mailbox.take()
        {
            self.completed(&completed);
            taken += 1;
        }
        self.measure_reaping(taken, waits);
    }

    /// Waits until `min` completions are there. True if it slept for them.
    pub(super) fn await_letters(&mut self, min: u64) -> bool {
        let spins = self.parts.plan.spins();
        let sleeps = !self.parts.polled && !spins && self.parts.mailbox.len() < min;
        if self.parts.polled {
            self.poll_for(min);
        } else if spins {
            self.spin_for(min);
        } else {
            self.parts.mailbox.wait(SimHal, min);
        }
        sleeps
    }

    /// Looks at the mailbox until it holds `min` completions, which interrupts bring.
    fn spin_for(&self, min: u64) {
        while self.parts.mailbox.len() < min {
            SimHal.work(work::RING_LOOK, 1);
            // A point of the seam: interrupts and other threads have their turn.
            SimHal.delay_ns(1);
        }
    }

    /// Polls the completion queue until the mailbox holds `min` completions.
    fn poll_for(&mut self, min: u64) {
        while self.parts.mailbox.len() < min {
            self.poll_once();
        }
    }

    /// Polls the queue that the job uses; after it has moved, those that it used before too.
    pub(super) fn poll_once(&mut self) {
        if let [(target, only)] = self.used[..] {
            let queues = self.parts.targets[target].queues.clone();
            let pair = &queues.get(only).pair;
            if pair.completion_pending() {
                pair.poll(usize::MAX);
            } else {
                SimHal.work(Work::PollLook, 1);
                pair.wait_for_completion(SimHal.now_ns() + POLL_PATIENCE_NS);
            }
            return;
        }
        for &(target, number) in &self.used {
            let queues = self.parts.targets[target].queues.clone();
            let pair = &queues.get(number).pair;
            if pair.completion_pending() {
                pair.poll(usize::MAX);
            } else {
                SimHal.work(Work::PollLook, 1);
            }
        }
        // A point of the seam: without it no time would pass while every queue is empty.
        SimHal.delay_ns(1);
    }

    pub(super) fn completed(&mut self, completed: &Letter) {
        let buffer = completed.tag as u32;
        let now_ns = SimHal.now_ns();
        let UnderWay { op, len_bytes, target, .. } = self.under_way[buffer as usize];
        if self.silent {
            return self.release(buffer);
        }
        let number = tally::number_of(op);
        let bytes = if op == IoOp::Flush { 0 } else { u64::from(len_bytes) };
        let wrong = self.parts.verify && op == IoOp::Read && completed.ok && !self.holds_its_block(buffer);
        self.counts(|counts| {
            counts.by_op[number] += 1;
            counts.bytes_by_op[number] += bytes;
            counts.errors += u64::from(!completed.ok);
            counts.wrong_data += u64::from(wrong);
            // Another CPU's completion may carry a time that is ahead, because it includes time that the other CPU
            // still owes.
            counts.handover_ns += now_ns.saturating_sub(completed.completed_ns);
            if self.parts.targets.len() > 1 {
                counts.count_target(target as usize, number, bytes);
            }
        });
        self.latencies(|latencies| latencies.by_op[number].saturating_record(now_ns - completed.submitted_ns));
        if let Some(meter) = &self.parts.meter {
            let operation = self.operation(buffer);
            meter.lock().expect("no panic while a meter is held").ended(operation, completed.submitted_ns, now_ns);
        }
        self.release(buffer);
    }

    /// The buffer is free again.
    pub(super) fn release(&mut self, buffer: u32) {
        self.free.push(buffer);
        if self.free.len() == self.under_way.len() {
            self.used.clear();
        }
    }

    /// Counts an I/O that no drive has seen, begun at `begin_ns`.
    pub(super) fn count_free(&self, op: IoOp, bytes: u64, begin_ns: u64) {
        if self.silent {
            return;
        }
        let number = tally::number_of(op);
        self.counts(|counts| {
            counts.by_op[number] += 1;
            counts.bytes_by_op[number] += bytes;
        });
        let spent_ns = SimHal.now_ns() - begin_ns;
        self.latencies(|latencies| latencies.by_op[number].saturating_record(spent_ns));
        if let Some(meter) = &self.parts.meter {
            let drive = self.parts.targets[0].drive as u32;
            let operation = Operation { op, slot: self.under_way.len() as u32, offset: 0, bytes, drive };
            let mut meter = meter.lock().expect("no panic while a meter is held");
            meter.submitted(std::iter::once(operation), [begin_ns, begin_ns], 1);
            meter.ended(operation, begin_ns, begin_ns + spent_ns);
        }
    }

    /// Whether the buffer holds the blocks that were read into it: each command's part begins with the number of its
    /// first block (see the drive's `tag` storage).
    fn holds_its_block(&self, buffer: u32) -> bool {
        let UnderWay { lba, len_bytes, target, .. } = self.under_way[buffer as usize];
        let part_bytes = self.transfer_bytes_max(target as usize);
        let lba_bytes = self.parts.targets[target as usize].lba_bytes;
        let words = &self.buffers.words()[self.buffer_offset(buffer) / 8..];
        (0..len_bytes).step_by(part_bytes as usize).all(|done| {
            let block = lba + u64::from(done / lba_bytes);
            hal::Word::get(&words[done as usize / 8]) == block
        })
    }

    pub(super) fn counts(&self, change: impl FnOnce(&mut JobCounts)) {
        change(&mut self.parts.counts.lock().expect("no panic while counts are held"));
    }

    pub(super) fn latencies(&self, change: impl FnOnce(&mut Latencies)) {
        change(&mut self.parts.latencies.lock().expect("no panic while latencies are held"));
    }
}

/// How long a polling job waits on one look before the next.
const POLL_PATIENCE_NS: u64 = 1_000_000;

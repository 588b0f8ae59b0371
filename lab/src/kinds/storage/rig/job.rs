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
    user: Work,
    submit: Work,
    /// The context that reaps the completion does this work.
    pub(crate) complete: Work,
}

impl EngineWork {
    pub(crate) fn of(engine: IoEngine, polled: bool) -> Self {
        match (engine, polled) {
            (_, true) => Self { user: work::USER_POLLED, submit: work::SUBMIT_POLLED, complete: work::COMPLETE_POLLED },
            (IoEngine::Libaio, false) => {
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
    /// The drive's queues. An I/O goes to the queue of the CPU on which its job runs at that moment.
    pub(crate) queues: Arc<Queues>,
    pub(crate) mailbox: Arc<Mailbox<SimHal>>,
    pub(crate) polled: bool,
    /// Blocks of the drive, of the namespace's size.
    pub(crate) lba_count: u64,
    pub(crate) lba_bytes: u32,
    pub(crate) seed: u64,
    pub(crate) verify: bool,
    /// The kernel sends a Flush for a sync only then.
    pub(crate) has_volatile_cache: bool,
    pub(crate) counts: Counts,
    pub(crate) latencies: Arc<Mutex<Latencies>>,
    /// None if threads are not measured apart.
    pub(crate) meter: Option<SharedMeter>,
}

/// A running job.
pub(crate) struct Job {
    parts: JobParts,
    work: EngineWork,
    sequence: Sequence,
    buffers: machine::memory::Dma,
    /// The batch that is being submitted; kept to reuse its memory.
    batch: Vec<IoRequest>,
    /// Buffers that no I/O uses.
    free: Vec<u32>,
    /// For each buffer, the operation under way and its first block.
    under_way: Vec<(IoOp, u64)>,
    since_think: u32,
    /// Numbers of the queues on which a polled job may have I/Os; the last one it used comes last.
    used: Vec<usize>,
}

/// Bytes that all buffers of a job take: page-aligned, as `direct=1` wants them. If no byte moves, one buffer serves all
/// its I/Os.
pub(super) fn buffer_bytes(plan: &JobPlan, moves_bytes: bool) -> usize {
    let buffers = if moves_bytes { plan.iodepth as usize } else { 1 };
    buffers * plan.block_bytes.next_multiple_of(PAGE_BYTES) as usize
}

impl Job {
    /// Allocates the job's buffers.
    ///
    /// # Errors
    /// When the machine's memory does not hold them.
    pub(crate) fn new(parts: JobParts) -> Result<Self, hal::DmaError> {
        let depth = parts.plan.iodepth;
        let buffers = SimHal.dma_alloc(buffer_bytes(&parts.plan, parts.verify), PAGE_BYTES as usize)?;
        // Models use random streams from 0 up; the jobs' streams are far above those.
        let random = Stream::new(parts.seed, 1 << 32 | u64::from(parts.index));
        Ok(Self {
            work: EngineWork::of(parts.plan.engine, parts.polled),
            sequence: Sequence::new(&parts.plan, (parts.lba_count, parts.lba_bytes), random),
            buffers,
            batch: Vec::new(),
            free: (0..depth).rev().collect(),
            under_way: vec![(IoOp::Read, 0); depth as usize],
            since_think: 0,
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
            self.submit(&batch);
            let spent_ns = SimHal.now_ns() - start_ns;
            self.latencies(|latencies| latencies.submission.saturating_record(spent_ns));
            self.measure_call(&batch, start_ns);
            self.batch = batch;
            if let Some(buffer) = waits {
                self.wait_for(buffer);
            }
            self.think(count as u32);
        }
    }

    /// Submits all commands, to the queue of this CPU. While the queue is full, the call waits for room, as Linux waits
    /// for a tag; it goes on with the queue of the CPU on which it wakes.
    fn submit(&mut self, batch: &[IoRequest]) {
        let thread = SimHal.current_thread();
        let queues = self.parts.queues.clone();
        let mut rest = batch;
        let mut listed: Option<usize> = None;
        loop {
            let number = queues.number_of(SimHal.cpu());
            let queue = queues.get(number);
            self.note_use(number);
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
    fn note_use(&mut self, number: usize) {
        if self.parts.polled && self.used.last() != Some(&number) {
            self.used.retain(|&used| used != number);
            self.used.push(number);
        }
    }

    /// The longest command; the same on all queues of a drive.
    fn transfer_bytes_max(&self) -> u32 {
        self.parts.queues.get(0).pair.transfer_bytes_max()
    }

    /// Appends the commands of at most `most` next I/Os, up to one that the job waits for or to a sync. Returns the number
    /// of I/Os, and the buffer of one to wait for.
    fn push_batch(&mut self, batch: &mut Vec<IoRequest>, most: usize) -> (usize, Option<u32>) {
        for count in 1..=most {
            let io = self.next_request();
            self.push(batch, io);
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
    fn push(&self, batch: &mut Vec<IoRequest>, io: IoRequest) {
        let most = self.transfer_bytes_max();
        let commands = split::commands(io.len_bytes, most);
        if commands == 1 || io.op == IoOp::Deallocate {
            batch.push(io);
        } else {
            self.parts.mailbox.expect(io.tag as u32, commands);
            batch.extend(split::split(io, most, self.parts.lba_bytes));
        }
    }

    fn think(&mut self, submitted: u32) {
        let plan = &self.parts.plan;
        self.since_think += submitted;
        if plan.think_ns > 0 && self.since_think >= plan.think_blocks.max(1) {
            self.since_think = 0;
            SimHal.delay_ns(plan.think_ns);
        }
    }

    fn next_request(&mut self) -> IoRequest {
        let (op, lba) = self.sequence.next();
        self.request(op, lba)
    }

    /// An operation on a free buffer.
    fn request(&mut self, op: IoOp, lba: u64) -> IoRequest {
        let buffer = self.free.pop().expect("the caller counted the free buffers");
        self.under_way[buffer as usize] = (op, lba);
        let offset = self.buffer_offset(buffer);
        let len_bytes = self.parts.plan.block_bytes;
        if self.parts.verify && op == IoOp::Write {
            for block in 0..len_bytes / self.parts.lba_bytes {
                let at = (offset + (block * self.parts.lba_bytes) as usize) / 8;
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
        if !self.parts.has_volatile_cache {
            if let Some(meter) = &self.parts.meter {
                let ns = SimHal.now_ns() - called_ns;
                meter.lock().expect("no panic while a meter is held").synced(ns);
            }
            return;
        }
        SimHal.work(self.work.submit, 1);
        let start_ns = SimHal.now_ns();
        let flush = self.request(IoOp::Flush, 0);
        self.submit(&[flush]);
        self.measure_call(&[flush], start_ns);
        if self.parts.plan.engine == IoEngine::Libaio {
            self.wait_for(flush.tag as u32);
        }
    }

    /// Waits until the operation on `buffer` is done. What completes meanwhile is taken only then, as the job's call does
    /// not return before.
    fn wait_for(&mut self, buffer: u32) {
        let mut taken = Vec::new();
        while taken.last().is_none_or(|last: &Letter| last.tag as u32 != buffer) {
            if self.parts.polled {
                self.poll_for(1);
            } else {
                self.parts.mailbox.wait(SimHal, 1);
            }
            taken.extend(self.parts.mailbox.take());
        }
        taken.iter().for_each(|letter| self.completed(letter));
    }

    /// Bytes from the first buffer to this one.
    fn buffer_offset(&self, buffer: u32) -> usize {
        let stride = self.parts.plan.block_bytes.next_multiple_of(PAGE_BYTES) as usize;
        if self.parts.verify { buffer as usize * stride } else { 0 }
    }

    /// The meter sees the call that began at `start_ns` and submitted `batch`.
    fn measure_call(&self, batch: &[IoRequest], start_ns: u64) {
        let Some(meter) = &self.parts.meter else { return };
        let mut last = u64::MAX;
        // The commands of a split I/O follow each other.
        let ios = batch.iter().filter(|io| std::mem::replace(&mut last, io.tag) != io.tag);
        let operations = ios.map(|io| self.operation(io.tag as u32));
        let depth = (self.under_way.len() - self.free.len()) as u64;
        let call_ns = [start_ns, SimHal.now_ns()];
        meter.lock().expect("no panic while a meter is held").submitted(operations, call_ns, depth);
    }

    /// The operation under way on `buffer`.
    fn operation(&self, buffer: u32) -> Operation {
        let (op, lba) = self.under_way[buffer as usize];
        let bytes = if op == IoOp::Flush { 0 } else { u64::from(self.parts.plan.block_bytes) };
        let (offset, drive) = (lba * u64::from(self.parts.lba_bytes), self.parts.plan.drive as u32);
        Operation { op, slot: buffer, offset, bytes, drive }
    }

    /// Waits for completions and takes them.
    fn reap(&mut self) {
        let in_flight = (self.under_way.len() - self.free.len()) as u64;
        let plan = &self.parts.plan;
        let min = u64::from(plan.batch_complete_min).clamp(1, in_flight.max(1));
        let max = u64::from(plan.batch_complete_max).max(min);
        let waits = !self.parts.polled && self.parts.mailbox.len() < min;
        if self.parts.polled {
            self.poll_for(min);
        } else {
            self.parts.mailbox.wait(SimHal, min);
        }
        let mut taken = 0;
        while taken < max
            && let Some(completed) = self.parts.mailbox.take()
        {
            self.completed(&completed);
            taken += 1;
        }
        if let Some(meter) = &self.parts.meter {
            meter.lock().expect("no panic while a meter is held").reaped(taken, waits);
        }
    }

    /// Polls the completion queue until the mailbox holds `min` completions.
    fn poll_for(&mut self, min: u64) {
        while self.parts.mailbox.len() < min {
            self.poll_once();
        }
    }

    /// Polls the queue that the job uses; after it has moved, those that it used before too.
    fn poll_once(&mut self) {
        let queues = self.parts.queues.clone();
        if let [only] = self.used[..] {
            let pair = &queues.get(only).pair;
            if pair.completion_pending() {
                pair.poll(usize::MAX);
            } else {
                SimHal.work(Work::PollLook, 1);
                pair.wait_for_completion(SimHal.now_ns() + POLL_PATIENCE_NS);
            }
            return;
        }
        for &number in &self.used {
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

    fn completed(&mut self, completed: &Letter) {
        let buffer = completed.tag as u32;
        let now_ns = SimHal.now_ns();
        let bytes = u64::from(self.parts.plan.block_bytes);
        let op = self.under_way[buffer as usize].0;
        let number = tally::number_of(op);
        let bytes = if op == IoOp::Flush { 0 } else { bytes };
        let wrong = self.parts.verify && op == IoOp::Read && completed.ok && !self.holds_its_block(buffer);
        self.counts(|counts| {
            counts.by_op[number] += 1;
            counts.bytes_by_op[number] += bytes;
            counts.errors += u64::from(!completed.ok);
            counts.wrong_data += u64::from(wrong);
            // Another CPU's completion may carry a time that is ahead, because it includes time that the other CPU
            // still owes.
            counts.handover_ns += now_ns.saturating_sub(completed.completed_ns);
        });
        self.latencies(|latencies| latencies.by_op[number].saturating_record(now_ns - completed.submitted_ns));
        if let Some(meter) = &self.parts.meter {
            let operation = self.operation(buffer);
            meter.lock().expect("no panic while a meter is held").ended(operation, completed.submitted_ns, now_ns);
        }
        self.free.push(buffer);
        if self.free.len() == self.under_way.len() {
            self.used.clear();
        }
    }

    /// Whether the buffer holds the blocks that were read into it: each command's part begins with the number of its
    /// first block (see the drive's `tag` storage).
    fn holds_its_block(&self, buffer: u32) -> bool {
        let part_bytes = self.transfer_bytes_max();
        let words = &self.buffers.words()[self.buffer_offset(buffer) / 8..];
        (0..self.parts.plan.block_bytes).step_by(part_bytes as usize).all(|done| {
            let block = self.under_way[buffer as usize].1 + u64::from(done / self.parts.lba_bytes);
            hal::Word::get(&words[done as usize / 8]) == block
        })
    }

    fn counts(&self, change: impl FnOnce(&mut JobCounts)) {
        change(&mut self.parts.counts.lock().expect("no panic while counts are held"));
    }

    fn latencies(&self, change: impl FnOnce(&mut Latencies)) {
        change(&mut self.parts.latencies.lock().expect("no panic while latencies are held"));
    }
}

/// How long a polling job waits on one look before the next.
const POLL_PATIENCE_NS: u64 = 1_000_000;

//! One job: a thread that keeps a drive busy the way fio does.
//!
//! It submits until `iodepth` I/Os are in flight, waits for `iodepth_batch_complete_min` completions, takes up to
//! `iodepth_batch_complete_max`, and submits again. The time of application and kernel is charged as named work. The
//! driver does queueing, doorbells and completions.

use super::mailbox::Mailbox;
use crate::kinds::storage::{IoEngine, JobPlan};
use crate::work;
use drivers::nvme::{Completed, IoOp, IoRequest, QueuePair};
use hal::{Dma as _, Hal, Threads, Work};
use hdrhistogram::Histogram;
use machine::{SimHal, Stream};
use std::sync::{Arc, Mutex};

/// A job's counters since they were last reset.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobCounts {
    pub(crate) ios: u64,
    pub(crate) bytes: u64,
    pub(crate) errors: u64,
    /// Reads whose data differs from the drive's content.
    pub(crate) wrong_data: u64,
    /// The time from the driver's completion of a command until the application sees it, summed, in ns.
    pub(crate) handover_ns: u64,
}

impl JobCounts {
    /// Adds another job's counts.
    pub(crate) fn add(&mut self, other: &Self) {
        self.ios += other.ios;
        self.bytes += other.bytes;
        self.errors += other.errors;
        self.wrong_data += other.wrong_data;
        self.handover_ns += other.handover_ns;
    }
}

/// The latencies of all jobs of a server together. One histogram stays in the host's cache; one per job would not.
#[derive(Clone, Debug)]
pub(crate) struct Latencies {
    /// The time from before the submitting call until the application sees the completion, in ns.
    pub(crate) completion: Histogram<u64>,
    /// The time inside each submitting call, in ns.
    pub(crate) submission: Histogram<u64>,
}

impl Latencies {
    pub(crate) fn new() -> Self {
        // Three digits up to a second: more than the published figures have.
        let histogram = || Histogram::new_with_bounds(1, 1_000_000_000, 3).expect("the bounds are valid");
        Self { completion: histogram(), submission: histogram() }
    }
}

/// A job's counters. The job's thread writes them, and the rig reads them between runs of the machine.
pub(crate) type Counts = Arc<Mutex<JobCounts>>;

/// The counters of a server's jobs.
pub(crate) struct Tally {
    /// One a job.
    pub(crate) jobs: Vec<Counts>,
    pub(crate) latencies: Arc<Mutex<Latencies>>,
}

impl Tally {
    /// Zeroed counters for this many jobs.
    pub(crate) fn new(jobs: usize) -> Self {
        Self { jobs: (0..jobs).map(|_| Counts::default()).collect(), latencies: Arc::new(Mutex::new(Latencies::new())) }
    }

    /// Resets the counters to zero. The machine must stand still.
    pub(crate) fn reset(&self) {
        for counts in &self.jobs {
            *counts.lock().expect("the machine stands still") = JobCounts::default();
        }
        *self.latencies.lock().expect("the machine stands still") = Latencies::new();
    }
}

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
    pub(crate) queue: Arc<QueuePair<SimHal>>,
    pub(crate) mailbox: Arc<Mailbox<SimHal>>,
    pub(crate) polled: bool,
    /// Blocks of the drive, of the namespace's size.
    pub(crate) lba_count: u64,
    pub(crate) lba_bytes: u32,
    pub(crate) seed: u64,
    pub(crate) verify: bool,
    pub(crate) counts: Counts,
    pub(crate) latencies: Arc<Mutex<Latencies>>,
}

/// A running job.
pub(crate) struct Job {
    parts: JobParts,
    work: EngineWork,
    random: Stream,
    buffers: machine::memory::Dma,
    /// The batch that is being submitted; kept to reuse its memory.
    batch: Vec<IoRequest>,
    /// Buffers that no I/O uses.
    free: Vec<u32>,
    /// For each buffer, the first block that is being read or written.
    lbas: Vec<u64>,
    next_sequential: u64,
    since_think: u32,
}

/// A memory page: buffers are page-aligned, as `direct=1` wants them.
const PAGE_BYTES: u32 = 4096;

impl Job {
    /// Allocates the job's buffers.
    ///
    /// # Errors
    /// When the machine's memory does not hold them.
    pub(crate) fn new(parts: JobParts) -> Result<Self, hal::DmaError> {
        let stride = parts.plan.block_bytes.next_multiple_of(PAGE_BYTES) as usize;
        let depth = parts.plan.iodepth;
        let buffers = SimHal.dma_alloc(stride * depth as usize, PAGE_BYTES as usize)?;
        Ok(Self {
            work: EngineWork::of(parts.plan.engine, parts.polled),
            // Models use random streams from 0 up; the jobs' streams are far above those.
            random: Stream::new(parts.seed, 1 << 32 | u64::from(parts.index)),
            buffers,
            batch: Vec::new(),
            free: (0..depth).rev().collect(),
            lbas: vec![0; depth as usize],
            next_sequential: 0,
            since_think: 0,
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
            let count = self.free.len().min(self.parts.plan.batch_submit as usize);
            let mut batch = std::mem::take(&mut self.batch);
            batch.clear();
            batch.extend((0..count).map(|_| self.next_request()));
            SimHal.work(self.work.user, count as u32);
            let start_ns = SimHal.now_ns();
            SimHal.work(self.work.submit, count as u32);
            let submitted = self.parts.queue.submit(&batch);
            let spent_ns = SimHal.now_ns() - start_ns;
            self.latencies(|latencies| latencies.submission.saturating_record(spent_ns));
            let refused = batch[submitted.accepted..].iter().map(|request| request.tag as u32);
            self.free.extend(refused);
            self.batch = batch;
            if submitted.accepted < count {
                if self.free.len() == self.lbas.len() {
                    // The queue accepts nothing although this job has nothing in flight: the queue is dead.
                    self.counts(|counts| counts.errors += 1);
                    SimHal.park();
                }
                return;
            }
            self.think(count as u32);
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
        let buffer = self.free.pop().expect("the caller counted the free buffers");
        let plan = &self.parts.plan;
        let blocks_each = u64::from(plan.block_bytes / self.parts.lba_bytes).max(1);
        let places = (self.parts.lba_count / blocks_each).max(1);
        let place = if plan.pattern.random {
            self.random.next() % places
        } else {
            self.next_sequential = (self.next_sequential + 1) % places;
            self.next_sequential
        };
        let reads = plan.pattern.read_percent;
        let op = match reads {
            100 => IoOp::Read,
            0 => IoOp::Write,
            _ if self.random.next() % 100 < u64::from(reads) => IoOp::Read,
            _ => IoOp::Write,
        };
        let lba = place * blocks_each;
        self.lbas[buffer as usize] = lba;
        let stride = u64::from(plan.block_bytes.next_multiple_of(PAGE_BYTES));
        IoRequest {
            tag: u64::from(self.parts.index) << 32 | u64::from(buffer),
            op,
            lba,
            buffer: self.buffers.device_address().offset(u64::from(buffer) * stride),
            len_bytes: plan.block_bytes,
        }
    }

    /// Waits for completions and takes them.
    fn reap(&mut self) {
        let in_flight = (self.lbas.len() - self.free.len()) as u64;
        let plan = &self.parts.plan;
        let min = u64::from(plan.batch_complete_min).clamp(1, in_flight.max(1));
        let max = u64::from(plan.batch_complete_max).max(min);
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
    }

    /// Polls the completion queue until the mailbox holds `min` completions.
    fn poll_for(&self, min: u64) {
        while self.parts.mailbox.len() < min {
            if self.parts.queue.completion_pending() {
                self.parts.queue.poll(usize::MAX);
            } else {
                SimHal.work(Work::PollLook, 1);
                self.parts.queue.wait_for_completion(SimHal.now_ns() + POLL_PATIENCE_NS);
            }
        }
    }

    fn completed(&mut self, completed: &super::mailbox::Letter) {
        let buffer = completed.tag as u32;
        let now_ns = SimHal.now_ns();
        let bytes = u64::from(self.parts.plan.block_bytes);
        let wrong = self.parts.verify && completed.ok && !self.holds_its_block(buffer);
        self.counts(|counts| {
            counts.ios += 1;
            counts.bytes += bytes;
            counts.errors += u64::from(!completed.ok);
            counts.wrong_data += u64::from(wrong);
            // Another CPU's completion may carry a time that is ahead, because it includes time that the other CPU
            // still owes.
            counts.handover_ns += now_ns.saturating_sub(completed.completed_ns);
        });
        self.latencies(|latencies| latencies.completion.saturating_record(now_ns - completed.submitted_ns));
        self.free.push(buffer);
    }

    /// Whether the buffer begins with the number of the block that was read into it (see the drive's `tag` storage).
    fn holds_its_block(&self, buffer: u32) -> bool {
        let stride = self.parts.plan.block_bytes.next_multiple_of(PAGE_BYTES) as usize;
        let word = hal::Word::get(&self.buffers.words()[buffer as usize * stride / 8]);
        word == self.lbas[buffer as usize]
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

/// The queue's user. It completes I/Os in the context that reaped them, as a block layer does, and sorts them into the
/// mailboxes of the jobs that share the queue.
pub(crate) struct Sorter {
    /// By job index.
    pub(crate) mailboxes: Arc<[Arc<Mailbox<SimHal>>]>,
    /// The work of completing an I/O, by job index.
    pub(crate) work: Arc<[Work]>,
}

impl drivers::nvme::BatchDone for Sorter {
    fn batch_done(&self, batch: &[Completed]) {
        for completed in batch {
            let job = (completed.tag >> 32) as usize;
            SimHal.work(self.work[job], 1);
            self.mailboxes[job].post(SimHal, completed);
        }
    }
}

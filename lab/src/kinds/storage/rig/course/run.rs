//! The loop of a job: passes over its files until it ends.

use super::files::Extent;
use super::pace::Rates;
use super::random::{Random, Seeds, Use};
use super::replay;
use super::target::{Search, Verdict};
use super::walk::{Next, TRIM, WRITE, Walk};
use super::{End, Layout, Shared};
use crate::kinds::storage::load::{DIRECTIONS, Load};
use crate::kinds::storage::rig::job::{Job, UnderWay};
use crate::kinds::storage::rig::mailbox::Letter;
use crate::kinds::storage::{IoEngine, Trims};
use crate::work;
use drivers::nvme::{IoOp, IoRequest};
use hal::{Hal as _, Threads as _};
use machine::SimHal;
use std::sync::Arc;

/// What a job that follows fio's options needs beside [`crate::kinds::storage::rig::job::JobParts`].
#[derive(Clone)]
pub(crate) struct CourseParts {
    pub(crate) shared: Arc<Shared>,
    pub(crate) layout: Arc<Layout>,
}

/// What a job has done since its beginning, or since the end of its ramp.
#[derive(Clone, Copy, Default)]
pub(super) struct Progress {
    /// Bytes issued by direction.
    pub(super) issued: [u64; DIRECTIONS],
    /// I/Os completed by direction.
    pub(super) blocks: [u64; DIRECTIONS],
    /// Their bytes.
    pub(super) bytes: [u64; DIRECTIONS],
}

/// A job under way.
pub(crate) struct Course {
    pub(super) job: Job,
    pub(super) load: Load,
    pub(super) walk: Walk,
    pub(super) shared: Arc<Shared>,
    pub(super) rates: Rates,
    pub(super) progress: Progress,
    /// A depth that is searched.
    pub(super) search: Option<Search>,
    /// The searched depth has shrunk: everything in flight must end first.
    pub(super) must_quiesce: bool,
    pub(super) seeds: Seeds,
    pub(super) hits: Random,
    extents: Vec<Extent>,
    /// Commands that are not submitted yet, with their targets.
    queued: Vec<(usize, IoRequest)>,
    /// The job's own I/Os, queued or in flight.
    pub(super) depth: u32,
    /// Buffers of the page cache's writes in flight.
    pub(super) written_back: Vec<u32>,
    /// When it began, and when it began to count.
    pub(super) begun_ns: u64,
    pub(super) epoch_ns: u64,
    pub(super) in_ramp: bool,
    pub(super) end: Option<End>,
    /// I/Os of the current pass that `verify` reads again.
    pub(super) written: Vec<Next>,
    pub(super) replayed: replay::Place,
    /// For each buffer, when its I/O was chosen.
    submitted_ns: Vec<u64>,
    last_was_write: bool,
}

impl Course {
    /// `job` runs by `parts` from when it is run.
    pub(crate) fn new(job: Job, parts: &CourseParts) -> Self {
        let plan = &job.parts.plan;
        let mut load = plan.load.as_deref().expect("a plain job runs without it").clone();
        // fio walks in strides over one file only.
        load.order.zones = load.order.zones.filter(|_| load.files.list.len() <= 1);
        let targets = &job.parts.targets;
        let target_of = |drive| targets.iter().position(|target| target.drive == drive).unwrap_or(0);
        let capacity = |drive: usize| {
            let target = &targets[target_of(drive)];
            target.lba_count * u64::from(target.lba_bytes)
        };
        let extents = parts.layout.extents(plan, target_of, capacity);
        // The first seed of an experiment draws what fio draws; each further one draws anew.
        let run = if load.order.repeats { job.parts.seed - 1 } else { job.parts.seed };
        let seed = load.order.seed.wrapping_add(run.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let number = u64::from(job.parts.index) + 1;
        let seeds = Seeds::of(seed, number);
        let seeds = if load.order.repeats { seeds.repeated(number, run) } else { seeds };
        let walk = Walk::new(plan, &load, &extents, &seeds);
        let slots = job.under_way.len();
        Self {
            walk,
            rates: Rates::new(&load, &seeds),
            hits: seeds.stream(Use::PageCache, false),
            shared: parts.shared.clone(),
            progress: Progress::default(),
            search: None,
            must_quiesce: false,
            seeds,
            extents,
            queued: Vec::new(),
            depth: 0,
            written_back: Vec::new(),
            begun_ns: 0,
            epoch_ns: 0,
            in_ramp: load.ends.ramp_ns > 0,
            end: None,
            written: Vec::new(),
            submitted_ns: vec![0; slots],
            replayed: replay::Place::default(),
            last_was_write: false,
            load,
            job,
        }
    }

    /// Runs until the job ends.
    pub(crate) fn run(mut self) {
        self.job.parts.mailbox.attend(SimHal.current_thread());
        self.begun_ns = SimHal.now_ns();
        self.epoch_ns = self.begun_ns;
        self.rates.thought.1 = self.begun_ns;
        self.job.silent = self.in_ramp;
        let begun_ns = self.begun_ns;
        self.job.restart_meter(begun_ns);
        self.job.counts(|counts| counts.started_ns = Some(begun_ns));
        if let Some(target) = self.load.pace.target {
            self.search = Some(Search::new(target, self.job.parts.plan.iodepth, self.begun_ns));
        }
        if let Some(flow) = self.load.pace.flow {
            self.shared.join_flow(flow.id, flow.weight);
        }
        if !self.in_ramp {
            self.begin_settling();
        }
        self.passes();
        if let Some(flow) = self.load.pace.flow {
            self.shared.leave_flow(flow.id, flow.weight, self.rates.flown());
        }
        let end = self.end.unwrap_or(End::Done);
        // No time passes while the counts are held: the machine may stop at any point, and the rig reads them then.
        let ended_ns = SimHal.now_ns();
        let (steady, depth) = (self.steady_detail(), self.search.as_ref().map(|search| search.depth));
        self.job.counts(|counts| {
            counts.steady = steady;
            counts.depth = depth;
            counts.ended_ns = Some(ended_ns);
            counts.end = Some(end);
        });
        if let Some(starter) = self.shared.starter.clone() {
            let index = self.job.parts.index;
            drop(self);
            starter.ended(index, end);
        } else {
            // Nothing waits for it, and the machine has nothing else for this thread.
            loop {
                SimHal.park();
            }
        }
    }

    /// fio's `keep_running`: a pass, and another if loops or bytes are left.
    fn passes(&mut self) {
        let mut loops = self.load.ends.loops;
        let mut is_first = true;
        loop {
            let goes_on = self.load.ends.time_based || loops > 0 || self.has_bytes_left();
            if self.end.is_some() || !goes_on {
                break;
            }
            loops = loops.saturating_sub(1);
            if !std::mem::take(&mut is_first) {
                self.walk.rewind(&self.job.parts.plan, &self.seeds);
            }
            let before: u64 = self.progress.issued.iter().sum();
            self.pass();
            self.quiesce();
            self.drain_page_cache();
            if self.load.syncs.at_end && self.walk.directions[WRITE] {
                self.sync_all();
            }
            if self.load.verify.after && self.walk.directions[WRITE] && self.end.is_none() {
                self.verify();
            }
            if self.progress.issued.iter().sum::<u64>() == before {
                // A pass that does nothing ends the job.
                break;
            }
        }
    }

    fn has_bytes_left(&self) -> bool {
        if self.has_all_ios() {
            return false;
        }
        let done: u64 = self.progress.bytes.iter().sum();
        let limit = self.limit();
        let largest = self.load.sizes.iter().map(|sizes| sizes.max).max().unwrap_or(0);
        done < limit
            && limit - done >= largest
            && !(self.walk.files.iter().all(|file| file.is_done) && self.io_size().is_none())
    }

    /// `io_size` in bytes. A share has shortened the walk's size already.
    fn io_size(&self) -> Option<u64> {
        self.load.ends.io_size?.bytes()
    }

    /// The bytes of one loop.
    fn limit(&self) -> u64 {
        self.io_size().unwrap_or(self.walk.size)
    }

    fn has_all_ios(&self) -> bool {
        let twice = if self.job.parts.plan.pattern.trims == Trims::ThenWrite { 2 } else { 1 };
        let limit = self.load.ends.number_ios * twice * self.load.ends.loops;
        limit > 0 && self.progress.blocks.iter().sum::<u64>() + u64::from(self.depth) >= limit
    }

    /// True when the bytes of all loops are issued.
    fn is_issued(&self) -> bool {
        let issued = &self.progress.issued;
        let [reads, writes, _] = self.walk.directions;
        let bytes = match (reads, writes) {
            (true, true) => issued[0] + issued[1],
            (true, false) => issued[0],
            (false, true) => issued[WRITE],
            (false, false) => issued[TRIM],
        };
        bytes >= self.limit().saturating_mul(self.load.ends.loops) || self.has_all_ios()
    }

    /// fio's `do_io`.
    fn pass(&mut self) {
        let twice = self.job.parts.plan.pattern.trims == Trims::ThenWrite;
        let io_size = self.io_size().unwrap_or(0);
        let mut total = self.walk.size.max(
            if self.walk.is_mixed() || !self.job.parts.plan.pattern.random || !self.load.order.map {
                io_size
            } else {
                0
            },
        );
        if twice {
            total += if io_size > 0 { io_size } else { self.walk.size };
        }
        let (mut issued, time_based) = (0, self.load.ends.time_based);
        let is_replay = self.load.replay.is_some();
        while is_replay || time_based || !self.is_issued() {
            if self.is_over() {
                break;
            }
            if !self.flows() {
                continue;
            }
            if issued >= total && !is_replay && (!time_based || self.load.verify.checks) {
                break;
            }
            if !is_replay && self.is_sync_due() {
                self.sync_all();
                continue;
            }
            let next = if is_replay { self.next_replayed() } else { self.next() };
            let Some(next) = next else {
                if self.load.ends.fill && self.end.is_none() {
                    self.end = Some(End::Full);
                }
                break;
            };
            issued += next.bytes;
            self.issue(next);
            if self.load.pace.offloads {
                self.take_waiting();
            }
            if self.is_full() {
                self.reap();
            }
            self.think(next.direction);
            self.check();
        }
    }

    /// The next I/O, when its turn has come.
    fn next(&mut self) -> Option<Next> {
        let mut direction = self.walk.direction();
        if self.rates.is_limited() {
            direction = self.wait_for_turn(direction)?;
            self.walk.turn_to(direction);
        }
        self.walk.next(direction)
    }

    fn is_sync_due(&mut self) -> bool {
        if !std::mem::take(&mut self.last_was_write) {
            return false;
        }
        let plan = &self.job.parts.plan;
        // fio takes the write of a pair in place of the sync.
        if plan.pattern.trims == Trims::ThenWrite {
            return false;
        }
        let writes = self.walk.issues[WRITE];
        let due = |every: u32| every > 0 && writes > 0 && writes.is_multiple_of(every.into());
        due(plan.fsync) || due(plan.fdatasync)
    }

    /// Issues an I/O by the way of its engine.
    fn issue(&mut self, next: Next) {
        let Next { direction, bytes, .. } = next;
        self.last_was_write = direction == WRITE;
        self.progress.issued[direction] += bytes;
        if self.load.verify.after && direction == WRITE && self.written.len() < VERIFIED_MAX {
            self.written.push(next);
        }
        if self.job.parts.plan.engine == IoEngine::Null {
            self.do_nothing(next);
        } else if self.load.syncs.buffered && direction != TRIM {
            self.do_buffered(next);
        } else {
            self.do_direct(next, !matches!(self.job.parts.plan.engine, IoEngine::Libaio | IoEngine::IoUring { .. }));
        }
        self.rates.issued(&self.load, direction, bytes);
    }

    /// An I/O of the null engine.
    pub(super) fn do_nothing(&mut self, next: Next) {
        SimHal.work(self.job.work.user, 1);
        // A point of the seam: such a job makes no other call that lets time pass.
        SimHal.delay_ns(1);
        let at_ns = SimHal.now_ns();
        self.job.count_free(op_of(next.direction), next.bytes, at_ns);
        self.count(next.direction, next.bytes, 0);
    }

    /// An I/O on the drive; one that `waits` is done when this returns.
    pub(super) fn do_direct(&mut self, next: Next, waits: bool) {
        let io = self.request(next);
        let (target, buffer) = (io.0, io.1.tag as u32);
        self.submitted_ns[buffer as usize] = SimHal.now_ns();
        self.queued.push(io);
        self.depth += 1;
        let waits = (waits || next.direction == TRIM) && !self.load.pace.offloads;
        if waits || self.queued.len() >= self.job.parts.plan.batch_submit as usize {
            self.commit();
        }
        if waits {
            self.wait_for(buffer);
        }
        if self.load.syncs.each && next.direction == WRITE {
            self.quiesce();
            self.flush(target);
        }
    }

    /// Index of the target of a file.
    pub(super) fn target_of(&self, file: usize) -> usize {
        self.extents[file].target as usize
    }

    /// The request of an I/O, on a free buffer, and its target.
    pub(super) fn request(&mut self, next: Next) -> (usize, IoRequest) {
        let extent = &self.extents[next.file];
        let target = &self.job.parts.targets[extent.target as usize];
        let block = u64::from(target.lba_bytes);
        // The page cache also takes what begins or ends within a block.
        let within = (extent.base + next.offset) % block;
        let blocks = (within + next.bytes).div_ceil(block).max(1);
        let last = target.lba_count.saturating_sub(blocks);
        let first = (extent.base + next.offset) / block;
        // A log may be of a larger drive.
        let lba = if self.load.replay.is_some() { first % (last + 1) } else { first.min(last) };
        let under_way =
            UnderWay { op: op_of(next.direction), lba, len_bytes: next.bytes as u32, target: extent.target };
        let mut io = self.job.request(under_way);
        io.len_bytes = (blocks * block) as u32;
        (extent.target as usize, io)
    }

    /// Submits what is queued, as one call of the engine.
    pub(super) fn commit(&mut self) {
        if self.queued.is_empty() {
            return;
        }
        let mut queued = std::mem::take(&mut self.queued);
        let count = queued.len() as u32;
        SimHal.work(self.job.work.user, count);
        let start_ns = SimHal.now_ns();
        if !self.load.pace.kernel_polls {
            SimHal.work(self.job.work.submit, count);
        }
        let mut batch = Vec::new();
        let mut rest = &queued[..];
        while let Some(&(target, _)) = rest.first() {
            let own = rest.iter().take_while(|(of, _)| *of == target).count();
            batch.clear();
            rest[..own].iter().for_each(|(_, io)| self.job.push(target, &mut batch, *io));
            if batch.len() > own {
                SimHal.work(work::SPLIT, (batch.len() - own) as u32);
            }
            self.job.submit(target, &batch);
            // In the ramp too: what is in flight at its end keeps the beginning of its call.
            self.job.measure_call(&batch, start_ns);
            rest = &rest[own..];
        }
        let spent_ns = SimHal.now_ns() - start_ns;
        if !self.job.silent {
            self.job.latencies(|latencies| latencies.submission.saturating_record(spent_ns));
        }
        queued.clear();
        self.queued = queued;
    }

    /// True if no further I/O may be issued before one completes.
    pub(super) fn is_full(&self) -> bool {
        let deepest = self.job.parts.plan.iodepth;
        self.depth >= self.search.as_ref().map_or(deepest, |search| search.depth)
    }

    /// Waits for completions of a full queue, and takes them.
    pub(super) fn reap(&mut self) {
        let plan = &self.job.parts.plan;
        let (min, max) = (plan.batch_complete_min.max(1), plan.batch_complete_max);
        let low = if self.load.depth_low == 0 { plan.iodepth } else { self.load.depth_low };
        loop {
            self.commit();
            self.take(min.min(self.depth).into(), max.max(min).into());
            if self.depth <= low || self.depth == 0 {
                break;
            }
        }
    }

    pub(super) fn completed(&mut self, letter: &Letter) {
        let UnderWay { op, len_bytes, .. } = self.job.under_way[letter.tag as usize];
        if let Some(index) = self.written_back.iter().position(|&buffer| u64::from(buffer) == letter.tag) {
            self.written_back.swap_remove(index);
            return self.job.release(letter.tag as u32);
        }
        let latency_ns = SimHal.now_ns().saturating_sub(self.submitted_ns[letter.tag as usize]);
        self.job.completed(letter);
        self.depth -= 1;
        let direction = match op {
            IoOp::Read => 0,
            IoOp::Write => WRITE,
            IoOp::Deallocate => TRIM,
            IoOp::Flush => return,
        };
        self.count(direction, len_bytes.into(), latency_ns);
    }

    /// Counts a completed I/O for the job's ends.
    pub(super) fn count(&mut self, direction: usize, bytes: u64, latency_ns: u64) {
        self.progress.blocks[direction] += 1;
        self.progress.bytes[direction] += bytes;
        if !self.in_ramp {
            self.settle(bytes);
        }
        let most_ns = self.load.ends.latency_ns_max[direction];
        if most_ns > 0 && latency_ns > most_ns && self.end.is_none() {
            self.end = Some(End::MaxLatency);
        }
        let ios = self.progress.blocks.iter().sum();
        if let Some(search) = &mut self.search {
            match search.took(latency_ns, SimHal.now_ns(), ios) {
                Verdict::Done => self.end = Some(End::Target),
                Verdict::Missed => self.end = Some(End::TargetMissed),
                Verdict::Quiesce => self.must_quiesce = true,
                Verdict::On | Verdict::Last => {}
            }
        }
    }
}

/// I/Os that a pass keeps for its verification; one of a longer pass is checked in part.
const VERIFIED_MAX: usize = 1 << 20;

pub(super) fn op_of(direction: usize) -> IoOp {
    [IoOp::Read, IoOp::Write, IoOp::Deallocate][direction]
}

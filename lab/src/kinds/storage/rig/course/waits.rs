//! Waiting for I/Os and making them durable.

use super::run::Course;
use crate::kinds::storage::IoEngine;
use crate::kinds::storage::rig::job::UnderWay;
use drivers::nvme::IoOp;
use hal::Hal as _;
use machine::SimHal;

impl Course {
    /// Waits until `min` completions are there, and takes up to `max`.
    pub(super) fn take(&mut self, min: u64, max: u64) {
        if min == 0 {
            return;
        }
        let waits = self.job.await_letters(min);
        let mut taken = 0;
        while taken < max
            && let Some(letter) = self.job.parts.mailbox.take()
        {
            self.completed(&letter);
            taken += 1;
        }
        self.job.measure_reaping(taken, waits);
    }

    /// Takes the completions that are there.
    pub(super) fn take_waiting(&mut self) {
        let waiting = self.job.parts.mailbox.len();
        self.take(waiting, waiting);
    }

    /// Waits until the I/O on `buffer` is done.
    pub(super) fn wait_for(&mut self, buffer: u32) {
        while !self.job.free.contains(&buffer) {
            self.take(1, u64::MAX);
        }
    }

    /// Waits for everything in flight.
    pub(super) fn quiesce(&mut self) {
        self.commit();
        while self.depth > 0 {
            self.take(1, u64::MAX);
        }
    }

    /// fsync of every drive of the job.
    pub(super) fn sync_all(&mut self) {
        let called_ns = SimHal.now_ns();
        self.drain_page_cache();
        SimHal.work(self.job.work.user, 1);
        self.commit();
        for target in 0..self.job.parts.targets.len() {
            self.flush(target);
        }
        if !self.job.parts.targets.iter().any(|target| target.has_volatile_cache) {
            self.job.measure_sync(SimHal.now_ns() - called_ns);
        }
    }

    /// fsync of one file.
    pub(super) fn sync_file(&mut self, file: usize) {
        self.drain_page_cache();
        SimHal.work(self.job.work.user, 1);
        self.commit();
        let (target, called_ns) = (self.target_of(file), SimHal.now_ns());
        self.flush(target);
        let sends_nothing = !self.job.parts.targets[target].has_volatile_cache;
        if let Some(meter) = self.job.parts.meter.as_ref().filter(|_| sends_nothing && !self.job.silent) {
            let spent_ns = SimHal.now_ns() - called_ns;
            meter.lock().expect("no panic while a meter is held").synced(spent_ns);
        }
    }

    /// Only a volatile write cache makes a Flush of it.
    pub(super) fn flush(&mut self, target: usize) {
        if !self.job.parts.targets[target].has_volatile_cache || self.job.parts.plan.engine == IoEngine::Null {
            return;
        }
        while self.job.free.is_empty() {
            self.take(1, u64::MAX);
        }
        SimHal.work(self.job.work.submit, 1);
        let flush = UnderWay { op: IoOp::Flush, lba: 0, len_bytes: 0, target: target as u32 };
        let io = self.job.request(flush);
        self.depth += 1;
        self.job.submit(target, &[io]);
        if !matches!(self.job.parts.plan.engine, IoEngine::IoUring { .. }) {
            self.wait_for(io.tag as u32);
        }
    }
}

//! I/O through the page cache (`direct=0`): reads that hit it, and writes that are written back behind the job.
//!
//! A buffered write ends when its pages are copied. The page cache writes them back at once, with up to
//! [`WRITE_BACK_SLOTS`] writes in flight; then the writer waits (`balance_dirty_pages`). A read hits by the share that
//! `options.page_cache_hits` states, and goes to the drive otherwise. Readahead, and the pages of other jobs, are left
//! out.

use super::run::{Course, op_of};
use super::walk::{Next, WRITE};
use crate::kinds::storage::rig::job::WRITE_BACK_SLOTS;
use hal::Hal as _;
use machine::SimHal;

/// A page of the page cache.
const PAGE_BYTES: u64 = 4096;

impl Course {
    /// An I/O through the page cache.
    pub(super) fn do_buffered(&mut self, next: Next) {
        let Next { direction, bytes, .. } = next;
        let begin_ns = SimHal.now_ns();
        if direction == WRITE {
            SimHal.work(self.job.work.user, 1);
            self.copy(bytes);
            while self.written_back.len() as u32 >= WRITE_BACK_SLOTS || self.job.free.is_empty() {
                self.take(1, u64::MAX);
            }
            self.write_back(next);
            if self.load.syncs.each {
                self.sync_all();
            }
        } else if self.hits.percent() <= self.shared.page_cache_hits {
            SimHal.work(self.job.work.user, 1);
            self.copy(bytes);
        } else {
            self.do_direct(next, true);
            return self.copy(bytes);
        }
        self.job.count_free(op_of(direction), bytes, begin_ns);
        self.count(direction, bytes, SimHal.now_ns() - begin_ns);
    }

    /// Sends the pages of a write to the drive.
    fn write_back(&mut self, next: Next) {
        let (target, io) = self.request(next);
        self.written_back.push(io.tag as u32);
        let mut batch = Vec::new();
        self.job.push(target, &mut batch, io);
        self.job.submit(target, &batch);
    }

    /// Waits until nothing is dirty.
    pub(super) fn drain_page_cache(&mut self) {
        while !self.written_back.is_empty() {
            self.take(1, u64::MAX);
        }
    }

    fn copy(&self, bytes: u64) {
        let pages = bytes.div_ceil(PAGE_BYTES);
        SimHal.delay_ns(pages * self.shared.page_copy_ns);
    }
}

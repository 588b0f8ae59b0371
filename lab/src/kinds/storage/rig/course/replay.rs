//! A log that is repeated in place of the job's own I/Os, at fio's pace (`iolog.c`: `read_iolog_get`, `iolog_delay`).

use super::run::Course;
use super::walk::Next;
use crate::kinds::storage::load::Replayed;
use hal::Hal as _;
use machine::SimHal;

/// How far a job is in its log.
#[derive(Clone, Copy, Default)]
pub(super) struct Place {
    /// Index of the next entry.
    next: usize,
    /// When the last entry was begun.
    begun_ns: u64,
    /// By how much the last wait was too long. The next one is shorter by as much.
    late_ns: u64,
}

impl Course {
    /// The next I/O of the log, when its time has come.
    pub(super) fn next_replayed(&mut self) -> Option<Next> {
        loop {
            let entry = *self.load.replay.as_ref()?.get(self.replayed.next)?;
            self.replayed.next += 1;
            match entry {
                Replayed::Io(direction, file, offset, bytes) => {
                    self.walk.issues[direction] += 1;
                    self.replayed.begun_ns = SimHal.now_ns();
                    return Some(Next { direction, file, offset, bytes });
                }
                Replayed::Sync(file) => {
                    self.replayed.begun_ns = SimHal.now_ns();
                    self.sync_file(file);
                }
                Replayed::Until(ns) => {
                    let genesis_ns = self.shared.starter.as_ref().map_or(self.begun_ns, |starter| starter.genesis_ns());
                    self.wait_until(genesis_ns.saturating_add(ns));
                }
                Replayed::Gap(ns) => self.keep_gap(ns),
            }
            if self.is_over() {
                return None;
            }
        }
    }

    fn keep_gap(&mut self, gap_ns: u64) {
        let since_ns = self.replayed.begun_ns.max(self.begun_ns);
        if gap_ns < self.replayed.late_ns {
            self.replayed.late_ns = 0;
        } else {
            let due_ns = since_ns.saturating_add(gap_ns - self.replayed.late_ns);
            if due_ns > SimHal.now_ns() {
                self.wait_until(due_ns);
                self.replayed.late_ns = SimHal.now_ns().saturating_sub(due_ns);
            }
        }
        self.replayed.begun_ns = SimHal.now_ns();
    }
}

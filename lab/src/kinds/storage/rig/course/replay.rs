//! A log that is repeated in place of the job's own I/Os.

use super::run::Course;
use super::walk::Next;
use crate::kinds::storage::load::Replayed;
use hal::Hal as _;
use machine::SimHal;

impl Course {
    /// The next I/O of the log, when its time has come.
    pub(super) fn next_replayed(&mut self) -> Option<Next> {
        loop {
            let entry = *self.load.replay.as_ref()?.get(self.replayed)?;
            self.replayed += 1;
            match entry {
                Replayed::Io(direction, file, offset, bytes) => {
                    self.walk.issues[direction] += 1;
                    return Some(Next { direction, file, offset, bytes });
                }
                Replayed::Sync => self.sync_all(),
                Replayed::Wait(ns) => self.wait(ns),
                Replayed::Until(ns) => {
                    let since_ns = self.since_epoch_ns();
                    self.wait(ns.saturating_sub(since_ns));
                }
            }
            if self.is_over() {
                return None;
            }
        }
    }

    fn wait(&mut self, ns: u64) {
        if ns == 0 {
            return;
        }
        self.commit();
        let due_ns = SimHal.now_ns().saturating_add(ns);
        self.sleep(due_ns.saturating_sub(SimHal.now_ns()));
    }
}

//! What a job does next: which operation, and where; and when an fsync is due.

use crate::kinds::storage::{JobPlan, Pattern, Trims};
use drivers::nvme::IoOp;
use machine::Stream;

/// The sequence of a job's I/Os.
pub(super) struct Sequence {
    pattern: Pattern,
    /// Places of a whole I/O on the drive.
    places: u64,
    /// Logical blocks of an I/O.
    blocks_each: u64,
    random: Stream,
    next_sequential: u64,
    /// The block that was trimmed last, if a write of it comes next.
    trimmed: Option<u64>,
    /// Writes between two syncs of each kind, 0 for none, and those since the last.
    syncs: [(u32, u32); 2],
}

impl Sequence {
    pub(super) fn new(plan: &JobPlan, (lba_count, lba_bytes): (u64, u32), random: Stream) -> Self {
        let blocks_each = u64::from(plan.block_bytes / lba_bytes).max(1);
        Self {
            pattern: plan.pattern,
            places: (lba_count / blocks_each).max(1),
            blocks_each,
            random,
            next_sequential: 0,
            trimmed: None,
            syncs: [(plan.fsync, 0), (plan.fdatasync, 0)],
        }
    }

    /// True once when so many writes have been made that a sync is due. On a drive itself both kinds do the same.
    pub(super) fn sync_is_due(&mut self) -> bool {
        let due = self.syncs.iter_mut().find(|(every, writes)| *every > 0 && writes >= every);
        due.map(|(_, writes)| *writes = 0).is_some()
    }

    /// Whether a sync is due before the next I/O.
    pub(super) fn waits_for_sync(&self) -> bool {
        self.syncs.iter().any(|(every, writes)| *every > 0 && writes >= every)
    }

    /// The next operation, and its first block.
    pub(super) fn next(&mut self) -> (IoOp, u64) {
        if let Some(lba) = self.trimmed.take() {
            return self.count(IoOp::Write, lba);
        }
        let place = if self.pattern.random {
            self.random.next() % self.places
        } else {
            self.next_sequential = (self.next_sequential + 1) % self.places;
            self.next_sequential
        };
        let lba = place * self.blocks_each;
        let op = match (self.pattern.trims, self.pattern.read_percent) {
            (Trims::Alone, _) => IoOp::Deallocate,
            (Trims::ThenWrite, _) => {
                self.trimmed = Some(lba);
                IoOp::Deallocate
            }
            (Trims::None, 100) => IoOp::Read,
            (Trims::None, 0) => IoOp::Write,
            (Trims::None, reads) if self.random.next() % 100 < u64::from(reads) => IoOp::Read,
            (Trims::None, _) => IoOp::Write,
        };
        self.count(op, lba)
    }

    fn count(&mut self, op: IoOp, lba: u64) -> (IoOp, u64) {
        if op == IoOp::Write {
            self.syncs.iter_mut().for_each(|(_, writes)| *writes += 1);
        }
        (op, lba)
    }
}

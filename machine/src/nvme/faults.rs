//! Faults, as a plan beside the one model: it behaves as specified until the plan says otherwise.

use crate::time::Ps;
use spec::nvme::Completion;

/// What goes wrong, and when. Entries and messages are counted from 1, over all I/O queues together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FaultPlan {
    /// This entry carries a command id that nobody gave; the command never completes.
    pub unknown_cid_at_entry: Option<u64>,
    /// This entry is posted twice.
    pub duplicate_at_entry: Option<u64>,
    /// This entry has the phase of the last pass: the host does not see it, nor those behind it.
    pub wrong_phase_at_entry: Option<u64>,
    /// This entry names a submission queue that does not exist.
    pub unknown_sq_at_entry: Option<u64>,
    /// This message is not sent.
    pub drop_msi: Option<u64>,
    /// From then on nothing is fetched, completed or sent; registers still read.
    pub silent_at: Option<Ps>,
    /// From then on every register reads all ones and nothing happens: the drive was pulled out.
    pub gone_at: Option<Ps>,
    /// CSTS.CFS is set then, once; a controller reset cures it.
    pub fatal_at: Option<Ps>,
}

/// What to do with an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct EntryFault {
    pub(super) duplicate: bool,
    pub(super) wrong_phase: bool,
}

impl FaultPlan {
    /// Spoils I/O entry `number` if it is its turn.
    pub(super) fn spoil(&self, number: u64, entry: &mut Completion) -> EntryFault {
        let turn = |at: Option<u64>| at == Some(number);
        if turn(self.unknown_cid_at_entry) {
            entry.cid = !entry.cid;
        }
        if turn(self.unknown_sq_at_entry) {
            entry.sqid = 0xffff;
        }
        EntryFault { duplicate: turn(self.duplicate_at_entry), wrong_phase: turn(self.wrong_phase_at_entry) }
    }

    /// Whether the drive takes no part any more.
    pub(super) fn is_mute(&self, now: Ps) -> bool {
        reached(self.silent_at, now) || self.is_gone(now)
    }

    /// Whether the drive was pulled out.
    pub(super) fn is_gone(&self, now: Ps) -> bool {
        reached(self.gone_at, now)
    }

    /// Whether it is time to fail; true once.
    pub(super) fn take_fatal(&mut self, now: Ps) -> bool {
        let due = reached(self.fatal_at, now);
        if due {
            self.fatal_at = None;
        }
        due
    }
}

fn reached(at: Option<Ps>, now: Ps) -> bool {
    at.is_some_and(|at| now >= at)
}

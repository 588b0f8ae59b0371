//! Errors of the drive itself, as a plan beside the model. The model behaves as specified until the plan says
//! otherwise. Silence and removal can happen to any device and are in [`crate::outage`].

use crate::random::Stream;
use crate::time::Ps;
use spec::nvme::Completion;

/// The fault plan. Entries and messages are counted from 1, over all I/O queues together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FaultPlan {
    /// This entry carries a command id that the host never used. The right command never completes.
    pub unknown_cid_at_entry: Option<u64>,
    /// This entry is posted twice.
    pub duplicate_at_entry: Option<u64>,
    /// This entry has the phase of the last pass: the host sees neither this entry nor the entries behind it.
    pub wrong_phase_at_entry: Option<u64>,
    /// This entry names a submission queue that does not exist.
    pub unknown_sq_at_entry: Option<u64>,
    /// This message is not sent.
    pub drop_msi: Option<u64>,
    /// CSTS.CFS is set at this time, once. A controller reset cures it.
    pub fatal_at: Option<Ps>,
    /// While this is set, admin commands that complete end with Internal Error and have done nothing. Requests for events
    /// wait as usual.
    pub admin_fails: bool,
    /// While this is set, an Abort command gets no answer, and is done only after this time: to whatever command has that id in
    /// that queue then. It is forgotten if the queue is deleted or the controller reset before.
    pub aborts_unanswered: Option<Ps>,
    /// Random faults of entries.
    pub random: RandomFaults,
}

/// Random faults of I/O entries, for a limited time. The random numbers come from a separate stream, so that the
/// drive's latencies do not change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RandomFaults {
    /// Seed of that stream.
    pub seed: u64,
    /// No faults before this time.
    pub from: Ps,
    /// No faults at this time or later.
    pub until: Ps,
    /// Rate per 1,000 entries: another entry follows, with a command id that the host may not have in use.
    pub stray_cid: u32,
    /// Rate per 1,000: another entry follows that names a submission queue which does not exist.
    pub stray_sq: u32,
    /// Rate per 1,000: the same entry is posted again.
    pub duplicate: u32,
    /// Rate per 1,000: the command is done, but no entry is posted.
    pub lost: u32,
    /// Rate per 1,000: the phase tag is that of the last pass, so the host sees neither this entry nor the entries
    /// behind it. After [`Self::corrected_after`] the tag is corrected and signalled again.
    pub wrong_phase: u32,
    /// Time from the wrong tag to the correction.
    pub corrected_after: Ps,
}

impl Default for RandomFaults {
    /// No faults.
    fn default() -> Self {
        Self {
            seed: 1,
            from: Ps(0),
            until: Ps::MAX,
            stray_cid: 0,
            stray_sq: 0,
            duplicate: 0,
            lost: 0,
            wrong_phase: 0,
            corrected_after: Ps::from_ns(20_000),
        }
    }
}

impl RandomFaults {
    /// The fault of `entry` at `now`. Draws no random number when no fault can happen.
    pub(super) fn spoil(&self, stream: &mut Option<Stream>, now: Ps, entry: &Completion) -> EntryFault {
        let rates = [self.stray_cid, self.stray_sq, self.duplicate, self.lost, self.wrong_phase];
        let mut fault = EntryFault::default();
        if rates == [0; 5] || !(self.from..self.until).contains(&now) {
            return fault;
        }
        let number = stream.get_or_insert_with(|| Stream::new(self.seed, 0)).next();
        let mut drawn = ((u128::from(number) * 1_000) >> 64) as u32;
        let hit = rates.into_iter().position(|rate| {
            let hit = drawn < rate;
            drawn = drawn.wrapping_sub(rate);
            hit
        });
        match hit {
            Some(0) => fault.stray = Some(Completion { cid: !entry.cid, ..*entry }),
            Some(1) => fault.stray = Some(Completion { sqid: 0xffff, ..*entry }),
            Some(2) => fault.duplicate = true,
            Some(3) => fault.lost = true,
            Some(_) => (fault.wrong_phase, fault.corrected_after) = (true, Some(self.corrected_after)),
            None => {}
        }
        fault
    }
}

/// The fault of one entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct EntryFault {
    pub(super) duplicate: bool,
    pub(super) wrong_phase: bool,
    /// The phase tag is corrected after this time.
    pub(super) corrected_after: Option<Ps>,
    pub(super) lost: bool,
    /// An extra entry posted behind it.
    pub(super) stray: Option<Completion>,
}

impl FaultPlan {
    /// Changes I/O entry `number` if the plan names it.
    pub(super) fn spoil(&self, number: u64, entry: &mut Completion) -> EntryFault {
        let turn = |at: Option<u64>| at == Some(number);
        if turn(self.unknown_cid_at_entry) {
            entry.cid = !entry.cid;
        }
        if turn(self.unknown_sq_at_entry) {
            entry.sqid = 0xffff;
        }
        EntryFault {
            duplicate: turn(self.duplicate_at_entry),
            wrong_phase: turn(self.wrong_phase_at_entry),
            ..EntryFault::default()
        }
    }

    /// True once, when it is time to fail.
    pub(super) fn take_fatal(&mut self, now: Ps) -> bool {
        let due = self.fatal_at.is_some_and(|at| now >= at);
        if due {
            self.fatal_at = None;
        }
        due
    }
}

//! Faults, as a plan beside the one model: it behaves as specified until the plan says otherwise.

use crate::random::Stream;
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
    /// The silence ends then: what came meanwhile, register writes too, is taken up in its order.
    pub silent_until: Option<Ps>,
    /// From then on every register reads all ones and nothing happens: the drive was pulled out.
    pub gone_at: Option<Ps>,
    /// CSTS.CFS is set then, once; a controller reset cures it.
    pub fatal_at: Option<Ps>,
    /// What happens to entries by chance.
    pub random: RandomFaults,
}

/// What happens to I/O entries by chance, for a while. Numbers come from a stream of its own, so that the drive's
/// latencies stay what they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RandomFaults {
    /// Of the stream.
    pub seed: u64,
    /// Nothing happens before.
    pub from: Ps,
    /// Nor at this time and later.
    pub until: Ps,
    /// Of 1,000 entries: another one follows, with a command id that the host may not have in use.
    pub stray_cid: u32,
    /// Of 1,000: another one follows, which names a submission queue that does not exist.
    pub stray_sq: u32,
    /// Of 1,000: the same once more.
    pub duplicate: u32,
    /// Of 1,000: the command is done, but no entry tells.
    pub lost: u32,
    /// Of 1,000: the phase tag is that of the last pass, so that the host sees neither it nor those behind it. After
    /// [`Self::corrected_after`] it is right, and signalled again.
    pub wrong_phase: u32,
    /// From the wrong tag to the right one.
    pub corrected_after: Ps,
}

impl Default for RandomFaults {
    /// Nothing ever happens.
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
    /// What happens to `entry` at `now`. No number is drawn when nothing can.
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

/// What to do with an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct EntryFault {
    pub(super) duplicate: bool,
    pub(super) wrong_phase: bool,
    /// The phase becomes right after this time.
    pub(super) corrected_after: Option<Ps>,
    pub(super) lost: bool,
    /// Posted behind it.
    pub(super) stray: Option<Completion>,
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
        EntryFault {
            duplicate: turn(self.duplicate_at_entry),
            wrong_phase: turn(self.wrong_phase_at_entry),
            ..EntryFault::default()
        }
    }

    /// Whether the drive takes no part, for now or for ever.
    pub(super) fn is_mute(&self, now: Ps) -> bool {
        reached(self.silent_at, now) && !reached(self.silent_until, now) || self.is_gone(now)
    }

    /// When a mute drive takes up what came meanwhile, if it ever does.
    pub(super) fn speaks_again(&self, now: Ps) -> Option<Ps> {
        self.silent_until.filter(|_| !self.is_gone(now))
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

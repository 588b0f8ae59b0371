//! Command slots: the state of each command in flight, and the ring that returns command ids.
//!
//! The submission side takes ids and fills slots. The completion side empties slots and gives ids back. Each works
//! under its own lock. They share only atomic words, so neither ever waits for the other.

use alloc::boxed::Box;
use hal::{CpuId, Word};

/// A slot's life. Free → InFlight is the submission side's step; all others are the completion side's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(super) enum SlotState {
    Free = 0,
    InFlight = 1,
    /// An Abort command names it, so its id must not be reused yet.
    Aborting = 2,
    /// It completed while Aborting. The user has its result. Its id is withheld until the Abort command has ended.
    Held = 3,
    /// In flight although an Abort command for it is over.
    Aborted = 4,
    /// In flight, and the Abort command that names it got no answer. Its id must not be reused until a reset.
    Abandoned = 5,
    /// It completed while Abandoned.
    Withheld = 6,
}

impl SlotState {
    fn from_word(word: u64) -> Self {
        match word & STATE_MASK {
            1 => Self::InFlight,
            2 => Self::Aborting,
            3 => Self::Held,
            4 => Self::Aborted,
            5 => Self::Abandoned,
            6 => Self::Withheld,
            _ => Self::Free,
        }
    }
}

const STATE_MASK: u64 = 0xff;
const CPU_SHIFT: u32 = 8;

/// One command's slot; its index is the command id.
pub(super) struct Slot<W> {
    /// [`SlotState`] in bits 7:0, the submitter's CPU from bit 8 on.
    state: W,
    tag: W,
    submitted_ns: W,
}

impl<W: Word> Slot<W> {
    pub(super) fn state(&self) -> SlotState {
        self.state_and_cpu().0
    }

    /// The state, and the CPU that submitted the command, by one read.
    #[inline]
    pub(super) fn state_and_cpu(&self) -> (SlotState, CpuId) {
        let word = self.state.get();
        (SlotState::from_word(word), CpuId((word >> CPU_SHIFT) as u32))
    }

    /// Whether a command has been in flight for at least `timeout_ns`.
    pub(super) fn is_overdue(&self, now_ns: u64, timeout_ns: u64) -> bool {
        let is_old = || now_ns.saturating_sub(self.submitted_ns()) >= timeout_ns;
        // The time is a new command's once its state was loaded with acquire order; before, it may be an old one's.
        let is_started = || SlotState::from_word(self.state.load()) == SlotState::InFlight;
        self.state() == SlotState::InFlight && is_old() && is_started() && is_old()
    }

    /// Ends the command; a free slot has no submitter.
    pub(super) fn free(&self) {
        self.state.set(SlotState::Free as u64);
    }

    pub(super) fn set_state(&self, state: SlotState) {
        self.state.set(self.state.get() & !STATE_MASK | state as u64);
    }

    pub(super) fn tag(&self) -> u64 {
        self.tag.get()
    }

    pub(super) fn submitted_ns(&self) -> u64 {
        self.submitted_ns.get()
    }

    /// Makes a free slot in flight.
    pub(super) fn start(&self, tag: u64, now_ns: u64, cpu: CpuId) {
        self.tag.set(tag);
        self.submitted_ns.set(now_ns);
        self.state.set(u64::from(cpu.0) << CPU_SHIFT | SlotState::InFlight as u64);
    }
}

/// All free slots of a queue.
pub(super) fn slots<W: Word>(count: u16) -> Box<[Slot<W>]> {
    (0..count).map(|_| Slot { state: W::new(0), tag: W::new(0), submitted_ns: W::new(0) }).collect()
}

/// The ids on their way from the completion side (the one producer) to the submission side (the one consumer).
///
/// Places are plain words; the one acquire load of `published` orders the reuse of a slot and of its queue entry behind
/// their release.
pub(super) struct FreeIds<W> {
    /// As many as slots, rounded up to a power of two, so that positions may wrap.
    ring: Box<[W]>,
    /// Ids given back so far, wrapping at 32 bits.
    published: W,
}

/// The consumer's place. All ids before `known` are covered by an acquire load.
pub(super) struct Taken {
    position: u32,
    known: u32,
}

impl Taken {
    /// Ids that can be taken without another look.
    pub(super) fn ready(&self) -> u32 {
        self.known.wrapping_sub(self.position)
    }

    /// Ids taken so far, wrapping.
    pub(super) fn position(&self) -> u32 {
        self.position
    }
}

/// The producer's place.
pub(super) struct Given {
    position: u32,
}

impl Given {
    /// Ids given so far, wrapping.
    pub(super) fn position(&self) -> u32 {
        self.position
    }
}

impl<W: Word> FreeIds<W> {
    /// All of `count` ids, free.
    pub(super) fn new(count: u16) -> (Self, Given, Taken) {
        let len = u32::from(count).next_power_of_two();
        let ring = (0..len).map(|id| W::new(u64::from(id))).collect();
        let ids = Self { ring, published: W::new(u64::from(count)) };
        (ids, Given { position: u32::from(count) }, Taken { position: 0, known: u32::from(count) })
    }

    fn at(&self, position: u32) -> &W {
        &self.ring[position as usize & (self.ring.len() - 1)]
    }

    /// Gives `cid` back; seen by the consumer after [`FreeIds::publish`].
    pub(super) fn give(&self, given: &mut Given, cid: u16) {
        self.at(given.position).set(u64::from(cid));
        given.position = given.position.wrapping_add(1);
    }

    /// Makes the given ids visible to the consumer.
    pub(super) fn publish(&self, given: &Given) {
        self.published.set(u64::from(given.position));
    }

    /// Fetches the published ids. A point of the seam.
    pub(super) fn look(&self, taken: &mut Taken) {
        taken.known = self.published.load() as u32;
    }

    /// Takes an id, if one is ready.
    pub(super) fn take(&self, taken: &mut Taken) -> Option<u16> {
        (taken.ready() > 0).then(|| {
            let cid = self.at(taken.position).get() as u16;
            taken.position = taken.position.wrapping_add(1);
            cid
        })
    }
}

#[cfg(all(test, loom))]
mod loom_slots {
    //! `RUSTFLAGS="--cfg loom" cargo test --release -p campanile-drivers --lib loom_slots`

    use super::*;
    use crate::loom_world::LoomWord;
    use loom::sync::Arc;
    use loom::thread;

    /// A slot is looked at while its next command begins: that one is not taken for as old as the last.
    #[test]
    fn a_command_that_has_just_begun_is_not_overdue() {
        loom::model(|| {
            let slot = Arc::new(slots::<LoomWord>(1));
            slot[0].start(0, 0, CpuId(0));
            slot[0].free();
            let own = slot.clone();
            let submitter = thread::spawn(move || own[0].start(1, 100, CpuId(1)));
            assert!(!slot[0].is_overdue(120, 50), "it is 20 ns old at most");
            submitter.join().unwrap();
            assert!(slot[0].is_overdue(150, 50));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use hal::AtomicWord;
    use proptest::prelude::*;

    proptest! {
        /// The ring hands out each id once until it is given back, in the order of giving, over any number of turns.
        #[test]
        fn ids_come_back_in_order(count in 1_u16..70, steps in prop::collection::vec(any::<u8>(), 1..600)) {
            let (ids, mut given, mut taken) = FreeIds::<AtomicWord>::new(count);
            let mut free: VecDeque<u16> = (0..count).collect();
            let mut hidden = VecDeque::new();
            let mut out = VecDeque::new();
            for step in steps {
                match step % 4 {
                    0 | 1 => {
                        let cid = ids.take(&mut taken);
                        prop_assert_eq!(cid, free.pop_front());
                        out.extend(cid);
                    }
                    2 => {
                        let Some(cid) = out.swap_remove_back(usize::from(step) % out.len().max(1)) else { continue };
                        ids.give(&mut given, cid);
                        hidden.push_back(cid);
                    }
                    _ => {
                        ids.publish(&given);
                        prop_assert_eq!(usize::try_from(taken.ready()), Ok(free.len()));
                        ids.look(&mut taken);
                        free.append(&mut hidden);
                    }
                }
                prop_assert_eq!(usize::try_from(taken.ready()), Ok(free.len()));
            }
        }
    }

    #[test]
    fn positions_may_wrap() {
        let (ids, mut given, mut taken) = FreeIds::<AtomicWord>::new(3);
        // As after 2^32 − 4 ids each way: a multiple of the ring's length, so the places are the same.
        given.position = given.position.wrapping_sub(4);
        (taken.position, taken.known) = (taken.position.wrapping_sub(4), taken.known.wrapping_sub(4));
        for _ in 0..5 {
            let cids: [_; 3] = core::array::from_fn(|_| ids.take(&mut taken).unwrap());
            assert_eq!((cids, ids.take(&mut taken)), ([0, 1, 2], None));
            cids.iter().for_each(|&cid| ids.give(&mut given, cid));
            ids.publish(&given);
            ids.look(&mut taken);
        }
    }
}

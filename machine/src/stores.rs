//! Stores of CPUs that devices do not see yet.
//!
//! A plain store leaves the store buffer of its CPU after the CPU has gone on (Intel SDM volume 3, "Store Buffer"; Arm
//! ARM, "Ordering relations": a release store waits for earlier accesses, and later loads do not wait for it). Until then
//! its own CPU sees it, and a device does not. Stores leave in the order in which they were made, as the seam promises
//! (`hal::Word::set` releases). A read-modify-write or a register access waits until they have left.
//!
//! All CPUs share one buffer here, and see what is in it. That is less than hardware may do: no CPU can tell a device
//! what it saw without waiting itself.

use crate::time::Ps;
use crate::word::Word;
use hal::CpuId;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// A store buffer has few places, and leaves by itself: late stores behind each other add up to no more.
const LONGEST: Ps = Ps::from_ns(5_000);

/// A store under way.
struct Store {
    /// Host address of its word.
    word: usize,
    /// The bits that it writes.
    mask: u64,
    /// What a device sees in these bits until then.
    old: u64,
    until: Ps,
    by: CpuId,
}

/// The stores under way, the oldest first.
#[derive(Default)]
pub(crate) struct Stores {
    /// True while there may be any.
    any: Cell<bool>,
    under_way: RefCell<VecDeque<Store>>,
}

impl Stores {
    /// `by` has stored into the bits of `mask` of a word that was `old`, at `now`. Devices see it `late` by this much, and
    /// after earlier stores.
    pub(crate) fn hold(&self, word: &Word, (old, mask): (u64, u64), by: CpuId, (now, late): (Ps, Ps)) {
        let mut stores = self.under_way.borrow_mut();
        let behind = stores.back().map_or(now, |last| last.until.max(now));
        let until = behind.max((behind + late).min(now + LONGEST));
        // One that is not late stays behind those that are: `now` may be ahead of the machine by the debt of its CPU.
        if until > now || !stores.is_empty() {
            stores.push_back(Store { word: word.host_address(), mask, old, until, by });
            self.any.set(true);
        }
    }

    /// What a device sees.
    #[inline]
    pub(crate) fn seen(&self, word: &Word, now: Ps) -> u64 {
        if self.any.get() { self.seen_behind(word, now) } else { word.value() }
    }

    #[cold]
    #[inline(never)]
    fn seen_behind(&self, word: &Word, now: Ps) -> u64 {
        self.leave(now);
        let stores = self.under_way.borrow();
        let own = stores.iter().rev().filter(|store| store.word == word.host_address());
        own.fold(word.value(), |value, store| value & !store.mask | store.old & store.mask)
    }

    /// A device stores. Stores under way to the same bits come later, and overwrite it.
    #[inline]
    pub(crate) fn store(&self, word: &Word, value: u64, now: Ps) {
        if self.any.get() {
            return self.store_before(word, value, now);
        }
        word.set_quietly(value);
    }

    #[cold]
    #[inline(never)]
    fn store_before(&self, word: &Word, value: u64, now: Ps) {
        self.leave(now);
        let mut left = u64::MAX;
        for store in self.under_way.borrow_mut().iter_mut().filter(|store| store.word == word.host_address()) {
            let bits = left & store.mask;
            store.old = store.old & !bits | value & bits;
            left &= !bits;
        }
        word.set_quietly(word.value() & !left | value & left);
    }

    /// When the last store of `by` will have left, or of any CPU.
    pub(crate) fn until(&self, by: Option<CpuId>) -> Option<Ps> {
        let stores = self.under_way.borrow();
        stores.iter().rev().find(|store| by.is_none_or(|by| store.by == by)).map(|store| store.until)
    }

    /// True while there may be stores under way.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.any.get()
    }

    /// All stores of `by` are seen from now on, with those before them.
    pub(crate) fn leave_of(&self, by: CpuId) {
        self.until(Some(by)).into_iter().for_each(|until| self.leave(until));
    }

    /// Stores whose time has come are seen from now on.
    pub(crate) fn leave(&self, now: Ps) {
        let mut stores = self.under_way.borrow_mut();
        while stores.front().is_some_and(|store| store.until <= now) {
            stores.pop_front();
        }
        self.any.set(!stores.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPU: CpuId = CpuId(0);

    /// A store by CPU 0 at `now`, late by `late`.
    fn store(stores: &Stores, word: &Word, (mask, value): (u64, u64), now: u64, late: u64) {
        let old = word.value();
        word.set_quietly(old & !mask | value & mask);
        stores.hold(word, (old, mask), CPU, (Ps(now), Ps(late)));
    }

    /// Thirty microseconds of stores held up the registers of a timer behind them.
    #[test]
    fn many_late_stores_leave_within_a_bound() {
        let (stores, word) = (Stores::default(), Word::holding(0));
        let (start, late) = (Ps::from_ns(1_000).0, Ps::from_ns(500).0);
        for value in 1..=100 {
            store(&stores, &word, (u64::MAX, value), start + value, late);
        }
        assert_eq!(stores.until(Some(CPU)), Some(Ps(start + 100) + LONGEST));
        stores.leave(Ps(start + 11 * late));
        assert_eq!(stores.seen(&word, Ps(start + 11 * late)), 100);
    }

    #[test]
    fn a_device_sees_stores_late_and_in_order() {
        let stores = Stores::default();
        let (first, second) = (Word::holding(1), Word::holding(10));
        store(&stores, &first, (u64::MAX, 2), 100, 0);
        assert!(!stores.is_any(), "it is not late");
        store(&stores, &first, (u64::MAX, 3), 100, 50);
        store(&stores, &second, (u64::MAX, 20), 110, 0);
        let seen = |now| (stores.seen(&first, Ps(now)), stores.seen(&second, Ps(now)));
        assert_eq!((first.value(), second.value()), (3, 20), "the CPU sees its stores");
        assert_eq!(seen(149), (2, 10), "the second waits for the first");
        assert_eq!(stores.until(Some(CPU)), Some(Ps(150)));
        assert_eq!(stores.until(Some(CpuId(1))), None);
        assert_eq!(seen(150), (3, 20));
        assert!(!stores.is_any());
    }

    #[test]
    fn a_store_in_a_cpus_debt_does_not_overtake_one_that_is_held() {
        let stores = Stores::default();
        let (first, second) = (Word::holding(1), Word::holding(10));
        store(&stores, &first, (u64::MAX, 2), 100, 50);
        store(&stores, &second, (u64::MAX, 20), 200, 0);
        let seen = |now| (stores.seen(&first, Ps(now)), stores.seen(&second, Ps(now)));
        assert_eq!([seen(120), seen(160), seen(200)], [(1, 10), (2, 10), (2, 20)]);
    }

    #[test]
    fn an_entry_of_two_words_is_seen_torn() {
        let stores = Stores::default();
        let words = [Word::holding(1), Word::holding(1)];
        store(&stores, &words[0], (u64::MAX, 2), 0, 10);
        store(&stores, &words[1], (u64::MAX, 2), 0, 10);
        let seen = |now| words.each_ref().map(|word| stores.seen(word, Ps(now)));
        assert_eq!([seen(9), seen(10), seen(19), seen(20)], [[1, 1], [2, 1], [2, 1], [2, 2]]);
    }

    #[test]
    fn what_a_device_stores_meanwhile_is_overwritten_where_both_store() {
        let stores = Stores::default();
        let word = Word::holding(0);
        store(&stores, &word, (0xff, 0x11), 0, 10);
        store(&stores, &word, (0xff, 0x22), 0, 10);
        stores.store(&word, 0x3333, Ps(5));
        assert_eq!((stores.seen(&word, Ps(5)), word.value()), (0x3333, 0x3322));
        assert_eq!(stores.seen(&word, Ps(10)), 0x3311);
        assert_eq!(stores.seen(&word, Ps(20)), 0x3322);
    }
}

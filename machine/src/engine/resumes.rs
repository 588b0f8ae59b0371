//! Resume times of waiting CPUs: one key per CPU, with fast access to the earliest.

use super::calendar::{key, time};
use crate::time::Ps;

/// Later than every key.
const NEVER: u128 = u128::MAX;

/// Bits of a CPU's index in a packed key, below 48 bits of sequence number and 64 of time.
const INDEX_BITS: u32 = 16;

/// The waiting CPUs' keys (time, sequence number) in order. There are at most as many keys as CPUs, and usually the
/// first one is removed. A wait that ends in another way removes its key, so unlike a calendar event it leaves nothing
/// behind.
#[derive(Debug)]
pub(crate) struct Resumes {
    /// In descending order, so the earliest key is the last one here. A key contains its CPU's index.
    waiting: Vec<u128>,
    /// The earliest key without its CPU; [`NEVER`] when no CPU waits.
    first: u128,
}

/// The key of CPU `index`, which waits until (time, sequence number).
#[inline]
fn packed(index: usize, (at, sequence): (Ps, u64)) -> u128 {
    debug_assert!(sequence < 1 << (64 - INDEX_BITS), "sequence number {sequence}");
    u128::from(at.0) << 64 | u128::from(sequence << INDEX_BITS | index as u64)
}

impl Resumes {
    /// For `count` CPUs, none of which waits.
    ///
    /// # Panics
    /// When `count` is over 65,536.
    pub(crate) fn new(count: usize) -> Self {
        assert!(count <= 1 << INDEX_BITS, "{count} CPUs; at most 65536 can wait");
        Self { waiting: Vec::with_capacity(count), first: NEVER }
    }

    /// The earliest key and its CPU; None when no CPU waits.
    #[inline]
    pub(crate) fn first(&self) -> Option<((Ps, u64), usize)> {
        let first = *self.waiting.last()?;
        let sequence = (first as u64) >> INDEX_BITS;
        let index = first as usize & ((1 << INDEX_BITS) - 1);
        Some(((Ps((first >> 64) as u64), sequence), index))
    }

    /// The earliest key as one number, time in the upper half and sequence number in the lower; the greatest number when
    /// no CPU waits.
    #[inline]
    pub(crate) fn first_key(&self) -> u128 {
        self.first
    }

    /// The earliest time; `Ps::MAX` when no CPU waits.
    #[inline]
    pub(crate) fn first_time(&self) -> Ps {
        time(self.first)
    }

    /// CPU `index`, which does not wait yet, will continue at `end`.
    #[inline]
    pub(crate) fn set(&mut self, index: usize, end: (Ps, u64)) {
        let packed = packed(index, end);
        let place = self.waiting.partition_point(|other| *other > packed);
        self.waiting.insert(place, packed);
        self.first = self.first.min(key(end.0, end.1));
    }

    /// Removes the earliest key.
    #[inline]
    pub(crate) fn pop(&mut self) {
        self.waiting.pop();
        self.find_first();
    }

    /// CPU `index` no longer waits until `end`. Does nothing if the key has been removed already.
    pub(crate) fn clear(&mut self, index: usize, end: (Ps, u64)) {
        let key = packed(index, end);
        let place = self.waiting.partition_point(|other| *other > key);
        if self.waiting.get(place) == Some(&key) {
            self.waiting.remove(place);
            self.find_first();
        }
    }

    #[inline]
    fn find_first(&mut self) {
        const TIME: u128 = !(u64::MAX as u128);
        let first = self.waiting.last();
        self.first = first.map_or(NEVER, |first| first & TIME | u128::from((*first as u64) >> INDEX_BITS));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_is_the_least(
            count in 1..100usize,
            steps in proptest::collection::vec((0..100usize, proptest::option::of(0u64..50)), 0..400),
        ) {
            let mut resumes = Resumes::new(count);
            let mut plain = vec![None; count];
            for (sequence, (index, at)) in steps.into_iter().enumerate() {
                let index = index % count;
                let earlier = std::mem::replace(&mut plain[index], at.map(|at| (Ps(at), sequence as u64)));
                match earlier {
                    Some(_) if resumes.first().is_some_and(|(_, first)| first == index) => resumes.pop(),
                    Some(key) => resumes.clear(index, key),
                    None => {}
                }
                // A key that has gone is not removed twice.
                resumes.clear(index, earlier.unwrap_or_default());
                if let Some(key) = plain[index] {
                    resumes.set(index, key);
                }
                let keys = plain.iter().zip(0..);
                let least = keys.filter_map(|(key, index)| Some(((*key)?, index))).min();
                prop_assert_eq!(resumes.first(), least);
                let packed = |((at, sequence), _): ((Ps, u64), _)| u128::from(at.0) << 64 | u128::from(sequence);
                prop_assert_eq!(resumes.first_key(), least.map_or(u128::MAX, packed));
                prop_assert_eq!(resumes.first_time(), least.map_or(Ps::MAX, |((at, _), _)| at));
            }
        }
    }
}

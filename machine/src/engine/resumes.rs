//! When each waiting CPU goes on: one key a CPU, the earliest at hand.

use crate::time::Ps;

/// A CPU that does not wait for a time.
const NEVER: u128 = u128::MAX;

/// Bits of a CPU's index in a packed key, below 48 bits of sequence number and 64 of time.
const INDEX_BITS: u32 = 16;

/// A key finds its place by steps if it is among this many that go first: one mispredicted branch, where a binary search
/// has one at every second step.
const NEAR: usize = 32;

/// The waiting CPUs' keys (time, sequence number) in order: as many as there are CPUs, and mostly the first goes. A wait
/// that ends otherwise takes its key away, so unlike an event in the calendar it leaves nothing behind.
#[derive(Debug)]
pub(crate) struct Resumes {
    /// Descending, so that the first to go is the last here. A key carries its CPU's index.
    waiting: Vec<u128>,
    /// Each CPU's key.
    of: Box<[u128]>,
}

impl Resumes {
    /// For `count` CPUs, none of which waits.
    ///
    /// # Panics
    /// When `count` is over 65,536.
    pub(crate) fn new(count: usize) -> Self {
        assert!(count <= 1 << INDEX_BITS, "{count} CPUs; at most 65536 can wait");
        Self { waiting: Vec::with_capacity(count), of: vec![NEVER; count].into_boxed_slice() }
    }

    /// The earliest key and whose it is; none when nobody waits.
    #[inline]
    pub(crate) fn first(&self) -> Option<((Ps, u64), usize)> {
        let first = *self.waiting.last()?;
        let sequence = (first as u64) >> INDEX_BITS;
        let index = first as usize & ((1 << INDEX_BITS) - 1);
        Some(((Ps((first >> 64) as u64), sequence), index))
    }

    /// The earliest time; `Ps::MAX` when nobody waits.
    #[inline]
    pub(crate) fn first_time(&self) -> Ps {
        self.waiting.last().map_or(Ps::MAX, |first| Ps((first >> 64) as u64))
    }

    /// `index`, which does not wait, goes on at `key`.
    #[inline]
    pub(crate) fn set(&mut self, index: usize, (at, sequence): (Ps, u64)) {
        debug_assert!(sequence < 1 << (64 - INDEX_BITS), "sequence number {sequence}");
        debug_assert_eq!(self.of[index], NEVER, "CPU {index} waits already");
        let key = u128::from(at.0) << 64 | u128::from(sequence << INDEX_BITS | index as u64);
        self.of[index] = key;
        let near = self.waiting.len().saturating_sub(NEAR);
        if near > 0 && self.waiting[near] < key {
            let place = self.waiting.partition_point(|other| *other > key);
            return self.waiting.insert(place, key);
        }
        let mut place = self.waiting.len();
        self.waiting.push(key);
        while place > near && self.waiting[place - 1] < key {
            self.waiting[place] = self.waiting[place - 1];
            place -= 1;
        }
        self.waiting[place] = key;
    }

    /// `index` waits for no time any more.
    #[inline]
    pub(crate) fn clear(&mut self, index: usize) {
        let key = core::mem::replace(&mut self.of[index], NEVER);
        if self.waiting.last() == Some(&key) {
            self.waiting.pop();
        } else if key != NEVER {
            let place = self.waiting.partition_point(|other| *other > key);
            self.waiting.remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_is_the_least(
            count in 1..3 * NEAR,
            steps in proptest::collection::vec((0..3 * NEAR, proptest::option::of(0u64..50)), 0..400),
        ) {
            let mut resumes = Resumes::new(count);
            let mut plain = vec![None; count];
            for (sequence, (index, at)) in steps.into_iter().enumerate() {
                let index = index % count;
                plain[index] = at.map(|at| (Ps(at), sequence as u64));
                resumes.clear(index);
                if let Some(key) = plain[index] {
                    resumes.set(index, key);
                }
                let keys = plain.iter().zip(0..);
                let least = keys.filter_map(|(key, index)| Some(((*key)?, index))).min();
                prop_assert_eq!(resumes.first(), least);
                prop_assert_eq!(resumes.first_time(), least.map_or(Ps::MAX, |((at, _), _)| at));
            }
        }
    }
}

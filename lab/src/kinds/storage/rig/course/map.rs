//! The random map: which blocks of a file have had their I/O in this pass.

use std::collections::HashMap;

/// Bits that are allocated together.
const CHUNK_BITS: u64 = 1 << 15;

/// One bit a block, allocated where blocks are marked: a drive has a million million blocks of a byte.
pub(super) struct Map {
    bits: u64,
    marked: u64,
    chunks: HashMap<u64, Box<[u64]>>,
}

impl Map {
    pub(super) fn new(bits: u64) -> Self {
        Self { bits, marked: 0, chunks: HashMap::new() }
    }

    pub(super) fn clear(&mut self) {
        self.chunks.clear();
        self.marked = 0;
    }

    pub(super) fn is_marked(&self, bit: u64) -> bool {
        let chunk = self.chunks.get(&(bit / CHUNK_BITS));
        chunk.is_some_and(|words| words[(bit % CHUNK_BITS / 64) as usize] & 1 << (bit % 64) != 0)
    }

    /// Marks up to `count` bits from `first`, up to one that is marked. Returns how many.
    pub(super) fn mark(&mut self, first: u64, count: u64) -> u64 {
        let mut done = 0;
        while done < count && first + done < self.bits && !self.is_marked(first + done) {
            let bit = first + done;
            let empty = || vec![0; (CHUNK_BITS / 64) as usize].into_boxed_slice();
            let words = self.chunks.entry(bit / CHUNK_BITS).or_insert_with(empty);
            words[(bit % CHUNK_BITS / 64) as usize] |= 1 << (bit % 64);
            done += 1;
        }
        self.marked += done;
        done
    }

    /// The first free bit behind `bit`, or from the beginning; none if all are marked.
    pub(super) fn next_free(&self, bit: u64) -> Option<u64> {
        if self.marked >= self.bits {
            return None;
        }
        self.free_from(bit + 1).or_else(|| self.free_from(0))
    }

    fn free_from(&self, mut bit: u64) -> Option<u64> {
        while bit < self.bits {
            let Some(words) = self.chunks.get(&(bit / CHUNK_BITS)) else { return Some(bit) };
            let free = !words[(bit % CHUNK_BITS / 64) as usize] >> (bit % 64);
            if free != 0 {
                let found = bit + u64::from(free.trailing_zeros());
                return (found < self.bits).then_some(found);
            }
            bit = (bit / 64 + 1) * 64;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn runs_end_at_marked_bits_and_at_the_end() {
        let mut map = Map::new(100);
        assert_eq!(map.mark(10, 4), 4);
        assert_eq!(map.mark(8, 4), 2, "up to the marked one");
        assert_eq!(map.mark(98, 4), 2);
        assert_eq!(map.next_free(9), Some(14));
        assert_eq!(map.next_free(99), Some(0));
        map.clear();
        assert!(!map.is_marked(10));
    }

    #[test]
    fn a_map_of_very_many_blocks_takes_no_memory_but_for_those_that_are_marked() {
        let mut maps: Vec<Map> = (0..1000).map(|_| Map::new(u64::MAX)).collect();
        for map in &mut maps {
            assert_eq!(map.mark(1 << 60, 2), 2);
            assert_eq!(map.next_free((1 << 60) - 1), Some((1 << 60) + 2));
        }
    }

    proptest! {
        #[test]
        fn each_bit_is_found_once(bits in 1u64..70_000, start in 0u64..70_000) {
            let mut map = Map::new(bits);
            let mut bit = start % bits;
            for _ in 0..bits.min(3_000) {
                prop_assert_eq!(map.mark(bit, 1), 1);
                bit = match map.next_free(bit) {
                    Some(next) => next,
                    None => break,
                };
            }
            prop_assert_eq!(map.marked, bits.min(3_000));
        }
    }
}

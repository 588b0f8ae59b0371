//! The non-empty buckets of a ring: one bit per bucket, one summary bit per word.

/// Words of bits; the summary is one word too.
const WORDS: usize = 64;

/// A set of ring positions 0 to [`Occupied::LEN`] − 1 with a quick search for the next one.
#[derive(Debug)]
pub(super) struct Occupied {
    words: [u64; WORDS],
    /// Bit w: `words[w]` is not zero.
    summary: u64,
}

impl Occupied {
    /// How many positions there are.
    pub(super) const LEN: usize = WORDS * 64;

    /// The empty set.
    pub(super) const fn new() -> Self {
        Self { words: [0; WORDS], summary: 0 }
    }

    /// Adds `position`.
    pub(super) fn insert(&mut self, position: usize) {
        self.words[position / 64] |= 1 << (position % 64);
        self.summary |= 1 << (position / 64);
    }

    /// Takes `position` out.
    pub(super) fn remove(&mut self, position: usize) {
        let word = &mut self.words[position / 64];
        *word &= !(1 << (position % 64));
        if *word == 0 {
            self.summary &= !(1 << (position / 64));
        }
    }

    /// Distance from `start` to the first set position at or after it, going round the ring.
    pub(super) fn distance_from(&self, start: usize) -> Option<usize> {
        let (first, bit) = (start / 64, start % 64);
        let ahead = self.words[first] >> bit;
        if ahead != 0 {
            return Some(ahead.trailing_zeros() as usize);
        }
        if self.summary == 0 {
            return None;
        }
        // Checks the words after the first in ring order. The first word comes last again, for its bits below `bit`.
        let turned = self.summary.rotate_right(first as u32 + 1);
        let word = (first + 1 + turned.trailing_zeros() as usize) % WORDS;
        let found = word * 64 + self.words[word].trailing_zeros() as usize;
        Some((found + Self::LEN - start) % Self::LEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_empty_ring_has_no_next_position() {
        assert_eq!(Occupied::new().distance_from(17), None);
    }

    proptest! {
        #[test]
        fn the_next_position_is_the_one_a_walk_finds(
            positions in proptest::collection::btree_set(0..Occupied::LEN, 1..20),
            removed in proptest::collection::vec(0..Occupied::LEN, 0..5),
            start in 0..Occupied::LEN,
        ) {
            let mut ring = Occupied::new();
            positions.iter().for_each(|&position| ring.insert(position));
            removed.iter().for_each(|&position| ring.remove(position));
            let holds = |position| positions.contains(&position) && !removed.contains(&position);
            let walked = (0..Occupied::LEN).find(|step| holds((start + step) % Occupied::LEN));
            prop_assert_eq!(ring.distance_from(start), walked);
        }
    }
}

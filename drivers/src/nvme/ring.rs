//! The position in a completion queue.

/// The head of a completion queue and the phase that a new entry there has (Base 3.3.3.2.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cursor {
    pub(super) head: u16,
    pub(super) phase: bool,
}

impl Cursor {
    /// Before the first entry: a zeroed queue's phase bits read 0, the first pass writes 1.
    pub(super) const START: Self = Self { head: 0, phase: true };

    /// The position `count` entries behind this one in a ring of `entries`, which is one pass at most.
    #[inline]
    pub(super) fn after(self, count: u16, entries: u16) -> Self {
        let left = entries - self.head;
        if count < left {
            Self { head: self.head + count, phase: self.phase }
        } else {
            Self { head: count - left, phase: !self.phase }
        }
    }

    /// Both in one word, so that a look without the lock sees a pair that belongs together.
    pub(super) fn to_word(self) -> u64 {
        u64::from(self.head) | u64::from(self.phase) << 16
    }

    pub(super) fn from_word(word: u64) -> Self {
        Self { head: word as u16, phase: word >> 16 & 1 != 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_phase_turns_at_the_end_of_each_pass() {
        let mut cursor = Cursor::START;
        let mut seen = alloc::vec::Vec::new();
        for _ in 0..7 {
            seen.push((cursor.head, cursor.phase));
            cursor = cursor.after(1, 3);
        }
        let t = true;
        assert_eq!(seen, [(0, t), (1, t), (2, t), (0, false), (1, false), (2, false), (0, t)]);
    }

    proptest! {
        #[test]
        fn a_cursor_is_its_count(entries in 2_u16.., strides in prop::collection::vec(any::<u16>(), 0..100)) {
            let mut cursor = Cursor::START;
            let mut steps = 0_u32;
            for stride in strides {
                let stride = stride.min(entries);
                steps += u32::from(stride);
                cursor = cursor.after(stride, entries);
            }
            prop_assert_eq!(u32::from(cursor.head), steps % u32::from(entries));
            prop_assert_eq!(cursor.phase, (steps / u32::from(entries)).is_multiple_of(2));
            prop_assert_eq!(Cursor::from_word(cursor.to_word()), cursor);
        }
    }
}

//! The consumer's side of a ring with a phase bit.

/// A consumer's position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor {
    shift: u8,
    taken: u32,
}

impl Cursor {
    /// At the first of 2^`shift` entries.
    pub(super) fn new(shift: u8) -> Self {
        Self { shift, taken: 0 }
    }

    /// Index of the next entry.
    pub(super) fn index(self) -> usize {
        (self.taken & ((1 << self.shift) - 1)) as usize
    }

    /// The phase that the next entry has when it is new: 1 in the first pass.
    pub(super) fn phase(self) -> bool {
        self.taken >> self.shift & 1 == 0
    }

    /// Past it.
    pub(super) fn advance(&mut self) {
        self.taken = self.taken.wrapping_add(1);
    }

    /// Entries taken, modulo 2^32.
    pub(super) fn taken(self) -> u32 {
        self.taken
    }
}

//! The line of each INTID. Every interrupt reads this table, without a lock.

use alloc::boxed::Box;
use hal::{Hal, Word};
use irq::Irq;
use spec::gic::IntId;

const FREE: u64 = 0;
const TAKEN: u64 = 1;
/// Taken, and masked since.
const MASKED: u64 = 2;
/// Something may still send it: nobody's, and never free again.
const WITHHELD: u64 = 3;
const LINE: u64 = 4;
/// Above the line's number: the core has masked it at this level.
const CLOSED: u64 = 1 << 40;

/// One word for each INTID from `first` on: free, taken, withheld, or [`LINE`] + the line's number, and [`CLOSED`] if it is masked.
pub(super) struct Lines<H: Hal> {
    first: u32,
    words: Box<[H::Word]>,
}

impl<H: Hal> Lines<H> {
    pub(super) fn new(first: u32, count: u32) -> Self {
        Self { first, words: (0..count).map(|_| H::Word::new(FREE)).collect() }
    }

    pub(super) fn count(&self) -> u32 {
        self.words.len() as u32
    }

    fn word(&self, intid: IntId) -> Option<&H::Word> {
        self.words.get(intid.0.checked_sub(self.first)? as usize)
    }

    /// The line of `intid`, if it has one.
    #[inline]
    pub(super) fn find(&self, intid: IntId) -> Option<Irq> {
        let word = self.word(intid)?.get();
        word.checked_sub(LINE).map(|irq| Irq(irq as u32))
    }

    /// Takes `intid`. False when it is already taken or not in this table.
    pub(super) fn take(&self, intid: IntId) -> bool {
        self.word(intid).is_some_and(|word| word.compare_exchange(FREE, TAKEN).is_ok())
    }

    /// Takes the lowest free INTID among `count` from `first` on.
    pub(super) fn take_any(&self, first: IntId, count: u32) -> Option<IntId> {
        (first.0..first.0 + count).map(IntId).find(|&intid| self.take(intid))
    }

    /// Records that the core masks this INTID at this level, or unmasks it. Its line is locked, or it has none yet. A private
    /// line has no lock: what comes between on another CPU stays as that CPU has set it.
    pub(super) fn note_mask(&self, intid: IntId, masked: bool) {
        let Some(word) = self.word(intid) else { return };
        let before = word.get();
        let after = match before {
            TAKEN if masked => MASKED,
            LINE.. if masked => before | CLOSED,
            LINE.. => before & !CLOSED,
            _ => before,
        };
        if after != before {
            _ = word.compare_exchange(before, after);
        }
    }

    /// Whether this INTID has a line that lets interrupts pass at this level.
    pub(super) fn is_open(&self, intid: IntId) -> bool {
        self.word(intid).map(|word| word.get()).is_some_and(|word| word >= LINE && word & CLOSED == 0)
    }

    /// Gives the INTID its line. True when a level nearer the device masks the line, so that this level stays open.
    pub(super) fn set(&self, intid: IntId, irq: Irq) -> bool {
        let Some(word) = self.word(intid) else { return false };
        let before = word.get();
        let closed = if before == MASKED { CLOSED } else { 0 };
        word.set((u64::from(irq.0) + LINE) | closed);
        before == TAKEN
    }

    /// Frees `intid`, unless it is withheld.
    pub(super) fn free(&self, intid: IntId) {
        if let Some(word) = self.word(intid).filter(|word| word.get() != WITHHELD) {
            word.set(FREE);
        }
    }

    /// Keeps `intid` from its next line for good.
    pub(super) fn withhold(&self, intid: IntId) {
        if let Some(word) = self.word(intid) {
            word.set(WITHHELD);
        }
    }
}

//! Interrupts off and back on, and waits.

use crate::{interrupts_off, interrupts_on};
use hal::{AtomicWord, IrqState, Word};

/// Number of looks at a word before the clock is read. Reading the clock costs more than a look.
const LOOKS: u32 = 64;

/// Turns interrupts off on this CPU and returns their former state: [`hal::Hal::irq_save`].
#[inline]
pub fn irq_save() -> IrqState {
    IrqState { were_on: interrupts_off() }
}

/// Restores the state from [`irq_save`]: [`hal::Hal::irq_restore`] for a kernel with nothing else to do there.
#[inline]
pub fn irq_restore(state: IrqState) {
    if state.were_on {
        interrupts_on();
    }
}

/// Looks at `word` for a short while, until it no longer reads `seen`. Returns true when it changed. The caller then
/// checks its deadline, and whether another thread should run: [`hal::Hal::relax_on`] may return early.
#[inline]
pub fn relax_on(word: &AtomicWord, seen: u64) -> bool {
    for _ in 0..LOOKS {
        if word.load() != seen {
            return true;
        }
        core::hint::spin_loop();
    }
    false
}

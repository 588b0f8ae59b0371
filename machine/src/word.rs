//! Words that CPUs and devices share, with their points of the seam.

use crate::current;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A word of simulated memory. One host thread runs a machine, so the host's own ordering plays no part.
#[repr(transparent)]
pub struct Word(AtomicU64);

impl Word {
    /// A store that wakes nobody, for initialisation.
    pub(crate) fn set_quietly(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    /// A read-modify-write by a CPU: others act first, and the line must be free.
    #[inline]
    fn update(&self, change: impl FnOnce(u64) -> u64) -> u64 {
        current::with(|core| core.atomic_point(self));
        let old = self.0.load(Relaxed);
        hal::Word::set(self, change(old));
        old
    }
}

impl hal::Word for Word {
    #[inline]
    fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }
    #[inline]
    fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
    #[inline]
    fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
        current::try_with(|core| core.word_written(self));
    }
    #[inline]
    fn load(&self) -> u64 {
        current::with(crate::core::Core::settle);
        self.0.load(Relaxed)
    }
    #[inline]
    fn swap(&self, value: u64) -> u64 {
        self.update(|_| value)
    }
    #[inline]
    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        current::with(|core| core.atomic_point(self));
        let old = self.0.load(Relaxed);
        if old != current {
            return Err(old);
        }
        hal::Word::set(self, new);
        Ok(old)
    }
    #[inline]
    fn fetch_or(&self, mask: u64) -> u64 {
        self.update(|old| old | mask)
    }
    #[inline]
    fn fetch_and(&self, mask: u64) -> u64 {
        self.update(|old| old & mask)
    }
    #[inline]
    fn fetch_add(&self, value: u64) -> u64 {
        self.update(|old| old.wrapping_add(value))
    }
}

/// `count` zero words, which the host commits only when they are touched.
#[allow(unsafe_code)]
pub(crate) fn zeroed(count: usize) -> Box<[Word]> {
    let plain = vec![0u64; count].into_boxed_slice();
    // SAFETY: `Word` is a transparent `AtomicU64`, which has the size, alignment and validity of `u64`.
    unsafe { Box::from_raw(Box::into_raw(plain) as *mut [Word]) }
}

//! Words that CPUs and devices share.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A word of simulated memory. One host thread runs a machine, so the host's own ordering plays no part.
#[repr(transparent)]
pub struct Word(AtomicU64);

impl Word {
    /// A store that wakes no CPU.
    #[inline]
    pub(crate) fn set_quietly(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    /// The value. Reading it costs nothing and is no point of the seam.
    #[inline]
    pub(crate) fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// A word of this value.
    #[inline]
    pub(crate) fn holding(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }

    /// Its address in the host's memory.
    #[inline]
    pub(crate) fn host_address(&self) -> usize {
        core::ptr::from_ref(self) as usize
    }
}

/// `count` zero words, which the host commits only when they are touched.
#[allow(unsafe_code)]
pub(crate) fn zeroed(count: usize) -> Box<[Word]> {
    let plain = vec![0u64; count].into_boxed_slice();
    // SAFETY: `Word` is a transparent `AtomicU64`, which has the size, alignment and validity of `u64`.
    unsafe { Box::from_raw(Box::into_raw(plain) as *mut [Word]) }
}

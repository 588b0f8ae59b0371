//! Words that CPUs and devices share.

use core::ops::Deref;
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

/// Zero words. The host commits their pages only when they are touched; a general allocator would clear all of them where it
/// uses memory again.
pub(crate) struct Zeroed(memmap2::MmapMut);

impl Zeroed {
    /// `count` of them. None if the host gives no address space for them.
    pub(crate) fn new(count: usize) -> Option<Self> {
        memmap2::MmapMut::map_anon((8 * count).max(1)).ok().map(Self)
    }

    /// Makes the first `bytes` zero again.
    pub(crate) fn clear(&mut self, bytes: usize) {
        self.0[..bytes].fill(0);
    }
}

impl Deref for Zeroed {
    type Target = [Word];

    #[allow(unsafe_code)]
    fn deref(&self) -> &[Word] {
        // SAFETY: the mapping is aligned to pages and lives as long as `self`; `Word` is a transparent `AtomicU64`, which has
        // the size and validity of `u64`, and nobody else accesses the mapping.
        unsafe { core::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len() / 8) }
    }
}

//! Memory-mapped registers.
#![allow(unsafe_code)]

use core::sync::atomic::{Ordering, fence};

/// A window of device memory, mapped one to one for as long as the image runs.
#[derive(Clone, Copy)]
pub(crate) struct Mmio {
    base: usize,
    len_bytes: u32,
}

impl Mmio {
    /// The window of `len_bytes` at `base`.
    pub(crate) const fn new(base: usize, len_bytes: u32) -> Self {
        assert!(len_bytes.is_multiple_of(8), "registers are up to 8 bytes wide");
        Self { base, len_bytes }
    }

    #[inline]
    fn at<T>(self, offset: u32) -> *mut T {
        // Aligned, and the window ends at a multiple of 8 bytes: then it is inside if its first byte is.
        if !(offset < self.len_bytes && offset.is_multiple_of(size_of::<T>() as u32)) {
            outside(offset, self.len_bytes);
        }
        (self.base + offset as usize) as *mut T
    }

    /// Reads a register, which waits for the writes before it.
    #[inline]
    pub(crate) fn read<T: Copy>(self, offset: u32) -> T {
        // SAFETY: inside a window of device memory and aligned, by `at`.
        unsafe { self.at::<T>(offset).read_volatile() }
    }

    /// Writes a register, after every earlier store of this CPU to memory.
    #[inline]
    pub(crate) fn write<T: Copy>(self, offset: u32, value: T) {
        // Devices are outside the inner shareable domain that Rust's fence orders on Arm.
        #[cfg(target_arch = "aarch64")]
        // SAFETY: a barrier.
        unsafe {
            core::arch::asm!("dmb oshst", options(nostack, preserves_flags));
        }
        fence(Ordering::Release);
        // SAFETY: as in `read`.
        unsafe { self.at::<T>(offset).write_volatile(value) }
    }
}

#[cold]
fn outside(offset: u32, len_bytes: u32) -> ! {
    panic!("register {offset:#x} of a window of {len_bytes:#x}")
}

//! Memory-mapped registers.
#![allow(unsafe_code, reason = "registers are reached by volatile accesses to their address")]

use crate::order_stores;
use core::ptr::with_exposed_provenance_mut;
use hal::Regs;

/// A window of memory-mapped registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mmio {
    base: usize,
    len_bytes: u32,
}

impl Mmio {
    /// The window of `len_bytes` at the virtual address `base`.
    ///
    /// # Panics
    /// When `base` or `len_bytes` is no multiple of 8, the width of the widest register.
    ///
    /// # Safety
    /// The window is mapped as device memory for as long as it or a copy of it is used. Rust's own objects lie
    /// elsewhere. An access affects them only in ways that the driver has set up, for example by DMA.
    pub const unsafe fn new(base: usize, len_bytes: u32) -> Self {
        assert!(base.is_multiple_of(8), "a window of registers begins at a multiple of 8 bytes");
        assert!(len_bytes.is_multiple_of(8), "a window of registers is a multiple of 8 bytes long");
        Self { base, len_bytes }
    }

    #[inline]
    fn at<T>(self, offset: u32) -> *mut T {
        // An aligned register that begins inside also ends inside: the window ends at a multiple of 8 bytes.
        if !(offset < self.len_bytes && offset.is_multiple_of(size_of::<T>() as u32)) {
            outside(offset, self.len_bytes);
        }
        with_exposed_provenance_mut(self.base + offset as usize)
    }

    #[inline]
    fn read<T: Copy>(self, offset: u32) -> T {
        // SAFETY: inside the window and aligned, by `at`; `new` asks for the rest.
        unsafe { self.at::<T>(offset).read_volatile() }
    }

    #[inline]
    fn write<T: Copy>(self, offset: u32, value: T) {
        order_stores();
        // SAFETY: as in `read`.
        unsafe { self.at::<T>(offset).write_volatile(value) }
    }
}

impl Regs for Mmio {
    #[inline]
    fn read32(&self, offset: u32) -> u32 {
        self.read(offset)
    }
    #[inline]
    fn write32(&self, offset: u32, value: u32) {
        self.write(offset, value);
    }
    #[inline]
    fn read64(&self, offset: u32) -> u64 {
        self.read(offset)
    }
    #[inline]
    fn write64(&self, offset: u32, value: u64) {
        self.write(offset, value);
    }
    #[inline]
    fn read8(&self, offset: u32) -> u8 {
        self.read(offset)
    }
    #[inline]
    fn write8(&self, offset: u32, value: u8) {
        self.write(offset, value);
    }
    #[inline]
    fn read16(&self, offset: u32) -> u16 {
        self.read(offset)
    }
    #[inline]
    fn write16(&self, offset: u32, value: u16) {
        self.write(offset, value);
    }
}

#[cold]
fn outside(offset: u32, len_bytes: u32) -> ! {
    panic!("no aligned register at {offset:#x} of a window of {len_bytes:#x} bytes")
}

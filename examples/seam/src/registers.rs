//! Registers of this kernel.

use core::sync::atomic::{Ordering, fence};
use hal::Regs;

/// A window of memory-mapped registers.
pub struct MmioRegs {
    base: *mut u8,
    len_bytes: u32,
}

// SAFETY: a window is an address and a length; accesses are volatile, and what they race with is hardware.
#[allow(unsafe_code)]
unsafe impl Send for MmioRegs {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for MmioRegs {}

impl MmioRegs {
    /// The `len_bytes` of registers at `base`.
    ///
    /// # Safety
    /// They are mapped as device memory for as long as the window lives, `base` is aligned to 8 bytes, and nothing
    /// but volatile accesses reaches them.
    #[allow(unsafe_code)]
    pub const unsafe fn new(base: *mut u8, len_bytes: u32) -> Self {
        Self { base, len_bytes }
    }

    fn at<T>(&self, offset: u32) -> *mut T {
        let width = size_of::<T>() as u32;
        let end = offset.checked_add(width);
        assert!(offset.is_multiple_of(width) && end.is_some_and(|end| end <= self.len_bytes), "register {offset:#x}");
        self.base.wrapping_add(offset as usize).cast()
    }

    fn read<T: Copy>(&self, offset: u32) -> T {
        // SAFETY: `at` checked that it is inside the window and aligned; `new` requires the rest.
        #[allow(unsafe_code)]
        unsafe {
            self.at::<T>(offset).read_volatile()
        }
    }

    fn write<T: Copy>(&self, offset: u32, value: T) {
        // Earlier stores first. On x86 that is all; on Arm a kernel issues DMB OSHST, which reaches devices too.
        fence(Ordering::Release);
        // SAFETY: as in `read`.
        #[allow(unsafe_code)]
        unsafe {
            self.at::<T>(offset).write_volatile(value);
        }
    }
}

impl Regs for MmioRegs {
    fn read32(&self, offset: u32) -> u32 {
        self.read(offset)
    }
    fn write32(&self, offset: u32, value: u32) {
        self.write(offset, value);
    }
    fn read64(&self, offset: u32) -> u64 {
        self.read(offset)
    }
    fn write64(&self, offset: u32, value: u64) {
        self.write(offset, value);
    }
    fn read8(&self, offset: u32) -> u8 {
        self.read(offset)
    }
    fn write8(&self, offset: u32, value: u8) {
        self.write(offset, value);
    }
    fn read16(&self, offset: u32) -> u16 {
        self.read(offset)
    }
    fn write16(&self, offset: u32, value: u16) {
        self.write(offset, value);
    }
}

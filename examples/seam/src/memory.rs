//! Words, DMA memory and registers of this kernel.

use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use hal::{DeviceAddress, Dma, DmaError, Regs, Word};

/// A word of memory: each operation is the bare instruction.
#[repr(transparent)]
pub struct SharedWord(AtomicU64);

impl Word for SharedWord {
    fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
    fn set(&self, value: u64) {
        self.0.store(value, Ordering::Release);
    }
    fn load(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
    fn swap(&self, value: u64) -> u64 {
        self.0.swap(value, Ordering::AcqRel)
    }
    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        self.0.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
    }
    fn fetch_or(&self, mask: u64) -> u64 {
        self.0.fetch_or(mask, Ordering::AcqRel)
    }
    fn fetch_and(&self, mask: u64) -> u64 {
        self.0.fetch_and(mask, Ordering::AcqRel)
    }
    fn fetch_add(&self, value: u64) -> u64 {
        self.0.fetch_add(value, Ordering::AcqRel)
    }
}

/// Memory that a device reads and writes. A kernel takes it from its page allocator; here the heap lends it, and a
/// device finds it at its own address.
pub struct Memory {
    words: Vec<SharedWord>,
    /// The part of `words` from the first that is aligned as asked.
    part: Range<usize>,
    len_bytes: usize,
}

impl Memory {
    pub(crate) fn new(len_bytes: usize, align_bytes: usize) -> Result<Self, DmaError> {
        if len_bytes == 0 {
            return Err(DmaError::Empty);
        }
        if !align_bytes.is_power_of_two() {
            return Err(DmaError::Alignment(align_bytes));
        }
        let count = len_bytes.div_ceil(8).saturating_add(align_bytes / 8);
        let mut words = Vec::new();
        words.try_reserve_exact(count).map_err(|_| DmaError::Exhausted(len_bytes))?;
        words.resize_with(count, || SharedWord::new(0));
        let start = words.as_ptr().addr();
        let first = (start.next_multiple_of(align_bytes.max(8)) - start) / 8;
        Ok(Self { words, part: first..first + len_bytes.div_ceil(8), len_bytes })
    }

    /// The word that holds `width_bits` at `offset_bytes`, the shift there, and the mask.
    fn field(&self, offset_bytes: usize, width_bits: u32) -> (&SharedWord, u32, u64) {
        let width_bytes = width_bits as usize / 8;
        assert!(offset_bytes.is_multiple_of(width_bytes), "{width_bits}-bit access at offset {offset_bytes}");
        assert!(offset_bytes + width_bytes <= self.len_bytes, "offset {offset_bytes} of {} bytes", self.len_bytes);
        (&self.words()[offset_bytes / 8], offset_bytes as u32 % 8 * 8, (1 << width_bits) - 1)
    }

    fn read(&self, offset_bytes: usize, width_bits: u32) -> u64 {
        let (word, shift, mask) = self.field(offset_bytes, width_bits);
        word.get() >> shift & mask
    }

    /// The neighbours in the word may be a device's: they are kept by a compare-exchange.
    fn write(&self, offset_bytes: usize, width_bits: u32, value: u64) {
        let (word, shift, mask) = self.field(offset_bytes, width_bits);
        let mut seen = word.get();
        while let Err(now) = word.compare_exchange(seen, seen & !(mask << shift) | value << shift) {
            seen = now;
        }
    }
}

impl Dma for Memory {
    type Word = SharedWord;

    fn len_bytes(&self) -> usize {
        self.len_bytes
    }
    fn device_address(&self) -> DeviceAddress {
        DeviceAddress(self.words().as_ptr().addr() as u64)
    }
    fn words(&self) -> &[SharedWord] {
        &self.words[self.part.clone()]
    }
    fn read8(&self, offset_bytes: usize) -> u8 {
        self.read(offset_bytes, 8) as u8
    }
    fn read16(&self, offset_bytes: usize) -> u16 {
        self.read(offset_bytes, 16) as u16
    }
    fn read32(&self, offset_bytes: usize) -> u32 {
        self.read(offset_bytes, 32) as u32
    }
    fn write8(&self, offset_bytes: usize, value: u8) {
        self.write(offset_bytes, 8, value.into());
    }
    fn write16(&self, offset_bytes: usize, value: u16) {
        self.write(offset_bytes, 16, value.into());
    }
    fn write32(&self, offset_bytes: usize, value: u32) {
        self.write(offset_bytes, 32, value.into());
    }
}

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
        // Earlier stores first: DMB OSHST on Arm, nothing on x86.
        core::sync::atomic::fence(Ordering::Release);
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

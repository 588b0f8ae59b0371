//! Words and DMA memory for worlds where devices use the CPU's addresses: a host, or a kernel whose devices find all
//! memory at its own address.

use crate::{DeviceAddress, Dma, DmaError, Word};
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

/// A word of memory: each operation is the bare instruction.
#[repr(transparent)]
#[derive(Debug)]
pub struct AtomicWord(AtomicU64);

impl Word for AtomicWord {
    #[inline]
    fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }
    #[inline]
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
    #[inline]
    fn set(&self, value: u64) {
        self.0.store(value, Ordering::Release);
    }
    #[inline]
    fn load(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
    #[inline]
    fn swap(&self, value: u64) -> u64 {
        full_barrier(self.0.swap(value, Ordering::AcqRel))
    }
    #[inline]
    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        full_barrier(self.0.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire))
    }
    #[inline]
    fn fetch_or(&self, mask: u64) -> u64 {
        full_barrier(self.0.fetch_or(mask, Ordering::AcqRel))
    }
    #[inline]
    fn fetch_and(&self, mask: u64) -> u64 {
        full_barrier(self.0.fetch_and(mask, Ordering::AcqRel))
    }
    #[inline]
    fn fetch_add(&self, value: u64) -> u64 {
        full_barrier(self.0.fetch_add(value, Ordering::AcqRel))
    }
}

/// Completes an operation that reads and writes: behind its store, later loads wait. On x86_64 its instruction does so by
/// itself; on aarch64 without LSE it is a pair of exclusive accesses, whose store a later plain load may pass.
#[inline]
fn full_barrier<T>(old: T) -> T {
    #[cfg(not(target_arch = "x86_64"))]
    core::sync::atomic::fence(Ordering::SeqCst);
    old
}

/// Memory from the global allocator. A device uses the same address as the CPU.
#[derive(Debug)]
pub struct HeapDma {
    /// Larger than requested: the buffer begins at the first aligned word.
    words: Vec<AtomicWord>,
    part: Range<usize>,
    len_bytes: usize,
}

impl HeapDma {
    /// Zeroed memory of `len_bytes`, aligned to `align_bytes`.
    ///
    /// # Errors
    /// As [`crate::Hal::dma_alloc`].
    pub fn new(len_bytes: usize, align_bytes: usize) -> Result<Self, DmaError> {
        if len_bytes == 0 {
            return Err(DmaError::Empty);
        }
        if !align_bytes.is_power_of_two() {
            return Err(DmaError::Alignment(align_bytes));
        }
        let mut words = Vec::new();
        let count = len_bytes.div_ceil(8).saturating_add(align_bytes / 8);
        words.try_reserve_exact(count).map_err(|_| DmaError::Exhausted(len_bytes))?;
        words.resize_with(count, || AtomicWord::new(0));
        let start = words.as_ptr().addr();
        let first = (start.next_multiple_of(align_bytes.max(8)) - start) / 8;
        Ok(Self { words, part: first..first + len_bytes.div_ceil(8), len_bytes })
    }

    /// The word that holds `width_bits` at `offset_bytes`, the shift there, and the mask.
    fn field(&self, offset_bytes: usize, width_bits: u32) -> (&AtomicWord, u32, u64) {
        let width_bytes = width_bits as usize / 8;
        assert!(offset_bytes.is_multiple_of(width_bytes), "{width_bits}-bit access at offset {offset_bytes}");
        assert!(offset_bytes + width_bytes <= self.len_bytes, "offset {offset_bytes} of {} bytes", self.len_bytes);
        (&self.words()[offset_bytes / 8], (offset_bytes as u32 % 8) * 8, (1 << width_bits) - 1)
    }

    fn read(&self, offset_bytes: usize, width_bits: u32) -> u64 {
        let (word, shift, mask) = self.field(offset_bytes, width_bits);
        (word.get() >> shift) & mask
    }

    /// A compare-exchange, because another agent may write the rest of the word.
    fn write(&self, offset_bytes: usize, width_bits: u32, value: u64) {
        let (word, shift, mask) = self.field(offset_bytes, width_bits);
        let mut old = word.get();
        while let Err(now) = word.compare_exchange(old, (old & !(mask << shift)) | (value << shift)) {
            old = now;
        }
    }
}

impl Dma for HeapDma {
    type Word = AtomicWord;

    fn len_bytes(&self) -> usize {
        self.len_bytes
    }
    fn device_address(&self) -> DeviceAddress {
        DeviceAddress(self.words().as_ptr().addr() as u64)
    }
    #[inline]
    fn words(&self) -> &[AtomicWord] {
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

#[cfg(any(all(target_arch = "x86_64", not(miri)), feature = "host"))]
impl crate::DmaExchange128 for HeapDma {
    fn compare_exchange_128(&self, offset_bytes: usize, current: u128, new: u128) -> Result<u128, u128> {
        assert!(offset_bytes.is_multiple_of(16), "128-bit access at offset {offset_bytes}");
        let pair: &[AtomicWord; 2] = self.words()[offset_bytes / 8..][..2].try_into().expect("two words");
        let seen = exchange_128(pair, current, new);
        if seen == current { Ok(seen) } else { Err(seen) }
    }
}

/// Reads `pair`, and stores `new` if it equals `current`. Returns the value read.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[allow(unsafe_code)]
fn exchange_128(pair: &[AtomicWord; 2], current: u128, new: u128) -> u128 {
    // CPUID.01H:ECX.CMPXCHG16B (Intel SDM vol. 2).
    assert!(core::arch::x86_64::__cpuid(1).ecx & 1 << 13 != 0, "this CPU has no 128-bit compare-exchange");
    let address = pair.as_ptr();
    assert!(address.addr().is_multiple_of(16), "128-bit compare-exchange in a buffer that is not aligned to 16 bytes");
    let (mut low, mut high) = (current as u64, (current >> 64) as u64);
    // SAFETY: the CPU has the instruction; `address` is 16 aligned bytes of live atomics; the code restores rbx, which
    // the compiler reserves.
    unsafe {
        core::arch::asm!(
            "xchg rbx, rsi",
            "lock cmpxchg16b [rdi]",
            "mov rbx, rsi",
            in("rdi") address,
            inout("rsi") new as u64 => _,
            in("rcx") (new >> 64) as u64,
            inout("rax") low,
            inout("rdx") high,
            options(nostack),
        );
    }
    u128::from(low) | u128::from(high) << 64
}

/// On other CPUs, and under Miri, which runs no assembly, the two words change under one lock. Other exchanges see one
/// access, plain readers may see two.
#[cfg(all(any(not(target_arch = "x86_64"), miri), feature = "host"))]
fn exchange_128(pair: &[AtomicWord; 2], current: u128, new: u128) -> u128 {
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let seen = u128::from(pair[0].load()) | u128::from(pair[1].load()) << 64;
    if seen == current {
        pair[0].set(new as u64);
        pair[1].set((new >> 64) as u64);
    }
    seen
}

//! Words, DMA buffers and registers of the host.

use crate::{DeviceAddress, Dma, DmaError, DmaExchange128, Regs, Word};
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// A word of host memory: each operation is the bare instruction.
#[repr(transparent)]
pub struct HostWord(AtomicU64);

impl Word for HostWord {
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
        self.0.swap(value, Ordering::AcqRel)
    }
    #[inline]
    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        self.0.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
    }
    #[inline]
    fn fetch_or(&self, mask: u64) -> u64 {
        self.0.fetch_or(mask, Ordering::AcqRel)
    }
    #[inline]
    fn fetch_and(&self, mask: u64) -> u64 {
        self.0.fetch_and(mask, Ordering::AcqRel)
    }
    #[inline]
    fn fetch_add(&self, value: u64) -> u64 {
        self.0.fetch_add(value, Ordering::AcqRel)
    }
}

/// Registers that the test supplies.
#[derive(Clone)]
pub struct HostRegs(Arc<dyn Regs>);

impl HostRegs {
    /// A window onto `registers`.
    pub fn new(registers: Arc<dyn Regs>) -> Self {
        Self(registers)
    }
}

impl Regs for HostRegs {
    fn read32(&self, offset: u32) -> u32 {
        self.0.read32(offset)
    }
    fn write32(&self, offset: u32, value: u32) {
        self.0.write32(offset, value);
    }
    fn read64(&self, offset: u32) -> u64 {
        self.0.read64(offset)
    }
    fn write64(&self, offset: u32, value: u64) {
        self.0.write64(offset, value);
    }
    fn read8(&self, offset: u32) -> u8 {
        self.0.read8(offset)
    }
    fn write8(&self, offset: u32, value: u8) {
        self.0.write8(offset, value);
    }
    fn read16(&self, offset: u32) -> u16 {
        self.0.read16(offset)
    }
    fn write16(&self, offset: u32, value: u16) {
        self.0.write16(offset, value);
    }
}

struct Buffer {
    /// More than asked for: the buffer is the part from the first aligned word.
    words: Vec<HostWord>,
    part: Range<usize>,
    len_bytes: usize,
    address: DeviceAddress,
}

/// A DMA buffer in host memory; clones share it. Its device address is given out in order, not the host's own.
#[derive(Clone)]
pub struct HostDma(Arc<Buffer>);

impl HostDma {
    /// The value of `width_bits` at `offset_bytes`, and the word and shift that hold it.
    fn part(&self, offset_bytes: usize, width_bits: u32) -> (&HostWord, u32, u64) {
        let width_bytes = width_bits as usize / 8;
        assert!(offset_bytes.is_multiple_of(width_bytes), "{width_bits}-bit access at offset {offset_bytes}");
        assert!(offset_bytes + width_bytes <= self.0.len_bytes, "offset {offset_bytes} of {} bytes", self.0.len_bytes);
        (&self.words()[offset_bytes / 8], (offset_bytes as u32 % 8) * 8, (1 << width_bits) - 1)
    }

    fn read(&self, offset_bytes: usize, width_bits: u32) -> u64 {
        let (word, shift, mask) = self.part(offset_bytes, width_bits);
        (word.get() >> shift) & mask
    }

    fn write(&self, offset_bytes: usize, width_bits: u32, value: u64) {
        let (word, shift, mask) = self.part(offset_bytes, width_bits);
        let mut old = word.get();
        while let Err(now) = word.compare_exchange(old, (old & !(mask << shift)) | (value << shift)) {
            old = now;
        }
    }
}

impl Dma for HostDma {
    type Word = HostWord;

    fn len_bytes(&self) -> usize {
        self.0.len_bytes
    }
    fn device_address(&self) -> DeviceAddress {
        self.0.address
    }
    #[inline]
    fn words(&self) -> &[HostWord] {
        &self.0.words[self.0.part.clone()]
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

impl DmaExchange128 for HostDma {
    fn compare_exchange_128(&self, offset_bytes: usize, current: u128, new: u128) -> Result<u128, u128> {
        assert!(offset_bytes.is_multiple_of(16), "128-bit access at offset {offset_bytes}");
        let pair: &[HostWord; 2] = self.words()[offset_bytes / 8..][..2].try_into().expect("two words");
        let seen = exchange_128(pair, current, new);
        if seen == current { Ok(seen) } else { Err(seen) }
    }
}

/// What `pair` reads; `new` is stored when that is `current`.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
fn exchange_128(pair: &[HostWord; 2], current: u128, new: u128) -> u128 {
    assert!(std::is_x86_feature_detected!("cmpxchg16b"), "this CPU has no 128-bit compare-exchange");
    let address = pair.as_ptr();
    assert!(address.addr().is_multiple_of(16), "128-bit compare-exchange in a buffer that is not aligned to 16 bytes");
    let (mut low, mut high) = (current as u64, (current >> 64) as u64);
    // SAFETY: the CPU has the instruction; `address` is 16 aligned bytes of live atomics; rbx, which the compiler
    // keeps for itself, is put back.
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

/// Elsewhere the two words change under one lock: other exchanges see one access, plain readers may see two.
#[cfg(not(target_arch = "x86_64"))]
fn exchange_128(pair: &[HostWord; 2], current: u128, new: u128) -> u128 {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let seen = u128::from(pair[0].load()) | u128::from(pair[1].load()) << 64;
    if seen == current {
        pair[0].set(new as u64);
        pair[1].set((new >> 64) as u64);
    }
    seen
}

/// Every live buffer by device address.
#[derive(Default)]
pub(super) struct Memory(Mutex<Map>);

struct Map {
    next: u64,
    buffers: BTreeMap<u64, Weak<Buffer>>,
}

impl Default for Map {
    fn default() -> Self {
        // Above 4 GiB, so that a driver that drops the upper half of an address is found out.
        Self { next: 0x1_0000_0000, buffers: BTreeMap::new() }
    }
}

impl Memory {
    pub(super) fn alloc(&self, len_bytes: usize, align_bytes: usize) -> Result<HostDma, DmaError> {
        if len_bytes == 0 {
            return Err(DmaError::Empty);
        }
        if !align_bytes.is_power_of_two() {
            return Err(DmaError::Alignment(align_bytes));
        }
        let mut words = Vec::new();
        let count = len_bytes.div_ceil(8).saturating_add(align_bytes / 8);
        words.try_reserve_exact(count).map_err(|_| DmaError::Exhausted(len_bytes))?;
        words.resize_with(count, || HostWord::new(0));
        let first = (words.as_ptr().addr().next_multiple_of(align_bytes.max(8)) - words.as_ptr().addr()) / 8;
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let address = map.next.next_multiple_of(align_bytes.max(8) as u64);
        map.next = address + len_bytes as u64;
        let buffer = Arc::new(Buffer {
            words,
            part: first..first + len_bytes.div_ceil(8),
            len_bytes,
            address: DeviceAddress(address),
        });
        map.buffers.retain(|_, buffer| buffer.strong_count() > 0);
        map.buffers.insert(address, Arc::downgrade(&buffer));
        Ok(HostDma(buffer))
    }

    pub(super) fn at(&self, address: DeviceAddress) -> Option<HostDma> {
        let map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (&start, buffer) = map.buffers.range(..=address.0).next_back()?;
        let buffer = buffer.upgrade()?;
        (address.0 - start < buffer.len_bytes as u64).then_some(HostDma(buffer))
    }
}

//! Words, DMA buffers and registers of the host.

use crate::heap::HeapDma;
use crate::{AtomicWord, DeviceAddress, Dma, DmaError, DmaExchange128, Regs};
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use std::sync::{Mutex, PoisonError};

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
    memory: HeapDma,
    address: DeviceAddress,
}

/// A DMA buffer in host memory; clones share it. Device addresses are assigned in order and differ from the host's.
#[derive(Clone)]
pub struct HostDma(Arc<Buffer>);

impl Dma for HostDma {
    type Word = AtomicWord;

    fn len_bytes(&self) -> usize {
        self.0.memory.len_bytes()
    }
    fn device_address(&self) -> DeviceAddress {
        self.0.address
    }
    #[inline]
    fn words(&self) -> &[AtomicWord] {
        self.0.memory.words()
    }
    fn read8(&self, offset_bytes: usize) -> u8 {
        self.0.memory.read8(offset_bytes)
    }
    fn read16(&self, offset_bytes: usize) -> u16 {
        self.0.memory.read16(offset_bytes)
    }
    fn read32(&self, offset_bytes: usize) -> u32 {
        self.0.memory.read32(offset_bytes)
    }
    fn write8(&self, offset_bytes: usize, value: u8) {
        self.0.memory.write8(offset_bytes, value);
    }
    fn write16(&self, offset_bytes: usize, value: u16) {
        self.0.memory.write16(offset_bytes, value);
    }
    fn write32(&self, offset_bytes: usize, value: u32) {
        self.0.memory.write32(offset_bytes, value);
    }
}

impl DmaExchange128 for HostDma {
    fn compare_exchange_128(&self, offset_bytes: usize, current: u128, new: u128) -> Result<u128, u128> {
        self.0.memory.compare_exchange_128(offset_bytes, current, new)
    }
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
        // Above 4 GiB, so that tests detect a driver that drops the upper half of an address.
        Self { next: 0x1_0000_0000, buffers: BTreeMap::new() }
    }
}

impl Memory {
    pub(super) fn alloc(&self, len_bytes: usize, align_bytes: usize) -> Result<HostDma, DmaError> {
        let memory = HeapDma::new(len_bytes, align_bytes)?;
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let address = map.next.next_multiple_of(align_bytes.max(8) as u64);
        map.next = address + len_bytes as u64;
        let buffer = Arc::new(Buffer { memory, address: DeviceAddress(address) });
        map.buffers.retain(|_, buffer| buffer.strong_count() > 0);
        map.buffers.insert(address, Arc::downgrade(&buffer));
        Ok(HostDma(buffer))
    }

    pub(super) fn at(&self, address: DeviceAddress) -> Option<HostDma> {
        let map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (&start, buffer) = map.buffers.range(..=address.0).next_back()?;
        let buffer = buffer.upgrade()?;
        (address.0 - start < buffer.memory.len_bytes() as u64).then_some(HostDma(buffer))
    }
}

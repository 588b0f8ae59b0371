//! Windows of plain memory that remember their writes.

use hal::Regs;
use hal::host::HostRegs;
use std::sync::{Arc, Mutex};

/// One write: offset, bytes, value.
pub(super) type Write = (u32, u32, u64);

/// A window.
pub(super) struct Ram(Mutex<(Vec<u8>, Vec<Write>)>);

impl Ram {
    pub(super) fn new(bytes: Vec<u8>) -> Arc<Self> {
        Arc::new(Self(Mutex::new((bytes, Vec::new()))))
    }

    pub(super) fn window(self: &Arc<Self>) -> HostRegs {
        HostRegs::new(self.clone())
    }

    /// So many bytes at `offset`; 0 where there is no memory.
    pub(super) fn get(&self, offset: u32, bytes: u32) -> u64 {
        let guard = self.0.lock().expect("no trial panics with it");
        let byte = |at: u32| guard.0.get(at as usize).copied().map_or(0, u64::from);
        (0..bytes).rev().fold(0, |value, at| value << 8 | byte(offset.wrapping_add(at)))
    }

    pub(super) fn set(&self, offset: u32, bytes: u32, value: u64) {
        let mut guard = self.0.lock().expect("no trial panics with it");
        for at in 0..bytes {
            if let Some(byte) = guard.0.get_mut(offset.wrapping_add(at) as usize) {
                *byte = (value >> (8 * at)) as u8;
            }
        }
    }

    fn write(&self, offset: u32, bytes: u32, value: u64) {
        self.set(offset, bytes, value);
        self.0.lock().expect("no trial panics with it").1.push((offset, bytes, value));
    }

    /// The writes since the last call.
    pub(super) fn writes(&self) -> Vec<Write> {
        std::mem::take(&mut self.0.lock().expect("no trial panics with it").1)
    }

    /// All of it.
    pub(super) fn bytes(&self) -> Vec<u8> {
        self.0.lock().expect("no trial panics with it").0.clone()
    }
}

impl Regs for Ram {
    fn read8(&self, offset: u32) -> u8 {
        self.get(offset, 1) as u8
    }
    fn read16(&self, offset: u32) -> u16 {
        self.get(offset, 2) as u16
    }
    fn read32(&self, offset: u32) -> u32 {
        self.get(offset, 4) as u32
    }
    fn read64(&self, offset: u32) -> u64 {
        self.get(offset, 8)
    }
    fn write8(&self, offset: u32, value: u8) {
        self.write(offset, 1, value.into());
    }
    fn write16(&self, offset: u32, value: u16) {
        self.write(offset, 2, value.into());
    }
    fn write32(&self, offset: u32, value: u32) {
        self.write(offset, 4, value.into());
    }
    fn write64(&self, offset: u32, value: u64) {
        self.write(offset, 8, value);
    }
}

//! A register window for unit tests. It gives scripted answers and logs writes.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use hal::Regs;
use hal::host::HostRegs;
use std::sync::Mutex;

/// One write: offset, width in bits, value.
pub(crate) type Write = (u32, u32, u64);

#[derive(Default)]
pub(crate) struct Script {
    answers: Mutex<BTreeMap<u32, VecDeque<u64>>>,
    writes: Mutex<Vec<Write>>,
}

impl Script {
    pub(crate) fn new() -> (Arc<Self>, HostRegs) {
        let script = Arc::new(Self::default());
        (script.clone(), HostRegs::new(script))
    }

    /// Reads of `offset` give these, one after the other; the last one for ever. Untold registers read 0.
    pub(crate) fn answer(&self, offset: u32, values: &[u64]) {
        self.answers.lock().unwrap().insert(offset, values.iter().copied().collect());
    }

    /// The writes since the last call.
    pub(crate) fn writes(&self) -> Vec<Write> {
        core::mem::take(&mut self.writes.lock().unwrap())
    }

    fn read(&self, offset: u32) -> u64 {
        let mut answers = self.answers.lock().unwrap();
        let Some(values) = answers.get_mut(&offset) else { return 0 };
        if values.len() > 1 { values.pop_front().unwrap() } else { values[0] }
    }
}

impl Regs for Script {
    fn read8(&self, offset: u32) -> u8 {
        self.read(offset) as u8
    }
    fn write8(&self, offset: u32, value: u8) {
        self.writes.lock().unwrap().push((offset, 8, u64::from(value)));
    }
    fn read16(&self, offset: u32) -> u16 {
        self.read(offset) as u16
    }
    fn write16(&self, offset: u32, value: u16) {
        self.writes.lock().unwrap().push((offset, 16, u64::from(value)));
    }
    fn read32(&self, offset: u32) -> u32 {
        self.read(offset) as u32
    }
    fn write32(&self, offset: u32, value: u32) {
        self.writes.lock().unwrap().push((offset, 32, u64::from(value)));
    }
    fn read64(&self, offset: u32) -> u64 {
        self.read(offset)
    }
    fn write64(&self, offset: u32, value: u64) {
        self.writes.lock().unwrap().push((offset, 64, value));
    }
}

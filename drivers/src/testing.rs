//! A register window for unit tests. It gives scripted answers and logs writes.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use hal::Regs;
use hal::host::HostRegs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// One write: offset, width in bits, value.
pub(crate) type Write = (u32, u32, u64);

#[derive(Default)]
pub(crate) struct Script {
    answers: Mutex<BTreeMap<u32, VecDeque<u64>>>,
    writes: Mutex<Vec<Write>>,
    is_pushed: AtomicBool,
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

    /// True if a read followed the last write.
    pub(crate) fn is_pushed(&self) -> bool {
        self.is_pushed.load(Relaxed)
    }

    fn write(&self, offset: u32, bits: u32, value: u64) {
        self.is_pushed.store(false, Relaxed);
        self.writes.lock().unwrap().push((offset, bits, value));
    }

    fn read(&self, offset: u32) -> u64 {
        self.is_pushed.store(true, Relaxed);
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
        self.write(offset, 8, value.into());
    }
    fn read16(&self, offset: u32) -> u16 {
        self.read(offset) as u16
    }
    fn write16(&self, offset: u32, value: u16) {
        self.write(offset, 16, value.into());
    }
    fn read32(&self, offset: u32) -> u32 {
        self.read(offset) as u32
    }
    fn write32(&self, offset: u32, value: u32) {
        self.write(offset, 32, value.into());
    }
    fn read64(&self, offset: u32) -> u64 {
        self.read(offset)
    }
    fn write64(&self, offset: u32, value: u64) {
        self.write(offset, 64, value);
    }
}

//! An NVMe controller that answers the commands of its admin queue at once, and remembers them (Base 3.1, 3.3, 5).

use hal::host::{HostHal, HostRegs};
use hal::{DeviceAddress, Dma as _, Regs, Word as _};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Registers (Base 3.1.3).
const CAP: u32 = 0x00;
const CC: u32 = 0x14;
const CSTS: u32 = 0x1c;
const AQA: u32 = 0x24;
const ASQ: u32 = 0x28;
const ACQ: u32 = 0x30;
const DOORBELLS: u32 = 0x1000;

/// A command as it was given: opcode, namespace, and dwords 10 and 11.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Asked {
    pub(super) opcode: u8,
    pub(super) nsid: u32,
    pub(super) dwords: [u32; 2],
}

#[derive(Default)]
struct State {
    regs: BTreeMap<u32, u32>,
    head: u32,
    tail: u32,
    completed: u32,
    asked: Vec<Asked>,
    features: BTreeMap<(u32, u32), u32>,
}

/// The controller.
pub(super) struct Answers {
    hal: HostHal,
    /// CAP.
    pub(super) cap: u64,
    /// What it says of itself and of its namespace.
    pub(super) identify: [Vec<u8>; 2],
    /// What it grants when it is asked for queues.
    pub(super) queues: u32,
    state: Mutex<State>,
}

impl Answers {
    pub(super) fn new(hal: HostHal, cap: u64, identify: [Vec<u8>; 2], queues: u32) -> Arc<Self> {
        Arc::new(Self { hal, cap, identify, queues, state: Mutex::default() })
    }

    pub(super) fn window(self: &Arc<Self>) -> HostRegs {
        HostRegs::new(self.clone())
    }

    /// The commands since the last call.
    pub(super) fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.state.lock().expect("one thread").asked)
    }

    /// A register as it was written.
    pub(super) fn written(&self, offset: u32) -> u32 {
        self.state.lock().expect("one thread").regs.get(&offset).copied().unwrap_or(0)
    }

    /// CC.
    pub(super) fn cc(&self) -> u32 {
        self.written(CC)
    }

    fn long(state: &State, offset: u32) -> u64 {
        let half = |at: u32| u64::from(state.regs.get(&at).copied().unwrap_or(0));
        half(offset) | half(offset + 4) << 32
    }

    /// The 64-bit words of memory of devices at `address`.
    fn words(&self, address: u64, count: usize, mut each: impl FnMut(usize, &<HostHal as hal::Hal>::Word)) {
        let dma = self.hal.dma_at(DeviceAddress(address)).expect("memory for devices");
        let first = (address - dma.device_address().0) as usize / 8;
        dma.words()[first..first + count].iter().enumerate().for_each(|(index, word)| each(index, word));
    }

    /// Serves the commands up to the tail.
    fn serve(&self, state: &mut State) {
        let aqa = state.regs.get(&AQA).copied().unwrap_or(0);
        let (sq_entries, cq_entries) = ((aqa & 0xfff) + 1, (aqa >> 16 & 0xfff) + 1);
        while state.head != state.tail {
            let mut words = [0; 8];
            self.words(Self::long(state, ASQ) + u64::from(state.head) * 64, 8, |index, word| words[index] = word.get());
            state.head = (state.head + 1) % sq_entries;
            let dw0 = self.answer(state, &words);
            let (slot, pass) = (state.completed % cq_entries, state.completed / cq_entries);
            state.completed += 1;
            let phase = u64::from(pass.is_multiple_of(2));
            let end = u64::from(state.head) | (words[0] >> 16 & 0xffff) << 32 | phase << 48;
            let entry = [dw0.into(), end];
            self.words(Self::long(state, ACQ) + u64::from(slot) * 16, 2, |index, word| word.set(entry[index]));
        }
    }

    fn answer(&self, state: &mut State, words: &[u64; 8]) -> u32 {
        let (opcode, nsid) = (words[0] as u8, (words[0] >> 32) as u32);
        let dwords = [words[5] as u32, (words[5] >> 32) as u32];
        state.asked.push(Asked { opcode, nsid, dwords });
        let feature = dwords[0] & 0xff;
        // Feature 09h has a part for each vector.
        let key = (feature, if feature == 9 { dwords[1] & 0xffff } else { 0 });
        match opcode {
            0x06 => {
                let data = &self.identify[usize::from(dwords[0] & 0xff == 0)];
                let word = |index: usize| {
                    data[8 * index..][..8].iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
                };
                self.words(words[3], 512, |index, into| into.set(word(index)));
                0
            }
            0x09 if feature == 7 => self.queues,
            0x09 => {
                state.features.insert(key, dwords[1]);
                0
            }
            0x0a => state.features.get(&key).copied().unwrap_or(key.1),
            _ => 0,
        }
    }

    fn read(&self, offset: u32) -> u32 {
        let state = self.state.lock().expect("one thread");
        match offset {
            CAP => self.cap as u32,
            _ if offset == CAP + 4 => (self.cap >> 32) as u32,
            // Ready when enabled; a shutdown is complete at once.
            CSTS => {
                let cc = state.regs.get(&CC).copied().unwrap_or(0);
                cc & 1 | u32::from(cc >> 14 & 3 != 0) << 3
            }
            _ => state.regs.get(&offset).copied().unwrap_or(0),
        }
    }

    fn write(&self, offset: u32, value: u32) {
        let mut state = self.state.lock().expect("one thread");
        state.regs.insert(offset, value);
        match offset {
            CC if value & 1 == 0 => (state.head, state.tail, state.completed) = (0, 0, 0),
            DOORBELLS => {
                state.tail = value;
                self.serve(&mut state);
            }
            _ => {}
        }
    }
}

impl Regs for Answers {
    fn read32(&self, offset: u32) -> u32 {
        self.read(offset)
    }
    fn write32(&self, offset: u32, value: u32) {
        self.write(offset, value);
    }
    fn read64(&self, offset: u32) -> u64 {
        u64::from(self.read(offset)) | u64::from(self.read(offset + 4)) << 32
    }
    fn write64(&self, offset: u32, value: u64) {
        self.write(offset, value as u32);
        self.write(offset + 4, (value >> 32) as u32);
    }
}

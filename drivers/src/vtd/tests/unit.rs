//! A unit for the driver's own tests.

use alloc::sync::Arc;
use alloc::vec::Vec;
use hal::host::{HostHal, HostRegs};
use hal::{DeviceAddress, Dma, Regs, Word};
use std::sync::Mutex;

/// The least of a unit that the driver's set-up and queue can run against: registers by their offsets, status follows
/// command, descriptors by their words. What the unit then does with entries is not in it.
pub(super) struct Unit {
    hal: HostHal,
    capability: u64,
    extended: u64,
    pub(super) state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) status: u32,
    /// Features that a command turns on, but no longer off.
    pub(super) stuck: u32,
    pub(super) commands: Vec<u32>,
    pub(super) queue: u64,
    head: u64,
    tail: u64,
    pub(super) table: u64,
    pub(super) faults: u32,
    /// What the queue does when its tail moves next.
    pub(super) trouble: Option<Trouble>,
    pub(super) invalidated: Vec<u64>,
    pub(super) records: [[u64; 2]; 2],
    pub(super) event: Vec<(u32, u32)>,
    /// FECTL with IM inverted: an event is masked at reset.
    event_control: u32,
    /// How many of them a read has pushed.
    pub(super) pushed: usize,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Trouble {
    Refuse,
    RefuseWait,
    DeviceSilent,
    Dead,
}

pub(super) const POSTING: u64 = 1 << 59;
/// Two fault records at 0x220.
const RECORDS: u64 = 1 << 40 | 0x22 << 24;
/// QI, IR, EIM.
pub(super) const EXTENDED: u64 = 0x1a;

impl Unit {
    pub(super) fn new(hal: HostHal, capability: u64, extended: u64) -> (Arc<Self>, HostRegs) {
        let unit = Arc::new(Self { hal, capability: capability | RECORDS, extended, state: Mutex::default() });
        (unit.clone(), HostRegs::new(unit))
    }

    fn word(&self, address: u64) -> u64 {
        let memory = self.hal.dma_at(DeviceAddress(address)).expect("the unit reads memory that was given to it");
        memory.words()[(address - memory.device_address().0) as usize / 8].get()
    }

    /// An entry of the table as the unit would read it.
    pub(super) fn entry(&self, index: u64) -> [u64; 2] {
        let table = self.state.lock().unwrap().table & !0xfff;
        [self.word(table + index * 16), self.word(table + index * 16 + 8)]
    }

    /// The trouble is over, and the queue runs on.
    pub(super) fn recover(&self) {
        let mut state = self.state.lock().unwrap();
        state.trouble = None;
        let tail = state.tail;
        self.run_queue(&mut state, tail);
    }

    fn run_queue(&self, state: &mut State, tail: u64) {
        while state.head != tail {
            let at = (state.queue & !0xfff) + state.head;
            let descriptor = [self.word(at), self.word(at + 8)];
            if state.faults & 0x10 != 0 {
                return;
            }
            match (state.trouble.take(), descriptor[0] & 0xf) {
                (Some(Trouble::Dead), _) => return state.trouble = Some(Trouble::Dead),
                (Some(Trouble::RefuseWait), 4) => {
                    state.trouble = Some(Trouble::RefuseWait);
                    state.invalidated.push(descriptor[0]);
                }
                (Some(Trouble::Refuse | Trouble::RefuseWait), _) => return state.faults |= 0x10,
                (Some(Trouble::DeviceSilent), _) => {
                    state.faults |= 0x40;
                    return state.head = tail;
                }
                (None, 4) => state.invalidated.push(descriptor[0]),
                (None, 5) if descriptor[0] & 0x20 != 0 => {
                    let memory = self.hal.dma_at(DeviceAddress(descriptor[1])).expect("status address");
                    memory.write32((descriptor[1] - memory.device_address().0) as usize, (descriptor[0] >> 32) as u32);
                }
                (None, 5) => (),
                (None, kind) => panic!("descriptor type {kind}"),
            }
            state.head = (state.head + 16) % 4096;
        }
    }
}

impl Regs for Unit {
    fn read32(&self, offset: u32) -> u32 {
        let mut state = self.state.lock().unwrap();
        let pending = state.records.iter().any(|record| record[1] >> 63 != 0);
        match offset {
            0x1c => state.status,
            0x34 => state.faults | u32::from(pending) << 1 | 1 << 8,
            0x38 | 0x44 => {
                state.pushed = state.event.len();
                if offset == 0x38 { state.event_control ^ 1 << 31 } else { 0 }
            }
            _ => panic!("read of {offset:#x}"),
        }
    }

    fn write32(&self, offset: u32, value: u32) {
        let mut state = self.state.lock().unwrap();
        match offset {
            0x18 => {
                state.commands.push(value);
                // SIRTP is one-shot: its status stays.
                state.status = value | state.status & (1 << 24 | state.stuck);
            }
            0x34 => {
                state.faults &= !value;
                if value & 0x10 != 0 {
                    let tail = state.tail;
                    self.run_queue(&mut state, tail);
                }
            }
            0x38..=0x44 => {
                state.event.push((offset, value));
                if offset == 0x38 {
                    state.event_control = value ^ 1 << 31;
                }
            }
            0x22c | 0x23c => {
                assert_eq!(value, 1 << 31, "only the fault bit is written");
                state.records[(offset as usize - 0x220) / 16][1] &= !(1 << 63);
            }
            _ => panic!("write of {offset:#x}"),
        }
    }

    fn read64(&self, offset: u32) -> u64 {
        let state = self.state.lock().unwrap();
        match offset {
            0x08 => self.capability,
            0x10 => self.extended,
            0x80 => state.head,
            0xb0 => 0x0000_3a00_0000_0003,
            0x220..0x240 => state.records[(offset as usize - 0x220) / 16][offset as usize / 8 % 2],
            _ => panic!("64-bit read of {offset:#x}"),
        }
    }

    fn write64(&self, offset: u32, value: u64) {
        let mut state = self.state.lock().unwrap();
        match offset {
            0x88 if state.status & 1 << 26 == 0 => state.head = value,
            0x88 => {
                state.tail = value;
                self.run_queue(&mut state, value);
            }
            0x90 => state.queue = value,
            0xb8 => state.table = value,
            _ => panic!("64-bit write of {offset:#x}"),
        }
    }
}

//! A minimal interrupt stack that is not Campanile's: each line has a handler, runs on local APICs, and can be
//! disabled and moved. It uses nothing of Campanile but the seam.
//!
//! To disable a line, this stack does not mask its device, so disabling a quiet line costs nothing. The stack must
//! keep an interrupt that arrives meanwhile, and replay it when the line is enabled. [`Replay::Forgotten`] plants a
//! bug: the stack forgets such an interrupt, and a disk hangs once a week. `tests/checked.rs` runs both variants under
//! `check`, which finds the bug in one and passes the other.
#![no_std]
extern crate alloc;

use alloc::boxed::Box;
use hal::{CpuId, Hal, Lock, Regs as _};

/// Registers of the local APIC in x2APIC mode, by MSR number (Intel SDM, volume 3, "x2APIC Register Address Space").
const SPURIOUS: u32 = 0x80f;
const EOI: u32 = 0x80b;
/// Software enable (bit 8), and vector 255 for spurious interrupts.
const ENABLED: u32 = 1 << 8 | 0xff;
/// The vector of line 0; the same on every CPU.
const FIRST_VECTOR: u8 = 0x40;

/// The handler of a line's interrupt. Two CPUs may run it at once.
pub type Handler = Box<dyn Fn() + Send + Sync>;

/// How the stack treats an interrupt that arrives while its line is disabled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Replay {
    /// The stack handles it when the line is enabled.
    Kept,
    /// The stack forgets it: the planted bug.
    Forgotten,
}

struct State {
    disabled: bool,
    pending: bool,
}

struct Line<H: Hal> {
    handler: Handler,
    state: Lock<H, State>,
}

/// The stack.
pub struct Stack<H: Hal> {
    hal: H,
    lapic: H::Regs,
    replay: Replay,
    lines: Box<[Line<H>]>,
}

impl<H: Hal> Stack<H> {
    /// A stack with one line for each of `handlers`; `lapic` is the local APIC of the calling CPU.
    pub fn new(hal: H, lapic: H::Regs, replay: Replay, handlers: impl IntoIterator<Item = Handler>) -> Self {
        let line = |handler| Line { handler, state: Lock::new(hal, State { disabled: false, pending: false }) };
        Self { hal, lapic, replay, lines: handlers.into_iter().map(line).collect() }
    }

    /// Lets this CPU take interrupts.
    pub fn start_cpu(&self) {
        self.lapic.write32(SPURIOUS, ENABLED);
    }

    /// Address and data with which a device reaches `line` on `cpu` ("Message Address Register Format": destination in
    /// bits 19:12). To move a line, give the device another address; the data stay the same.
    pub fn message(&self, line: usize, cpu: CpuId) -> (u64, u32) {
        (0xfee0_0000 | u64::from(cpu.0) << 12, u32::from(FIRST_VECTOR) + line as u32)
    }

    /// Entry from the IDT: this CPU has taken `vector`. Its interrupts are off.
    pub fn take(&self, vector: u8) {
        if let Some(line) = self.lines.get(usize::from(vector.wrapping_sub(FIRST_VECTOR))) {
            self.deliver(line);
            self.lapic.write32(EOI, 0);
        }
    }

    fn deliver(&self, line: &Line<H>) {
        {
            let mut state = line.state.lock();
            if state.disabled {
                state.pending = self.replay == Replay::Kept;
                return;
            }
        }
        (line.handler)();
    }

    /// Stops calls of the line's handler. A handler that is already running continues.
    pub fn disable(&self, line: usize) {
        self.lines[line].state.lock().disabled = true;
    }

    /// Undoes [`Stack::disable`], and handles an interrupt that arrived in between.
    pub fn enable(&self, line: usize) {
        let line = &self.lines[line];
        let pending = {
            let mut state = line.state.lock();
            state.disabled = false;
            core::mem::take(&mut state.pending)
        };
        if pending {
            let off = self.hal.irq_save();
            (line.handler)();
            self.hal.irq_restore(off);
        }
    }
}

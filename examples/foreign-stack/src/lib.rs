//! Somebody else's interrupt stack, as small as one can be: lines with a handler each on local APICs, that can be
//! disabled and moved. It uses nothing of Campanile but the seam.
//!
//! A line that is disabled is not masked at its device: it costs nothing to disable one that stays quiet. What arrives
//! nevertheless must be kept and replayed when the line is enabled. [`Replay::Forgotten`] plants the bug of a stack that
//! does not: with it an interrupt is lost when it arrives within a disabled stretch, and a disk hangs once a week.
//! `tests/checked.rs` puts both under `check`, which finds the one and passes the other.
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

/// What runs when a line's interrupt is taken; perhaps on two CPUs at once.
pub type Handler = Box<dyn Fn() + Send + Sync>;

/// What becomes of an interrupt that arrives while its line is disabled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Replay {
    /// It is handled when the line is enabled.
    Kept,
    /// Nothing: the planted bug.
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
    /// A stack with a line for each of `handlers`; `lapic` is the local APIC of whichever CPU uses it.
    pub fn new(hal: H, lapic: H::Regs, replay: Replay, handlers: impl IntoIterator<Item = Handler>) -> Self {
        let line = |handler| Line { handler, state: Lock::new(hal, State { disabled: false, pending: false }) };
        Self { hal, lapic, replay, lines: handlers.into_iter().map(line).collect() }
    }

    /// Lets this CPU take interrupts.
    pub fn start_cpu(&self) {
        self.lapic.write32(SPURIOUS, ENABLED);
    }

    /// Address and data with which a device reaches `line` on `cpu` ("Message Address Register Format": destination in
    /// bits 19:12). To move a line, the device is given another address; its data stay.
    pub fn message(&self, line: usize, cpu: CpuId) -> (u64, u32) {
        (0xfee0_0000 | u64::from(cpu.0) << 12, u32::from(FIRST_VECTOR) + line as u32)
    }

    /// This CPU, its interrupts off, has taken `vector`: the entry of the IDT.
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

    /// From now on the line's handler is not called. One that runs already goes on.
    pub fn disable(&self, line: usize) {
        self.lines[line].state.lock().disabled = true;
    }

    /// Undoes [`Stack::disable`], and handles what came meanwhile.
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

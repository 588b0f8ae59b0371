//! The generic timer of each CPU, as the timer of the [`Alarm`].

use super::ArmError;
use super::controller::Controller;
use crate::{Alarm, CpuTimers};
use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use hal::{CpuId, Hal, Regs, Word};
use irq::{Action, Irq, IrqCore, IrqReturn};
use spec::gic::IntId;
use spec::timer::{Control, FREQUENCY, PHYSICAL, PHYSICAL_PPI, Timer, VIRTUAL, VIRTUAL_PPI};

const NS_PER_S: u128 = 1_000_000_000;

/// The description of each CPU's timer.
pub struct TimerHardware<R> {
    /// The system registers of the current CPU, by [encoding](spec::timer).
    pub regs: R,
    /// Which timer: [`spec::timer::VIRTUAL`] or [`spec::timer::PHYSICAL`].
    pub registers: Timer,
    /// The INTID of its interrupt.
    pub ppi: IntId,
    /// Ticks per second; none to read CNTFRQ_EL0.
    pub frequency_hz: Option<u32>,
    /// True if firmware leaves the timer stopped on every CPU. Nothing is then written to it before the first
    /// deadline.
    pub is_stopped: bool,
}

impl<R> TimerHardware<R> {
    /// The virtual timer, which every kernel at EL1 has, under a hypervisor too.
    pub fn virtual_timer(regs: R) -> Self {
        Self { regs, registers: VIRTUAL, ppi: IntId(VIRTUAL_PPI), frequency_hz: None, is_stopped: false }
    }

    /// The physical timer of EL1.
    pub fn physical_timer(regs: R) -> Self {
        Self { regs, registers: PHYSICAL, ppi: IntId(PHYSICAL_PPI), frequency_hz: None, is_stopped: false }
    }
}

/// Every CPU's timer.
pub(super) struct GenericTimer<H: Hal> {
    hal: H,
    regs: H::Regs,
    registers: Timer,
    frequency_hz: u32,
    is_stopped: bool,
    /// Per CPU: 1 while its timer runs. Each CPU writes its own word.
    runs: Box<[H::Word]>,
}

impl<H: Hal> GenericTimer<H> {
    /// The timers of `cpus` CPUs. No register is touched.
    pub(super) fn new(hal: H, hardware: TimerHardware<H::Regs>, cpus: u32) -> Result<Self, ArmError> {
        let TimerHardware { regs, registers, ppi: _, frequency_hz, is_stopped } = hardware;
        let frequency_hz = frequency_hz.unwrap_or_else(|| regs.read64(FREQUENCY.offset()) as u32);
        if frequency_hz == 0 {
            return Err(ArmError::Frequency);
        }
        let runs = (0..cpus).map(|_| H::Word::new(0)).collect();
        Ok(Self { hal, regs, registers, frequency_hz, is_stopped, runs })
    }

    /// Stops a timer that firmware or an earlier system left running on this CPU. Called when the CPU first starts.
    pub(super) fn silence(&self) {
        if !self.is_stopped {
            self.regs.write64(self.registers.control.offset(), Control::new().into_bits());
        }
    }

    fn arm(&self, wait_ns: u64) {
        let ticks = (u128::from(wait_ns) * u128::from(self.frequency_hz)).div_ceil(NS_PER_S);
        let now = self.regs.read64(self.registers.count.offset());
        let compare = now.saturating_add(u64::try_from(ticks).unwrap_or(u64::MAX));
        self.regs.write64(self.registers.compare.offset(), compare);
        let runs = &self.runs[self.hal.cpu().index()];
        if runs.get() == 0 {
            runs.set(1);
            self.regs.write64(self.registers.control.offset(), Control::new().with_enable(true).into_bits());
        }
    }

    /// Stops this CPU's timer, which lowers its interrupt. Returns false if the timer did not run.
    fn stop(&self) -> bool {
        let runs = &self.runs[self.hal.cpu().index()];
        let ran = runs.get() != 0;
        if ran {
            runs.set(0);
            self.regs.write64(self.registers.control.offset(), Control::new().into_bits());
        }
        ran
    }
}

/// The timers that the alarm arms, and the interrupt by which it reaches another CPU.
pub(super) struct Timers<H: Hal> {
    pub(super) timer: Arc<GenericTimer<H>>,
    pub(super) gic: Controller<H>,
    pub(super) reschedule: IntId,
}

impl<H: Hal> CpuTimers for Timers<H> {
    fn arm(&self, wait_ns: u64) {
        self.timer.arm(wait_ns);
    }

    fn stop(&self) {
        self.timer.stop();
    }

    /// The send fails for a CPU that has not been started. That CPU looks for itself when it starts.
    fn nudge(&self, cpu: CpuId) {
        _ = self.gic.common().send(self.reschedule, cpu);
    }
}

/// The handler of the timer's interrupt.
pub(super) struct Expired<H: Hal> {
    /// The core owns this.
    pub(super) core: Weak<IrqCore<H>>,
    pub(super) alarm: Arc<Alarm<H>>,
    pub(super) timer: Arc<GenericTimer<H>>,
    pub(super) kernel: Arc<dyn Action>,
}

impl<H: Hal> Action for Expired<H> {
    /// If the alarm has not armed the timer, the interrupt is the kernel's: another source raises this PPI for it.
    fn handle(&self, irq: Irq) -> IrqReturn {
        // The level must go down before the interrupt ends.
        let mine = self.timer.stop();
        let is_tick =
            mine && self.core.upgrade().is_some_and(|core| self.alarm.expired(&core) == crate::Expired::Kernel);
        if is_tick || !mine { self.kernel.handle(irq) } else { IrqReturn::Handled }
    }
}

/// The handler of the reschedule interrupt.
pub(super) struct Nudged<H: Hal> {
    /// The core owns this.
    pub(super) core: Weak<IrqCore<H>>,
    pub(super) alarm: Arc<Alarm<H>>,
    pub(super) kernel: Arc<dyn Action>,
}

impl<H: Hal> Action for Nudged<H> {
    fn handle(&self, irq: Irq) -> IrqReturn {
        if let Some(core) = self.core.upgrade() {
            self.alarm.look(&core);
        }
        self.kernel.handle(irq)
    }
}

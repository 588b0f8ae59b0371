//! A GICv3 with threaded handlers. A kernel takes a whole Arm system, and every wire's handler runs in a thread. The
//! GIC's active state holds the wire back until its thread is done.
//!
//! ```text
//! IRQ exception ─► Wires::irq_exception ─► IAR ─► EOIR (others come through) ─► wake the thread
//! thread ─► the driver's work ─► DIR: the wire may interrupt again
//! ```
//!
//! The kernel brings the seam with threads (`hal::Threads`) and its registers.
#![no_std]
extern crate alloc;

use alloc::sync::Arc;
use hal::{CpuId, CpuSet, Threads};
use irq::{Action, Irq, IrqError, IrqReturn, RequestFlags, Trigger};
use spec::gic::IntId;
use systems::Handler;
use systems::arm::{Arm, ArmBuilder, ArmError, GicHardware, TimerHardware};

/// A driver's work for an interrupt. It runs in a thread, with interrupts on.
struct Work<F>(F);

impl<F: Fn() + Send + Sync> Action for Work<F> {
    fn handle(&self, _irq: Irq) -> IrqReturn {
        (self.0)();
        IrqReturn::Handled
    }
}

/// The kernel's wires.
pub struct Wires<H: Threads> {
    arm: Arc<Arm<H>>,
}

impl<H: Threads> Wires<H> {
    /// Sets up the system, on the boot CPU. The device tree or the MADT tells where GIC and timer are.
    ///
    /// # Errors
    /// An error in the description.
    pub fn new(hal: H, gic: GicHardware<H::Regs>, timer: TimerHardware<H::Regs>) -> Result<Self, ArmError> {
        Ok(Self { arm: ArmBuilder::new(hal, gic, timer).force_threads(true).build()? })
    }

    /// Every CPU calls this as it comes up, including the boot CPU.
    ///
    /// # Errors
    /// An error of the GIC.
    pub fn start_cpu(&self) -> Result<(), ArmError> {
        self.arm.start_cpu()
    }

    /// Handles the IRQ exception, with interrupts off.
    pub fn irq_exception(&self) {
        self.arm.exception();
    }

    /// Runs `work` in a thread on `cpu` whenever the wire `intid` interrupts, for as long as the guard lives.
    ///
    /// # Errors
    /// The number is not a free wire of this GIC, the wire does not support the trigger, or there is no room for a
    /// thread.
    pub fn connect(
        &self,
        intid: u32,
        trigger: Trigger,
        cpu: CpuId,
        work: impl Fn() + Send + Sync + 'static,
    ) -> Result<Handler<H>, IrqError> {
        let line = self.arm.wire(IntId(intid), trigger, CpuSet::of(cpu))?;
        line.request("wire", RequestFlags::default(), Arc::new(Work(work)))
    }
}

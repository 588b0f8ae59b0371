//! Lines that are delivered without a lock: per-CPU lines and pseudo-NMIs.
//!
//! Both run ack, handler, eoi and nothing else. An NMI may have interrupted code that holds the line's lock, or any
//! other lock. So its handlers are published apart from the line's state, and each CPU counts in a word of its own.

use crate::delivery::{IrqCore, increment};
use crate::flow::call;
use crate::hardware::Hardware;
use crate::line::{Actions, Line, LineState};
use crate::request::Wanted;
use crate::{Action, Flow, Irq, IrqError, RequestFlags};
use alloc::string::String;
use alloc::sync::Arc;
use hal::Hal;

/// The handlers that an interrupt of such a line runs.
pub(crate) struct Unlocked {
    hardware: Arc<Hardware>,
    actions: Actions,
}

impl Unlocked {
    fn run(&self) {
        self.hardware.ack();
        call(&self.actions, self.hardware.irq);
        self.hardware.eoi();
    }
}

impl<H: Hal> Line<H> {
    /// Publishes the handlers of `state`, so that interrupts find them without a lock.
    pub(crate) fn publish(&self, state: &LineState, hardware: &Arc<Hardware>) {
        let unlocked = state.ready.clone().map(|actions| Unlocked { hardware: hardware.clone(), actions });
        drop(self.unlocked.replace(unlocked));
    }

    /// Withdraws the published handlers, and waits until none of them runs.
    pub(crate) fn withdraw(&self) {
        drop(self.unlocked.replace(None));
    }

    /// Ends the NMI mode of a line that has no handler any more.
    pub(crate) fn end_nmi(&self) {
        let mut state = self.state.lock();
        if core::mem::take(&mut state.nmi)
            && state.flow != Flow::PerCpu
            && let Some(hardware) = state.hardware()
        {
            hardware.nmi_teardown();
        }
    }

    /// Runs the published handlers of the line; false if it has none.
    #[inline]
    pub(crate) fn deliver_unlocked(&self, cpu: usize) -> bool {
        let run = |unlocked: &Unlocked| {
            increment(&self.counts[cpu]);
            unlocked.run();
        };
        self.unlocked.read(run).is_some()
    }
}

impl<H: Hal> IrqCore<H> {
    /// Delivers a pseudo-NMI: ack, handler, eoi. It takes no lock and leaves no work for later, so it may interrupt
    /// any code of this core. Returns false when the line has no NMI handler: the caller then ends the interrupt at
    /// its controller itself.
    pub fn handle_nmi(&self, irq: Irq) -> bool {
        let cpu = self.hal.cpu().index();
        self.lines.get(irq.0 as usize).is_some_and(|line| line.deliver_unlocked(cpu))
    }

    /// Makes the line a pseudo-NMI and installs its handler. The handler may use nothing that takes a lock. A per-CPU
    /// line becomes an NMI on each CPU that enables it. [`IrqCore::free`] makes it an ordinary line again.
    ///
    /// # Errors
    /// [`IrqError::NotShared`] when the line has a handler, [`IrqError::NotSupported`] or the error of the chip.
    pub fn request_nmi(&self, irq: Irq, name: impl Into<String>, action: Arc<dyn Action>) -> Result<(), IrqError> {
        let line = self.line(irq)?;
        let name = name.into();
        let mut state = line.state.lock();
        let hardware = state.live(irq)?;
        if !state.entries.is_empty() {
            return Err(IrqError::NotShared(irq));
        }
        hardware.check_nmi()?;
        if state.flow != Flow::PerCpu {
            hardware.nmi_setup()?;
        }
        state.nmi = true;
        self.add(line, &mut state, &hardware, name, RequestFlags::default(), Wanted::plain(action), None);
        Ok(())
    }

    /// Enables a per-CPU line on this CPU. An interrupt that comes while the line has no handler disables it again.
    ///
    /// # Errors
    /// [`IrqError::NotPerCpu`], or the error of a chip that refuses an NMI.
    pub fn enable_percpu(&self, irq: Irq) -> Result<(), IrqError> {
        let mut state = self.line(irq)?.state.lock();
        let hardware = percpu(&state, irq)?;
        let cpu = self.hal.cpu();
        if !state.percpu_enabled.contains(cpu) {
            if state.nmi {
                hardware.nmi_setup()?;
            }
            state.percpu_enabled.insert(cpu);
            hardware.unmask();
        }
        Ok(())
    }

    /// Disables a per-CPU line on this CPU. A CPU that goes offline calls this for each of its own lines.
    ///
    /// # Errors
    /// [`IrqError::NotPerCpu`].
    pub fn disable_percpu(&self, irq: Irq) -> Result<(), IrqError> {
        let mut state = self.line(irq)?.state.lock();
        let hardware = percpu(&state, irq)?;
        let cpu = self.hal.cpu();
        if state.percpu_enabled.contains(cpu) {
            state.percpu_enabled.remove(cpu);
            hardware.mask();
            if state.nmi {
                hardware.nmi_teardown();
            }
        }
        Ok(())
    }
}

fn percpu(state: &LineState, irq: Irq) -> Result<Arc<Hardware>, IrqError> {
    let hardware = state.live(irq)?;
    if state.flow == Flow::PerCpu { Ok(hardware) } else { Err(IrqError::NotPerCpu(irq)) }
}

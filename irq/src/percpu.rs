//! Lines that are delivered without a lock: those that every CPU has for itself, and pseudo-NMIs.
//!
//! Both run ack, handler, eoi and nothing else. An NMI may have interrupted code that holds the line's lock, or any
//! other: what it runs is published apart from the line's state, and it counts in a word of its own CPU.

use crate::delivery::{IrqCore, increment};
use crate::flow::call;
use crate::hardware::Hardware;
use crate::line::{Actions, Line, LineState};
use crate::request::Wanted;
use crate::{Action, Flow, Irq, IrqError, RequestFlags};
use alloc::string::String;
use alloc::sync::Arc;
use hal::Hal;

/// What such a line runs.
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
    /// Lets the handlers of `state` be found without a lock.
    pub(crate) fn publish(&self, state: &LineState, hardware: &Arc<Hardware>) {
        let unlocked = state.ready.clone().map(|actions| Unlocked { hardware: hardware.clone(), actions });
        drop(self.unlocked.replace(unlocked));
    }

    /// Lets them not be found any more, and waits until none runs.
    pub(crate) fn withdraw(&self) {
        drop(self.unlocked.replace(None));
    }

    /// The line, which has no handler any more, is no NMI any more.
    pub(crate) fn end_nmi(&self) {
        let mut state = self.state.lock();
        if core::mem::take(&mut state.nmi)
            && state.flow != Flow::PerCpu
            && let Some(hardware) = &state.hardware
        {
            hardware.nmi_teardown();
        }
    }

    /// Runs the handlers of a line that has them published; false for any other.
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
    /// Delivers a pseudo-NMI: ack, handler, eoi. Takes no lock and leaves nothing to be done later, so it may interrupt
    /// any code of this core. False when no handler of an NMI is there: the caller ends the interrupt at its controller
    /// itself.
    pub fn handle_nmi(&self, irq: Irq) -> bool {
        let cpu = self.hal.cpu().index();
        self.lines.get(irq.0 as usize).is_some_and(|line| line.deliver_unlocked(cpu))
    }

    /// Makes the line a pseudo-NMI and installs its handler, which may use nothing that takes a lock. A per-CPU line
    /// becomes one on each CPU that enables it. [`IrqCore::free`] makes it an ordinary line again.
    ///
    /// # Errors
    /// [`IrqError::NotShared`] when it has a handler, [`IrqError::NotSupported`] or what the chip refuses.
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

    /// Lets a per-CPU line interrupt this CPU.
    ///
    /// # Errors
    /// [`IrqError::NotPerCpu`], or what the chip refuses of an NMI.
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

    /// Lets it interrupt this CPU no more. A CPU that goes offline does this for each of its own lines.
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

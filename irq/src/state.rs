//! The state that hardware keeps of a line: its trigger type, and its pending, active and masked bits.

use crate::delivery::IrqCore;
use crate::hardware::Hardware;
use crate::line::LineState;
use crate::{Flow, Irq, IrqChipState, IrqError, Trigger};
use hal::Hal;

impl<H: Hal> IrqCore<H> {
    /// Sets the line's trigger. The chip may ask for another flow with it. Both may change while the line
    /// has handlers and while it is active. An acknowledged interrupt is still ended once.
    ///
    /// # Errors
    /// [`IrqError::NotSupported`], what the chip refuses, or [`IrqError::Flow`] when the hierarchy cannot do the flow
    /// that the chip asks for; the flow is then the old one.
    pub fn set_type(&self, irq: Irq, trigger: Trigger) -> Result<(), IrqError> {
        let mut state = self.line(irq)?.state.lock();
        let hardware = state.live(irq)?;
        let was_masked = state.masked;
        state.mask();
        let result = hardware.set_type(trigger).and_then(|flow| {
            state.trigger = Some(trigger);
            flow.map_or(Ok(()), |flow| change_flow(&mut state, &hardware, flow))
        });
        if !was_masked {
            self.unmask(&mut state);
        }
        result
    }

    /// Sets the flow from the line's next interrupt on. Allowed while the line has handlers and while it is active. An
    /// acknowledged interrupt is still ended once.
    ///
    /// # Errors
    /// [`IrqError::Flow`] when no level has an operation that the flow needs, or for a change from or to a flow
    /// without a lock; [`IrqError::KeepsToItself`].
    pub fn set_flow(&self, irq: Irq, flow: Flow) -> Result<(), IrqError> {
        let mut state = self.line(irq)?.state.lock();
        let hardware = state.live(irq)?;
        change_flow(&mut state, &hardware, flow)
    }

    /// Reads a bit that the hardware keeps of the line; of a per-CPU line, on this CPU.
    ///
    /// # Errors
    /// [`IrqError::NotSupported`] when no level keeps it.
    pub fn irqchip_state(&self, irq: Irq, which: IrqChipState) -> Result<bool, IrqError> {
        let state = self.line(irq)?.state.lock();
        state.live(irq)?.state(which)
    }

    /// Writes such a bit. Setting a line pending raises it, as its device would.
    ///
    /// # Errors
    /// [`IrqError::NotSupported`] when no level keeps it.
    pub fn set_irqchip_state(&self, irq: Irq, which: IrqChipState, value: bool) -> Result<(), IrqError> {
        let mut state = self.line(irq)?.state.lock();
        state.live(irq)?.set_state(which, value)?;
        if which == IrqChipState::Masked {
            state.masked = value;
        }
        Ok(())
    }
}

fn change_flow(state: &mut LineState, hardware: &Hardware, flow: Flow) -> Result<(), IrqError> {
    if (state.flow == Flow::PerCpu) != (flow == Flow::PerCpu) {
        return Err(IrqError::Flow(flow, "a line that is per-CPU from the start, or never"));
    }
    hardware.check_flow(flow)?;
    if state.oneshot {
        hardware.check_oneshot(flow)?;
    }
    state.flow = flow;
    Ok(())
}

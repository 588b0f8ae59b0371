//! Moving lines while their interrupts arrive.
//!
//! The core enters the new vector in the table before it points the hardware there. The old vector stays the line's
//! until it can no longer be pending. So no message under way is lost, and none arrives at a vector that belongs to
//! another line.

use crate::delivery::IrqCore;
use crate::line::{Line, LineState};
use crate::{Irq, IrqError, Target};
use hal::{CpuId, CpuSet, Hal};

impl<H: Hal> IrqCore<H> {
    /// Sets the CPUs on which the line may be delivered, and moves it there. The move happens at once, or as soon as
    /// an earlier move or the chip allows it ([`crate::ChipBehaviour::moves_on_ack`]).
    ///
    /// # Errors
    /// [`IrqError::NoCpu`] when none of the CPUs is online, [`IrqError::Managed`], [`IrqError::NoVector`], or the
    /// error of a chip that refuses. The line then stays where it was.
    pub fn set_affinity(&self, irq: Irq, cpus: &CpuSet) -> Result<(), IrqError> {
        let mut state = self.line(irq)?.state.lock();
        let hardware = state.live(irq)?;
        if hardware.managed {
            return Err(IrqError::Managed(irq));
        }
        let Some(target) = state.target() else { return Err(IrqError::NotSupported("set_affinity")) };
        if cpus.and(&self.matrix.lock().online()).is_empty() {
            return Err(IrqError::NoCpu(irq));
        }
        let now_ns = self.hal.now_ns();
        self.clean_up(&mut state, self.hal.cpu(), now_ns);
        let waits = hardware.ops.moves_on_ack || !state.retired.is_empty();
        if !cpus.contains(target.cpu) && !waits {
            self.migrate(&mut state, cpus)?;
        }
        state.affinity = cpus.clone();
        state.want_move(waits && !cpus.contains(target.cpu));
        Ok(())
    }

    /// Moves the line to one of `allowed`, now.
    pub(crate) fn migrate(&self, state: &mut LineState, allowed: &CpuSet) -> Result<(), IrqError> {
        let Some(hardware) = state.hardware().cloned() else { return Ok(()) };
        let found = self.matrix.lock().target(allowed, &hardware);
        let new = found.unwrap_or(Err(IrqError::NoCpu(hardware.irq)))?;
        self.set_entry(new, Some(hardware.irq));
        let pointed = if state.is_new() { hardware.activate(new) } else { hardware.set_affinity(new) };
        if let Err(error) = pointed {
            // A controller that failed half-way may already have sent a message to the new target.
            self.leave_target(state, new);
            return Err(error);
        }
        if let Some(old) = state.move_to(new) {
            self.leave_target(state, old);
        }
        self.follow(state);
        Ok(())
    }

    /// Only a target with a vector must be kept until the vector can no longer arrive. A line without a vector is
    /// found by its number on every CPU.
    pub(crate) fn leave_target(&self, state: &mut LineState, target: Target) {
        if target.identity.is_some() {
            self.retire(state, target);
        }
    }

    /// Applies a deferred move of a line whose chip needs the ack first. A move that fails is retried at the next ack.
    #[inline]
    pub(crate) fn move_on_ack(&self, state: &mut LineState) {
        if state.move_wanted() && state.retired.is_empty() {
            self.apply_wanted(state);
        }
    }

    #[cold]
    fn apply_wanted(&self, state: &mut LineState) {
        let cpus = core::mem::take(&mut state.affinity);
        let failed = self.migrate(state, &cpus).is_err();
        state.want_move(failed);
        state.affinity = cpus;
    }

    /// Gives back the line's retired vectors on `cpu`, if they are no longer pending. `cpu` must be the current CPU.
    fn clean_up(&self, state: &mut LineState, cpu: CpuId, now_ns: u64) {
        let Some(hardware) = state.hardware().cloned() else { return };
        state.retired.retain(|retired| {
            // Only a LAPIC's own CPU can read its pending requests.
            if retired.target.cpu != cpu {
                return true;
            }
            if retired.due_ns > now_ns {
                self.schedule(cpu, retired.due_ns);
                return true;
            }
            let may_come = || !hardware.settles() || hardware.is_pending(retired.target);
            if retired.target.identity.is_some() && may_come() {
                self.schedule(cpu, now_ns.saturating_add(self.config.flight_ns.max(1)));
                return true;
            }
            self.give_back(retired.target, hardware.managed);
            false
        });
    }

    /// Does the work that is due for one line on this CPU.
    pub(crate) fn housekeep_line(&self, line: &Line<H>, cpu: CpuId, now_ns: u64) {
        let mut state = line.state.lock();
        let Some(hardware) = state.hardware().cloned() else { return };
        self.clean_up(&mut state, cpu, now_ns);
        self.finish_freeing(&mut state);
        if !state.is_live() {
            return;
        }
        if state.is_shut_down() && state.affinity.contains(cpu) {
            // The line's start failed when this CPU came online. It may fail again; it is then scheduled once more.
            let _ = self.restart_or_return(&mut state, cpu);
        }
        if state.move_wanted() && state.retired.is_empty() && !hardware.ops.moves_on_ack {
            self.apply_wanted(&mut state);
            if state.move_wanted() {
                self.schedule(cpu, now_ns.saturating_add(self.config.flight_ns.max(1)));
            }
        }
        if state.storm.is_throttled() {
            if state.storm.until_ns > now_ns {
                self.schedule(cpu, state.storm.until_ns);
            } else {
                state.storm.let_go(now_ns);
                self.unmask(&mut state);
            }
        }
        self.resend_due(&mut state, now_ns);
    }
}

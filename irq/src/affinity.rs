//! Moving lines while their interrupts arrive.
//!
//! The new vector is in the table before the hardware is pointed at it, and the old one stays the line's until it
//! cannot be pending any more: no message under way is lost, and none finds a vector that is another line's.

use crate::delivery::IrqCore;
use crate::line::{Line, LineState, Phase};
use crate::{Irq, IrqError, Target};
use hal::{CpuId, CpuSet, Hal};

impl<H: Hal> IrqCore<H> {
    /// Says on which CPUs the line may be delivered, and moves it there: at once, or as soon as an earlier move or the
    /// chip allows ([`crate::ChipOps::moves_on_ack`]).
    ///
    /// # Errors
    /// [`IrqError::NoCpu`] when none of them is online, [`IrqError::Managed`], [`IrqError::NoVector`], or what a chip
    /// refuses; the line then stays where it was.
    pub fn set_affinity(&self, irq: Irq, cpus: &CpuSet) -> Result<(), IrqError> {
        let mut state = self.line(irq)?.state.lock();
        let hardware = state.live(irq)?;
        if hardware.managed {
            return Err(IrqError::Managed(irq));
        }
        let Some(target) = state.target else { return Err(IrqError::NotSupported("set_affinity")) };
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
        state.move_wanted = waits && !cpus.contains(target.cpu);
        Ok(())
    }

    /// Moves the line to one of `allowed`, now.
    pub(crate) fn migrate(&self, state: &mut LineState, allowed: &CpuSet) -> Result<(), IrqError> {
        let Some(hardware) = state.hardware.clone() else { return Ok(()) };
        let found = self.matrix.lock().target(allowed, &hardware);
        let new = found.unwrap_or(Err(IrqError::NoCpu(hardware.irq)))?;
        self.set_entry(new, Some(hardware.irq));
        if let Err(error) = hardware.set_affinity(new) {
            // A controller that failed half-way may have sent something there already.
            self.leave_target(state, new);
            return Err(error);
        }
        state.inactive = false;
        if let Some(old) = state.target.replace(new) {
            self.leave_target(state, old);
        }
        self.follow(state);
        state.move_wanted = false;
        Ok(())
    }

    /// Only a vector must be kept until it cannot come any more; a line without one is known by its number wherever it
    /// is taken.
    fn leave_target(&self, state: &mut LineState, target: Target) {
        if target.vector.is_some() {
            self.retire(state, target);
        }
    }

    /// Applies the move of a line whose chip must be acked first. One that fails is tried again at the next ack.
    #[inline]
    pub(crate) fn move_on_ack(&self, state: &mut LineState) {
        if state.move_wanted && state.retired.is_empty() {
            self.apply_wanted(state);
        }
    }

    #[cold]
    fn apply_wanted(&self, state: &mut LineState) {
        let cpus = core::mem::take(&mut state.affinity);
        state.move_wanted = self.migrate(state, &cpus).is_err();
        state.affinity = cpus;
    }

    /// Gives back the vectors on `cpu`, which is this CPU, that the line has left and that are not pending any more.
    fn clean_up(&self, state: &mut LineState, cpu: CpuId, now_ns: u64) {
        let Some(hardware) = state.hardware.clone() else { return };
        state.retired.retain(|retired| {
            // The LAPIC's requests can be read on its own CPU only.
            if retired.target.cpu != cpu {
                return true;
            }
            if retired.due_ns > now_ns {
                self.schedule(cpu, retired.due_ns);
                return true;
            }
            let may_come = || !hardware.settles() || hardware.is_pending(retired.target);
            if retired.target.vector.is_some() && may_come() {
                self.schedule(cpu, now_ns.saturating_add(self.config.flight_ns.max(1)));
                return true;
            }
            self.give_back(retired.target, hardware.managed);
            false
        });
    }

    /// Does what is due for one line on this CPU.
    pub(crate) fn look_after(&self, line: &Line<H>, cpu: CpuId, now_ns: u64) {
        let mut state = line.state.lock();
        let Some(hardware) = state.hardware.clone() else { return };
        self.clean_up(&mut state, cpu, now_ns);
        self.bury(&mut state);
        if state.phase != Phase::Live {
            return;
        }
        if state.shutdown && state.affinity.contains(cpu) {
            // Its start failed when this CPU came, and may fail again: then it is scheduled once more.
            let _ = self.come_back(&mut state, cpu);
        }
        if state.move_wanted && state.retired.is_empty() && !hardware.ops.moves_on_ack {
            self.apply_wanted(&mut state);
            if state.move_wanted {
                self.schedule(cpu, now_ns.saturating_add(self.config.flight_ns.max(1)));
            }
        }
        if state.storm.is_throttled() {
            if state.storm.until_ns > now_ns {
                self.schedule(cpu, state.storm.until_ns);
            } else {
                state.storm.restart(now_ns);
                state.unmask();
            }
        }
    }
}

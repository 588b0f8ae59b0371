//! CPUs that go offline and come online.

use crate::delivery::IrqCore;
use crate::line::{Line, LineState, Shutdown};
use crate::{Irq, IrqError};
use hal::{CpuId, CpuSet, Hal};

impl<H: Hal> IrqCore<H> {
    /// Takes this CPU offline. The core moves every line away and waits until messages under way have arrived. It then
    /// fires each vector that is still pending here once more at the line's new CPU. A managed line is shut down when
    /// this is its last CPU. Call this on the CPU itself, and leave its interrupts off afterwards. With posted
    /// delivery, call [`crate::posted::PostedMsi::cpu_offline`] next.
    ///
    /// # Errors
    /// [`IrqError::Cpu`] when the CPU is not online, is the last one, or may still receive a stale route of a line;
    /// [`IrqError::NoVector`] or the error of a chip when a line cannot move. The CPU then stays online.
    pub fn cpu_offline(&self) -> Result<CpuId, IrqError> {
        let off = self.hal.irq_save();
        let cpu = self.hal.cpu();
        let result = self.take_offline(cpu);
        self.hal.irq_restore(off);
        result.map(|()| cpu)
    }

    fn take_offline(&self, cpu: CpuId) -> Result<(), IrqError> {
        self.matrix.lock().set_offline(cpu)?;
        let gone = self.each_line(|state| self.move_off(state, cpu)).and_then(|()| {
            self.hal.delay_ns(self.config.flight_ns);
            self.each_line(|state| deactivate(state, cpu))
        });
        if gone.is_err() {
            self.matrix.lock().set_online(cpu)?;
            for line in self.lines.iter() {
                let mut state = line.state.lock();
                self.undo_shutdown(&mut state, cpu);
                self.return_to_affinity(&mut state, cpu);
            }
            self.announce_all();
            return gone;
        }
        for line in self.lines.iter() {
            self.rescue(line, cpu);
        }
        Ok(())
    }

    fn each_line(&self, mut body: impl FnMut(&mut LineState) -> Result<(), IrqError>) -> Result<(), IrqError> {
        self.lines.iter().try_for_each(|line| body(&mut line.state.lock()))
    }

    /// Moves one line away from `cpu`: to a CPU of its affinity if one is online, else to any CPU. A line that could not move
    /// to its affinity goes on trying.
    fn move_off(&self, state: &mut LineState, cpu: CpuId) -> Result<(), IrqError> {
        if let Some(hardware) = state.hardware().filter(|_| state.has_left(cpu))
            && !hardware.settles()
        {
            return Err(IrqError::Cpu(cpu, "may still receive interrupts by a route that a line has left"));
        }
        let Some(target) = state.target().filter(|target| target.cpu == cpu) else { return Ok(()) };
        // Read under the line's lock: a CPU that comes online later finds the line where this leaves it.
        let online = self.matrix.lock().online();
        let wanted = state.affinity.and(&online);
        let managed = state.hardware().is_some_and(|hardware| hardware.managed);
        if managed && wanted.is_empty() {
            state.mask();
            state.shut_down(Shutdown::Masked);
            self.retire(state, target);
            return Ok(());
        }
        match self.migrate(state, &wanted) {
            Err(_) if !managed => self.migrate(state, &online)?,
            result => return result,
        }
        if let Some(target) = state.target()
            && !wanted.is_empty()
            && !wanted.contains(target.cpu)
        {
            state.want_move(true);
            self.schedule(target.cpu, self.hal.now_ns());
        }
        Ok(())
    }

    /// Gives back the line's vectors on the CPU that goes offline. Interrupts still pending there are delivered
    /// elsewhere.
    fn rescue(&self, line: &Line<H>, cpu: CpuId) {
        let mut state = line.state.lock();
        let Some(hardware) = state.hardware().cloned() else { return };
        let mut pending = false;
        state.retired.retain(|retired| {
            if retired.target.cpu != cpu {
                return true;
            }
            pending |= retired.target.identity.is_some() && hardware.is_pending(retired.target);
            self.give_back(retired.target, hardware.managed);
            false
        });
        if state.is_live() && pending && (state.is_shut_down() || !hardware.retrigger()) {
            // The pending mark is kept until the line comes back.
            state.pending = true;
        }
        // The line's new CPU takes over the deadlines of this CPU; any CPU does for a line without a target of its own.
        let heir = state.target().map(|target| target.cpu);
        if state.storm.is_throttled()
            && let Some(cpu) = heir.or_else(|| self.matrix.lock().online().iter().next())
        {
            self.schedule(cpu, state.storm.until_ns);
        }
        if state.move_wanted()
            && let Some(cpu) = heir
        {
            self.schedule(cpu, self.hal.now_ns());
        }
        if state.waits_for_resend() {
            self.resend_later(&mut state, 0);
        }
        self.finish_freeing(&mut state);
    }

    /// Brings `cpu` online. Managed lines that had lost their last CPU come back. Lines that had to leave their
    /// affinity return to it.
    ///
    /// # Errors
    /// [`IrqError::Cpu`] when the CPU is online already or does not exist. Otherwise the error of the first line that
    /// failed; all other lines are served.
    pub fn cpu_online(&self, cpu: CpuId) -> Result<(), IrqError> {
        self.matrix.lock().set_online(cpu)?;
        let mut result = Ok(());
        for (index, line) in self.lines.iter().enumerate() {
            let mut state = line.state.lock();
            if state.live(Irq(index as u32)).is_ok() && state.affinity.contains(cpu) {
                result = result.and(self.restart_or_return(&mut state, cpu));
            }
        }
        self.announce_all();
        result
    }

    /// Lines may return to a CPU that is online again. The deadline is announced last: the CPU then takes leftover
    /// interrupts first, while no line owns their vectors.
    fn announce_all(&self) {
        let online = self.matrix.lock().online();
        self.announce(&online);
    }

    /// Restarts a line that was shut down. If that fails, this CPU's housekeeping tries again.
    pub(crate) fn restart_or_return(&self, state: &mut LineState, cpu: CpuId) -> Result<(), IrqError> {
        if state.is_shut_down() {
            if let Err(error) = self.migrate(state, &CpuSet::of(cpu)) {
                self.schedule(cpu, self.hal.now_ns().saturating_add(self.config.flight_ns.max(1)));
                return Err(error);
            }
            self.unmask(state);
            if state.storm.is_throttled() {
                self.schedule(cpu, state.storm.until_ns);
            }
        } else {
            self.return_to_affinity(state, cpu);
        }
        Ok(())
    }

    /// Undoes the shutdown of a line whose last CPU stays online after all. If its hardware was only masked, it still
    /// points at that CPU.
    fn undo_shutdown(&self, state: &mut LineState, cpu: CpuId) {
        match state.was_shut_down_for(cpu) {
            Some(Shutdown::New) | None => {}
            // If the line does not start, housekeeping tries again.
            Some(Shutdown::Deactivated) => _ = self.restart_or_return(state, cpu),
            Some(Shutdown::Masked) => {
                if let Some(last) = state.retired.pop_if(|retired| retired.target.cpu == cpu) {
                    state.move_to(last.target);
                    self.unmask(state);
                }
            }
        }
    }

    /// Makes a line return to its affinity, because `cpu` is online again. The move is applied at the line's next
    /// interrupt, or by the housekeeping of its present CPU; the caller announces that deadline.
    fn return_to_affinity(&self, state: &mut LineState, cpu: CpuId) {
        if let Some(target) = state.target()
            && state.affinity.contains(cpu)
            && !state.affinity.contains(target.cpu)
        {
            state.want_move(true);
            self.note_deadline(target.cpu, self.hal.now_ns());
        }
    }
}

/// Blocks a line that was shut down because `cpu` goes offline. Its mask stops only its own device's messages.
fn deactivate(state: &mut LineState, cpu: CpuId) -> Result<(), IrqError> {
    if let Some(hardware) = state.hardware().filter(|_| state.was_shut_down_for(cpu).is_some()) {
        hardware.deactivate()?;
        state.shut_down(Shutdown::Deactivated);
    }
    Ok(())
}

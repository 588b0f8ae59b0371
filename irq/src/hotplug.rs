//! CPUs that go and come.

use crate::delivery::IrqCore;
use crate::line::{Line, LineState, Phase};
use crate::{Irq, IrqError, Target};
use hal::{CpuId, CpuSet, Hal};

impl<H: Hal> IrqCore<H> {
    /// Takes this CPU offline: moves every line off, waits until messages under way have arrived, and fires each
    /// vector that is still pending here once more at its new CPU. Managed lines of which this is the last CPU are
    /// shut down. To be called on the CPU itself, which then leaves its interrupts off; with posted delivery it goes on
    /// with [`crate::posted::PostedMsi::cpu_offline`].
    ///
    /// # Errors
    /// [`IrqError::Cpu`] when it is not online, the last one, or may still be sent to by what a line has left;
    /// [`IrqError::NoVector`] or what a chip refuses when a line cannot go. The CPU then stays online.
    pub fn cpu_offline(&self) -> Result<CpuId, IrqError> {
        let off = self.hal.irq_save();
        let cpu = self.hal.cpu();
        let result = self.take_offline(cpu);
        self.hal.irq_restore(off);
        result.map(|()| cpu)
    }

    fn take_offline(&self, cpu: CpuId) -> Result<(), IrqError> {
        let online = {
            let mut matrix = self.matrix.lock();
            matrix.set_offline(cpu)?;
            matrix.online()
        };
        let gone = self.each_line(|state| self.move_off(state, cpu, &online)).and_then(|()| {
            self.hal.delay_ns(self.config.flight_ns);
            self.each_line(|state| deactivate(state, cpu))
        });
        if gone.is_err() {
            self.matrix.lock().set_online(cpu)?;
            for line in self.lines.iter() {
                let mut state = line.state.lock();
                self.stay_up(&mut state, cpu);
                self.go_home(&mut state, cpu);
            }
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

    /// Moves one line off `cpu`, to a CPU of its affinity while one is online, else to any.
    fn move_off(&self, state: &mut LineState, cpu: CpuId, online: &CpuSet) -> Result<(), IrqError> {
        if let Some(hardware) = state.hardware.as_ref().filter(|_| state.has_left(cpu))
            && !hardware.settles()
        {
            return Err(IrqError::Cpu(cpu, "may still be sent to by what a line has left"));
        }
        let Some(target) = state.target.filter(|target| target.cpu == cpu) else { return Ok(()) };
        let wanted = state.affinity.and(online);
        let managed = state.hardware.as_ref().is_some_and(|hardware| hardware.managed);
        if managed && wanted.is_empty() {
            state.mask();
            state.shutdown = true;
            state.target = None;
            self.retire(state, target);
            return Ok(());
        }
        match self.migrate(state, &wanted) {
            Err(_) if !managed => self.migrate(state, online),
            result => result,
        }
    }

    /// Gives back the line's vectors on the CPU that goes, and has what is still pending there delivered elsewhere.
    fn rescue(&self, line: &Line<H>, cpu: CpuId) {
        let mut state = line.state.lock();
        let Some(hardware) = state.hardware.clone() else { return };
        let mut pending = false;
        state.retired.retain(|retired| {
            if retired.target.cpu != cpu {
                return true;
            }
            pending |= retired.target.vector.is_some() && hardware.is_pending(retired.target);
            self.give_back(retired.target, hardware.managed);
            false
        });
        if state.phase == Phase::Live && pending && (state.shutdown || !hardware.retrigger()) {
            // It is kept for when the line comes back.
            state.pending = true;
        }
        if let Some(Target { cpu, .. }) = state.target {
            // What this CPU would have looked after is the line's new CPU's now.
            if state.storm.is_throttled() {
                self.schedule(cpu, state.storm.until_ns);
            }
            if state.move_wanted {
                self.schedule(cpu, self.hal.now_ns());
            }
        }
        self.bury(&mut state);
    }

    /// Brings `cpu` online: managed lines that had lost their last CPU come back, and lines that had to leave their
    /// affinity return to it.
    ///
    /// # Errors
    /// [`IrqError::Cpu`] when it is online already or none of this system; else the first line's error, all others
    /// being served.
    pub fn cpu_online(&self, cpu: CpuId) -> Result<(), IrqError> {
        self.matrix.lock().set_online(cpu)?;
        let mut result = Ok(());
        for (index, line) in self.lines.iter().enumerate() {
            let mut state = line.state.lock();
            if state.live(Irq(index as u32)).is_ok() && state.affinity.contains(cpu) {
                result = result.and(self.come_back(&mut state, cpu));
            }
        }
        result
    }

    /// A line that slept starts again, here; where that fails it is tried again by this CPU's housekeeping.
    pub(crate) fn come_back(&self, state: &mut LineState, cpu: CpuId) -> Result<(), IrqError> {
        if state.shutdown {
            if let Err(error) = self.migrate(state, &CpuSet::of(cpu)) {
                self.schedule(cpu, self.hal.now_ns().saturating_add(self.config.flight_ns.max(1)));
                return Err(error);
            }
            state.shutdown = false;
            state.unmask();
            if state.storm.is_throttled() {
                self.schedule(cpu, state.storm.until_ns);
            }
        } else {
            self.go_home(state, cpu);
        }
        Ok(())
    }

    /// Undoes the shutdown of a line whose last CPU stays after all. While its hardware was only masked, it still points
    /// there.
    fn stay_up(&self, state: &mut LineState, cpu: CpuId) {
        if !state.fell_asleep_with(cpu) {
            return;
        }
        if state.inactive {
            // Where it does not start, it is tried again.
            _ = self.come_back(state, cpu);
        } else if let Some(last) = state.retired.pop_if(|retired| retired.target.cpu == cpu) {
            state.target = Some(last.target);
            state.shutdown = false;
            state.unmask();
        }
    }

    /// Has a line that had to leave its affinity return to it, `cpu` being there again. Its next interrupt or the
    /// housekeeping of the CPU where it is applies it.
    fn go_home(&self, state: &mut LineState, cpu: CpuId) {
        if let Some(target) = state.target
            && state.affinity.contains(cpu)
            && !state.affinity.contains(target.cpu)
        {
            state.move_wanted = true;
            self.schedule(target.cpu, self.hal.now_ns());
        }
    }
}

/// Lets nothing reach a line that was shut down because `cpu` goes: a mask holds its device back, and nobody else.
fn deactivate(state: &mut LineState, cpu: CpuId) -> Result<(), IrqError> {
    if let Some(hardware) = state.hardware.as_ref().filter(|_| state.fell_asleep_with(cpu)) {
        hardware.deactivate()?;
        state.inactive = true;
    }
    Ok(())
}

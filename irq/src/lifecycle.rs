//! The life of a line: allocated, pointed at a CPU, freed.

use crate::delivery::IrqCore;
use crate::hardware::Hardware;
use crate::line::{LineState, Phase, Retired};
use crate::{AllocRequest, Flow, Irq, IrqDomain, IrqError, LevelData, Target};
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use hal::{Hal, Word as _};

impl<H: Hal> IrqCore<H> {
    /// Allocates a line in `domain` and every domain towards the CPU, gives it a vector on a CPU of its affinity, and
    /// points the hardware there. It stays masked until it is requested.
    ///
    /// # Errors
    /// What a domain or chip refuses; [`IrqError::Flow`] when no level has an operation that the flow needs;
    /// [`IrqError::NoVector`], [`IrqError::NoCpu`]; [`IrqError::Exhausted`] when all lines are taken. Nothing is
    /// left behind.
    pub fn alloc_line(&self, domain: &dyn IrqDomain, request: &AllocRequest, flow: Flow) -> Result<Irq, IrqError> {
        self.housekeep();
        let domains: Vec<&dyn IrqDomain> = core::iter::successors(Some(domain), |domain| domain.parent()).collect();
        for (index, line) in self.lines.iter().enumerate() {
            let mut state = line.state.lock();
            if state.phase == Phase::Free {
                let irq = Irq(index as u32);
                *state = LineState::free();
                line.counts.iter().for_each(|count| count.set(0));
                self.build(&mut state, irq, &domains, request, flow)?;
                return Ok(irq);
            }
        }
        Err(IrqError::Exhausted("interrupt lines", self.config.lines_max))
    }

    fn build(
        &self,
        state: &mut LineState,
        irq: Irq,
        domains: &[&dyn IrqDomain],
        request: &AllocRequest,
        flow: Flow,
    ) -> Result<(), IrqError> {
        let levels = allocate_levels(domains, request)?;
        let names = domains.iter().map(|domain| domain.name().to_string()).collect();
        let (chips, numbers): (Vec<_>, Vec<_>) = levels.iter().map(|level| (level.chip.clone(), level.hwirq)).unzip();
        let release = || chips.iter().zip(&numbers).for_each(|(chip, &number)| chip.release(number));
        let needs_vector = domains.last().is_some_and(|root| root.needs_vector()) && flow != Flow::PerCpu;
        let hardware = Hardware::new(irq, levels, names, flow, request, needs_vector).inspect_err(|_| release())?;
        hardware.mask();
        if flow == Flow::PerCpu {
            let here = Target::on(self.hal.cpu());
            activate(&hardware, domains, here).inspect_err(|_| release())?;
        } else {
            self.point(state, &hardware, domains, request).inspect_err(|_| release())?;
        }
        state.affinity = request.affinity.clone();
        state.retired = Vec::with_capacity(2);
        state.hardware = Some(Arc::new(hardware));
        state.flow = flow;
        state.phase = Phase::Live;
        state.storm.restart(self.hal.now_ns());
        Ok(())
    }

    /// Gives a new line its CPU, and its vector there if it needs one. A managed line without an online CPU gets it when one comes.
    fn point(
        &self,
        state: &mut LineState,
        hardware: &Hardware,
        domains: &[&dyn IrqDomain],
        request: &AllocRequest,
    ) -> Result<(), IrqError> {
        let target = {
            let mut matrix = self.matrix.lock();
            if hardware.is_reserved() {
                matrix.reserve(&request.affinity)?;
            }
            match matrix.target(&request.affinity, hardware) {
                Some(Ok(target)) => target,
                Some(Err(error)) => {
                    if hardware.is_reserved() {
                        matrix.unreserve(&request.affinity);
                    }
                    return Err(error);
                }
                None if request.managed => {
                    state.shutdown = true;
                    return Ok(());
                }
                None => return Err(IrqError::NoCpu(hardware.irq)),
            }
        };
        self.set_entry(target, Some(hardware.irq));
        if let Err(error) = activate(hardware, domains, target) {
            self.give_back(target, request.managed);
            if hardware.is_reserved() {
                self.matrix.lock().unreserve(&request.affinity);
            }
            return Err(error);
        }
        // A line that no level can move goes wherever the line goes that it is demultiplexed from.
        state.target = Some(target).filter(|_| hardware.is_movable());
        Ok(())
    }

    /// The target's vector, if it has one, is nobody's any more.
    pub(crate) fn give_back(&self, target: Target, managed: bool) {
        self.set_entry(target, None);
        if let Some(vector) = target.vector {
            self.matrix.lock().free(target.cpu, vector, managed);
        }
    }

    /// Frees a line. Its vector is given to another only once it cannot be pending any more.
    ///
    /// # Errors
    /// [`IrqError::InUse`] while it has handlers.
    pub fn free_line(&self, irq: Irq) -> Result<(), IrqError> {
        self.synchronize(irq)?;
        let line = self.line(irq)?;
        let mut state = line.state.lock();
        let hardware = state.live(irq)?;
        if !state.entries.is_empty() {
            return Err(IrqError::InUse(irq));
        }
        state.mask();
        hardware.levels.iter().for_each(|level| level.chip.release(level.hwirq));
        state.phase = Phase::Dying;
        // Without a vector too: an interrupt that was taken already may be on its way to this number.
        let last = state.target.take().unwrap_or(Target::on(self.hal.cpu()));
        self.retire(&mut state, last);
        self.bury(&mut state);
        Ok(())
    }

    /// Leaves `target`, which stays the line's until it cannot be pending any more.
    pub(crate) fn retire(&self, state: &mut LineState, target: Target) {
        let due_ns = self.hal.now_ns().saturating_add(self.config.flight_ns);
        state.retired.push(Retired { target, due_ns });
        self.schedule(target.cpu, due_ns);
    }

    /// Ends a line that is being freed once none of its vectors can come any more.
    pub(crate) fn bury(&self, state: &mut LineState) {
        if state.phase == Phase::Dying && state.retired.is_empty() {
            if state.hardware.as_ref().is_some_and(|hardware| hardware.is_reserved()) {
                self.matrix.lock().unreserve(&state.affinity);
            }
            state.phase = Phase::Free;
            state.hardware = None;
        }
    }

    /// Makes the line fire once more; a line that is shut down does when its CPUs are back.
    ///
    /// # Errors
    /// [`IrqError::NotSupported`] when no level can, or the hardware did not.
    pub fn retrigger(&self, irq: Irq) -> Result<(), IrqError> {
        let mut state = self.line(irq)?.state.lock();
        let hardware = state.live(irq)?;
        if state.shutdown {
            // Its chips still name a vector that it has left, of a CPU that is offline.
            state.pending = true;
        } else if !hardware.retrigger() {
            return Err(IrqError::NotSupported("retrigger"));
        }
        Ok(())
    }
}

/// Makes the hardware of every level deliver to `target`, from the CPU's level to the device's.
fn activate(hardware: &Hardware, domains: &[&dyn IrqDomain], target: Target) -> Result<(), IrqError> {
    let mut levels = domains.iter().enumerate().rev();
    levels.try_for_each(|(index, domain)| domain.activate(&hardware.level(index as u8), target))
}

/// Allocates in every domain, from the CPU's to the device's; the levels are in the order of `domains`.
fn allocate_levels(domains: &[&dyn IrqDomain], request: &AllocRequest) -> Result<Vec<LevelData>, IrqError> {
    let mut levels: Vec<LevelData> = Vec::with_capacity(domains.len());
    for domain in domains.iter().rev() {
        match domain.allocate(request) {
            Ok(level) => levels.push(level),
            Err(error) => {
                levels.iter().rev().for_each(|level| level.chip.release(level.hwirq));
                return Err(error);
            }
        }
    }
    levels.reverse();
    Ok(levels)
}

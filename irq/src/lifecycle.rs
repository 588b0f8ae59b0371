//! The life of a line: allocated, pointed at a CPU, freed.

use crate::delivery::IrqCore;
use crate::hardware::Hardware;
use crate::line::{LineState, Place, Retired, Shutdown};
use crate::{AllocRequest, Flow, Irq, IrqDomain, IrqError, LevelData, Target};
use alloc::sync::Arc;
use alloc::vec::Vec;
use hal::{Hal, Word as _};

impl<H: Hal> IrqCore<H> {
    /// Allocates a line in `domain` and in every domain towards the CPU. Gives it a vector on a CPU of its affinity,
    /// and points the hardware there. The line stays masked until a handler is requested.
    ///
    /// # Errors
    /// The error of a domain or chip that refuses; [`IrqError::Flow`] when no level has an operation that the flow
    /// needs; [`IrqError::NoVector`], [`IrqError::NoCpu`]; [`IrqError::Exhausted`] when all lines are taken. A failed
    /// call leaves nothing behind. If a level refused to point at the vector, the vector and the line's storage stay
    /// taken until the vector cannot arrive any more, as after [`IrqCore::free_line`].
    pub fn alloc_line(&self, domain: Arc<dyn IrqDomain>, request: &AllocRequest, flow: Flow) -> Result<Irq, IrqError> {
        self.housekeep();
        let domains: Vec<_> = core::iter::successors(Some(domain), |domain| domain.parent()).collect();
        let first = self.first_free.load();
        let (before, behind) = self.lines.split_at(first as usize);
        for (index, line) in (first as usize..).zip(behind).chain((0..).zip(before)) {
            let mut state = line.state.lock();
            if state.is_free() {
                let irq = Irq(index as u32);
                *state = LineState::free();
                line.counts.iter().for_each(|count| count.set(0));
                self.build(&mut state, irq, domains, request, flow)?;
                // If it is another by now, a line was freed or taken meanwhile.
                _ = self.first_free.compare_exchange(first, index as u64 + 1);
                return Ok(irq);
            }
        }
        Err(IrqError::Exhausted("interrupt lines", self.config.lines_max))
    }

    fn build(
        &self,
        state: &mut LineState,
        irq: Irq,
        domains: Vec<Arc<dyn IrqDomain>>,
        request: &AllocRequest,
        flow: Flow,
    ) -> Result<(), IrqError> {
        let levels = allocate_levels(&domains, request)?;
        let hardware = Arc::new(Hardware::new(irq, levels, domains, flow, request));
        state.affinity = request.affinity.clone();
        state.retired = Vec::with_capacity(2);
        state.flow = flow;
        let place = self.start(state, &hardware, request, flow).inspect_err(|_| hardware.release())?;
        state.allocate(hardware, place);
        state.storm.restart(self.hal.now_ns());
        Ok(())
    }

    /// Points the masked hardware of a new line at its first target, if its hierarchy can do the flow.
    fn start(
        &self,
        state: &mut LineState,
        hardware: &Arc<Hardware>,
        request: &AllocRequest,
        flow: Flow,
    ) -> Result<Place, IrqError> {
        hardware.check_flow(flow)?;
        hardware.mask();
        if flow == Flow::PerCpu {
            hardware.activate(Target::on(self.hal.cpu()))?;
            return Ok(Place::Unmovable);
        }
        self.point(state, hardware, request)
    }

    /// Gives a new line its CPU, and a vector there if it needs one. A managed line waits if none of its CPUs is
    /// online.
    fn point(
        &self,
        state: &mut LineState,
        hardware: &Arc<Hardware>,
        request: &AllocRequest,
    ) -> Result<Place, IrqError> {
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
                None if request.managed => return Ok(Place::ShutDown(Shutdown::New)),
                None => return Err(IrqError::NoCpu(hardware.irq)),
            }
        };
        self.set_entry(target, Some(hardware.irq));
        if let Err(error) = hardware.activate(target) {
            self.abandon(state, hardware.clone(), target);
            return Err(error);
        }
        // A line that no level can move is delivered where its parent line is delivered.
        Ok(if hardware.is_movable() { Place::At(target) } else { Place::Unmovable })
    }

    /// Gives up a new line that its hardware did not point at `target`. A controller that failed half-way may already
    /// have sent a message there, and may remember the route.
    fn abandon(&self, state: &mut LineState, hardware: Arc<Hardware>, target: Target) {
        state.allocate(hardware, Place::At(target));
        state.begin_freeing();
        self.leave_target(state, target);
        self.finish_freeing(state);
    }

    /// Clears the table entry of the target's vector, if it has one.
    pub(crate) fn give_back(&self, target: Target, managed: bool) {
        self.set_entry(target, None);
        if let Some(identity) = target.identity {
            self.matrix.lock().free(target.cpu, identity, managed);
        }
    }

    /// Frees a line. Its vector is given to another only once it cannot be pending any more; the number of a line without a
    /// vector, once each CPU has looked after its lines ([`IrqCore::housekeep`]).
    ///
    /// # Errors
    /// [`IrqError::InUse`] while it has handlers, [`IrqError::EnabledOn`] while a CPU has a per-CPU line enabled.
    pub fn free_line(&self, irq: Irq) -> Result<(), IrqError> {
        self.synchronize(irq)?;
        let line = self.line(irq)?;
        let mut state = line.state.lock();
        let hardware = state.live(irq)?;
        if !state.entries.is_empty() {
            return Err(IrqError::InUse(irq));
        }
        if let Some(cpu) = state.percpu_enabled.iter().next() {
            return Err(IrqError::EnabledOn(irq, cpu));
        }
        state.mask();
        hardware.release();
        match state.begin_freeing().filter(|last| last.identity.is_some()) {
            Some(last) => self.retire(&mut state, last),
            // Any CPU may have taken an interrupt already, and be on its way to this line number.
            None => {
                let online = self.matrix.lock().online();
                online.iter().for_each(|cpu| self.retire(&mut state, Target::on(cpu)));
            }
        }
        self.finish_freeing(&mut state);
        Ok(())
    }

    /// Retires `target`: the line keeps it until it can no longer be pending.
    pub(crate) fn retire(&self, state: &mut LineState, target: Target) {
        let due_ns = self.hal.now_ns().saturating_add(self.config.flight_ns);
        state.retired.push(Retired { target, due_ns });
        self.schedule(target.cpu, due_ns);
    }

    /// Completes the freeing of a line once none of its vectors can arrive any more.
    pub(crate) fn finish_freeing(&self, state: &mut LineState) {
        if state.is_being_freed() && state.retired.is_empty() {
            if let Some(hardware) = state.hardware() {
                if hardware.is_reserved() {
                    self.matrix.lock().unreserve(&state.affinity);
                }
                self.note_free(hardware.irq);
            }
            state.forget();
        }
    }

    /// The next search for a free line begins with this one, or before it.
    fn note_free(&self, irq: Irq) {
        let mut first = self.first_free.load();
        while first > irq.0.into()
            && let Err(now) = self.first_free.compare_exchange(first, irq.0.into())
        {
            first = now;
        }
    }

    /// Makes the line fire once more. A line that is shut down fires when one of its CPUs is back online.
    ///
    /// # Errors
    /// [`IrqError::NotSupported`] when no level can retrigger, or when the hardware did not.
    pub fn retrigger(&self, irq: Irq) -> Result<(), IrqError> {
        let mut state = self.line(irq)?.state.lock();
        let hardware = state.live(irq)?;
        if state.is_shut_down() {
            // The line's chips still name a vector that it has left, on an offline CPU.
            state.pending = true;
        } else if !hardware.retrigger() {
            return Err(IrqError::NotSupported("retrigger"));
        }
        Ok(())
    }
}

/// Allocates in every domain, from the CPU's to the device's; the levels are in the order of `domains`.
fn allocate_levels(domains: &[Arc<dyn IrqDomain>], request: &AllocRequest) -> Result<Vec<LevelData>, IrqError> {
    let mut levels: Vec<LevelData> = Vec::with_capacity(domains.len());
    for domain in domains.iter().rev() {
        match domain.allocate(request) {
            Ok(level) => levels.push(level),
            Err(error) => {
                let allocated = domains[domains.len() - levels.len()..].iter().zip(levels.iter().rev());
                allocated.for_each(|(domain, level)| domain.release(level.hwirq));
                return Err(error);
            }
        }
    }
    levels.reverse();
    Ok(levels)
}

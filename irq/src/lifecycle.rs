//! The life of a line: allocated, requested, enabled and disabled, freed.

use crate::delivery::IrqCore;
use crate::line::{Entry, Hardware, LineState, Phase, Retired};
use crate::{Action, AllocRequest, Flow, Irq, IrqDomain, IrqError, LevelData, Target};
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use hal::{Hal, Word};

/// How long a wait that no word announces sleeps between looks.
const RELAX_NS: u64 = 1_000;

/// How a handler is installed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RequestFlags {
    /// Others may have a handler on the line too, if they all say so.
    pub shared: bool,
    /// The line starts disabled, to be enabled with [`IrqCore::enable`]. Only for the first handler.
    pub start_disabled: bool,
}

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

    /// Installs a handler; the first one starts the line.
    ///
    /// # Errors
    /// [`IrqError::NotShared`] when the line has a handler and not both share.
    pub fn request(
        &self,
        irq: Irq,
        name: impl Into<String>,
        flags: RequestFlags,
        action: Arc<dyn Action>,
    ) -> Result<(), IrqError> {
        let entry = Entry { name: name.into(), shared: flags.shared, action };
        let mut state = self.line(irq)?.state.lock();
        state.live(irq)?;
        if state.entries.iter().any(|other| !(other.shared && flags.shared)) {
            return Err(IrqError::NotShared(irq));
        }
        if state.entries.is_empty() {
            state.depth = u32::from(flags.start_disabled);
            state.storm.restart(self.hal.now_ns());
        }
        state.entries.push(entry);
        state.refresh_actions();
        state.unmask();
        Ok(())
    }

    /// Removes a handler and waits until it runs no more; the last one stops the line. Not to be called by a handler of
    /// a per-CPU line, which cannot be told apart and would wait for itself.
    ///
    /// # Errors
    /// [`IrqError::NoAction`] when it is not installed, [`IrqError::InHandler`] from a handler of the line.
    pub fn free(&self, irq: Irq, action: &Arc<dyn Action>) -> Result<(), IrqError> {
        self.check_not_in_handler(irq)?;
        let line = self.line(irq)?;
        let (removed, former) = {
            let mut state = line.state.lock();
            state.live(irq)?;
            let is_it = |entry: &Entry| core::ptr::addr_eq(Arc::as_ptr(&entry.action), Arc::as_ptr(action));
            let index = state.entries.iter().position(is_it).ok_or(IrqError::NoAction(irq))?;
            let removed = state.entries.remove(index);
            let former = state.ready.take();
            state.refresh_actions();
            if state.entries.is_empty() {
                state.mask();
                state.pending = false;
            }
            (removed, former)
        };
        self.synchronize(irq)?;
        // A per-CPU line is never in progress: its handlers hold on to their list while they run.
        while former.as_ref().is_some_and(|former| Arc::strong_count(former) > 1) {
            self.hal.relax_on(&line.running, 0, self.hal.now_ns().saturating_add(RELAX_NS));
        }
        // The last reference may be this one: a handler's drop runs without the lock.
        drop(removed);
        Ok(())
    }

    /// Waits until no handler of the line runs that ran when this was called. Per-CPU lines keep no such state: of
    /// those only [`IrqCore::free`] waits.
    ///
    /// # Errors
    /// [`IrqError::InHandler`] from a handler of the line, which would wait for itself.
    pub fn synchronize(&self, irq: Irq) -> Result<(), IrqError> {
        self.check_not_in_handler(irq)?;
        let line = self.line(irq)?;
        loop {
            match line.running.load() {
                0 => return Ok(()),
                running => self.hal.relax_on(&line.running, running, u64::MAX),
            }
        }
    }

    /// Handlers run with interrupts off: whoever runs on the handler's CPU was called by it.
    fn check_not_in_handler(&self, irq: Irq) -> Result<(), IrqError> {
        let line = self.line(irq)?;
        let off = self.hal.irq_save();
        let mine = line.running.get() == u64::from(self.hal.cpu().0) + 1;
        self.hal.irq_restore(off);
        if mine { Err(IrqError::InHandler(irq)) } else { Ok(()) }
    }

    /// Disables the line, and waits until its handlers run no more. Nests.
    ///
    /// # Errors
    /// [`IrqError::InHandler`] from a handler of the line: use [`IrqCore::disable_nosync`] there.
    pub fn disable(&self, irq: Irq) -> Result<(), IrqError> {
        self.check_not_in_handler(irq)?;
        self.disable_nosync(irq)?;
        self.synchronize(irq)
    }

    /// Disables the line without waiting. What comes meanwhile is kept for [`IrqCore::enable`].
    ///
    /// # Errors
    /// [`IrqError::NoLine`].
    pub fn disable_nosync(&self, irq: Irq) -> Result<(), IrqError> {
        let mut state = self.line(irq)?.state.lock();
        state.live(irq)?;
        state.depth += 1;
        state.mask();
        Ok(())
    }

    /// Undoes one disable; the last one lets interrupts come again.
    ///
    /// # Errors
    /// [`IrqError::NotDisabled`] without a disable to undo.
    pub fn enable(&self, irq: Irq) -> Result<(), IrqError> {
        let mut state = self.line(irq)?.state.lock();
        state.live(irq)?;
        state.depth = state.depth.checked_sub(1).ok_or(IrqError::NotDisabled(irq))?;
        state.unmask();
        Ok(())
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

//! The state of models and local APICs as it is, for checkers that run on the machine's own CPUs.

use super::current;
use crate::model::ModelId;
use crate::world::World;
use hal::{Affinity, ThreadId};

/// Calls `look` with a model of this host thread's machine. Takes no simulated time and is no point of the seam, so
/// `look` sees the model as it is between two events: without register writes that are still on their way. `None`
/// without a machine, or if the model is of another type. Not for observers.
pub fn inspect<M: 'static, R>(model: ModelId, look: impl FnOnce(&M, &World<'_>) -> R) -> Option<R> {
    let mut seen = None;
    current::try_with(|core| {
        let mut slot = core.board.model(model).borrow_mut();
        let found = slot.as_any().downcast_ref();
        seen = found.map(|found| look(found, &World::new(&core.board, model)));
    });
    seen
}

/// Waits until the posted writes to `model` have arrived, as a CPU waits that reads one of its registers; but reads none,
/// since a read may change what it reads. Nothing happens without a machine.
pub fn push_writes(model: ModelId) {
    current::try_with(|core| {
        core.board.owe(core.push_writes(model));
        core.settle();
    });
}

/// Where `thread` may run, as it was asked for last. `None` without a machine or such a thread.
pub fn affinity_of(thread: ThreadId) -> Option<Affinity> {
    let mut seen = None;
    current::try_with(|core| seen = core.threads.affinity(thread));
    seen
}

/// A register of a CPU's local APIC, at the place that it has in the APIC's mode, as it is. `None` without a machine, such a CPU or such
/// a register.
pub fn peek_lapic(cpu: u32, register: u32) -> Option<u64> {
    let mut seen = None;
    current::try_with(|core| {
        let cpu = core.board.cpus.real().get(cpu as usize);
        seen = cpu.and_then(|cpu| core.board.controller().read(&core.board, cpu, register).ok());
    });
    seen
}

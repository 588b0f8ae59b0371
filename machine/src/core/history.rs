//! Entries that a harness on the machine's own CPUs adds to the observed history.

use super::{Core, current};
use crate::event::{ModelId, PLUG};
use crate::observe::Fact;
use crate::world::World;

/// Adds a harness entry to the observer's stream: a command submitted, a line freed. Does nothing without an observer,
/// or on a host thread without a machine. Takes no simulated time and is no point of the seam.
pub fn mark(tag: u32, value: u64) {
    current::try_with(|core| core.board.tell_of_cpu(|cpu| Fact::Mark { cpu, tag, value }));
}

/// Ends the current run of this host thread's machine now, as its end would. Takes no simulated time.
pub fn stop_run() {
    current::try_with(|core| core.board.clock.stop_at(core.board.local_now()));
}

/// Declares a CPU offline or online for the observer. Hardware has no such state, so only the harness knows from when
/// on no interrupt may be delivered there.
pub fn declare_cpu(cpu: u32, online: bool) {
    current::try_with(|core| core.board.tell_of_cpu(|_| Fact::Declared { cpu, online }));
}

/// Pulls a device out, or puts it in, as a hand does: a model behind [`crate::outage::Unreliable`]. While it is out, its
/// registers read all ones, what is written to it is lost, and it writes and sends nothing. Put in, it has just got its
/// power. It takes no simulated time and is no point of the seam.
pub fn plug(device: ModelId, present: bool) {
    current::try_with(|core| {
        let at = core.board.local_now();
        World::new(&core.board, device).schedule(at, PLUG, present.into());
    });
}

/// The running thread is this agent of the directed schedule ([`crate::unrest::turns`]) from now on. Waits until all agents
/// have begun and the turn is its own. Without such a schedule it does nothing.
pub fn begin_agent(agent: u8) {
    current::try_with(|core| core.begin_agent(agent));
}

/// The running thread's agent has ended, with the threads that it started.
pub fn end_agent() {
    current::try_with(Core::end_agent);
}

/// 64 bits of the memory of this host thread's machine, as they are. An observer may call this in the middle of an
/// action. `None` without a machine, outside memory, or for an address that is not a multiple of 8.
pub fn peek64(address: u64) -> Option<u64> {
    let mut seen = None;
    current::try_with(|core| seen = core.board.memory_word(address, 8).ok().map(crate::word::Word::value));
    seen
}

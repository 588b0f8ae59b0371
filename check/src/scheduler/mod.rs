//! The scheduler of the machine and of the bare-metal images (`sched`), by its rules.
//!
//! A scheduler that nobody runs is given random steps, beside an oracle that knows the rules of its documentation
//! (`oracle.rs`, `rules.rs`). After each step both must agree in all that a caller can see. The steps come from threads of a
//! small machine, which is scheduled by the same code and must not lose their wakes.

mod clock;
mod desk;
mod oracle;
mod rig;
mod rules;
mod step;

pub use rig::SchedulerRig;
pub(crate) use rig::draw_topology;

use crate::draw::Draw;
use crate::subject::{Build, Subject};
use step::SchedulerStep;

/// The scheduler.
pub struct Scheduling;

/// Random threads on random CPUs.
pub static THREADS: Scheduling = Scheduling;

/// No fault of the hardware concerns it.
#[derive(Clone, Debug)]
pub enum NoFault {}

impl std::fmt::Display for NoFault {
    fn fmt(&self, _f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {}
    }
}

impl Subject for Scheduling {
    type Step = SchedulerStep;
    type Fault = NoFault;
    type Rig = SchedulerRig;

    fn name(&self) -> &'static str {
        "scheduler"
    }

    fn about(&self) -> &'static str {
        "threads, wakes, slices, affinities and CPUs that come and go, by the scheduler's rules"
    }

    fn transitions(&self) -> &'static [&'static str] {
        &[
            "held thread: goes elsewhere",
            "offline: a thread is held",
            "offline: a thread moved",
            "preempted: its slice was over",
            "preempted: within its slice",
            "pull: from another node",
            "pull: from the cache domain",
            "pull: from the node",
            "pull: only hot or bound threads",
            "slice: a thread went to an idle CPU",
            "spawn: by load",
            "wake: before the sleep",
            "wake: of a lent stack",
            "wake: to an idle sibling",
            "wake: to its waker",
        ]
    }

    fn draw_step(&self, draw: &mut Draw) -> SchedulerStep {
        SchedulerStep::draw(draw)
    }

    fn draw_fault(&self, kind: &'static str, _draw: &mut Draw) -> NoFault {
        unreachable!("there is no fault {kind}")
    }

    fn build(&self, build: &mut Build<'_, NoFault>) -> SchedulerRig {
        SchedulerRig::build(build)
    }
}

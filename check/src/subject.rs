//! What a stack must be able to do to be searched: yours behind `hal`, or ours.
//!
//! A [`Subject`] says what can be drawn: machines, steps of managers, faults. A [`Rig`] is one machine with the stack on
//! it. The runner does the rest: it draws, brings up, lets managers, faults and unrest loose, heals, waits, proves
//! that everything still works, and audits. All of it is told to checkers that hear what the hardware did
//! ([`crate::checkers`]); what they cannot see, a subject says by [`crate::mark::Mark`]s.

use crate::checkers::Checker;
use crate::coverage::Coverage;
use crate::draw::{Draw, Knobs};
use machine::time::Ps;
use machine::{Machine, MachineConfig};
use std::fmt;
use std::sync::Arc;

/// A stack under test on random machines.
pub trait Subject: Sync + 'static {
    /// Something that a manager does. It is drawn without knowing the machine: whatever counts lines, queues or CPUs
    /// is taken round, so that a smaller machine has the same history.
    type Step: Clone + fmt::Display + Send + 'static;
    /// Something that goes wrong with the hardware for a while.
    type Fault: Clone + fmt::Display + 'static;
    /// A machine with the stack on it.
    type Rig: Rig<Step = Self::Step, Fault = Self::Fault>;

    /// Name of the scenario.
    fn name(&self) -> &'static str;

    /// What it is, in a line.
    fn about(&self) -> &'static str;

    /// Transitions that [`Rig::cover`] and the checkers count, so that those never seen are known.
    fn transitions(&self) -> &'static [&'static str] {
        &[]
    }

    /// Kinds of fault.
    fn fault_kinds(&self) -> &'static [&'static str] {
        &[]
    }

    /// Draws a step.
    fn draw_step(&self, draw: &mut Draw) -> Self::Step;

    /// Draws a fault of `kind`, one of [`Subject::fault_kinds`].
    fn draw_fault(&self, kind: &'static str, draw: &mut Draw) -> Self::Fault;

    /// Builds a machine, hangs its interrupt entry, and brings nothing up yet.
    fn build(&self, build: &mut Build<'_, Self::Fault>) -> Self::Rig;

    /// After everything is healed the rest of the load may take this long, and what proves that all still works.
    fn bound(&self) -> Ps {
        Ps::from_ns(50_000_000)
    }

    /// And before that, what managers are at: longer than the deadlines that the code under test sets itself.
    fn step_bound(&self) -> Ps {
        self.bound()
    }
}

/// What a machine is built from.
pub struct Build<'a, F> {
    /// To draw the machine with.
    pub knobs: &'a mut Knobs,
    /// The machine's seed.
    pub seed: u64,
    /// Faults that will happen.
    pub faults: Vec<F>,
    pub(crate) machine: MachineConfig,
}

impl<F> Build<'_, F> {
    /// Seed, unrest and trace of the machine; the rest is the subject's.
    pub fn machine(&self) -> MachineConfig {
        self.machine.clone()
    }
}

/// A machine with a stack on it.
pub trait Rig {
    /// See [`Subject::Step`].
    type Step;
    /// See [`Subject::Fault`].
    type Fault;
    /// What the machine's threads share of the stack.
    type Stack: Send + Sync + 'static;

    /// The machine.
    fn machine(&mut self) -> &mut Machine;

    /// Brings the stack up ([`Machine::run_boot`]).
    ///
    /// # Panics
    /// When it does not come up: nothing disturbs it yet.
    fn bring_up(&mut self);

    /// The stack, once it is up.
    fn stack(&self) -> Arc<Self::Stack>;

    /// Checkers beside those that every history has (commands, ends, handlers). The stack is up.
    fn checkers(&mut self) -> Vec<Box<dyn Checker>> {
        Vec::new()
    }

    /// Starts the load: threads of the machine, that end by themselves.
    fn start_load(&mut self);

    /// A manager does a step, in a thread of the machine. Managers know nothing of each other.
    fn apply(stack: &Arc<Self::Stack>, step: &Self::Step);

    /// The machine stands still; from now on the fault is there.
    fn inject(&mut self, fault: &Self::Fault);

    /// From now on it is not.
    fn heal(&mut self, fault: &Self::Fault);

    /// Every manager has ended and every fault is healed. Undoes what managers left behind: what was disabled, lent,
    /// taken offline, unbound.
    fn settle(&mut self) {}

    /// Whether all of the load has completed.
    fn is_done(&self) -> bool;

    /// Starts a last load on everything that there is; only interrupts may carry it, no timeout. That it completes
    /// proves that nothing is stuck.
    fn prove(&mut self);

    /// Everything has completed: what must hold when nothing is under way. [`crate::verdict::violate`], or a panic,
    /// says that it does not. What checkers could not count is counted here.
    fn audit(&mut self);

    /// Counts the transitions that the stack's own counters know.
    fn cover(&mut self, coverage: &mut Coverage);

    /// The stack's state, for people.
    fn describe(&self) -> String;
}

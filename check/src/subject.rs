//! The interface of a stack under test: yours behind `hal`, or ours.
//!
//! A [`Subject`] defines the possible machines, steps of managers, and faults. A [`Rig`] is one machine with the stack
//! on it. The runner does the rest: it draws, brings up, starts managers, faults and unrest, heals, waits, proves that
//! everything still works, and audits. Meanwhile checkers hear the facts of the hardware ([`crate::checkers`]). A
//! subject reports other events by [`crate::mark::Mark`]s.

use crate::checkers::Checker;
use crate::coverage::Coverage;
use crate::draw::{Draw, Knobs};
use crate::mark::Mark;
use machine::observe::Fact;
use machine::time::Ps;
use machine::{Machine, MachineConfig};
use std::fmt;
use std::sync::Arc;

/// A stack under test on random machines.
pub trait Subject: Sync + 'static {
    /// One step of a manager. It is drawn without knowing the machine: numbers of lines, queues or CPUs count modulo
    /// their number, so a smaller machine has the same history.
    type Step: Clone + fmt::Display + Send + 'static;
    /// A temporary fault of the hardware.
    type Fault: Clone + fmt::Display + 'static;
    /// A machine with the stack on it.
    type Rig: Rig<Step = Self::Step, Fault = Self::Fault>;

    /// Name of the scenario.
    fn name(&self) -> &'static str;

    /// A description in one line.
    fn about(&self) -> &'static str;

    /// Transitions that [`Rig::cover`] and the checkers count. The report then shows which were never seen.
    fn transitions(&self) -> &'static [&'static str] {
        &[]
    }

    /// Kinds of fault.
    fn fault_kinds(&self) -> &'static [&'static str] {
        &[]
    }

    /// Kinds that are drawn more seldom, since little else can happen under them. Whether they exist does not change the
    /// draws of the others.
    fn is_rare(&self, _kind: &str) -> bool {
        false
    }

    /// Draws a step.
    fn draw_step(&self, draw: &mut Draw) -> Self::Step;

    /// Draws a step that takes a device away and brings it back; none for a subject whose devices stay. Such steps come in
    /// addition to the others, and do not change their draws.
    fn draw_removal(&self, _draw: &mut Draw) -> Option<Self::Step> {
        None
    }

    /// Draws a step on a device that not every machine has; none for a subject without such a device. They come in addition
    /// too, behind the removals.
    fn draw_beside(&self, _draw: &mut Draw) -> Option<Self::Step> {
        None
    }

    /// Draws a fault of `kind`, one of [`Subject::fault_kinds`].
    fn draw_fault(&self, kind: &'static str, draw: &mut Draw) -> Self::Fault;

    /// False for a step that ends commands with an error, or whose commands depend on the time: histories that are compared
    /// ([`crate::metamorphic`]) have none.
    fn is_comparable(&self, _step: &Self::Step) -> bool {
        true
    }

    /// Small machines and their operations, for the systematic search ([`crate::systematic`]). Their bring-up can meet a setback
    /// ([`crate::setbacks`]).
    fn benches(&self) -> Vec<Bench<Self::Step>> {
        Vec::new()
    }

    /// Faults of the enumeration of single faults ([`crate::single`]).
    fn singles(&self) -> Vec<Single<Self::Fault>> {
        Vec::new()
    }

    /// Builds a machine and installs its interrupt entry. Does not bring the stack up.
    fn build(&self, build: &mut Build<'_, Self::Fault>) -> Self::Rig;

    /// After everything is healed, the rest of the load may take this long, and so may the proof that all still works.
    fn bound(&self) -> Ps {
        Ps::from_ns(50_000_000)
    }

    /// Before that, the managers' present steps may take this long: longer than the deadlines of the code under test.
    fn step_bound(&self) -> Ps {
        self.bound()
    }
}

/// A small machine under a trickle of interrupts, and operations whose every interleaving is tried.
#[derive(Clone, Debug)]
pub struct Bench<T> {
    /// Its name.
    pub name: &'static str,
    /// Knobs of the machine and its load; the others are those of seed 1.
    pub set: Vec<(&'static str, String)>,
    /// Steps done one after the other before the load begins.
    pub before: Vec<T>,
    /// Operations by name. Agent n does its own on CPU n.
    pub operations: Vec<(&'static str, T)>,
    /// Pairs of operations, by name; none: every pair, an operation with itself included.
    pub pairs: Option<Vec<[&'static str; 2]>>,
    /// Triples of operations, by name.
    pub triples: Vec<[&'static str; 3]>,
    /// How the names of the single faults begin that it is for; empty: all.
    pub faults: &'static str,
}

impl<T> Bench<T> {
    /// A machine whose knobs are written as `--set` takes them.
    ///
    /// # Panics
    /// At a setting that is no `NAME=VALUE`.
    pub fn new(name: &'static str, set: &[&'static str]) -> Self {
        let list = set.iter().flat_map(|list| list.split(',')).filter(|pair| !pair.is_empty());
        let pairs = list.map(|pair| pair.split_once('=').expect("NAME=VALUE"));
        let set = pairs.map(|(name, value)| (name, value.to_owned())).collect();
        Self { name, set, before: Vec::new(), operations: Vec::new(), pairs: None, triples: Vec::new(), faults: "" }
    }
}

/// A fault that strikes once, at every position where it can.
#[derive(Clone, Debug)]
pub struct Single<F> {
    /// Its kind, or a name of its own.
    pub kind: &'static str,
    /// The fault.
    pub fault: F,
    /// What it strikes.
    pub strikes: Strikes<F>,
}

/// What a single fault strikes.
#[derive(Clone, Debug)]
pub enum Strikes<F> {
    /// What it meets first from its injection on. It tells so, by [`Fact::Struck`] or [`Fact::Tampered`], and is healed.
    Next,
    /// As [`Self::Next`], and what it meets behind that, such as the second try: so many in all.
    Times(usize),
    /// As [`Self::Next`], but the fault ends by itself, after a time of its own. This fault meets the same and has no end.
    NextOf(F),
    /// It acts at its injection, just behind each fact of the first kind. A fact of the second kind at that time shows that it
    /// did something.
    Behind(fn(&Fact) -> bool, fn(&Fact) -> bool),
}

/// A fault that the hardware tells of, or the harness ([`Mark::Struck`]).
pub fn is_struck(fact: &Fact) -> bool {
    match *fact {
        Fact::Struck { .. } | Fact::Tampered { .. } => true,
        Fact::Mark { tag, .. } => Mark::from_tag(tag) == Some(Mark::Struck),
        _ => false,
    }
}

/// The inputs for building a machine.
pub struct Build<'a, F> {
    /// The knobs from which the machine is drawn.
    pub knobs: &'a mut Knobs,
    /// The machine's seed.
    pub seed: u64,
    /// Faults that will happen.
    pub faults: Vec<F>,
    /// The load must be the same, whatever time its commands take.
    pub comparable: bool,
    /// Its bring-up may meet a setback.
    pub(crate) may_be_set_back: bool,
    pub(crate) machine: MachineConfig,
}

impl<F> Build<'_, F> {
    /// Seed, unrest and trace of the machine. The subject chooses the rest.
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
    /// The part of the stack that the machine's threads share.
    type Stack: Send + Sync + 'static;

    /// The machine.
    fn machine(&mut self) -> &mut Machine;

    /// Brings the stack up ([`Machine::run_boot`]).
    ///
    /// # Panics
    /// Panics if it does not come up: no fault disturbs it yet.
    fn bring_up(&mut self);

    /// The stack, once it is up.
    fn stack(&self) -> Arc<Self::Stack>;

    /// Checkers beside those that every history has (commands, ends, handlers). The stack is up.
    fn checkers(&mut self) -> Vec<Box<dyn Checker>> {
        Vec::new()
    }

    /// Starts the load: threads of the machine that end by themselves.
    fn start_load(&mut self);

    /// A manager executes a step, in a thread of the machine. Managers do not know of each other.
    fn apply(stack: &Arc<Self::Stack>, step: &Self::Step);

    /// Injects a fault. The machine stands still.
    fn inject(&mut self, fault: &Self::Fault);

    /// Heals it.
    fn heal(&mut self, fault: &Self::Fault);

    /// Every manager has ended and every fault is healed. Undoes the lasting effects of managers: disabled or lent
    /// lines, offline CPUs, unbound drivers.
    fn settle(&mut self) {}

    /// True if all of the load has completed.
    fn is_done(&self) -> bool;

    /// A digest of what the load's commands found, in whatever order. All of the load has completed.
    fn found(&self) -> u64 {
        0
    }

    /// Starts a last load on all queues and devices. Only interrupts may carry it, no timeout. If it completes,
    /// nothing is stuck.
    fn prove(&mut self);

    /// Checks the stack at rest, after everything has completed. Reports a failure by [`crate::verdict::violate`] or a
    /// panic. Counts whatever the checkers could not count.
    fn audit(&mut self);

    /// Counts the transitions that the stack's own counters know.
    fn cover(&mut self, coverage: &mut Coverage);

    /// The stack's state, for people.
    fn describe(&self) -> String;
}

//! Histories of a small machine: operations in the order of a schedule, or one after the other under a single fault.

use super::{Failure, LOOK, Live};
use crate::checkers::{Checker, Findings, Topic};
use crate::single::When;
use crate::subject::{Rig, Subject};
use hal::{Affinity, CpuId, ThreadSpec, Threads as _};
use machine::SimHal;
use machine::observe::Fact;
use machine::time::Ps;
use machine::unrest::turns::Schedule;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Operations of a small machine.
pub(super) struct Directed<T> {
    pub(super) before: Vec<T>,
    pub(super) operations: Vec<T>,
    /// Each is done by an agent of its own, in this order; none: one after the other.
    pub(super) schedule: Option<Schedule>,
    /// When the only fault of the history lasts, if it has one.
    pub(super) window: Option<Window>,
}

impl<T> Directed<T> {
    /// Its bring-up meets a setback.
    pub(super) fn has_setback(&self) -> bool {
        matches!(self.window, Some(Window { when: When::Spared(_), .. }))
    }
}

/// When a single fault strikes.
pub(super) struct Window {
    /// The facts behind which it may be injected, if it acts at its injection.
    pub(super) behind: Option<fn(&Fact) -> bool>,
    /// The facts that show that it did something.
    pub(super) acts: fn(&Fact) -> bool,
    /// How often it acts before it is healed.
    pub(super) acts_times: usize,
    pub(super) when: When,
}

/// What comes after the operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// The end that every history has.
    End,
    /// Nothing: what was wanted is known.
    Over,
}

/// Notes the times of facts.
struct Occasions {
    behind: Option<fn(&Fact) -> bool>,
    acts: fn(&Fact) -> bool,
    occasions: Rc<RefCell<Vec<Ps>>>,
    struck: Rc<RefCell<Vec<Ps>>>,
    /// The operations have not ended.
    notes: Rc<Cell<bool>>,
    /// The fault is there.
    armed: Rc<Cell<bool>>,
}

impl Checker for Occasions {
    fn topics(&self) -> &'static [Topic] {
        &Topic::ALL
    }

    fn hear(&mut self, at: Ps, fact: &Fact, _findings: &mut Findings) {
        if self.notes.get() && self.behind.is_some_and(|behind| behind(fact)) {
            self.occasions.borrow_mut().push(at);
        }
        if self.armed.get() && (self.acts)(fact) {
            self.struck.borrow_mut().push(at);
        }
    }
}

/// Between two looks for what a fault has met.
const FIND_LOOK: Ps = Ps::from_ns(5_000);
/// What a fault does at its injection shows within this time.
const AT_ONCE: Ps = Ps::from_ns(1);

impl<S: Subject> Live<'_, S> {
    /// The preparation, the load, and the operations.
    pub(super) fn direct(&mut self, directed: Directed<S::Step>) -> Result<Next, Failure> {
        let Directed { before, operations, schedule, window } = directed;
        let steps = before.len();
        let left = self.spawn(vec![before], |_| {});
        self.wait_for(&left, steps, "preparation")?;
        self.rig.start_load();
        let (each, begin): (_, fn(u8)) = match schedule {
            Some(_) => (operations.into_iter().map(|operation| vec![operation]).collect(), machine::begin_agent),
            None => (vec![operations], |_| {}),
        };
        let Some(window) = window else {
            let steps = each.len();
            let left = self.spawn(each, begin);
            self.wait_for(&left, steps, "managers")?;
            return Ok(Next::End);
        };
        self.strike(each, begin, &window)
    }

    fn strike(&mut self, each: Vec<Vec<S::Step>>, begin: fn(u8), window: &Window) -> Result<Next, Failure> {
        let (notes, armed) = (Rc::new(Cell::new(true)), Rc::new(Cell::new(false)));
        let Window { behind, acts, acts_times, when } = *window;
        let (occasions, struck) = (self.occasions.clone(), self.struck.clone());
        let heard = (notes.clone(), armed.clone());
        let hears = Occasions { behind, acts, occasions, struck, notes: heard.0, armed: heard.1 };
        self.ledger.borrow_mut().extend(vec![Box::new(hears)]);
        let steps = each.iter().map(Vec::len).sum();
        let left = self.spawn(each, begin);
        match when {
            When::Never | When::Spared(_) => {}
            When::From(from) => {
                self.pass_until(from)?;
                armed.set(true);
                self.inject();
                let end = self.rig.machine().now() + self.bound_of(steps);
                while self.struck.borrow().len() < acts_times && left.load(Relaxed) > 0 {
                    let now = self.rig.machine().now();
                    if now >= end {
                        self.wait_for(&left, steps, "managers")?;
                    }
                    self.pass_until(now + FIND_LOOK)?;
                }
                return Ok(Next::Over);
            }
            When::During(from, until) => {
                self.pass_until(from)?;
                armed.set(true);
                self.inject();
                self.pass_until(if behind.is_some() { from + AT_ONCE } else { until })?;
                armed.set(behind.is_none());
                let what = self.plan.faults[0].what.clone();
                self.rig.heal(&what);
            }
        }
        self.wait_for(&left, steps, "managers")?;
        notes.set(false);
        let mut occasions = self.occasions.borrow_mut();
        occasions.sort_unstable();
        occasions.dedup();
        Ok(Next::End)
    }

    fn inject(&mut self) {
        let what = self.plan.faults[0].what.clone();
        *self.faults.entry(self.plan.faults[0].kind).or_default() += 1;
        self.rig.inject(&what);
    }

    /// A thread on each CPU does its steps. Returns how many have not ended.
    fn spawn(&mut self, each: Vec<Vec<S::Step>>, begin: fn(u8)) -> Arc<AtomicU32> {
        let left = Arc::new(AtomicU32::new(each.len() as u32));
        for (cpu, steps) in (0..).zip(each) {
            let (stack, left) = (self.rig.stack(), left.clone());
            let body = move || {
                begin(cpu);
                steps.iter().for_each(|step| S::Rig::apply(&stack, step));
                machine::end_agent();
                left.fetch_sub(1, Relaxed);
            };
            let affinity = Affinity::Cpu(CpuId(cpu.into()));
            SimHal.spawn(ThreadSpec { name: "agent", affinity, urgent: false }, Box::new(body)).expect("a CPU");
        }
        left
    }

    /// Operations follow each other, and each may take its bound.
    fn bound_of(&self, steps: usize) -> Ps {
        Ps(self.subject.step_bound().max(LOOK).0.saturating_mul(steps.max(1) as u64))
    }

    fn wait_for(&mut self, left: &Arc<AtomicU32>, steps: usize, checker: &'static str) -> Result<(), Failure> {
        let is_done = |_: &_| left.load(Relaxed) == 0;
        self.wait(self.bound_of(steps), checker, is_done, |_| "an operation has not ended".into())
    }
}

//! Histories of a small machine: operations in the order of a schedule, or one after the other under a single fault.

use super::{Failure, LOOK, Live};
use crate::checkers::{Checker, Findings};
use crate::subject::{Rig, Subject};
use hal::{Affinity, CpuId, ThreadSpec, Threads as _};
use machine::SimHal;
use machine::observe::Fact;
use machine::time::Ps;
use machine::unrest::turns::Schedule;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Operations of a small machine.
pub(super) struct Directed<T> {
    pub(super) before: Vec<T>,
    pub(super) operations: Vec<T>,
    pub(super) how: How,
}

/// How they are done.
pub(super) enum How {
    /// Each by an agent of its own, in the order of a schedule.
    InTurn(Schedule),
    /// One after the other, while the only fault of the history lasts.
    Alone(Window),
}

/// When a single fault strikes.
pub(super) struct Window {
    /// The facts at which it can strike.
    pub(super) strikes: fn(&Fact) -> bool,
    /// From when to when it lasts; none: never, and the times of those facts are noted.
    pub(super) lasts: Option<(Ps, Ps)>,
}

/// Notes the times of facts.
struct Occasions {
    strikes: fn(&Fact) -> bool,
    times: Rc<RefCell<Vec<Ps>>>,
}

impl Checker for Occasions {
    fn hear(&mut self, at: Ps, fact: &Fact, _findings: &mut Findings) {
        if (self.strikes)(fact) {
            self.times.borrow_mut().push(at);
        }
    }
}

impl<S: Subject> Live<'_, S> {
    /// The preparation, the load, and the operations.
    pub(super) fn direct(&mut self, directed: Directed<S::Step>) -> Result<(), Failure> {
        let Directed { before, operations, how } = directed;
        let left = self.spawn(vec![before], |_| {});
        self.wait_for(&left, "preparation")?;
        self.rig.start_load();
        match how {
            How::InTurn(_) => {
                let each = operations.into_iter().map(|operation| vec![operation]).collect();
                let left = self.spawn(each, machine::begin_agent);
                self.wait_for(&left, "managers")
            }
            How::Alone(window) => self.strike(operations, &window),
        }
    }

    fn strike(&mut self, operations: Vec<S::Step>, window: &Window) -> Result<(), Failure> {
        let times = Rc::new(RefCell::new(Vec::new()));
        let occasions = Occasions { strikes: window.strikes, times: times.clone() };
        self.ledger.borrow_mut().extend(vec![Box::new(occasions)]);
        let left = self.spawn(vec![operations], |_| {});
        if let Some((from, until)) = window.lasts {
            self.pass_until(from)?;
            let what = self.plan.faults[0].what.clone();
            *self.faults.entry(self.plan.faults[0].kind).or_default() += 1;
            self.rig.inject(&what);
            self.pass_until(until)?;
            self.rig.heal(&what);
        }
        self.wait_for(&left, "managers")?;
        self.occasions = times.take();
        self.occasions.sort_unstable();
        self.occasions.dedup();
        Ok(())
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

    fn wait_for(&mut self, left: &Arc<AtomicU32>, checker: &'static str) -> Result<(), Failure> {
        let is_done = |_: &_| left.load(Relaxed) == 0;
        // Operations follow each other, and each may take its bound.
        let bound = self.subject.step_bound().max(LOOK);
        self.wait(bound, checker, is_done, |_| "an operation has not ended".into())
    }
}

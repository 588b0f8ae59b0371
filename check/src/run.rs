//! One history, from its recipe to its verdict.

use crate::catch;
use crate::checkers::{Commands, Ends, Handlers, Ledger, Memory};
use crate::coverage::Coverage;
use crate::draw::{KnobError, Knobs};
use crate::history::{History, Recipe};
use crate::reach::Reach;
use crate::subject::{Build, Rig, Subject};
use crate::unrest;
use crate::verdict::{Failure, Kind};
use directed::{Directed, Next};
use hal::{Affinity, CpuId, Hal as _, ThreadId, ThreadSpec, Threads};
use machine::time::Ps;
use machine::trace::Span;
use machine::unrest::Unrest;
use machine::unrest::turns::Turn;
use machine::{MachineConfig, RunEnd, SimHal};
use plan::Plan;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

mod directed;
mod plan;
mod scenario;

pub use scenario::Scenario;

/// The knob of histories that can be compared.
pub(crate) const COMPARABLE: &str = "comparable";

/// Most managers of a history.
pub(crate) const MANAGERS_MAX: u32 = 3;

/// One history and its results.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The history as drawn.
    pub history: History,
    /// Its failure, if it failed.
    pub failure: Option<Failure>,
    /// Commands that the stack was given.
    pub ios: u64,
    /// Interrupts that CPUs took.
    pub interrupts: u64,
    /// What its load came to, if it ended.
    pub outcome: Option<Outcome>,
    /// The time at which the history began: the stack was up.
    pub started: Ps,
    /// Simulated time, bring-up included.
    pub simulated: Ps,
    /// Faults that were injected, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Transitions that were seen.
    pub coverage: Coverage,
    /// The machine's digest: equal for equal recipes.
    pub digest: u64,
    /// The trace, if one was asked for.
    pub spans: Vec<Span>,
    /// The stack's state at the failure.
    pub state: String,
    /// The turns of a directed schedule.
    pub turns: Vec<Turn>,
    /// The switches of a directed schedule that took place.
    pub switched: usize,
    /// The times at which a fault that acts at its injection may be injected.
    pub occasions: Vec<Ps>,
    /// The times at which a single fault did something.
    pub struck: Vec<Ps>,
    /// Its bring-up met a setback.
    pub set_back: bool,
    /// What it reached, if the recipe asks ([`crate::reach`]).
    pub reached: Vec<u32>,
}

/// What a load came to: what must not depend on how its interrupts are delivered, on the CPUs, or on times.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Outcome {
    /// Commands that completed.
    pub completed: u64,
    /// Commands that ended with an error.
    pub failed: u64,
    /// Over the numbers of those that completed.
    pub numbers: u64,
    /// Over what they found.
    pub found: u64,
}

/// Time between two looks at the findings of the checkers, so that a failure ends the history soon.
const LOOK: Ps = Ps::from_ns(100_000);

/// The approximate length of a bring-up. Unrest lasts for this long in addition to the history's span.
const BRING_UP_NS: u64 = 400_000;

fn run<S: Subject>(subject: &S, recipe: &Recipe, mut knobs: Knobs, plan: Plan<S>) -> Result<Run, KnobError> {
    let calm_from = Ps::from_ns(BRING_UP_NS + plan.span_ns);
    let (unrest, kinds) = match &plan.directed {
        Some(Directed { schedule: Some(schedule), .. }) => (Some(Unrest::directed(schedule.clone())), Vec::new()),
        Some(_) => (None, Vec::new()),
        None => unrest::draw(recipe, calm_from),
    };
    let machine = MachineConfig {
        seed: recipe.seed_of("load"),
        unrest,
        trace_spans_max: recipe.trace_spans_max,
        ..MachineConfig::default()
    };
    let faults = plan.faults.iter().map(|fault| fault.what.clone()).collect();
    let mut run = Run::default();
    run.coverage.name(subject.transitions());
    (run.history.events, run.history.unrest) = (plan.events(), kinds);
    let ledger = Rc::new(RefCell::new(Ledger::new(vec![
        Box::new(Commands::default()),
        Box::new(Ends::default()),
        Box::new(Handlers::default()),
        Box::new(Memory),
    ])));
    // Building draws the rest of the knobs.
    let (seed, comparable) = (recipe.seed_of("load"), plan.comparable);
    let may_be_set_back = !comparable && plan.directed.as_ref().is_none_or(Directed::has_setback);
    let build = &mut Build { knobs: &mut knobs, seed, faults, comparable, may_be_set_back, machine };
    let built = catch::panics(|| subject.build(build));
    run.history.knobs = knobs.finish()?;
    let mut rig = match built {
        Ok(rig) => rig,
        Err(failure) => return Ok(Run { failure: Some(failure), ..run }),
    };
    let at = Arc::new((0..plan.managers).map(|_| AtomicU32::new(0)).collect::<Vec<_>>());
    if recipe.reaches {
        let steps = run.history.events.iter().filter(|event| event.manager.is_some());
        let steps = steps.map(|event| (event.number, event.text.as_str()));
        ledger.borrow_mut().reach = Some(Reach::new(at.clone(), steps));
    }
    let heard = ledger.clone();
    rig.machine().set_observer(move |at, fact| heard.borrow_mut().hear(at, &fact));
    let mut live = Live {
        subject,
        rig,
        ledger,
        plan,
        calm_from,
        at,
        started: Ps(0),
        faults: BTreeMap::new(),
        outcome: None,
        occasions: Rc::default(),
        struck: Rc::default(),
        is_over: false,
        panicked: false,
    };
    let ended = catch::panics(|| live.go());
    live.panicked |= ended.is_err();
    let ended = ended.and_then(|ended| ended);
    // A finding of a checker came before the event that ended the history.
    let first = live.ledger.borrow().findings.failures.first().cloned();
    run.failure = first.or(ended.err());
    live.report(&mut run);
    Ok(run)
}

struct Live<'a, S: Subject> {
    subject: &'a S,
    rig: S::Rig,
    ledger: Rc<RefCell<Ledger>>,
    plan: Plan<S>,
    /// The schedule is undisturbed from then on.
    calm_from: Ps,
    /// The step number of each manager, 0 between steps.
    at: Arc<Vec<AtomicU32>>,
    started: Ps,
    faults: BTreeMap<&'static str, u64>,
    outcome: Option<Outcome>,
    /// See [`Run::occasions`].
    occasions: Rc<RefCell<Vec<Ps>>>,
    /// See [`Run::struck`].
    struck: Rc<RefCell<Vec<Ps>>>,
    /// What was wanted is known. The stack may hold locks, so nobody may ask it for its counts.
    is_over: bool,
    /// A panic went through a thread of the machine. The machine must not run again, not even to show its state.
    panicked: bool,
}

/// An action of the host at a time of the history.
enum Edge {
    Inject(usize),
    Heal(usize),
    Wake(u32),
}

/// The progress of the managers.
struct Managers {
    threads: Vec<ThreadId>,
    left: Arc<AtomicU32>,
}

impl<S: Subject> Live<'_, S> {
    fn go(&mut self) -> Result<(), Failure> {
        self.rig.bring_up();
        let (bound, ledger) = (self.subject.bound(), self.ledger.clone());
        let idle = |_: &_| ledger.borrow().running == 0;
        self.wait(bound, "bring-up", idle, |_| "some interrupt runs all the time".into())?;
        let checkers = self.rig.checkers();
        self.ledger.borrow_mut().extend(checkers);
        let start = self.rig.machine().now();
        self.started = start;
        match self.plan.directed.take() {
            Some(directed) => {
                self.is_over = self.direct(directed)? == Next::Over;
                if self.is_over {
                    return Ok(());
                }
            }
            None => self.disturb(start)?,
        }
        self.rig.settle();
        self.wait(bound, "load", |rig| rig.is_done(), |_| "the load has not ended".into())?;
        self.outcome = Some(self.outcome());
        self.rig.prove();
        self.wait(bound, "proof", |rig| rig.is_done(), |_| "a last load has not ended".into())?;
        let audit = |failure: Failure| match failure.kind {
            // The audit itself panicked.
            Kind::Crash => Failure { kind: Kind::Correctness, checker: "audit", ..failure },
            _ => failure,
        };
        if let Err(failure) = catch::panics(|| self.rig.audit()) {
            self.panicked = true;
            return Err(audit(failure));
        }
        let now = self.rig.machine().now();
        self.ledger.borrow_mut().end(now);
        Ok(())
    }

    fn outcome(&self) -> Outcome {
        let ledger = self.ledger.borrow();
        let (completed, failed, numbers) = (ledger.completed, ledger.failed, ledger.completed_digest);
        Outcome { completed, failed, numbers, found: self.rig.found() }
    }

    /// Managers and faults at the times that were drawn, under unrest, up to the end of all of them.
    fn disturb(&mut self, start: Ps) -> Result<(), Failure> {
        let managers = self.start_managers(start);
        self.rig.start_load();
        for (at, edge) in self.edges() {
            self.pass_until(start + Ps::from_ns(at))?;
            match edge {
                Edge::Inject(index) => {
                    let fault = &self.plan.faults[index];
                    self.tell_reach(fault.kind, true);
                    *self.faults.entry(fault.kind).or_default() += 1;
                    self.rig.inject(&fault.what);
                }
                Edge::Heal(index) => {
                    let fault = &self.plan.faults[index];
                    self.tell_reach(fault.kind, false);
                    self.rig.heal(&fault.what);
                }
                Edge::Wake(manager) => SimHal.wake(managers.threads[manager as usize]),
            }
        }
        self.pass_until(self.calm_from)?;
        let at = self.at.clone();
        self.wait(
            self.subject.step_bound(),
            "managers",
            |_| managers.left.load(Relaxed) == 0,
            |_| {
                let at = at.iter().map(|at| at.load(Relaxed)).filter(|&at| at > 0);
                format!("managers are stuck in steps {:?}", at.collect::<Vec<_>>())
            },
        )
    }

    fn tell_reach(&self, kind: &'static str, begins: bool) {
        if let Some(reach) = &mut self.ledger.borrow_mut().reach {
            reach.fault(kind, begins);
        }
    }

    /// Managers are threads that sleep until the host wakes them for a step.
    fn start_managers(&mut self, start: Ps) -> Managers {
        let count = self.plan.managers;
        let left = Arc::new(AtomicU32::new(count));
        let start_ns = start.as_ns();
        let spawn = |manager: u32| {
            let own = self.plan.steps.iter().filter(|step| step.manager == manager);
            let steps: Vec<_> = own.map(|step| (step.number, start_ns + step.at_ns, step.what.clone())).collect();
            let (stack, at, left) = (self.rig.stack(), self.at.clone(), left.clone());
            let body = move || {
                for (number, due_ns, step) in &steps {
                    while SimHal.now_ns() < *due_ns {
                        SimHal.park();
                    }
                    at[manager as usize].store(*number, Relaxed);
                    S::Rig::apply(&stack, step);
                    at[manager as usize].store(0, Relaxed);
                }
                left.fetch_sub(1, Relaxed);
            };
            // Each begins on another CPU, and may move to any CPU.
            let affinity = if manager == 0 { Affinity::Cpu(CpuId(0)) } else { Affinity::Any };
            SimHal.spawn(ThreadSpec { name: "manager", affinity, urgent: false }, Box::new(body)).expect("a CPU")
        };
        let threads = (0..count).map(spawn).collect();
        Managers { threads, left }
    }

    fn edges(&self) -> Vec<(u64, Edge)> {
        let mut edges: Vec<_> = self.plan.steps.iter().map(|step| (step.at_ns, Edge::Wake(step.manager))).collect();
        for (index, fault) in self.plan.faults.iter().enumerate() {
            edges.push((fault.from_ns, Edge::Inject(index)));
            edges.push((fault.until_ns, Edge::Heal(index)));
        }
        // A stable sort: actions of one time stay in the order in which they were drawn.
        edges.sort_by_key(|(at, _)| *at);
        edges
    }

    /// Lets time pass up to `end`, as long as no checker finds anything.
    fn pass_until(&mut self, end: Ps) -> Result<(), Failure> {
        while self.rig.machine().now() < end {
            let next = (self.rig.machine().now() + LOOK).min(end);
            let ended = self.rig.machine().run_until(next);
            self.judge(&ended)?;
            if ended == RunEnd::Quiet {
                return Ok(());
            }
        }
        Ok(())
    }

    fn judge(&mut self, ended: &RunEnd) -> Result<(), Failure> {
        if let Some(failure) = self.ledger.borrow().findings.failures.first() {
            return Err(failure.clone());
        }
        match ended {
            RunEnd::Time | RunEnd::Quiet => Ok(()),
            stuck => {
                let at = self.rig.machine().now();
                Err(Failure::new(Kind::Liveness, "spins", at, format!("{stuck:?}")))
            }
        }
    }

    /// Waits for an event that must come within `bound`.
    fn wait(
        &mut self,
        bound: Ps,
        checker: &'static str,
        is_done: impl Fn(&S::Rig) -> bool,
        text: impl Fn(&S::Rig) -> String,
    ) -> Result<(), Failure> {
        let end = self.rig.machine().now() + bound;
        loop {
            if is_done(&self.rig) {
                return Ok(());
            }
            let now = self.rig.machine().now();
            let ended = self.rig.machine().run_until((now + LOOK).min(end));
            self.judge(&ended)?;
            let stands = ended == RunEnd::Quiet || self.rig.machine().now() >= end;
            if stands && !is_done(&self.rig) {
                let now = self.rig.machine().now();
                let waited = format!("{}, healed for {bound}", text(&self.rig));
                return Err(Failure::new(Kind::Liveness, checker, now, waited));
            }
        }
    }

    fn report(mut self, run: &mut Run) {
        (run.faults, run.outcome, run.started) = (self.faults, self.outcome, self.started);
        (run.occasions, run.struck) = (self.occasions.take(), self.struck.take());
        run.simulated = self.rig.machine().now();
        run.digest = self.rig.machine().engine_counters().digest;
        (run.turns, run.switched) = self.rig.machine().turns();
        run.spans = self.rig.machine().take_spans();
        if run.failure.is_none() && !self.is_over {
            self.rig.cover(&mut run.coverage);
        } else if run.failure.is_some() && !self.panicked && !self.is_over {
            // The state may be anything now.
            run.state = catch::panics(|| self.rig.describe()).unwrap_or_default();
        }
        let mut ledger = self.ledger.borrow_mut();
        run.coverage.merge(&ledger.findings.coverage);
        run.reached = ledger.reach.take().map_or_else(Vec::new, |reach| reach.features(&run.coverage));
        (run.ios, run.interrupts, run.set_back) = (ledger.commands, ledger.interrupts, ledger.set_back);
    }
}

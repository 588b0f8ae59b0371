//! Scenarios: subjects of any type, behind one interface.

use super::directed::{Directed, Window};
use super::plan::{Fault, Plan, draw};
use super::{Run, run};
use crate::draw::{KnobError, Knobs};
use crate::history::Recipe;
use crate::setbacks::KINDS;
use crate::single::{Case, When};
use crate::subject::{Bench, Single, Strikes, Subject, is_struck};
use crate::systematic::{BenchNames, Strike, Task};
use machine::unrest::turns::Schedule;

/// A scenario, whatever its subject.
pub trait Scenario: Sync {
    /// Its name.
    fn name(&self) -> &'static str;
    /// A description in one line.
    fn about(&self) -> &'static str;
    /// Kinds of fault that it has.
    fn fault_kinds(&self) -> &'static [&'static str];
    /// Runs one history.
    ///
    /// # Errors
    /// A knob that was set wrongly.
    fn run(&self, recipe: &Recipe) -> Result<Run, KnobError>;
    /// The small machines of the systematic search, with the names of their operations.
    fn benches(&self) -> Vec<BenchNames>;
    /// Runs operations of a small machine in the order of a schedule.
    ///
    /// # Errors
    /// A knob that the machine does not have.
    fn direct(&self, task: &Task, schedule: &Schedule, trace_spans_max: usize) -> Result<Run, KnobError>;
    /// The small machines with each of their single faults.
    fn singles(&self) -> Vec<Case>;
    /// Runs all operations of a small machine, one after the other, with one fault.
    ///
    /// # Errors
    /// A knob that the machine does not have.
    fn single(&self, case: &Case, when: When, trace_spans_max: usize) -> Result<Run, KnobError>;
}

impl<S: Subject> Scenario for S {
    fn name(&self) -> &'static str {
        Subject::name(self)
    }
    fn about(&self) -> &'static str {
        Subject::about(self)
    }
    fn fault_kinds(&self) -> &'static [&'static str] {
        Subject::fault_kinds(self)
    }
    fn run(&self, recipe: &Recipe) -> Result<Run, KnobError> {
        let mut knobs = Knobs::new(recipe.seed_of("machine"), recipe.set.clone());
        let plan = draw(self, recipe, &mut knobs);
        run(self, recipe, knobs, plan)
    }
    fn benches(&self) -> Vec<BenchNames> {
        Subject::benches(self).iter().map(BenchNames::of).collect()
    }
    fn direct(&self, task: &Task, schedule: &Schedule, trace_spans_max: usize) -> Result<Run, KnobError> {
        let run = |struck: Option<(Window, Fault<S::Fault>)>| {
            let bench = Subject::benches(self).swap_remove(task.bench);
            let operations = task.operations.iter().map(|&index| bench.operations[index].1.clone()).collect();
            let (window, fault) = struck.unzip();
            small(self, bench, operations, (Some(schedule.clone()), window, fault), trace_spans_max)
        };
        match &task.strike {
            None => run(None),
            Some(Strike { case, number }) => case.nth(*number, |when| run(Some(injected(self, case, when)))),
        }
    }
    fn singles(&self) -> Vec<Case> {
        let (benches, singles) = (Subject::benches(self), Subject::singles(self));
        let of = |(bench, it): (usize, &Bench<S::Step>)| {
            let case = |(fault, single): (usize, &Single<S::Fault>)| {
                let lasts = matches!(single.strikes, Strikes::NextOf(_));
                let behind = matches!(single.strikes, Strikes::Behind(..));
                let acts_times = if let Strikes::Times(times) = single.strikes { times } else { 1 };
                let name = format!("{}/{}", it.name, single.kind);
                Case { bench, fault, lasts, behind, acts_times, sets_back: None, name }
            };
            let setback = |(kind, (_, name)): (u64, &(_, &str))| Case {
                name: format!("{}/{name}", it.name),
                sets_back: Some(kind),
                ..Case::at(bench)
            };
            let is_for = |(_, single): &(usize, &Single<S::Fault>)| single.kind.starts_with(it.faults);
            let setbacks = (1..).zip(&KINDS).filter(|_| it.faults.is_empty()).map(setback);
            singles.iter().enumerate().filter(is_for).map(case).chain(setbacks).collect::<Vec<_>>()
        };
        // Those for a few faults first: a minute may not see the end of all.
        let (few, all): (Vec<_>, Vec<_>) = benches.iter().enumerate().partition(|(_, it)| !it.faults.is_empty());
        few.into_iter().chain(all).flat_map(of).collect()
    }
    fn single(&self, case: &Case, when: When, trace_spans_max: usize) -> Result<Run, KnobError> {
        let mut bench = Subject::benches(self).swap_remove(case.bench);
        if let Some(kind) = case.sets_back {
            if let When::Spared(acts) = when {
                let set = [("setback", kind.to_string()), ("spared", acts.to_string())];
                bench.set.extend(set);
            }
            let alone = Window { behind: None, acts: is_struck, acts_times: 1, when };
            return small(self, bench, Vec::new(), (None, Some(alone), None), trace_spans_max);
        }
        let operations = bench.operations.iter().map(|(_, operation)| operation.clone()).collect();
        let (window, fault) = injected(self, case, when);
        small(self, bench, operations, (None, Some(window), Some(fault)), trace_spans_max)
    }
}

/// The fault of a case, and when it strikes.
fn injected<S: Subject>(subject: &S, case: &Case, when: When) -> (Window, Fault<S::Fault>) {
    let Single { kind, fault, strikes } = subject.singles().swap_remove(case.fault);
    let what = match (&strikes, when) {
        (Strikes::NextOf(endless), When::From(_)) => endless.clone(),
        _ => fault,
    };
    let (behind, acts) = match strikes {
        Strikes::Behind(behind, acts) => (Some(behind), acts),
        _ => (None, is_struck as fn(&_) -> _),
    };
    let window = Window { behind, acts, acts_times: case.acts_times, when };
    (window, Fault { number: 0, kind, from_ns: 0, until_ns: 0, what })
}

/// A history of a small machine.
fn small<S: Subject>(
    subject: &S,
    bench: Bench<S::Step>,
    operations: Vec<S::Step>,
    (schedule, window, fault): (Option<Schedule>, Option<Window>, Option<Fault<S::Fault>>),
    trace_spans_max: usize,
) -> Result<Run, KnobError> {
    let set = bench.set.into_iter().map(|(name, value)| (name.into(), value)).collect();
    let recipe = Recipe { trace_spans_max, ..Recipe::of(1) };
    let directed = Directed { before: bench.before, operations, schedule, window };
    let faults = fault.into_iter().collect();
    let plan = Plan { steps: Vec::new(), faults, managers: 0, span_ns: 0, comparable: false, directed: Some(directed) };
    run(subject, &recipe, Knobs::new(1, set), plan)
}

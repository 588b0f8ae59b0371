//! Runs tasks on all cores. A worker takes a whole task, so the result does not depend on the number of workers.

use super::explore::{Explored, explore};
use super::{STRIKES_MAX, Strike, Task};
use crate::parallel;
use crate::run::{Run, Scenario};
use crate::verdict::{Failure, Kind};
use machine::time::Ps;
use machine::unrest::turns::Schedule;
use serde::Serialize;

/// A search.
pub struct Search {
    /// The tasks, with their scenarios.
    pub tasks: Vec<(&'static dyn Scenario, Task)>,
    /// Most preemptions of a schedule.
    pub bound: usize,
    /// Most schedules of a task.
    pub budget: u64,
    /// Worker threads.
    pub jobs: usize,
}

/// A task and its result.
pub struct Verdict {
    /// Its scenario.
    pub scenario: &'static dyn Scenario,
    /// The task.
    pub task: Task,
    /// The result.
    pub explored: Explored,
}

impl Verdict {
    /// The line that runs the failing schedule again.
    pub fn replay(&self) -> Option<String> {
        let (schedule, _) = self.explored.failure.as_ref()?;
        Some(replay_line(self.scenario, &self.task, schedule))
    }
}

/// The line that runs one schedule.
pub(crate) fn replay_line(scenario: &dyn Scenario, task: &Task, schedule: &Schedule) -> String {
    let struck = task.strike.as_ref().map_or_else(String::new, |strike| format!(" --struck {strike}"));
    let operations = task.operations_name();
    format!("campanile check --scenario {} --systematic {operations}{struck} --schedule {schedule}", scenario.name())
}

/// One schedule of a task.
pub(crate) fn one(scenario: &dyn Scenario, task: &Task, schedule: &Schedule, trace_spans_max: usize) -> Run {
    scenario.direct(task, schedule, trace_spans_max).unwrap_or_else(|error| Run {
        failure: Some(Failure::new(Kind::Correctness, "input", Ps(0), error.to_string())),
        ..Run::default()
    })
}

/// Runs every task. The results are in the order of the tasks. A task under a fault is run with a strike at each of the first things
/// that the fault meets, and has a result for each.
///
/// # Panics
/// If a worker of this program fails, which is a defect of the program.
pub fn run(search: &Search) -> Vec<Verdict> {
    let all = |(scenario, task): &(&'static dyn Scenario, Task)| {
        let mut verdicts = vec![explored(search, *scenario, task.clone())];
        while let Some(next) = verdicts.last().and_then(next_strike) {
            verdicts.push(explored(search, *scenario, next));
        }
        verdicts
    };
    parallel::map(&search.tasks, "sets of operations", search.jobs, all).into_iter().flatten().collect()
}

/// The same with a strike at the next thing that the fault meets; none if it met nothing any more, or struck often enough.
fn next_strike(verdict: &Verdict) -> Option<Task> {
    let strike = verdict.task.strike.as_ref()?;
    let goes_on = verdict.explored.struck > 0 && verdict.explored.failure.is_none() && strike.number < STRIKES_MAX;
    let next = Strike { number: strike.number + 1, ..strike.clone() };
    goes_on.then(|| Task { strike: Some(next), ..verdict.task.clone() })
}

fn explored(search: &Search, scenario: &'static dyn Scenario, task: Task) -> Verdict {
    let agents = task.operations.len() as u8;
    let run = |schedule: &Schedule| one(scenario, &task, schedule, 0);
    // A fault that meets nothing where no agent is preempted is not tried any further.
    let first = task.strike.is_some().then(|| explore(agents, 0, search.budget, run));
    let idle = first.filter(|explored| explored.struck == 0);
    let explored = idle.unwrap_or_else(|| explore(agents, search.bound, search.budget, run));
    Verdict { scenario, task, explored }
}

/// The result for a JSON file.
pub fn document(verdicts: &[Verdict]) -> impl Serialize + use<> {
    #[derive(Serialize)]
    struct Row {
        scenario: &'static str,
        operations: String,
        #[serde(flatten)]
        explored: Explored,
        #[serde(skip_serializing_if = "Option::is_none")]
        failure: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        replay: Option<String>,
    }
    #[derive(Serialize)]
    struct Document {
        systematic: Vec<Row>,
    }
    let row = |verdict: &Verdict| Row {
        scenario: verdict.scenario.name(),
        operations: verdict.task.to_string(),
        failure: verdict.explored.failure.as_ref().map(|(_, failure)| failure.to_string()),
        replay: verdict.replay(),
        explored: verdict.explored.clone(),
    };
    Document { systematic: verdicts.iter().map(row).collect() }
}

//! Runs tasks on all cores. A worker takes a whole task, so the result does not depend on the number of workers.

use super::Task;
use super::explore::{Explored, explore};
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
pub struct Verdict<'a> {
    /// Its scenario.
    pub scenario: &'static dyn Scenario,
    /// The task.
    pub task: &'a Task,
    /// The result.
    pub explored: Explored,
}

impl Verdict<'_> {
    /// The line that runs the failing schedule again.
    pub fn replay(&self) -> Option<String> {
        let (schedule, _) = self.explored.failure.as_ref()?;
        Some(replay_line(self.scenario, self.task, schedule))
    }
}

/// The line that runs one schedule.
pub(crate) fn replay_line(scenario: &dyn Scenario, task: &Task, schedule: &Schedule) -> String {
    format!("campanile check --scenario {} --systematic {task} --schedule {schedule}", scenario.name())
}

/// One schedule of a task.
pub(crate) fn one(scenario: &dyn Scenario, task: &Task, schedule: &Schedule, trace_spans_max: usize) -> Run {
    scenario.direct(task, schedule, trace_spans_max).unwrap_or_else(|error| Run {
        failure: Some(Failure::new(Kind::Correctness, "input", Ps(0), error.to_string())),
        ..Run::default()
    })
}

/// Runs every task. The results are in the order of the tasks.
///
/// # Panics
/// If a worker of this program fails, which is a defect of the program.
pub fn run(search: &Search) -> Vec<Verdict<'_>> {
    parallel::map(&search.tasks, search.jobs, |(scenario, task)| {
        let agents = task.operations.len() as u8;
        let run = |schedule: &Schedule| one(*scenario, task, schedule, 0);
        Verdict { scenario: *scenario, task, explored: explore(agents, search.bound, search.budget, run) }
    })
}

/// The result for a JSON file.
pub fn document(verdicts: &[Verdict<'_>]) -> impl Serialize + use<> {
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
    let row = |verdict: &Verdict<'_>| Row {
        scenario: verdict.scenario.name(),
        operations: verdict.task.to_string(),
        failure: verdict.explored.failure.as_ref().map(|(_, failure)| failure.to_string()),
        replay: verdict.replay(),
        explored: verdict.explored.clone(),
    };
    Document { systematic: verdicts.iter().map(row).collect() }
}

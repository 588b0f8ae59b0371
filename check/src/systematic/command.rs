//! The command of the systematic search.

use super::{Search, Task};
use crate::cli::{self, CheckArgs, CheckError, TRACE_SPANS_MAX};
use crate::report;
use crate::run::Scenario;
use machine::unrest::turns::Schedule;
use std::time::Instant;

/// Schedules of a pair in a default search.
const BUDGET_DEFAULT: u64 = 2_000;

/// Every order of the operations of the pairs whose names contain `pairs`.
pub(crate) fn execute(args: &CheckArgs, scenarios: &[&'static dyn Scenario], pairs: &str) -> Result<u8, CheckError> {
    let of = |scenario: &&'static dyn Scenario| {
        let scenario = *scenario;
        Task::all(scenario).into_iter().map(move |task| (scenario, task))
    };
    let all: Vec<_> = scenarios.iter().flat_map(of).collect();
    let tasks: Vec<_> = match args.schedule {
        Some(_) => all.into_iter().filter(|(_, task)| task.to_string() == pairs).collect(),
        None => all.into_iter().filter(|(_, task)| task.to_string().contains(pairs)).collect(),
    };
    if tasks.is_empty() {
        return Err(CheckError::Input(format!("--systematic {pairs}: valid is a pair, or a part of one; see --list")));
    }
    if let Some(schedule) = &args.schedule {
        return one_schedule(args, &tasks, schedule);
    }
    let bound = args.bound.map_or(super::BOUND, usize::from);
    let search = Search { tasks, bound, budget: args.budget.unwrap_or(BUDGET_DEFAULT), jobs: cli::jobs(args) };
    report::search(&search);
    let start = Instant::now();
    let verdicts = super::run(&search);
    report::verdicts(&verdicts, !pairs.is_empty(), start.elapsed());
    cli::write_json(args, &cli::document(&super::document(&verdicts), None))?;
    let failure = verdicts.iter().find_map(|verdict| verdict.explored.failure.as_ref().map(|(_, failure)| failure));
    Ok(failure.map_or(0, |failure| failure.kind.exit_code()))
}

fn one_schedule(
    args: &CheckArgs,
    tasks: &[(&'static dyn Scenario, Task)],
    schedule: &Schedule,
) -> Result<u8, CheckError> {
    let [(scenario, task)] = tasks else {
        return Err(CheckError::Input("--schedule: needs one --scenario".into()));
    };
    if schedule.order.len() != task.operations.len() {
        let agents = task.operations.len();
        return Err(CheckError::Input(format!("--schedule {schedule}: {task} has {agents} agents")));
    }
    let run = scenario.direct(task, schedule, TRACE_SPANS_MAX).map_err(|error| CheckError::Input(error.to_string()))?;
    report::directed(*scenario, task, schedule, &run);
    let Some(failure) = &run.failure else { return Ok(0) };
    report::write_trace(&args.trace, &run).map_err(|error| CheckError::Write(args.trace.clone(), error))?;
    report::say(format_args!("trace: {}", args.trace.display()));
    Ok(failure.kind.exit_code())
}

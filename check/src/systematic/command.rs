//! The command of the systematic search.

use super::{STRIKES_MAX, Search, Task};
use crate::cli::{self, CheckArgs, CheckError, TRACE_SPANS_MAX};
use crate::report;
use crate::run::Scenario;
use machine::unrest::turns::Schedule;
use std::collections::BTreeSet;
use std::time::Instant;

/// Schedules of a pair in a default search.
const BUDGET_DEFAULT: u64 = 2_000;

/// Every order of the operations of the pairs whose names contain `pairs`.
pub(crate) fn execute(args: &CheckArgs, scenarios: &[&'static dyn Scenario], pairs: &str) -> Result<u8, CheckError> {
    let tasks_of = if args.struck.is_some() { Task::under_faults } else { Task::all };
    let of = |scenario: &&'static dyn Scenario| {
        let scenario = *scenario;
        tasks_of(scenario).into_iter().map(move |task| (scenario, task))
    };
    let meant = |name: &str, wanted: &str| match args.schedule {
        Some(_) => name == wanted,
        None => name.contains(wanted),
    };
    let mut tasks: Vec<_> = scenarios.iter().flat_map(of).collect();
    tasks.retain(|(_, task)| meant(task.operations_name(), pairs));
    if tasks.is_empty() {
        return Err(CheckError::Input(format!("--systematic {pairs}: valid is a pair, or a part of one; see --list")));
    }
    if let Some(wanted) = &args.struck {
        tasks = struck(tasks, wanted, meant)?;
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

/// Those whose fault is meant by `FAULT`, or from the strike of a number on by `FAULT:NUMBER`.
fn struck<T>(
    mut tasks: Vec<(T, Task)>,
    wanted: &str,
    meant: impl Fn(&str, &str) -> bool,
) -> Result<Vec<(T, Task)>, CheckError> {
    let (fault, number) = wanted.rsplit_once(':').unwrap_or((wanted, "1"));
    let number = number.parse().unwrap_or(0);
    let is_number = (1..=STRIKES_MAX).contains(&number);
    let mut known = BTreeSet::new();
    tasks.retain_mut(|(_, task)| {
        task.strike.as_mut().is_some_and(|strike| {
            known.insert(strike.fault().to_owned());
            strike.number = number;
            is_number && meant(strike.fault(), fault)
        })
    });
    if tasks.is_empty() {
        let known = known.into_iter().collect::<Vec<_>>().join(", ");
        let text =
            format!("--struck {wanted}: valid is one of these, or a part, and perhaps :1 to :{STRIKES_MAX}: {known}");
        return Err(CheckError::Input(text));
    }
    Ok(tasks)
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

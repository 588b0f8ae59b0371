//! `campanile run`.

use super::{announce, ended, failed, output, stop_flag, write};
use crate::cli::{self, Failure, RunArgs};
use crate::interrupt::StopFlag;
use crate::outcome::Summary;
use crate::plan::{Experiment, Plan, Spans};
use crate::published;
use crate::report::trace::{self, TraceRecord};
use crate::report::{self, Class, ConstantRow, LoadPoint, RunReport};
use crate::reproduce::{self, Outcomes};
use crate::run;
use crate::scenario;

/// Records of a trace file at most: what a viewer loads in seconds.
const TRACE_RECORDS_MAX: u64 = 1_000_000;

pub(super) fn run(args: &RunArgs) -> Result<(), Failure> {
    let plan = args.request()?.plan()?;
    let json = output("--json", args.json.as_deref())?;
    let html = output("--html", args.html.as_deref())?;
    let trace = output("--trace", args.trace.as_deref())?;
    announce(&plan);
    let stop = stop_flag()?;
    let mut runs = run::run_all(&plan, trace.is_some(), &stop).map_err(failed)?;
    let records: Vec<TraceRecord> =
        runs.iter_mut().find(|run| !run.trace.is_empty()).map(|run| std::mem::take(&mut run.trace)).unwrap_or_default();
    let outcomes = runs.into_iter().map(|run| run.outcome).collect();
    let mut report = RunReport::new(&plan.name, &plan.platform.name, Class::Predicted, outcomes);
    report.interrupted = stop.is_set();
    report.warnings = plan.warnings.iter().map(ToString::to_string).collect();
    report.published = published_rows(&plan, &report)?;
    report.constants = constants(&plan);
    cli::print(&report::table::run(&report))?;
    if html.is_some() {
        report.load = load_points(&plan, &stop)?;
    }
    write(json, || report::json::run(&report).expect("a report is plain data"))?;
    write(html, || report::html::page(&report))?;
    if let Some(file) = trace {
        let mut bytes = Vec::new();
        trace::write(&mut bytes, records, TRACE_RECORDS_MAX).expect("a vector takes all");
        file.commit(&bytes)?;
    }
    ended(&stop)
}

/// The published rows of a scenario that the program carries. None of one that was changed: its figures would stand
/// beside values that were published for something else.
fn published_rows(plan: &Plan, report: &RunReport) -> Result<Vec<report::Row>, Failure> {
    if !is_as_carried(plan)? {
        return Ok(Vec::new());
    }
    let rows: Vec<_> = published::rows()?
        .into_iter()
        .filter(|row| row.scenarios == [plan.name.clone()] && row.platform == plan.platform.name)
        .collect();
    let mut outcomes = Outcomes::new();
    for outcome in &report.outcomes {
        outcomes.entry((plan.name.clone(), outcome.delivery.clone())).or_default().push(outcome.clone());
    }
    Ok(reproduce::compare(&rows, &outcomes))
}

/// Whether the plan is the carried scenario of its name, but for seeds, spans and variants.
fn is_as_carried(plan: &Plan) -> Result<bool, Failure> {
    if !scenario::names().any(|name| name == plan.name) {
        return Ok(false);
    }
    let carried = scenario::Request::of(&plan.name).plan()?;
    let same_machine = plan.cpus == carried.cpus && plan.options == carried.options;
    Ok(same_machine && plan.experiment.is_same(&carried.experiment) && plan.platform == carried.platform)
}

fn constants(plan: &Plan) -> Vec<ConstantRow> {
    let row = |(name, spec, constant): (String, &crate::platform::Spec, &crate::platform::Constant)| ConstantRow {
        name,
        value: spec.unit.format(constant.value),
        reason: constant.reason.clone(),
        free: constant.fit,
    };
    plan.platform.constants().into_iter().map(row).collect()
}

/// Throughput and latency at depths 1, 2, 4, … up to the plan's own, one seed each and a short span; of a storage
/// experiment only.
fn load_points(plan: &Plan, stop: &StopFlag) -> Result<Vec<LoadPoint>, Failure> {
    let Experiment::Storage(storage) = &plan.experiment else { return Ok(Vec::new()) };
    let deepest = storage.jobs.iter().map(|job| job.iodepth).max().unwrap_or(1);
    let depths = std::iter::successors(Some(1), |depth| Some(depth * 2)).take_while(|&depth| depth <= deepest);
    let mut points = Vec::new();
    for depth in depths {
        if stop.is_set() {
            break;
        }
        let mut at = plan.clone();
        at.name = format!("{} at depth {depth}", plan.name);
        at.seeds.truncate(1);
        at.spans = Spans { ramp_ns: 1_000_000, measured_ns: 2_000_000, ..plan.spans };
        let mut storage = storage.clone();
        for job in &mut storage.jobs {
            job.iodepth = depth;
            job.batch_submit = job.batch_submit.min(depth);
            job.batch_complete_min = job.batch_complete_min.min(depth);
            job.batch_complete_max = job.batch_complete_max.min(depth);
        }
        let jobs = storage.jobs.len() as u64;
        at.experiment = Experiment::Storage(storage);
        for run in run::run_all(&at, false, stop).map_err(failed)? {
            let Some(summary) = Summary::over(std::slice::from_ref(&run.outcome)) else { continue };
            let mean = |id| summary.estimate(id).map_or(0.0, |estimate| estimate.mean);
            points.push(LoadPoint {
                delivery: run.outcome.delivery.clone(),
                in_flight: u64::from(depth) * jobs,
                iops: mean("iops"),
                mean_ns: mean("clat"),
                p99_ns: mean("clat_p99"),
            });
        }
    }
    Ok(points)
}

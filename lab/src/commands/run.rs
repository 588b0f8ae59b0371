//! `campanile run`.

use super::fio_outputs::{self, FioOutputs};
use super::{announce, ended, failed, output, stop_flag, takes_standard_output, write};
use crate::atomic_file::{AtomicFile, say};
use crate::cli::{self, Failure, RunArgs};
use crate::coalescing;
use crate::input::{STANDARD_INPUT, Warning};
use crate::inputs::{self, Given};
use crate::interrupt::StopFlag;
use crate::manifest::Manifest;
use crate::outcome::{Headline, Summary};
use crate::plan::{Load, Plan, Spans};
use crate::published;
use crate::report::narrow;
use crate::report::trace::{self, Trace};
use crate::report::{self, Class, ConstantRow, LoadPoint, RunReport};
use crate::reproduce::{self, Outcomes};
use crate::run;
use crate::scenario;

pub(super) fn run(args: &RunArgs, arguments: &[String]) -> Result<(), Failure> {
    let (planned, read) = inputs::noted(Given::default(), || args.request()?.plan());
    let mut plan = planned?;
    let outputs = Outputs::prepare(args, &mut plan)?;
    announce(&plan);
    outputs.fio.announce(&plan);
    let stop = stop_flag()?;
    let manifest = Manifest::new(arguments, &read).with_plan(&plan);
    let (report, traces) = report(args, &plan, manifest, &stop)?;
    say_cost(&report);
    if !outputs.fio.takes_standard_output() && !takes_standard_output(outputs.json.as_ref()) {
        cli::print(&narrow::run(&report, narrow::width()))?;
        if args.per_job {
            cli::print(&crate::kinds::storage::verbose_jobs(&report))?;
        }
    }
    outputs.write(&plan, &report, traces)?;
    ended(&stop)
}

/// The JSON of a run. Writes the outputs that the arguments name, and prints nothing.
///
/// # Errors
/// As [`run`].
pub(super) fn answer(args: &RunArgs, arguments: &[String], stop: &StopFlag) -> Result<String, Failure> {
    let (planned, read) = inputs::noted(Given::default(), || args.request()?.plan());
    let mut plan = planned?;
    // The JSON is the answer; that it is asked for decides what a run keeps.
    let asked = RunArgs { json: Some(STANDARD_INPUT.into()), ..args.clone() };
    let outputs = Outputs { json: None, ..Outputs::prepare(&asked, &mut plan)? };
    let manifest = Manifest::new(arguments, &read).with_plan(&plan);
    let (report, traces) = report(args, &plan, manifest, stop)?;
    ended(stop)?;
    outputs.write(&plan, &report, traces)?;
    Ok(report::json::run(&report).expect("a report is plain data"))
}

/// The outputs that were asked for. All were opened: one that cannot be written is refused before the run.
struct Outputs {
    fio: FioOutputs,
    json: Option<AtomicFile>,
    html: Option<AtomicFile>,
    trace: Option<AtomicFile>,
}

impl Outputs {
    fn prepare(args: &RunArgs, plan: &mut Plan) -> Result<Self, Failure> {
        Ok(Self {
            fio: FioOutputs::prepare(args, plan)?,
            json: output("--json", args.json.as_deref())?,
            html: output("--html", args.html.as_deref())?,
            trace: output("--trace", args.trace.as_deref())?,
        })
    }

    fn write(self, plan: &Plan, report: &RunReport, traces: Vec<Trace>) -> Result<(), Failure> {
        self.fio.write(plan, report)?;
        write(self.json, || report::json::run(report).expect("a report is plain data"))?;
        write(self.html, || report::html::page(report))?;
        let Some(file) = self.trace else { return Ok(()) };
        Ok(file.commit(&trace_of(report, traces))?)
    }
}

fn trace_of(report: &RunReport, traces: Vec<Trace>) -> Vec<u8> {
    let manifest = report.manifest.as_ref().map(Manifest::text).unwrap_or_default();
    trace::write(traces, &manifest)
}

/// The forms of a run's result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// `--json`.
    Json,
    /// `--fio-json`, of this delivery.
    FioJson(String),
    /// `--trace`.
    Trace,
}

/// Makes a result of a run again from its manifest. Files whose contents `given` has are not read.
///
/// # Errors
/// As [`run`].
pub(super) fn again(
    args: &RunArgs,
    manifest: Manifest,
    given: Given,
    form: &Form,
    stop: &StopFlag,
) -> Result<Vec<u8>, Failure> {
    let (planned, _) = inputs::noted(given, || args.request()?.plan());
    let mut plan = planned?;
    let json = (*form != Form::Trace).then(|| STANDARD_INPUT.into());
    let trace = (*form == Form::Trace).then(|| STANDARD_INPUT.into());
    let args = RunArgs { json, trace, ..args.clone() };
    FioOutputs::prepare(&args, &mut plan)?;
    let (report, traces) = report(&args, &plan, manifest, stop)?;
    ended(stop)?;
    Ok(match form {
        Form::Json => report::json::run(&report).expect("a report is plain data").into_bytes(),
        Form::FioJson(delivery) => fio_outputs::document(&plan, &report, delivery).unwrap_or_default().into_bytes(),
        Form::Trace => trace_of(&report, traces),
    })
}

/// Runs everything that the results need: the report, and the traces of the first seed.
fn report(
    args: &RunArgs,
    plan: &Plan,
    manifest: Manifest,
    stop: &StopFlag,
) -> Result<(RunReport, Vec<Trace>), Failure> {
    let mut runs = run::run_all(plan, args.trace.is_some(), stop).map_err(failed)?;
    let traces = runs.iter_mut().filter_map(|run| run.trace.take()).collect();
    let outcomes = runs.into_iter().map(|run| run.outcome).collect();
    let mut report = RunReport::new(&plan.name, &plan.platform.name, Class::of(&plan.platform), outcomes);
    report.interrupted = stop.is_set();
    report.spans = plan.storage().map(|_| plan.spans);
    report.warnings = Warning::texts(&plan.warnings);
    report.notes = coalescing::notes(plan, stop).map_err(failed)?;
    report.published = published_rows(plan, &report)?;
    report.constants = constants(plan);
    if args.html.is_some() {
        report.load = load_points(plan, stop)?;
    }
    report.manifest = Some(manifest);
    Ok((report, traces))
}

/// Says on standard error what the whole run time would cost on this host, if it was shortened.
fn say_cost(report: &RunReport) {
    let Some(asked_ns) = report.shortened_spans().and_then(|spans| spans.asked_runtime_ns) else {
        return;
    };
    let host_ns: u64 = report.outcomes.iter().map(|outcome| outcome.engine.host_ns).sum();
    let span_ns: u64 = report.outcomes.iter().map(|outcome| outcome.span_ns).sum();
    let whole_ns = asked_ns.min(Spans::WHOLE_MAX_NS) as f64 * report.outcomes.len() as f64;
    let seconds = whole_ns * (host_ns as f64 / span_ns.max(1) as f64) / 1e9;
    let about = if seconds < 1.0 { "less than 1 s".to_owned() } else { format!("about {seconds:.0} s") };
    say(format_args!("note: --set duration=runtime would take {about} of one CPU of this host, as busy as it is now"));
}

/// The published rows of a scenario that the program carries. A changed scenario has none: the published values belong
/// to the original.
fn published_rows(plan: &Plan, report: &RunReport) -> Result<Vec<report::Row>, Failure> {
    if !is_as_carried(plan)? {
        return Ok(Vec::new());
    }
    let mut rows: Vec<published::Row> = Vec::new();
    for row in published::rows()?.into_iter().filter(|row| row.platform == plan.platform.name) {
        let is_own = match &row.formula {
            Some(formula) => formula.rows().iter().all(|id| rows.iter().any(|known| known.id == **id)),
            None => row.scenarios == [plan.name.clone()],
        };
        if is_own {
            rows.push(row);
        }
    }
    let mut outcomes = Outcomes::new();
    for outcome in &report.outcomes {
        outcomes.entry((plan.name.clone(), outcome.delivery.clone())).or_default().push(outcome.clone());
    }
    Ok(reproduce::compare(&rows, &outcomes))
}

/// True if the plan equals the carried scenario of its name. Seeds, spans and variants may differ.
fn is_as_carried(plan: &Plan) -> Result<bool, Failure> {
    if !scenario::names().any(|name| name == plan.name) {
        return Ok(false);
    }
    let carried = scenario::Request::of(&plan.name).plan()?;
    let same_machine = plan.cpus == carried.cpus && plan.options == carried.options;
    Ok(same_machine && plan.work.is_same(&carried.work) && plan.platform == carried.platform)
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

/// Throughput and latency under less load than the plan's own, with one seed and a short span each. Only some kinds
/// are swept.
fn load_points(plan: &Plan, stop: &StopFlag) -> Result<Vec<LoadPoint>, Failure> {
    let mut points = Vec::new();
    for Load { depth, in_flight, work } in plan.work.loads() {
        if stop.is_set() {
            break;
        }
        let mut at = plan.clone();
        at.name = format!("{} at depth {depth}", plan.name);
        at.seeds.truncate(1);
        at.spans = Spans { ramp_ns: 1_000_000, measured_ns: 2_000_000, ..plan.spans };
        at.work = work;
        for run in run::run_all(&at, false, stop).map_err(failed)? {
            let Some(summary) = Summary::over(std::slice::from_ref(&run.outcome)) else { continue };
            let Headline { id, beside: (latency, ..), .. } = run.outcome.section.measured().headline();
            let mean = |id: &str| summary.estimate(id).map_or(0.0, |estimate| estimate.mean);
            points.push(LoadPoint {
                delivery: run.outcome.delivery.clone(),
                in_flight,
                iops: mean(id),
                mean_ns: mean(latency),
                p99_ns: mean(&format!("{latency}_p99")),
            });
        }
    }
    Ok(points)
}

//! One run: it builds the machine of a plan, lets our drivers bring it up, loads it, and measures.
//!
//! The course of a run is here and the same for every kind of experiment; a kind brings its [`Rig`].

pub(crate) mod error;
pub(crate) mod pcie;
mod recorder;
mod rig;
pub(crate) mod span;
pub(crate) mod x86;

pub use error::{RunError, SetupError};
use recorder::Recorder;
pub use rig::{Counted, Rig, Stage};

use crate::interrupt::StopFlag;
use crate::outcome::{Engine, Outcome, Phase, Timeline};
use crate::plan::{Plan, Spans, Trial};
use crate::platform::{Constant, Platform};
use crate::progress::Progress;
use crate::report::trace::{self, RECORDS_MAX, Trace, TraceRecord};
use crate::work;
use machine::Interrupts;
use machine::gic::{GicConfig, GicCosts};
use machine::model::AccessCosts;
use machine::time::Ps;
use machine::{Costs, Machine, MachineConfig, NoMemory, RunEnd};
use rayon::prelude::*;
use sched::Topology;
use span::{Moment, Span};
use std::time::Instant;

/// The result of one run.
pub struct Run {
    /// Its figures.
    pub outcome: Outcome,
    /// Its trace, when one was asked for.
    pub trace: Option<Trace>,
}

/// The limit of bring-up. Each device takes a few milliseconds of resets and queue creations, most of them waits; a
/// server that is not up after this time is stuck.
const BOOT_LIMIT: Ps = Ps::from_ns(20_000_000_000);
/// Points of the timeline.
const BUCKETS: u64 = 50;
/// Runs `trial` once.
///
/// # Errors
/// [`RunError`] when the machine does not come up, or stops making progress.
pub fn run_one(trial: &Trial<'_>, seed: u64, traced: bool, stop: &StopFlag) -> Result<Run, RunError> {
    trial.run(seed, traced, stop)
}

/// The course of a run once the rig is up. Its outcome has neither variant nor seed yet.
pub(crate) fn course<R: Rig>(mut rig: R, plan: &Plan, traced: bool, stop: &StopFlag) -> Result<Run, RunError> {
    let rig = &mut rig;
    let mut recorder = traced.then(|| Recorder::new(rig.machine()));
    let begin = |recorder: &mut Option<Recorder>, rig: &mut R| {
        if let Some(recorder) = recorder {
            recorder.begin(rig.machine());
        }
    };
    let started = Instant::now();
    rig.machine().take_longest_interrupt();
    begin(&mut recorder, rig);
    if let Some(stages) = rig.run_stages(stop)? {
        return Ok(staged(rig, plan, stages, started.elapsed().as_nanos() as u64, recorder));
    }
    if let Some(recorder) = &mut recorder {
        recorder.end(rig.machine());
    }
    let ramp_end = rig.machine().now() + Ps::from_ns(plan.spans.ramp_ns);
    advance(rig.machine(), ramp_end)?;
    rig.begin();
    let start = Moment::of(rig.machine());
    rig.machine().take_longest_interrupt();
    begin(&mut recorder, rig);
    let started = Instant::now();
    let timeline = measure(rig, &plan.spans, stop)?;
    let host_ns = started.elapsed().as_nanos() as u64;
    rig.machine().set_tracing(false);
    rig.end();
    let span = Span { start, end: Moment::of(rig.machine()) };
    let counted = rig.outcome(&span);
    let mut outcome = outcome(rig, plan, &span, counted);
    outcome.timeline = timeline;
    outcome.engine.host_ns = host_ns;
    let trace = recorder.map(|recorder| recorder.trace(rig, span.end(), &[(span.start(), &outcome.timeline)]));
    Ok(Run { outcome, trace })
}

/// The outcome of a span, without its timeline.
fn outcome<R: Rig>(rig: &mut R, plan: &Plan, span: &Span, mut counted: Counted<R::Outcome>) -> Outcome {
    let longest = rig.machine().take_longest_interrupt();
    counted.interrupts.longest_ns = plan.options.interrupt_limit_ns.map(|_| longest.as_ns());
    Outcome {
        delivery: String::new(),
        seed: 0,
        span_ns: span.ps() / 1000,
        interrupts: counted.interrupts,
        cpus: span.cpus(&rig.cpus()),
        servers: counted.servers,
        faults: span::faults(rig.machine()),
        policy: rig.policy(),
        interrupt_table: counted.interrupt_table,
        timeline: Timeline::default(),
        engine: Engine { host_ns: 0, ..span.engine() },
        phases: Vec::new(),
        section: counted.own.into(),
    }
}

/// The run of an experiment with phases: the last stage is the whole run.
fn staged<R: Rig>(
    rig: &mut R,
    plan: &Plan,
    mut stages: Vec<Stage<R::Outcome>>,
    host_ns: u64,
    recorder: Option<Recorder>,
) -> Run {
    rig.machine().set_tracing(false);
    let phases: Vec<TraceRecord> = stages[..stages.len() - 1].iter().map(|stage| stage.record()).collect();
    let trace = recorder.map(|recorder| {
        let timelines: Vec<_> = stages.iter().map(|stage| (stage.span.start(), &stage.timeline)).collect();
        let now = rig.machine().now();
        let trace = recorder.trace(rig, now, &timelines);
        Trace { records: [phases, trace.records].concat(), ..trace }
    });
    let whole = stages.pop().expect("a run has at least the whole");
    let mut whole = outcome(rig, plan, &whole.span, whole.counted);
    whole.timeline.bucket_ns = whole.span_ns.max(1);
    whole.engine.host_ns = host_ns;
    let phase = |Stage { name, span, timeline, counted }: Stage<R::Outcome>| {
        let mut outcome = outcome(rig, plan, &span, counted);
        outcome.timeline = timeline;
        // The whole run has them.
        outcome.interrupt_table.clear();
        outcome.faults.clear();
        Phase { name, outcome }
    };
    let mut phases: Vec<Phase> = stages.into_iter().map(phase).collect();
    if let [only] = &mut phases[..] {
        // The only phase is the run: its span leaves out the ramp.
        let Phase { outcome, .. } = only;
        outcome.interrupt_table = whole.interrupt_table;
        outcome.faults = whole.faults;
        outcome.engine.host_ns = host_ns;
        let outcome = phases.remove(0).outcome;
        return Run { outcome, trace };
    }
    whole.phases = phases;
    Run { outcome: whole, trace }
}

/// Every interrupt line of a trial's machine, after a short load.
///
/// # Errors
/// As [`run_one`].
pub fn lines(trial: &Trial<'_>) -> Result<Vec<irq::LineView>, RunError> {
    trial.lines()
}

pub(crate) fn lines_of<R: Rig>(mut rig: R) -> Result<Vec<irq::LineView>, RunError> {
    // Jobs that begin after others are let begin by their stages; nothing else would happen.
    if rig.run_stages(&StopFlag::default())?.is_none() {
        let end = rig.machine().now() + Ps::from_ns(1_000_000);
        advance(rig.machine(), end)?;
    }
    Ok(rig.lines())
}

/// Every (variant, seed) run of a plan, on all cores; with a trace of the first seed of each variant if asked for.
/// After Ctrl-C, those that have ended.
///
/// # Errors
/// The first run that failed, in the order of the plan.
pub fn run_all(plan: &Plan, traced: bool, stop: &StopFlag) -> Result<Vec<Run>, RunError> {
    let trials = plan.trials();
    let runs: Vec<(&Trial<'_>, u64)> =
        trials.iter().flat_map(|trial| plan.seeds.iter().map(move |&seed| (trial, seed))).collect();
    let progress = Progress::new(runs.len() as u64, &plan.name);
    let results: Vec<_> = runs
        .into_par_iter()
        .filter(|_| !stop.is_set())
        .map(|(trial, seed)| {
            let mut result = run_one(trial, seed, traced && Some(&seed) == plan.seeds.first(), stop);
            // Of many traces a file has a part of each; the rest would only take memory.
            if let Some(trace) = result.as_mut().ok().and_then(|run| run.trace.as_mut()) {
                trace::shorten(trace, trace::share(trials.len()));
            }
            progress.step();
            result
        })
        .collect();
    results.into_iter().collect()
}

/// An empty machine with the platform's CPUs and their costs, whose threads stay where they are put.
///
/// # Errors
/// This process has no address space for its memory.
pub(crate) fn machine(plan: &Plan, memory_bytes: usize, seed: u64, traced: bool) -> Result<Machine, RunError> {
    machine_with(plan, memory_bytes, seed, traced, None)
}

/// As [`machine`], with threads placed and moved by `topology`.
///
/// # Errors
/// As [`machine`].
pub(crate) fn machine_with(
    plan: &Plan,
    memory_bytes: usize,
    seed: u64,
    traced: bool,
    topology: Option<Topology>,
) -> Result<Machine, RunError> {
    let config = MachineConfig {
        cpus: plan.cpus,
        memory_bytes,
        seed,
        jitter_percent: plan.platform.fabric.jitter.whole() as u32,
        costs: costs(&plan.platform),
        topology,
        interrupts: interrupts(&plan.platform),
        interrupt_limit: plan.options.interrupt_limit_ns.map(Ps::from_ns),
        trace_spans_max: if traced { RECORDS_MAX } else { 0 },
        ..MachineConfig::default()
    };
    let mut machine = Machine::try_new(config).map_err(|NoMemory(bytes)| RunError::NoSpace(bytes))?;
    machine.set_tracing(false);
    Ok(machine)
}

/// The interrupt hardware: the platform's GIC, or local APICs.
fn interrupts(platform: &Platform) -> Interrupts {
    let Some(gic) = &platform.gic else { return Interrupts::X2Apic };
    let accesses = |time: &Constant| AccessCosts { read: Ps(time.ps()), write: Ps(time.ps()) };
    let config = GicConfig {
        write_pending_time: Ps(gic.write_pending.ps()),
        costs: GicCosts { distributor: accesses(&gic.distributor), cpu_interface: accesses(&gic.interface) },
        ..GicConfig::default()
    };
    if gic.version.whole() == 2 { Interrupts::GicV2(config) } else { Interrupts::GicV3(config) }
}

fn costs(platform: &Platform) -> Costs {
    let cpu = &platform.cpu;
    Costs {
        work: work::kinds(platform),
        wake_from_idle: Ps(cpu.scaled_ps(&cpu.idle_wake)),
        register_read: Ps(cpu.scaled_ps(&cpu.register_read)),
        register_write: Ps(cpu.scaled_ps(&cpu.doorbell)),
        lapic_write: Ps(cpu.scaled_ps(&cpu.eoi)),
        line_update: Ps(cpu.scaled_ps(&cpu.line_transfer)),
        line_move: Ps(platform.fabric.line_move.ps()),
        level_eoi: Ps(platform.vhost.as_ref().map_or(0, |host| host.level_eoi.ps())),
        ..Costs::default()
    }
}

/// Runs `set_up` on the boot thread.
pub(crate) fn boot<R: Send + 'static>(
    machine: &mut Machine,
    set_up: impl FnOnce() -> Result<R, SetupError> + Send + 'static,
) -> Result<R, RunError> {
    machine.run_boot(BOOT_LIMIT, set_up).map_err(RunError::Boot)?.map_err(RunError::Setup)
}

fn advance(machine: &mut Machine, end: Ps) -> Result<(), RunError> {
    match machine.run_until(end) {
        RunEnd::Time => Ok(()),
        stuck => Err(RunError::Stuck { at_ns: machine.now().as_ns(), end: stuck }),
    }
}

/// Runs the measured span bucket by bucket; Ctrl-C ends it after the current one.
fn measure<R: Rig>(rig: &mut R, spans: &Spans, stop: &StopFlag) -> Result<Timeline, RunError> {
    let start = rig.machine().now();
    let ramp_ns = spans.ramp_ns;
    let bucket_ns = (spans.measured_ns / BUCKETS).max(1);
    let mut timeline = Timeline { bucket_ns, ramp_ns, ..Timeline::default() };
    let mut before = rig.activity();
    for bucket in 1..=BUCKETS {
        advance(rig.machine(), start + Ps::from_ns(bucket_ns * bucket))?;
        let now = rig.activity();
        for ((name, now), (_, before)) in now.iter().zip(&before) {
            timeline.counts.entry((*name).into()).or_default().push(now - before);
        }
        before = now;
        if stop.is_set() {
            break;
        }
    }
    Ok(timeline)
}

//! A run: the machine of a plan is built, our drivers bring it up, it is loaded, and what happened is measured.
//!
//! The course of a run is here and the same for every kind of experiment; a kind is a [`Rig`] in a module of its own.

mod accelerator;
mod error;
mod network;
mod pcie;
mod rdma;
mod span;
mod storage;
mod threaded;
mod x86;

pub use error::{RunError, SetupError};

use crate::interrupt::StopFlag;
use crate::outcome::{Outcome, Timeline};
use crate::plan::{Experiment, Plan, Variant};
use crate::platform::{Constant, Platform};
use crate::progress::Progress;
use crate::report::trace::{TraceRecord, Track};
use hal::{CpuSet, Work};
use machine::gic::{GicConfig, GicCosts, Interrupts};
use machine::model::{AccessCosts, ModelId};
use machine::time::Ps;
use machine::{Costs, Machine, MachineConfig, RunEnd};
use rayon::prelude::*;
use span::{Moment, Span};
use std::time::Instant;

/// What one run gave.
pub struct Run {
    /// Its figures.
    pub outcome: Outcome,
    /// Its trace, when one was asked for.
    pub trace: Vec<TraceRecord>,
}

/// A machine that is up and loaded, as the course of a run sees it.
trait Rig {
    fn machine(&mut self) -> &mut Machine;

    /// The CPUs whose time is told.
    fn cpus(&self) -> CpuSet;

    /// Counts so far that the timeline shows, by name.
    fn activity(&mut self) -> Vec<(&'static str, u64)>;

    /// The ramp is over: what is counted begins here.
    fn begin(&mut self);

    /// What is counted ends here.
    fn end(&mut self);

    /// What was counted from the beginning to the end: everything but what [`run_one`] itself knows.
    fn outcome(&self, span: &Span) -> Outcome;

    /// Where a model stands in a trace.
    fn track(&self, model: ModelId) -> Option<Track>;

    /// Every interrupt line.
    fn lines(&self) -> Vec<irq::LineView>;
}

/// Builds the machine of a plan, brings it up and begins to load it.
fn rig(plan: &Plan, variant: Variant, seed: u64, traced: bool) -> Result<Box<dyn Rig>, RunError> {
    match (&plan.experiment, variant) {
        (Experiment::Storage(storage), Variant::Delivery(delivery)) => {
            Ok(Box::new(storage::StorageRig::new(plan, storage, delivery, seed, traced)?))
        }
        (Experiment::Accelerator(accelerator), Variant::Stream(variant)) => {
            Ok(Box::new(accelerator::StreamRig::new(plan, accelerator, variant, seed, traced)?))
        }
        (Experiment::Rdma(rdma), Variant::Moderation(moderation)) => {
            Ok(Box::new(rdma::RdmaRig::new(plan, rdma, moderation, seed, traced)?))
        }
        (Experiment::Network(network), Variant::Network(variant)) => {
            Ok(Box::new(network::NetworkRig::new(plan, network, variant, seed, traced)?))
        }
        (Experiment::Threaded(threaded), Variant::Threaded(variant)) => {
            Ok(Box::new(threaded::ThreadedRig::new(plan, threaded, variant, seed, traced)?))
        }
        (experiment, variant) => Err(RunError::Variant { kind: experiment.kind(), variant }),
    }
}

/// Bring-up is a few milliseconds of resets and queue creations a device, most of them waits; a server that is not up
/// after this is stuck.
const BOOT_LIMIT: Ps = Ps::from_ns(20_000_000_000);
/// Points of the timeline.
const BUCKETS: u64 = 50;
/// Spans that a trace keeps: a few milliseconds of a busy server, and still loadable in a viewer.
const TRACE_SPANS_MAX: usize = 400_000;

/// Runs `plan` once.
///
/// # Errors
/// [`RunError`] when the machine does not come up, or comes to a stand.
pub fn run_one(
    plan: &Plan,
    variant: impl Into<Variant>,
    seed: u64,
    traced: bool,
    stop: &StopFlag,
) -> Result<Run, RunError> {
    let variant = variant.into();
    let mut rig = rig(plan, variant, seed, traced)?;
    let rig = rig.as_mut();
    let ramp_end = rig.machine().now() + Ps::from_ns(plan.spans.ramp_ns);
    advance(rig.machine(), ramp_end)?;
    rig.begin();
    let start = Moment::of(rig.machine());
    rig.machine().take_longest_interrupt();
    rig.machine().set_tracing(traced);
    let started = Instant::now();
    let timeline = measure(rig, plan.spans.measured_ns, stop)?;
    let host_ns = started.elapsed().as_nanos() as u64;
    rig.machine().set_tracing(false);
    let traced_until = rig.machine().now();
    rig.end();
    let span = Span { start, end: Moment::of(rig.machine()) };
    let mut outcome = Outcome {
        delivery: variant.to_string(),
        seed,
        span_ns: span.ps() / 1000,
        cpus: span.cpus(&rig.cpus()),
        faults: span::faults(rig.machine()),
        timeline,
        engine: span.engine(),
        ..rig.outcome(&span)
    };
    let longest = rig.machine().take_longest_interrupt();
    outcome.interrupts.longest_ns = plan.options.interrupt_limit_ns.map(|_| longest.as_ns());
    outcome.engine.host_ns = host_ns;
    let trace = trace_records(rig, traced_until);
    Ok(Run { outcome, trace })
}

/// Every interrupt line of a plan's machine, after a short load.
///
/// # Errors
/// As [`run_one`].
pub fn lines(plan: &Plan, variant: impl Into<Variant>) -> Result<Vec<irq::LineView>, RunError> {
    let mut rig = rig(plan, variant.into(), 1, false)?;
    let end = rig.machine().now() + Ps::from_ns(1_000_000);
    advance(rig.machine(), end)?;
    Ok(rig.lines())
}

/// Every (variant, seed) run of a plan, on all cores; with a trace of the first seed of each variant if asked for.
/// After Ctrl-C, those that have ended.
///
/// # Errors
/// The first run that failed, in the order of the plan.
pub fn run_all(plan: &Plan, traced: bool, stop: &StopFlag) -> Result<Vec<Run>, RunError> {
    let runs: Vec<(Variant, u64)> =
        plan.variants.iter().flat_map(|&variant| plan.seeds.iter().map(move |&seed| (variant, seed))).collect();
    let progress = Progress::new(runs.len() as u64, &plan.name);
    let results: Vec<_> = runs
        .into_par_iter()
        .filter(|_| !stop.is_set())
        .map(|(variant, seed)| {
            let result = run_one(plan, variant, seed, traced && Some(&seed) == plan.seeds.first(), stop);
            progress.step();
            result
        })
        .collect();
    results.into_iter().collect()
}

/// An empty machine with the platform's CPUs and their costs.
fn machine(plan: &Plan, memory_bytes: usize, seed: u64, traced: bool) -> Machine {
    let mut machine = Machine::new(MachineConfig {
        cpus: plan.cpus,
        memory_bytes,
        seed,
        jitter_percent: plan.platform.fabric.jitter.whole() as u32,
        costs: costs(&plan.platform),
        interrupts: interrupts(&plan.platform),
        interrupt_limit: plan.options.interrupt_limit_ns.map(Ps::from_ns),
        trace_spans_max: if traced { TRACE_SPANS_MAX } else { 0 },
        ..MachineConfig::default()
    });
    machine.set_tracing(false);
    machine
}

/// What delivers interrupts: the platform's GIC, or local APICs.
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
    let mut work_ps = [0; Work::COUNT];
    for work in Work::ALL {
        work_ps[work as usize] = platform.work_ps(work);
    }
    Costs {
        work_ps,
        wake_from_idle: Ps(cpu.scaled_ps(&cpu.idle_wake)),
        register_read: Ps(cpu.scaled_ps(&cpu.register_read)),
        register_write: Ps(cpu.scaled_ps(&cpu.doorbell)),
        lapic_write: Ps(cpu.scaled_ps(&cpu.eoi)),
        line_update: Ps(cpu.scaled_ps(&cpu.line_transfer)),
        level_eoi: Ps(platform.vhost.as_ref().map_or(0, |host| host.level_eoi.ps())),
        ..Costs::default()
    }
}

/// Runs `set_up` on the boot thread.
fn boot<R: Send + 'static>(
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
fn measure(rig: &mut dyn Rig, span_ns: u64, stop: &StopFlag) -> Result<Timeline, RunError> {
    let start = rig.machine().now();
    let bucket_ns = (span_ns / BUCKETS).max(1);
    let mut timeline = Timeline { bucket_ns, ..Timeline::default() };
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

/// The machine's spans on the tracks that a reader knows. What was still going on at `end` is cut there.
fn trace_records(rig: &mut dyn Rig, end: Ps) -> Vec<TraceRecord> {
    let spans = rig.machine().take_spans();
    let track = |of: machine::trace::Track| match of {
        machine::trace::Track::Cpu(cpu) => Some(Track::Cpu(cpu)),
        machine::trace::Track::Model(id) => rig.track(id),
    };
    spans
        .into_iter()
        .filter(|span| span.start < end)
        .filter_map(|span| {
            Some(TraceRecord {
                start_ps: span.start.0,
                duration_ps: span.duration.min(end - span.start).0,
                track: track(span.track)?,
                name: span.name,
                argument: span.argument,
            })
        })
        .collect()
}

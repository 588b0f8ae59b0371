//! A run: the server of a plan is built, our drivers bring it up, jobs load it, and what happened is measured.

mod hardware;
mod job;
mod mailbox;
mod measure;
mod system;

use crate::interrupt::StopFlag;
use crate::outcome::{Outcome, Timeline};
use crate::plan::{Delivery, Plan};
use crate::progress::Progress;
use crate::report::trace::{TraceRecord, Track};
use hardware::Hardware;
use job::Tally;
use machine::time::Ps;
use machine::{BootError, RunEnd};
use measure::Snapshot;
use rayon::prelude::*;
use std::fmt;
use std::time::Instant;
use system::System;

pub use system::SetupError;

/// Why a run gave no figures.
#[derive(Debug)]
pub enum RunError {
    /// The drivers could not bring the server up.
    Setup(SetupError),
    /// Bringing it up did not end.
    Boot(BootError),
    /// Nothing went on any more in the middle of the load.
    Stuck {
        /// The simulated time at which it was seen.
        at_ns: u64,
        /// What the machine said.
        end: RunEnd,
    },
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setup(error) => write!(f, "the server could not be set up: {error}"),
            Self::Boot(error) => write!(f, "the server did not come up: {error}"),
            Self::Stuck { at_ns, end } => write!(f, "nothing happens any more at {at_ns} ns: {end:?}"),
        }
    }
}

impl std::error::Error for RunError {}

/// What one run gave.
pub struct Run {
    /// Its figures.
    pub outcome: Outcome,
    /// Its trace, when one was asked for.
    pub trace: Vec<TraceRecord>,
}

/// Bring-up is a few milliseconds of resets and queue creations a drive, most of them waits; a server that is not up
/// after this is stuck.
const BOOT_LIMIT: Ps = Ps::from_ns(20_000_000_000);
/// Points of the timeline.
const BUCKETS: u64 = 50;

/// Runs `plan` once.
///
/// # Errors
/// [`RunError`] when the server does not come up, or comes to a stand.
pub fn run_one(plan: &Plan, delivery: Delivery, seed: u64, traced: bool, stop: &StopFlag) -> Result<Run, RunError> {
    let mut hardware = Hardware::new(plan, seed, traced);
    let system = boot(&mut hardware, plan, delivery)?;
    let tally = Tally::new(plan.jobs.len());
    system.start_jobs(plan, delivery, seed, &tally).map_err(RunError::Setup)?;
    hardware.let_stranger_in();
    let ramp_end = hardware.machine.now() + Ps::from_ns(plan.spans.ramp_ns);
    advance(&mut hardware, ramp_end)?;
    tally.reset();
    let start = Snapshot::take(&mut hardware, &system);
    hardware.machine.take_longest_interrupt();
    hardware.machine.set_tracing(traced);
    let started = Instant::now();
    let timeline = measure_span(&mut hardware, &system, plan.spans.measured_ns, stop)?;
    let host_ns = started.elapsed().as_nanos() as u64;
    hardware.machine.set_tracing(false);
    let traced_until = hardware.machine.now();
    let end = Snapshot::take(&mut hardware, &system);
    let mut outcome = measure::outcome(plan, &hardware, &system, [&start, &end], &tally, timeline);
    outcome.delivery = delivery.name().into();
    outcome.seed = seed;
    let longest = hardware.machine.take_longest_interrupt();
    outcome.interrupts.longest_ns = plan.options.interrupt_limit_ns.map(|_| longest.as_ns());
    outcome.engine.host_ns = host_ns;
    let trace = trace_records(&mut hardware, traced_until);
    Ok(Run { outcome, trace })
}

/// Every interrupt line of a plan's server, after a short load.
///
/// # Errors
/// As [`run_one`].
pub fn lines(plan: &Plan, delivery: Delivery) -> Result<Vec<irq::LineView>, RunError> {
    let mut hardware = Hardware::new(plan, 1, false);
    let system = boot(&mut hardware, plan, delivery)?;
    let tally = Tally::new(plan.jobs.len());
    system.start_jobs(plan, delivery, 1, &tally).map_err(RunError::Setup)?;
    let end = hardware.machine.now() + Ps::from_ns(1_000_000);
    advance(&mut hardware, end)?;
    Ok(system.lines())
}

/// Every (delivery, seed) run of a plan, on all cores; with a trace of the first seed of each delivery if asked for.
/// After Ctrl-C, those that have ended.
///
/// # Errors
/// The first run that failed, in the order of the plan.
pub fn run_all(plan: &Plan, traced: bool, stop: &StopFlag) -> Result<Vec<Run>, RunError> {
    let runs: Vec<(Delivery, u64)> =
        plan.deliveries.iter().flat_map(|&delivery| plan.seeds.iter().map(move |&seed| (delivery, seed))).collect();
    let progress = Progress::new(runs.len() as u64, &plan.name);
    let results: Vec<_> = runs
        .into_par_iter()
        .filter(|_| !stop.is_set())
        .map(|(delivery, seed)| {
            let result = run_one(plan, delivery, seed, traced && Some(&seed) == plan.seeds.first(), stop);
            progress.step();
            result
        })
        .collect();
    results.into_iter().collect()
}

fn boot(hardware: &mut Hardware, plan: &Plan, delivery: Delivery) -> Result<System, RunError> {
    let parts = system::Parts::new(hardware, plan, delivery);
    let system = hardware.machine.run_boot(BOOT_LIMIT, move || System::set_up(parts));
    let system = system.map_err(RunError::Boot)?.map_err(RunError::Setup)?;
    Ok(system)
}

fn advance(hardware: &mut Hardware, end: Ps) -> Result<(), RunError> {
    match hardware.machine.run_until(end) {
        RunEnd::Time => Ok(()),
        stuck => Err(RunError::Stuck { at_ns: hardware.machine.now().as_ns(), end: stuck }),
    }
}

/// Runs the measured span bucket by bucket; Ctrl-C ends it after the current one.
fn measure_span(hardware: &mut Hardware, system: &System, span_ns: u64, stop: &StopFlag) -> Result<Timeline, RunError> {
    let start = hardware.machine.now();
    let bucket_ns = (span_ns / BUCKETS).max(1);
    let mut timeline = Timeline { bucket_ns, ..Timeline::default() };
    let mut before = Snapshot::activity(hardware, system);
    for bucket in 1..=BUCKETS {
        advance(hardware, start + Ps::from_ns(bucket_ns * bucket))?;
        let now = Snapshot::activity(hardware, system);
        for (row, index) in [&mut timeline.ios, &mut timeline.msis, &mut timeline.notifications].into_iter().zip(0..) {
            let index: usize = index;
            row.push(now[index] - before[index]);
        }
        before = now;
        if stop.is_set() {
            break;
        }
    }
    Ok(timeline)
}

/// The machine's spans on the tracks that a reader knows. What was still going on at `end` is cut there.
fn trace_records(hardware: &mut Hardware, end: Ps) -> Vec<TraceRecord> {
    let spans = hardware.machine.take_spans();
    let position = |ids: &[machine::model::ModelId], id| ids.iter().position(|&known| known == id);
    let drives: Vec<_> = hardware.drives.iter().map(|site| site.model).collect();
    let track = |of: machine::trace::Track| match of {
        machine::trace::Track::Cpu(cpu) => Some(Track::Cpu(cpu)),
        machine::trace::Track::Model(id) => position(&drives, id)
            .map(|index| Track::Drive(index as u32))
            .or_else(|| position(&hardware.iommus, id).map(|index| Track::Iommu(index as u32)))
            .or_else(|| position(&hardware.ports, id).map(|index| Track::Port(index as u32))),
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

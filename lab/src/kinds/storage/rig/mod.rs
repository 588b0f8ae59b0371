//! A storage experiment on the machine: drives, and jobs that keep them busy.

mod block;
mod buckets;
mod course;
mod hardware;
mod host;
pub(super) mod job;
mod job_meter;
mod mailbox;
mod measure;
mod meter;
mod queues;
mod room;
mod sequence;
pub(super) mod split;
mod stages;
mod tally;
mod turns;

use crate::fio::Reporting;
use crate::interrupt::StopFlag;
use crate::kinds::storage::{Detail, IoEngine, JobPlan, Storage, StorageOutcome, StorageVariant};
use crate::plan::Plan;
use crate::report::trace::Track;
use crate::run::span::Span;
use crate::run::{Counted, Rig, RunError, Stage, boot};
pub(super) use course::start_of;
use course::{CourseParts, Starter};
use hal::CpuSet;
use hardware::Hardware;
use host::StorageHost;
use machine::Machine;
use machine::model::ModelId;
use measure::{Measured, Snapshot};
use meter::{Keep, Meter, SharedMeter};
pub(super) use stages::RUN_NS_MAX;
use std::sync::{Arc, Mutex};
use tally::{Latencies, Tally};

/// A server with running jobs.
pub struct StorageRig {
    plan: Plan,
    storage: Storage,
    hardware: Hardware,
    host: StorageHost,
    tally: Tally,
    /// Begins and ends jobs, in an experiment with phases.
    starter: Option<(Arc<Starter>, CourseParts)>,
    /// Latencies of the phases that have ended.
    latencies: Vec<Arc<Mutex<Latencies>>>,
    /// The CPU time of each thread in the phases that have ended.
    cpu_ns: Vec<[u64; 2]>,
    /// The counters at the beginning and at the end of the measured span.
    snapshots: Vec<Snapshot>,
}

impl StorageRig {
    pub(super) fn new(
        plan: &Plan,
        storage: &Storage,
        delivery: StorageVariant,
        seed: u64,
        traced: bool,
    ) -> Result<Self, RunError> {
        let plan = &as_varied(plan, delivery);
        let mut hardware = Hardware::new(plan, storage, seed, traced)?;
        let parts = host::Parts::new(&mut hardware, plan, storage, delivery);
        let host = boot(&mut hardware.machine, move || StorageHost::set_up(parts))?;
        let tally = Tally::new(storage.jobs.len(), meters(plan, storage));
        let starter = host.start_jobs(storage, delivery, seed, &tally).map_err(RunError::Setup)?;
        hardware.let_stranger_in();
        let (plan, storage) = (plan.clone(), storage.clone());
        Ok(Self {
            plan,
            storage,
            hardware,
            host,
            tally,
            starter,
            latencies: Vec::new(),
            cpu_ns: Vec::new(),
            snapshots: Vec::new(),
        })
    }
}

/// I/Os that the logs of a run keep, all threads together: about a gigabyte.
const LOG_ENTRIES_MAX: usize = 20_000_000;

/// A meter for each thread, if the experiment wants them.
fn meters(plan: &Plan, storage: &Storage) -> Vec<SharedMeter> {
    if storage.detail == Detail::None {
        return Vec::new();
    }
    let span = plan.spans.of_logs();
    let meter = |(reporting, job): (&Arc<Reporting>, &JobPlan)| {
        // A job that runs to its own end is not shortened, and neither are its windows.
        let is_whole = storage.staged && job.load.as_ref().is_some_and(|load| load.ends.stand_in_ns.is_none());
        let logs = &reporting.logs;
        let wants = storage.detail == Detail::Logs;
        Meter::new(Keep {
            waits: matches!(job.engine, IoEngine::Sync { .. }),
            ios: wants && [&logs.bw, &logs.lat, &logs.iops, &logs.hist].iter().any(|log| log.is_some()),
            issues: wants && logs.iolog.is_some(),
            entries_max: LOG_ENTRIES_MAX / storage.reporting.len().max(1),
            window_ns: reporting.average_ms.map(|ms| {
                let ms = if is_whole { ms } else { span.window_ms(ms) };
                ms.saturating_mul(1_000_000)
            }),
        })
    };
    storage.reporting.iter().zip(&storage.jobs).map(meter).collect()
}

/// The plan with the constant that the variant sets.
fn as_varied(plan: &Plan, delivery: StorageVariant) -> Plan {
    let mut plan = plan.clone();
    if let StorageVariant::PostedUpdate(ns) = delivery {
        plan.platform.fabric.posted_update.value = ns as f64;
    }
    plan
}

impl Rig for StorageRig {
    type Outcome = StorageOutcome;

    fn machine(&mut self) -> &mut Machine {
        &mut self.hardware.machine
    }

    fn cpus(&self) -> CpuSet {
        self.storage.jobs.iter().flat_map(|job| job.cpus.iter()).collect()
    }

    fn activity(&mut self) -> Vec<(&'static str, u64)> {
        measure::activity(&mut self.hardware, &self.host, &self.tally)
    }

    fn begin(&mut self) {
        self.tally.reset(self.hardware.machine.now().as_ns());
        self.snapshots = vec![Snapshot::take(&mut self.hardware, &self.host)];
    }

    fn end(&mut self) {
        self.snapshots.push(Snapshot::take(&mut self.hardware, &self.host));
    }

    fn outcome(&self, span: &Span) -> Counted<StorageOutcome> {
        let [start, end] = &self.snapshots[..] else { unreachable!("a run begins and ends") };
        Measured { plan: &self.plan, storage: &self.storage, hardware: &self.hardware, span, start, end }
            .outcome(&self.host, &self.tally)
    }

    fn run_stages(&mut self, stop: &StopFlag) -> Result<Option<Vec<Stage<StorageOutcome>>>, RunError> {
        let Some((starter, course)) = self.starter.clone() else { return Ok(None) };
        self.run_phases(&starter, &course, stop).map(Some)
    }

    fn track(&self, model: ModelId) -> Option<Track> {
        let drive = self.hardware.drives.iter().position(|site| site.model == model);
        drive.map(|index| Track::Drive(index as u32)).or_else(|| self.hardware.pcie.track(model))
    }

    fn policy(&self) -> Option<String> {
        Some(self.host.pc.system.to_string())
    }

    fn lines(&self) -> Vec<irq::LineView> {
        self.host.pc.core.views()
    }
}

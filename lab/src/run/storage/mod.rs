//! A storage experiment on the machine: drives, and jobs that keep them busy.

mod hardware;
mod job;
mod mailbox;
mod measure;
mod system;

use super::span::Span;
use super::{Rig, RunError, boot};
use crate::outcome::Outcome;
use crate::plan::{Delivery, Plan, Storage};
use crate::report::trace::Track;
use hal::CpuSet;
use hardware::Hardware;
use job::Tally;
use machine::Machine;
use machine::model::ModelId;
use measure::{Measured, Snapshot};
use system::System;

/// A server whose jobs run.
pub(super) struct StorageRig {
    plan: Plan,
    storage: Storage,
    hardware: Hardware,
    system: System,
    tally: Tally,
    /// At the beginning and at the end of what is counted.
    snapshots: Vec<Snapshot>,
}

impl StorageRig {
    pub(super) fn new(
        plan: &Plan,
        storage: &Storage,
        delivery: Delivery,
        seed: u64,
        traced: bool,
    ) -> Result<Self, RunError> {
        let mut hardware = Hardware::new(plan, storage, seed, traced);
        let parts = system::Parts::new(&mut hardware, plan, storage, delivery);
        let system = boot(&mut hardware.machine, move || System::set_up(parts))?;
        let tally = Tally::new(storage.jobs.len());
        system.start_jobs(storage, delivery, seed, &tally).map_err(RunError::Setup)?;
        hardware.let_stranger_in();
        Ok(Self { plan: plan.clone(), storage: storage.clone(), hardware, system, tally, snapshots: Vec::new() })
    }
}

impl Rig for StorageRig {
    fn machine(&mut self) -> &mut Machine {
        &mut self.hardware.machine
    }

    fn cpus(&self) -> CpuSet {
        self.storage.jobs.iter().flat_map(|job| job.cpus.iter()).collect()
    }

    fn activity(&mut self) -> Vec<(&'static str, u64)> {
        measure::activity(&mut self.hardware, &self.system)
    }

    fn begin(&mut self) {
        self.tally.reset();
        self.snapshots = vec![Snapshot::take(&mut self.hardware, &self.system)];
    }

    fn end(&mut self) {
        self.snapshots.push(Snapshot::take(&mut self.hardware, &self.system));
    }

    fn outcome(&self, span: &Span) -> Outcome {
        let [start, end] = &self.snapshots[..] else { unreachable!("a run begins and ends") };
        Measured { plan: &self.plan, storage: &self.storage, hardware: &self.hardware, span, start, end }
            .outcome(&self.system, &self.tally)
    }

    fn track(&self, model: ModelId) -> Option<Track> {
        let drive = self.hardware.drives.iter().position(|site| site.model == model);
        drive.map(|index| Track::Drive(index as u32)).or_else(|| self.hardware.pcie.track(model))
    }

    fn lines(&self) -> Vec<irq::LineView> {
        self.system.pc.core.views()
    }
}

//! An accelerator experiment on the machine: each interrupt of a stream submits the stream's next work.

mod host;
mod measure;
mod ticker;

use crate::kinds::accelerator::{Accelerator, AcceleratorOutcome, StreamVariant};
use crate::plan::Plan;
use crate::platform;
use crate::report::trace::Track;
use crate::run::pcie::{Pcie, Site};
use crate::run::span::Span;
use crate::run::{Counted, Rig, RunError, boot, x86};
use hal::CpuSet;
use host::{Parts, StreamHost};
use machine::Machine;
use machine::dsa::{self, Dsa};
use machine::model::ModelId;
use machine::time::Ps;
use measure::Snapshot;

/// A machine with running streams.
pub struct StreamRig {
    accelerator: Accelerator,
    machine: Machine,
    pcie: Pcie,
    devices: Vec<Site>,
    host: StreamHost,
    /// The counters at the beginning and at the end of the measured span.
    snapshots: Vec<Snapshot>,
}

impl StreamRig {
    pub(super) fn new(
        plan: &Plan,
        accelerator: &Accelerator,
        variant: StreamVariant,
        seed: u64,
        traced: bool,
    ) -> Result<Self, RunError> {
        let constants = plan.platform.accelerator.as_ref().expect("the plan was validated");
        let buffers = accelerator.devices * (accelerator.bytes.next_multiple_of(4096) + (64 << 10));
        let mut machine = crate::run::machine(plan, buffers as usize + (64 << 20), seed, traced)?;
        let mut pcie = Pcie::new(&mut machine, &plan.platform, accelerator.devices as usize);
        let mut devices = Vec::new();
        for index in 0..accelerator.devices {
            devices.push(pcie.integrate(&mut machine, &plan.platform, constants.link.whole(), |port, requester| {
                let config = device_config(plan, constants, index, requester);
                Box::new(Dsa::new(port, config).expect("the platform's bounds are the device's"))
            }));
        }
        let pc = x86::Parts::new(&mut machine, plan.cpus, &pcie);
        let parts = Parts {
            accelerator: accelerator.clone(),
            variant,
            harvest_passes: plan.options.harvest_passes,
            devices: devices.clone(),
            pc,
            seed,
        };
        let host = boot(&mut machine, move || StreamHost::set_up(parts))?;
        host.start(accelerator).map_err(RunError::Setup)?;
        Ok(Self { accelerator: accelerator.clone(), machine, pcie, devices, host, snapshots: Vec::new() })
    }

    fn snapshot(&mut self) -> Snapshot {
        Snapshot::take(&mut self.machine, &self.pcie, &self.devices, &self.host)
    }
}

/// A stream needs one engine and one queue per device.
fn device_config(plan: &Plan, constants: &platform::Accelerator, index: u32, requester: u16) -> dsa::Config {
    let default = dsa::Config::default();
    dsa::Config {
        name: format!("dsa{index}"),
        requester,
        vectors: constants.vectors.whole() as u16,
        timing: dsa::Timing {
            service: Ps(constants.service.ps()),
            in_flight: constants.engine_depth.whole() as u8,
            ..default.timing
        },
        data: dsa::Data::Timed,
        portal_write: Some(Ps(plan.platform.cpu.scaled_ps(&constants.portal_write))),
        ..default
    }
}

impl Rig for StreamRig {
    type Outcome = AcceleratorOutcome;

    fn machine(&mut self) -> &mut Machine {
        &mut self.machine
    }

    fn cpus(&self) -> CpuSet {
        CpuSet::of(self.accelerator.cpu)
    }

    fn activity(&mut self) -> Vec<(&'static str, u64)> {
        let now = self.snapshot();
        let sum = |name| now.devices(name);
        vec![("descriptors", sum("completed")), ("msis", sum("msis")), ("notifications", now.notifications())]
    }

    fn begin(&mut self) {
        self.host.reset();
        let now = self.snapshot();
        self.snapshots = vec![now];
    }

    fn end(&mut self) {
        let now = self.snapshot();
        self.snapshots.push(now);
    }

    fn outcome(&self, span: &Span) -> Counted<AcceleratorOutcome> {
        let [start, end] = &self.snapshots[..] else { unreachable!("a run begins and ends") };
        measure::outcome(&self.pcie, &self.devices, &self.host, span, [start, end])
    }

    fn track(&self, model: ModelId) -> Option<Track> {
        let device = self.devices.iter().position(|site| site.model == model);
        device.map(|index| Track::Device(index as u32)).or_else(|| self.pcie.track(model))
    }

    fn policy(&self) -> Option<String> {
        Some(self.host.pc.system.to_string())
    }

    fn lines(&self) -> Vec<irq::LineView> {
        self.host.pc.core.views()
    }
}

//! A network experiment on the machine: a guest that returns the packets of its host's flows.

mod guest;
mod hardware;
mod measure;

use crate::kinds::network::{Network, NetworkOutcome, NetworkVariant};
use crate::plan::Plan;
use crate::report::trace::Track;
use crate::run::span::Span;
use crate::run::{Counted, Rig, RunError, boot, x86};
use guest::{Guest, Parts};
use hal::CpuSet;
use hardware::Hardware;
use machine::Machine;
use machine::model::ModelId;
use machine::virtio::net::code;
use measure::Snapshot;
use std::sync::{Arc, OnceLock};

/// A machine with running flows.
pub struct NetworkRig {
    cpus: u32,
    machine: Machine,
    hardware: Hardware,
    guest: Guest,
    /// The counters at the beginning and at the end of the measured span.
    snapshots: Vec<Snapshot>,
}

/// Rings, buffers of 1.5 KiB for each entry, and tables.
fn memory_bytes(plan: &Plan, network: &Network) -> usize {
    let host = plan.platform.vhost.as_ref().expect("the plan was validated");
    network.flows as usize * host.ring.whole() as usize * 2048 + (32 << 20)
}

impl NetworkRig {
    pub(super) fn new(
        plan: &Plan,
        network: &Network,
        variant: NetworkVariant,
        seed: u64,
        traced: bool,
    ) -> Result<Self, RunError> {
        let mut machine = crate::run::machine(plan, memory_bytes(plan, network), seed, traced)?;
        let hardware = Hardware::build(&mut machine, plan, network, variant);
        let pc = x86::Parts::without_remapping(plan.cpus);
        let soft: Arc<OnceLock<Arc<irq::poll::SoftPoll<machine::SimHal>>>> = Arc::default();
        let (entry, polls) = (pc.entry(), soft.clone());
        machine.set_interrupt_entry(move |vector| {
            let handle = || entry.get().into_iter().for_each(|cpus| cpus.interrupt(vector));
            match polls.get() {
                Some(polls) => polls.interrupt(handle),
                None => handle(),
            }
        });
        let host = plan.platform.vhost.as_ref().expect("the plan was validated");
        let parts = Parts {
            network: network.clone(),
            cpus: plan.cpus,
            entries: host.ring.whole() as u16,
            ioapic: machine.regs(hardware.ioapic, 0),
            regions: Parts::regions(&machine, &hardware),
            variant,
            pc,
            soft,
        };
        let guest = boot(&mut machine, move || Guest::set_up(parts))?;
        machine.poke(hardware.device, machine.now(), code::FLOWS, 1);
        Ok(Self { cpus: plan.cpus, machine, hardware, guest, snapshots: Vec::new() })
    }

    fn snapshot(&mut self) -> Snapshot {
        Snapshot::take(&mut self.machine, &self.hardware, &self.guest)
    }
}

impl Rig for NetworkRig {
    type Outcome = NetworkOutcome;

    fn machine(&mut self) -> &mut Machine {
        &mut self.machine
    }

    fn cpus(&self) -> CpuSet {
        CpuSet::first(self.cpus)
    }

    fn activity(&mut self) -> Vec<(&'static str, u64)> {
        let now = self.snapshot();
        vec![("packets", now.returned()), ("interrupts", now.interrupts())]
    }

    fn begin(&mut self) {
        let now = self.snapshot();
        self.snapshots = vec![now];
    }

    fn end(&mut self) {
        let now = self.snapshot();
        self.snapshots.push(now);
    }

    fn outcome(&self, _span: &Span) -> Counted<NetworkOutcome> {
        let [start, end] = &self.snapshots[..] else { unreachable!("a run begins and ends") };
        measure::outcome(&self.guest, [start, end])
    }

    fn track(&self, model: ModelId) -> Option<Track> {
        (model == self.hardware.device).then_some(Track::Device(0))
    }

    fn policy(&self) -> Option<String> {
        Some(self.guest.pc.system.to_string())
    }

    fn lines(&self) -> Vec<irq::LineView> {
        self.guest.pc.core.views()
    }
}

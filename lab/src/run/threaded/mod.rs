//! A threaded interrupt on the machine: our GIC driver, the delivery core with forced threading, and the thread that raises.

mod bench;
mod measure;
mod neighbour;
mod system;

use super::span::Span;
use super::{Rig, RunError, boot};
use crate::outcome::Outcome;
use crate::plan::{Plan, Threaded, ThreadedVariant};
use crate::report::trace::Track;
use bench::Bench;
use hal::CpuSet;
use machine::Machine;
use machine::gic::GicWindows;
use machine::model::ModelId;
use machine::time::Ps;
use measure::Snapshot;
use neighbour::Neighbour;
use std::sync::{Arc, OnceLock};
use system::{Parts, System};

/// A machine whose bench thread raises and waits.
pub(super) struct ThreadedRig {
    cpus: u32,
    machine: Machine,
    gic: GicWindows,
    system: Arc<System>,
    bench: Arc<Bench>,
    /// At the beginning and at the end of what is counted.
    snapshots: Vec<Snapshot>,
}

/// Nothing here does DMA.
const MEMORY_BYTES: usize = 1 << 20;

impl ThreadedRig {
    pub(super) fn new(
        plan: &Plan,
        threaded: &Threaded,
        variant: ThreadedVariant,
        seed: u64,
        traced: bool,
    ) -> Result<Self, RunError> {
        let mut machine = super::machine(plan, MEMORY_BYTES, seed, traced);
        let gic = machine.gic().expect("the plan was validated");
        let neighbour = threaded.neighbour_ns.map(|every_ns| {
            let every = Ps::from_ns(every_ns);
            machine.add_model(|_| Box::new(Neighbour { gic: gic.model, intid: system::NEIGHBOUR, every }))
        });
        let installed: Arc<OnceLock<Arc<System>>> = Arc::default();
        let entry = installed.clone();
        machine.set_exception_entry(move |_| {
            if let Some(system) = entry.get() {
                system.exception();
            }
        });
        let bench = Arc::new(Bench::new(threaded.iterations, threaded.iteration_ns(plan)));
        let version = plan.platform.gic.as_ref().expect("the plan was validated").version.whole();
        let parts = Parts { gic, version, cpus: plan.cpus, variant, installed, bench: bench.clone() };
        let system = boot(&mut machine, move || parts.set_up())?;
        if let Some(neighbour) = neighbour {
            machine.poke(neighbour, machine.now(), neighbour::BEGIN, 0);
        }
        Ok(Self { cpus: plan.cpus, machine, gic, system, bench, snapshots: Vec::new() })
    }

    fn snapshot(&mut self) -> Snapshot {
        Snapshot::take(&mut self.machine, self.gic.model, &self.bench)
    }
}

impl Rig for ThreadedRig {
    fn machine(&mut self) -> &mut Machine {
        &mut self.machine
    }

    fn cpus(&self) -> CpuSet {
        CpuSet::first(self.cpus)
    }

    fn activity(&mut self) -> Vec<(&'static str, u64)> {
        vec![("cycles", self.bench.cycles())]
    }

    fn begin(&mut self) {
        self.bench.begin(self.machine.now().as_ns());
        let now = self.snapshot();
        self.snapshots = vec![now];
    }

    fn end(&mut self) {
        let now = self.snapshot();
        self.snapshots.push(now);
    }

    fn outcome(&self, _span: &Span) -> Outcome {
        let [start, end] = &self.snapshots[..] else { unreachable!("a run begins and ends") };
        measure::outcome(&self.system, &self.bench, [start, end])
    }

    fn track(&self, model: ModelId) -> Option<Track> {
        (model == self.gic.model).then_some(Track::Device(0))
    }

    fn lines(&self) -> Vec<irq::LineView> {
        self.system.core.views()
    }
}

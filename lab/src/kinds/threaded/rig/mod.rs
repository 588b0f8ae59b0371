//! A threaded interrupt on the machine: our GIC driver, the delivery core with forced threading, and the thread that raises.

mod bench;
mod board;
mod measure;
mod neighbour;

use crate::kinds::threaded::{Threaded, ThreadedOutcome, ThreadedVariant};
use crate::plan::Plan;
use crate::report::trace::Track;
use crate::run::span::Span;
use crate::run::{Counted, Rig, RunError, boot};
use bench::Bench;
use board::Parts;
use hal::CpuSet;
use machine::gic::GicWindows;
use machine::model::ModelId;
use machine::time::Ps;
use machine::{Machine, SimHal};
use measure::Snapshot;
use neighbour::Neighbour;
use std::sync::{Arc, OnceLock};
use systems::arm::Arm;

/// A machine whose bench thread raises and waits.
pub struct ThreadedRig {
    cpus: u32,
    machine: Machine,
    gic: GicWindows,
    arm: Arc<Arm<SimHal>>,
    bench: Arc<Bench>,
    /// The counters at the beginning and at the end of the measured span.
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
        let mut machine = crate::run::machine(plan, MEMORY_BYTES, seed, traced)?;
        let gic = machine.gic().expect("the plan was validated");
        let neighbour = threaded.neighbour_ns.map(|every_ns| {
            let every = Ps::from_ns(every_ns);
            machine.add_model(|_| Box::new(Neighbour { gic: gic.model, intid: board::NEIGHBOUR, every }))
        });
        let installed: Arc<OnceLock<Arc<Arm<SimHal>>>> = Arc::default();
        let entry = installed.clone();
        machine.set_exception_entry(move |_| {
            if let Some(arm) = entry.get() {
                arm.exception();
            }
        });
        let bench = Arc::new(Bench::new(threaded.iterations, threaded.iteration_ns(plan)));
        let version = plan.platform.gic.as_ref().expect("the plan was validated").version.whole();
        let parts =
            Parts { gic, version, cpus: plan.cpus, variant, linux: threaded.linux, installed, bench: bench.clone() };
        let arm = boot(&mut machine, move || parts.set_up())?;
        if let Some(neighbour) = neighbour {
            machine.poke(neighbour, machine.now(), neighbour::BEGIN, 0);
        }
        Ok(Self { cpus: plan.cpus, machine, gic, arm, bench, snapshots: Vec::new() })
    }

    fn snapshot(&mut self) -> Snapshot {
        Snapshot::take(&mut self.machine, self.gic.model, &self.bench)
    }
}

impl Rig for ThreadedRig {
    type Outcome = ThreadedOutcome;

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

    fn outcome(&self, _span: &Span) -> Counted<ThreadedOutcome> {
        let [start, end] = &self.snapshots[..] else { unreachable!("a run begins and ends") };
        measure::outcome(&self.arm, &self.bench, [start, end])
    }

    fn track(&self, model: ModelId) -> Option<Track> {
        (model == self.gic.model).then_some(Track::Device(0))
    }

    fn lines(&self) -> Vec<irq::LineView> {
        self.arm.core().views()
    }
}

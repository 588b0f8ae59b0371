//! The kernel's part: the GIC driver, the core that forces handlers into threads, and one line.

use super::bench::Bench;
use crate::plan::ThreadedVariant;
use crate::run::SetupError;
use drivers::gic::{Affinity, EoiMode, Gic, GicDomain, GicError, GicV2, GicV3, Redistributors, Version};
use hal::{CpuId, CpuSet, Hal as _, ThreadSpec, Work};
use irq::{
    Action, AllocRequest, CoreConfig, Delivery, Flow, Irq, IrqCore, IrqReturn, RequestFlags, RequesterId, Trigger,
};
use machine::SimHal;
use machine::gic::GicWindows;
use spec::gic::gicr::STRIDE_BYTES;
use std::sync::{Arc, OnceLock};

/// An unused SPI.
const INTID: u32 = 40;
/// Another device's SPI.
pub(super) const NEIGHBOUR: u32 = 41;
/// What the scheduler uses: the SGI of a kick, the PPI of a time slice.
const PRIVATE: [u32; 2] = [0, 30];
/// The bus address of the first redistributor, which only messages would need.
const REDISTRIBUTORS_BASE: u64 = 0x080a_0000;
/// Lines of the core: more than there are.
const LINES_MAX: u32 = 8;
/// Longest way of an interrupt to its CPU.
const FLIGHT_NS: u64 = 10_000;

/// What bring-up is given.
pub(super) struct Parts {
    pub(super) gic: GicWindows,
    pub(super) version: u64,
    pub(super) cpus: u32,
    pub(super) variant: ThreadedVariant,
    /// Where the exception entry finds the system.
    pub(super) installed: Arc<OnceLock<Arc<System>>>,
    pub(super) bench: Arc<Bench>,
}

/// A kernel that is up.
pub(super) struct System {
    pub(super) core: Arc<IrqCore<SimHal>>,
    gic: Arc<dyn Controller>,
}

/// A GIC of either version.
trait Controller: Send + Sync {
    fn handle(&self, core: &IrqCore<SimHal>);
    fn start_cpu(&self) -> Result<(), GicError>;
}

impl<V: Version<SimHal>> Controller for Gic<SimHal, V> {
    fn handle(&self, core: &IrqCore<SimHal>) {
        self.handle(core);
    }

    fn start_cpu(&self) -> Result<(), GicError> {
        self.start_cpu()
    }
}

/// A handler that only takes its time: the scheduler's interrupts, and the other device's.
struct Plain;

impl Action for Plain {
    fn handle(&self, _: Irq) -> IrqReturn {
        SimHal.work(Work::IrqHandler, 1);
        IrqReturn::Handled
    }
}

impl Parts {
    /// Brings everything up, on CPU 0, and has the bench thread begin there.
    pub(super) fn set_up(self) -> Result<Arc<System>, SetupError> {
        let mode = match self.variant {
            ThreadedVariant::Mask => EoiMode::Together,
            ThreadedVariant::EoiMode1 => EoiMode::Split,
        };
        let GicWindows { distributor, cpu_interface, redistributors, .. } = self.gic;
        if self.version == 2 {
            let gic = GicV2::new(SimHal, distributor, cpu_interface, self.cpus, mode)?;
            return self.set_up_on(gic);
        }
        let len_bytes = self.cpus * STRIDE_BYTES;
        let redistributors = vec![Redistributors { regs: redistributors, len_bytes, base: REDISTRIBUTORS_BASE }];
        let affinities: Vec<_> = (0..self.cpus).map(|cpu| Affinity(((cpu / 16) << 8) | (cpu % 16))).collect();
        let gic = GicV3::new(SimHal, distributor, redistributors, cpu_interface, &affinities, mode, 0)?;
        self.set_up_on(gic)
    }

    fn set_up_on<V: Version<SimHal>>(self, gic: Gic<SimHal, V>) -> Result<Arc<System>, SetupError> {
        let gic = Arc::new(gic);
        let domain = GicDomain::new(gic.clone());
        let config = CoreConfig { force_threads: true, flight_ns: FLIGHT_NS, ..CoreConfig::x86(self.cpus, LINES_MAX) };
        let core = Arc::new(IrqCore::new(SimHal, config)?);
        let mut private = Vec::new();
        for intid in PRIVATE {
            let line = core.alloc_line(&domain, &request(intid), Flow::PerCpu)?;
            core.request(line, "scheduler", RequestFlags::default(), Arc::new(Plain))?;
            private.push(line);
        }
        let line = core.alloc_line(&domain, &request(INTID), gic.flow())?;
        core.request(line, "bench", RequestFlags::default(), self.bench.clone())?;
        let neighbour = core.alloc_line(&domain, &request(NEIGHBOUR), gic.flow())?;
        core.set_type(neighbour, Trigger::EdgeRising)?;
        let in_interrupt = RequestFlags { no_thread: true, ..RequestFlags::default() };
        core.request(neighbour, "neighbour", in_interrupt, Arc::new(Plain))?;
        let system = Arc::new(System { core, gic });
        assert!(self.installed.set(system.clone()).is_ok(), "a kernel is brought up once");
        for cpu in 0..self.cpus {
            let (system, private) = (system.clone(), private.clone());
            spawn("start", cpu, move || system.start_cpu(&private))?;
        }
        let (core, bench) = (system.core.clone(), self.bench);
        spawn("bench", 0, move || bench.run(&core, line))?;
        Ok(system)
    }
}

impl System {
    /// The IRQ exception of any CPU.
    pub(super) fn exception(&self) {
        self.gic.handle(&self.core);
    }

    /// What each CPU does for itself; the GIC has started the boot CPU's interface already.
    fn start_cpu(&self, private: &[Irq]) {
        if SimHal.cpu() != CpuId(0) {
            self.gic.start_cpu().expect("its redistributor was found when the GIC was set up");
        }
        private.iter().for_each(|&line| self.core.enable_percpu(line).expect("a per-CPU line"));
    }
}

fn spawn(name: &'static str, cpu: u32, body: impl FnOnce() + Send + 'static) -> Result<(), SetupError> {
    let spec = ThreadSpec { name, affinity: hal::Affinity::Cpu(CpuId(cpu)), urgent: false };
    SimHal.spawn(spec, Box::new(body)).map_err(SetupError::Spawn)?;
    Ok(())
}

fn request(intid: u32) -> AllocRequest {
    AllocRequest {
        requester: RequesterId(0),
        index: intid,
        affinity: CpuSet::of(CpuId(0)),
        managed: false,
        delivery: Delivery::Fixed,
    }
}

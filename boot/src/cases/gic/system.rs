//! Core and drivers, brought up on this machine's GIC.

use crate::arch::{Platform, Registers};
use crate::cases::Options;
use crate::kernel::cpu::{self, Exception};
use crate::kernel::mmio::Mmio;
use crate::kernel::{self, Bare, threads};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use drivers::gic::{Affinity, EoiMode, GicDomain, GicV2, GicV3, Redistributors};
use hal::{CpuId, CpuSet};
use irq::{
    Action, AllocRequest, CoreConfig, Flow, Irq, IrqCore, IrqDomain, IrqReturn, RequestFlags, RequesterId, Trigger,
};
use spec::gic::IntId;

/// The virtual timer of the generic timer, which ends time slices (PPI).
const TIMER: u32 = 27;
/// The SGI that makes a CPU look at its run queue.
const RESCHEDULE: IntId = IntId(0);

/// The GIC of this machine.
#[derive(Clone)]
pub(super) enum Gic {
    /// A GICv2.
    V2(Arc<GicV2<Bare>>),
    /// A GICv3.
    V3(Arc<GicV3<Bare>>),
}

/// Everything.
pub(super) struct System {
    pub(super) core: Arc<IrqCore<Bare>>,
    pub(super) gic: Gic,
    pub(super) root: Arc<dyn IrqDomain>,
    pub(super) platform: &'static Platform,
}

/// An action from a closure.
pub(super) struct Handler<F>(pub(super) F);

impl<F: Fn(Irq) -> IrqReturn + Send + Sync> Action for Handler<F> {
    fn handle(&self, irq: Irq) -> IrqReturn {
        (self.0)(irq)
    }
}

fn window(window: crate::arch::Window) -> Registers {
    Registers::Mmio(Mmio::new(window.base, window.len_bytes))
}

impl Gic {
    fn new(platform: &Platform, mode: EoiMode) -> Result<Self, String> {
        let why = |error: drivers::gic::GicError| format!("the GIC does not come up: {error}");
        let (distributor, part) = (window(platform.distributor), window(platform.cpu_part));
        if platform.gic_version == 2 {
            let gic = GicV2::new(Bare, distributor, part, platform.cpus(), mode).map_err(why)?;
            return Ok(Self::V2(Arc::new(gic)));
        }
        let regions = Vec::from([Redistributors { regs: part, base: platform.cpu_part.base as u64 }]);
        let affinities: Vec<Affinity> = platform.affinities.iter().map(|&mpidr| affinity(mpidr)).collect();
        let gic = GicV3::new(Bare, distributor, regions, Registers::System, &affinities, mode, 0).map_err(why)?;
        Ok(Self::V3(Arc::new(gic)))
    }

    fn domain(&self) -> Arc<dyn IrqDomain> {
        match self {
            Self::V2(gic) => Arc::new(GicDomain::new(gic.clone())),
            Self::V3(gic) => Arc::new(GicDomain::new(gic.clone())),
        }
    }

    fn handle(&self, core: &IrqCore<Bare>) {
        match self {
            Self::V2(gic) => gic.handle(core),
            Self::V3(gic) => gic.handle(core),
        }
    }

    /// Sends an SGI.
    pub(super) fn send(&self, intid: IntId, cpu: CpuId) -> Result<(), String> {
        match self {
            Self::V2(gic) => gic.send(intid, cpu),
            Self::V3(gic) => gic.send(intid, cpu),
        }
        .map_err(|error| error.to_string())
    }

    fn start_cpu(&self) {
        let started = match self {
            Self::V2(gic) => gic.start_cpu(),
            Self::V3(gic) => gic.start_cpu(),
        };
        started.unwrap_or_else(|error| panic!("the GIC's interface of this CPU: {error}"));
    }

    /// The flow of its SPIs.
    pub(super) fn flow(&self) -> Flow {
        match self {
            Self::V2(gic) => gic.flow(),
            Self::V3(gic) => gic.flow(),
        }
    }

    /// Interrupts that were no line's.
    pub(super) fn strays(&self) -> u64 {
        match self {
            Self::V2(gic) => gic.strays(),
            Self::V3(gic) => gic.strays(),
        }
    }
}

/// Aff3 in 39:32, the others in 23:0 of MPIDR_EL1, as GICR_TYPER has them.
fn affinity(mpidr: u64) -> Affinity {
    Affinity((mpidr >> 32 & 0xff) as u32 * 0x0100_0000 + (mpidr & 0x00ff_ffff) as u32)
}

impl System {
    /// Brings up core and GIC on all CPUs. Options: `eoimode` (0 or 1), `forced` (1: handlers are forced into threads).
    ///
    /// # Errors
    /// What did not come up.
    pub(super) fn new(platform: &'static Platform, options: &Options) -> Result<Self, String> {
        let mode = if options.number("eoimode", 1)? == 0 { EoiMode::Together } else { EoiMode::Split };
        let force_threads = options.number("forced", 1)? != 0;
        let config = CoreConfig { force_threads, ..CoreConfig::x86(platform.cpus(), 64) };
        let core = Arc::new(IrqCore::new(Bare, config).map_err(|error| error.to_string())?);
        let gic = Gic::new(platform, mode)?;
        let system = Self { root: gic.domain(), core, gic, platform };
        let (core, gic, kicks) = (system.core.clone(), system.gic.clone(), system.gic.clone());
        cpu::set_entry(
            move |Exception::Interrupt(_)| gic.handle(&core),
            move |cpu| kicks.send(RESCHEDULE, cpu).unwrap_or_else(|why| panic!("no SGI to CPU {cpu}: {why}")),
        );
        let timer = system.private(TIMER, "timer", |_| threads::tick())?;
        let reschedule = system.private(RESCHEDULE.0, "reschedule", |_| ())?;
        let (core, gic) = (system.core.clone(), system.gic.clone());
        let enable = move |core: &IrqCore<Bare>| {
            for irq in [timer, reschedule] {
                core.enable_percpu(irq).unwrap_or_else(|error| panic!("line {irq}: {error}"));
            }
        };
        enable(&core);
        kernel::start_cpus(move || {
            gic.start_cpu();
            enable(&core);
        })?;
        Ok(system)
    }

    /// A line of the GIC itself, on any CPU of `cpus`.
    ///
    /// # Errors
    /// What the core says.
    pub(super) fn line(&self, intid: u32, flow: Flow, cpus: CpuSet) -> Result<Irq, String> {
        let request = AllocRequest {
            requester: RequesterId(0),
            index: intid,
            affinity: cpus,
            managed: false,
            delivery: irq::Delivery::Fixed,
        };
        self.core.alloc_line(&*self.root, &request, flow).map_err(|error| format!("INTID {intid}: {error}"))
    }

    /// A private interrupt of each CPU; a CPU enables it for itself.
    ///
    /// # Errors
    /// What the core says.
    pub(super) fn private(
        &self,
        intid: u32,
        name: &'static str,
        handle: impl Fn(Irq) + Send + Sync + 'static,
    ) -> Result<Irq, String> {
        let irq = self.line(intid, Flow::PerCpu, CpuSet::first(self.platform.cpus()))?;
        let handler = Handler(move |irq| {
            handle(irq);
            IrqReturn::Handled
        });
        self.core.request(irq, name, RequestFlags::default(), Arc::new(handler)).map_err(|error| error.to_string())?;
        Ok(irq)
    }

    /// An SPI with a handler; forced into a thread, unless the case says otherwise.
    ///
    /// # Errors
    /// What the core says.
    pub(super) fn shared(
        &self,
        intid: u32,
        trigger: Trigger,
        cpu: CpuId,
        name: &'static str,
        handle: impl Fn(Irq) -> IrqReturn + Send + Sync + 'static,
    ) -> Result<Irq, String> {
        let irq = self.line(intid, self.gic.flow(), CpuSet::of(cpu))?;
        let why = |error: irq::IrqError| format!("INTID {intid}: {error}");
        self.core.set_type(irq, trigger).map_err(why)?;
        self.core.request(irq, name, RequestFlags::default(), Arc::new(Handler(handle))).map_err(why)?;
        Ok(irq)
    }
}

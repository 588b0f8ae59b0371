//! Core and drivers, brought up on this machine's GIC.

use super::messages::{self, LPIS, Messages};
use crate::arch::{Platform, Registers};
use crate::cases::Options;
use crate::cases::pci::{Bus, Function};
use crate::kernel::cpu::{self, Exception};
use crate::kernel::{self, Bare, threads};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use drivers::gic::{Affinity, EoiMode, GicDomain, GicV2, GicV3, Redistributors};
use drivers::message::MessageSource;
use drivers::virtio::discovery::{self, Line};
use hal::{CpuId, CpuSet, Hal, Regs};
use irq::{
    Action, AllocRequest, CoreConfig, Flow, Irq, IrqCore, IrqDomain, IrqReturn, RequestFlags, RequesterId, Trigger,
};
use spec::gic::{IntId, gicd};

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
pub(in crate::cases) struct System {
    pub(in crate::cases) core: Arc<IrqCore<Bare>>,
    pub(super) gic: Gic,
    root: Arc<dyn IrqDomain>,
    /// Where the machine has a way for messages.
    messages: Option<Messages>,
    /// The private interrupts that every CPU has: timer and reschedule.
    private: Vec<Irq>,
    pub(in crate::cases) platform: &'static Platform,
}

/// An action from a closure.
pub(super) struct Handler<F>(pub(super) F);

impl<F: Fn(Irq) -> IrqReturn + Send + Sync> Action for Handler<F> {
    fn handle(&self, irq: Irq) -> IrqReturn {
        (self.0)(irq)
    }
}

/// The registers of a device.
pub(super) fn window(window: crate::arch::Window) -> Registers {
    Registers::new(window.base, window.len_bytes)
}

impl Gic {
    fn new(platform: &Platform, mode: EoiMode) -> Result<Self, String> {
        let why = |error: drivers::gic::GicError| format!("the GIC does not come up: {error}");
        let (distributor, part) = (window(platform.distributor), window(platform.cpu_part));
        if platform.gic_version == 2 {
            let gic = GicV2::new(Bare, distributor, part, platform.cpus(), mode).map_err(why)?;
            return Ok(Self::V2(Arc::new(gic)));
        }
        let crate::arch::Window { base, len_bytes } = platform.cpu_part;
        let regions = Vec::from([Redistributors { regs: part, len_bytes, base: base as u64 }]);
        let lpis = if platform.messages.is_some() { LPIS } else { 0 };
        let affinities: Vec<Affinity> = platform.affinities.iter().map(|&mpidr| affinity(mpidr)).collect();
        let gic = GicV3::new(Bare, distributor, regions, Registers::System, &affinities, mode, lpis).map_err(why)?;
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

    fn start_cpu(&self) -> Result<(), String> {
        match self {
            Self::V2(gic) => gic.start_cpu(),
            Self::V3(gic) => gic.start_cpu(),
        }
        .map_err(|error| format!("the GIC's interface of this CPU: {error}"))
    }

    fn stop_cpu(&self) -> Result<(), String> {
        match self {
            Self::V2(gic) => gic.stop_cpu(),
            Self::V3(gic) => gic.stop_cpu(),
        }
        .map_err(|error| format!("the GIC's interface of this CPU: {error}"))
    }

    fn late_writes(&self) -> u64 {
        match self {
            Self::V2(gic) => gic.late_writes(),
            Self::V3(gic) => gic.late_writes(),
        }
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
        let (entry_core, entry, kicks) = (core.clone(), gic.clone(), gic.clone());
        cpu::set_entry(
            move |Exception::Interrupt(_)| entry.handle(&entry_core),
            move |cpu| kicks.send(RESCHEDULE, cpu).unwrap_or_else(|why| panic!("no SGI to CPU {cpu}: {why}")),
        );
        let messages = platform.messages.map(|place| Messages::new(&gic, place)).transpose()?;
        let mut system = Self { root: gic.domain(), core, gic, messages, private: Vec::new(), platform };
        system.private = Vec::from([
            system.private(TIMER, "timer", |_| threads::tick())?,
            system.private(RESCHEDULE.0, "reschedule", |_| ())?,
        ]);
        enable(&system.core, &system.private)?;
        let (core, gic, messages) = (system.core.clone(), system.gic.clone(), system.messages.clone());
        let private = system.private.clone();
        kernel::start_cpus(move || {
            let started = start_this_cpu(&core, &gic, messages.as_ref(), &private);
            started.unwrap_or_else(|why| panic!("CPU {}: {why}", Bare.cpu()));
        })?;
        Ok(system)
    }

    /// The domain of PCI messages.
    ///
    /// # Errors
    /// The machine has none.
    pub(in crate::cases) fn messages(
        &self,
        _bus: &mut Bus,
        _function: &Function,
    ) -> Result<Arc<dyn IrqDomain>, String> {
        self.messages.as_ref().map(|messages| messages.domain.clone()).ok_or("no ITS and no v2m frame".into())
    }

    /// What is to be done once a function's MSI-X table is known: nothing, here.
    ///
    /// # Errors
    /// None.
    pub(in crate::cases) fn start_messages(&self, _table: &impl MessageSource) -> Result<(), String> {
        Ok(())
    }

    /// The flow of their lines.
    pub(in crate::cases) fn message_flow(&self) -> Flow {
        self.messages.as_ref().map_or(Flow::FastEoi, |messages| messages.flow)
    }

    /// Interrupts that were no line's.
    pub(in crate::cases) fn strays(&self) -> u64 {
        self.gic.strays()
    }

    /// Interrupts of devices that wait at this CPU, whose interrupts are off.
    pub(in crate::cases) fn requested_here(&self) -> Vec<u32> {
        messages::highest_pending(&self.gic, self.platform.cpu_part).map(|intid| intid.0).into_iter().collect()
    }

    /// What a CPU that goes does behind `IrqCore::cpu_offline`. Nothing waits here any more: it has all moved along.
    ///
    /// # Errors
    /// What the GIC says, or an interrupt that waits.
    pub(in crate::cases) fn leave(&self, cpu: CpuId) -> Result<(), String> {
        self.private.iter().try_for_each(|&irq| self.core.disable_percpu(irq)).map_err(|error| error.to_string())?;
        let heir = CpuId(u32::from(cpu.0 == 0));
        self.messages.as_ref().map_or(Ok(()), |messages| messages.cpu_offline(heir))?;
        let left = self.requested_here();
        if left.is_empty() { Ok(()) } else { Err(format!("INTIDs {left:?} wait at CPU {cpu}, which is offline")) }
    }

    /// What a CPU that comes back does before `IrqCore::cpu_online`: its interface has been off.
    ///
    /// # Errors
    /// What the GIC says.
    pub(in crate::cases) fn come_back(&self) -> Result<(), String> {
        self.gic.stop_cpu()?;
        start_this_cpu(&self.core, &self.gic, self.messages.as_ref(), &self.private)
    }

    /// Begins or ends a stretch of QEMU's trace: a read of GICD_IIDR, which nobody else reads.
    pub(in crate::cases) fn mark(&self) {
        window(self.platform.distributor).read32(gicd::IIDR.offset());
    }

    /// Every write that disables an interrupt has taken effect in time.
    ///
    /// # Errors
    /// Some have not.
    pub(in crate::cases) fn check(&self) -> Result<(), String> {
        crate::cases::count("late_writes", self.gic.late_writes());
        crate::cases::expect("late writes", self.gic.late_writes(), 0)
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

    /// An SPI that the platform describes, for a device on a wire.
    ///
    /// # Errors
    /// What the core says.
    pub(super) fn wire(&self, wire: &Line, cpu: CpuId, handler: Arc<dyn Action>) -> Result<Irq, String> {
        let is_edge = wire.trigger == Some(discovery::Trigger::Edge);
        let trigger = if is_edge { Trigger::EdgeRising } else { Trigger::LevelHigh };
        self.spi(wire.number, trigger, cpu, "virtio", handler)
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
        self.spi(intid, trigger, cpu, name, Arc::new(Handler(handle)))
    }

    fn spi(
        &self,
        intid: u32,
        trigger: Trigger,
        cpu: CpuId,
        name: &'static str,
        handler: Arc<dyn Action>,
    ) -> Result<Irq, String> {
        let irq = self.line(intid, self.gic.flow(), CpuSet::of(cpu))?;
        let why = |error: irq::IrqError| format!("INTID {intid}: {error}");
        self.core.set_type(irq, trigger).map_err(why)?;
        self.core.request(irq, name, RequestFlags::default(), handler).map_err(why)?;
        Ok(irq)
    }
}

fn enable(core: &IrqCore<Bare>, private: &[Irq]) -> Result<(), String> {
    private.iter().try_for_each(|&irq| core.enable_percpu(irq)).map_err(|error| error.to_string())
}

/// Starts everything of the CPU that runs this.
fn start_this_cpu(core: &IrqCore<Bare>, gic: &Gic, messages: Option<&Messages>, private: &[Irq]) -> Result<(), String> {
    gic.start_cpu()?;
    messages.map_or(Ok(()), Messages::cpu_online)?;
    enable(core, private)
}

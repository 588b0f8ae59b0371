//! Brings up an Arm system on this machine's GIC, for the cases.

use crate::arch::{self, Platform, Registers, Window};
use crate::cases::Options;
use crate::cases::pci::{Bus, Function};
use crate::kernel::cpu::{self, Exception};
use crate::kernel::{self, Bare, threads};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use drivers::gic::its::ItsConfig;
use drivers::gic::{Affinity, EoiMode, Redistributors};
use drivers::message::MessageSource;
use drivers::virtio::discovery::{self, Line};
use hal::{CpuId, CpuSet, Hal, Regs};
use irq::{Action, Flow, Irq, IrqCore, IrqDomain, IrqReturn, RequestFlags, Trigger};
use spec::gic::{IntId, Kind, Priority, gicc, gicd, gicr, icc};
use systems::arm::{Arm, ArmBuilder, GicHardware, MessageHardware, TimerHardware};

/// Lines of the core.
const LINES: u32 = 64;
/// Number of LPIs, and of events for each device.
const LPIS: u32 = 64;
/// Longest delay of an interrupt on its way to a CPU: QEMU's CPUs are threads of a busy host.
const FLIGHT_NS: u64 = 1_000_000;
/// The CPU's system registers: the GICv3's interface and the generic timer.
const IN_CPU: Registers = Registers::Cpu(metal::CpuRegisters);

/// The parts of an Arm system that the cases use.
pub(in crate::cases) struct GicFixture {
    pub(super) arm: Arc<Arm<Bare>>,
    pub(in crate::cases) core: Arc<IrqCore<Bare>>,
    pub(in crate::cases) platform: &'static Platform,
}

/// Makes an action from a closure.
struct Handler<F>(F);

impl<F: Fn(Irq) -> IrqReturn + Send + Sync> Action for Handler<F> {
    fn handle(&self, irq: Irq) -> IrqReturn {
        (self.0)(irq)
    }
}

/// The registers of a device.
fn window(window: Window) -> Registers {
    arch::window(window.base, window.len_bytes)
}

/// Converts MPIDR_EL1 to GICR_TYPER's format: Aff3 comes from bits 39:32, the other levels from 23:0.
fn affinity(mpidr: u64) -> Affinity {
    Affinity((mpidr >> 32 & 0xff) as u32 * 0x0100_0000 + (mpidr & 0x00ff_ffff) as u32)
}

/// The GIC, as the device tree describes it.
fn gic(platform: &Platform) -> GicHardware<Registers> {
    let (distributor, part) = (window(platform.distributor), window(platform.cpu_part));
    if platform.gic_version == 2 {
        return GicHardware::V2 { distributor, cpu_interface: part, cpus: platform.cpus() };
    }
    let Window { base, len_bytes } = platform.cpu_part;
    GicHardware::V3 {
        distributor,
        redistributors: Vec::from([Redistributors { regs: part, len_bytes, base: base as u64 }]),
        system_registers: IN_CPU,
        affinities: platform.affinities.iter().map(|&mpidr| affinity(mpidr)).collect(),
    }
}

/// The ITS of a GICv3, the v2m frame of a GICv2.
fn messages(platform: &Platform, place: Window) -> MessageHardware<Registers> {
    let (regs, base) = (window(place), place.base as u64);
    match platform.gic_version {
        2 => MessageHardware::V2m { regs, base },
        _ => MessageHardware::Its { regs, config: ItsConfig { base, events_per_device: LPIS }, lpis: LPIS },
    }
}

/// Connects the kernel's interrupts, kicks and timer to the system, and starts all CPUs.
fn start(arm: &Arc<Arm<Bare>>) -> Result<(), String> {
    let (entry, kicks, timers, others) = (arm.clone(), arm.clone(), arm.clone(), arm.clone());
    cpu::set_entry(
        move |Exception::Interrupt(_)| match cpu::this().held_by_priority.load(Ordering::SeqCst) {
            true => entry.pseudo_nmi(),
            false => entry.exception(),
        },
        move |cpu| kicks.kick(cpu).unwrap_or_else(|why| panic!("no SGI to CPU {cpu}: {why}")),
    );
    let off = Bare.irq_save();
    let started = arm.start_cpu();
    // The start has stopped a timer that the kernel may have armed before.
    cpu::set_timer_with(move |wait_ns| match wait_ns {
        Some(wait_ns) => timers.tick_at(Bare.now_ns() + wait_ns),
        None => timers.no_tick(),
    });
    Bare.irq_restore(off);
    started.map_err(|error| error.to_string())?;
    kernel::start_cpus(move || others.start_cpu().unwrap_or_else(|why| panic!("CPU {}: {why}", Bare.cpu())))
}

impl GicFixture {
    /// Brings the system up on all CPUs, with pseudo-NMIs if the case needs them. Options: `eoimode` (0 or 1), `forced`
    /// (1: handlers are forced into threads).
    ///
    /// # Errors
    /// The part that did not come up.
    pub(super) fn new(platform: &'static Platform, options: &Options, pseudo_nmis: bool) -> Result<Self, String> {
        let mode = if options.number("eoimode", 1)? == 0 { EoiMode::Together } else { EoiMode::Split };
        let tick = |_| {
            threads::tick();
            IrqReturn::Handled
        };
        let mut builder = ArmBuilder::new(Bare, gic(platform), TimerHardware::virtual_timer(IN_CPU))
            .eoi_mode(mode)
            .lines_max(LINES)
            .flight_ns(FLIGHT_NS)
            .force_threads(options.number("forced", 1)? != 0 && !pseudo_nmis)
            .tick("timer", Arc::new(Handler(tick)));
        if pseudo_nmis {
            builder = builder.pseudo_nmis();
        }
        if let Some(place) = platform.messages {
            builder = builder.messages(messages(platform, place));
        }
        let arm = builder.build().map_err(|error| error.to_string())?;
        start(&arm)?;
        Ok(Self { core: arm.core().clone(), arm, platform })
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
        self.arm.messages().map(|messages| messages.domain().clone()).ok_or("no ITS and no v2m frame".into())
    }

    /// Runs once a function's MSI-X table is known. An Arm system needs no work then.
    ///
    /// # Errors
    /// None.
    pub(in crate::cases) fn start_messages(&self, _table: &impl MessageSource) -> Result<(), String> {
        Ok(())
    }

    /// The flow of PCI message lines.
    pub(in crate::cases) fn message_flow(&self) -> Flow {
        self.arm.messages().map_or(Flow::FastEoi, |messages| messages.flow())
    }

    /// Number of interrupts that arrived for no line.
    pub(in crate::cases) fn strays(&self) -> u64 {
        self.arm.strays()
    }

    /// The device interrupt that this CPU would take next if its interrupts were on.
    pub(in crate::cases) fn requested_here(&self) -> Vec<u32> {
        let intid = match self.platform.gic_version {
            2 => window(self.platform.cpu_part).read32(gicc::HPPIR.offset()) & 0x3ff,
            _ => IN_CPU.read64(icc::HPPIR1.offset()) as u32,
        };
        let is_device = matches!(IntId(intid).kind(), Kind::Spi | Kind::Lpi);
        Some(intid).filter(|_| is_device).into_iter().collect()
    }

    /// Takes this CPU offline. Afterwards no interrupt may be pending here: all of them have moved. The CPU's
    /// interface stays on, so that the case sees an interrupt that arrives nevertheless.
    ///
    /// # Errors
    /// An error of the core or the GIC, or a pending interrupt.
    pub(in crate::cases) fn stop_cpu(&self) -> Result<(), String> {
        let cpu = self.arm.empty_cpu().map_err(|error| format!("CPU {} cannot go: {error}", Bare.cpu()))?;
        let left = self.requested_here();
        if left.is_empty() { Ok(()) } else { Err(format!("INTIDs {left:?} wait at CPU {cpu}, which is offline")) }
    }

    /// Brings this CPU back.
    ///
    /// # Errors
    /// An error of the core or the GIC.
    pub(in crate::cases) fn start_cpu(&self) -> Result<(), String> {
        self.arm.start_cpu().map_err(|error| format!("CPU {} cannot come back: {error}", Bare.cpu()))
    }

    /// Begins or ends a section of QEMU's trace: a read of GICD_IIDR, which no other code reads.
    pub(in crate::cases) fn mark(&self) {
        window(self.platform.distributor).read32(gicd::IIDR.offset());
    }

    /// Checks that every write that disables an interrupt has taken effect in time.
    ///
    /// # Errors
    /// Some writes were late.
    pub(in crate::cases) fn check(&self) -> Result<(), String> {
        crate::cases::count("late_writes", self.arm.late_writes());
        crate::cases::expect("late writes", self.arm.late_writes(), 0)
    }

    /// An SPI that the platform describes, for a wired device.
    ///
    /// # Errors
    /// An error of the core.
    pub(super) fn wire(&self, wire: &Line, cpu: CpuId, handler: Arc<dyn Action>) -> Result<Irq, String> {
        let is_edge = wire.trigger == Some(discovery::Trigger::Edge);
        let trigger = if is_edge { Trigger::EdgeRising } else { Trigger::LevelHigh };
        self.spi(wire.number, trigger, cpu, "virtio", handler)
    }

    /// An edge-triggered SPI as a pseudo-NMI, on one CPU.
    ///
    /// # Errors
    /// An error of the core.
    pub(super) fn nmi(&self, intid: u32, cpu: CpuId, handle: impl Fn() + Send + Sync + 'static) -> Result<(), String> {
        let handler = Handler(move |_| {
            handle();
            IrqReturn::Handled
        });
        let line = self.arm.wire(IntId(intid), Trigger::EdgeRising, CpuSet::of(cpu));
        let handler = line.and_then(|line| line.request_nmi("nmi", Arc::new(handler)));
        handler.map(|handler| _ = handler.keep()).map_err(|error| format!("INTID {intid}: {error}"))
    }

    /// Makes an SPI pending by the distributor's register.
    pub(super) fn set_pending(&self, intid: u32) {
        window(self.platform.distributor).write32(gicd::ISPENDR.get(intid / 32).offset(), 1 << (intid % 32));
    }

    /// Sets this CPU's priority mask.
    pub(super) fn set_priority_mask(&self, mask: Priority) {
        IN_CPU.write64(icc::PMR.offset(), mask.0.into());
    }

    /// Whether the GICv3 has extended SPIs (GICD_TYPER.ESPI), and its number of extended PPIs as GICR_TYPER.PPInum
    /// gives it.
    pub(super) fn extended_ranges(&self) -> (bool, u8) {
        let distributor = window(self.platform.distributor).read32(gicd::TYPER.offset());
        let redistributor = window(self.platform.cpu_part).read64(gicr::TYPER.offset());
        (distributor & 1 << 8 != 0, gicr::Type::from_bits(redistributor).extended_ppis())
    }

    /// A private interrupt of each CPU. Every CPU that has started enables its own.
    ///
    /// # Errors
    /// An error of the core.
    pub(super) fn private(
        &self,
        intid: u32,
        name: &'static str,
        handle: impl Fn(Irq) + Send + Sync + 'static,
    ) -> Result<Irq, String> {
        let handler = Handler(move |irq| {
            handle(irq);
            IrqReturn::Handled
        });
        self.arm.private_line(IntId(intid), name, Arc::new(handler)).map_err(|error| format!("INTID {intid}: {error}"))
    }

    /// An SPI with a handler. The handler is forced into a thread, unless the case says otherwise.
    ///
    /// # Errors
    /// An error of the core.
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
        let line = self.arm.wire(IntId(intid), trigger, CpuSet::of(cpu));
        let handler = line.and_then(|line| line.request(name, RequestFlags::default(), handler));
        handler.map(systems::Handler::keep).map_err(|error| format!("INTID {intid}: {error}"))
    }
}

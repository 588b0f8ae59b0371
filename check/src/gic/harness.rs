//! An Arm system on a machine with a GIC, and operations of tests on its CPUs.

use crate::deadlines;
use crate::setbacks::Setbacks;
use crate::verdict::violate;
use drivers::gic::its::{Its, ItsConfig};
use drivers::gic::{Affinity, EoiMode, Redistributors};
use hal::{CpuId, CpuSet, Hal as _, Regs as _, ThreadSpec, Threads as _};
use irq::poll::SoftPoll;
use irq::{Action, AllocRequest, Flow, Irq, IrqCore, IrqDomain, IrqReturn, LineView, RequesterId, StormConfig};
use machine::Interrupts;
use machine::gic::{GicConfig, GicWindows};
use machine::model::ModelId;
use machine::{Exception, Machine, MachineConfig, Regs, SimHal};
use spec::gic::gicr::STRIDE_BYTES;
use spec::gic::icc::PMR;
use spec::gic::{IntId, Priority};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use systems::arm::{Arm, ArmBuilder, ArmError, GicHardware, MessageHardware, TimerHardware};

/// Between two tries of a CPU to come online while a fault lasts.
const START_GAP_NS: u64 = 2_000;
/// LPIs of the driver.
pub(super) const LPIS: u32 = 64;
/// Events of a device.
pub(super) const EVENTS_MAX: u32 = 32;
/// SPIs of the v2m frame.
pub(super) const FRAME_SPIS: u32 = 8;
/// Lines of the core.
pub(crate) const LINES_MAX: u32 = 64;
/// The machine's ITS, as devices find it.
pub const ITS_BASE: u64 = 0x0808_0000;
/// The v2m frame.
pub const V2M_BASE: u64 = 0x0802_0000;
/// The redistributors. Only an ITS would need them.
const REDISTRIBUTORS_BASE: u64 = 0x080a_0000;
/// SPIs that the distributor's own message register raises.
const MESSAGE_SPIS: (IntId, u32) = (IntId(72), FRAME_SPIS);

/// Which GIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// GICv2.
    V2,
    /// GICv3.
    V3,
}

/// Those that every test runs on.
pub const ALL: [(Version, EoiMode); 6] = [
    (Version::V2, EoiMode::Together),
    (Version::V2, EoiMode::Split),
    (Version::V2, EoiMode::SplitAtOnce),
    (Version::V3, EoiMode::Together),
    (Version::V3, EoiMode::Split),
    (Version::V3, EoiMode::SplitAtOnce),
];

/// The affinity of a CPU of the machine, as its firmware tells.
pub(crate) fn affinity(windows: &GicWindows, cpu: u32) -> Affinity {
    Affinity(((cpu / 16) << 8) | ((cpu % 16) << windows.affinity_shift))
}

/// Describes a machine's GIC to the system.
pub fn hardware(windows: &GicWindows, version: Version, cpus: u32) -> GicHardware<Regs> {
    let GicWindows { distributor, cpu_interface, redistributors, .. } = *windows;
    match version {
        Version::V2 => GicHardware::V2 { distributor, cpu_interface, cpus },
        Version::V3 => {
            let len_bytes = cpus * STRIDE_BYTES;
            let redistributors = Redistributors { regs: redistributors, len_bytes, base: REDISTRIBUTORS_BASE };
            GicHardware::V3 {
                distributor,
                redistributors: vec![redistributors],
                system_registers: cpu_interface,
                affinities: (0..cpus).map(|cpu| affinity(windows, cpu)).collect(),
            }
        }
    }
}

/// The machine's way of messages, if it has one.
fn messages(windows: &GicWindows, gic: &GicConfig) -> Option<MessageHardware<Regs>> {
    let its = || MessageHardware::Its {
        regs: windows.its,
        config: ItsConfig { base: ITS_BASE, events_per_device: EVENTS_MAX },
        lpis: LPIS,
    };
    let v2m = || MessageHardware::V2m { regs: windows.v2m, base: V2M_BASE };
    let (first, count) = MESSAGE_SPIS;
    let distributor = || MessageHardware::Distributor { base: windows.message_base, first, count };
    let way = gic.its.as_ref().map(|_| its());
    way.or_else(|| gic.v2m.as_ref().map(|_| v2m())).or_else(|| gic.message_spis.then(distributor))
}

/// A system under test, and how the machine's CPUs enter it.
pub struct ArmHarness {
    /// The system under test.
    pub arm: Arc<Arm<SimHal>>,
    /// Its delivery core.
    pub core: Arc<IrqCore<SimHal>>,
    /// The GIC's registers.
    pub windows: GicWindows,
    /// CPUs.
    pub cpus: u32,
    /// Which GIC.
    pub version: Version,
    /// The GIC's model.
    pub model: ModelId,
    /// The kernel's ticks, by CPU.
    pub(crate) ticks: Vec<Arc<Heard>>,
    /// Its reschedule interrupts, by CPU.
    pub(crate) kicks: Vec<Arc<Heard>>,
    /// A CPU goes offline, is offline, or comes online. One at a time does.
    changing: AtomicBool,
    /// CPUs in an interrupt.
    takes: Vec<AtomicBool>,
    /// How late a CPU's timer may be for the core's deadline.
    pub(super) alarm_ns_max: u64,
    /// Polls at the end of every interrupt.
    pub polls: OnceLock<Arc<SoftPoll<SimHal>>>,
}

impl ArmHarness {
    /// A kernel that has interrupts off lets pseudo-NMIs alone through by its priority mask, which must be as it was behind one.
    fn pseudo_nmi(&self) {
        let (registers, mask) = (self.windows.cpu_interface, PMR.offset());
        let open = registers.read64(mask);
        registers.write64(mask, Priority::DEFAULT.0.into());
        self.arm.pseudo_nmi();
        let left = registers.read64(mask);
        if left != u64::from(Priority::DEFAULT.0) {
            violate("gic", format!("a pseudo-NMI leaves the priority mask {left:#x}"));
        }
        registers.write64(mask, open);
    }

    /// A CPU takes an exception.
    fn take(&self, exception: Exception) {
        match exception {
            Exception::Irq => {
                let takes = &self.takes[SimHal.cpu().index()];
                takes.store(true, Relaxed);
                match self.polls.get() {
                    Some(polls) => polls.interrupt(|| self.arm.exception()),
                    None => self.arm.exception(),
                }
                takes.store(false, Relaxed);
            }
            Exception::PseudoNmi => self.pseudo_nmi(),
            Exception::Vector(vector) => panic!("vector {vector} on a machine without"),
        }
    }

    /// An SPI's line, level-triggered, on CPU 0.
    ///
    /// # Panics
    /// When it is refused.
    pub fn spi(&self, intid: u32) -> Irq {
        self.arm.spi(IntId(intid), CpuSet::of(CpuId(0))).expect("a line").keep()
    }

    /// A line of `domain`, on CPU 0, without a handler.
    ///
    /// # Panics
    /// When it is refused.
    pub fn line(&self, domain: Arc<dyn IrqDomain>, index: u32, flow: Flow) -> Irq {
        self.core.alloc_line(domain, &request(index), flow).expect("a line")
    }

    /// A private line: each CPU has its own, and enables it whenever it comes.
    ///
    /// # Panics
    /// If the line is refused.
    pub fn private(&self, intid: u32, action: Arc<dyn Action>) -> Irq {
        self.arm.private_line(IntId(intid), "private", action).expect("a line")
    }

    /// Has every CPU, all of which are up, enable a private line.
    ///
    /// # Panics
    /// When the line is none of these.
    pub fn enable_everywhere(self: &Arc<Self>, irq: Irq) {
        for cpu in 0..self.cpus {
            let system = self.clone();
            self.on(cpu, move || system.core.enable_percpu(irq).expect("a per-CPU line"));
        }
    }

    /// Brings a CPU up.
    ///
    /// # Panics
    /// If that fails.
    pub fn come_up(&self) {
        self.arm.start_cpu().expect("it starts");
    }

    /// Takes a CPU down.
    ///
    /// # Panics
    /// If that is refused.
    pub fn leave(&self) {
        let off = SimHal.irq_save();
        self.arm.stop_cpu().expect("others are left");
        SimHal.irq_restore(off);
    }

    /// Takes a CPU offline for `ns`; its number counts modulo the CPUs. A single CPU stays online, and so does one that the
    /// hardware keeps, which may be only `faulty`. False if that happened.
    pub(crate) fn take_offline(self: &Arc<Self>, cpu: u32, ns: u64, faulty: bool) -> bool {
        let cpus = self.cpus;
        if cpus == 1 {
            return true;
        }
        let (cpu, system) = (cpu % cpus, self.clone());
        self.on(cpu, move || {
            let off = SimHal.irq_save();
            system.changing.store(true, Relaxed);
            match system.arm.stop_cpu() {
                Err(_) if faulty => {
                    system.stayed(CpuId(cpu));
                    system.changing.store(false, Relaxed);
                    SimHal.irq_restore(off);
                    return false;
                }
                stopped => stopped.expect("others are left"),
            }
            machine::declare_cpu(cpu, false);
            deadlines::check(&system.core, cpus, |other| other != CpuId(cpu));
            SimHal.delay_ns(ns);
            machine::declare_cpu(cpu, true);
            let mut started = system.arm.start_cpu();
            while faulty && started.is_err() {
                SimHal.delay_ns(START_GAP_NS);
                started = match system.arm.start_cpu() {
                    // It is up, without a line that the core tries again.
                    Err(ArmError::Started(_)) => Ok(()),
                    started => started,
                };
            }
            started.expect("it starts");
            system.changing.store(false, Relaxed);
            SimHal.irq_restore(off);
            true
        })
    }

    /// True while a CPU goes offline, is offline, or comes online.
    pub(super) fn is_changing(&self) -> bool {
        self.changing.load(Relaxed)
    }

    /// Whether a CPU is in an interrupt.
    pub(crate) fn takes(&self, cpu: CpuId) -> bool {
        self.takes[cpu.index()].load(Relaxed)
    }

    /// This CPU could not go offline. Either it is as it was, with its own lines, or it has none and is to be started again.
    fn stayed(&self, cpu: CpuId) {
        if !matches!(self.arm.start_cpu(), Err(ArmError::Started(_))) {
            return;
        }
        let is_off = |line: &LineView| line.flow == Flow::PerCpu && !line.percpu_enabled.contains(cpu);
        if let Some(line) = self.core.views().into_iter().find(is_off) {
            violate("operations", format!("CPU {cpu} could not go offline, and lost its own interrupt {}", line.irq));
        }
    }

    /// Starts every CPU but the boot CPU, which has started.
    fn start_others(self: &Arc<Self>) {
        for cpu in 1..self.cpus {
            let system = self.clone();
            self.on(cpu, move || system.come_up());
        }
    }

    /// Runs `body` on a CPU, from a thread of another, until it has ended.
    ///
    /// # Panics
    /// When there is no such CPU.
    pub fn on<R: Send + 'static>(&self, cpu: u32, body: impl FnOnce() -> R + Send + 'static) -> R {
        let result = Arc::new(Mutex::new(None));
        let (slot, waiter) = (result.clone(), SimHal.current_thread());
        let run = move || {
            *slot.lock().expect("one host thread") = Some(body());
            SimHal.wake(waiter);
        };
        SimHal.spawn(spec(cpu), Box::new(run)).expect("the CPU exists");
        loop {
            if let Some(value) = result.lock().expect("one host thread").take() {
                return value;
            }
            SimHal.park();
        }
    }

    /// The ITS.
    ///
    /// # Panics
    /// When there is none.
    pub fn its(&self) -> Arc<Its<SimHal>> {
        self.arm.messages().and_then(|messages| messages.its()).expect("a machine with an ITS").clone()
    }
}

/// Interrupts of the kernel's own that a CPU handled.
#[derive(Default)]
pub(crate) struct Heard {
    count: AtomicU64,
    last_ns: AtomicU64,
}

impl Heard {
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// When the last one came.
    pub(crate) fn last_ns(&self) -> u64 {
        self.last_ns.load(Relaxed)
    }
}

/// The handler that counts them.
struct Counted(Vec<Arc<Heard>>);

impl Action for Counted {
    fn handle(&self, _: Irq) -> IrqReturn {
        let heard = &self.0[SimHal.cpu().index()];
        heard.last_ns.store(SimHal.now_ns(), Relaxed);
        heard.count.fetch_add(1, Relaxed);
        IrqReturn::Handled
    }
}

/// A thread that stays on `cpu`.
pub fn spec(cpu: u32) -> ThreadSpec {
    ThreadSpec { name: "on cpu", affinity: hal::Affinity::Cpu(CpuId(cpu)), urgent: false }
}

/// The request for a line of a device on CPU 0.
pub fn request(index: u32) -> AllocRequest {
    AllocRequest::fixed(RequesterId(0x0100), index, CpuSet::of(CpuId(0)))
}

/// The properties of a machine that differ from the ordinary.
#[derive(Clone, Default)]
pub struct Options {
    /// CPUs; at least one.
    pub cpus: u32,
    /// Handlers run in threads.
    pub force_threads: bool,
    /// When lines storm.
    pub storm: StormConfig,
    /// The GIC.
    pub gic: GicConfig,
    /// The other settings of the machine.
    pub machine: MachineConfig,
    /// What may go wrong while the software comes up.
    pub setbacks: Setbacks,
}

/// The system that exceptions enter.
pub type Entry = Arc<OnceLock<Arc<ArmHarness>>>;

/// A machine whose exceptions enter the system of `entry`, once it is set.
pub fn build(version: Version, options: &Options, entry: &Entry) -> Machine {
    let gic = options.gic.clone();
    let interrupts = match version {
        Version::V2 => Interrupts::GicV2(gic),
        Version::V3 => Interrupts::GicV3(gic),
    };
    let mut machine = Machine::new(MachineConfig { cpus: options.cpus.max(1), interrupts, ..options.machine.clone() });
    let entry = entry.clone();
    machine.set_exception_entry(move |exception| entry.get().into_iter().for_each(|system| system.take(exception)));
    machine
}

/// Brings it up, on the boot thread.
///
/// # Panics
/// When it does not come up, or is up.
pub fn bring_up(
    windows: GicWindows,
    version: Version,
    mode: EoiMode,
    options: &Options,
    entry: &Entry,
) -> Arc<ArmHarness> {
    let cpus = options.cpus.max(1);
    let heard = || (0..cpus).map(|_| Arc::default()).collect::<Vec<Arc<Heard>>>();
    let (ticks, kicks) = (heard(), heard());
    let build = || {
        let timer = TimerHardware::physical_timer(windows.timer);
        let mut builder = ArmBuilder::new(SimHal, hardware(&windows, version, cpus), timer)
            .eoi_mode(mode)
            .lines_max(LINES_MAX)
            .flight_ns(2_000)
            .tick("timer", Arc::new(Counted(ticks.clone())))
            .reschedule(IntId(0), "reschedule", Arc::new(Counted(kicks.clone())))
            .storm(options.storm)
            .force_threads(options.force_threads);
        if let Some(way) = messages(&windows, &options.gic) {
            builder = builder.messages(way);
        }
        if options.gic.pseudo_nmi.is_some() {
            builder = builder.pseudo_nmis();
        }
        builder.build()
    };
    let arm = options.setbacks.meet("the Arm system", build);
    let (core, model) = (arm.core().clone(), windows.model);
    let system = Arc::new(ArmHarness {
        core,
        arm,
        windows,
        cpus,
        version,
        model,
        ticks,
        kicks,
        changing: AtomicBool::new(false),
        takes: (0..cpus).map(|_| AtomicBool::new(false)).collect(),
        alarm_ns_max: deadlines::alarm_ns_max(options.machine.unrest.as_ref()),
        polls: OnceLock::new(),
    });
    assert!(entry.set(system.clone()).is_ok(), "once");
    system.come_up();
    system.start_others();
    system
}

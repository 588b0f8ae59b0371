//! A machine with a GIC, its driver, and a core with the lines that the scheduler needs.

use drivers::gic::its::{Its, ItsConfig};
use drivers::gic::{Affinity, EoiMode, GicDomain, GicV2, GicV3, Lpis, MessageSpiDomain, Redistributors};
use hal::{CpuId, CpuSet, Hal as _, ThreadSpec};
use irq::{
    Action, AllocRequest, CoreConfig, Delivery, Flow, Irq, IrqCore, IrqDomain, IrqReturn, RequestFlags, RequesterId,
    StormConfig,
};
use machine::gic::{GicConfig, GicWindows, Interrupts};
use machine::{Exception, Machine, MachineConfig, SimHal, observe};
use spec::gic::gicr::STRIDE_BYTES;
use std::sync::{Arc, Mutex, OnceLock};

/// LPIs of the driver.
const LPIS: u32 = 64;
/// The machine's ITS, as devices find it.
pub const ITS_BASE: u64 = 0x0808_0000;
/// The v2m frame.
pub const V2M_BASE: u64 = 0x0802_0000;

/// Which GIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// GICv2.
    V2,
    /// GICv3.
    V3,
}

/// The four that every test runs on.
pub const ALL: [(Version, EoiMode); 4] = [
    (Version::V2, EoiMode::Together),
    (Version::V2, EoiMode::Split),
    (Version::V3, EoiMode::Together),
    (Version::V3, EoiMode::Split),
];

/// The driver, of either version.
#[derive(Clone)]
pub enum Gic {
    /// GICv2.
    V2(Arc<GicV2<SimHal>>),
    /// GICv3.
    V3(Arc<GicV3<SimHal>>),
}

/// The same method of both.
#[macro_export]
macro_rules! either {
    ($gic:expr, $name:ident => $body:expr) => {
        match $gic {
            $crate::gic::system::Gic::V2($name) => $body,
            $crate::gic::system::Gic::V3($name) => $body,
        }
    };
}

impl Gic {
    /// A CPU takes an exception.
    fn take(&self, core: &IrqCore<SimHal>, exception: Exception) {
        match exception {
            Exception::Irq => either!(self, gic => gic.handle(core)),
            Exception::PseudoNmi => either!(self, gic => gic.handle_pseudo_nmi(core)),
            Exception::Vector(vector) => panic!("vector {vector} on a machine without"),
        }
    }

    /// The domain of its SPIs and private interrupts.
    pub fn domain(&self) -> Arc<dyn IrqDomain> {
        either!(self, gic => Arc::new(GicDomain::new(gic.clone())))
    }

    /// The flow of its lines.
    pub fn flow(&self) -> Flow {
        either!(self, gic => gic.flow())
    }
}

/// The driver on these windows, on the boot CPU.
///
/// # Panics
/// When it does not come up.
pub fn windows_of(windows: GicWindows, version: Version, mode: EoiMode, cpus: u32) -> Gic {
    match version {
        Version::V2 => {
            let gic = GicV2::new(SimHal, windows.distributor, windows.cpu_interface, cpus, mode);
            Gic::V2(Arc::new(gic.expect("a GICv2")))
        }
        Version::V3 => {
            let affinities: Vec<_> = (0..cpus).map(|cpu| Affinity(((cpu / 16) << 8) | (cpu % 16))).collect();
            let len_bytes = cpus * STRIDE_BYTES;
            let redistributors = Redistributors { regs: windows.redistributors, len_bytes, base: 0x080a_0000 };
            let redistributors = vec![redistributors];
            let (distributor, interface) = (windows.distributor, windows.cpu_interface);
            let gic = GicV3::new(SimHal, distributor, redistributors, interface, &affinities, mode, LPIS);
            Gic::V3(Arc::new(gic.expect("a GICv3")))
        }
    }
}

/// LPIs, and the ITS that translates to them.
pub type Messages = (Arc<Lpis<SimHal>>, Arc<Its<SimHal>>);

/// What the CPUs' exceptions need.
pub struct System {
    /// The delivery core.
    pub core: Arc<IrqCore<SimHal>>,
    /// The GIC's driver.
    pub gic: Gic,
    /// The GIC's registers.
    pub windows: GicWindows,
    /// CPUs.
    pub cpus: u32,
    /// LPIs, where there is an ITS.
    pub lpis: OnceLock<Messages>,
    /// What runs at the end of every interrupt.
    pub at_exit: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// Lines that each CPU enables for itself when it comes up.
    private: Mutex<Vec<Irq>>,
}

impl System {
    /// An SPI's line, level-triggered.
    pub fn spi(&self, intid: u32) -> Irq {
        self.line(&*self.gic.domain(), intid, self.gic.flow())
    }

    /// A line of `domain`, on CPU 0, without a handler.
    ///
    /// # Panics
    /// When it is refused.
    pub fn line(&self, domain: &dyn IrqDomain, index: u32, flow: Flow) -> Irq {
        self.core.alloc_line(domain, &request(index), flow).expect("a line")
    }

    /// A line that each CPU has for itself.
    ///
    /// # Panics
    /// When it is refused.
    pub fn private(&self, intid: u32, action: Arc<dyn Action>) -> Irq {
        let irq = self.line(&*self.gic.domain(), intid, Flow::PerCpu);
        self.core.request(irq, "private", RequestFlags::default(), action).expect("a new line");
        irq
    }

    /// Has every CPU enable a private line, now and whenever it comes up.
    ///
    /// # Panics
    /// When the line is none of these.
    pub fn add_private(self: &Arc<Self>, irq: Irq) {
        self.private.lock().expect("one host thread").push(irq);
        for cpu in 0..self.cpus {
            let system = self.clone();
            self.on(cpu, move || system.core.enable_percpu(irq).expect("a per-CPU line"));
        }
    }

    fn private_lines(&self) -> Vec<Irq> {
        self.private.lock().expect("one host thread").clone()
    }

    /// What a CPU does when it comes up.
    ///
    /// # Panics
    /// When it does not.
    pub fn come_up(&self) {
        either!(&self.gic, gic => gic.start_cpu()).expect("it starts");
        if let Some((lpis, its)) = self.lpis.get() {
            lpis.start_cpu().expect("LPIs");
            its.cpu_online(SimHal.cpu()).expect("a target");
        }
        self.enable_private();
    }

    fn enable_private(&self) {
        self.private_lines().into_iter().for_each(|irq| self.core.enable_percpu(irq).expect("a per-CPU line"));
    }

    /// What a CPU does when it goes, leaving everything to `heir`.
    ///
    /// # Panics
    /// When it is refused.
    pub fn leave(&self, heir: CpuId) {
        let cpu = self.core.cpu_offline().expect("others are left");
        self.private_lines().into_iter().for_each(|irq| self.core.disable_percpu(irq).expect("a per-CPU line"));
        if let Some((_, its)) = self.lpis.get() {
            its.cpu_offline(cpu, heir).expect("what is left moves along");
        }
        either!(&self.gic, gic => gic.stop_cpu()).expect("it falls asleep");
    }

    /// Takes a CPU (its number, taken round) offline for `ns`; the next one inherits. The only CPU stays.
    pub(crate) fn take_offline(self: &Arc<Self>, cpu: u32, ns: u64) {
        let cpus = self.cpus;
        if cpus == 1 {
            return;
        }
        let (cpu, system) = (cpu % cpus, self.clone());
        self.on(cpu, move || {
            let off = SimHal.irq_save();
            system.leave(CpuId((cpu + 1) % cpus));
            observe::declare_cpu(cpu, false);
            SimHal.delay_ns(ns);
            observe::declare_cpu(cpu, true);
            system.come_up();
            system.core.cpu_online(CpuId(cpu)).expect("it was offline");
            SimHal.irq_restore(off);
        });
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
        self.lpis.get().expect("a machine with an ITS").1.clone()
    }

    /// The domain of the v2m frame.
    ///
    /// # Panics
    /// When there is none.
    pub fn v2m(&self) -> Arc<dyn IrqDomain> {
        let frame = &self.windows.v2m;
        either!(&self.gic, gic => Arc::new(MessageSpiDomain::v2m(gic.clone(), frame, V2M_BASE).expect("a v2m frame")))
    }
}

/// A thread that stays on `cpu`.
pub fn spec(cpu: u32) -> ThreadSpec {
    ThreadSpec { name: "on cpu", affinity: hal::Affinity::Cpu(CpuId(cpu)), urgent: false }
}

/// What a line of a device on CPU 0 is allocated for.
pub fn request(index: u32) -> AllocRequest {
    AllocRequest {
        requester: RequesterId(0x0100),
        index,
        affinity: CpuSet::of(CpuId(0)),
        managed: false,
        delivery: Delivery::Fixed,
    }
}

/// What is asked of a machine beyond the ordinary.
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
    /// What else the machine is.
    pub machine: MachineConfig,
}

/// Where the exceptions find the system.
pub type Entry = Arc<OnceLock<Arc<System>>>;

/// A machine whose exceptions `entry`'s system takes, once it is there.
pub fn build(version: Version, options: &Options, entry: &Entry) -> Machine {
    let gic = options.gic.clone();
    let interrupts = match version {
        Version::V2 => Interrupts::GicV2(gic),
        Version::V3 => Interrupts::GicV3(gic),
    };
    let mut machine = Machine::new(MachineConfig { cpus: options.cpus.max(1), interrupts, ..options.machine.clone() });
    let entry = entry.clone();
    machine.set_exception_entry(move |exception| {
        if let Some(system) = entry.get() {
            system.gic.take(&system.core, exception);
            if exception == Exception::Irq
                && let Some(at_exit) = system.at_exit.get()
            {
                at_exit();
            }
        }
    });
    machine
}

/// Brings it up, on the boot thread.
///
/// # Panics
/// When it does not come up, or is up.
pub fn bring_up(windows: GicWindows, version: Version, mode: EoiMode, options: &Options, entry: &Entry) -> Arc<System> {
    let cpus = options.cpus.max(1);
    let gic = windows_of(windows, version, mode, cpus);
    let core = CoreConfig {
        flight_ns: 2_000,
        force_threads: options.force_threads,
        storm: options.storm,
        ..CoreConfig::x86(cpus, 64)
    };
    let core = Arc::new(IrqCore::new(SimHal, core).expect("a valid configuration"));
    let system =
        System { core, gic, windows, cpus, lpis: OnceLock::new(), at_exit: OnceLock::new(), private: Mutex::default() };
    // The scheduler's kick and the end of a time slice need no more than to have interrupted.
    let private = [0, 30].map(|intid| system.private(intid, Arc::new(Nothing))).into();
    *system.private.lock().expect("one host thread") = private;
    if let (Some(_), Gic::V3(gic)) = (&options.gic.its, &system.gic) {
        let lpis = Arc::new(Lpis::new(SimHal, gic.clone()).expect("LPIs"));
        let config = ItsConfig { base: ITS_BASE, events_per_device: 32 };
        let its = Its::new(SimHal, windows.its, lpis.clone(), config).expect("an ITS");
        assert!(system.lpis.set((lpis, Arc::new(its))).is_ok(), "once");
    }
    let system = Arc::new(system);
    assert!(entry.set(system.clone()).is_ok(), "once");
    system.enable_private();
    system.start_others();
    system
}

struct Nothing;

impl Action for Nothing {
    fn handle(&self, _: Irq) -> IrqReturn {
        IrqReturn::Handled
    }
}

//! A machine with a GIC, its driver, and a core with the lines that the scheduler needs.
#![allow(dead_code, unreachable_pub, unused_imports)]

use drivers::gic::its::{Its, ItsConfig};
use drivers::gic::{Affinity, EoiMode, GicDomain, GicV2, GicV3, Lpis, MessageSpiDomain, Redistributors};
use hal::{CpuId, CpuSet, Hal as _, ThreadSpec};
use irq::{
    Action, AllocRequest, CoreConfig, Delivery, Flow, Irq, IrqCore, IrqDomain, IrqReturn, RequestFlags, RequesterId,
};
use machine::fault::FaultRecord;
use machine::gic::{self as model, GicConfig, GicWindows, Interrupts};
use machine::time::Ps;
use machine::{Exception, Machine, MachineConfig, SimHal};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};

pub use model::{PULSE, WIRE, wire_arg};

/// LPIs of the driver.
const LPIS: u32 = 64;
/// The machine's ITS, v2m frame and distributor, as devices find them.
pub const ITS_BASE: u64 = 0x0808_0000;
pub const V2M_BASE: u64 = 0x0802_0000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    V2,
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
    V2(Arc<GicV2<SimHal>>),
    V3(Arc<GicV3<SimHal>>),
}

/// The same method of both.
#[macro_export]
macro_rules! either {
    ($gic:expr, $name:ident => $body:expr) => {
        match $gic {
            $crate::gic_rig::Gic::V2($name) => $body,
            $crate::gic_rig::Gic::V3($name) => $body,
        }
    };
}

impl Gic {
    fn take(&self, core: &IrqCore<SimHal>, exception: Exception) {
        match exception {
            Exception::Irq => either!(self, gic => gic.handle(core)),
            Exception::PseudoNmi => either!(self, gic => gic.handle_pseudo_nmi(core)),
            Exception::Vector(vector) => panic!("vector {vector} on a machine without"),
        }
    }

    pub fn domain(&self) -> Arc<dyn IrqDomain> {
        either!(self, gic => Arc::new(GicDomain::new(gic.clone())))
    }

    pub fn flow(&self) -> Flow {
        either!(self, gic => gic.flow())
    }
}

pub fn windows_of(windows: GicWindows, version: Version, mode: EoiMode, cpus: u32) -> Gic {
    match version {
        Version::V2 => {
            let gic = GicV2::new(SimHal, windows.distributor, windows.cpu_interface, cpus, mode);
            Gic::V2(Arc::new(gic.expect("a GICv2")))
        }
        Version::V3 => {
            let affinities: Vec<_> = (0..cpus).map(|cpu| Affinity(((cpu / 16) << 8) | (cpu % 16))).collect();
            let redistributors = Redistributors { regs: windows.redistributors, base: 0x080a_0000 };
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
    pub core: Arc<IrqCore<SimHal>>,
    pub gic: Gic,
    pub windows: GicWindows,
    pub cpus: u32,
    pub lpis: OnceLock<Messages>,
    private: Vec<Irq>,
}

impl System {
    /// An SPI's line, level-triggered.
    pub fn spi(&self, intid: u32) -> Irq {
        self.line(&*self.gic.domain(), intid, self.gic.flow())
    }

    pub fn line(&self, domain: &dyn IrqDomain, index: u32, flow: Flow) -> Irq {
        self.core.alloc_line(domain, &request(index), flow).expect("a line")
    }

    /// A line that each CPU has for itself.
    pub fn private(&self, intid: u32, action: Arc<dyn Action>) -> Irq {
        let irq = self.line(&*self.gic.domain(), intid, Flow::PerCpu);
        self.core.request(irq, "private", RequestFlags::default(), action).expect("a new line");
        irq
    }

    /// What a CPU does when it comes up.
    pub fn come_up(&self) {
        either!(&self.gic, gic => gic.start_cpu()).expect("it starts");
        if let Some((lpis, its)) = self.lpis.get() {
            lpis.start_cpu().expect("LPIs");
            its.cpu_online(SimHal.cpu()).expect("a target");
        }
        self.enable_private();
    }

    fn enable_private(&self) {
        self.private.iter().for_each(|&irq| self.core.enable_percpu(irq).expect("a per-CPU line"));
    }

    /// What a CPU does when it goes, leaving everything to `heir`.
    pub fn leave(&self, heir: CpuId) {
        let cpu = self.core.cpu_offline().expect("others are left");
        self.private.iter().for_each(|&irq| self.core.disable_percpu(irq).expect("a per-CPU line"));
        if let Some((_, its)) = self.lpis.get() {
            its.cpu_offline(cpu, heir).expect("what is left moves along");
        }
        either!(&self.gic, gic => gic.stop_cpu()).expect("it falls asleep");
    }

    /// Starts every CPU but the boot CPU, which has started.
    fn start_others(self: &Arc<Self>) {
        for cpu in 1..self.cpus {
            let system = self.clone();
            self.on(cpu, move || system.come_up());
        }
    }

    /// Runs `body` on a CPU, from a thread of another, until it has ended.
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

    /// LPIs and the ITS, and their lines' domain.
    pub fn its(&self) -> Arc<Its<SimHal>> {
        self.lpis.get().expect("a machine with an ITS").1.clone()
    }

    /// The domain of the v2m frame.
    pub fn v2m(&self) -> Arc<dyn IrqDomain> {
        let frame = &self.windows.v2m;
        either!(&self.gic, gic => Arc::new(MessageSpiDomain::v2m(gic.clone(), frame, V2M_BASE).expect("a v2m frame")))
    }
}

pub fn spec(cpu: u32) -> ThreadSpec {
    ThreadSpec { name: "test", affinity: hal::Affinity::Cpu(CpuId(cpu)), urgent: false }
}

pub fn request(index: u32) -> AllocRequest {
    AllocRequest {
        requester: RequesterId(0x0100),
        index,
        affinity: CpuSet::of(CpuId(0)),
        managed: false,
        delivery: Delivery::Fixed,
    }
}

/// A machine with its system.
pub struct Rig {
    pub machine: Machine,
    pub windows: GicWindows,
    system: Arc<OnceLock<Arc<System>>>,
}

/// What is asked of a machine beyond the ordinary.
#[derive(Clone, Default)]
pub struct Options {
    pub cpus: u32,
    pub force_threads: bool,
    pub gic: GicConfig,
    /// What else the machine is.
    pub machine: MachineConfig,
}

impl Rig {
    pub fn new(version: Version, mode: EoiMode, options: Options) -> Self {
        Self::with(version, mode, options, |_, _| ())
    }

    /// With further models, made before anything runs.
    pub fn with(version: Version, mode: EoiMode, options: Options, add: impl FnOnce(&mut Machine, GicWindows)) -> Self {
        let cpus = options.cpus.max(1);
        let has_its = options.gic.its.is_some();
        let interrupts = match version {
            Version::V2 => Interrupts::GicV2(options.gic),
            Version::V3 => Interrupts::GicV3(options.gic),
        };
        let config = MachineConfig { cpus, interrupts, memory_bytes: 32 << 20, ..options.machine };
        let mut machine = Machine::new(config);
        let windows = machine.gic().expect("it was asked for");
        add(&mut machine, windows);
        let system: Arc<OnceLock<Arc<System>>> = Arc::default();
        let entry = system.clone();
        machine.set_exception_entry(move |exception| {
            if let Some(system) = entry.get() {
                system.gic.take(&system.core, exception);
            }
        });
        let slot = system.clone();
        let mut rig = Self { machine, windows, system };
        rig.boot(move || {
            let gic = windows_of(windows, version, mode, cpus);
            let core =
                CoreConfig { flight_ns: 2_000, force_threads: options.force_threads, ..CoreConfig::x86(cpus, 64) };
            let core = Arc::new(IrqCore::new(SimHal, core).expect("a valid configuration"));
            let mut system = System { core, gic, windows, cpus, lpis: OnceLock::new(), private: Vec::new() };
            // The scheduler's kick and the end of a time slice need no more than to have interrupted.
            system.private = [0, 30].map(|intid| system.private(intid, Arc::new(Count::default()))).into();
            if let (true, Gic::V3(gic)) = (has_its, &system.gic) {
                let lpis = Arc::new(Lpis::new(SimHal, gic.clone()).expect("LPIs"));
                let config = ItsConfig { base: ITS_BASE, events_per_device: 32 };
                let its = Its::new(SimHal, windows.its, lpis.clone(), config).expect("an ITS");
                assert!(system.lpis.set((lpis, Arc::new(its))).is_ok(), "once");
            }
            let system = Arc::new(system);
            assert!(slot.set(system.clone()).is_ok(), "once");
            system.enable_private();
            system.start_others();
        });
        rig
    }

    fn boot<R: Send + 'static>(&mut self, body: impl FnOnce() -> R + Send + 'static) -> R {
        self.machine.run_boot(Ps::from_ns(1_000_000_000), body).expect("it ends")
    }

    /// Runs `body` as a thread on CPU 0.
    pub fn run<R: Send + 'static>(&mut self, body: impl FnOnce(&Arc<System>) -> R + Send + 'static) -> R {
        let system = self.system.get().expect("it was brought up").clone();
        self.boot(move || body(&system))
    }

    /// A wire or pulse, so many nanoseconds from now.
    pub fn wire(&mut self, in_ns: u64, code: u32, arg: u64) {
        let at = self.machine.now() + Ps::from_ns(in_ns);
        self.machine.poke(self.windows.model, at, code, arg);
    }

    pub fn counter(&mut self, name: &str) -> u64 {
        let counters = self.machine.with_any_model(self.windows.model, |gic| gic.counters());
        counters.into_iter().find(|(other, _)| *other == name).unwrap_or_else(|| panic!("counter {name}")).1
    }

    pub fn counters<const N: usize>(&mut self, names: [&str; N]) -> [u64; N] {
        names.map(|name| self.counter(name))
    }

    pub fn faults(&self) -> Vec<FaultRecord> {
        self.machine.faults().0
    }

    /// At the end of every test: no fault, and nothing that the driver could not place.
    pub fn finish(&self) {
        assert_eq!(self.faults(), []);
        let system = self.system.get().expect("it was brought up");
        assert_eq!(either!(&system.gic, gic => (gic.strays(), gic.last_stray(), gic.late_writes())), (0, None, 0));
    }
}

/// A handler that counts, a word a CPU.
#[derive(Default)]
pub struct Count([AtomicU64; 4]);

impl Count {
    pub fn on(&self, cpu: u32) -> u64 {
        self.0[cpu as usize].load(Relaxed)
    }
    pub fn all(&self) -> u64 {
        self.0.iter().map(|count| count.load(Relaxed)).sum()
    }
}

impl Action for Count {
    fn handle(&self, _: Irq) -> IrqReturn {
        self.0[SimHal.cpu().index()].fetch_add(1, Relaxed);
        IrqReturn::Handled
    }
}

/// A handler that is a closure.
pub struct Do<F>(pub F);

impl<F: Fn() + Send + Sync> Action for Do<F> {
    fn handle(&self, _: Irq) -> IrqReturn {
        (self.0)();
        IrqReturn::Handled
    }
}

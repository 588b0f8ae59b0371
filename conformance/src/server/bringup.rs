//! The software: core, LAPICs, posted delivery, remapping, drives; and what the tests do with it.

use super::ringer::RingerPort;
use super::{Config, Delivery, Load, Models, requester};
use drivers::apic::{ApicId, ApicMode, Lapic, VectorDomain};
use drivers::message::MessageDomain;
use drivers::nvme::{self, Controller, QueueConfig, QueuePair};
use drivers::pci::{MsixCapability, MsixTable};
use drivers::vtd::{Fault, FaultEvent, RemapConfig, RemapDomain, RemapUnit};
use hal::{Affinity, CpuId, CpuSet, DmaError, Hal as _, ThreadSpec, Word as _};
use irq::posted::{PostedConfig, PostedMsi};
use irq::{
    Action, AllocRequest, CoreConfig, Flow, Irq, IrqCore, IrqDomain, IrqReturn, RequestFlags, RequesterId, Vector,
};
use machine::model::ModelId;
use machine::nvme::{REGION_CONFIG, REGION_CONTROLLER, REGION_MSIX};
use machine::{Machine, Regs, SimHal, Word};
use spec::apic::TimerDivide;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};

const LOCAL_TIMER: Vector = Vector(0xec);
const RESCHEDULE: Vector = Vector(0xfd);
const SPURIOUS: Vector = Vector(0xff);
/// What guests' descriptors notify: taken by the host, as by a hypervisor that looks which virtual CPU it was for.
pub const GUEST_NOTIFICATION: Vector = Vector(0xf2);

/// The longest that a message is under way here: port, IOMMU and dispatch together need less than 10 µs.
const FLIGHT_NS: u64 = 30_000;

/// Where the interrupt entry finds the system.
pub(super) type Entry = Arc<OnceLock<Arc<System>>>;

/// A queue of a drive, its line, and its load.
pub struct Queue {
    /// The queue.
    pub pair: Arc<QueuePair<SimHal>>,
    /// Its line.
    pub line: Irq,
    /// Its load.
    pub load: Arc<Load>,
}

/// A drive.
pub struct Drive {
    /// Its controller.
    pub controller: Controller<SimHal>,
    /// Its I/O queues.
    pub queues: Vec<Queue>,
}

/// Everything that software knows of the server.
pub struct System {
    /// The delivery core.
    pub core: IrqCore<SimHal>,
    /// The LAPICs.
    pub lapic: Arc<Lapic<SimHal>>,
    /// Posted delivery, where that was asked for.
    pub posted: Option<Arc<PostedMsi<SimHal>>>,
    /// The CPUs' own domain.
    pub vectors: Arc<dyn IrqDomain>,
    /// The remapping unit, except with plain delivery.
    pub unit: Option<Arc<RemapUnit<SimHal>>>,
    /// The domain of PCI messages, where there is a remapping unit.
    pub remap: Option<Arc<RemapDomain<SimHal>>>,
    /// The ringing device.
    pub ringer: RingerPort,
    /// The models, for registers of other devices.
    pub models: Models,
    drives: OnceLock<Vec<Drive>>,
    /// Faults that the fault event's handler read.
    faults: Arc<Mutex<Vec<Fault>>>,
    /// The fault event's line.
    fault_line: OnceLock<Irq>,
    cpus: u32,
    tick_ns: u64,
    ticking: AtomicBool,
    /// How often each CPU took each vector.
    taken: Vec<[AtomicU64; 256]>,
    /// Interrupts that a CPU took although it was offline, or ended with something left in service.
    pub(super) violations: Mutex<Vec<String>>,
    offline: Vec<AtomicBool>,
}

pub(super) fn hang_entry(machine: &mut Machine, entry: &Entry) {
    let entry = entry.clone();
    machine.set_interrupt_entry(move |vector| {
        if let Some(system) = entry.get() {
            system.take(vector);
        }
    });
}

fn request(requester: u16, index: u32, affinity: CpuSet, managed: bool) -> AllocRequest {
    AllocRequest { requester: RequesterId(requester), index, affinity, managed, delivery: irq::Delivery::Fixed }
}

/// Takes the records of the unit's fault event.
struct FaultHandler(Arc<RemapUnit<SimHal>>, Arc<Mutex<Vec<Fault>>>);

impl Action for FaultHandler {
    fn handle(&self, _irq: Irq) -> IrqReturn {
        let mut any = false;
        self.0.take_faults(|fault| {
            any = true;
            self.1.lock().expect("one host thread").push(fault);
        });
        if any { IrqReturn::Handled } else { IrqReturn::None }
    }
}

impl System {
    pub(super) fn bring_up(config: &Config, models: Models, sites: &[ModelId], entry: &Entry) -> Arc<Self> {
        let cpus = config.cpus;
        let ids = (0..cpus).map(ApicId).collect();
        let lapic = Arc::new(Lapic::new(SimHal, Regs::Lapic, ApicMode::X2Apic, ids).expect("ids fit"));
        let posted = (config.delivery == Delivery::Posted).then(|| {
            let destinations: Vec<u32> = (0..cpus).collect();
            Arc::new(PostedMsi::new(SimHal, PostedConfig::default(), &destinations).expect("memory"))
        });
        let root = VectorDomain::new(SimHal, lapic.clone());
        let chip = root.chip().clone();
        let vectors: Arc<dyn IrqDomain> = Arc::new(root);
        let regs = |model| Regs::Model { model, region: 0 };
        let unit = (config.delivery != Delivery::Plain).then(|| {
            let remap = RemapConfig { table_entries: 1024, apic_mode: ApicMode::X2Apic };
            Arc::new(RemapUnit::new(SimHal, regs(models.iommu), remap).expect("the unit comes up"))
        });
        let remap = unit.as_ref().map(|unit| {
            let (unit, lapic, vectors) = (unit.clone(), lapic.clone(), vectors.clone());
            Arc::new(match &posted {
                Some(posted) => RemapDomain::posted(unit, lapic, vectors, posted.clone()).expect("it can post"),
                None => RemapDomain::remapped(unit, lapic, vectors),
            })
        });
        let core_config = CoreConfig { flight_ns: FLIGHT_NS, storm: config.storm, ..CoreConfig::x86(cpus, 1000) };
        let mut core = IrqCore::new(SimHal, core_config).expect("a valid configuration");
        core.set_root_chip(chip);
        system_vectors(&mut core, &lapic, posted.as_ref(), entry);
        let system = Arc::new(Self {
            core,
            lapic,
            posted,
            vectors,
            unit,
            remap,
            ringer: RingerPort(regs(models.ringer)),
            models,
            drives: OnceLock::new(),
            faults: Arc::default(),
            fault_line: OnceLock::new(),
            cpus,
            tick_ns: config.tick_ns,
            ticking: AtomicBool::new(true),
            taken: (0..cpus).map(|_| [const { AtomicU64::new(0) }; 256]).collect(),
            violations: Mutex::default(),
            offline: (0..cpus).map(|_| AtomicBool::new(false)).collect(),
        });
        assert!(entry.set(system.clone()).is_ok(), "one system a machine");
        // The others are woken by an INIT; this one runs already.
        system.lapic.enable(SPURIOUS);
        system.on_every_cpu(|system| {
            system.lapic.enable(SPURIOUS);
            system.start_tick();
        });
        system.add_fault_line();
        let drives = sites.iter().zip(0..).map(|(&site, index)| system.add_drive(config, site, index)).collect();
        assert!(system.drives.set(drives).is_ok(), "once");
        system
    }

    fn add_fault_line(&self) {
        let Some(unit) = &self.unit else { return };
        let event = FaultEvent::new(unit.clone());
        let domain = MessageDomain::new(SimHal, event, self.vectors.clone()).expect("not posted");
        let handler = Arc::new(FaultHandler(unit.clone(), self.faults.clone()));
        let line = self.core.alloc_line(&domain, &request(0, 0, CpuSet::of(CpuId(0)), false), Flow::Edge);
        let line = line.expect("a line");
        self.core.request(line, "dmar0", RequestFlags::default(), handler).expect("a new line");
        assert!(self.fault_line.set(line).is_ok(), "once");
    }

    fn add_drive(&self, config: &Config, model: ModelId, index: u32) -> Drive {
        let region = |region| Regs::Model { model, region };
        let wanted = nvme::Config { queue_pairs: config.queues as u16, ..nvme::Config::default() };
        let controller = Controller::new(SimHal, region(REGION_CONTROLLER), wanted).expect("the drive comes up");
        let capability = MsixCapability::find(&region(REGION_CONFIG)).expect("MSI-X");
        let table = MsixTable::enable(region(REGION_CONFIG), region(REGION_MSIX), capability);
        let messages = MessageDomain::new(SimHal, table, self.pci()).expect("PCI messages");
        let all = CpuSet::first(self.cpus);
        let shares = irq::spread(config.queues, &all).expect("at least a CPU a queue");
        let make = |(vector, share): (u16, CpuSet)| {
            let load = Arc::new(Load::default());
            let queue = QueueConfig { entries: 32, vector: Some(vector), transfer_bytes_max: 4096 };
            let pair = controller.create_queue_pair(queue, load.clone()).expect("a queue");
            load.attach(pair.clone(), buffer().expect("memory"));
            let request = request(requester(index), vector.into(), share, config.managed);
            let line = self.core.alloc_line(&messages, &request, Flow::Edge).expect("a line");
            let name = format!("nvme{index}q{vector}");
            self.core.request(line, name, RequestFlags::default(), pair.clone()).expect("a new line");
            Queue { pair, line, load }
        };
        let queues = (1..).zip(shares).map(make).collect();
        Drive { controller, queues }
    }

    /// The domain of PCI messages.
    pub fn pci(&self) -> Arc<dyn IrqDomain> {
        match &self.remap {
            Some(remap) => remap.clone(),
            None => self.vectors.clone(),
        }
    }

    /// The domain of everything that is never posted.
    pub fn unposted(&self) -> Arc<dyn IrqDomain> {
        match &self.unit {
            Some(unit) => Arc::new(RemapDomain::remapped(unit.clone(), self.lapic.clone(), self.vectors.clone())),
            None => self.vectors.clone(),
        }
    }

    /// A line of the ringing device on any CPU, without a handler.
    pub fn ringer_line(&self) -> Irq {
        let domain = MessageDomain::new(SimHal, self.ringer, self.pci()).expect("PCI messages");
        let request = request(super::RINGER_REQUESTER, 0, CpuSet::first(self.cpus), false);
        self.core.alloc_line(&domain, &request, Flow::Edge).expect("a line")
    }

    /// The drives.
    ///
    /// # Panics
    /// Before they are up.
    pub fn drives(&self) -> &[Drive] {
        self.drives.get().expect("they are up")
    }

    /// All drives' queues.
    pub fn queues(&self) -> impl Iterator<Item = &Queue> {
        self.drives().iter().flat_map(|drive| &drive.queues)
    }

    /// How many CPUs it has.
    pub fn cpus(&self) -> u32 {
        self.cpus
    }

    /// The line of the remapping unit's own interrupt.
    pub fn fault_line(&self) -> Option<Irq> {
        self.fault_line.get().copied()
    }

    /// What the handler of the fault event read.
    ///
    /// # Panics
    /// Never: one host thread.
    pub fn faults(&self) -> Vec<Fault> {
        self.faults.lock().expect("one host thread").clone()
    }

    /// How often `cpu` took `vector`.
    pub fn taken(&self, cpu: CpuId, vector: Vector) -> u64 {
        self.taken[cpu.index()][usize::from(vector.0)].load(Relaxed)
    }

    /// Starts `count` commands on every queue, `depth` at a time.
    pub fn start_load(&self, count: u64, depth: u32) {
        self.queues().for_each(|queue| queue.load.start(count, depth));
    }

    /// Waits until all that was started has completed.
    pub fn wait_for_load(&self) {
        while !self.queues().all(|queue| queue.load.is_done()) {
            SimHal.delay_ns(5_000);
        }
    }

    /// A CPU takes `vector`: the IDT.
    fn take(&self, vector: u8) {
        let cpu = SimHal.cpu();
        self.taken[cpu.index()][usize::from(vector)].fetch_add(1, Relaxed);
        if self.offline[cpu.index()].load(Relaxed) {
            self.violation(format!("CPU {cpu} is offline and took vector {vector:#04x}"));
        }
        self.core.handle_vector(Vector(vector));
    }

    pub(super) fn violation(&self, text: String) {
        self.violations.lock().expect("one host thread").push(text);
    }

    fn start_tick(&self) {
        // A tick of the bus clock is 1 ns on this machine.
        self.lapic.start_timer(LOCAL_TIMER, TimerDivide::BY_1, self.tick_ns as u32);
    }

    pub(super) fn stop_ticks(&self) {
        self.ticking.store(false, Relaxed);
        SimHal.delay_ns(2 * self.tick_ns);
    }

    /// Runs `body` on `cpu` and waits for it.
    ///
    /// # Panics
    /// When there is no such CPU.
    pub fn on_cpu<R: Send + 'static>(
        self: &Arc<Self>,
        cpu: CpuId,
        body: impl FnOnce(&Arc<Self>) -> R + Send + 'static,
    ) -> R {
        let done = Arc::new(<Word as hal::Word>::new(0));
        let result = Arc::new(Mutex::new(None));
        let (system, over, slot) = (self.clone(), done.clone(), result.clone());
        let thread = move || {
            let value = body(&system);
            *slot.lock().expect("one host thread") = Some(value);
            over.swap(1);
        };
        let spec = ThreadSpec { name: "on cpu", affinity: Affinity::Cpu(cpu), urgent: true };
        SimHal.spawn(spec, Box::new(thread)).expect("the CPU exists");
        while done.load() == 0 {
            SimHal.relax_on(&done, 0, u64::MAX);
        }
        result.lock().expect("one host thread").take().expect("it has ended")
    }

    /// Runs `body` on each CPU in turn.
    pub fn on_every_cpu(self: &Arc<Self>, body: impl Fn(&Arc<Self>) + Copy + Send + 'static) {
        (0..self.cpus).for_each(|cpu| self.on_cpu(CpuId(cpu), body));
    }

    /// Takes `cpu` offline for `ns`, then online again, and says what the core said to going. While it is away, no
    /// device's vector may arrive there.
    pub fn offline_for(self: &Arc<Self>, cpu: CpuId, ns: u64) -> Result<(), irq::IrqError> {
        self.on_cpu(cpu, move |system| system.stay_offline(cpu, ns))
    }

    fn stay_offline(&self, cpu: CpuId, ns: u64) -> Result<(), irq::IrqError> {
        let off = SimHal.irq_save();
        let result = self.core.cpu_offline().map(|gone| assert_eq!(gone, cpu));
        if result.is_ok() {
            self.posted.iter().for_each(|posted| posted.cpu_offline());
            self.offline[cpu.index()].store(true, Relaxed);
            let before = self.device_requests(cpu);
            SimHal.delay_ns(ns);
            let after = self.device_requests(cpu);
            if before != after {
                self.violation(format!("CPU {cpu} is offline and was sent to: {before:x?}, then {after:x?}"));
            }
            self.offline[cpu.index()].store(false, Relaxed);
            self.core.cpu_online(cpu).unwrap_or_else(|error| self.violation(format!("online: {error}")));
        }
        SimHal.irq_restore(off);
        result
    }

    /// Device vectors that wait at this CPU, in its LAPIC or its descriptor.
    fn device_requests(&self, cpu: CpuId) -> Vec<u8> {
        let here = |&vector: &u8| {
            let posted = self.posted.as_ref().and_then(|posted| posted.descriptor(cpu));
            self.lapic.is_requested(Vector(vector)) || posted.is_some_and(|posted| posted.is_pending(Vector(vector)))
        };
        (0x20..=0xea).filter(here).collect()
    }

    /// Every line, and every queue, for people.
    pub fn describe(&self) -> String {
        let lines: String = self.core.views().iter().map(|line| format!("{line}")).collect();
        let queues = self.drives.get().into_iter().flatten().map(|drive| format!("{}\n", drive.controller.snapshot()));
        lines + &queues.collect::<String>()
    }
}

fn buffer() -> Result<hal::DeviceAddress, DmaError> {
    // Nothing is stored behind these drives, so that all commands can share a page; it lives as long as the machine.
    let memory = SimHal.dma_alloc(4096, 4096)?;
    let address = hal::Dma::device_address(&memory);
    std::mem::forget(memory);
    Ok(address)
}

fn system_vectors(
    core: &mut IrqCore<SimHal>,
    lapic: &Arc<Lapic<SimHal>>,
    posted: Option<&Arc<PostedMsi<SimHal>>>,
    entry: &Entry,
) {
    let mut set = |vector, short, long, handler: irq::SystemHandler<SimHal>| {
        core.set_system_vector(vector, short, long, handler).expect("a free vector");
    };
    let (end, system) = (lapic.clone(), entry.clone());
    let tick = move |_: &IrqCore<SimHal>| {
        end.eoi();
        if let Some(system) = system.get().filter(|system| system.ticking.load(Relaxed)) {
            system.start_tick();
        }
    };
    set(LOCAL_TIMER, "LOC", "Local timer interrupts", Arc::new(tick));
    let end = lapic.clone();
    set(RESCHEDULE, "RES", "Rescheduling interrupts", Arc::new(move |_| end.eoi()));
    let end = lapic.clone();
    set(GUEST_NOTIFICATION, "PIN", "Posted-interrupt notification event", Arc::new(move |_| end.eoi()));
    set(SPURIOUS, "SPU", "Spurious interrupts", Arc::new(|_| {}));
    if let Some(posted) = posted {
        let (end, posted) = (lapic.clone(), posted.clone());
        let notified = move |core: &IrqCore<SimHal>| {
            posted.handle(|vector| _ = core.dispatch(vector), || end.eoi());
        };
        let vector = PostedConfig::default().notification_vector;
        set(vector, "PMN", "Posted MSI notification event", Arc::new(notified));
    }
}

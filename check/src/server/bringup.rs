//! The software is brought up: core, LAPICs, posted delivery, remapping, drives.

use super::ringer::RingerPort;
use super::{Config, Delivery, Drive, Load, Models, Queue, System, requester};
use drivers::apic::{ApicId, ApicMode, Lapic, VectorDomain};
use drivers::message::MessageDomain;
use drivers::nvme::{self, Controller, QueueConfig};
use drivers::pci::{MsixCapability, MsixTable};
use drivers::vtd::{Fault, FaultEvent, RemapConfig, RemapDomain, RemapUnit};
use hal::{CpuId, CpuSet, Hal as _};
use irq::posted::{PostedConfig, PostedMsi};
use irq::{
    Action, AllocRequest, CoreConfig, Flow, Irq, IrqCore, IrqDomain, IrqReturn, RequestFlags, RequesterId, Vector,
};
use machine::model::ModelId;
use machine::nvme::{REGION_CONFIG, REGION_CONTROLLER, REGION_MSIX};
use machine::{Machine, Regs, SimHal};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};

pub(super) const LOCAL_TIMER: Vector = Vector(0xec);
const RESCHEDULE: Vector = Vector(0xfd);
const SPURIOUS: Vector = Vector(0xff);
/// What guests' descriptors notify: taken by the host, as by a hypervisor that looks which virtual CPU it was for.
pub const GUEST_NOTIFICATION: Vector = Vector(0xf2);

/// Where the interrupt entry finds the system.
pub(super) type Entry = Arc<OnceLock<Arc<System>>>;

pub(super) fn hang_entry(machine: &mut Machine, entry: &Entry) {
    let entry = entry.clone();
    machine.set_interrupt_entry(move |vector| {
        if let Some(system) = entry.get() {
            system.take(vector);
        }
    });
}

pub(super) fn request(requester: u16, index: u32, affinity: CpuSet, managed: bool) -> AllocRequest {
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
        let core_config = CoreConfig {
            flight_ns: config.flight_ns,
            storm: config.storm,
            force_threads: config.force_threads,
            ..CoreConfig::x86(cpus, config.lines_max)
        };
        let mut core = IrqCore::new(SimHal, core_config).expect("a valid configuration");
        core.set_root_chip(chip);
        system_vectors(&mut core, &lapic, posted.as_ref(), config.notification_limit_ns, entry);
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
            on_tick: OnceLock::new(),
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
            let buffer = SimHal.dma_alloc(4096, 4096).expect("memory");
            load.attach(&pair, Arc::new(buffer));
            let request = request(requester(index), vector.into(), share, config.managed);
            let line = self.core.alloc_line(&messages, &request, Flow::Edge).expect("a line");
            let name = format!("nvme{index}q{vector}");
            self.core.request(line, name, RequestFlags::default(), pair.clone()).expect("a new line");
            Queue { pair, line, load }
        };
        let queues = (1..).zip(shares).map(make).collect();
        Drive { controller, queues }
    }
}

fn system_vectors(
    core: &mut IrqCore<SimHal>,
    lapic: &Arc<Lapic<SimHal>>,
    posted: Option<&Arc<PostedMsi<SimHal>>>,
    limit_ns: Option<u64>,
    entry: &Entry,
) {
    let mut set = |vector, short, long, handler: irq::SystemHandler<SimHal>| {
        core.set_system_vector(vector, short, long, handler).expect("a free vector");
    };
    // The system owns the core, which owns this.
    let (end, entry) = (lapic.clone(), Arc::downgrade(entry));
    let tick = move |_: &IrqCore<SimHal>| {
        end.eoi();
        let entry = entry.upgrade();
        if let Some(system) = entry.as_ref().and_then(|entry| entry.get()).filter(|system| system.ticking.load(Relaxed))
        {
            system.start_tick();
            if let Some(on_tick) = system.on_tick.get().filter(|_| SimHal.cpu() == CpuId(0)) {
                on_tick();
            }
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
            let dispatch = |vector| _ = core.dispatch(vector);
            match limit_ns {
                None => posted.handle(dispatch, || end.eoi()),
                Some(limit_ns) => {
                    let again = |vector| end.send_self(vector).expect("an x2APIC takes every self-IPI");
                    posted.handle_within(limit_ns, dispatch, again, || end.eoi())
                }
            };
        };
        let vector = PostedConfig::default().notification_vector;
        set(vector, "PMN", "Posted MSI notification event", Arc::new(notified));
    }
}

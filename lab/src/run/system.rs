//! The software of a run: our delivery core and drivers, brought up on the simulated server.
//!
//! Bring-up runs on CPU 0's boot thread, as a kernel's would. The machine learns one thing from it: what to call when
//! a CPU takes a vector.

use crate::plan::{Delivery, DrivePlan, JobPlan, Plan};
use crate::run::hardware::{DriveSite, Hardware};
use crate::run::job::{EngineWork, Job, JobParts, Sorter, Tally};
use crate::run::mailbox::Mailbox;
use drivers::apic::{ApicError, ApicId, ApicMode, Lapic, VectorDomain};
use drivers::message::MessageDomain;
use drivers::nvme::{self, CompletionCounters, Controller, NvmeError, QueueConfig, QueuePair};
use drivers::pci::{MsixCapability, MsixError, MsixTable};
use drivers::vtd::{FaultEvent, RemapConfig, RemapDomain, RemapUnit, VtdError};
use hal::{Affinity, CpuId, CpuSet, DmaError, Hal as _, SpawnError, ThreadSpec, Word as _};
use irq::posted::{PostedConfig, PostedError, PostedMsi};
use irq::{Action, AllocRequest, CoreConfig, Flow, Irq, IrqCore, IrqDomain, IrqError, IrqReturn, RequestFlags};
use irq::{RequesterId, Vector};
use machine::nvme::{REGION_CONFIG, REGION_CONTROLLER, REGION_MSIX};
use machine::{Regs, SimHal, Word};
use std::fmt;
use std::sync::{Arc, OnceLock};

/// System vectors: those of Linux.
const LOCAL_TIMER: Vector = Vector(0xec);
const RESCHEDULE: Vector = Vector(0xfd);
const SPURIOUS: Vector = Vector(0xff);

/// Why a server could not be brought up.
#[derive(Debug)]
pub enum SetupError {
    /// The delivery core refused.
    Irq(IrqError),
    /// A local APIC.
    Apic(ApicError),
    /// Posted delivery.
    Posted(PostedError),
    /// A remapping unit.
    Vtd(VtdError),
    /// A drive's MSI-X.
    Msix(MsixError),
    /// A drive, by its name.
    Drive(String, NvmeError),
    /// Memory of a job.
    Memory(DmaError),
    /// A job's thread.
    Spawn(SpawnError),
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Irq(error) => write!(f, "{error}"),
            Self::Apic(error) => write!(f, "{error}"),
            Self::Posted(error) => write!(f, "{error}"),
            Self::Vtd(error) => write!(f, "IOMMU: {error}"),
            Self::Msix(error) => write!(f, "{error}"),
            Self::Drive(name, error) => write!(f, "drive {name}: {error}"),
            Self::Memory(error) => write!(f, "buffers: {error}"),
            Self::Spawn(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for SetupError {}

macro_rules! setup_error_from {
    ($($error:ty => $variant:ident),* $(,)?) => {
        $(impl From<$error> for SetupError {
            fn from(error: $error) -> Self {
                Self::$variant(error)
            }
        })*
    };
}
setup_error_from!(IrqError => Irq, ApicError => Apic, PostedError => Posted, VtdError => Vtd, MsixError => Msix);

/// What bring-up is given.
pub(crate) struct Parts {
    plan: Plan,
    delivery: Delivery,
    drives: Vec<DriveSite>,
    iommus: Vec<Regs>,
    /// Where the interrupt entry finds the core.
    core: Arc<OnceLock<Arc<IrqCore<SimHal>>>>,
}

impl Parts {
    /// Hangs the interrupt entry into the machine and notes what is where.
    pub(crate) fn new(hardware: &mut Hardware, plan: &Plan, delivery: Delivery) -> Self {
        let core: Arc<OnceLock<Arc<IrqCore<SimHal>>>> = Arc::default();
        let entry = core.clone();
        hardware.machine.set_interrupt_entry(move |vector| {
            if let Some(core) = entry.get() {
                core.handle_vector(Vector(vector));
            }
        });
        let iommus = hardware.iommus.iter().map(|&iommu| hardware.machine.regs(iommu, 0)).collect();
        Self { plan: plan.clone(), delivery, drives: hardware.drives.clone(), iommus, core }
    }
}

/// One queue pair of a drive and the jobs it is for.
struct Queue {
    pair: Arc<QueuePair<SimHal>>,
    cpus: CpuSet,
}

/// Looks at completion queues after submissions, and those that saw an entry.
#[derive(Clone, Copy, Default)]
pub(crate) struct Looks {
    pub(crate) looks: u64,
    pub(crate) hits: u64,
}

/// A drive as the software knows it.
struct DriveSystem {
    controller: Controller<SimHal>,
    queues: Vec<Queue>,
}

/// A server that is up.
pub(crate) struct System {
    core: Arc<IrqCore<SimHal>>,
    posted: Option<Arc<PostedMsi<SimHal>>>,
    drives: Vec<DriveSystem>,
    mailboxes: Arc<[Arc<Mailbox<SimHal>>]>,
    /// The lines of the drives' queues that jobs use.
    lines: Vec<Irq>,
    cpus: u32,
}

/// What every device's set-up needs.
struct Platform {
    core: Arc<IrqCore<SimHal>>,
    vectors: Arc<dyn IrqDomain>,
    lapic: Arc<Lapic<SimHal>>,
    posted: Option<Arc<PostedMsi<SimHal>>>,
}

impl System {
    /// Brings everything up. Runs on the boot thread.
    pub(crate) fn set_up(parts: Parts) -> Result<Self, SetupError> {
        let plan = &parts.plan;
        let platform = platform(&parts)?;
        let domains = parts
            .iommus
            .iter()
            .enumerate()
            .map(|(index, &regs)| remap_domain(&platform, plan, index, regs))
            .collect::<Result<Vec<_>, _>>()?;
        let mailboxes: Arc<[_]> = plan.jobs.iter().map(|job| Arc::new(Mailbox::new(job.iodepth))).collect();
        let work = plan.jobs.iter().map(|job| EngineWork::of(job.engine, plan.is_polled(job, parts.delivery)).complete);
        let work: Arc<[_]> = work.collect();
        let mut lines = Vec::new();
        let mut drives = Vec::new();
        for (index, site) in parts.drives.iter().enumerate() {
            let jobs: Vec<&JobPlan> = plan.jobs.iter().filter(|job| job.drive == index).collect();
            let polled = jobs.iter().any(|job| plan.is_polled(job, parts.delivery));
            let sorter = Arc::new(Sorter { mailboxes: mailboxes.clone(), work: work.clone() });
            let parent = domains[site.iommu].clone();
            let made = drive(&platform, plan, &plan.drives[index], *site, parent, sorter, &jobs, polled, &mut lines)?;
            drives.push(made);
        }
        let Platform { core, posted, .. } = platform;
        Ok(Self { core, posted, drives, mailboxes, lines, cpus: plan.cpus })
    }

    /// Starts the plan's jobs.
    pub(crate) fn start_jobs(
        &self,
        plan: &Plan,
        delivery: Delivery,
        seed: u64,
        tally: &Tally,
    ) -> Result<(), SetupError> {
        for (index, job) in plan.jobs.iter().enumerate() {
            let drive = &self.drives[job.drive];
            let cpu = job.cpus.iter().next().expect("the plan was validated: a job has a CPU");
            let queue = drive.queues.iter().find(|queue| queue.cpus.contains(cpu)).expect("queues cover every CPU");
            let namespace = drive.controller.namespace();
            let parts = JobParts {
                plan: job.clone(),
                index: index as u32,
                queue: queue.pair.clone(),
                mailbox: self.mailboxes[index].clone(),
                polled: plan.is_polled(job, delivery),
                lba_count: namespace.blocks,
                lba_bytes: namespace.block_bytes(),
                seed,
                verify: plan.options.verify_data,
                counts: tally.jobs[index].clone(),
                latencies: tally.latencies.clone(),
            };
            let job_thread = Job::new(parts).map_err(SetupError::Memory)?;
            let affinity = Affinity::Set(job.cpus.clone());
            let spec = ThreadSpec { name: "job", affinity, urgent: false };
            SimHal.spawn(spec, Box::new(move || job_thread.run())).map_err(SetupError::Spawn)?;
        }
        Ok(())
    }

    /// Completion counters of all queues together, and the looks after submissions.
    pub(crate) fn completion_counters(&self) -> (CompletionCounters, Looks) {
        let mut sum = CompletionCounters::default();
        let mut looks = Looks::default();
        for queue in self.drives.iter().flat_map(|drive| &drive.queues) {
            let queue = queue.pair.snapshot();
            let counters = queue.completion;
            looks.looks += queue.submission.looks;
            looks.hits += queue.submission.look_hits;
            sum.checks += counters.checks;
            sum.check_entries += counters.check_entries;
            sum.overtaken_interrupts += counters.overtaken_interrupts;
            sum.completed += counters.completed;
            sum.remote += counters.remote;
            sum.entries += counters.entries;
            sum.interrupts += counters.interrupts;
            sum.empty_interrupts += counters.empty_interrupts;
            sum.interrupt_entries += counters.interrupt_entries;
            sum.polls += counters.polls;
            sum.empty_polls += counters.empty_polls;
            sum.device_faults += counters.device_faults;
        }
        (sum, looks)
    }

    /// Notifications taken, and of them those that found nothing.
    pub(crate) fn notifications(&self) -> (u64, u64) {
        let Some(posted) = &self.posted else { return (0, 0) };
        (0..self.cpus).map(|cpu| posted.statistics(CpuId(cpu))).fold((0, 0), |(all, empty), statistics| {
            (all + statistics.notifications, empty + statistics.empty_notifications)
        })
    }

    /// Interrupts of the queues' lines so far.
    pub(crate) fn device_interrupts(&self) -> u64 {
        let cpus = (0..self.cpus).map(CpuId);
        cpus.map(|cpu| self.lines.iter().map(|&line| self.core.count(line, cpu)).sum::<u64>()).sum()
    }

    /// Lines that serve the jobs' queues.
    pub(crate) fn vectors(&self) -> u64 {
        self.lines.len() as u64
    }

    /// As `/proc/interrupts` prints it.
    pub(crate) fn interrupt_table(&self) -> String {
        self.core.interrupts().to_string()
    }

    /// The debug view of every line.
    pub(crate) fn lines(&self) -> Vec<irq::LineView> {
        self.core.views()
    }
}

/// The core, the local APICs of every CPU, and posted delivery when it is asked for.
fn platform(parts: &Parts) -> Result<Platform, SetupError> {
    let plan = &parts.plan;
    // A line a queue, and one for each IOMMU's fault event.
    let queues: u32 = plan.drives.iter().map(|drive| drive.queues).sum();
    let mut core = IrqCore::new(SimHal, CoreConfig::x86(plan.cpus, queues + parts.iommus.len() as u32))?;
    let ids = (0..plan.cpus).map(ApicId).collect();
    let lapic = Arc::new(Lapic::new(SimHal, Regs::Lapic, ApicMode::X2Apic, ids)?);
    let posted = match parts.delivery {
        Delivery::Posted => {
            let config = PostedConfig { passes: plan.options.harvest_passes, ..PostedConfig::default() };
            let destinations: Vec<u32> = (0..plan.cpus).collect();
            Some(Arc::new(PostedMsi::new(SimHal, config, &destinations)?))
        }
        Delivery::Remapped | Delivery::Polled => None,
    };
    system_vectors(&mut core, &lapic, posted.as_ref())?;
    let vectors = VectorDomain::new(SimHal, lapic.clone());
    core.set_root_chip(vectors.chip().clone());
    let vectors: Arc<dyn IrqDomain> = Arc::new(vectors);
    let core = Arc::new(core);
    let set = parts.core.set(core.clone());
    assert!(set.is_ok(), "the core is set once");
    enable_lapics(plan.cpus, &lapic)?;
    Ok(Platform { core, vectors, lapic, posted })
}

fn system_vectors(
    core: &mut IrqCore<SimHal>,
    lapic: &Arc<Lapic<SimHal>>,
    posted: Option<&Arc<PostedMsi<SimHal>>>,
) -> Result<(), SetupError> {
    let eoi = |lapic: &Arc<Lapic<SimHal>>| {
        let lapic = lapic.clone();
        move |_: &IrqCore<SimHal>| lapic.eoi()
    };
    core.set_system_vector(LOCAL_TIMER, "LOC", "Local timer interrupts", Arc::new(eoi(lapic)))?;
    core.set_system_vector(RESCHEDULE, "RES", "Rescheduling interrupts", Arc::new(eoi(lapic)))?;
    // A spurious interrupt has no EOI.
    core.set_system_vector(SPURIOUS, "SPU", "Spurious interrupts", Arc::new(|_: &IrqCore<SimHal>| {}))?;
    if let Some(posted) = posted {
        let (lapic, posted) = (lapic.clone(), posted.clone());
        let handler = move |core: &IrqCore<SimHal>| {
            posted.handle(
                |vector| {
                    core.dispatch(vector);
                },
                || lapic.eoi(),
            );
        };
        let vector = PostedConfig::default().notification_vector;
        core.set_system_vector(vector, "PMN", "Posted MSI notification event", Arc::new(handler))?;
    }
    Ok(())
}

/// Each CPU enables its own APIC; returns when all have.
fn enable_lapics(cpus: u32, lapic: &Arc<Lapic<SimHal>>) -> Result<(), SetupError> {
    let up = Arc::new(<Word as hal::Word>::new(1));
    lapic.enable(SPURIOUS);
    for cpu in 1..cpus {
        let (lapic, up) = (lapic.clone(), up.clone());
        let spec = ThreadSpec { name: "bring-up", affinity: Affinity::Cpu(CpuId(cpu)), urgent: true };
        let body = move || {
            lapic.enable(SPURIOUS);
            up.fetch_add(1);
        };
        SimHal.spawn(spec, Box::new(body)).map_err(SetupError::Spawn)?;
    }
    while up.load() < cpus.into() {
        SimHal.relax_on(&up, up.get(), u64::MAX);
    }
    Ok(())
}

/// A remapping unit, its fault event, and the domain of the devices behind it.
fn remap_domain(platform: &Platform, plan: &Plan, index: usize, regs: Regs) -> Result<Arc<dyn IrqDomain>, SetupError> {
    let lines: u32 = plan.drives.iter().map(|drive| drive.queues + 1).sum();
    let config =
        RemapConfig { table_entries: lines.next_power_of_two().clamp(256, 65_536), apic_mode: ApicMode::X2Apic };
    let unit = Arc::new(RemapUnit::new(SimHal, regs, config)?);
    fault_line(platform, plan.cpus, index, &unit)?;
    let (lapic, vectors) = (platform.lapic.clone(), platform.vectors.clone());
    Ok(match &platform.posted {
        Some(posted) => Arc::new(RemapDomain::posted(unit, lapic, vectors, posted.clone())?),
        None => Arc::new(RemapDomain::remapped(unit, lapic, vectors)),
    })
}

/// The handler of a unit's fault event: takes the records, so that the next fault is told too. The figures come from
/// the unit's own log.
struct FaultHandler(Arc<RemapUnit<SimHal>>);

impl Action for FaultHandler {
    fn handle(&self, _irq: Irq) -> IrqReturn {
        let mut any = false;
        self.0.take_faults(|_| any = true);
        if any { IrqReturn::Handled } else { IrqReturn::None }
    }
}

/// The unit's own interrupt, which is never remapped.
fn fault_line(platform: &Platform, cpus: u32, index: usize, unit: &Arc<RemapUnit<SimHal>>) -> Result<(), SetupError> {
    let domain = MessageDomain::new(SimHal, FaultEvent::new(unit.clone()), platform.vectors.clone())?;
    let request = AllocRequest {
        requester: RequesterId(0),
        index: 0,
        // In turn: one CPU has no vectors for hundreds of units.
        affinity: CpuSet::of(CpuId(index as u32 % cpus)),
        managed: false,
        delivery: irq::Delivery::Fixed,
    };
    let line = platform.core.alloc_line(&domain, &request, Flow::Edge)?;
    let name = format!("dmar{index}");
    platform.core.request(line, name, RequestFlags::default(), Arc::new(FaultHandler(unit.clone())))?;
    Ok(())
}

/// A drive: its controller, a line and a queue pair for each share of the CPUs.
#[allow(clippy::too_many_arguments)]
fn drive(
    platform: &Platform,
    plan: &Plan,
    drive: &DrivePlan,
    site: DriveSite,
    parent: Arc<dyn IrqDomain>,
    sorter: Arc<Sorter>,
    jobs: &[&JobPlan],
    polled: bool,
    lines: &mut Vec<Irq>,
) -> Result<DriveSystem, SetupError> {
    let region = |region| Regs::Model { model: site.model, region };
    let failed = |error| SetupError::Drive(drive.name.clone(), error);
    let config = nvme::Config { queue_pairs: drive.queues as u16, ..nvme::Config::default() };
    let controller = Controller::new(SimHal, region(REGION_CONTROLLER), config).map_err(failed)?;
    let capability = MsixCapability::find(&region(REGION_CONFIG))?;
    let table = MsixTable::enable(region(REGION_CONFIG), region(REGION_MSIX), capability);
    let messages = MessageDomain::new(SimHal, table, parent)?;
    let used: CpuSet = jobs.iter().flat_map(|job| job.cpus.iter()).collect();
    let transfer_bytes_max = jobs.iter().map(|job| job.block_bytes).max().unwrap_or(4096);
    // A managed line keeps a vector on each of its CPUs. That of a drive's only queue, which serves every CPU, is an
    // ordinary one where its jobs run, as an administrator would have it.
    let managed = drive.queues > 1 || used.iter().next().is_none();
    let mut queues = Vec::new();
    for (index, cpus) in irq::spread(drive.queues, &CpuSet::first(plan.cpus))?.into_iter().enumerate() {
        // MSI-X entry 0 is the admin queue's.
        let vector = index as u16 + 1;
        let config = QueueConfig {
            entries: drive.queue_entries as u16,
            vector: (!polled).then_some(vector),
            transfer_bytes_max,
        };
        let pair = controller.create_queue_pair(config, sorter.clone()).map_err(failed)?;
        pair.set_completion_check(plan.options.check_queue);
        if !polled {
            let request = AllocRequest {
                requester: RequesterId(site.requester),
                index: vector.into(),
                affinity: if managed { cpus.clone() } else { used.clone() },
                managed,
                delivery: irq::Delivery::Fixed,
            };
            let line = platform.core.alloc_line(&messages, &request, Flow::Edge)?;
            let name = format!("{}q{vector}", drive.name.trim_start_matches("/dev/"));
            platform.core.request(line, name, RequestFlags::default(), pair.clone())?;
            if cpus.iter().any(|cpu| used.contains(cpu)) {
                lines.push(line);
            }
        }
        queues.push(Queue { pair, cpus });
    }
    if let Some(wanted) = drive.coalescing {
        let time = nvme::CoalescingTime::from_us(u32::from(wanted.time_100us) * 100);
        let threshold = nvme::CoalescingThreshold::entries(wanted.entries);
        let coalescing = nvme::Coalescing {
            time: time.expect("a byte of units is a valid time"),
            threshold: threshold.expect("the plan was validated"),
        };
        controller.set_coalescing(coalescing).map_err(failed)?;
    }
    Ok(DriveSystem { controller, queues })
}

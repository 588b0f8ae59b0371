//! The software of a run: our delivery core and drivers, brought up on the simulated server.
//!
//! Bring-up runs on CPU 0's boot thread, as a kernel's would. It gives the machine one thing: the function to call
//! when a CPU takes a vector.

use super::hardware::Hardware;
use super::job::{EngineWork, Job, JobParts, Sorter, Tally};
use super::mailbox::Mailbox;
use super::room::Room;
use super::split;
use crate::kinds::storage::{DrivePlan, JobPlan, Storage, StorageVariant};
use crate::plan::Plan;
use crate::run::SetupError;
use crate::run::pcie::Site;
use crate::run::x86::{self, Pc, Serving, Wanted};
use drivers::message::MessageDomain;
use drivers::nvme::{self, CompletionCounters, Controller, QueueConfig, QueuePair};
use drivers::pci::{MsixCapability, MsixTable};
use hal::{Affinity, CpuSet, ThreadSpec, Threads};
use irq::posted::PostedConfig;
use irq::{AllocRequest, Flow, Irq, IrqDomain, RequestFlags, RequesterId, StormConfig};
use machine::nvme::{REGION_CONFIG, REGION_CONTROLLER, REGION_MSIX};
use machine::{Regs, SimHal};
use std::sync::Arc;

/// The inputs of bring-up.
pub(crate) struct Parts {
    plan: Plan,
    storage: Storage,
    delivery: StorageVariant,
    drives: Vec<Site>,
    pc: x86::Parts,
}

impl Parts {
    /// Installs the interrupt entry in the machine, and collects the parts that bring-up needs.
    pub(crate) fn new(hardware: &mut Hardware, plan: &Plan, storage: &Storage, delivery: StorageVariant) -> Self {
        let mut pc = x86::Parts::new(&mut hardware.machine, plan.cpus, &hardware.pcie);
        if delivery == StorageVariant::Plain {
            pc = pc.plain();
        }
        Self { plan: plan.clone(), storage: storage.clone(), delivery, drives: hardware.drives.clone(), pc }
    }
}

/// One queue pair of a drive and the jobs it is for.
struct Queue {
    pair: Arc<QueuePair<SimHal>>,
    cpus: CpuSet,
    room: Room,
}

/// Counts the looks at completion queues after submissions, and the looks that saw an entry.
#[derive(Clone, Copy, Default)]
pub(crate) struct Looks {
    pub(crate) looks: u64,
    pub(crate) hits: u64,
}

/// The software side of a drive.
struct DriveHost {
    controller: Controller<SimHal>,
    queues: Vec<Queue>,
}

/// A server that is up.
pub(crate) struct StorageHost {
    pub(crate) pc: Pc,
    drives: Vec<DriveHost>,
    mailboxes: Arc<[Arc<Mailbox<SimHal>>]>,
    /// The lines of the drives' queues that jobs use.
    lines: Vec<Irq>,
}

impl StorageHost {
    /// Brings everything up. Runs on the boot thread.
    pub(crate) fn set_up(parts: Parts) -> Result<Self, SetupError> {
        let (plan, storage) = (&parts.plan, &parts.storage);
        let queues: u32 = storage.drives.iter().map(|drive| drive.queues).sum();
        let posted = parts
            .delivery
            .is_posted()
            .then(|| PostedConfig { passes: plan.options.harvest_passes, ..PostedConfig::default() })
            .map(|config| (config, Serving::Whole));
        let storm = StormConfig::default();
        let remapping_entries = queues + storage.drives.len() as u32;
        let pc = Pc::set_up(&parts.pc, Wanted { device_lines: queues, remapping_entries, posted, storm, timer: None })?;
        let domains = pc.pci()?;
        let mailboxes: Arc<[_]> = storage.jobs.iter().map(|job| Arc::new(Mailbox::new(job.iodepth))).collect();
        let work = |job: &JobPlan| EngineWork::of(job.engine, storage.is_polled(job, parts.delivery)).complete;
        let work: Arc<[_]> = storage.jobs.iter().map(work).collect();
        let mut lines = Vec::new();
        let mut drives = Vec::new();
        for (index, site) in parts.drives.iter().enumerate() {
            let jobs: Vec<&JobPlan> = storage.jobs.iter().filter(|job| job.drive == index).collect();
            let polled = jobs.iter().any(|job| storage.is_polled(job, parts.delivery));
            let sorter = |room| Arc::new(Sorter { mailboxes: mailboxes.clone(), work: work.clone(), room });
            let parent = domains[site.iommu].clone();
            let made = drive(&pc, &parts, &storage.drives[index], *site, parent, &sorter, &jobs, polled, &mut lines)?;
            drives.push(made);
        }
        Ok(Self { pc, drives, mailboxes, lines })
    }

    /// Starts the plan's jobs.
    pub(crate) fn start_jobs(
        &self,
        storage: &Storage,
        delivery: StorageVariant,
        seed: u64,
        tally: &Tally,
    ) -> Result<(), SetupError> {
        for (index, job) in storage.jobs.iter().enumerate() {
            let drive = &self.drives[job.drive];
            let cpu = job.cpus.iter().next().expect("the plan was validated: a job has a CPU");
            let queue = drive.queues.iter().find(|queue| queue.cpus.contains(cpu)).expect("queues cover every CPU");
            let namespace = drive.controller.namespace();
            let parts = JobParts {
                plan: job.clone(),
                index: index as u32,
                queue: queue.pair.clone(),
                room: queue.room.clone(),
                mailbox: self.mailboxes[index].clone(),
                polled: storage.is_polled(job, delivery),
                lba_count: namespace.blocks,
                lba_bytes: namespace.block_bytes(),
                seed,
                verify: storage.verify_data,
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

    /// The completion counters of all queues together, and the looks after submissions.
    pub(crate) fn completion_counters(&self) -> (CompletionCounters, Looks) {
        let mut sum = CompletionCounters::default();
        let mut looks = Looks::default();
        for queue in self.drives.iter().flat_map(|drive| &drive.queues) {
            let queue = queue.pair.snapshot();
            let counters = queue.completion;
            looks.looks += queue.submission.looks;
            looks.hits += queue.submission.look_hits;
            sum.look_reaps += counters.look_reaps;
            sum.look_entries += counters.look_entries;
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

    /// Interrupts of the queues' lines so far.
    pub(crate) fn device_interrupts(&self) -> u64 {
        self.pc.count(&self.lines)
    }

    /// Lines that serve the jobs' queues.
    pub(crate) fn vectors(&self) -> u64 {
        self.lines.len() as u64
    }
}

/// A drive: its controller, a line and a queue pair for each share of the CPUs.
#[allow(clippy::too_many_arguments)]
fn drive(
    pc: &Pc,
    parts: &Parts,
    drive: &DrivePlan,
    site: Site,
    parent: Arc<dyn IrqDomain>,
    sorter: &dyn Fn(Room) -> Arc<Sorter>,
    jobs: &[&JobPlan],
    polled: bool,
    lines: &mut Vec<Irq>,
) -> Result<DriveHost, SetupError> {
    let region = |region| Regs::Model { model: site.model, region };
    let failed = |error| SetupError::Drive(drive.name.clone(), error);
    let config = nvme::Config { queue_pairs: drive.queues as u16, ..nvme::Config::default() };
    let controller = Controller::new(SimHal, region(REGION_CONTROLLER), config).map_err(failed)?;
    let capability = MsixCapability::find(&region(REGION_CONFIG))?;
    let table = MsixTable::enable(region(REGION_CONFIG), region(REGION_MSIX), capability);
    let messages = Arc::new(MessageDomain::new(SimHal, table, parent)?);
    let used: CpuSet = jobs.iter().flat_map(|job| job.cpus.iter()).collect();
    let Storage { max_sectors_bytes, max_segments, .. } = parts.storage;
    let most = split::command_bytes_max(controller.transfer_bytes_max(), max_sectors_bytes, max_segments);
    let transfer_bytes_max = jobs.iter().map(|job| job.block_bytes).max().unwrap_or(4096).min(most);
    // A managed line keeps a vector on each of its CPUs. If a drive has only one queue, which serves every CPU, its
    // line is ordinary and stays on the CPUs of its jobs, as an administrator would set it.
    let managed = drive.queues > 1 || used.iter().next().is_none();
    let mut queues = Vec::new();
    for (index, cpus) in irq::spread(drive.queues, &CpuSet::first(parts.plan.cpus))?.into_iter().enumerate() {
        // MSI-X entry 0 is the admin queue's.
        let vector = index as u16 + 1;
        let config = QueueConfig {
            entries: drive.queue_entries as u16,
            vector: (!polled).then_some(vector),
            transfer_bytes_max,
        };
        let room = Room::default();
        let pair = controller.create_queue_pair(config, sorter(room.clone())).map_err(failed)?;
        pair.set_completion_look(parts.storage.check_queue);
        pair.set_reap_bound(parts.storage.reap_bound);
        if !polled {
            let request = AllocRequest {
                requester: RequesterId(site.requester),
                index: vector.into(),
                affinity: if managed { cpus.clone() } else { used.clone() },
                managed,
                delivery: irq::DeliveryKind::Fixed,
            };
            let line = pc.core.alloc_line(messages.clone(), &request, Flow::Edge)?;
            let name = format!("{}q{vector}", drive.name.trim_start_matches("/dev/"));
            pc.core.request(line, name, RequestFlags::default(), pair.clone())?;
            if cpus.iter().any(|cpu| used.contains(cpu)) {
                lines.push(line);
            }
        }
        queues.push(Queue { pair, cpus, room });
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
    Ok(DriveHost { controller, queues })
}

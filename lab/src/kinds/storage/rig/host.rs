//! The software of a run: our delivery core and drivers, brought up on the simulated server.
//!
//! Bring-up runs on CPU 0's boot thread, as a kernel's would. It gives the machine one thing: the function to call
//! when a CPU takes a vector.

use super::block::{BlockLayer, Places, QueueEnd};
use super::course::{Course, CourseParts, Layout, Shared, Sleepers, Starter};
use super::hardware::Hardware;
use super::job::{self, EngineWork, Job, JobParts, Target};
use super::mailbox::Mailbox;
use super::queues::{Queue, Queues};
use super::room::Room;
use super::split;
use super::tally::Tally;
use crate::kinds::storage::{DrivePlan, JobPlan, Storage, StorageVariant, queue_cpus, topology};
use crate::plan::Plan;
use crate::run::SetupError;
use crate::run::pcie::Site;
use crate::run::x86::{self, Pc, Serving, TimerHandler, Wanted};
use drivers::message::MessageDomain;
use drivers::nvme::{self, CompletionCounters, Controller, QueueConfig};
use drivers::pci::{MsixCapability, MsixTable};
use hal::{Affinity, CpuSet, ThreadBody, ThreadSpec, Threads};
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

/// Counts the looks at completion queues after submissions, and the looks that saw an entry.
#[derive(Clone, Copy, Default)]
pub(crate) struct Looks {
    pub(crate) looks: u64,
    pub(crate) hits: u64,
}

/// The software side of a drive.
struct DriveHost {
    controller: Controller<SimHal>,
    /// The queues with interrupts; none if all jobs poll.
    interrupting: Option<Arc<Queues>>,
    /// The polled queues; none if no job polls.
    polled: Option<Arc<Queues>>,
}

impl DriveHost {
    fn queues(&self) -> impl Iterator<Item = &Queue> {
        self.interrupting.iter().chain(&self.polled).flat_map(|queues| queues.iter())
    }
}

/// A server that is up.
pub(crate) struct StorageHost {
    pub(crate) pc: Pc,
    drives: Vec<DriveHost>,
    mailboxes: Arc<[Arc<Mailbox<SimHal>>]>,
    block: Arc<BlockLayer>,
    /// The lines of the drives' queues that jobs use.
    lines: Vec<Irq>,
    /// Threads that sleep; none if no job has a pace.
    sleepers: Option<Arc<Sleepers>>,
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
        let mailboxes: Arc<[_]> = storage.jobs.iter().map(|job| Arc::new(Mailbox::new(job::slots(job)))).collect();
        let work = |job: &JobPlan| EngineWork::of(job.engine, storage.is_polled(job, parts.delivery)).complete;
        let work: Arc<[_]> = storage.jobs.iter().map(work).collect();
        let placing = (storage.rq_affinity, topology(&plan.platform));
        let block = BlockLayer::new(plan.cpus, placing, mailboxes.clone(), work);
        // Only jobs with a pace of their own sleep.
        let sleepers = storage.jobs.iter().any(|job| job.load.is_some()).then(|| Arc::new(Sleepers::new(plan.cpus)));
        let timer = sleepers.clone().map(|sleepers| -> TimerHandler { Arc::new(move |alarm| sleepers.expired(alarm)) });
        let wanted = Wanted { device_lines: queues, remapping_entries, posted, storm, timer };
        let pc = Pc::set_up_with(&parts.pc, wanted, Some(block.vector()))?;
        block.send_by(pc.system.cpus().lapic());
        if let Some(sleepers) = &sleepers {
            sleepers.wake_by(pc.system.cpus());
        }
        let domains = pc.pci()?;
        let mut lines = Vec::new();
        let mut drives = Vec::new();
        for (index, site) in parts.drives.iter().enumerate() {
            let set_up = DriveSetUp {
                pc: &pc,
                parts: &parts,
                drive: &storage.drives[index],
                site: *site,
                jobs: storage.jobs.iter().filter(|job| job.drives().any(|drive| drive == index)).collect(),
                block: &block,
            };
            drives.push(set_up.run(domains[site.iommu].clone(), &mut lines)?);
        }
        Ok(Self { pc, drives, mailboxes, block, lines, sleepers })
    }

    /// Starts the plan's jobs; those of an experiment with phases are left to the starter that is returned.
    pub(crate) fn start_jobs(
        &self,
        storage: &Storage,
        delivery: StorageVariant,
        seed: u64,
        tally: &Tally,
    ) -> Result<Option<(Arc<Starter>, CourseParts)>, SetupError> {
        let starter = storage.staged.then(|| Arc::new(Starter::new(storage, seed)));
        let course = self.sleepers.as_ref().map(|sleepers| CourseParts {
            shared: Shared::new(storage, sleepers.clone(), starter.clone()),
            layout: Arc::new(Layout::new(storage, |drive| {
                let namespace = self.drives[drive].controller.namespace();
                namespace.blocks * u64::from(namespace.block_bytes())
            })),
        });
        for (index, job) in storage.jobs.iter().enumerate() {
            let polled = storage.is_polled(job, delivery);
            let parts = JobParts {
                plan: job.clone(),
                index: index as u32,
                targets: job.distinct_drives().into_iter().map(|drive| self.target(drive, polled)).collect(),
                mailbox: self.mailboxes[index].clone(),
                polled,
                seed,
                verify: storage.verify_data,
                counts: tally.jobs[index].clone(),
                latencies: tally.latencies.clone(),
                meter: tally.meters.get(index).cloned(),
            };
            if let Some(starter) = &starter {
                starter.add(parts);
                continue;
            }
            let thread = Job::new(parts).map_err(SetupError::Memory)?;
            let affinity = Affinity::Set(job.cpus.clone());
            let spec = ThreadSpec { name: "job", affinity, urgent: false };
            let body: ThreadBody = match (&job.load, &course) {
                (Some(_), Some(course)) => {
                    let course = Course::new(thread, course);
                    Box::new(move || course.run())
                }
                _ => Box::new(move || thread.run()),
            };
            SimHal.spawn(spec, body).map_err(SetupError::Spawn)?;
        }
        Ok(starter.zip(course))
    }

    /// A drive as a job sees it.
    fn target(&self, drive: usize, polled: bool) -> Target {
        let host = &self.drives[drive];
        let queues = if polled { &host.polled } else { &host.interrupting };
        let namespace = host.controller.namespace();
        Target {
            drive,
            queues: queues.clone().expect("the drive was set up for its jobs"),
            lba_count: namespace.blocks,
            lba_bytes: namespace.block_bytes(),
            has_volatile_cache: host.controller.info().volatile_write_cache,
        }
    }

    /// The completion counters of all queues together, and the looks after submissions.
    pub(crate) fn completion_counters(&self) -> (CompletionCounters, Looks) {
        let mut sum = CompletionCounters::default();
        let mut looks = Looks::default();
        for queue in self.drives.iter().flat_map(DriveHost::queues) {
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

    /// Where I/Os completed so far.
    pub(crate) fn places(&self) -> Places {
        self.block.places()
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

/// What the set-up of one drive needs.
struct DriveSetUp<'a> {
    pc: &'a Pc,
    parts: &'a Parts,
    drive: &'a DrivePlan,
    site: Site,
    jobs: Vec<&'a JobPlan>,
    block: &'a Arc<BlockLayer>,
}

impl DriveSetUp<'_> {
    /// A drive: its controller, and queue pairs for all CPUs, each with a line unless it is polled. `lines` gets the lines
    /// of the queues that the jobs may use.
    fn run(self, parent: Arc<dyn IrqDomain>, lines: &mut Vec<Irq>) -> Result<DriveHost, SetupError> {
        let Self { parts, drive, site, .. } = self;
        let storage = &parts.storage;
        let is_polled = |job: &&JobPlan| storage.is_polled(job, parts.delivery);
        let polls = self.jobs.iter().any(&is_polled);
        let interrupts = !self.jobs.iter().all(is_polled);
        let region = |region| Regs::Model { model: site.model, region };
        let failed = |error| SetupError::Drive(drive.name.clone(), error);
        // A drive that serves both kinds of job has both kinds of queue, half of its own each where it has too few.
        let sets = u32::from(polls) + u32::from(interrupts);
        let kind = parts.plan.platform.drive(&drive.model).expect("the plan was validated");
        let most = (kind.vectors.whole() as u32 - 1).min(1023);
        let queues = drive.queues.min((most / sets.max(1)).max(1));
        let pairs = queues * sets;
        let config = nvme::Config { queue_pairs: pairs as u16, ..nvme::Config::default() };
        let controller = Controller::new(SimHal, region(REGION_CONTROLLER), config).map_err(failed)?;
        let capability = MsixCapability::find(&region(REGION_CONFIG))?;
        let table = MsixTable::enable(region(REGION_CONFIG), region(REGION_MSIX), capability);
        let messages: Arc<dyn IrqDomain> = Arc::new(MessageDomain::new(SimHal, table, parent)?);
        let interrupting =
            if interrupts { Some(self.queues(&controller, queues, Some((&messages, lines)))?) } else { None };
        let polled = if polls { Some(self.queues(&controller, queues, None)?) } else { None };
        if let Some(wanted) = drive.coalescing {
            let time = nvme::CoalescingTime::from_us(u32::from(wanted.time_100us) * 100);
            let threshold = nvme::CoalescingThreshold::entries(wanted.entries);
            let coalescing = nvme::Coalescing {
                time: time.expect("a byte of units is a valid time"),
                threshold: threshold.expect("the plan was validated"),
            };
            controller.set_coalescing(coalescing).map_err(failed)?;
        }
        Ok(DriveHost { controller, interrupting, polled })
    }

    /// `count` queue pairs for all CPUs; polled ones without `lines`.
    fn queues(
        &self,
        controller: &Controller<SimHal>,
        count: u32,
        mut lines: Option<(&Arc<dyn IrqDomain>, &mut Vec<Irq>)>,
    ) -> Result<Arc<Queues>, SetupError> {
        let Self { pc, parts, drive, .. } = self;
        let Storage { max_sectors_bytes, max_segments, .. } = parts.storage;
        let used: CpuSet = self.jobs.iter().flat_map(|job| job.cpus.iter()).collect();
        let most = split::command_bytes_max(controller.transfer_bytes_max(), max_sectors_bytes, max_segments);
        let transfer_bytes_max = self.jobs.iter().map(|job| job.block_bytes).max().unwrap_or(4096).min(most);
        let look = parts.storage.check_queue.unwrap_or(parts.delivery.completion_look());
        let sets = queue_cpus(count, parts.plan.cpus, topology(&parts.plan.platform));
        let only = sets.len() == 1;
        let mut queues = Vec::new();
        for (index, cpus) in sets.into_iter().enumerate() {
            // MSI-X entry 0 is the admin queue's.
            let vector = index as u16 + 1;
            let config = QueueConfig {
                entries: drive.queue_entries as u16,
                vector: lines.is_some().then_some(vector),
                transfer_bytes_max,
            };
            let room = Room::default();
            let end = QueueEnd { block: self.block.clone(), room: room.clone(), polled: lines.is_none(), only };
            let failed = |error| SetupError::Drive(drive.name.clone(), error);
            let pair = controller.create_queue_pair(config, Arc::new(end)).map_err(failed)?;
            pair.set_completion_look(look);
            pair.set_reap_bound(parts.storage.reap_bound);
            if let Some((messages, lines)) = &mut lines {
                let request = AllocRequest {
                    requester: RequesterId(self.site.requester),
                    index: vector.into(),
                    affinity: cpus.clone(),
                    managed: drive.managed,
                    delivery: irq::DeliveryKind::Fixed,
                };
                let line = pc.core.alloc_line(messages.clone(), &request, Flow::Edge)?;
                let name = format!("{}q{vector}", drive.name.trim_start_matches("/dev/"));
                let flags = RequestFlags::default();
                if parts.delivery.is_threaded() {
                    let check = nvme::EntryCheck::new(pair.clone());
                    pc.core.request_threaded(line, name, flags, Some(check), pair.clone())?;
                } else {
                    pc.core.request(line, name, flags, pair.clone())?;
                }
                if cpus.iter().any(|cpu| used.contains(cpu)) {
                    lines.push(line);
                }
            }
            queues.push(Queue { pair, cpus, room });
        }
        Ok(Arc::new(Queues::new(queues, parts.plan.cpus)))
    }
}

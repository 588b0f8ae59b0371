//! The software of both hosts. Each has its own delivery core and drivers, and they are brought up one after the
//! other.

use super::initiator::{Initiator, Load, SIGNAL_EVERY, SPARE_RECEIVES, Tally};
use super::level::Levels;
use super::target::{SENDS_A_READ, Target};
use super::thief;
use crate::kinds::rdma::{Moderation, Rdma};
use crate::run::error::SetupError;
use crate::run::pcie::{Pcie, Site};
use crate::run::x86::{self, Pc, TimerHandler, Wanted};
use drivers::message::MessageDomain;
use drivers::pci::{MsixCapability, MsixTable};
use drivers::rdma::{
    BUDGET_SOFT, CompletionQueue, CqConfig, CqContext, CqCounters, CqUse, CqUser, Device, DeviceConfig, Missed,
    QpConfig, QueuePair, Worker,
};
use hal::{Affinity, CpuId, Hal as _, ThreadSpec, Threads};
use irq::moderation::{Tuner, Tuning};
use irq::poll::{PollConfig, SoftPoll};
use irq::{IrqDomain, StormConfig};
use machine::rdma::{REGION_CONFIG, REGION_DOORBELLS, REGION_MSIX, REGION_REGISTERS};
use machine::{Machine, Regs, SimHal, Stream};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// The inputs of a host's bring-up.
pub(super) struct HostParts {
    pub(super) cpus: Range<u32>,
    pc: x86::Parts,
    site: Site,
    pub(super) rdma: Rdma,
    pub(super) moderation: Moderation,
}

impl HostParts {
    pub(super) fn new(
        machine: &Machine,
        cpus: Range<u32>,
        pcie: &Pcie,
        site: Site,
        rdma: &Rdma,
        moderation: Moderation,
    ) -> Self {
        let pc = x86::Parts::of_host(machine, cpus.clone(), pcie);
        Self { cpus, pc, site, rdma: rdma.clone(), moderation }
    }
}

/// The polling at the end of the initiator's interrupts, once the initiator is up.
pub(super) type Soft = Arc<OnceLock<Arc<SoftPoll<SimHal>>>>;

/// Routes each CPU's interrupts to its host's core, then runs the polling at the end of the interrupt.
pub(super) fn hang_entry(machine: &mut Machine, hosts: &[HostParts; 2], soft: Soft) {
    let entries = [hosts[0].pc.entry(), hosts[1].pc.entry()];
    let split = hosts[1].cpus.start;
    machine.set_interrupt_entry(move |vector| {
        let entry = &entries[usize::from(SimHal.cpu().0 >= split)];
        let handle = || entry.get().into_iter().for_each(|cpus| cpus.interrupt(vector));
        match soft.get() {
            Some(soft) => soft.interrupt(handle),
            None => handle(),
        }
    });
}

/// One host's NIC, with a queue pair and a completion queue for each of its CPUs.
pub(super) struct RdmaHost {
    pc: Pc,
    device: Device<SimHal>,
    pub(super) queues: Vec<Arc<CompletionQueue<SimHal>>>,
    pairs: Vec<Arc<QueuePair<SimHal>>>,
}

/// The longest queues that a thread needs: an entry for every send and receive that may be outstanding.
fn entries(rdma: &Rdma, sends_a_read: u32) -> (u32, QpConfig) {
    let sends = (sends_a_read * (rdma.depth_max() + SPARE_RECEIVES + 2 * SIGNAL_EVERY)).next_power_of_two();
    let receives = (rdma.depth_max() + SPARE_RECEIVES).next_power_of_two();
    ((sends + receives).next_power_of_two(), QpConfig { sends, receives })
}

impl RdmaHost {
    fn set_up(
        parts: &HostParts,
        users: &[Arc<dyn CqUser>],
        tuners: &[Option<Arc<Tuner<SimHal>>>],
        sends_a_read: u32,
    ) -> Result<Self, SetupError> {
        let count = parts.cpus.len() as u32;
        // A thief uses the vector of the local timer, which has no other use here.
        let timer: TimerHandler = Arc::new(|_| SimHal.delay_ns(thief::THEFT_NS));
        let wanted = Wanted {
            device_lines: count,
            remapping_entries: count + 1,
            posted: None,
            storm: StormConfig::default(),
            timer: Some(timer),
        };
        let pc = Pc::set_up(&parts.pc, wanted)?;
        let domain: Arc<dyn IrqDomain> = pc.pci()?.remove(0);
        let region = |region| Regs::Model { model: parts.site.model, region };
        let config = DeviceConfig { event_queues: count as u16, ready_timeout_ns: 1_000_000 };
        let device = Device::new(SimHal, region(REGION_REGISTERS), region(REGION_DOORBELLS), config)?;
        let capability = MsixCapability::find(&region(REGION_CONFIG))?;
        let table = MsixTable::enable(region(REGION_CONFIG), region(REGION_MSIX), capability);
        let messages = Arc::new(MessageDomain::new(SimHal, table, domain)?);
        let (completions, pair_config) = entries(&parts.rdma, sends_a_read);
        let mut host = Self { pc, device, queues: Vec::new(), pairs: Vec::new() };
        for ((index, cpu), (user, tuner)) in (0..).zip(parts.cpus.clone()).zip(users.iter().zip(tuners)) {
            let config = CqConfig { entries: completions, event_queue: index as u16, owner: CqUse::Exclusive };
            let queue = host.device.open_cq(config, user.clone(), tuner.clone())?;
            let pair = host.device.open_qp(pair_config, &queue, &queue)?;
            let events = host.device.event_queue(index as u16).expect("as many as CPUs").clone();
            let name = format!("rnic-comp{index}");
            host.pc.device_line(messages.clone(), parts.site.requester, index, cpu, (name, events))?;
            host.queues.push(queue);
            host.pairs.push(pair);
        }
        Ok(host)
    }
}

impl RdmaHost {
    /// Counters of all completion queues together.
    fn counters(&self) -> CqCounters {
        self.queues.iter().map(|queue| queue.counters()).fold(CqCounters::default(), |sum, queue| CqCounters {
            completions: sum.completions + queue.completions,
            errors: sum.errors + queue.errors,
            batches: sum.batches + queue.batches,
            arms: sum.arms + queue.arms,
            missed: sum.missed + queue.missed,
            moderations: sum.moderations + queue.moderations,
        })
    }
}

/// The initiating host.
pub(super) struct Initiators {
    host: RdmaHost,
    rdma: Rdma,
    seed: u64,
    users: Vec<Arc<Initiator>>,
    levels: Levels,
    _soft: Arc<SoftPoll<SimHal>>,
}

/// The target host; it lives as long as the machine runs.
pub(super) struct Targets {
    host: RdmaHost,
    levels: Levels,
    _users: Vec<Arc<Target>>,
    _workers: Vec<Arc<Worker<SimHal>>>,
}

/// Brings both hosts up and connects them. Runs on the boot thread.
pub(super) fn set_up(
    [near, far]: [HostParts; 2],
    soft_slot: &Soft,
    tally: &Tally,
    seed: u64,
) -> Result<(Initiators, Targets), SetupError> {
    let rdma = &near.rdma;
    let count = near.cpus.len();
    let initiators: Vec<Arc<Initiator>> =
        (0..count).map(|_| Initiator::new(rdma, tally).map(Arc::new)).collect::<Result<_, _>>()?;
    let targets: Vec<Arc<Target>> = (0..count).map(|_| Target::new(rdma).map(Arc::new)).collect::<Result<_, _>>()?;
    let tuners = |moderation| (0..count).map(|_| tuner(rdma, moderation)).collect::<Result<Vec<_>, _>>();
    let users: Vec<Arc<dyn CqUser>> = initiators.iter().map(|user| user.clone() as _).collect();
    let near_host = RdmaHost::set_up(&near, &users, &tuners(near.moderation)?, 1)?;
    let users: Vec<Arc<dyn CqUser>> = targets.iter().map(|user| user.clone() as _).collect();
    let far_host = RdmaHost::set_up(&far, &users, &tuners(far.moderation)?, SENDS_A_READ)?;
    for (near_pair, far_pair) in near_host.pairs.iter().zip(&far_host.pairs) {
        near_pair.connect(far_pair.number())?;
        far_pair.connect(near_pair.number())?;
    }
    for (target, pair) in targets.iter().zip(&far_host.pairs) {
        target.begin(pair.clone(), rdma);
    }
    let workers = start_workers(&far, &far_host)?;
    let far_levels = Levels::start(&far, &far_host)?;
    for (initiator, pair) in initiators.iter().zip(&near_host.pairs) {
        let (base, bytes) = initiator.data();
        let key = near_host.device.lend(base, bytes)?;
        initiator.begin(pair.clone(), key, rdma);
    }
    let soft = start_soft_poll(&near, &near_host)?;
    assert!(soft_slot.set(soft.clone()).is_ok(), "one host polls so");
    let levels = Levels::start(&near, &near_host)?;
    let near = Initiators { host: near_host, rdma: rdma.clone(), seed, users: initiators, levels, _soft: soft };
    Ok((near, Targets { host: far_host, levels: far_levels, _users: targets, _workers: workers }))
}

impl Targets {
    /// Counters of all completion queues together.
    pub(super) fn counters(&self) -> CqCounters {
        self.host.counters()
    }

    /// The moderation of its queues.
    pub(super) fn levels(&self) -> &Levels {
        &self.levels
    }
}

fn tuner(rdma: &Rdma, moderation: Moderation) -> Result<Option<Arc<Tuner<SimHal>>>, SetupError> {
    let Moderation::Controlled(controlled) = moderation else { return Ok(None) };
    let tuning = Tuning { algorithm: controlled.algorithm(), table: rdma.levels.clone(), nr_events: rdma.nr_events };
    Ok(Some(tuning.tuner(SimHal)?))
}

/// Threads poll the target's queues, as in a target that does its work in those threads.
fn start_workers(parts: &HostParts, host: &RdmaHost) -> Result<Vec<Arc<Worker<SimHal>>>, SetupError> {
    let mut workers = Vec::new();
    for ((index, cpu), queue) in (0..).zip(parts.cpus.clone()).zip(&host.queues) {
        let spec = ThreadSpec { name: "target", affinity: Affinity::Cpu(CpuId(cpu)), urgent: false };
        let worker = Worker::start(SimHal, spec, queue.clone())?;
        let events = host.device.event_queue(index).expect("as many as CPUs");
        events.attach(queue, CqContext::Workqueue(worker.clone()));
        workers.push(worker);
    }
    Ok(workers)
}

/// The ends of interrupts poll the initiator's queues.
fn start_soft_poll(parts: &HostParts, host: &RdmaHost) -> Result<Arc<SoftPoll<SimHal>>, SetupError> {
    let mut soft = SoftPoll::new(SimHal, parts.cpus.end, PollConfig::default())?;
    let ids: Vec<_> = parts
        .cpus
        .clone()
        .zip(&host.queues)
        .map(|(cpu, queue)| soft.add(CpuId(cpu), BUDGET_SOFT, queue.clone(), queue.tuner().cloned()))
        .collect::<Result<_, _>>()?;
    let soft = Arc::new(soft);
    soft.start().map_err(SetupError::Spawn)?;
    for ((index, queue), id) in (0..).zip(&host.queues).zip(ids) {
        let events = host.device.event_queue(index).expect("as many as CPUs");
        events.attach(queue, CqContext::SoftPoll(soft.clone(), id));
        // Nothing has been submitted yet, so no completion can be missed.
        assert_eq!(queue.arm(), Missed::No);
    }
    Ok(soft)
}

impl Initiators {
    /// Starts the threads.
    pub(super) fn start(&self, start_ns: u64) -> Result<(), SetupError> {
        for (index, initiator) in self.users.iter().enumerate() {
            let load = Load {
                initiator: initiator.clone(),
                queue: self.host.queues[index].clone(),
                recorded: self.levels.recorded[index].clone(),
                rdma: self.rdma.clone(),
                // Models use random streams from 0 up; the threads' streams are far above those.
                random: Stream::new(self.seed, 1 << 32 | index as u64),
                start_ns,
            };
            let spec = ThreadSpec { name: "initiator", affinity: Affinity::Cpu(CpuId(index as u32)), urgent: false };
            SimHal.spawn(spec, Box::new(move || load.run())).map_err(SetupError::Spawn)?;
        }
        Ok(())
    }

    /// Counters of all completion queues together.
    pub(super) fn counters(&self) -> CqCounters {
        self.host.counters()
    }

    /// The moderation of its queues.
    pub(super) fn levels(&self) -> &Levels {
        &self.levels
    }

    /// The state of the first queue's tuning.
    pub(super) fn tuning(&self) -> Option<String> {
        self.host.queues.first()?.tuner().map(|tuner| tuner.view().to_string())
    }

    /// The interrupt counts as `/proc/interrupts` prints them.
    pub(super) fn interrupt_table(&self) -> String {
        self.host.pc.core.interrupts().to_string()
    }

    /// How the host delivers messages.
    pub(super) fn policy(&self) -> String {
        self.host.pc.system.to_string()
    }

    /// Every interrupt line.
    pub(super) fn lines(&self) -> Vec<irq::LineView> {
        self.host.pc.core.views()
    }
}

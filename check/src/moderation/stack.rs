//! State that the machine's threads share: the system, polled devices, connections of two NICs, and their tuners.

use super::board::Port;
use super::end::{DEPTH_MAX, ENTRIES, End};
use super::queue::Queue;
use super::spare::Spare;
use super::tuning::{Consumer, Tuned, Tuning};
use super::turns::Turns;
use super::watch::Slow;
use crate::coverage::Coverage;
use crate::gic::bells::BellPort;
use crate::gic::harness::{self, ArmHarness};
use crate::setbacks::Setbacks;
use drivers::pci::{MsixCapability, MsixTable};
use drivers::rdma::{
    CompletionQueue, CqConfig, CqContext, CqUse, Device, DeviceConfig, Missed, QpConfig, QueuePair, Worker,
};
use hal::{Affinity, CpuId, CpuSet, Hal as _, ThreadSpec, Threads as _};
use irq::moderation::{Programmer, Tuner};
use irq::poll::{PollConfig, Polled, SoftId, SoftPoll};
use irq::{Action, AllocRequest, Flow, Irq, IrqReturn, RequestFlags, RequesterId, Trigger};
use machine::model::ModelId;
use machine::rdma::{REGION_CONFIG, REGION_DOORBELLS, REGION_MSIX, REGION_REGISTERS};
use machine::{Regs, SimHal};
use spec::gic::IntId;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, Weak};
use systems::Line;

/// The first wire of the board.
pub(super) const BOARD_INTID: u32 = 40;
/// Requesters of the NICs.
pub(super) const NICS: [u16; 2] = [0x0300, 0x0400];

/// The consumers to bring up.
#[derive(Clone)]
pub(super) struct Wanted {
    pub(super) cpus: u32,
    /// Polled devices.
    pub(super) queues: u32,
    /// Connections.
    pub(super) pairs: u32,
    pub(super) depth: u64,
    pub(super) gap_ns: u32,
    pub(super) poll: PollConfig,
    pub(super) weight: u32,
    /// All are polled by CPU 0.
    pub(super) crowded: bool,
    /// By consumer, one bit each: no controller tunes it; a thread polls it (completion queues only).
    pub(super) untuned: u64,
    pub(super) threaded: u64,
    /// The first consumer's controller; the others follow.
    pub(super) algorithm: u32,
    pub(super) tuning: Tuning,
    /// One thread programs the levels of all.
    pub(super) shared: bool,
    /// Threads that program are urgent.
    pub(super) urgent: bool,
    /// So long after the load those threads start; 0: before it. What is asked for meanwhile waits for them.
    pub(super) late_ns: u64,
    pub(super) board: Regs,
    pub(super) nics: [ModelId; 2],
}

impl Wanted {
    fn tuned(&self, number: u32) -> Option<Tuned> {
        (self.untuned >> (number % 8) & 1 == 0).then(|| self.tuning.tuned(self.algorithm + number, number))
    }

    fn home(&self, number: u32) -> CpuId {
        CpuId(if self.crowded { 0 } else { number % self.cpus })
    }

    /// Some are lighter than others.
    fn weight(&self, number: u32) -> u32 {
        (self.weight >> (number % 3)).max(1)
    }

    fn is_threaded(&self, number: u32) -> bool {
        self.threaded >> (number % 8) & 1 == 1
    }
}

/// Everything that runs on the machine.
pub struct ModerationStack {
    pub(super) system: Arc<ArmHarness>,
    pub(super) consumers: Vec<Consumer>,
    pub(super) lines: Vec<Irq>,
    /// Per line: true if a manager has disabled it.
    pub(super) busy: Vec<AtomicBool>,
    pub(super) hotplug: AtomicBool,
    pub(super) seen: Mutex<Coverage>,
    pub(super) devices: Vec<Device<SimHal>>,
    _workers: Vec<Arc<Worker<SimHal>>>,
    programmers: Mutex<Vec<Arc<Programmer<SimHal>>>>,
    pub(super) wanted: Wanted,
}

/// The clock of CPU 0. It lets time pass for tuners, and lets drivers find old commands.
pub(super) struct Tick {
    pub(super) port: BellPort,
    /// Its system holds the clock's line.
    pub(super) stack: Weak<ModerationStack>,
}

impl Action for Tick {
    fn handle(&self, _: Irq) -> IrqReturn {
        self.port.serve();
        let stack = self.stack.upgrade();
        for consumer in stack.iter().flat_map(|stack| &stack.consumers) {
            consumer.device.tick();
            consumer.tuned.iter().for_each(|tuned| tuned.tuner.elapsed());
        }
        IrqReturn::Handled
    }
}

/// An end with its queue, before it is polled.
struct Opened {
    end: Arc<End>,
    queue: Arc<CompletionQueue<SimHal>>,
    pair: Arc<QueuePair<SimHal>>,
    tuned: Option<Tuned>,
}

/// The parts during bring-up.
struct Bringup<'a> {
    system: Arc<ArmHarness>,
    wanted: &'a Wanted,
    setbacks: &'a Setbacks,
    consumers: Vec<Consumer>,
    lines: Vec<Irq>,
}

fn region(nic: ModelId, region: u8) -> Regs {
    Regs::Model { model: nic, region }
}

impl ModerationStack {
    pub(super) fn bring_up(system: Arc<ArmHarness>, wanted: &Wanted, setbacks: &Setbacks) -> Arc<Self> {
        let mut bringup = Bringup { system, wanted, setbacks, consumers: Vec::new(), lines: Vec::new() };
        let queues: Vec<_> = (0..wanted.queues).map(|number| bringup.queue(number)).collect();
        let (devices, ends) = if wanted.pairs > 0 { bringup.connect() } else { Default::default() };
        let mut soft = SoftPoll::new(SimHal, wanted.cpus, wanted.poll).expect("a budget");
        let add = |number: u32, polled: Arc<dyn Polled>, tuner: Option<Arc<Tuner<SimHal>>>| {
            let polled = Arc::new(Turns { instance: number, inner: polled });
            soft.add(wanted.home(number), wanted.weight(number), polled, tuner).expect("a weight")
        };
        let ids = bringup.add_all(add, &queues, &ends);
        let soft = Arc::new(soft);
        soft.start().expect("threads");
        assert!(bringup.system.polls.set(soft.clone()).is_ok(), "once");
        let workers = bringup.begin(&soft, &ids, &queues, &ends, &devices);
        let Bringup { system, wanted, consumers, lines, .. } = bringup;
        let stack = Arc::new(Self {
            system,
            consumers,
            busy: lines.iter().map(|_| AtomicBool::new(false)).collect(),
            lines,
            hotplug: AtomicBool::new(false),
            seen: Mutex::default(),
            devices,
            _workers: workers,
            programmers: Mutex::default(),
            wanted: wanted.clone(),
        });
        if wanted.late_ns == 0 {
            stack.program();
        }
        stack
    }

    /// The load has begun: if the threads that program levels come late, they come now.
    pub(super) fn load_begins(self: &Arc<Self>) {
        let late_ns = self.wanted.late_ns;
        if late_ns > 0 {
            let stack = self.clone();
            let body = move || {
                SimHal.delay_ns(late_ns);
                stack.program();
            };
            let spec = ThreadSpec { name: "late", affinity: Affinity::Any, urgent: false };
            SimHal.spawn(spec, Box::new(body)).expect("a CPU");
        }
    }

    /// The threads that program levels.
    fn program(&self) {
        let served = |consumer: &Consumer| {
            consumer.tuned.as_ref().map(|tuned| (tuned.tuner.clone(), consumer.device.clone() as _))
        };
        let all: Vec<_> = self.consumers.iter().filter_map(served).collect();
        let groups = if self.wanted.shared { vec![all] } else { all.into_iter().map(|one| vec![one]).collect() };
        let spec = || ThreadSpec { name: "moderation", affinity: Affinity::Any, urgent: self.wanted.urgent };
        for group in groups.into_iter().filter(|group| !group.is_empty()) {
            let programmer = Programmer::start(SimHal, spec(), group).expect("a thread");
            self.programmers.lock().expect("one host thread").push(programmer);
        }
    }

    /// The consumer of this number, modulo their number.
    pub(super) fn consumer(&self, number: u32) -> &Consumer {
        &self.consumers[number as usize % self.consumers.len()]
    }

    /// What the consumers have left of each NIC.
    pub(super) fn spares(&self) -> impl Iterator<Item = Spare<'_>> {
        let used = self.wanted.pairs as u16;
        self.devices.iter().map(move |device| Spare { device, used })
    }

    /// `transition` was seen.
    pub(super) fn saw(&self, transition: &'static str, times: u64) {
        self.seen.lock().expect("one host thread").add(transition, times);
    }

    pub(super) fn describe(&self) -> String {
        let mut text = String::new();
        for consumer in &self.consumers {
            text += &format!("{}; device: {:?}\n", consumer.source.describe(), consumer.device.last());
            text += &consumer.tuned.as_ref().map(|tuned| tuned.watched.view().to_string()).unwrap_or_default();
        }
        text + &self.system.core.views().iter().map(|line| format!("{line}\n")).collect::<String>()
    }
}

impl Bringup<'_> {
    fn queue(&mut self, number: u32) -> Arc<Queue> {
        let tuned = self.wanted.tuned(number);
        let port = Port { regs: self.wanted.board, index: number };
        let tuner = tuned.as_ref().map(|tuned| tuned.tuner.clone());
        let queue = Queue::new(number, port, self.wanted.gap_ns, self.wanted.depth, tuner);
        self.consumers.push(Consumer { source: queue.clone(), device: Slow::new(queue.clone()), tuned });
        queue
    }

    /// Both NICs, and their connections.
    fn connect(&mut self) -> (Vec<Device<SimHal>>, Vec<Opened>) {
        let config = DeviceConfig { event_queues: self.wanted.pairs as u16, ready_timeout_ns: 1_000_000 };
        let new = |nic| Device::new(SimHal, region(nic, REGION_REGISTERS), region(nic, REGION_DOORBELLS), config);
        let device = |nic| self.setbacks.meet("a NIC", || new(nic));
        let devices: Vec<_> = self.wanted.nics.into_iter().map(device).collect();
        let mut ends = Vec::new();
        for pair in 0..self.wanted.pairs {
            for (side, device) in (0..).zip(&devices) {
                let number = self.wanted.queues + 2 * pair + side;
                ends.push(self.open(device, number, pair as u16));
            }
        }
        for both in ends.chunks(2) {
            let sides = [(&both[0], &both[1]), (&both[1], &both[0])];
            for ((near, far), nic) in sides.into_iter().zip(self.wanted.nics) {
                self.setbacks.meet("a connection", || near.pair.connect(far.pair.number()));
                let regs = region(nic, REGION_REGISTERS);
                near.end.begin(near.pair.clone(), &near.queue, regs, &far.end);
            }
        }
        (devices, ends)
    }

    fn open(&mut self, device: &Device<SimHal>, number: u32, event_queue: u16) -> Opened {
        let tuned = self.wanted.tuned(number);
        let end = End::new(number, self.wanted.depth.min(DEPTH_MAX), number.is_multiple_of(2));
        let config = CqConfig { entries: 2 * ENTRIES, event_queue, owner: CqUse::Exclusive };
        let tuner = tuned.as_ref().map(|tuned| tuned.tuner.clone());
        let open = || device.open_cq(config, end.clone(), tuner.clone());
        let queue = self.setbacks.meet("a completion queue", open);
        let entries = QpConfig { sends: ENTRIES, receives: ENTRIES };
        let pair = self.setbacks.meet("a queue pair", || device.open_qp(entries, &queue, &queue));
        self.consumers.push(Consumer { source: end.clone(), device: Slow::new(queue.clone()), tuned: tuned.clone() });
        Opened { end, queue, pair, tuned }
    }

    /// Puts all consumers on the lists, except those that threads poll.
    fn add_all(
        &self,
        mut add: impl FnMut(u32, Arc<dyn Polled>, Option<Arc<Tuner<SimHal>>>) -> SoftId,
        queues: &[Arc<Queue>],
        ends: &[Opened],
    ) -> Vec<Option<SoftId>> {
        let queues =
            queues.iter().map(|queue| Some((queue.number, queue.clone() as Arc<dyn Polled>, queue.tuner.clone())));
        let ends = ends.iter().map(|end| {
            let tuner = end.tuned.as_ref().map(|tuned| tuned.tuner.clone());
            let soft = !self.wanted.is_threaded(end.end.number);
            soft.then(|| (end.end.number, end.queue.clone() as Arc<dyn Polled>, tuner))
        });
        let entries: Vec<_> = queues.chain(ends).collect();
        entries.into_iter().map(|entry| entry.map(|(number, polled, tuner)| add(number, polled, tuner))).collect()
    }

    /// Allocates lines, connects each interrupt to the instance that it schedules, and arms for the first time.
    fn begin(
        &mut self,
        soft: &Arc<SoftPoll<SimHal>>,
        ids: &[Option<SoftId>],
        queues: &[Arc<Queue>],
        ends: &[Opened],
        devices: &[Device<SimHal>],
    ) -> Vec<Arc<Worker<SimHal>>> {
        for (queue, id) in queues.iter().zip(ids) {
            self.wire(queue);
            queue.start(soft, id.expect("queues are on lists"));
        }
        for ((device, nic), requester) in devices.iter().zip(self.wanted.nics).zip(NICS) {
            self.messages(device, nic, requester);
        }
        let mut workers = Vec::new();
        for (opened, id) in ends.iter().zip(&ids[queues.len()..]) {
            let number = opened.end.number - self.wanted.queues;
            let events = devices[number as usize % 2].event_queue((number / 2) as u16).expect("one a connection");
            match id {
                Some(id) => {
                    events.attach(&opened.queue, CqContext::SoftPoll(soft.clone(), *id));
                    assert_eq!(opened.queue.arm(), Missed::No, "nothing was sent");
                }
                None => {
                    let affinity = Affinity::Cpu(self.wanted.home(opened.end.number));
                    let spec = ThreadSpec { name: "worker", affinity, urgent: false };
                    let worker = Worker::start(SimHal, spec, opened.queue.clone()).expect("a thread");
                    events.attach(&opened.queue, CqContext::Workqueue(worker.clone()));
                    workers.push(worker);
                }
            }
        }
        workers
    }

    fn request(&self, index: u32, requester: u16) -> AllocRequest {
        let affinity = CpuSet::first(self.wanted.cpus);
        AllocRequest { affinity, requester: RequesterId(requester), ..harness::request(index) }
    }

    /// The line of a device of the board.
    fn wire(&mut self, queue: &Arc<Queue>) {
        let (intid, cpus) = (IntId(BOARD_INTID + queue.number), CpuSet::first(self.wanted.cpus));
        let line = self.system.arm.wire(intid, Trigger::EdgeRising, cpus).expect("a line");
        let handler = line.request("queue", RequestFlags::default(), queue.clone()).expect("a new line");
        self.lines.push(handler.keep());
    }

    /// The lines of a NIC's event queues.
    fn messages(&mut self, device: &Device<SimHal>, nic: ModelId, requester: u16) {
        let capability = MsixCapability::find(&region(nic, REGION_CONFIG)).expect("MSI-X");
        let table = MsixTable::enable(region(nic, REGION_CONFIG), region(nic, REGION_MSIX), capability);
        let messages = self.system.arm.message_domain(table).expect("an ITS");
        for index in 0..self.wanted.pairs {
            let events = device.event_queue(index as u16).expect("one a connection").clone();
            let request = self.request(index, requester);
            let line = Line::alloc(&self.system.core, messages.clone(), &request, Flow::FastEoi).expect("a line");
            let handler = line.request("rnic", RequestFlags::default(), events).expect("a new line");
            self.lines.push(handler.keep());
        }
    }
}

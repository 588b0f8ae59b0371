//! Two RDMA NICs on a wire, and a host with CPUs enough for both ends.
#![allow(dead_code, unreachable_pub)]

use drivers::rdma::{
    BUDGET_SOFT, Completion, CompletionQueue, CqConfig, CqContext, CqUse, CqUser, Device, DeviceConfig, PostReceive,
    PostSend, QpConfig, QueuePair,
};
use hal::{CpuId, Dma as _, Hal as _, Regs as _};
use irq::moderation::Tuner;
use irq::poll::{PollConfig, SoftPoll};
use irq::{Action, Irq};
use machine::fault::FaultRecord;
use machine::model::{Model, ModelId, Upstream};
use machine::rdma::{Config, Nic, REGION_CONFIG, REGION_DOORBELLS, REGION_MSIX, REGION_REGISTERS, Wire};
use machine::time::Ps;
use machine::world::World;
use machine::{Machine, MachineConfig, SimHal};
use std::sync::{Arc, Mutex};

pub type DmaBuffer = <SimHal as hal::Hal>::Dma;
pub type Handlers = Arc<Mutex<Vec<Option<Arc<dyn Action>>>>>;
/// Runs at the end of every interrupt.
pub type Exit = Arc<Mutex<Option<Arc<SoftPoll<SimHal>>>>>;

/// Raises the vector in a message's data at the LAPIC that its address names (bits 19:12).
struct Bus;

impl Model for Bus {
    fn name(&self) -> &str {
        "bus"
    }
    fn event(&mut self, _: &mut World<'_>, _: u32, _: u64) {}
    fn read(&mut self, _: &mut World<'_>, _: u8, _: u32, _: u8) -> u64 {
        0
    }
    fn write(&mut self, _: &mut World<'_>, _: u8, _: u32, _: u8, _: u64) {}
    fn upstream(&mut self, world: &mut World<'_>, _: ModelId, request: Upstream) {
        if let Upstream::Message { address, data, .. } = request {
            world.interrupt((address >> 12 & 0xff) as u32, data as u8, false);
        }
    }
    fn as_any(&mut self) -> &mut dyn core::any::Any {
        self
    }
}

/// The results that remain when the host has ended.
pub struct After<R> {
    pub result: R,
    /// Per NIC.
    pub counters: [Vec<(&'static str, u64)>; 2],
    pub faults: Vec<FaultRecord>,
    /// The digest of the run.
    pub digest: u64,
}

impl<R> After<R> {
    pub fn counter(&self, nic: usize, name: &str) -> u64 {
        self.counters[nic].iter().find(|(other, _)| *other == name).unwrap_or_else(|| panic!("counter {name}")).1
    }
    pub fn faulted(&self, kind: &str) -> bool {
        self.faults.iter().any(|fault| fault.kind == kind)
    }
}

/// Runs `body` with two such NICs.
pub fn host<R: Send + 'static>(config: Config, body: impl FnOnce(&Host) -> R + Send + 'static) -> After<R> {
    host_on(MachineConfig::default(), config, body)
}

/// The same on a machine of this kind, with four CPUs.
pub fn host_on<R: Send + 'static>(
    machine: MachineConfig,
    config: Config,
    body: impl FnOnce(&Host) -> R + Send + 'static,
) -> After<R> {
    let mut machine = Machine::new(MachineConfig { cpus: 4, ..machine });
    let bus = machine.add_model(|_| Box::new(Bus));
    let wire = Wire::default();
    let nics = [0x100, 0x200].map(|requester| {
        let config = Config { requester, ..config.clone() };
        machine.add_model(|id| Box::new(Nic::new(id, bus, &wire, config).expect("a valid device")))
    });
    let handlers = Handlers::default();
    let exit = Exit::default();
    let (table, end) = (handlers.clone(), exit.clone());
    machine.set_interrupt_entry(move |vector| {
        let entry = vector
            .checked_sub(0x40)
            .and_then(|index| table.lock().expect("one host thread").get(usize::from(index)).cloned().flatten());
        let handle = || {
            if let Some(action) = entry {
                action.handle(Irq(vector.into()));
            }
            machine::Regs::Lapic.write64(0x80b, 0);
        };
        let soft = end.lock().expect("one host thread").clone();
        match soft {
            Some(soft) => soft.interrupt(handle),
            None => handle(),
        }
    });
    let sides = nics.map(|nic| Side { model: nic });
    let boot = move || body(&Host { sides, handlers, exit });
    let result = machine.run_boot(Ps::from_ns(1_000_000_000), boot).expect("the host ends");
    let counters = nics.map(|nic| machine.with_any_model(nic, |nic| nic.counters()));
    After { result, counters, faults: machine.faults().0, digest: machine.engine_counters().digest }
}

/// Memory on a page boundary.
pub fn memory(bytes: usize) -> DmaBuffer {
    SimHal.dma_alloc(bytes, 4096).expect("memory")
}

/// One NIC.
#[derive(Clone, Copy)]
pub struct Side {
    pub model: ModelId,
}

impl Side {
    fn region(&self, region: u8) -> machine::Regs {
        machine::Regs::Model { model: self.model, region }
    }
    pub fn regs(&self) -> machine::Regs {
        self.region(REGION_REGISTERS)
    }
    pub fn doorbells(&self) -> machine::Regs {
        self.region(REGION_DOORBELLS)
    }
    pub fn device(&self) -> Device<SimHal> {
        let config = DeviceConfig { event_queues: 4, ready_timeout_ns: 1_000_000 };
        Device::new(SimHal, self.regs(), self.doorbells(), config).expect("it comes up")
    }
}

pub struct Host {
    pub sides: [Side; 2],
    handlers: Handlers,
    exit: Exit,
}

impl Host {
    pub fn wait_ns(&self, ns: u64) {
        SimHal.delay_ns(ns);
    }

    /// MSI-X on: entry n of this side sends vector 40h + 10h · side + n to the LAPIC of CPU 0; its table is region 2,
    /// message control is at 40h of configuration space.
    pub fn msix_on(&self, side: usize) {
        machine::Regs::Lapic.write64(0x80f, 0x1ff);
        let (table, config) = (self.sides[side].region(REGION_MSIX), self.sides[side].region(REGION_CONFIG));
        for entry in 0..4 {
            table.write32(entry * 16, 0xfee0_0000);
            table.write32(entry * 16 + 4, 0);
            table.write32(entry * 16 + 8, 0x40 + 0x10 * side as u32 + entry);
            table.write32(entry * 16 + 12, 0);
        }
        config.write32(0x40, 0x8000_0000);
    }

    /// `action` serves MSI-X entry `entry` of this side.
    pub fn serve(&self, side: usize, entry: u16, action: Arc<dyn Action>) {
        let mut handlers = self.handlers.lock().expect("one host thread");
        let index = 0x10 * side + usize::from(entry);
        let count = handlers.len().max(index + 1);
        handlers.resize(count, None);
        handlers[index] = Some(action);
    }

    pub fn poll_at_exit(&self, soft: Arc<SoftPoll<SimHal>>) {
        *self.exit.lock().expect("one host thread") = Some(soft);
    }

    /// Two NICs up, a queue pair each with a completion queue for both directions, connected. `tune` the second end's.
    pub fn connected(&self, tuner: Option<Arc<Tuner<SimHal>>>) -> [End; 2] {
        let mut tuner = [None, tuner].into_iter();
        let ends = self.sides.map(|side| {
            let device = side.device();
            let seen = Arc::new(Seen::default());
            let config = CqConfig { entries: 1024, event_queue: 1, owner: CqUse::Exclusive };
            let queue = device.open_cq(config, seen.clone(), tuner.next().flatten()).expect("a queue");
            let pair = device.open_qp(QpConfig { sends: 256, receives: 512 }, &queue, &queue).expect("a queue pair");
            End { device, seen, queue, pair, memory: memory(64 << 10) }
        });
        ends[0].pair.connect(ends[1].pair.number()).expect("connected");
        ends[1].pair.connect(ends[0].pair.number()).expect("connected");
        ends
    }

    /// The completion queue of `end` is polled at the end of interrupts of CPU 0, armed.
    pub fn soft_poll(&self, side: usize, end: &End) -> Arc<SoftPoll<SimHal>> {
        let mut soft = SoftPoll::new(SimHal, 4, PollConfig::default()).expect("a budget");
        let id = soft.add(CpuId(0), BUDGET_SOFT, end.queue.clone(), end.queue.tuner().cloned()).expect("a weight");
        let soft = Arc::new(soft);
        soft.start().expect("threads");
        self.poll_at_exit(soft.clone());
        let events = end.device.event_queue(1).expect("open").clone();
        events.attach(&end.queue, CqContext::SoftPoll(soft.clone(), id));
        self.msix_on(side);
        self.serve(side, 1, events);
        assert_eq!(end.queue.arm(), drivers::rdma::Missed::No);
        soft
    }
}

/// One end of a connection.
pub struct End {
    pub device: Device<SimHal>,
    pub seen: Arc<Seen>,
    pub queue: Arc<CompletionQueue<SimHal>>,
    pub pair: Arc<QueuePair<SimHal>>,
    pub memory: DmaBuffer,
}

impl End {
    pub fn at(&self, offset: u64) -> hal::DeviceAddress {
        self.memory.device_address().offset(offset)
    }

    pub fn send(&self, id: u64, bytes: u32) -> PostSend {
        PostSend { id, local: self.at(0), bytes, remote: None, signalled: true }
    }

    /// Posts `count` receives of 64 bytes with ids from `first`, and rings.
    pub fn receives(&self, first: u64, count: u64) {
        for id in first..first + count {
            let place = self.at(4096 + id % 512 * 64);
            self.pair.post_receive(&PostReceive { id, local: place, bytes: 64 }).expect("room");
        }
        self.pair.ring_receives();
    }

    /// Posts `count` sends of 64 bytes and rings once.
    pub fn sends(&self, first: u64, count: u64) {
        for id in first..first + count {
            self.pair.post_send(&self.send(id, 64)).expect("room");
        }
        self.pair.ring_sends();
    }
}

/// Remembers completions and the sizes of batches.
#[derive(Default)]
pub struct Seen {
    pub completions: Mutex<Vec<Completion>>,
    pub batches: Mutex<Vec<usize>>,
    pub times_ns: Mutex<Vec<u64>>,
}

impl Seen {
    pub fn take(&self) -> Vec<Completion> {
        std::mem::take(&mut self.completions.lock().expect("one host thread"))
    }
    pub fn count(&self) -> usize {
        self.completions.lock().expect("one host thread").len()
    }
}

impl CqUser for Seen {
    fn completions(&self, batch: &[Completion]) {
        self.completions.lock().expect("one host thread").extend_from_slice(batch);
        self.batches.lock().expect("one host thread").push(batch.len());
        self.times_ns.lock().expect("one host thread").push(SimHal.now_ns());
    }
    fn in_flight(&self) -> Option<u32> {
        Some(7)
    }
}

//! A drive behind a plain bus, and a host that uses only offsets and words from the manual.
#![allow(dead_code, unreachable_pub)]

use campanile_conformance::GivenBack;
use hal::{Dma as _, Hal as _, Regs as _, Word as _};
use irq::{Action, Irq};
use machine::fault::FaultRecord;
use machine::model::{Model, ModelId, Upstream};
use machine::nvme::{Config, Latency, Nvme, Spread};
use machine::outage::{Outage, Outages, Unreliable};
use machine::time::Ps;
use machine::world::World;
use machine::{Machine, MachineConfig, SimHal};
use std::sync::{Arc, Mutex};

pub type DmaBuffer = <SimHal as hal::Hal>::Dma;
/// (time in ns, address, data) of each message.
pub type Messages = Arc<Mutex<Vec<(u64, u64, u32)>>>;

/// The actions of vectors 40h + n, by n.
pub type Handlers = Arc<Mutex<Vec<Option<Arc<dyn Action>>>>>;

/// Carries 1 byte in 100 ps, records every message, and raises the vector in its data at LAPIC 0.
struct Bus {
    messages: Messages,
    free: Ps,
}

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
        match request {
            Upstream::Message { address, data, .. } => {
                self.messages.lock().expect("one host thread").push((world.now().as_ns(), address, data));
                // A LAPIC accepts no message until software has enabled it.
                world.interrupt(0, data as u8, false);
            }
            Upstream::Transfer { model, bytes, code, arg, .. } => {
                self.free = self.free.max(world.now()) + Ps(u64::from(bytes) * 100);
                world.schedule_for(model, self.free, code, arg);
            }
        }
    }
    fn as_any(&mut self) -> &mut dyn core::any::Any {
        self
    }
}

/// Times without jitter: reads 20 µs, writes 10 µs, flush 5 µs, fetch 100 ns, message after 500 ns.
pub fn config() -> Config {
    let mut config =
        Config { blocks: 0x1_0000, io_queues_max: 4, vectors: 5, queue_entries_max: 64, ..Config::default() };
    let fixed = |us: u64| Latency { mean: Ps::from_ns(us * 1000), spread: Spread::Fixed, tail: None };
    config.timing.enable = Ps::from_ns(20_000);
    config.timing.reset = Ps::from_ns(10_000);
    config.timing.shutdown = Ps::from_ns(30_000);
    config.timing.admin = Ps::from_ns(1_000);
    config.timing.slots = 16;
    (config.timing.read, config.timing.write, config.timing.flush) = (fixed(20), fixed(10), fixed(5));
    config.timing.msi = Ps::from_ns(500);
    config
}

/// The results once the host has ended.
pub struct After<R> {
    pub result: R,
    pub counters: Vec<(&'static str, u64)>,
    pub faults: Vec<FaultRecord>,
    pub messages: Vec<(u64, u64, u32)>,
    pub by_vector: Vec<u64>,
    pub slots_in_use: usize,
    /// Memory that was given back while the drive used it.
    pub given_back: Vec<u64>,
}

impl<R> After<R> {
    pub fn counter(&self, name: &str) -> u64 {
        self.counters.iter().find(|(other, _)| *other == name).unwrap_or_else(|| panic!("counter {name}")).1
    }
    pub fn faulted(&self, kind: &str) -> bool {
        self.faults.iter().any(|fault| fault.kind == kind)
    }
}

/// Runs `body` as the host of a drive.
pub fn host<R: Send + 'static>(config: Config, body: impl FnOnce(&mut Host) -> R + Send + 'static) -> After<R> {
    unreliable(config, Outage::default(), body)
}

/// The same, with an outage of the drive.
pub fn unreliable<R: Send + 'static>(
    config: Config,
    outage: Outage,
    body: impl FnOnce(&mut Host) -> R + Send + 'static,
) -> After<R> {
    let mut machine = Machine::new(MachineConfig::default());
    let messages = Messages::default();
    let bus = machine.add_model(|_| Box::new(Bus { messages: messages.clone(), free: Ps(0) }));
    let drive = Nvme::new(bus, config).expect("a valid drive");
    let outage = Outages::new(outage);
    let drive = machine.add_model(|_| Box::new(Unreliable::new(drive, outage)));
    let regs = [0, 1, 2].map(|region| machine.regs(drive, region));
    let handlers = Handlers::default();
    let table = handlers.clone();
    machine.set_interrupt_entry(move |vector| {
        let entry = table.lock().expect("one host thread").get(usize::from(vector - 0x40)).cloned();
        if let Some(Some(action)) = entry {
            action.handle(Irq(vector.into()));
        }
        machine::Regs::Lapic.write64(0x80b, 0);
    });
    let given_back = GivenBack::of(&mut machine);
    let seen = messages.clone();
    let boot = move || body(&mut Host::new(regs, seen, handlers));
    let result = machine.run_boot(Ps::from_ns(20_000_000_000), boot).expect("the host ends");
    let (by_vector, slots_in_use, counters) = machine
        .with_model(drive, |drive: &mut Nvme| {
            (drive.msis_by_vector().collect(), drive.slots_in_use(), drive.counters())
        })
        .expect("a drive");
    let faults = machine.faults().0;
    let messages = messages.lock().expect("one host thread").clone();
    After { result, counters, faults, messages, by_vector, slots_in_use, given_back: given_back.addresses() }
}

/// A queue pair of the host.
pub struct Pair {
    pub qid: u16,
    pub size: u16,
    pub sq: DmaBuffer,
    pub cq: DmaBuffer,
    pub tail: u16,
    pub head: u16,
    pub phase: u64,
}

impl Pair {
    fn new(qid: u16, size: u16) -> Self {
        Self {
            qid,
            size,
            sq: memory(64 * usize::from(size)),
            cq: memory(16 * usize::from(size)),
            tail: 0,
            head: 0,
            phase: 1,
        }
    }
    /// Writes a command at the tail, without the doorbell.
    pub fn push(&mut self, command: [u64; 8]) {
        for (index, word) in command.into_iter().enumerate() {
            self.sq.words()[usize::from(self.tail) * 8 + index].set(word);
        }
        self.tail = (self.tail + 1) % self.size;
    }
    /// Takes the entry at the head, if its phase tag (bit 48 of the second word) is this pass's.
    pub fn pop(&mut self) -> Option<[u64; 2]> {
        let at = usize::from(self.head) * 2;
        let entry = [self.cq.words()[at].get(), self.cq.words()[at + 1].get()];
        if entry[1] >> 48 & 1 != self.phase {
            return None;
        }
        self.head = (self.head + 1) % self.size;
        if self.head == 0 {
            self.phase ^= 1;
        }
        Some(entry)
    }
}

/// Memory on a page boundary.
pub fn memory(bytes: usize) -> DmaBuffer {
    SimHal.dma_alloc(bytes, 4096).expect("memory")
}

/// The status of an entry: SCT in 10:8, SC in 7:0.
pub fn status(entry: [u64; 2]) -> u64 {
    entry[1] >> 49 & 0x7ff
}

/// The command id of an entry.
pub fn cid(entry: [u64; 2]) -> u64 {
    entry[1] >> 32 & 0xffff
}

/// Dword 0 (opcode, command id), namespace, data pointer, dwords 10 to 13.
pub fn command(opcode: u64, cid: u64, nsid: u64, prp: [u64; 2], dwords: [u64; 4]) -> [u64; 8] {
    [opcode | cid << 16 | nsid << 32, 0, 0, prp[0], prp[1], dwords[0] | dwords[1] << 32, dwords[2] | dwords[3] << 32, 0]
}

/// NVM Read (02h) or Write (01h) of `blocks`.
pub fn transfer(opcode: u64, cid: u64, lba: u64, blocks: u64, prp: [u64; 2]) -> [u64; 8] {
    command(opcode, cid, 1, prp, [lba & 0xffff_ffff, lba >> 32, blocks - 1, 0])
}

/// Offsets and words only.
pub struct Host {
    pub bar0: machine::Regs,
    pub msix: machine::Regs,
    pub config: machine::Regs,
    pub admin: Pair,
    messages: Messages,
    handlers: Handlers,
    next_cid: u64,
}

impl Host {
    fn new(regs: [machine::Regs; 3], messages: Messages, handlers: Handlers) -> Self {
        let [bar0, msix, config] = regs;
        Self { bar0, msix, config, admin: Pair::new(0, 8), messages, handlers, next_cid: 0x100 }
    }

    pub fn wait_ns(&self, ns: u64) {
        SimHal.delay_ns(ns);
    }

    /// (address, data) of all messages so far.
    pub fn messages(&self) -> Vec<(u64, u32)> {
        self.messages.lock().expect("one host thread").iter().map(|&(_, address, data)| (address, data)).collect()
    }

    /// MSI-X on: vector n sends 40h + n to FEE0_0000h, unmasked.
    pub fn msix_on(&self, vectors: u32) {
        for vector in 0..vectors {
            self.msix.write32(vector * 16, 0xfee0_0000);
            self.msix.write32(vector * 16 + 4, 0);
            self.msix.write32(vector * 16 + 8, 0x40 + vector);
            self.msix.write32(vector * 16 + 12, 0);
        }
        // Message control, bit 15 (31 of the dword): enable.
        self.config.write32(0x40, 0x8000_0000);
    }

    /// The CPU takes interrupts (SVR bit 8), and `action` serves MSI-X vector `vector`.
    pub fn serve(&self, vector: u16, action: Arc<dyn Action>) {
        machine::Regs::Lapic.write64(0x80f, 0x1ff);
        let mut handlers = self.handlers.lock().expect("one host thread");
        let count = handlers.len().max(usize::from(vector) + 1);
        handlers.resize(count, None);
        handlers[usize::from(vector)] = Some(action);
    }

    /// AQA, ASQ, ACQ, then CC: 16-byte and 64-byte entries, EN. Waits for RDY.
    pub fn enable(&mut self) {
        self.admin = Pair::new(0, 8);
        self.bar0.write32(0x24, 0x0007_0007);
        self.bar0.write64(0x28, self.admin.sq.device_address().0);
        self.bar0.write64(0x30, self.admin.cq.device_address().0);
        self.bar0.write32(0x14, 0x0046_0001);
        self.wait_ns(21_000);
        assert_eq!(self.bar0.read32(0x1c), 1, "CSTS.RDY");
    }

    /// CC.EN to 0, and the wait for RDY.
    pub fn disable(&mut self) {
        self.bar0.write32(0x14, 0x0046_0000);
        self.wait_ns(11_000);
        assert_eq!(self.bar0.read32(0x1c), 0, "CSTS after reset");
    }

    /// The tail doorbell: 1000h + 2y × 4.
    pub fn ring_sq(&self, qid: u16, tail: u16) {
        self.bar0.write32(0x1000 + 8 * u32::from(qid), tail.into());
    }

    /// The head doorbell: 1000h + (2y + 1) × 4.
    pub fn ring_cq(&self, qid: u16, head: u16) {
        self.bar0.write32(0x1004 + 8 * u32::from(qid), head.into());
    }

    /// An admin command from the opcode on; its entry.
    pub fn run(&mut self, opcode: u64, nsid: u64, prp: [u64; 2], dwords: [u64; 4]) -> [u64; 2] {
        self.next_cid += 1;
        let cid = self.next_cid;
        self.admin.push(command(opcode, cid, nsid, prp, dwords));
        self.ring_sq(0, self.admin.tail);
        let entry = self.admin_entry();
        assert_eq!(self::cid(entry), cid);
        entry
    }

    /// The next admin entry, acknowledged.
    pub fn admin_entry(&mut self) -> [u64; 2] {
        for _ in 0..200 {
            if let Some(entry) = self.admin.pop() {
                self.ring_cq(0, self.admin.head);
                return entry;
            }
            self.wait_ns(500);
        }
        panic!("no admin completion within 100 µs");
    }

    /// Identify with this CNS; the status and the data.
    pub fn identify(&mut self, cns: u64, nsid: u64) -> (u64, DmaBuffer) {
        let data = memory(4096);
        let entry = self.run(0x06, nsid, [data.device_address().0, 0], [cns, 0, 0, 0]);
        (status(entry), data)
    }

    /// Create I/O Completion Queue (05h; PC, IEN unless no vector), then I/O Submission Queue (01h; PC).
    pub fn create(&mut self, qid: u16, size: u16, vector: Option<u16>) -> Pair {
        let pair = Pair::new(qid, size);
        let dword10 = u64::from(qid) | u64::from(size - 1) << 16;
        let dword11 = vector.map_or(1, |vector| 3 | u64::from(vector) << 16);
        let cq = self.run(0x05, 0, [pair.cq.device_address().0, 0], [dword10, dword11, 0, 0]);
        assert_eq!(status(cq), 0, "create CQ {qid}");
        let sq = self.run(0x01, 0, [pair.sq.device_address().0, 0], [dword10, 1 | u64::from(qid) << 16, 0, 0]);
        assert_eq!(status(sq), 0, "create SQ {qid}");
        pair
    }

    /// Submits one command and waits for its entry.
    pub fn io(&self, pair: &mut Pair, command: [u64; 8]) -> [u64; 2] {
        pair.push(command);
        self.ring_sq(pair.qid, pair.tail);
        self.reap(pair)
    }

    /// The next entry of a pair, acknowledged.
    pub fn reap(&self, pair: &mut Pair) -> [u64; 2] {
        for _ in 0..1000 {
            if let Some(entry) = pair.pop() {
                self.ring_cq(pair.qid, pair.head);
                return entry;
            }
            self.wait_ns(500);
        }
        panic!("no completion on queue {} within 500 µs", pair.qid);
    }
}

//! Devices driven by hand, with the offsets and words of the standard as literals.

mod interrupts;
mod late;
mod network;
mod queues;
mod registers;
mod wired;

use super::block::{Block, BlockConfig};
use super::net::{Net, NetConfig};
use super::{Exits, Irqfd, Line, MmioConfig, PciConfig, Trigger, VirtioMmio, VirtioPci};
use crate::memory::Dma;
use crate::model::{Model, ModelId, Upstream};
use crate::time::Ps;
use crate::world::World;
use crate::{Machine, MachineConfig, SimHal};
use hal::{Dma as _, Hal as _, Regs as _};

/// An interrupt controller that remembers: (time, what it was told).
#[derive(Default)]
struct Log {
    wires: Vec<(Ps, u64)>,
    messages: Vec<(u16, u64, u32)>,
}

impl Model for Log {
    fn name(&self) -> &str {
        "log"
    }
    fn event(&mut self, world: &mut World<'_>, _code: u32, arg: u64) {
        self.wires.push((world.now(), arg));
    }
    fn read(&mut self, _: &mut World<'_>, _: u8, _: u32, _: u8) -> u64 {
        0
    }
    fn write(&mut self, _: &mut World<'_>, _: u8, _: u32, _: u8, _: u64) {}
    fn upstream(&mut self, _world: &mut World<'_>, _from: ModelId, request: Upstream) {
        if let Upstream::Message { requester, address, data } = request {
            self.messages.push((requester, address, data));
        }
    }
    fn as_any(&mut self) -> &mut dyn core::any::Any {
        self
    }
}

/// From the start of one queue's memory to the next: descriptors at 0, available ring at 1000h, used ring at 2000h,
/// buffers from 3000h on.
const QUEUE_BYTES: usize = 0x8000;
const AVAILABLE: usize = 0x1000;
const USED: usize = 0x2000;
const BUFFERS: usize = 0x3000;

/// VIRTIO_F_VERSION_1 and, of the low word, VIRTIO_F_INDIRECT_DESC and VIRTIO_F_EVENT_IDX.
const VERSION_1: u64 = 1 << 32;
const INDIRECT: u64 = 1 << 28;
const EVENT_INDEX: u64 = 1 << 29;
const MULTI_IRQ: u64 = 1 << 44;

struct Rig {
    machine: Machine,
    device: ModelId,
    log: ModelId,
    memory: Dma,
}

fn machine() -> (Machine, ModelId) {
    let mut machine = Machine::new(MachineConfig { memory_bytes: 1 << 20, ..MachineConfig::default() });
    let log = machine.add_model(|_| Box::new(Log::default()));
    (machine, log)
}

fn rig(machine: Machine, log: ModelId, device: ModelId) -> Rig {
    let memory = SimHal.dma_alloc(8 * QUEUE_BYTES, 4096).expect("room");
    Rig { machine, device, log, memory }
}

fn block_config() -> BlockConfig {
    BlockConfig { sectors: 64, queues: 2, queue_entries: 8, ..BlockConfig::default() }
}

const IRQFD: Irqfd = Irqfd { signal: Ps::from_ns(300), latency: Ps::from_ns(500) };

fn mmio_config(log: ModelId, triggers: &[Trigger]) -> MmioConfig {
    let line = |(pin, &trigger)| Line::ioapic(log, pin as u8, trigger);
    MmioConfig {
        name: "virtio0".into(),
        lines: triggers.iter().enumerate().map(line).collect(),
        multi_irq: true,
        exits: Exits::default(),
        irqfd: IRQFD,
    }
}

/// A block device on the MMIO transport.
fn block(triggers: &[Trigger]) -> Rig {
    let (mut machine, log) = machine();
    let model = VirtioMmio::new(mmio_config(log, triggers), Block::new(block_config())).expect("valid");
    let device = machine.add_model(|_| Box::new(model));
    rig(machine, log, device)
}

/// A network device on the MMIO transport, an edge for each of three vectors.
fn net(config: NetConfig) -> Rig {
    let (mut machine, log) = machine();
    let model = VirtioMmio::new(mmio_config(log, &[Trigger::Edge; 3]), Net::new(config)).expect("valid");
    let device = machine.add_model(|_| Box::new(model));
    rig(machine, log, device)
}

/// The block device on PCI.
fn pci_block() -> Rig {
    let (mut machine, log) = machine();
    let config = PciConfig {
        name: "virtio1".into(),
        requester: 0x108,
        upstream: log,
        vectors: 3,
        exits: Exits::default(),
        irqfd: IRQFD,
    };
    let device = machine.add_model(|_| Box::new(VirtioPci::new(config, Block::new(block_config()))));
    rig(machine, log, device)
}

impl Rig {
    fn settle(&mut self) {
        let end = self.machine.now() + Ps::from_ns(100_000);
        self.machine.run_until(end);
    }

    fn read(&mut self, offset: u32) -> u32 {
        self.settle();
        self.machine.regs(self.device, 0).read32(offset)
    }

    fn write(&mut self, offset: u32, value: u32) {
        self.machine.regs(self.device, 0).write32(offset, value);
        self.settle();
    }

    /// Brings the device to FEATURES_OK; returns the status that it then reads.
    fn negotiate(&mut self, features: u64) -> u32 {
        self.write(0x70, 0);
        self.write(0x70, 1);
        self.write(0x70, 3);
        for word in 0..2 {
            self.write(0x24, word);
            self.write(0x20, (features >> (32 * word)) as u32);
        }
        self.write(0x70, 11);
        self.read(0x70)
    }

    /// Where queue `queue` has its memory: offset in the buffer and address.
    fn place(&self, queue: u32) -> (usize, u64) {
        let offset = queue as usize * QUEUE_BYTES;
        (offset, self.memory.device_address().0 + offset as u64)
    }

    /// Sets up a queue of 8 entries with a vector, and starts it.
    fn start_queue(&mut self, queue: u32, vector: u32) {
        let (offset, address) = self.place(queue);
        (offset..offset + BUFFERS).step_by(4).for_each(|at| self.memory.write32(at, 0));
        self.write(0x30, queue);
        self.write(0x38, 8);
        for (register, at) in [(0x80, 0), (0x90, AVAILABLE), (0xa0, USED)] {
            let address = address + at as u64;
            self.write(register, address as u32);
            self.write(register + 4, (address >> 32) as u32);
        }
        self.write(0xd8, vector);
        self.write(0x44, 1);
    }

    /// FEATURES_OK, queues 0 up to `queues` mapped to the vectors of their numbers, DRIVER_OK.
    fn start(&mut self, features: u64, queues: u32) {
        assert_eq!(self.negotiate(features), 11);
        for queue in 0..queues {
            self.start_queue(queue, queue);
            assert_eq!(self.read(0x44), 1, "queue {queue} is ready");
        }
        self.write(0x70, 15);
    }

    /// Writes descriptor `index` of `queue`: flags 1 next, 2 device writes, 4 indirect.
    fn descriptor(&self, queue: u32, index: usize, address: u64, len: u32, flags: u16, next: u16) {
        let at = self.place(queue).0 + 16 * index;
        self.memory.write32(at, address as u32);
        self.memory.write32(at + 4, (address >> 32) as u32);
        self.memory.write32(at + 8, len);
        self.memory.write16(at + 12, flags);
        self.memory.write16(at + 14, next);
    }

    /// Makes the chain that starts at descriptor `head` available.
    fn offer(&self, queue: u32, head: u16) {
        let at = self.place(queue).0 + AVAILABLE;
        let index = self.memory.read16(at + 2);
        self.memory.write16(at + 4 + 2 * usize::from(index % 8), head);
        self.memory.write16(at + 2, index.wrapping_add(1));
    }

    fn kick(&mut self, queue: u32) {
        self.write(0x50, queue);
    }

    /// The used index, and id and length of its last entry.
    fn used(&self, queue: u32) -> (u16, u32, u32) {
        let at = self.place(queue).0 + USED;
        let index = self.memory.read16(at + 2);
        let entry = at + 4 + 8 * usize::from(index.wrapping_sub(1) % 8);
        (index, self.memory.read32(entry), self.memory.read32(entry + 4))
    }

    fn fill_buffer(&self, queue: u32, offset: usize, bytes: &[u8]) -> u64 {
        let (start, address) = self.place(queue);
        for (index, &byte) in bytes.iter().enumerate() {
            self.memory.write8(start + BUFFERS + offset + index, byte);
        }
        address + (BUFFERS + offset) as u64
    }

    fn buffer(&self, queue: u32, offset: usize, len: usize) -> Vec<u8> {
        let start = self.place(queue).0 + BUFFERS + offset;
        (start..start + len).map(|at| self.memory.read8(at)).collect()
    }

    /// A read of `sectors` from `sector` in descriptors 0, 1, 2: header, data, status. Data stand at buffer offset 64.
    fn block_read(&mut self, queue: u32, sector: u64, sectors: u32) {
        let mut header = vec![0; 16];
        header[8..].copy_from_slice(&sector.to_le_bytes());
        let header = self.fill_buffer(queue, 0, &header);
        let status = self.fill_buffer(queue, 32, &[0xff]);
        let data = self.place(queue).1 + (BUFFERS + 64) as u64;
        self.descriptor(queue, 0, header, 16, 1, 1);
        self.descriptor(queue, 1, data, sectors * 512, 3, 2);
        self.descriptor(queue, 2, status, 1, 2, 0);
        self.offer(queue, 0);
        self.kick(queue);
    }

    fn faults(&self) -> Vec<&'static str> {
        self.machine.faults().0.into_iter().map(|fault| fault.kind).collect()
    }

    /// What the controller was told since this was last asked.
    fn wires(&mut self) -> Vec<u64> {
        let taken = self.machine.with_model(self.log, |log: &mut Log| std::mem::take(&mut log.wires));
        taken.expect("it is the log").into_iter().map(|(_, arg)| arg).collect()
    }

    fn messages(&mut self) -> Vec<(u16, u64, u32)> {
        self.machine.with_model(self.log, |log: &mut Log| std::mem::take(&mut log.messages)).expect("it is the log")
    }
}

/// What a pin's wire tells: pin number and whether it is asserted.
fn pulse(pin: u64) -> Vec<u64> {
    vec![pin << 1 | 1, pin << 1]
}

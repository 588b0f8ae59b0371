//! The virtio drivers, and with them the driver's side of virtqueues, against hostile devices on either transport.

use super::hostile::{Driver, Hostile, Ledger, Mischief, against_hostile, memory};
use drivers::virtio::block::{BatchDone, Block, BlockConfig, BlockOp, BlockRequest, Completed};
use drivers::virtio::net::{Coalescing, Net, NetConfig, Packet, Receiver, TransmitPacket, Verdict};
use drivers::virtio::{Bar, Mmio, MmioConfig, Pci, QueueFault, RegisterWrites, Transport, VectorPolicy};
use hal::{Dma as _, Regs as _};
use machine::model::ModelId;
use machine::time::Ps;
use machine::virtio::{self as model, Device, Exits, Irqfd, Line, PciConfig, Trigger, VirtioMmio, VirtioPci};
use machine::{Machine, Regs, SimHal};
use std::rc::Rc;
use std::sync::Arc;

const VECTORS: u16 = 4;
/// Size of the region with the structures of the PCI transport.
const STRUCTURES_BYTES: u32 = 0x4000;

/// The registers of a device, and its transport.
struct Reached {
    regs: [Regs; 3],
    pci: bool,
}

fn put<D: Device>(machine: &mut Machine, bus: ModelId, mischief: &Rc<Mischief>, pci: bool, device: D) -> Reached {
    let (exits, irqfd) = (Exits::default(), Irqfd { signal: Ps::from_ns(300), latency: Ps::from_ns(500) });
    let id = if pci {
        let config =
            PciConfig { name: "virtio".into(), requester: 0x100, upstream: bus, vectors: VECTORS, exits, irqfd };
        let device = VirtioPci::new(config, device);
        machine.add_model(|_| Box::new(Hostile::new(device, bus, mischief)))
    } else {
        let line = |pin: u64| {
            let trigger = if pin == 3 { Trigger::Level } else { Trigger::Edge };
            Line { controller: bus, code: 0, asserted: pin << 1 | 1, released: pin << 1, trigger }
        };
        let lines = (0..u64::from(VECTORS)).map(line).collect();
        let config = model::MmioConfig { name: "virtio".into(), lines, multi_irq: true, exits, irqfd };
        let device = VirtioMmio::new(config, device).expect("valid");
        machine.add_model(|_| Box::new(Hostile::new(device, bus, mischief)))
    };
    Reached { regs: [0, 1, 2].map(|region| machine.regs(id, region)), pci }
}

impl Reached {
    fn transport(&self) -> Option<Arc<dyn Transport>> {
        let [structures, table, config] = self.regs;
        if !self.pci {
            let config = MmioConfig { interrupts: VECTORS, shared_lines: false, writes: RegisterWrites::AtOnce };
            return Some(Arc::new(Mmio::new(SimHal, structures, config).ok()?));
        }
        config.write32(0x40, 0x8000_0000);
        for entry in 0..u32::from(VECTORS) {
            for (field, value) in [(0, 0xfee0_0000), (8, 0x40 + entry), (12, 0)] {
                table.write32(entry * 16 + field, value);
            }
        }
        let mut bars = [const { None }; 6];
        bars[4] = Some(Bar { regs: Arc::new(structures), len_bytes: STRUCTURES_BYTES });
        Some(Arc::new(Pci::<SimHal>::new(SimHal, &config, &bars, VECTORS).ok()?))
    }
}

fn policy(driver: &mut Driver<'_>) -> VectorPolicy {
    driver.input.pick(&[VectorPolicy::Ladder, VectorPolicy::Modulo, VectorPolicy::Pairs, VectorPolicy::Single])
}

impl BatchDone for Ledger {
    fn batch_done(&self, _queue: u16, batch: &[Completed]) {
        batch.iter().for_each(|done| self.ended(done.tag));
    }
    fn queue_broken(&self, _queue: u16, _fault: QueueFault) {}
}

/// The block driver: requests, recovery of broken queues, shutdown. Every request that was accepted ends exactly once.
pub(crate) fn driver_virtio_block(data: &[u8]) {
    let (Kind { pci, packed }, data) = split(data);
    let build = |machine: &mut Machine, bus, mischief: &_| {
        let config = model::block::BlockConfig {
            sectors: 256,
            queues: 2,
            queue_entries: 16,
            latency: Ps::from_ns(5_000),
            packed,
            ..Default::default()
        };
        put(machine, bus, mischief, pci, model::block::Block::new(config))
    };
    against_hostile(data, build, |driver, device| {
        let _ = block(driver, &device);
    });
}

/// Which device it is.
struct Kind {
    /// On PCI; else on MMIO.
    pci: bool,
    /// It offers packed virtqueues.
    packed: bool,
}

/// The first byte chooses the device; the rest is the input.
fn split(data: &[u8]) -> (Kind, &[u8]) {
    let (&first, rest) = data.split_first().unwrap_or((&0, &[]));
    (Kind { pci: first & 1 != 0, packed: first & 2 != 0 }, rest)
}

fn block(driver: &mut Driver<'_>, device: &Reached) -> Option<()> {
    let ledger = Arc::new(Ledger::default());
    let config = BlockConfig { queues: 2, entries: 16, policy: policy(driver) };
    let block = Block::open(SimHal, device.transport()?, &config, ledger.clone()).ok()?;
    driver.serve(block.handlers());
    block.start();
    let buffer = memory(16 << 10);
    while driver.goes_on() {
        let queue = u16::from(driver.input.u8() % 3);
        match driver.input.u8() % 8 {
            0 => _ = block.poll(queue),
            1 => _ = block.recover(queue),
            2 => driver.wait(),
            3 => _ = (block.fault(queue), block.in_flight(queue), block.oldest_ns(queue), block.counters(queue)),
            _ => {
                let count = usize::from(driver.input.u8() % 4) + 1;
                let first = ledger.offer(count);
                let requests: Vec<_> = (first..first + count as u64)
                    .map(|tag| BlockRequest {
                        tag,
                        op: driver.input.pick(&[BlockOp::Read, BlockOp::Write, BlockOp::Flush, BlockOp::GetId]),
                        sector: u64::from(driver.input.u8()),
                        buffer: buffer.device_address(),
                        len_bytes: u32::from(driver.input.u8() % 9) * 512,
                    })
                    .collect();
                ledger.accept(first, block.submit(queue, &requests).accepted);
            }
        }
    }
    if block.shut_down().is_ok() {
        ledger.all_ended();
    }
    Some(())
}

/// Looks at every packet; sends some back.
struct Looker(Ledger);

impl Receiver<SimHal> for Looker {
    fn ready(&self, _pair: u16) {}

    fn received(&self, packet: Packet<'_, super::hostile::DmaBuffer>) -> Verdict {
        let bytes = packet.offset_bytes..packet.offset_bytes + packet.len_bytes as usize;
        let sum = bytes.fold(0_u8, |sum, at| sum.wrapping_add(packet.memory.read8(at)));
        if sum & 1 == 0 { Verdict::Done } else { Verdict::Reflect }
    }

    fn transmitted(&self, _pair: u16, tag: u64) {
        self.0.ended(tag);
    }
}

/// The network driver: receiving, reflecting, sending, coalescing, shutdown.
pub(crate) fn driver_virtio_net(data: &[u8]) {
    let (Kind { pci, packed }, data) = split(data);
    let build = |machine: &mut Machine, bus, mischief: &_| {
        let coalescing = model::net::CoalescingSupport::Exact;
        let config = model::net::NetConfig { pairs: 2, queue_entries: 16, coalescing, packed, ..Default::default() };
        let mut net = model::net::Net::new(config);
        for pair in [0, 1, 0, 0] {
            net.inject(pair, vec![1; 100]);
        }
        put(machine, bus, mischief, pci, net)
    };
    against_hostile(data, build, |driver, device| {
        let _ = net(driver, &device);
    });
}

fn net(driver: &mut Driver<'_>, device: &Reached) -> Option<()> {
    let looker = Arc::new(Looker(Ledger::default()));
    let config = NetConfig {
        pairs: 1 + u16::from(driver.input.u8() % 2),
        reflect: driver.input.flag(),
        entries: 16,
        policy: policy(driver),
        ..NetConfig::default()
    };
    let net = Net::open(SimHal, device.transport()?, &config, looker.clone()).ok()?;
    driver.serve(net.handlers());
    net.start().ok()?;
    let buffer = memory(4096);
    while driver.goes_on() {
        let pair = u16::from(driver.input.u8() % 3);
        match driver.input.u8() % 8 {
            0 => {
                let weight = driver.input.u8().into();
                assert!(net.poll_receive(pair, weight) <= weight, "more than the weight");
            }
            1 => _ = net.rearm_receive(pair),
            2 => driver.wait(),
            3 => net.poll_transmit(pair),
            4 => {
                let to = Coalescing { max_packets: driver.input.u8().into(), max_usecs: driver.input.u8().into() };
                let _ = (net.coalesce_queue(pair, to), net.coalescing_of(pair));
            }
            5 => _ = (net.link_up(), net.receive_counters(pair), net.receive_fault(pair), net.transmit_fault(pair)),
            _ => {
                let count = usize::from(driver.input.u8() % 4) + 1;
                let first = looker.0.offer(count);
                let packets: Vec<_> = (first..first + count as u64)
                    .map(|tag| TransmitPacket {
                        tag,
                        address: buffer.device_address(),
                        len_bytes: u32::from(driver.input.u8()),
                    })
                    .collect();
                looker.0.accept(first, net.send(pair, &packets).accepted);
            }
        }
    }
    let _ = net.shut_down();
    Some(())
}

/// Asks a transport for everything that needs no set-up.
pub(crate) fn touch(transport: &dyn Transport) {
    let _ = (transport.device_id(), transport.features(), transport.status(), transport.config_generation());
    for queue in [0, 1, 7, u16::MAX] {
        let _ = (transport.queue_entries_max(queue), transport.map_queue(queue, 0));
    }
    for offset in [0, 8, 0x100] {
        let _ = (transport.config8(offset), transport.config16(offset), transport.config32(offset));
    }
}

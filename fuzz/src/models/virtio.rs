//! Virtio devices on either transport: registers, and rings that no real driver would write.

mod packed;

use super::host::{Bus, Host, Window, on_machine};
use hal::{Dma as _, Hal as _, Regs as _};
use machine::Interrupts;
use machine::model::ModelId;
use machine::time::Ps;
use machine::virtio::block::{Block, BlockConfig};
use machine::virtio::net::{CoalescingSupport, Net, NetConfig};
use machine::virtio::{Device, Exits, Irqfd, Line, MmioConfig, PciConfig, Trigger, VirtioMmio, VirtioPci};
use machine::{Machine, Regs, SimHal};
use packed::Packed;

/// Layout of each queue: descriptors at 0, available ring or driver area at 1000h, used ring or device area at 2000h. Buffers
/// lie behind all queues.
const QUEUE_BYTES: usize = 0x3000;
const AVAILABLE: usize = 0x1000;
const USED: usize = 0x2000;
const QUEUES: u16 = 5;
const BUFFERS: u64 = QUEUES as u64 * QUEUE_BYTES as u64;
const ENTRIES: u16 = 8;

/// Offsets of a queue's registers in each transport.
struct Layout {
    select: u32,
    size: u32,
    addresses: [u32; 3],
    enable: u32,
    status: u32,
    features: [u32; 2],
    notify: u32,
    /// Bytes from one queue's notification to the next.
    notify_stride: u32,
    narrow: bool,
}

const MMIO: Layout = Layout {
    select: 0x30,
    size: 0x38,
    addresses: [0x80, 0x90, 0xa0],
    enable: 0x44,
    status: 0x70,
    features: [0x24, 0x20],
    notify: 0x50,
    notify_stride: 0,
    narrow: false,
};

/// The structures of the PCI transport: common configuration at 0, notifications at 3000h, 4 bytes apart.
const PCI: Layout = Layout {
    select: 22,
    size: 24,
    addresses: [32, 40, 48],
    enable: 28,
    status: 20,
    features: [8, 12],
    notify: 0x3000,
    notify_stride: 4,
    narrow: true,
};

const IRQFD: Irqfd = Irqfd { signal: Ps::from_ns(300), latency: Ps::from_ns(500) };

fn mmio<D: Device>(machine: &mut Machine, device: D) -> Vec<Window> {
    let bus = machine.add_model(|_| Box::new(Bus::default()));
    let line = |pin| Line::ioapic(bus, pin, if pin == 0 { Trigger::Level } else { Trigger::Edge });
    let config = MmioConfig {
        name: "virtio".into(),
        lines: (0..4).map(line).collect(),
        multi_irq: true,
        exits: Exits::default(),
        irqfd: IRQFD,
    };
    let device = VirtioMmio::new(config, device).expect("valid");
    let device = machine.add_model(|_| Box::new(device));
    windows(machine, device)
}

fn pci<D: Device>(machine: &mut Machine, device: D) -> Vec<Window> {
    let upstream = machine.add_model(|_| Box::new(Bus::default()));
    let config = PciConfig {
        name: "virtio".into(),
        requester: 0x108,
        upstream,
        vectors: 4,
        exits: Exits::default(),
        irqfd: IRQFD,
    };
    let device = machine.add_model(|_| Box::new(VirtioPci::new(config, device)));
    windows(machine, device)
}

fn windows(machine: &Machine, device: ModelId) -> Vec<Window> {
    let bases: [&'static [u32]; 3] = [&[0, 0x100, 0x1000, 0x2000, 0x3000], &[0, 0x800], &[0, 0x40]];
    (0..3).map(|region| Window::new(machine.regs(device, region as u8), bases[region])).collect()
}

fn block() -> Block {
    let latency = Ps::from_ns(2_000);
    Block::new(BlockConfig {
        sectors: 64,
        queues: 2,
        queue_entries: 16,
        latency,
        packed: true,
        ..BlockConfig::default()
    })
}

fn net() -> Net {
    let coalescing = CoalescingSupport::Exact;
    let config = NetConfig { pairs: 2, queue_entries: 16, coalescing, packed: true, ..NetConfig::default() };
    let mut net = Net::new(config);
    for pair in [0, 1, 0] {
        net.inject(pair, vec![7; 60]);
    }
    net
}

/// A block device on MMIO.
pub(crate) fn virtio_mmio(data: &[u8]) {
    on_machine(data, Interrupts::X2Apic, |machine| mmio(machine, block()), |host| guest(host, &MMIO));
}

/// The same on PCI.
pub(crate) fn virtio_pci(data: &[u8]) {
    on_machine(data, Interrupts::X2Apic, |machine| pci(machine, block()), |host| guest(host, &PCI));
}

/// A network device on MMIO, with its control queue.
pub(crate) fn virtio_net(data: &[u8]) {
    on_machine(data, Interrupts::X2Apic, |machine| mmio(machine, net()), |host| guest(host, &MMIO));
}

fn guest(host: &mut Host<'_>, layout: &Layout) {
    let mut format = Format::Split;
    if !host.input.one_in(8) {
        format = start(host, layout);
    }
    while host.goes_on() {
        match host.input.u8() % 8 {
            0 | 1 => host.step(),
            2 => host.wait(),
            3 => notify(host, layout),
            4 => format = start(host, layout),
            5 => ring_word(host, &format),
            _ => {
                let queue = match &mut format {
                    Format::Split => offer(host),
                    Format::Packed(rings) => rings.offer(host),
                };
                layout.put(host.windows[0].regs, layout.notify + queue * layout.notify_stride, queue);
            }
        }
    }
}

/// The format of the queues that the guest has asked for.
enum Format {
    Split,
    Packed(Packed),
}

impl Layout {
    fn put(&self, regs: Regs, offset: u32, value: u32) {
        match self.narrow {
            true if offset == self.status => regs.write8(offset, value as u8),
            true if offset >= 16 => regs.write16(offset, value as u16),
            _ => regs.write32(offset, value),
        }
        SimHal.delay_ns(50);
    }
}

/// Reset, features, queues, DRIVER_OK. The input chooses features and sizes.
fn start(host: &mut Host<'_>, layout: &Layout) -> Format {
    let regs = host.windows[0].regs;
    for status in [0, 1, 3] {
        layout.put(regs, layout.status, status);
    }
    // VERSION_1 always; INDIRECT_DESC, EVENT_IDX, RING_PACKED, RING_RESET and the device's own features as the input says.
    let (low, rings, more) = (host.input.u32(), host.input.u8(), host.input.u8());
    let packed = rings & 2 != 0;
    let wanted = [low, 1 | u32::from(packed) << 2 | u32::from(rings & 1) << 8 | u32::from(more & 1) << 12];
    for (half, bits) in (0..).zip(wanted) {
        regs.write32(layout.features[0], half);
        SimHal.delay_ns(50);
        regs.write32(layout.features[0], half);
        let offered = regs.read32(if layout.narrow { 4 } else { 0x10 });
        regs.write32(layout.features[1], bits & if host.input.one_in(8) { u32::MAX } else { offered | 1 });
    }
    layout.put(regs, layout.status, 11);
    for queue in 0..u32::from(QUEUES) {
        layout.put(regs, layout.select, queue);
        let size = if host.input.one_in(8) { host.input.u16().into() } else { u32::from(ENTRIES) };
        layout.put(regs, layout.size, size);
        for (register, part) in layout.addresses.into_iter().zip([0, AVAILABLE, USED]) {
            let place = host.address((queue as usize * QUEUE_BYTES + part) as u64);
            let address = if host.input.one_in(16) { host.value() } else { place };
            regs.write32(register, address as u32);
            regs.write32(register + 4, (address >> 32) as u32);
        }
        layout.put(regs, layout.enable, 1);
    }
    layout.put(regs, layout.status, 15);
    if packed { Format::Packed(Packed::default()) } else { Format::Split }
}

fn notify(host: &mut Host<'_>, layout: &Layout) {
    let queue = u32::from(host.input.u8() % 8);
    layout.put(host.windows[0].regs, layout.notify + queue * layout.notify_stride, queue);
}

/// Address and length of a descriptor.
fn stretch(host: &mut Host<'_>) -> (u64, u32) {
    let address = match host.input.u8() % 8 {
        0 => host.value(),
        // The descriptor table of a queue.
        1 => host.place(0, QUEUE_BYTES as u64),
        _ => host.place(BUFFERS, 16),
    };
    let len = match host.input.u8() % 8 {
        0 => host.input.u32(),
        1 => 16,
        2 => 1,
        3 => 512,
        _ => host.input.u8().into(),
    };
    (address, len)
}

/// The header of a block device's request, which lies where the buffers begin. Whether the device is to write the data, and
/// how long they are.
fn request(host: &mut Host<'_>) -> (bool, u64) {
    let writes = host.input.flag();
    let bytes = u64::from(host.input.u8() % 5) * 512;
    let kind = u64::from(host.input.u8() % 12);
    let sector = u64::from(host.input.u8() % 80);
    host.put((BUFFERS / 8) as usize, &[kind, sector]);
    (writes, bytes)
}

/// A descriptor: address, length, flags (1 next, 2 device writes, 4 indirect), and the next descriptor.
fn descriptor(host: &mut Host<'_>) -> [u64; 2] {
    let (address, len) = stretch(host);
    let (flags, next) = (u64::from(host.input.u8() % 8), u64::from(host.input.u8() % 10));
    [address, u64::from(len) | flags << 32 | next << 48]
}

/// Makes a request's chain available, often nearly right. Returns the queue.
fn offer(host: &mut Host<'_>) -> u32 {
    let queue = usize::from(host.input.u8()) % usize::from(QUEUES) * QUEUE_BYTES;
    let head = host.input.u8() % 8;
    if host.input.flag() {
        // A block device requires header, data, status.
        let data = host.address(BUFFERS + 0x100);
        let (writes, bytes) = request(host);
        let writes = u64::from(writes) << 33;
        let chain = [
            [host.address(BUFFERS), 16 | 1 << 32 | 1 << 48],
            [data, bytes | 1 << 32 | writes | 2 << 48],
            [host.address(BUFFERS + 0x20), 1 | 2 << 32],
        ];
        host.put(queue / 8, &chain.concat());
    } else {
        let words = descriptor(host);
        host.put(queue / 8 + usize::from(head) * 2, &words);
    }
    let available = queue + AVAILABLE;
    let index = host.memory.read16(available + 2);
    let head = if host.input.one_in(16) { host.input.u16() } else { u16::from(head) };
    host.memory.write16(available + 4 + 2 * usize::from(index % ENTRIES), head);
    host.memory.write16(available + 2, index.wrapping_add(1));
    (queue / QUEUE_BYTES) as u32
}

/// Two bytes of a ring: an index that jumps, a flag, an entry; of a packed one a piece of a descriptor, or of what a side wants
/// to be notified of.
fn ring_word(host: &mut Host<'_>, format: &Format) {
    let queue = usize::from(host.input.u8()) % usize::from(QUEUES) * QUEUE_BYTES;
    let (parts, words) = match format {
        Format::Split => ([AVAILABLE, AVAILABLE, USED], 24),
        Format::Packed(_) => ([AVAILABLE, 0, USED], 8 * ENTRIES as u8),
    };
    let part = host.input.pick(&parts);
    let word = usize::from(host.input.u8() % words);
    // Of the areas of a packed queue only the first two words count.
    let word = if matches!(format, Format::Packed(_)) && part != 0 { word % 2 } else { word };
    let at = queue + part + word * 2;
    let value = host.input.u16();
    host.memory.write16(at, value);
}

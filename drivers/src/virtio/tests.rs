//! The transports against scripted registers, by literal offsets and words.

use super::*;
use crate::testing::Script;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use hal::host::{HostHal, HostRegs};
use hal::{DeviceAddress, Regs};
use spec::virtio::feature::{Feature, Features};
use spec::virtio::{NO_VECTOR, Status};
use std::sync::Mutex;
use std::vec;

const MEMORY: QueueMemory = QueueMemory {
    entries: 64,
    descriptors: DeviceAddress(0x1_0000_1000),
    available: DeviceAddress(0x1_0000_2000),
    used: DeviceAddress(0x1_0000_3000),
};

/// A device of version 2; both halves of its features read `features`.
pub(super) fn mmio(features: u64, count: u64, level: u64, config: MmioConfig) -> (Arc<Script>, Mmio<HostHal>) {
    let (script, regs) = Script::new();
    script.answer(0x000, &[0x7472_6976]);
    script.answer(0x004, &[2]);
    script.answer(0x010, &[features & 0xffff_ffff, features >> 32]);
    script.answer(0x0d0, &[count]);
    script.answer(0x0dc, &[level]);
    let transport = Mmio::new(HostHal::manual(1), regs, config).expect("a device");
    script.writes();
    (script, transport)
}

pub(super) const EIGHT: MmioConfig = MmioConfig { interrupts: 8, shared_lines: false, writes: RegisterWrites::AtOnce };
/// VIRTIO_F_VERSION_1 (32) and VIRTIO_F_MULTI_IRQ (44).
const MULTI: u64 = 1 << 32 | 1 << 44;

#[test]
fn strangers_are_refused() {
    for (magic, version, error) in [(0, 2, VirtioError::Magic(0)), (0x7472_6976, 1, VirtioError::Version(1))] {
        let (script, regs) = Script::new();
        script.answer(0x000, &[magic]);
        script.answer(0x004, &[version]);
        assert_eq!(Mmio::new(HostHal::manual(1), regs, MmioConfig::default()).err(), Some(error));
    }
}

#[test]
fn vectors_are_those_that_device_and_platform_both_have() {
    assert_eq!(mmio(MULTI, 17, 0, EIGHT).1.vectors(), 8);
    assert_eq!(mmio(MULTI, 3, 0, EIGHT).1.vectors(), 3);
    assert_eq!(mmio(MULTI, 0, 0, EIGHT).1.vectors(), 0);
    assert_eq!(mmio(MULTI, 17, 0, MmioConfig::default()).1.vectors(), 1);
    assert_eq!(mmio(1 << 32, 17, 0, EIGHT).1.vectors(), 1, "not offered: the register is not looked at");
    assert_eq!(mmio(MULTI, u64::from(u32::MAX), 0, MmioConfig { interrupts: u16::MAX, ..EIGHT }).1.vectors(), 2048);
}

/// Virtio 1.3, 4.2.2: the device's own structure begins at 0x100.
#[test]
fn the_configuration_is_read_where_it_lies() {
    let (script, transport) = mmio(MULTI, 2, 0, EIGHT);
    script.answer(0x105, &[0x5a]);
    script.answer(0x10a, &[0x1234]);
    script.answer(0x10c, &[0x8765_4321]);
    assert_eq!((transport.config8(5), transport.config16(10), transport.config32(12)), (0x5a, 0x1234, 0x8765_4321));
}

#[test]
fn features_have_two_halves() {
    let (script, transport) = mmio(MULTI, 2, 0, EIGHT);
    script.answer(0x010, &[0x2000_0000, 0x1001]);
    assert_eq!(transport.features(), Features::of(&[Feature(29), Feature(32), Feature(44)]));
    transport.accept(Features(0x1001_2000_0000));
    let accepted = [(0x24, 32, 0), (0x20, 32, 0x2000_0000), (0x24, 32, 1), (0x20, 32, 0x1001)];
    assert_eq!(script.writes(), [&[(0x14, 32, 0), (0x14, 32, 1)], &accepted[..]].concat());
}

#[test]
fn a_queue_is_mapped_then_started() {
    let (script, transport) = mmio(MULTI, 8, 0, EIGHT);
    script.answer(0x0d8, &[5]);
    assert_eq!(transport.map_queue(3, 5), 5);
    assert_eq!(script.writes(), [(0x30, 32, 3), (0xd8, 32, 5)]);
    script.answer(0x0d8, &[0xffff]);
    assert_eq!(transport.map_queue(3, 5), NO_VECTOR, "the device has none left");
    script.answer(0x0d4, &[0]);
    assert_eq!(transport.map_configuration(0), 0);
    script.writes();
    script.answer(0x044, &[0, 1]);
    assert_eq!(transport.start_queue(3, &MEMORY), Ok(()));
    let expected = [
        (0x30, 32, 3),
        (0x38, 32, 64),
        (0x80, 32, 0x1000),
        (0x84, 32, 1),
        (0x90, 32, 0x2000),
        (0x94, 32, 1),
        (0xa0, 32, 0x3000),
        (0xa4, 32, 1),
        (0x44, 32, 1),
    ];
    assert_eq!(script.writes(), expected);
    script.answer(0x044, &[0]);
    assert_eq!(transport.start_queue(3, &MEMORY), Err(VirtioError::QueueNotReady(3)));
    script.answer(0x044, &[1]);
    assert_eq!(transport.start_queue(3, &MEMORY), Err(VirtioError::QueueInUse(3)));
}

#[test]
fn the_single_interrupt_reads_its_status_and_acknowledges_it() {
    let (script, transport) = mmio(1 << 32, 0, 0, MmioConfig::default());
    script.answer(0x060, &[1]);
    assert_eq!(transport.interrupt(Interrupt::Single), Cause { queues: true, configuration: false });
    assert_eq!(script.writes(), [(0x64, 32, 1)]);
    script.answer(0x060, &[2]);
    assert_eq!(transport.interrupt(Interrupt::Single), Cause { queues: false, configuration: true });
    assert_eq!(script.writes(), [(0x64, 32, 2)]);
    script.answer(0x060, &[0]);
    assert_eq!(transport.interrupt(Interrupt::Single), Cause::NONE);
    assert_eq!(script.writes(), []);
}

/// MULTI_IRQ 4.2: an edge costs nothing, a level on its own line one write, a shared line a read more; the status is for
/// the configuration alone.
#[test]
fn a_queues_vector_costs_no_status() {
    let queue = Interrupt::Vector { vector: 3, configuration: false };
    let served = Cause { queues: true, configuration: false };
    let (script, edge) = mmio(MULTI, 8, 0, EIGHT);
    script.answer(0x060, &[3]);
    assert_eq!(edge.interrupt(queue), served);
    assert_eq!(script.writes(), []);

    let shares = Interrupt::Vector { vector: 0, configuration: true };
    assert_eq!(edge.interrupt(shares), Cause { queues: true, configuration: true });
    assert_eq!(script.writes(), [(0x64, 32, 3)]);

    let (script, dear) = mmio(MULTI, 8, 0, EIGHT);
    let dear = dear.always_acknowledge();
    script.answer(0x060, &[0, 3, 2, 3]);
    assert_eq!(dear.interrupt(queue), served, "whatever the status says");
    assert_eq!(script.writes(), [(0x64, 32, 1)], "used buffers are acknowledged");
    assert_eq!(dear.interrupt(queue), served);
    assert_eq!(dear.interrupt(queue), served);
    assert_eq!(script.writes(), [(0x64, 32, 1), (0x64, 32, 1)], "a change of the configuration is another vector's");
    assert_eq!(dear.interrupt(shares), Cause { queues: true, configuration: true });
    assert_eq!(script.writes(), [(0x64, 32, 3)]);

    let (script, level) = mmio(MULTI, 8, 0b1000, EIGHT);
    assert_eq!(level.interrupt(queue), served);
    assert_eq!(script.writes(), [(0xe4, 32, 0b1000)]);

    let (script, shared) = mmio(MULTI, 8, 0b1000, MmioConfig { shared_lines: true, ..EIGHT });
    script.answer(0x0e0, &[0b0100, 0b1000]);
    assert_eq!(shared.interrupt(queue), Cause::NONE, "another device's");
    assert_eq!(script.writes(), []);
    assert_eq!(shared.interrupt(queue), served);
    assert_eq!(script.writes(), [(0xe4, 32, 0b1000)]);
}

/// A device behind a bus that posts writes: they take effect at the next read. It knows InterruptStatus (60h), which
/// InterruptACK (64h) clears, and VectorStatus (e0h), which VectorAck (e4h) clears.
#[derive(Default)]
struct PostingBus {
    posted: Mutex<Vec<(u32, u32)>>,
    interrupt_status: AtomicU32,
    vector_status: AtomicU32,
    reads: AtomicU32,
}

impl Regs for PostingBus {
    fn read32(&self, offset: u32) -> u32 {
        for (register, value) in core::mem::take(&mut *self.posted.lock().unwrap()) {
            match register {
                0x64 => self.interrupt_status.fetch_and(!value, Relaxed),
                0xe4 => self.vector_status.fetch_and(!value, Relaxed),
                _ => 0,
            };
        }
        self.reads.fetch_add(1, Relaxed);
        match offset {
            0x00 => 0x7472_6976,
            0x04 => 2,
            0x10 => 1 << 12 | 1,
            0x60 => self.interrupt_status.load(Relaxed),
            0xd0 => 8,
            0xdc => 0b1000,
            0xe0 => self.vector_status.load(Relaxed),
            _ => 0,
        }
    }
    fn write32(&self, offset: u32, value: u32) {
        self.posted.lock().unwrap().push((offset, value));
    }
    fn read8(&self, _: u32) -> u8 {
        0
    }
    fn write8(&self, _: u32, _: u8) {}
    fn read16(&self, _: u32) -> u16 {
        0
    }
    fn write16(&self, _: u32, _: u16) {}
    fn read64(&self, _: u32) -> u64 {
        0
    }
    fn write64(&self, _: u32, _: u64) {}
}

/// MULTI_IRQ 4.2, rule 2. A used ring lies in memory, so that a look at it passes a posted acknowledgement. A buffer that is
/// used after the look would set a bit that is still set, and the acknowledgement on its way would clear it: no interrupt.
#[test]
fn an_acknowledgement_has_taken_effect_before_a_used_ring_is_looked_at() {
    for (writes, late, reads) in [(RegisterWrites::Posted, 0, [2, 1]), (RegisterWrites::AtOnce, 1, [1, 0])] {
        let device = Arc::new(PostingBus::default());
        let config = MmioConfig { writes, ..EIGHT };
        let regs = HostRegs::new(device.clone());
        let transport = Mmio::new(HostHal::manual(1), regs, config).expect("a device");
        let cases = [
            (Interrupt::Single, &device.interrupt_status, 1),
            (Interrupt::Vector { vector: 3, configuration: false }, &device.vector_status, 0b1000),
        ];
        for ((interrupt, status, bit), reads) in cases.into_iter().zip(reads) {
            status.store(bit, Relaxed);
            let before = device.reads.load(Relaxed);
            assert!(transport.interrupt(interrupt).queues);
            assert_eq!(
                status.load(Relaxed),
                late * bit,
                "{interrupt:?}, {writes:?}: still set when the ring is looked at"
            );
            assert_eq!(device.reads.load(Relaxed) - before, reads, "{interrupt:?}, {writes:?}");
            device.read32(0);
        }
    }
}

/// Capabilities of a function: common at 40h, notify at 50h, ISR at 64h, device at 74h, all in BAR 4.
fn pci_config() -> (Arc<Script>, hal::host::HostRegs) {
    let (config, regs) = Script::new();
    config.answer(0x00, &[0x1041_1af4]);
    config.answer(0x04, &[0x0010_0000]);
    config.answer(0x34, &[0x40]);
    let capabilities = [
        (0x40, 0x0110_5009, 0x0000, 0x38),
        (0x50, 0x0214_6409, 0x3000, 0x100),
        (0x64, 0x0310_7409, 0x1000, 1),
        (0x74, 0x0410_0009, 0x2000, 0x14),
    ];
    for (at, head, offset, length) in capabilities {
        for (field, value) in [(0, head), (4, 4), (8, offset), (12, length)] {
            config.answer(at + field, &[value]);
        }
    }
    config.answer(0x60, &[4]);
    (config, regs)
}

fn bars(bar: &hal::host::HostRegs, len_bytes: u32) -> [Option<Bar<hal::host::HostRegs>>; 6] {
    let mut bars = [const { None }; 6];
    bars[4] = Some(Bar { regs: Arc::new(bar.clone()), len_bytes });
    bars
}

#[test]
fn pci_structures_are_found_and_accessed_in_their_widths() {
    let (_, config) = pci_config();
    let (bar, regs) = Script::new();
    bar.answer(18, &[17]);
    let transport = Pci::<HostHal>::new(HostHal::manual(1), &config, &bars(&regs, 0x4000), 17).expect("a function");
    assert_eq!((transport.device_id().0, transport.vectors()), (1, 17));
    bar.writes();

    bar.answer(26, &[4]);
    assert_eq!((transport.map_queue(2, 4), transport.map_configuration(0)), (4, 0));
    assert_eq!(bar.writes(), [(22, 16, 2), (26, 16, 4), (16, 16, 0)]);

    bar.answer(28, &[0, 1]);
    bar.answer(30, &[2]);
    assert_eq!(transport.start_queue(2, &MEMORY), Ok(()));
    let expected = [
        (22, 16, 2),
        (24, 16, 64),
        (32, 32, 0x1000),
        (36, 32, 1),
        (40, 32, 0x2000),
        (44, 32, 1),
        (48, 32, 0x3000),
        (52, 32, 1),
        (28, 16, 1),
    ];
    assert_eq!(bar.writes(), expected);
    transport.notify(2);
    assert_eq!(bar.writes(), [(0x3008, 16, 2)], "queue_notify_off 2 times 4");
    transport.set_status(Status::new());
    assert_eq!(bar.writes(), [(20, 8, 0)]);

    let vector = Interrupt::Vector { vector: 1, configuration: false };
    assert_eq!(transport.interrupt(vector), Cause { queues: true, configuration: false });
    bar.answer(0x1000, &[3]);
    assert_eq!(transport.interrupt(Interrupt::Single), Cause { queues: true, configuration: true });
    assert_eq!(transport.config32(0x12), 0, "outside the structure");
}

#[test]
fn pci_structures_outside_their_region_are_refused() {
    let (config, config_regs) = pci_config();
    let (_, bar) = Script::new();
    let open = |len| Pci::<HostHal>::new(HostHal::manual(1), &config_regs, &bars(&bar, len), 2).err();
    assert_eq!(open(0x3000), Some(VirtioError::Capability(2)));
    config.answer(0x74, &[0x0410_4009]);
    assert_eq!(open(0x3000), Some(VirtioError::CapabilityLoop));
    config.answer(0x48, &[u64::from(u32::MAX)]);
    assert_eq!(open(0x4000), Some(VirtioError::CapabilityLoop));
    config.answer(0x00, &[0x1000_1af4]);
    assert!(matches!(open(0x4000), Some(VirtioError::Device(..))), "a transitional device");
}

/// A structure that is not aligned as 4.1.4 demands, and a capability that configuration space cuts off, are none.
#[test]
fn pci_structures_that_cannot_be_accessed_are_passed_over() {
    let (_, bar) = Script::new();
    let open = |config_regs| Pci::<HostHal>::new(HostHal::manual(1), &config_regs, &bars(&bar, 0x4000), 2).err();
    for (at, offset, structure) in [(0x40, 2, 1), (0x50, 0x3001, 2)] {
        let (config, regs) = pci_config();
        config.answer(at + 8, &[offset]);
        assert_eq!(open(regs), Some(VirtioError::Capability(structure)), "offset {offset:#x}");
    }
    let (config, regs) = pci_config();
    config.answer(0x74, &[0x0410_f009]);
    for (field, value) in [(0, 0x0210_0009), (4, 4), (8, 0x3000), (12, 0x100)] {
        config.answer(0xf0 + field, &[value]);
    }
    config.answer(0x50, &[0x0510_6409]);
    assert_eq!(open(regs), Some(VirtioError::Capability(2)), "its multiplier would lie at 100h");
}

#[test]
fn a_notification_outside_its_structure_keeps_the_queue_from_starting() {
    let (_, config) = pci_config();
    let (bar, regs) = Script::new();
    bar.answer(18, &[3]);
    bar.answer(30, &[0x40]);
    let transport = Pci::<HostHal>::new(HostHal::manual(1), &config, &bars(&regs, 0x4000), 2).expect("a function");
    bar.writes();
    assert_eq!(transport.start_queue(2, &MEMORY), Err(VirtioError::Capability(2)));
    assert_eq!(transport.queue_entries_max(3), 0);
    let started: Vec<_> = bar.writes().into_iter().filter(|&(offset, ..)| offset == 28).collect();
    assert_eq!(started, vec![]);
}

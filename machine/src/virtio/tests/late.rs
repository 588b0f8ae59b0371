//! Resets that take a while, changes that a device announces, and what a driver may not acknowledge.

use super::super::code;
use super::*;
use crate::unrest::{Chance, Kind, Unrest};

/// A block device whose resets take up to 50 µs.
fn late_block() -> Rig {
    let chances = [Chance::default(); Kind::COUNT];
    let late = Chance { per_mille: 1_000, longest: Ps::from_ns(50_000) };
    let unrest = Unrest { chances, ..Unrest::new(1) }.with(Kind::LateReset, late);
    let config = MachineConfig { memory_bytes: 1 << 20, unrest: Some(unrest), ..MachineConfig::default() };
    let mut machine = Machine::new(config);
    let log = machine.add_model(|_| Box::new(Log::default()));
    let model = VirtioMmio::new(mmio_config(log, &[Trigger::Edge]), Block::new(block_config())).expect("valid");
    let device = machine.add_model(|_| Box::new(model));
    rig(machine, log, device)
}

impl Rig {
    /// The write has just arrived.
    fn begin(&mut self, offset: u32, value: u32) {
        self.machine.regs(self.device, 0).write32(offset, value);
        self.machine.run_until(self.machine.now() + Ps(1));
    }

    /// Without time for anything to happen.
    fn at_once(&mut self, offset: u32) -> u32 {
        self.machine.regs(self.device, 0).read32(offset)
    }
}

/// VIRTIO 2.6.1 and 4.2.2: QueueReset reads 1 until the queue is reset, and QueueReady 0 only then. VIRTIO 2.4.2: the status
/// is 0 when the device is reset.
#[test]
fn a_device_works_on_until_its_reset_is_over() {
    const RING_RESET: u64 = 1 << 40;
    let mut rig = late_block();
    rig.start(VERSION_1 | RING_RESET, 2);
    rig.write(0x30, 1);
    rig.begin(0xc0, 1);
    let mut reads = 0;
    while rig.at_once(0xc0) == 1 {
        assert_eq!(rig.at_once(0x44), 1);
        rig.machine.run_until(rig.machine.now() + Ps::from_ns(100));
        reads += 1;
    }
    assert!((2..=600).contains(&reads), "{reads}");
    assert_eq!(rig.read(0x44), 0);
    rig.write(0x30, 0);
    assert_eq!((rig.read(0x44), rig.read(0xc0)), (1, 0), "the other queue is as it was");
    rig.block_read(0, 0, 1);
    assert_eq!(rig.used(0).0, 1);
    rig.begin(0x70, 0);
    assert_eq!(rig.at_once(0x70), 15, "as long as it takes");
    assert_eq!((rig.read(0x70), rig.read(0x44)), (0, 0));
    assert!(rig.faults().is_empty());
}

/// VIRTIO 4.2.2, "InterruptACK": it says that the events that caused the bits have been handled.
#[test]
fn a_bit_of_the_status_is_acknowledged_only_when_it_was_seen() {
    let mut rig = block(&[Trigger::Edge]);
    rig.start(VERSION_1, 1);
    let announce = |rig: &mut Rig| {
        let (device, now) = (rig.device, rig.machine.now());
        rig.machine.poke(device, now, code::ANNOUNCE, 0);
        rig.settle();
    };
    let generation = rig.read(0xfc);
    announce(&mut rig);
    assert_eq!((rig.read(0xfc), rig.read(0x60)), (generation + 1, 2));
    rig.write(0x64, 2);
    assert!(rig.faults().is_empty());
    rig.block_read(0, 0, 1);
    assert_eq!(rig.read(0x60), 1);
    announce(&mut rig);
    rig.write(0x64, 3);
    assert_eq!(rig.faults(), ["virtio interrupt acknowledged and never seen"]);
    rig.write(0x70, 0);
    announce(&mut rig);
    assert_eq!(rig.read(0x60), 0, "no driver has started it");
}

/// VIRTIO 1.3, 2.5: the generation differs whenever fields may differ, also before a driver has started the device.
#[test]
fn a_new_size_is_a_new_generation() {
    let mut rig = block(&[Trigger::Edge]);
    let resize = |rig: &mut Rig, sectors| {
        let (device, now) = (rig.device, rig.machine.now());
        rig.machine.poke(device, now, crate::virtio::block::code::RESIZE, sectors);
        rig.settle();
    };
    let generation = rig.read(0xfc);
    resize(&mut rig, 0x3_0000_0500);
    assert_eq!([0x100, 0x104, 0x60].map(|at| rig.read(at)), [0x500, 3, 0]);
    rig.start(VERSION_1, 1);
    resize(&mut rig, 0x100);
    assert_eq!([0x100, 0x104, 0x60].map(|at| rig.read(at)), [0x100, 0, 2]);
    assert_eq!(rig.read(0xfc), generation + 2);
}

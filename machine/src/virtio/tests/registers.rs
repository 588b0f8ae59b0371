//! Registers of both transports.

use super::*;
use crate::setback::{Endured, Setback};
use crate::{begin_setback, end_setback};

#[test]
fn the_mmio_registers_say_what_the_device_is() {
    let mut rig = block(&[Trigger::Edge; 3]);
    let words = [0x00, 0x04, 0x08].map(|offset| rig.read(offset));
    assert_eq!(words, [0x7472_6976, 2, 2]);
    rig.write(0x14, 0);
    assert_eq!(rig.read(0x10), 1 << 29 | 1 << 28 | 1 << 12 | 1 << 9 | 1 << 6);
    rig.write(0x14, 1);
    assert_eq!(rig.read(0x10), 1 << (44 - 32) | 1 << (40 - 32) | 1);
    rig.write(0x14, 2);
    assert_eq!(rig.read(0x10), 0);
    rig.write(0x30, 1);
    assert_eq!((rig.read(0x34), rig.read(0x44)), (8, 0));
    rig.write(0x30, 2);
    assert_eq!((rig.read(0x34), rig.read(0xd8)), (0, 0xffff), "there is no third queue");
    assert_eq!((rig.read(0xd0), rig.read(0xd4), rig.read(0xdc)), (3, 0xffff, 0));
    assert_eq!((rig.read(0x100), rig.read(0x104)), (64, 0), "sectors");
    assert_eq!(rig.machine.regs(rig.device, 0).read16(0x122), 2, "queues");
    assert!(rig.faults().is_empty());
}

#[test]
fn accesses_of_a_wrong_width_or_place_are_recorded_and_ignored() {
    let mut rig = block(&[Trigger::Edge]);
    let regs = rig.machine.regs(rig.device, 0);
    assert_eq!((regs.read8(0x70), regs.read64(0x100), regs.read16(0x101), regs.read32(0x124)), (0, 0, 0, 0));
    assert_eq!(regs.read32(0x50), 0, "write-only");
    regs.write16(0x70, 1);
    regs.write32(0x0c, 1);
    regs.write32(0x100, 1);
    rig.settle();
    assert_eq!(rig.read(0x70), 0);
    let kinds = [
        "virtio-mmio register read other than by 32 bits",
        "virtio configuration read beside a field",
        "virtio-mmio register that cannot be read",
        "virtio-mmio write that is no register's",
        "virtio-mmio register that cannot be written",
    ];
    assert_eq!(rig.faults(), kinds);
}

/// VIRTIO 2.1.2, FEATURES_OK; 4.2.2, QueueReady; MULTI_IRQ 3.1: the driver reads back what became of its write.
#[test]
fn a_setback_refuses_features_a_vector_and_a_queue() {
    let mut rig = block(&[Trigger::Edge; 3]);
    begin_setback(Setback::Refusal, 1);
    assert_eq!(rig.negotiate(VERSION_1 | MULTI_IRQ), 11, "it is spared");
    rig.start_queue(0, 0);
    assert_eq!((rig.read(0xd8), rig.read(0x44)), (0xffff, 0));
    assert_eq!(rig.negotiate(VERSION_1 | MULTI_IRQ), 3);
    let Endured { acts, struck, .. } = end_setback();
    assert_eq!((acts, struck), (4, true));
    rig.start(VERSION_1 | MULTI_IRQ, 2);
    assert!(rig.faults().is_empty());
}

#[test]
fn features_that_were_not_offered_do_not_stick() {
    let mut rig = block(&[Trigger::Edge]);
    assert_eq!(rig.negotiate(VERSION_1 | 1 << 60), 3);
    assert_eq!(rig.negotiate(INDIRECT), 3, "a device of today works with VERSION_1 only");
    assert_eq!(rig.negotiate(VERSION_1), 11);
    rig.write(0x20, 0);
    rig.write(0x70, 15);
    rig.write(0x70, 1);
    assert_eq!(rig.read(0x70), 15, "bits go by a reset only");
    rig.write(0x70, 0);
    assert_eq!(rig.read(0x70), 0);
}

#[test]
fn a_queue_that_cannot_work_stays_off() {
    let mut rig = block(&[Trigger::Edge]);
    rig.negotiate(VERSION_1);
    let (_, address) = rig.place(0);
    for (size, descriptors, available) in [(6, 0, 0x1000), (16, 0, 0x1000), (8, 8, 0x1000), (8, 0, u64::MAX - 0xfff)] {
        rig.write(0x30, 0);
        rig.write(0x38, size);
        rig.write(0x80, (address + descriptors) as u32);
        rig.write(0x84, (address >> 32) as u32);
        let available = address.wrapping_add(available);
        rig.write(0x90, available as u32);
        rig.write(0x94, (available >> 32) as u32);
        rig.write(0xa0, address as u32 + 0x2000);
        rig.write(0xa4, (address >> 32) as u32);
        rig.write(0x44, 1);
        assert_eq!(rig.read(0x44), 0, "{size} entries, {descriptors:#x}, {available:#x}");
    }
    rig.kick(0);
    assert_eq!(rig.faults(), ["virtio queue that cannot work", "virtio notification that no queue awaits"]);
}

/// MULTI_IRQ 3.1: bounds, the ready queue, the reset of one queue and of the device.
#[test]
fn the_mapping_follows_its_rules() {
    let mut rig = block(&[Trigger::Edge; 3]);
    rig.write(0xd4, 1);
    assert_eq!(rig.read(0xd4), 0xffff, "before FEATURES_OK a write is ignored");
    rig.negotiate(VERSION_1 | MULTI_IRQ | 1 << 40);
    rig.start_queue(0, 2);
    assert_eq!(rig.read(0xd8), 2);
    rig.write(0xd8, 1);
    assert_eq!(rig.read(0xd8), 2, "it is ready");
    rig.write(0xd4, 3);
    assert_eq!(rig.read(0xd4), 0xffff, "there are three");
    rig.write(0xd4, 2);
    rig.write(0xc0, 1);
    assert_eq!((rig.read(0xc0), rig.read(0x44), rig.read(0xd8), rig.read(0xd4)), (0, 0, 0xffff, 2));
    rig.write(0x70, 0);
    assert_eq!(rig.read(0xd4), 0xffff);
    assert_eq!(rig.faults(), ["virtio queue changed while it is ready"]);
}

#[test]
fn interrupts_that_the_transport_cannot_have_are_refused() {
    let log = ModelId(0);
    let build = |config| VirtioMmio::new(config, Block::new(block_config())).err();
    let single = MmioConfig { multi_irq: false, ..mmio_config(log, &[Trigger::Edge; 2]) };
    assert_eq!(build(single), Some(super::super::MmioConfigError::Lines(2)));
    assert_eq!(build(mmio_config(log, &[])), Some(super::super::MmioConfigError::Lines(0)));
    let mut many = vec![Trigger::Edge; 40];
    many[35] = Trigger::Level;
    assert_eq!(build(mmio_config(log, &many)), Some(super::super::MmioConfigError::Level(35)));
}

/// VIRTIO 4.1.4: the vendor capabilities, and the common configuration in its own widths.
#[test]
fn the_pci_structures_are_found_and_work() {
    let mut rig = pci_block();
    let config = rig.machine.regs(rig.device, 2);
    assert_eq!(config.read32(0), 0x1042_1af4);
    let mut found = Vec::new();
    let mut at = config.read32(0x34) & 0xff;
    while at != 0 {
        let head = config.read32(at);
        if head & 0xff == 9 {
            found.push((head >> 24, config.read32(at + 4) & 0xff, config.read32(at + 8), head >> 16 & 0xff));
        }
        at = head >> 8 & 0xff;
    }
    assert_eq!(found, [(1, 4, 0, 16), (3, 4, 0x1000, 16), (4, 4, 0x2000, 16), (2, 4, 0x3000, 20)]);
    let bar = rig.machine.regs(rig.device, 0);
    assert_eq!((bar.read16(18), bar.read16(24), bar.read16(26), bar.read32(0x2000)), (2, 8, 0xffff, 64));
    bar.write8(20, 1);
    bar.write16(26, 2);
    rig.settle();
    assert_eq!((bar.read8(20), bar.read16(26)), (1, 2));
    bar.write16(26, 3);
    rig.settle();
    assert_eq!(bar.read16(26), 0xffff, "there are three vectors");
    bar.write32(20, 0);
    rig.settle();
    assert_eq!((bar.read8(20), bar.read16(20)), (1, 0));
    let kinds = ["virtio-pci write that is no register's", "virtio-pci register accessed in a wrong width"];
    assert_eq!(rig.faults(), kinds);
}

/// A device of hardware gets a write some time after its CPU has gone on, and before it answers a read.
#[test]
fn writes_to_a_device_of_hardware_are_posted() {
    for is_posted in [false, true] {
        let (mut machine, log) = machine();
        let model = VirtioMmio::new(mmio_config(log, &[Trigger::Edge]), Block::new(block_config())).expect("valid");
        let model = if is_posted { model.with_posted_writes() } else { model };
        let device = machine.add_model(|_| Box::new(model));
        let regs = machine.regs(device, 0);
        let seen = machine.run_boot(Ps::from_ns(100_000), move || {
            let acknowledgements = || {
                let counters =
                    crate::inspect(device, |model: &VirtioMmio<Block>, _| model.counters()).unwrap_or_default();
                counters.iter().find(|(name, _)| *name == "acknowledgements").map(|&(_, count)| count)
            };
            regs.write32(0x64, 1);
            let before = acknowledgements();
            regs.read32(0x60);
            [before, acknowledgements()]
        });
        assert_eq!(seen, Ok([Some(u64::from(!is_posted)), Some(1)]));
    }
}

/// What a guest's CPU pays: an exit for a register, less for a kick.
#[test]
fn accesses_cost_exits() {
    let (mut machine, log) = machine();
    let exits = Exits { register: Ps::from_ns(2000), kick: Ps::from_ns(1500) };
    let config = MmioConfig { exits, ..mmio_config(log, &[Trigger::Edge]) };
    let model = VirtioMmio::new(config, Block::new(block_config())).expect("valid");
    let device = machine.add_model(|_| Box::new(model));
    let regs = machine.regs(device, 0);
    let times = machine.run_boot(Ps::from_ns(100_000), move || {
        let start = SimHal.now_ns();
        regs.read32(0x00);
        let read = SimHal.now_ns();
        regs.write32(0x64, 1);
        let written = SimHal.now_ns();
        regs.write32(0x50, 0);
        [read - start, written - read, SimHal.now_ns() - written]
    });
    assert_eq!(times, Ok([2000, 2000, 1500]));
}

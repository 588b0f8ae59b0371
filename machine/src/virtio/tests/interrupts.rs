//! How interrupts leave a device: one for all, one for each, held or pulsed, by wire or by message.

use super::super::{code, jump_arg};
use super::*;
use crate::fabric::ioapic::{self, IoApic, IoApicConfig};

/// VIRTIO 4.2.3.3 without the extension: status bit 0, up until it is acknowledged.
#[test]
fn without_the_extension_one_interrupt_serves_all() {
    for trigger in [Trigger::Edge, Trigger::Level] {
        let mut rig = block(&[trigger; 3]);
        rig.start(VERSION_1, 2);
        rig.block_read(1, 0, 1);
        assert_eq!((rig.read(0x60), rig.wires()), (1, vec![1]), "wire 0 goes up");
        rig.block_read(0, 0, 1);
        assert_eq!((rig.read(0x60), rig.wires()), (1, vec![]), "it is up");
        rig.write(0x64, 1);
        assert_eq!((rig.read(0x60), rig.wires()), (0, vec![0]));
        rig.block_read(0, 0, 1);
        assert_eq!(rig.wires(), [1]);
        rig.write(0x70, 0);
        assert_eq!((rig.read(0x60), rig.wires()), (0, vec![0]), "a reset takes it down");
    }
}

/// Raised without a reason, the single interrupt is a pulse; while it is up, it stays up.
#[test]
fn a_raise_lets_go_of_no_interrupt_that_is_up() {
    let mut rig = block(&[Trigger::Edge]);
    rig.start(VERSION_1, 2);
    let raise = |rig: &mut Rig| {
        let (device, now) = (rig.device, rig.machine.now());
        rig.machine.poke(device, now, code::RAISE, 0);
        rig.settle();
        rig.wires()
    };
    assert_eq!(raise(&mut rig), pulse(0));
    rig.block_read(1, 0, 1);
    assert_eq!(rig.wires(), [1]);
    assert_eq!((raise(&mut rig), rig.read(0x60)), (vec![], 1));
    rig.write(0x64, 1);
    assert_eq!(rig.wires(), [0]);
}

/// MULTI_IRQ 4.1: the vector is the notification. No status, no acknowledgement, and none without a vector.
#[test]
fn each_queue_pulses_its_own_vector() {
    let mut rig = block(&[Trigger::Edge; 3]);
    rig.negotiate(VERSION_1 | MULTI_IRQ);
    rig.start_queue(0, 2);
    rig.start_queue(1, 0xffff);
    rig.write(0xd4, 1);
    rig.write(0x70, 15);
    let before = rig.machine.now();
    rig.block_read(0, 0, 1);
    assert_eq!((rig.wires(), rig.read(0x60)), (pulse(2), 0));
    rig.block_read(1, 0, 1);
    assert_eq!((rig.wires(), rig.used(1).0), (vec![], 1), "a driver without a vector polls");
    assert!(rig.machine.now() > before);
    // A broken device: the configuration's vector, with its status bit.
    rig.descriptor(0, 0, 0, 16, 0, 0);
    rig.offer(0, 0);
    rig.kick(0);
    assert_eq!((rig.wires(), rig.read(0x60)), (pulse(1), 2));
    rig.write(0x64, 2);
    assert_eq!(rig.read(0x60), 0);
}

/// MULTI_IRQ 4.1, rule 4: VectorStatus and VectorAck.
#[test]
fn a_level_vector_is_held_until_it_is_acknowledged() {
    let mut rig = block(&[Trigger::Edge, Trigger::Level]);
    rig.start(VERSION_1 | MULTI_IRQ, 2);
    assert_eq!(rig.read(0xdc), 0b10);
    rig.block_read(0, 0, 1);
    assert_eq!((rig.wires(), rig.read(0xe0)), (pulse(0), 0), "an edge has no status");
    rig.block_read(1, 0, 1);
    assert_eq!((rig.wires(), rig.read(0xe0), rig.read(0x60)), (vec![3], 0b10, 0));
    rig.write(0xe4, 0b01);
    assert_eq!(rig.wires(), []);
    rig.write(0xe4, 0b10);
    assert_eq!((rig.wires(), rig.read(0xe0)), (vec![2], 0));
}

/// An acknowledgement that overtakes the assertion: the wire never goes up.
#[test]
fn a_wire_that_is_acknowledged_on_its_way_stays_down() {
    let mut rig = block(&[Trigger::Edge, Trigger::Level]);
    rig.start(VERSION_1 | MULTI_IRQ, 2);
    let device = rig.device;
    rig.machine.poke(device, Ps(0), code::RAISE, 1);
    rig.machine.regs(device, 0).write32(0xe4, 0b10);
    rig.settle();
    assert_eq!((rig.wires(), rig.read(0xe0)), (vec![], 0));
}

/// The end of interrupt takes a resampled wire down. It goes up again by itself only if something was raised meanwhile.
#[test]
fn a_resampler_loses_nothing() {
    let (mut machine, log) = machine();
    let config = IoApicConfig { name: "ioapic".into(), requester: 0xf0f8, pins: 24 };
    let ioapic = machine.add_model(|_| Box::new(IoApic::new(log, config)));
    let mut config = mmio_config(log, &[]);
    config.lines = vec![Line::ioapic(ioapic, 16, Trigger::Level), Line::ioapic(ioapic, 17, Trigger::Level)];
    let model = VirtioMmio::new(config, Block::new(block_config())).expect("valid");
    let device = machine.add_model(|_| Box::new(model));
    machine.with_model(ioapic, |chip: &mut IoApic| {
        chip.set_resampler(16, super::super::resample_event(device, 0));
        chip.set_resampler(17, super::super::resample_event(device, 1));
    });
    let mut rig = rig(machine, log, device);
    // Pin 17: vector 51h, level, to APIC 0.
    let chip = rig.machine.regs(ioapic, 0);
    chip.write32(0x00, 0x10 + 2 * 17);
    chip.write32(0x10, 0x8051);
    rig.start(VERSION_1 | MULTI_IRQ, 2);
    rig.block_read(1, 0, 1);
    assert_eq!((rig.messages().len(), rig.read(0xe0)), (1, 0b10));
    chip.write32(0x40, 0x51);
    rig.settle();
    assert_eq!((rig.messages().len(), rig.read(0xe0)), (0, 0), "nothing came meanwhile");
    rig.block_read(1, 0, 1);
    rig.block_read(1, 0, 1);
    assert_eq!(rig.messages().len(), 1, "the wire was up");
    chip.write32(0x40, 0x51);
    rig.settle();
    assert_eq!((rig.messages().len(), rig.read(0xe0)), (1, 0b10), "the second one was not lost");
    let lost = rig.machine.with_any_model(ioapic, |model| model.counters());
    assert_eq!(lost, [("messages", 3), ("lost_edges", 0)]);
    // A stray assertion of the chip's own pin belongs to no vector.
    rig.machine.poke(ioapic, Ps(0), ioapic::PIN, ioapic::pin_arg(3, true));
    rig.settle();
    assert_eq!(rig.messages(), []);
}

/// With MSI-X a vector's message; masked it is kept, as of every function.
#[test]
fn a_pci_device_sends_messages() {
    let mut rig = pci_block();
    let [bar, msix, config] = [0, 1, 2].map(|region| rig.machine.regs(rig.device, region));
    for status in [1, 3] {
        bar.write8(20, status);
    }
    bar.write32(8, 1);
    bar.write32(12, 1);
    bar.write8(20, 11);
    // Entry 2: address FEE0_0000h, data 42h, not masked; then MSI-X is enabled.
    for (at, value) in [(32, 0xfee0_0000), (36, 0), (40, 0x42), (44, 0)] {
        msix.write32(at, value);
    }
    let head = config.read32(0x40);
    config.write32(0x40, head | 1 << 31);
    let (_, address) = rig.place(0);
    bar.write16(22, 0);
    bar.write16(24, 8);
    for (at, area) in [(32, 0), (40, AVAILABLE), (48, USED)] {
        let address = address + area as u64;
        bar.write32(at, address as u32);
        bar.write32(at + 4, (address >> 32) as u32);
    }
    bar.write16(26, 2);
    bar.write16(28, 1);
    bar.write8(20, 15);
    rig.settle();
    let notify = |rig: &mut Rig| {
        rig.machine.regs(rig.device, 0).write16(0x3000, 0);
        rig.settle();
    };
    rig.descriptor(0, 0, address + BUFFERS as u64, 16, 1, 1);
    rig.descriptor(0, 1, address + 0x4000, 1, 2, 0);
    rig.offer(0, 0);
    notify(&mut rig);
    assert_eq!((rig.used(0).0, rig.messages()), (1, vec![(0x108, 0xfee0_0000, 0x42)]));
    msix.write32(44, 1);
    rig.offer(0, 0);
    notify(&mut rig);
    assert_eq!((rig.used(0).0, rig.messages()), (2, vec![]));
    msix.write32(44, 0);
    rig.settle();
    assert_eq!(rig.messages(), [(0x108, 0xfee0_0000, 0x42)]);
    assert!(rig.faults().is_empty(), "{:?}", rig.machine.faults());
}

/// Errors for tests of drivers: an interrupt without a cause, and a used index that jumps.
#[test]
fn a_device_can_misbehave_on_request() {
    let mut rig = block(&[Trigger::Edge; 3]);
    rig.start(VERSION_1 | MULTI_IRQ, 1);
    let device = rig.device;
    rig.machine.poke(device, Ps(0), code::RAISE, 2);
    rig.machine.poke(device, Ps(0), code::JUMP_USED, jump_arg(0, 100));
    rig.machine.poke(device, Ps(0), code::JUMP_USED, jump_arg(9, 1));
    rig.settle();
    assert_eq!((rig.wires(), rig.used(0).0), (pulse(2), 100));
}

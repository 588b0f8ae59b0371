//! The MMIO transport behind a PCI function: wires as MSI-X vectors.

use super::super::wired::{VirtioWired, WiredConfig};
use super::*;

/// Every vector's message is (fee00000h, its number).
fn wired(vectors: u16) -> Rig {
    let (mut machine, log) = machine();
    let device = machine.add_model(|me| {
        let config = WiredConfig { name: "wired".into(), me, upstream: log, requester: 0x108, vectors };
        Box::new(VirtioWired::new(config, Block::new(block_config())).expect("valid"))
    });
    let table = machine.regs(device, 1);
    for vector in 0..u32::from(vectors) {
        table.write32(16 * vector, 0xfee0_0000);
        table.write32(16 * vector + 8, vector);
        table.write32(16 * vector + 12, 0);
    }
    rig(machine, log, device)
}

fn message(vector: u32) -> (u16, u64, u32) {
    (0x108, 0xfee0_0000, vector)
}

#[test]
fn each_wire_is_a_vector() {
    let mut rig = wired(3);
    let config = rig.machine.regs(rig.device, 2);
    assert_eq!((config.read32(0), config.read32(8)), (0x564d_fffe, 0xff00_0100));
    config.write32(0x40, 1 << 31);
    rig.start(VERSION_1 | MULTI_IRQ, 2);
    assert_eq!((rig.read(0xd0), rig.read(0xdc)), (3, 0), "three vectors, all edges");
    rig.block_read(1, 0, 1);
    assert_eq!((rig.messages(), rig.read(0x60)), (vec![message(1)], 0));
    rig.block_read(0, 0, 1);
    assert_eq!(rig.messages(), [message(0)]);
    assert!(rig.faults().is_empty());
}

#[test]
fn an_edge_waits_behind_the_masks() {
    let mut rig = wired(3);
    let (table, config) = (rig.machine.regs(rig.device, 1), rig.machine.regs(rig.device, 2));
    rig.start(VERSION_1 | MULTI_IRQ, 2);
    rig.block_read(0, 0, 1);
    table.write32(16 + 12, 1);
    rig.block_read(1, 0, 1);
    rig.block_read(1, 0, 1);
    assert_eq!((rig.messages(), table.read32(0x8000)), (vec![], 0b11), "MSI-X is off");
    config.write32(0x40, 1 << 31);
    rig.settle();
    assert_eq!(rig.messages(), [message(0)], "vector 1 is masked itself");
    table.write32(16 + 12, 0);
    rig.settle();
    assert_eq!((rig.messages(), table.read32(0x8000)), (vec![message(1)], 0), "two edges are one");
}

#[test]
fn with_one_wire_the_extension_is_not_offered() {
    let mut rig = wired(1);
    rig.machine.regs(rig.device, 2).write32(0x40, 1 << 31);
    rig.write(0x14, 1);
    assert_eq!(rig.read(0x10) & (MULTI_IRQ >> 32) as u32, 0);
    rig.start(VERSION_1, 1);
    rig.block_read(0, 0, 1);
    assert_eq!((rig.messages(), rig.read(0x60)), (vec![message(0)], 1));
    rig.block_read(0, 0, 1);
    assert_eq!(rig.messages(), [], "the interrupt is not acknowledged");
    rig.write(0x64, 1);
    rig.block_read(0, 0, 1);
    assert_eq!(rig.messages(), [message(0)]);
}

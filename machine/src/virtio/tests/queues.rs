//! Split queues: what a driver makes available, and what a hostile one tries.

use super::*;

/// Config change of a broken device, in the single interrupt's status.
const NEEDS_RESET: u32 = 0x40;

#[test]
fn a_block_request_runs() {
    let mut rig = block(&[Trigger::Edge]);
    rig.start(VERSION_1, 1);
    let mut write = vec![1u8, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0];
    write.extend((0..512).map(|byte| byte as u8));
    let data = rig.fill_buffer(0, 0x400, &write);
    let status = rig.fill_buffer(0, 32, &[0xff]);
    rig.descriptor(0, 3, data, 528, 1, 4);
    rig.descriptor(0, 4, status, 1, 2, 0);
    rig.offer(0, 3);
    rig.kick(0);
    assert_eq!((rig.used(0), rig.buffer(0, 32, 1)), ((1, 3, 1), vec![0]));
    rig.block_read(0, 5, 1);
    assert_eq!((rig.used(0), rig.buffer(0, 32, 1)), ((2, 0, 513), vec![0]));
    assert_eq!(rig.buffer(0, 64, 512), write[16..]);
    rig.block_read(0, 64, 1);
    assert_eq!((rig.used(0), rig.buffer(0, 32, 1)), ((3, 0, 1), vec![1]), "beyond the end: an error, not a fault");
    assert!(rig.faults().is_empty());
}

#[test]
fn an_indirect_table_is_followed_where_it_is_negotiated() {
    for (features, used) in [(VERSION_1 | INDIRECT, 1), (VERSION_1, 0)] {
        let mut rig = block(&[Trigger::Edge]);
        rig.start(features, 1);
        rig.block_read(0, 0, 1);
        let table = rig.place(0).1;
        // The three descriptors of the first request are the table of the second.
        rig.descriptor(0, 5, table, 48, 4, 0);
        rig.offer(0, 5);
        rig.kick(0);
        assert_eq!(rig.used(0).0, 1 + used);
        assert_eq!(rig.faults().len(), 1 - usize::from(used));
    }
}

/// Each must end as a fault, with DEVICE_NEEDS_RESET set and nothing used.
#[test]
fn what_a_hostile_driver_makes_available_breaks_only_its_device() {
    type Attack = fn(&Rig, u64);
    let attacks: [(&str, Attack); 10] = [
        ("a chain that loops", |rig, buffer| {
            rig.descriptor(0, 0, buffer, 16, 1, 1);
            rig.descriptor(0, 1, buffer, 16, 1, 0);
        }),
        ("a buffer outside memory", |rig, _| rig.descriptor(0, 0, 0x1000, 16, 0, 0)),
        ("a buffer that wraps", |rig, _| rig.descriptor(0, 0, u64::MAX - 3, 16, 0, 0)),
        ("a buffer that ends outside", |rig, buffer| rig.descriptor(0, 0, buffer, 1 << 30, 2, 0)),
        ("a next descriptor beyond the table", |rig, buffer| rig.descriptor(0, 0, buffer, 16, 1, 8)),
        ("a table of odd length", |rig, buffer| rig.descriptor(0, 0, buffer, 24, 4, 0)),
        ("a table outside memory", |rig, _| rig.descriptor(0, 0, 0x1000, 32, 4, 0)),
        ("a table that is chained on", |rig, buffer| rig.descriptor(0, 0, buffer, 32, 5, 1)),
        ("a table in a table", |rig, _| rig.descriptor(0, 0, rig.place(0).1, 32, 4, 0)),
        ("a buffer for reading behind one for writing", |rig, buffer| {
            rig.descriptor(0, 0, buffer, 16, 3, 1);
            rig.descriptor(0, 1, buffer, 16, 0, 0);
        }),
    ];
    for (name, attack) in attacks {
        let mut rig = block(&[Trigger::Edge]);
        rig.start(VERSION_1 | INDIRECT, 1);
        let buffer = rig.place(0).1 + BUFFERS as u64;
        attack(&rig, buffer);
        rig.offer(0, 0);
        rig.kick(0);
        assert_eq!(rig.faults(), ["virtio driver broke a queue"], "{name}");
        assert_eq!((rig.read(0x70), rig.used(0).0), (15 | NEEDS_RESET, 0), "{name}");
        assert_eq!(rig.read(0x60), 2, "{name}: a configuration change tells");
        // A reset heals it.
        rig.start(VERSION_1, 1);
        rig.block_read(0, 0, 1);
        assert_eq!((rig.read(0x70), rig.used(0).0), (15, 1), "{name}");
    }
}

#[test]
fn an_available_index_that_jumps_or_a_head_outside_breaks_the_device() {
    for (index, head) in [(9, 0), (0x8000, 0), (1, 8), (1, 0xffff)] {
        let mut rig = block(&[Trigger::Edge]);
        rig.start(VERSION_1, 1);
        let available = rig.place(0).0 + AVAILABLE;
        rig.memory.write16(available + 4, head);
        rig.memory.write16(available + 2, index);
        rig.kick(0);
        assert_eq!(rig.faults(), ["virtio driver broke a queue"], "index {index:#x}, head {head}");
        assert_eq!(rig.read(0x70) & NEEDS_RESET, NEEDS_RESET);
        rig.kick(0);
    }
}

#[test]
fn a_request_without_room_for_its_status_breaks_the_device() {
    let mut rig = block(&[Trigger::Edge]);
    rig.start(VERSION_1, 1);
    let header = rig.fill_buffer(0, 0, &[0; 16]);
    rig.descriptor(0, 0, header, 16, 0, 0);
    rig.offer(0, 0);
    rig.kick(0);
    assert_eq!(rig.faults(), ["virtio-blk request without header or status"]);
}

/// VIRTIO 2.7.7: flags without the event index, indices with it.
#[test]
fn notifications_are_sent_as_the_driver_wants_them() {
    let mut rig = block(&[Trigger::Edge; 2]);
    rig.start(VERSION_1 | MULTI_IRQ, 1);
    let available = rig.place(0).0 + AVAILABLE;
    rig.memory.write16(available, 1);
    rig.block_read(0, 0, 1);
    assert_eq!(rig.wires(), []);
    rig.memory.write16(available, 0);
    rig.block_read(0, 0, 1);
    assert_eq!(rig.wires(), pulse(0));

    rig.start(VERSION_1 | MULTI_IRQ | EVENT_INDEX, 1);
    rig.block_read(0, 0, 1);
    assert_eq!(rig.wires(), pulse(0), "the first one always");
    // used_event 2: when the index passes 2, that is, becomes 3.
    rig.memory.write16(available + 4 + 2 * 8, 2);
    rig.block_read(0, 0, 1);
    assert_eq!(rig.wires(), []);
    rig.block_read(0, 0, 1);
    assert_eq!(rig.wires(), pulse(0));
    rig.block_read(0, 0, 1);
    assert_eq!(rig.wires(), [], "once");
    // avail_event follows what was taken: a kick is wanted for the next buffer.
    assert_eq!(rig.memory.read16(rig.place(0).0 + USED + 4 + 8 * 8), 4);
}

/// Whatever the rings hold, the machine goes on: the device serves or breaks, and says so.
#[test]
fn random_rings_never_panic() {
    let mut random = crate::Stream::new(7, 0);
    let mut broken = 0;
    for _ in 0..200 {
        let mut rig = block(&[Trigger::Edge]);
        rig.start(VERSION_1 | INDIRECT | EVENT_INDEX, 1);
        let (offset, address) = rig.place(0);
        for index in 0..8 {
            let draw = random.next();
            let at = if draw.is_multiple_of(4) { random.next() } else { address + draw % 0x4000 };
            let len = if draw >> 8 & 3 == 0 { random.next() as u32 } else { (draw >> 16 & 0x3f) as u32 * 16 };
            rig.descriptor(0, index, at, len, (draw >> 32 & 7) as u16, (draw >> 40 & 15) as u16);
        }
        for entry in 0..8 {
            rig.memory.write16(offset + AVAILABLE + 4 + 2 * entry, (random.next() % 9) as u16);
        }
        rig.memory.write16(offset + AVAILABLE + 2, (random.next() % 9) as u16);
        rig.kick(0);
        let is_broken = rig.read(0x70) & NEEDS_RESET != 0;
        assert_eq!(is_broken, !rig.faults().is_empty());
        broken += u32::from(is_broken);
    }
    assert!((100..=200).contains(&broken), "{broken} of 200");
}

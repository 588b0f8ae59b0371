//! Tests of the block alone, without device and client. Offsets and words are the manual's.

use super::*;
use crate::client_memory::memory_file;
use crate::function::Served;
use crate::poster::Poster;
use rustix::event::{EventfdFlags, eventfd};
use std::fs::File;
use std::io::Read;

/// Address of the guest's memory.
const MEMORY: u64 = 0x10_0000;
const DESCRIPTOR: u64 = MEMORY + 0x40;
/// Source 3 posts vector 0x51 through slot 1. The slot's notification is MSI-X vector 9.
const SOURCE_3: u32 = 0x1000 + 3 * 4;
const POSTED_51_BY_1: u64 = 0x0001_5101;
const SLOT_1: u32 = 0x110;

/// A guest with memory and an eventfd for every vector: eight sources, two slots.
fn guest() -> (Guest, Vec<File>) {
    let served = Served::try_from(Poster { sources: 8, threads: 1, slots: 2 }).expect("valid");
    let guest = Guest::new(&served);
    guest.memory_mut().map(MEMORY, 0, 0x1000, memory_file(0x1000)).expect("valid");
    let eventfds: Vec<File> = (0..10).map(|_| eventfd(0, EventfdFlags::NONBLOCK).expect("an eventfd").into()).collect();
    for (vector, eventfd) in eventfds.iter().enumerate() {
        guest.interrupts().set(vector, Some(eventfd.try_clone().expect("a second"))).expect("valid");
        guest.interrupts().set_mask(vector, false);
    }
    guest.interrupts().hold(false);
    (guest, eventfds)
}

fn posting() -> (Guest, Vec<File>) {
    let (guest, eventfds) = guest();
    let block = guest.posting().expect("two slots");
    block.write(SLOT_1, 8, DESCRIPTOR | 1);
    block.write(SLOT_1 + 8, 4, 9);
    block.write(SOURCE_3, 4, POSTED_51_BY_1);
    block.write(0x10, 4, 1);
    (guest, eventfds)
}

fn signals(mut eventfd: &File) -> u64 {
    let mut count = [0; 8];
    eventfd.read_exact(&mut count).map_or(0, |()| u64::from_ne_bytes(count))
}

fn word(guest: &Guest, index: u64) -> u64 {
    guest.memory().read(DESCRIPTOR + index * 8, 8).expect("memory")
}

fn block(guest: &Guest) -> &Block {
    guest.posting().expect("two slots")
}

#[test]
fn the_header_says_what_there_is() {
    let (guest, _) = guest();
    let words: Vec<u64> = (0..4).map(|index| block(&guest).read(index * 4, 4)).collect();
    assert_eq!(words, [0x4950_7753, 0x0001_0000, 0x0002_0008, 0x1000_0100]);
    assert_eq!(block(&guest).read(0x8, 8), 0x1000_0100_0002_0008);
    assert_eq!([0x40, 0xfc, 0x3ffc].map(|at| block(&guest).read(at, 4)), [0; 3]);
    assert_eq!((block(&guest).read(0, 2), block(&guest).read(4, 8)), (0, 0), "no such access");
}

#[test]
fn the_first_request_notifies_and_those_until_on_is_cleared_do_not() {
    let (guest, eventfds) = posting();
    // NV eb, NDST 7: values that the guest chose.
    guest.memory().write(DESCRIPTOR + 32, 8, 0x0000_0007_00eb_0000);
    guest.raise(3);
    guest.raise(3);
    assert_eq!(word(&guest, 1), 1 << 0x11, "0x51 is bit 0x11 of word 1");
    assert_eq!(word(&guest, 4), 0x0000_0007_00eb_0001, "ON; the rest as it was");
    assert_eq!((signals(&eventfds[9]), signals(&eventfds[3])), (1, 0));
    // The guest takes the request and clears ON.
    guest.memory().write(DESCRIPTOR + 8, 8, 0);
    guest.memory().write(DESCRIPTOR + 32, 8, 0x0000_0007_00eb_0000);
    guest.raise(3);
    assert_eq!((signals(&eventfds[9]), block(&guest).read(0x20, 8), block(&guest).read(0x28, 8)), (1, 3, 2));
}

#[test]
fn suppressed_requests_notify_only_when_they_are_urgent() {
    let (guest, eventfds) = posting();
    guest.memory().write(DESCRIPTOR + 32, 8, 2);
    guest.raise(3);
    assert_eq!((word(&guest, 1), word(&guest, 4), signals(&eventfds[9])), (1 << 0x11, 2, 0));
    block(&guest).write(SOURCE_3, 4, POSTED_51_BY_1 | 2);
    guest.raise(3);
    assert_eq!((word(&guest, 4), signals(&eventfds[9])), (3, 1));
}

#[test]
fn what_is_not_posted_is_sent_by_itself() {
    let (guest, eventfds) = posting();
    guest.raise(4);
    assert_eq!(signals(&eventfds[4]), 1, "not posted");
    block(&guest).write(0x10, 4, 0);
    guest.raise(3);
    assert_eq!((signals(&eventfds[3]), word(&guest, 1)), (1, 0), "posting is off");
    block(&guest).write(0x10, 4, 1);
    block(&guest).reset();
    guest.raise(3);
    assert_eq!((signals(&eventfds[3]), word(&guest, 1), block(&guest).read(0x30, 8)), (1, 0, 1), "after a reset");
}

#[test]
fn a_masked_notification_waits() {
    let (guest, eventfds) = posting();
    guest.interrupts().set_mask(9, true);
    guest.raise(3);
    assert_eq!((signals(&eventfds[9]), guest.interrupts().pending(0)), (0, 1 << 9));
    guest.interrupts().set_mask(9, false);
    assert_eq!((signals(&eventfds[9]), guest.interrupts().pending(0)), (1, 0));
}

#[test]
fn a_descriptor_moves_in_one_write_or_in_two() {
    let (guest, _) = posting();
    let other = MEMORY + 0x80;
    block(&guest).write(SLOT_1, 4, 0);
    block(&guest).write(SLOT_1 + 4, 4, 0);
    block(&guest).write(SLOT_1, 4, other | 1);
    assert_eq!((block(&guest).read(SLOT_1, 8), block(&guest).read(SLOT_1 + 8, 4)), (other | 1, 9));
    guest.raise(3);
    assert_eq!((word(&guest, 1), guest.memory().read(other + 8, 8)), (0, Some(1 << 0x11)));
}

#[test]
fn what_the_manual_forbids_changes_nothing_and_is_a_fault() {
    let (guest, _) = posting();
    for (offset, width, value) in [
        (0x10, 4, 3),
        (SLOT_1, 8, DESCRIPTOR | 0x21),
        (SLOT_1, 4, (DESCRIPTOR | 3) & 0xffff_ffff),
        (SLOT_1 + 8, 4, 10),
        (SLOT_1 + 12, 4, 1),
        (0x120, 8, DESCRIPTOR | 1),
        (SOURCE_3, 4, POSTED_51_BY_1 | 4),
        (SOURCE_3, 4, 0x0002_5101),
        (0x1020, 4, POSTED_51_BY_1),
        (0x0, 4, 1),
        (0x11, 1, 1),
        (0x2, 4, 1),
        (SOURCE_3, 8, POSTED_51_BY_1),
    ] {
        let before: Vec<u64> = (0..0x1040).step_by(8).map(|at| block(&guest).read(at, 8)).collect();
        block(&guest).write(0x14, 4, 1 << 31);
        block(&guest).write(offset, width, value);
        let fault = Fault::from_bits(block(&guest).read(0x14, 4) as u32);
        assert_eq!((fault.reason(), fault.index()), (1, offset as u16), "{value:#x} to {offset:#x}");
        let after: Vec<u64> = (0..0x1040).step_by(8).map(|at| block(&guest).read(at, 8)).collect();
        let differ: Vec<usize> = (0..before.len()).filter(|&at| before[at] != after[at]).map(|at| at * 8).collect();
        assert!(differ.iter().all(|at| [0x10, 0x38].contains(at)), "{offset:#x}: {differ:x?}");
    }
}

#[test]
fn requests_that_cannot_be_posted_are_faults() {
    let (guest, eventfds) = posting();
    // A slot that is not valid.
    block(&guest).write(SOURCE_3, 4, 0x0000_5101);
    guest.raise(3);
    assert_eq!(block(&guest).read(0x14, 4), 0x8000_0302);
    // Only the first error is recorded.
    block(&guest).write(SOURCE_3, 4, POSTED_51_BY_1);
    for address in [MEMORY + 0x1000, MEMORY - 0x40, 0x4000_0000_0000, !0x3f] {
        block(&guest).write(SLOT_1, 8, address | 1);
        guest.raise(3);
    }
    assert_eq!((block(&guest).read(0x14, 4), block(&guest).read(0x38, 8)), (0x8000_0302, 5));
    block(&guest).write(0x14, 4, 1 << 31);
    guest.raise(3);
    assert_eq!(block(&guest).read(0x14, 4), 0x8000_0303);
    assert!(eventfds.iter().all(|eventfd| signals(eventfd) == 0));
}

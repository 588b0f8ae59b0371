//! The virtio disk over MMIO. Offsets and words are those of the standard and of docs/virtio-mmio-multi-irq.md.

use super::guest::{DATA, Guest, MEMORY, MEMORY_BYTES, OUTSIDE, Served};
use bridge::VirtioDisk;
use machine::time::Ps;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// A queue's descriptors, available ring and used ring. The used ring begins in the middle of a 64-bit word; the
/// driver owns the first half of that word.
const DESCRIPTORS: u64 = MEMORY;
const AVAILABLE: u64 = MEMORY + 0x1000;
const USED: u64 = MEMORY + 0x2004;
const VERSION_1: u64 = 1 << 32;
const MULTI_IRQ: u64 = 1 << 44;

fn disk(clients: usize) -> Served {
    let disk = VirtioDisk { bytes: 1 << 20, queues: 2, interrupts: 3, latency: Ps(0) };
    Served::serving(clients, disk.try_into().expect("valid"))
}

/// FEATURES_OK with these features; queue 1 of 8 entries on vector 2; DRIVER_OK.
fn start(guest: &mut Guest, features: u64) {
    for status in [0, 1, 3] {
        guest.write32(0x70, status);
    }
    for half in 0..2 {
        guest.write32(0x24, half);
        guest.write32(0x20, (features >> (32 * half)) as u32);
    }
    guest.write32(0x70, 11);
    assert_eq!(guest.read32(0x70), 11);
    guest.write32(0x30, 1);
    guest.write32(0x38, 8);
    for (register, address) in [(0x80, DESCRIPTORS), (0x90, AVAILABLE), (0xa0, USED)] {
        guest.write32(register, address as u32);
        guest.write32(register + 4, (address >> 32) as u32);
    }
    if features & MULTI_IRQ != 0 {
        guest.write32(0xd8, 2);
        assert_eq!(guest.read32(0xd8), 2);
    }
    guest.write32(0x44, 1);
    assert_eq!(guest.read32(0x44), 1);
    guest.write32(0x70, 15);
}

/// Runs one request for one sector on queue 1. Returns the status byte when the used index is `number`.
fn request(guest: &mut Guest, number: u16, kind: u32, sector: u64, data: u64) -> u8 {
    request_of(guest, number, kind, sector, (data, 512))
}

/// The same with a buffer of any length.
fn request_of(guest: &mut Guest, number: u16, kind: u32, sector: u64, (data, bytes): (u64, u32)) -> u8 {
    let (header, status) = (DATA, DATA + 32);
    guest.fill(header, &[&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat());
    guest.fill(status, &[0xff]);
    let device_writes = if kind == 0 { 2 } else { 0 };
    let parts = [(header, 16, 1, 1), (data, bytes, 1 | device_writes, 2), (status, 1, 2, 0)];
    for (index, (address, len, flags, next)) in (0u64..).zip(parts) {
        let words =
            [&address.to_le_bytes()[..], &u32::to_le_bytes(len), &u16::to_le_bytes(flags), &u16::to_le_bytes(next)];
        guest.fill(DESCRIPTORS + 16 * index, &words.concat());
    }
    guest.fill(AVAILABLE + 4 + 2 * u64::from((number - 1) % 8), &[0, 0]);
    guest.fill(AVAILABLE + 2, &number.to_le_bytes());
    guest.write32(0x50, 1);
    let deadline = Instant::now() + Duration::from_secs(20);
    while guest.data(USED + 2, 2) != number.to_le_bytes() {
        assert!(Instant::now() < deadline, "request {number} is not over");
    }
    guest.data(status, 1)[0]
}

/// The vector is signalled after the used index is visible.
fn wait_interrupts(guest: &mut Guest, vector: usize, count: u64) {
    let (mut seen, deadline) = (0, Instant::now() + Duration::from_secs(20));
    while seen < count {
        seen += guest.interrupts(vector);
        assert!(Instant::now() < deadline, "{seen} interrupts of vector {vector}, {count} expected");
    }
    assert_eq!(seen, count);
}

#[test]
fn a_queues_interrupt_is_its_own_vector_and_costs_no_register() {
    let served = disk(1);
    let mut guest = Guest::connect_to(&served.socket, 3);
    assert_eq!(guest.config(0, 4), [0xfe, 0xff, 0x4d, 0x56]);
    assert_eq!((guest.read32(0), guest.read32(4), guest.read32(8), guest.read32(0xd0)), (0x7472_6976, 2, 2, 3));
    start(&mut guest, VERSION_1 | MULTI_IRQ);
    guest.fill(MEMORY + 0x2000, &[0xaa; 4]);
    let written: Vec<u8> = (0..512u32).map(|byte| (byte * 7) as u8).collect();
    guest.fill(DATA + 0x1000, &written);
    assert_eq!(request(&mut guest, 1, 1, 9, DATA + 0x1000), 0);
    assert_eq!(request(&mut guest, 2, 0, 9, DATA + 0x2001), 0);
    assert_eq!(guest.data(DATA + 0x2001, 512), written, "at an odd address too");
    assert_eq!(guest.data(DATA + 0x2000, 1), [0], "what is beside a buffer stays");
    assert_eq!(guest.data(MEMORY + 0x2000, 4), [0xaa; 4], "what is beside the used ring stays");
    wait_interrupts(&mut guest, 2, 2);
    assert_eq!((guest.interrupts(0), guest.interrupts(1), guest.read32(0x60)), (0, 0, 0));
    drop(guest);
    let said = served.finish();
    assert!(said.contains("completed 2") && said.contains("msis 2"), "{said}");
}

#[test]
fn without_the_extension_everything_comes_by_the_first() {
    let served = disk(1);
    let mut guest = Guest::connect_to(&served.socket, 3);
    start(&mut guest, VERSION_1);
    assert_eq!(request(&mut guest, 1, 0, 0, DATA + 0x1000), 0);
    wait_interrupts(&mut guest, 0, 1);
    assert_eq!(guest.read32(0x60), 1);
    guest.write32(0x64, 1);
    assert_eq!(request(&mut guest, 2, 0, 0, DATA + 0x1000), 0);
    wait_interrupts(&mut guest, 0, 1);
    assert_eq!((guest.interrupts(1), guest.interrupts(2)), (0, 0));
    drop(guest);
    served.finish();
}

#[test]
fn a_guest_that_means_harm_breaks_only_its_device() {
    let served = disk(2);
    let mut guest = Guest::connect_to(&served.socket, 3);
    start(&mut guest, VERSION_1 | MULTI_IRQ);
    // A buffer outside memory: DEVICE_NEEDS_RESET (40h), and a reset cures it.
    guest.fill(DESCRIPTORS, &[&OUTSIDE.to_le_bytes()[..], &16u32.to_le_bytes(), &[0; 4]].concat());
    guest.fill(AVAILABLE + 2, &[1, 0]);
    guest.write32(0x50, 1);
    assert_eq!(guest.read32(0x70), 15 | 0x40);
    guest.fill(AVAILABLE + 2, &[0, 0]);
    guest.fill(USED, &[0; 4]);
    start(&mut guest, VERSION_1 | MULTI_IRQ);
    assert_eq!(request(&mut guest, 1, 0, 4000, DATA + 0x1000), 1, "beyond the end: an I/O error");
    // A buffer across a hole: both of its ends lie in memory.
    let end = MEMORY + MEMORY_BYTES;
    guest.client.dma_map(0, end + 0x1000, 0x1000, guest.memory.as_raw_fd()).expect("an answer");
    for (number, kind) in [(2, 0), (3, 1)] {
        assert_eq!(request_of(&mut guest, number, kind, 0, (end - 0x800, 0x2000)), 1);
    }
    // Writes arbitrary words to arbitrary registers.
    let mut random = 1u64;
    for _ in 0..2000 {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        guest.write32(((random >> 33) % 0x140) & !3, (random >> 20) as u32);
    }
    drop(guest);
    let mut next = Guest::connect_to(&served.socket, 3);
    start(&mut next, VERSION_1);
    next.fill(USED, &[0; 4]);
    next.fill(AVAILABLE + 2, &[0, 0]);
    assert_eq!(request(&mut next, 1, 0, 0, DATA + 0x1000), 0, "the next client finds it well");
    drop(next);
    assert!(served.finish().contains("virtio driver broke a queue"));
}

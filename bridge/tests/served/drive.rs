//! A guest driver uses the served drive: protocol, data, features, queues, interrupts.

use crate::guest::{DATA, Guest, MEMORY, Pair, Served};
use machine::nvme::HiddenCoalescing;
use machine::time::Ps;

const READ: u32 = 2;
const WRITE: u32 = 1;

fn pattern(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes).map(|index| (index as u8).wrapping_mul(31) ^ (index >> 8) as u8 ^ seed).collect()
}

#[test]
fn the_function_is_an_nvme_drive_with_msix() {
    let served = Served::start(1, None);
    let mut guest = Guest::connect(&served.socket);
    assert_eq!(guest.config(0x08, 4)[1..], [0x02, 0x08, 0x01], "class code, from the programming interface up");
    assert_eq!(guest.config(0x34, 1), [0x40]);
    assert_eq!(guest.config(0x40, 1), [0x11], "MSI-X capability");
    assert_eq!(guest.config(0x42, 2), [0x04, 0x80], "five vectors, enabled");
    let sizes: Vec<_> = guest.client.region(0).into_iter().chain(guest.client.region(7)).map(|r| r.size).collect();
    assert_eq!(sizes, [0x4000, 0x100]);
    guest.enable();
    // Identify Controller: MN at 24, NN at 516.
    assert_eq!(guest.admin(0x06, [DATA, 0], [1, 0, 0]).status, 0);
    assert!(guest.data(DATA + 24, 40).starts_with(b"Campanile:served"));
    assert_eq!(guest.data(DATA + 516, 4), [1, 0, 0, 0]);
    assert!(guest.interrupts(0) > 0, "the admin queue's vector");
    drop(guest);
    assert!(served.finish().contains("closed the connection"));
}

#[test]
fn bytes_come_back_through_pages_and_lists() {
    let served = Served::start(2, None);
    let (mut guest, mut pair) = Guest::with_queue(&served.socket);
    // 48 KiB from an offset inside a page: a list of 12 entries.
    let data = pattern(48 << 10, 7);
    guest.fill(DATA + 0x204, &data);
    let list: Vec<u8> = (1..=12).flat_map(|page: u64| (DATA + page * 0x1000).to_le_bytes()).collect();
    guest.fill(MEMORY + 0x8000, &list);
    assert_eq!(guest.io(&mut pair, WRITE, 100, 96, [DATA + 0x204, MEMORY + 0x8000]), 0);
    guest.fill(DATA, &vec![0; 0x1_4000]);
    assert_eq!(guest.io(&mut pair, READ, 100, 96, [DATA + 0x204, MEMORY + 0x8000]), 0);
    assert!(guest.data(DATA + 0x204, data.len()) == data);
    assert_eq!(guest.data(DATA + 0x200, 4), [0; 4], "nothing before it");
    assert_eq!(guest.data(DATA + 0x204 + data.len() as u64, 4), [0; 4], "nothing behind it");
    drop(guest);
    // The next client finds the same blocks.
    let (mut guest, mut pair) = Guest::with_queue(&served.socket);
    assert_eq!(guest.io(&mut pair, READ, 101, 1, [DATA, 0]), 0);
    assert!(guest.data(DATA, 512) == data[512..1024]);
    drop(guest);
    served.finish();
}

/// Submits `count` reads at once, waits for all of them, and returns how often vector 1 was signalled.
fn burst(guest: &mut Guest, pair: &mut Pair, count: u32) -> u64 {
    // Counts interrupts from here on. A message arrives after its completion entry.
    std::thread::sleep(std::time::Duration::from_millis(5));
    guest.interrupts(1);
    for lba in 0..count {
        guest.push_io(pair, READ, lba, 1, [DATA, 0]);
    }
    guest.ring(pair);
    for _ in 0..count {
        assert_eq!(guest.complete(pair).expect("a read completes").status, 0);
    }
    std::thread::sleep(std::time::Duration::from_millis(5));
    guest.interrupts(1)
}

#[test]
fn features_08h_and_09h_are_acted_on() {
    let served = Served::start(1, None);
    let (mut guest, mut pair) = Guest::with_queue(&served.socket);
    assert_eq!(burst(&mut guest, &mut pair, 1), 1);
    // Interrupt Coalescing: threshold 7 (eight entries), time 255 x 100 us. The time is longer than the burst.
    assert_eq!(guest.admin(0x09, [0; 2], [0x08, 255 << 8 | 7, 0]).status, 0);
    assert_eq!(guest.admin(0x0a, [0; 2], [0x08, 0, 0]).dw0, 255 << 8 | 7);
    for _ in 0..10 {
        // The host acknowledges entries during the burst, so the eight entries need not cause a message.
        let interrupts = burst(&mut guest, &mut pair, 32);
        assert!((1..=4).contains(&interrupts), "{interrupts} for 32 reads");
    }
    // Interrupt Vector Configuration of vector 1: coalescing disabled. Then a single entry is signalled.
    assert_eq!(guest.admin(0x09, [0; 2], [0x09, 1 << 16 | 1, 0]).status, 0);
    assert_eq!(guest.admin(0x0a, [0; 2], [0x09, 1, 0]).dw0, 1 << 16 | 1);
    assert_eq!(burst(&mut guest, &mut pair, 1), 1);
    // A vector that does not exist on the drive.
    assert_eq!(guest.admin(0x09, [0; 2], [0x09, 5, 0]).status, 0x02);
    drop(guest);
    served.finish();
}

#[test]
fn hidden_coalescing_acts_and_feature_08h_reads_zero() {
    let hidden = HiddenCoalescing { entries: 2, time: Ps::from_ns(60_000_000_000) };
    let served = Served::start(1, Some(hidden));
    let (mut guest, mut pair) = Guest::with_queue(&served.socket);
    assert_eq!(guest.admin(0x0a, [0; 2], [0x08, 0, 0]).dw0, 0, "feature 08h says off");
    // One entry waits for a second one.
    guest.push_io(&mut pair, READ, 0, 1, [DATA, 0]);
    guest.push_io(&mut pair, READ, 1, 1, [DATA, 0]);
    guest.ring(&pair);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let mut interrupts = 0;
    while interrupts == 0 && std::time::Instant::now() < deadline {
        interrupts = guest.interrupts(1);
    }
    assert_eq!(interrupts, 1);
    for _ in 0..2 {
        assert_eq!(guest.complete(&mut pair).expect("posted before the message").status, 0);
    }
    guest.push_io(&mut pair, READ, 0, 1, [DATA, 0]);
    guest.ring(&pair);
    assert_eq!(guest.complete(&mut pair).expect("posted").status, 0);
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(guest.interrupts(1), 0, "a single entry is held back");
    drop(guest);
    served.finish();
}

#[test]
fn queues_are_deleted_and_made_again() {
    let served = Served::start(1, None);
    let (mut guest, mut pair) = Guest::with_queue(&served.socket);
    assert_eq!(guest.io(&mut pair, READ, 0, 1, [DATA, 0]), 0);
    assert_eq!(guest.admin(0x04, [0; 2], [1, 0, 0]).status, 0x10c, "Invalid Queue Deletion: its user is there");
    assert_eq!(guest.admin(0x00, [0; 2], [1, 0, 0]).status, 0);
    assert_eq!(guest.admin(0x04, [0; 2], [1, 0, 0]).status, 0);
    let mut pair = guest.create_queue(3);
    assert_eq!(guest.io(&mut pair, READ, 0, 1, [DATA, 0]), 0);
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert_eq!(guest.interrupts(3), 1, "on the vector of the new queue");
    drop(guest);
    assert!(served.finish().contains("queues_deleted 2"));
}

#[test]
fn a_masked_vector_sends_when_the_mask_goes() {
    let served = Served::start(1, None);
    let (mut guest, mut pair) = Guest::with_queue(&served.socket);
    // Vector Control of entry 1 of the MSI-X table in BAR 4.
    guest.client.region_write(4, 16 + 12, &1u32.to_le_bytes()).expect("an answer");
    guest.push_io(&mut pair, READ, 0, 1, [DATA, 0]);
    guest.ring(&pair);
    let mut pending = [0; 8];
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while pending[0] & 2 == 0 && std::time::Instant::now() < deadline {
        guest.client.region_read(4, 0x8000, &mut pending).expect("an answer");
    }
    assert_eq!((pending[0] & 2, guest.interrupts(1)), (2, 0), "pending, not sent");
    guest.client.region_write(4, 16 + 12, &0u32.to_le_bytes()).expect("an answer");
    let mut dword = [0; 4];
    guest.client.region_read(4, 0x8000, &mut dword).expect("an answer, after the write took effect");
    assert_eq!((dword[0] & 2, guest.interrupts(1)), (0, 1));
    assert_eq!(guest.complete(&mut pair).expect("posted").status, 0);
    drop(guest);
    served.finish();
}

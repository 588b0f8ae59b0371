//! Software posting from the guest's side. This thread plays the guest's CPU: it harvests the descriptors in shared
//! memory with host atomics while the device's threads post. Offsets and words are the manual's
//! (docs/software-posting.md), not those of `spec`.

use crate::guest::{DATA, Guest, MEMORY, MEMORY_BYTES, Served};
use bridge::Poster;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};
use vm_memory::{FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, VolatileMemory};

const POSTING_BAR: u32 = 2;
const SOURCES: u16 = 8;
const DESCRIPTOR: u64 = DATA;
const SEQUENCE: u64 = DATA + 0x100;
const VECTOR_0: u8 = 0x30;
const READ: u32 = 2;

fn poster() -> Served {
    let poster = Poster { sources: SOURCES, threads: 4, slots: 2 };
    Served::serving(1, poster.try_into().expect("valid"))
}

fn write(guest: &mut Guest, bar: u32, offset: u64, value: u64, bytes: usize) {
    guest.client.region_write(bar, offset, &value.to_le_bytes()[..bytes]).expect("an answer");
}

fn read(guest: &mut Guest, bar: u32, offset: u64) -> u64 {
    let mut data = [0; 8];
    guest.client.region_read(bar, offset, &mut data).expect("an answer");
    u64::from_le_bytes(data)
}

/// Source `n` posts vector 30h + n through slot 0; the slot's notification is MSI-X vector `notification`.
fn post(guest: &mut Guest, sources: u16, notification: u16) {
    write(guest, POSTING_BAR, 0x100, DESCRIPTOR | 1, 8);
    write(guest, POSTING_BAR, 0x108, notification.into(), 4);
    for source in 0..sources {
        let entry = u64::from(VECTOR_0 + source as u8) << 8 | 1;
        write(guest, POSTING_BAR, 0x1000 + u64::from(source) * 4, entry, 4);
    }
    write(guest, POSTING_BAR, 0x10, 1, 4);
}

#[test]
fn the_block_is_found_by_its_capability() {
    let served = poster();
    let mut guest = Guest::connect_to(&served.socket, SOURCES + 2);
    assert_eq!(guest.config(0x40, 2), [0x11, 0x60], "MSI-X, then");
    assert_eq!(guest.config(0x60, 16), *b"\x09\x00\x10\x02SwPI\0\0\0\0\0\x40\0\0");
    assert_eq!(guest.config(0x42, 2), [0x09, 0x80], "ten vectors: eight sources, two for notifications");
    assert_eq!(guest.client.region(2).map(|region| region.size), Some(0x4000));
    assert_eq!(read(&mut guest, POSTING_BAR, 0), 0x0001_0000_4950_7753);
    drop(guest);
    served.finish();
}

/// Words of the guest's memory as the guest's CPU sees them.
struct Words(GuestMemoryMmap);

impl Words {
    fn with<R>(&self, address: u64, access: impl FnOnce(&AtomicU64) -> R) -> R {
        let slice = self.0.get_slice(GuestAddress(address), 8).expect("memory");
        access(slice.get_atomic_ref(0).expect("aligned"))
    }

    /// The handler of a notification: harvest, clear ON, harvest once more. Returns the requested vectors.
    fn serve(&self) -> u64 {
        let harvest = || self.with(DESCRIPTOR, |word| word.swap(0, SeqCst));
        let first = harvest();
        self.with(DESCRIPTOR + 32, |control| control.fetch_and(!1, SeqCst));
        first | harvest()
    }
}

#[test]
fn four_threads_post_and_no_request_is_lost() {
    const RAISES: u64 = 200_000;
    let served = poster();
    let mut guest = Guest::connect_to(&served.socket, SOURCES + 2);
    let file = guest.memory.try_clone().expect("a second");
    let region = (GuestAddress(MEMORY), MEMORY_BYTES as usize, Some(FileOffset::new(file, 0)));
    let words = Words(GuestMemoryMmap::from_ranges_with_files([region]).expect("mapped"));
    post(&mut guest, SOURCES, 9);
    for (offset, value) in [(0x08, SEQUENCE), (0x10, RAISES), (0x18, 1), (0x20, 64)] {
        write(&mut guest, 0, offset, value, 8);
    }
    write(&mut guest, 0, 0x04, 1, 4);
    // Uses the notifications alone to find requests, and the requests alone to find changed words.
    let (mut seen, mut taken) = ([0; SOURCES as usize], 0);
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut quiet_since = Instant::now();
    while quiet_since.elapsed() < Duration::from_millis(300) || read(&mut guest, 0, 0x00) >> 32 & 1 == 1 {
        assert!(Instant::now() < deadline, "seen {seen:?}");
        let notifications = guest.interrupts(9);
        if notifications == 0 {
            continue;
        }
        taken += notifications;
        quiet_since = Instant::now();
        let requests = words.serve() >> VECTOR_0;
        for source in (0..SOURCES).filter(|source| requests >> source & 1 == 1) {
            seen[usize::from(source)] = words.with(SEQUENCE + u64::from(source) * 8, |word| word.load(SeqCst));
        }
    }
    let finals: Vec<u64> = (0..SOURCES).map(|source| read(&mut guest, 0, 0x1000 + u64::from(source) * 8)).collect();
    assert_eq!((seen.to_vec(), finals.iter().sum::<u64>()), (finals, RAISES));
    assert_eq!(read(&mut guest, POSTING_BAR, 0x20), RAISES, "posts");
    assert_eq!(read(&mut guest, POSTING_BAR, 0x28), taken, "notifications");
    assert!((1..RAISES).contains(&taken), "{taken}");
    drop(guest);
    assert!(served.finish().contains(&format!("raises {RAISES}, posts {RAISES}")));
}

#[test]
fn a_drives_completions_are_posted() {
    let served = Served::start_posting(1, 2);
    // Five vectors of the function's own, two for notifications.
    let mut guest = Guest::connect_to(&served.socket, 7);
    guest.enable();
    let mut pair = guest.create_queue(1);
    post(&mut guest, 5, 6);
    for round in 0..3 {
        assert_eq!(guest.io(&mut pair, READ, 0, 1, [DATA + 0x1000, 0]), 0);
        // The message follows the completion entry.
        let deadline = Instant::now() + Duration::from_secs(20);
        while read(&mut guest, POSTING_BAR, 0x20) <= round && Instant::now() < deadline {}
    }
    assert_eq!((guest.interrupts(1), guest.interrupts(6)), (0, 1), "ON stays set");
    assert_eq!(guest.data(DESCRIPTOR, 8), (1u64 << 0x31).to_le_bytes());
    assert_eq!((read(&mut guest, POSTING_BAR, 0x20), read(&mut guest, POSTING_BAR, 0x28)), (3, 1));
    drop(guest);
    served.finish();
}

#[test]
fn a_reset_ends_posting_and_a_client_may_vanish_while_threads_post() {
    let poster = Poster { sources: SOURCES, threads: 4, slots: 2 };
    let served = Served::serving(3, poster.try_into().expect("valid"));
    for round in 0..3 {
        let mut guest = Guest::connect_to(&served.socket, SOURCES + 2);
        post(&mut guest, SOURCES, 9);
        for (offset, value) in [(0x08, SEQUENCE), (0x10, u64::MAX), (0x18, round), (0x20, 1000)] {
            write(&mut guest, 0, offset, value, 8);
        }
        write(&mut guest, 0, 0x04, 1, 4);
        match round {
            0 => {
                guest.client.reset().expect("an answer");
                assert_eq!((read(&mut guest, 0, 0x00) >> 32, read(&mut guest, POSTING_BAR, 0x10)), (0, 0));
                let before = guest.data(SEQUENCE, 64);
                std::thread::sleep(Duration::from_millis(20));
                assert!(before == guest.data(SEQUENCE, 64), "nothing is written after a reset");
            }
            1 => {
                // The memory is unmapped while the threads run: each stops at the first missing word.
                guest.client.dma_unmap(MEMORY, MEMORY_BYTES).expect("an answer");
                let deadline = Instant::now() + Duration::from_secs(20);
                while read(&mut guest, 0, 0x00) >> 32 != 2 {
                    assert!(Instant::now() < deadline, "the threads go on");
                }
            }
            _ => {}
        }
    }
    let said = served.finish();
    assert!(said.contains("a sequence word is not in memory"), "{said}");
}

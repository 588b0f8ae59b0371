//! Misbehaving guests and clients. The result is always an NVMe status or a closed connection, with a message; the
//! next client finds a working drive.

use crate::guest::{DATA, Guest, MEMORY, MEMORY_BYTES, OUTSIDE, Served};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

const READ: u32 = 2;
const WRITE: u32 = 1;
const DATA_TRANSFER_ERROR: u16 = 0x04;
const PRP_OFFSET_INVALID: u16 = 0x13;
/// CSTS.CFS.
const FATAL: u32 = 2;

/// The last client of a test: checks that everything works.
fn works(served: Served) -> String {
    let (mut guest, mut pair) = Guest::with_queue(&served.socket);
    guest.fill(DATA, &[0x5a; 512]);
    assert_eq!(guest.io(&mut pair, WRITE, 9, 1, [DATA, 0]), 0);
    assert_eq!(guest.io(&mut pair, READ, 9, 1, [DATA + 0x1000, 0]), 0);
    assert_eq!(guest.data(DATA + 0x1000, 512), [0x5a; 512]);
    drop(guest);
    served.finish()
}

#[test]
fn queues_outside_memory_are_a_fatal_status_that_a_reset_cures() {
    let served = Served::start(2, None);
    let mut guest = Guest::connect(&served.socket);
    guest.enable_with(OUTSIDE);
    guest.write32(0x1000, 1);
    guest.wait_csts(FATAL, FATAL);
    guest.enable();
    // An I/O completion queue outside memory: the entry cannot be written.
    assert_eq!(guest.admin(0x05, [OUTSIDE, 0], [63 << 16 | 2, 2 << 16 | 3, 0]).status, 0);
    assert_eq!(guest.admin(0x01, [MEMORY + 0x2000, 0], [63 << 16 | 2, 2 << 16 | 1, 0]).status, 0);
    guest.fill(MEMORY + 0x2000, &[0; 64]);
    guest.write32(0x1000 + 2 * 8, 1);
    guest.wait_csts(FATAL, FATAL);
    drop(guest);
    let said = works(served);
    assert!(said.contains("submission queue outside memory") && said.contains("completion queue outside memory"));
}

#[test]
fn bad_prps_are_a_status() {
    let served = Served::start(2, None);
    let (mut guest, mut pair) = Guest::with_queue(&served.socket);
    let last_page = MEMORY + MEMORY_BYTES - 0x1000;
    let mut status = |prp: [u64; 2], blocks| guest.io(&mut pair, READ, 0, blocks, prp);
    assert_eq!(status([OUTSIDE, 0], 1), DATA_TRANSFER_ERROR, "data outside memory");
    assert_eq!(status([last_page, MEMORY + MEMORY_BYTES], 16), DATA_TRANSFER_ERROR, "the second page is outside");
    assert_eq!(status([u64::MAX - 3, 0], 1), DATA_TRANSFER_ERROR, "the end of all addresses");
    assert_eq!(status([DATA + 1, 0], 1), PRP_OFFSET_INVALID);
    assert_eq!(status([DATA, OUTSIDE], 64), DATA_TRANSFER_ERROR, "a list outside memory");
    // A PRP list that is cut off by the end of memory: its last entry points outside.
    let torn = MEMORY + MEMORY_BYTES - 8;
    guest.fill(torn, &OUTSIDE.to_le_bytes());
    assert_eq!(guest.io(&mut pair, READ, 0, 64, [DATA, torn]), DATA_TRANSFER_ERROR);
    // A list whose last entry leads to itself, for ever: it ends with the data.
    let endless = DATA + 0x2_0ff8;
    guest.fill(endless, &(endless & !0xfff).to_le_bytes());
    guest.fill(endless & !0xfff, &(endless & !0xfff).to_le_bytes());
    let status = guest.io(&mut pair, READ, 0, 256, [DATA, endless]);
    assert!([0, DATA_TRANSFER_ERROR, PRP_OFFSET_INVALID].contains(&status), "{status:#x}");
    assert_eq!(guest.io(&mut pair, READ, 0, 1, [DATA, 0]), 0, "and the queue goes on");
    drop(guest);
    works(served);
}

#[test]
fn doorbells_beyond_range_are_reported_and_change_nothing() {
    let served = Served::start(2, None);
    let (mut guest, mut pair) = Guest::with_queue(&served.socket);
    for (offset, value) in [(0x1000 + 8, 64), (0x1000 + 8, 0xffff), (0x100c, 3), (0x1000 + 3 * 8, 1), (0x3ffc, 9)] {
        guest.write32(offset, value);
    }
    assert_eq!(guest.io(&mut pair, READ, 0, 1, [DATA, 0]), 0);
    drop(guest);
    let said = works(served);
    assert!(said.contains("doorbell_errors 5"), "{said}");
}

/// A message of the protocol: header, then its body. Command numbers and layout as in the vfio-user specification.
fn message(command: u16, body: &[u8]) -> Vec<u8> {
    let mut message = vec![0; 16];
    message[2..4].copy_from_slice(&command.to_le_bytes());
    message[4..8].copy_from_slice(&(16 + body.len() as u32).to_le_bytes());
    message.extend(body);
    message
}

#[test]
fn accesses_outside_the_bars_are_refused() {
    let served = Served::start(2, None);
    let mut stream = UnixStream::connect(&served.socket).expect("the server takes clients");
    for (region, offset, bytes) in
        [(0u32, 0x4000u64, 4u32), (0, u64::MAX - 3, 4), (0, 0, 3), (0, 0, 16), (2, 0, 4), (7, 255, 2)]
    {
        let mut body =
            [offset.to_le_bytes().to_vec(), region.to_le_bytes().to_vec(), bytes.to_le_bytes().to_vec()].concat();
        body.resize(16 + bytes as usize, 0);
        stream.write_all(&message(10, &body)).expect("sent");
        let mut answer = [0; 16];
        stream.read_exact(&mut answer).expect("an answer");
        assert_eq!(answer[8], 0x21, "reply and error: region {region}, {bytes} bytes at {offset:#x}");
    }
    drop(stream);
    let said = works(served);
    assert_eq!(said.matches("refused:").count(), 6, "{said}");
}

#[test]
fn a_reset_in_the_middle_of_io_leaves_a_drive_that_starts_again() {
    let served = Served::start(2, None);
    let (mut guest, mut pair) = Guest::with_queue(&served.socket);
    for round in 0..20 {
        for lba in 0..32 {
            guest.push_io(&mut pair, if lba % 2 == 0 { WRITE } else { READ }, lba, 8, [DATA, 0]);
        }
        guest.ring(&pair);
        match round % 3 {
            // Function-level reset, controller reset, or removal of memory while I/O is in flight.
            0 => guest.client.reset().expect("an answer"),
            1 => guest.write32(0x14, 0),
            _ => {
                use std::os::fd::AsRawFd;
                guest.client.dma_unmap(MEMORY, MEMORY_BYTES).expect("an answer");
                guest.client.dma_map(0, MEMORY, MEMORY_BYTES, guest.memory.as_raw_fd()).expect("an answer");
            }
        }
        guest.enable_msix();
        guest.enable();
        pair = guest.create_queue(1);
        assert_eq!(guest.io(&mut pair, READ, 0, 1, [DATA, 0]), 0);
    }
    drop(guest);
    works(served);
}

#[test]
fn a_client_that_vanishes_leaves_the_server_to_the_next() {
    let served = Served::start(6, None);
    for _ in 0..5 {
        let (mut guest, mut pair) = Guest::with_queue(&served.socket);
        for lba in 0..60 {
            guest.push_io(&mut pair, WRITE, lba, 8, [DATA, 0]);
        }
        guest.ring(&pair);
    }
    works(served);
}

#[test]
fn a_client_that_speaks_something_else_is_cut_off() {
    let version = |bytes: u32, text: &[u8]| {
        let mut message = message(1, &[&[0, 0, 1, 0], text].concat());
        message[4..8].copy_from_slice(&bytes.to_le_bytes());
        message
    };
    let messages = [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0xff; 4096],
        version(20 + 4, b"none"),
        version(3, b""),
        version(20 + 3, b"{}\0"),
        message(9, &[]),
        vec![1],
    ];
    let served = Served::start(messages.len() + 1, None);
    for message in messages {
        let mut stream = UnixStream::connect(&served.socket).expect("the server takes clients");
        // The server may close the connection during this write.
        let _ = stream.write_all(&message);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    works(served);
}

#[test]
fn memory_cannot_be_cut_off_under_the_drive() {
    use std::os::fd::AsRawFd;
    let served = Served::start(3, None);
    let (mut guest, mut pair) = Guest::with_queue(&served.socket);
    assert!(guest.memory.set_len(0).is_err(), "the server has sealed it");
    assert_eq!(guest.io(&mut pair, READ, 0, 1, [DATA, 0]), 0);
    drop(guest);
    // Memory that cannot be sealed is not mapped, so the queues are outside memory.
    let mut guest = Guest::connect(&served.socket);
    guest.client.dma_unmap(MEMORY, MEMORY_BYTES).expect("an answer");
    let plain = tempfile::tempfile().expect("a scratch file");
    plain.set_len(MEMORY_BYTES).expect("room");
    guest.client.dma_map(0, MEMORY, MEMORY_BYTES, plain.as_raw_fd()).expect("an answer");
    plain.set_len(0).expect("it is the client's");
    guest.enable();
    guest.write32(0x1000, 1);
    guest.wait_csts(FATAL, FATAL);
    drop(guest);
    let said = works(served);
    assert!(said.contains("its file may shrink while it is mapped"), "{said}");
}

#[test]
fn maps_that_cannot_be_are_refused_and_the_others_stay() {
    use std::os::fd::AsRawFd;
    let served = Served::start(2, None);
    let (mut guest, mut pair) = Guest::with_queue(&served.socket);
    for (offset, address, bytes) in [
        (0, MEMORY + MEMORY_BYTES / 2, MEMORY_BYTES),
        (0, MEMORY, MEMORY_BYTES),
        (0, OUTSIDE, 1 << 60),
        (0, 0, u64::MAX),
        (u64::MAX - 0xfff, OUTSIDE, 0x2000),
        (0, u64::MAX - 0xfff, 0x2000),
        (MEMORY_BYTES, OUTSIDE, 0x1000),
        (0, OUTSIDE, 0),
    ] {
        guest.client.dma_map(offset, address, bytes, guest.memory.as_raw_fd()).expect("an answer");
    }
    // Unmapping a part of a region, or more than the region, has no effect.
    guest.client.dma_unmap(MEMORY, MEMORY_BYTES / 2).expect("an answer");
    guest.client.dma_unmap(MEMORY, u64::MAX).expect("an answer");
    assert_eq!(guest.io(&mut pair, READ, 0, 1, [DATA, 0]), 0);
    assert_eq!(guest.io(&mut pair, READ, 0, 1, [OUTSIDE, 0]), DATA_TRANSFER_ERROR);
    drop(guest);
    let said = works(served);
    assert_eq!(said.matches("refused: memory at").count(), 8, "{said}");
}

#[test]
fn descriptors_outside_memory_are_faults_and_completions_still_come() {
    let served = Served::start_posting(2, 2);
    let mut guest = Guest::connect_to(&served.socket, 7);
    guest.enable();
    let mut pair = guest.create_queue(1);
    let mut write = |offset: u64, value: u64, bytes: usize| {
        guest.client.region_write(2, offset, &value.to_le_bytes()[..bytes]).expect("an answer");
    };
    write(0x1004, 0x3101, 4);
    write(0x10, 1, 4);
    // Not valid; outside; across the end of memory; the last addresses; not aligned (refused).
    let end = MEMORY + MEMORY_BYTES;
    for descriptor in [0, OUTSIDE | 1, end | 1, !0x3f | 1, DATA | 0x21] {
        guest.client.region_write(2, 0x100, &descriptor.to_le_bytes()).expect("an answer");
        assert_eq!(guest.io(&mut pair, READ, 0, 1, [DATA, 0]), 0, "{descriptor:#x}");
    }
    let mut counts = [0; 8];
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while u64::from_le_bytes(counts) < 6 && std::time::Instant::now() < deadline {
        guest.client.region_read(2, 0x38, &mut counts).expect("an answer");
    }
    assert_eq!(u64::from_le_bytes(counts), 6, "five requests lost, one write refused");
    assert_eq!((guest.interrupts(1), guest.interrupts(5), guest.interrupts(6)), (0, 0, 0));
    drop(guest);
    assert!(works(served).contains("posts 0, notifications 0"));
}

#[test]
fn random_posting_registers_do_no_harm_while_threads_post() {
    const SEEDS: u64 = 4;
    let poster = bridge::Poster { sources: 8, threads: 4, slots: 4 };
    let served = Served::serving(SEEDS as usize, poster.try_into().expect("valid"));
    for seed in 1..=SEEDS {
        let mut random = Random(seed);
        let mut guest = Guest::connect_to(&served.socket, 12);
        for (offset, value) in [(0x08, DATA), (0x10, u64::MAX), (0x18, seed), (0x20, 16), (0x00, 1 << 32)] {
            guest.write64(offset, value);
        }
        for _ in 0..400 {
            let (offset, value) = match random.below(4) {
                0 => (0x100 + random.below(8) * 8, MEMORY.wrapping_add(random.below(MEMORY_BYTES * 2)) & !0x3e),
                1 => (0x1000 + random.below(8) * 4, random.next() & 0x7_ff03),
                2 => (0x10, random.below(2)),
                _ => (random.below(0x4000), random.next()),
            };
            let bytes = [4, 8][random.below(2) as usize];
            // An access of 8 bytes that crosses the block's end is refused as a whole.
            guest.client.region_write(2, offset.min(0x3ff8), &value.to_le_bytes()[..bytes]).expect("an answer");
        }
        guest.client.reset().expect("an answer");
        assert_eq!(guest.read32(0x04) & 1, 0, "seed {seed}: the threads have ended");
        let mut control = [0; 4];
        guest.client.region_read(2, 0x10, &mut control).expect("an answer");
        assert_eq!(control, [0; 4], "seed {seed}");
    }
    served.finish();
}

/// xorshift64*: the seed alone reproduces a failure.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

#[test]
fn random_registers_and_queues_do_no_harm() {
    const SEEDS: usize = 6;
    let served = Served::start(SEEDS + 1, None);
    for seed in 1..=SEEDS as u64 {
        let mut random = Random(seed);
        let (mut guest, mut pair) = Guest::with_queue(&served.socket);
        for _ in 0..300 {
            match random.below(8) {
                0 => guest.write32(random.below(0x60) & !3, random.next() as u32),
                1 => guest.write32(0x1000 + (random.below(0x60) & !3), random.below(70) as u32),
                2 => guest.write64(0x28 + random.below(2) * 8, MEMORY + (random.below(0x2_0000) & !0xfff)),
                3 => {
                    let address = random.below(0x100) * 4;
                    guest.client.region_write(4, address, &(random.next() as u32).to_le_bytes()).expect("an answer");
                }
                _ => {
                    let prp = [0; 2].map(|_| MEMORY.wrapping_add(random.below(MEMORY_BYTES * 2)) & !3);
                    let dwords = [random.below(64) as u32, 0, random.below(300) as u32];
                    guest.push(&mut pair, random.below(16) as u32, 1, prp, dwords);
                    guest.ring(&pair);
                }
            }
        }
        guest.client.reset().expect("an answer");
        guest.enable_msix();
        guest.enable();
        let mut pair = guest.create_queue(1);
        assert_eq!(guest.io(&mut pair, READ, 0, 1, [DATA, 0]), 0, "seed {seed}");
    }
    works(served);
}

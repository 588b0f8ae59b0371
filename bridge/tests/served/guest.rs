//! A VMM and its guest in one: a vfio-user client with memory, eventfds and a small driver. Offsets and words are
//! literals from the manuals (NVMe Base 2.0, PCIe Transport 1.0, PCI), not taken from `spec`.

use bridge::{Drive, MemoryBlocks, Report, Server};
use machine::nvme::{Config, HiddenCoalescing};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Address and size of the guest's memory.
pub(crate) const MEMORY: u64 = 0x10_0000;
pub(crate) const MEMORY_BYTES: u64 = 0x10_0000;
pub(crate) const OUTSIDE: u64 = 0x4000_0000;

const ADMIN_SQ: u64 = MEMORY;
const ADMIN_CQ: u64 = MEMORY + 0x1000;
const IO_SQ: u64 = MEMORY + 0x2000;
const IO_CQ: u64 = MEMORY + 0x4000;
/// Address of free memory for data.
pub(crate) const DATA: u64 = MEMORY + 0x1_0000;

const CONFIG: u32 = 7;
const MSIX: u32 = 2;
const TRIGGER_EVENTFD: u32 = 1 << 2 | 1 << 5;

const PATIENCE: Duration = Duration::from_secs(20);

fn drive(hidden: Option<HiddenCoalescing>) -> Drive {
    let bytes = 8 << 20;
    let config = Config { io_queues_max: 4, hidden_coalescing: hidden, ..Config::default() };
    Drive::new(Arc::new(MemoryBlocks::new(bytes)), bytes as u64, config).expect("valid")
}

/// A server that accepts this many clients, one after another.
pub(crate) struct Served {
    pub(crate) socket: PathBuf,
    reports: Arc<Mutex<Vec<String>>>,
    thread: JoinHandle<()>,
    _folder: tempfile::TempDir,
}

impl Served {
    pub(crate) fn start(clients: usize, hidden: Option<HiddenCoalescing>) -> Self {
        Self::serving(clients, drive(hidden).into())
    }

    /// A drive with a posting block.
    pub(crate) fn start_posting(clients: usize, slots: u16) -> Self {
        Self::serving(clients, drive(None).with_posting(slots).expect("valid"))
    }

    pub(crate) fn serving(clients: usize, served: bridge::Served) -> Self {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let socket = folder.path().join("drive");
        let reports = Arc::new(Mutex::new(Vec::new()));
        let report: Report = Arc::new({
            let reports = reports.clone();
            move |line: &str| reports.lock().expect("no panic while held").push(line.to_owned())
        });
        let server = Server::bind(&socket, served, report).expect("a new socket");
        let thread = std::thread::spawn(move || {
            for _ in 0..clients {
                server.serve_one().expect("clients are accepted");
            }
        });
        Self { socket, reports, thread, _folder: folder }
    }

    /// Waits until every client has come and gone and the server has ended well. Returns the server's messages.
    pub(crate) fn finish(self) -> String {
        self.thread.join().expect("the server does not panic");
        self.reports.lock().expect("no panic while held").join("\n")
    }
}

pub(crate) struct Completion {
    pub(crate) dw0: u32,
    /// Status code type and code, without DNR and phase.
    pub(crate) status: u16,
}

/// A queue pair as the driver sees it.
pub(crate) struct Pair {
    qid: u64,
    sq: u64,
    cq: u64,
    entries: u64,
    tail: u64,
    head: u64,
    phase: u16,
}

impl Pair {
    fn new(qid: u64, sq: u64, cq: u64, entries: u64) -> Self {
        Self { qid, sq, cq, entries, tail: 0, head: 0, phase: 1 }
    }
}

pub(crate) struct Guest {
    pub(crate) client: vfio_user::Client,
    pub(crate) memory: File,
    pub(crate) vectors: Vec<File>,
    admin: Pair,
}

impl Guest {
    /// Connects to a drive, shares memory, sets up MSI-X. The drive is not enabled.
    pub(crate) fn connect(socket: &Path) -> Self {
        Self::connect_to(socket, 5)
    }

    /// Like the previous function, but connects to a function with this many MSI-X vectors.
    pub(crate) fn connect_to(socket: &Path, vectors: u16) -> Self {
        let mut client = vfio_user::Client::new(socket).expect("the server takes clients");
        let memory: File =
            memfd_create("guest", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("memory").into();
        memory.set_len(MEMORY_BYTES).expect("room");
        client.dma_map(0, MEMORY, MEMORY_BYTES, memory.as_raw_fd()).expect("an answer");
        let vectors: Vec<File> =
            (0..vectors).map(|_| eventfd(0, EventfdFlags::NONBLOCK).expect("an eventfd").into()).collect();
        let fds: Vec<_> = vectors.iter().map(AsRawFd::as_raw_fd).collect();
        client.set_irqs(MSIX, TRIGGER_EVENTFD, 0, fds.len() as u32, &fds).expect("an answer");
        let mut guest = Self { client, memory, vectors, admin: Pair::new(0, ADMIN_SQ, ADMIN_CQ, 32) };
        guest.enable_msix();
        guest
    }

    /// MSI-X Enable: bit 15 of message control, two bytes behind the capability at 40h.
    pub(crate) fn enable_msix(&mut self) {
        self.client.region_write(CONFIG, 0x42, &0x8000u16.to_le_bytes()).expect("an answer");
    }

    /// Connected, enabled, with I/O queue pair 1 of 64 entries on vector 1.
    pub(crate) fn with_queue(socket: &Path) -> (Self, Pair) {
        let mut guest = Self::connect(socket);
        guest.enable();
        let pair = guest.create_queue(1);
        (guest, pair)
    }

    pub(crate) fn config(&mut self, offset: u64, bytes: usize) -> Vec<u8> {
        let mut data = vec![0; bytes];
        self.client.region_read(CONFIG, offset, &mut data).expect("an answer");
        data
    }

    pub(crate) fn read32(&mut self, offset: u64) -> u32 {
        let mut data = [0; 4];
        self.client.region_read(0, offset, &mut data).expect("an answer");
        u32::from_le_bytes(data)
    }

    pub(crate) fn write32(&mut self, offset: u64, value: u32) {
        self.client.region_write(0, offset, &value.to_le_bytes()).expect("an answer");
    }

    pub(crate) fn write64(&mut self, offset: u64, value: u64) {
        self.client.region_write(0, offset, &value.to_le_bytes()).expect("an answer");
    }

    /// Waits until `CSTS & mask` is `value`.
    pub(crate) fn wait_csts(&mut self, mask: u32, value: u32) {
        let deadline = Instant::now() + PATIENCE;
        while self.read32(0x1c) & mask != value {
            assert!(Instant::now() < deadline, "CSTS stays {:#x}", self.read32(0x1c));
        }
    }

    /// A controller reset, then CC.EN with admin queues at `sq`.
    pub(crate) fn enable_with(&mut self, sq: u64) {
        self.write32(0x14, 0);
        self.wait_csts(1, 0);
        self.memory.write_all_at(&[0; 0x1000], ADMIN_CQ - MEMORY).expect("room");
        self.write32(0x24, 31 << 16 | 31);
        self.write64(0x28, sq);
        self.write64(0x30, ADMIN_CQ);
        // IOCQES 4, IOSQES 6, EN.
        self.write32(0x14, 0x0046_0001);
        self.wait_csts(1, 1);
        self.admin = Pair::new(0, ADMIN_SQ, ADMIN_CQ, 32);
    }

    pub(crate) fn enable(&mut self) {
        self.enable_with(ADMIN_SQ);
    }

    pub(crate) fn create_queue(&mut self, qid: u64) -> Pair {
        self.memory.write_all_at(&[0; 0x1000], IO_CQ - MEMORY).expect("room");
        let size_and_id = 63 << 16 | qid as u32;
        // Create I/O Completion Queue 05h: vector in 31:16, IEN, PC. Create I/O Submission Queue 01h: CQID, PC.
        assert_eq!(self.admin(0x05, [IO_CQ, 0], [size_and_id, (qid as u32) << 16 | 3, 0]).status, 0);
        assert_eq!(self.admin(0x01, [IO_SQ, 0], [size_and_id, (qid as u32) << 16 | 1, 0]).status, 0);
        Pair::new(qid, IO_SQ, IO_CQ, 64)
    }

    pub(crate) fn admin(&mut self, opcode: u32, prp: [u64; 2], dwords: [u32; 3]) -> Completion {
        let mut admin = std::mem::replace(&mut self.admin, Pair::new(0, 0, 0, 0));
        self.push(&mut admin, opcode, 0, prp, dwords);
        self.ring(&admin);
        let completion = self.complete(&mut admin).expect("an admin command completes");
        self.admin = admin;
        completion
    }

    /// Puts a command into a submission queue, without the doorbell.
    pub(crate) fn push(&self, pair: &mut Pair, opcode: u32, nsid: u32, prp: [u64; 2], dwords: [u32; 3]) {
        let mut words = [0u32; 16];
        (words[0], words[1]) = (opcode | (pair.tail as u32) << 16, nsid);
        for (index, pointer) in prp.into_iter().enumerate() {
            words[6 + index * 2] = pointer as u32;
            words[7 + index * 2] = (pointer >> 32) as u32;
        }
        words[10..13].copy_from_slice(&dwords);
        let bytes: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
        self.memory.write_all_at(&bytes, pair.sq - MEMORY + pair.tail * 64).expect("room");
        pair.tail = (pair.tail + 1) % pair.entries;
    }

    /// Read (02h) or Write (01h) of `blocks` blocks from `lba`.
    pub(crate) fn push_io(&self, pair: &mut Pair, opcode: u32, lba: u32, blocks: u32, prp: [u64; 2]) {
        self.push(pair, opcode, 1, prp, [lba, 0, blocks - 1]);
    }

    pub(crate) fn ring(&mut self, pair: &Pair) {
        self.write32(0x1000 + pair.qid * 8, pair.tail as u32);
    }

    /// The next completion if it arrives in time. Rings the head doorbell.
    pub(crate) fn complete(&mut self, pair: &mut Pair) -> Option<Completion> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut entry = [0; 16];
            self.memory.read_exact_at(&mut entry, pair.cq - MEMORY + pair.head * 16).expect("inside");
            let half = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
            if half(14) & 1 == pair.phase {
                pair.head += 1;
                if pair.head == pair.entries {
                    (pair.head, pair.phase) = (0, pair.phase ^ 1);
                }
                self.write32(0x1004 + pair.qid * 8, pair.head as u32);
                let dw0 = u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
                return Some(Completion { dw0, status: half(14) >> 1 & 0x7ff });
            }
            if Instant::now() > deadline || self.read32(0x1c) & 2 != 0 {
                return None;
            }
        }
    }

    /// Carries out one I/O and returns its status.
    pub(crate) fn io(&mut self, pair: &mut Pair, opcode: u32, lba: u32, blocks: u32, prp: [u64; 2]) -> u16 {
        self.push_io(pair, opcode, lba, blocks, prp);
        self.ring(pair);
        self.complete(pair).expect("an I/O completes").status
    }

    /// How often the vector was signalled since the last call.
    pub(crate) fn interrupts(&mut self, vector: usize) -> u64 {
        let mut count = [0; 8];
        // An eventfd without a signal cannot be read.
        (&self.vectors[vector]).read_exact(&mut count).map_or(0, |()| u64::from_ne_bytes(count))
    }

    pub(crate) fn fill(&self, address: u64, bytes: &[u8]) {
        self.memory.write_all_at(bytes, address - MEMORY).expect("inside");
    }

    pub(crate) fn data(&self, address: u64, bytes: usize) -> Vec<u8> {
        let mut data = vec![0; bytes];
        self.memory.read_exact_at(&mut data, address - MEMORY).expect("inside");
        data
    }
}

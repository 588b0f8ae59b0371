//! The served drive under the requests of a client: configuration space, BARs, interrupts, memory that comes and goes,
//! commands and queues inside memory or outside.

use crate::input::Input;
use machine::nvme::Config;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, ServerBackend};

/// Address and length of the guest's memory.
const MEMORY: u64 = 0x10_0000;
const MEMORY_BYTES: u64 = 0x1_0000;
const DRIVE_BYTES: usize = 1 << 20;
/// Region numbers of the protocol.
const CONFIG: u32 = 7;
const REGIONS: [u32; 8] = [0, 2, 4, 0, 4, 0, CONFIG, 9];
/// Requests of one input.
const STEPS_MAX: usize = 200;
const ENTRIES: u16 = 16;

/// Whatever a client asks, the answer is a value or an error, and the device lives.
pub(crate) fn served(data: &[u8]) {
    let said = Arc::new(Mutex::new(Vec::new()));
    let report = said.clone();
    let report = Arc::new(move |line: &str| report.lock().expect("pushing does not panic").push(line.to_owned()));
    let config = Config { io_queues_max: 2, queue_entries_max: 64, ..Config::default() };
    let blocks = Arc::new(bridge::MemoryBlocks::new(DRIVE_BYTES));
    let drive = bridge::Drive::new(blocks, DRIVE_BYTES as u64, config).expect("valid");
    let memory = tempfile::tempfile().and_then(|file| file.set_len(MEMORY_BYTES).map(|()| file)).expect("a file");
    let mut input = Input::new(data);
    let slots = if input.flag() { 4 } else { 0 };
    let backend = bridge::backend(drive.with_posting(slots).expect("so many there can be"), report);
    let mut client = Client { input, backend, memory, tails: [0; 2] };
    client.run();
    drop(client);
    let said = said.lock().expect("nobody is left");
    let panicked = said.iter().find(|line| line.contains("panicked"));
    assert_eq!(panicked, None);
}

struct Client<'a, B> {
    input: Input<'a>,
    backend: B,
    memory: File,
    /// Tails of the admin queue and of I/O queue 1.
    tails: [u16; 2],
}

impl<B: ServerBackend> Client<'_, B> {
    fn run(&mut self) {
        if !self.input.one_in(8) {
            self.map(MEMORY, 0, MEMORY_BYTES);
            self.bring_up();
        }
        for _ in 0..STEPS_MAX {
            if self.input.is_empty() {
                return;
            }
            match self.input.u8() % 16 {
                0..=2 => self.access(),
                3 => {
                    let (address, offset, bytes) = (self.address(), self.offset(), self.offset());
                    self.map(address, offset, bytes);
                }
                4 => {
                    let flags = if self.input.one_in(4) { DmaUnmapFlags::UNMAP_ALL } else { DmaUnmapFlags::empty() };
                    let (address, bytes) = (self.address(), self.offset());
                    let _ = self.backend.dma_unmap(flags, address, bytes);
                }
                5 => self.interrupts(),
                6 => _ = self.backend.reset(),
                7 => self.bring_up(),
                8 => {
                    let (at, value) = (u64::from(self.input.u16()) % MEMORY_BYTES, self.input.u64());
                    self.put(at & !7, &[value]);
                }
                9 => {
                    let doorbell = u64::from(self.input.u8() % 10) * 4;
                    let value = self.input.u16() % (2 * ENTRIES);
                    self.write(0, 0x1000 + doorbell, &u32::from(value).to_le_bytes());
                }
                _ => self.command(),
            }
        }
    }

    fn write(&mut self, region: u32, offset: u64, bytes: &[u8]) {
        let _ = self.backend.region_write(region, offset, bytes);
    }

    fn put(&self, at: u64, words: &[u64]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.memory.write_all_at(&bytes, at).expect("room");
    }

    /// Any access: in a BAR or not, of any length.
    fn access(&mut self) {
        let region = self.input.pick(&REGIONS);
        let offset = match self.input.u8() % 8 {
            0 => self.input.u64(),
            1 => self.input.u16().into(),
            2 => 0x1000 + u64::from(self.input.u8()) * 4,
            _ => u64::from(self.input.u8()) * 4,
        };
        let len = self.input.pick(&[4, 8, 4, 1, 2, 3, 16, 300]);
        if self.input.flag() {
            let mut bytes = self.input.bytes(len).to_vec();
            bytes.resize(len, 0);
            self.write(region, offset, &bytes);
        } else {
            let _ = self.backend.region_read(region, offset, &mut vec![0; len]);
        }
    }

    fn address(&mut self) -> u64 {
        match self.input.u8() % 4 {
            0 => self.input.u64(),
            1 => u64::MAX - u64::from(self.input.u16()),
            _ => MEMORY + u64::from(self.input.u8() % 18) * 0x1000,
        }
    }

    fn offset(&mut self) -> u64 {
        if self.input.one_in(8) { self.input.u64() } else { u64::from(self.input.u8() % 18) * 0x1000 }
    }

    fn map(&mut self, address: u64, offset: u64, bytes: u64) {
        let file = (!self.input.one_in(16)).then(|| self.memory.try_clone().expect("a second descriptor"));
        let flags = DmaMapFlags::READ_WRITE;
        let _ = self.backend.dma_map(flags, offset, address, bytes, file);
    }

    /// Eventfds, or other files, of any vectors; masks; triggers. Index 2 is MSI-X.
    fn interrupts(&mut self) {
        let index = if self.input.one_in(8) { self.input.u8().into() } else { 2 };
        let flags = self.input.pick(&[0x24, 0x24, 0x21, 0x09, 0x11, 0x22, 0x3f, 0]);
        let (start, count) = (u32::from(self.input.u8() % 4), u32::from(self.input.u8() % 4));
        let count = if self.input.one_in(16) { (u32::MAX - start).saturating_add(self.input.below(2)) } else { count };
        let fds = (0..self.input.u8() % 4)
            .map(|_| match self.input.one_in(8) {
                true => self.memory.try_clone().expect("a second descriptor"),
                false => rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).expect("an eventfd").into(),
            })
            .collect();
        let _ = self.backend.set_irqs(index, flags, start, count, fds);
    }

    /// Sets up as a driver does: MSI-X, admin queue, one I/O queue pair. The input chooses the addresses.
    fn bring_up(&mut self) {
        self.tails = [0; 2];
        self.write(CONFIG, 0x42, &[0, 0x80]);
        self.write(0, 0x14, &[0; 4]);
        let places =
            [0, 0x1000, 0x2000, 0x3000].map(|at| if self.input.one_in(8) { self.address() } else { MEMORY + at });
        self.write(0, 0x24, &[15, 0, 15, 0]);
        self.write(0, 0x28, &places[0].to_le_bytes());
        self.write(0, 0x30, &places[1].to_le_bytes());
        self.write(0, 0x14, &0x0046_0001_u32.to_le_bytes());
        for _ in 0..50 {
            let mut status = [0; 4];
            if self.backend.region_read(0, 0x1c, &mut status).is_err() || status[0] & 3 != 0 {
                break;
            }
            std::thread::yield_now();
        }
        let entries = u64::from(ENTRIES - 1) << 16;
        self.push(0, [0x05, 0, 0, places[3], 0, 1 | entries | (3 | 1 << 16) << 32, 0, 0]);
        self.push(0, [0x01, 0, 0, places[2], 0, 1 | entries | (1 | 1 << 16) << 32, 0, 0]);
    }

    fn push(&mut self, queue: usize, command: [u64; 8]) {
        let tail = &mut self.tails[queue];
        let at = queue as u64 * 0x2000 + u64::from(*tail) * 64;
        *tail = (*tail + 1) % ENTRIES;
        let value = u32::from(*tail);
        self.put(at, &command);
        self.write(0, 0x1000 + 8 * queue as u64, &value.to_le_bytes());
    }

    /// A command that often is nearly right, with lists that may be torn or endless.
    fn command(&mut self) {
        let queue = usize::from(self.input.u8() & 1);
        let opcode = u64::from(self.input.u8() % 16) | u64::from(self.input.u8()) << 16;
        let nsid = if self.input.one_in(8) { self.input.u32() } else { 1 };
        let list = 0x4000 + u64::from(self.input.u8() % 4) * 0x1000;
        if self.input.one_in(4) {
            let entry = if self.input.flag() { MEMORY + list } else { self.address() };
            self.put(list, &[entry; 512]);
        }
        let prp = [self.address(), if self.input.flag() { MEMORY + list } else { self.address() }];
        let dwords = [self.input.u16(), self.input.u16(), self.input.u16(), self.input.u16()].map(u64::from);
        let words = [
            opcode | u64::from(nsid) << 32,
            0,
            0,
            prp[0],
            prp[1],
            dwords[0] | dwords[1] << 32,
            dwords[2] & 0xff | dwords[3] << 32,
            0,
        ];
        self.push(queue, words);
    }
}

//! A queue pair against words written by hand, as the manual lays them out. How a device behaves is tested elsewhere,
//! against a model of one.

mod look;
#[cfg(loom)]
mod loom_look;
mod port;
mod reap;
mod submit;

use super::queue::Parts;
use super::*;
use alloc::sync::Arc;
use alloc::vec::Vec;
use hal::host::{HostHal, HostRegs};
use hal::{DeviceAddress, Dma, Regs, Word};
use std::sync::Mutex;

extern crate std;

/// What the driver did that others can see, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Event {
    Doorbell(u32, u32),
    Batch(Vec<Completed>),
}

#[derive(Default)]
struct Log(Mutex<Vec<Event>>);

impl Log {
    fn take(&self) -> Vec<Event> {
        core::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Regs for Log {
    fn read32(&self, offset: u32) -> u32 {
        panic!("a queue pair reads register {offset:#x}")
    }
    fn write32(&self, offset: u32, value: u32) {
        self.0.lock().unwrap().push(Event::Doorbell(offset, value));
    }
    fn read64(&self, offset: u32) -> u64 {
        panic!("a queue pair reads register {offset:#x}")
    }
    fn write64(&self, offset: u32, value: u64) {
        panic!("a queue pair writes {value:#x} to register {offset:#x} in 64 bits")
    }
}

impl BatchDone for Log {
    fn batch_done(&self, batch: &[Completed]) {
        self.0.lock().unwrap().push(Event::Batch(batch.into()));
    }
}

/// Queue pair 3 of a controller with DSTRD 0: doorbells 1018h and 101Ch.
struct Rig {
    hal: HostHal,
    log: Arc<Log>,
    pair: QueuePair<HostHal>,
}

const SQ_DOORBELL: u32 = 0x1018;
const CQ_DOORBELL: u32 = 0x101c;
const BLOCKS: u64 = 1 << 20;

impl Rig {
    fn new(entries: u16, transfer_bytes_max: u32) -> Self {
        Self::on(HostHal::manual(1), entries, transfer_bytes_max)
    }

    fn on(hal: HostHal, entries: u16, transfer_bytes_max: u32) -> Self {
        let log = Arc::new(Log::default());
        let pair = QueuePair::new(Parts {
            hal,
            regs: Arc::new(HostRegs::new(log.clone())),
            dstrd: 0,
            qid: 3,
            entries,
            vector: Some(5),
            namespace: Namespace { nsid: 1, blocks: BLOCKS, block_shift: 9 },
            deallocates: true,
            transfer_bytes_max,
            done: log.clone(),
        })
        .unwrap();
        pair.restart();
        pair.open();
        Self { hal, log, pair }
    }

    /// A submission queue entry as the device reads it.
    fn command(&self, index: usize) -> [u64; 8] {
        let queue = self.hal.dma_at(self.pair.sq_address()).unwrap();
        core::array::from_fn(|word| queue.words()[index * 8 + word].get())
    }

    /// A completion queue entry as the device writes it.
    fn post(&self, index: usize, words: [u64; 2]) {
        let queue = self.hal.dma_at(self.pair.cq_address()).unwrap();
        queue.words()[index * 2].set(words[0]);
        queue.words()[index * 2 + 1].set(words[1]);
    }

    /// Submits `count` reads with tags from `tag` on.
    fn submit_reads(&self, tag: u64, count: usize) -> Submitted {
        let requests: Vec<_> = (0..count as u64).map(|i| read(tag + i, 8 * i, 0x10_0000, 4096)).collect();
        self.pair.submit(&requests)
    }
}

fn read(tag: u64, lba: u64, buffer: u64, len_bytes: u32) -> IoRequest {
    IoRequest { tag, op: IoOp::Read, lba, buffer: DeviceAddress(buffer), len_bytes }
}

/// The second word of a completion for queue 3: SQHD 15:0, SQID 31:16, CID 47:32, P 48, SC and SCT from 49 on.
fn entry(sqhd: u64, cid: u64, phase: u64, status: u64) -> u64 {
    sqhd | 3 << 16 | cid << 32 | phase << 48 | status << 49
}

fn done(tag: u64, result: Result<u32, IoError>) -> Completed {
    Completed { tag, result, submitted_ns: 0, cpu: hal::CpuId(0) }
}

//! The disk's load: keeps some requests in flight on each queue, and knows how each of them ended.

use super::buffers::{BYTES, Buffers, Room};
use crate::mark::Mark;
use crate::verdict::violate;
use drivers::virtio::QueueFault;
use drivers::virtio::block::{BatchDone, Block, BlockOp, BlockRequest, Completed};
use hal::{DeviceAddress, Dma as _, Hal, ThreadId, Threads};
use machine::SimHal;
use spec::virtio::feature::Feature;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// Most CPUs of a history.
pub(super) const CPUS_MAX: usize = 4;
/// Queues that the disk may have.
pub(super) const QUEUES_MAX: usize = 3;
/// Descriptors of each.
pub(super) const ENTRIES: u64 = 16;

#[derive(Default)]
struct Queue {
    left: AtomicU64,
    /// How often somebody has asked it to go on.
    asked: AtomicU64,
    in_flight: AtomicU64,
    broken: AtomicBool,
    /// The device has lied about the queue, so its used ring cannot be trusted until the queue's reset. If no request
    /// was in flight then, the lie shows only when later requests meet the wrong entries.
    distrusted: AtomicBool,
}

/// The load.
pub(super) struct Load {
    queues: [Queue; QUEUES_MAX],
    depth: u64,
    disk: Mutex<Option<Arc<Block<SimHal>>>>,
    /// For requests that must be refused.
    page: <SimHal as Hal>::Dma,
    pub(super) buffers: Buffers,
    next: AtomicU64,
    /// Resets under way: requests may fail.
    pub(super) disrupted: AtomicU32,
    /// The device breaks its queues.
    pub(super) hostile: bool,
    /// Memory may run out.
    pub(super) exhausted: bool,
    /// The thread that a broken queue wakes.
    pub(super) repairer: OnceLock<ThreadId>,
    /// Batches of requests that have ended on each CPU.
    ended: [AtomicU64; CPUS_MAX],
}

impl Load {
    pub(super) fn new(depth: u64, memory: [<SimHal as Hal>::Dma; 2], (hostile, exhausted): (bool, bool)) -> Self {
        let [page, buffers] = memory;
        Self {
            queues: Default::default(),
            depth,
            disk: Mutex::default(),
            page,
            buffers: Buffers::new(buffers, hostile),
            next: AtomicU64::new(0),
            disrupted: AtomicU32::new(0),
            hostile,
            exhausted,
            repairer: OnceLock::new(),
            ended: [const { AtomicU64::new(0) }; CPUS_MAX],
        }
    }

    /// Batches of requests that have ended on this CPU.
    pub(super) fn ended_here(&self) -> &AtomicU64 {
        &self.ended[SimHal.cpu().index()]
    }

    /// The present driver.
    pub(super) fn disk(&self) -> Option<Arc<Block<SimHal>>> {
        self.disk.lock().expect("one host thread").clone()
    }

    /// Where requests point that must be refused.
    pub(super) fn page(&self) -> DeviceAddress {
        self.page.device_address()
    }

    pub(super) fn set_disk(&self, disk: Option<Arc<Block<SimHal>>>) {
        *self.disk.lock().expect("one host thread") = disk;
    }

    /// The queue of this number, modulo their number.
    pub(super) fn queue_of(&self, disk: &Block<SimHal>, number: u32) -> u16 {
        (number % u32::from(disk.queues())) as u16
    }

    pub(super) fn add(&self, queue: u16, count: u64) {
        self.queues[usize::from(queue)].left.fetch_add(count, Relaxed);
        self.go_on(queue);
    }

    /// Submits until the depth is reached, or the queue is full.
    pub(super) fn go_on(&self, queue: u16) {
        let own = &self.queues[usize::from(queue)];
        own.asked.fetch_add(1, Relaxed);
        while own.in_flight.load(Relaxed) < self.depth && self.submit_one(queue) {}
    }

    /// Whether to try once more.
    fn submit_one(&self, queue: u16) -> bool {
        let own = &self.queues[usize::from(queue)];
        let Some(disk) = self.disk() else { return false };
        let left = own.left.load(Relaxed);
        if left == 0 {
            return false;
        }
        let asked = own.asked.load(Relaxed);
        own.left.store(left - 1, Relaxed);
        own.in_flight.fetch_add(1, Relaxed);
        let tag = self.next.fetch_add(1, Relaxed);
        Mark::Submitted.of(tag);
        let op = match tag % 16 {
            0 => BlockOp::Flush,
            1..=6 if !disk.info().read_only() => BlockOp::Write,
            _ => BlockOp::Read,
        };
        let request = self.request(tag, op);
        let accepted = disk.submit(queue, &[request]).accepted == 1;
        if !accepted {
            Mark::Refused.of(tag);
            self.buffers.refuse(tag);
            own.in_flight.fetch_sub(1, Relaxed);
            own.left.fetch_add(1, Relaxed);
        }
        // Who has asked meanwhile, because the disk is there again, has found this request taken.
        accepted || own.asked.load(Relaxed) != asked
    }

    fn request(&self, tag: u64, op: BlockOp) -> BlockRequest {
        if op == BlockOp::Flush {
            return BlockRequest { tag, op, sector: 0, buffer: self.page(), len_bytes: 0 };
        }
        let Room { address, sector } = self.buffers.take(tag, op);
        BlockRequest { tag, op, sector, buffer: address, len_bytes: BYTES as u32 }
    }

    /// Gives every queue reads until it takes no more. Nothing is in flight, so it must take as many as it ever could: a
    /// read is three descriptors, or one if it may be indirect.
    pub(super) fn fill(&self) -> u64 {
        let Some(disk) = self.disk() else { return 0 };
        let is_indirect = disk.info().features.has(Feature::INDIRECT_DESC);
        let expected = if is_indirect { ENTRIES } else { ENTRIES / 3 };
        for queue in 0..disk.queues() {
            let own = &self.queues[usize::from(queue)];
            let tags: Vec<u64> = (0..=expected).map(|_| self.next.fetch_add(1, Relaxed)).collect();
            let request = |&tag: &u64| {
                Mark::Submitted.of(tag);
                self.request(tag, BlockOp::Read)
            };
            let requests: Vec<_> = tags.iter().map(request).collect();
            own.in_flight.fetch_add(expected, Relaxed);
            let accepted = disk.submit(queue, &requests).accepted as u64;
            for &tag in tags.iter().skip(accepted as usize) {
                Mark::Refused.of(tag);
                self.buffers.refuse(tag);
            }
            if accepted != expected {
                let text = format!("queue {queue} takes {accepted} requests at once, and it has room for {expected}");
                violate("fullness", text);
            }
        }
        expected
    }

    /// Queues that broke since the last call.
    pub(super) fn take_broken(&self) -> Vec<u16> {
        let broken = |queue: &u16| self.queues[usize::from(*queue)].broken.swap(false, Relaxed);
        (0..QUEUES_MAX as u16).filter(broken).collect()
    }

    /// True if the device's reports on a queue can be trusted: not between a lie and the queue's reset.
    pub(super) fn trust(&self, queue: u16, trusted: bool) {
        self.queues[usize::from(queue)].distrusted.store(!trusted, Relaxed);
    }

    fn may_fail(&self, queue: u16) -> bool {
        self.disrupted.load(Relaxed) > 0 || self.queues[usize::from(queue)].distrusted.load(Relaxed)
    }

    /// Nothing is left to do, and nobody is at work on the disk.
    pub(super) fn is_idle(&self) -> bool {
        self.disrupted.load(Relaxed) == 0
            && self.queues.iter().all(|queue| queue.left.load(Relaxed) == 0 && queue.in_flight.load(Relaxed) == 0)
    }

    pub(super) fn describe(&self) -> String {
        let queue =
            |queue: &Queue| format!("{} left, {} in flight", queue.left.load(Relaxed), queue.in_flight.load(Relaxed));
        let queues: Vec<_> = self.queues.iter().map(queue).collect();
        format!("disk: {}\n", queues.join("; "))
    }
}

/// The receiver of the driver's reports: the load, which owns the driver.
pub(super) struct Told(pub(super) Weak<Load>);

impl BatchDone for Told {
    fn batch_done(&self, queue: u16, batch: &[Completed]) {
        let Some(load) = self.0.upgrade() else { return };
        load.ended_here().fetch_add(1, Relaxed);
        for done in batch {
            load.buffers.end(done.tag, done.result.is_ok());
            match done.result {
                Ok(()) => Mark::Completed.of(done.tag),
                Err(_) if load.may_fail(queue) => Mark::Failed.of(done.tag),
                Err(error) => {
                    violate("operations", format!("request {} failed, {error}, and no fault explains it", done.tag))
                }
            }
            load.queues[usize::from(queue)].in_flight.fetch_sub(1, Relaxed);
        }
        load.go_on(queue);
    }

    fn queue_broken(&self, queue: u16, fault: QueueFault) {
        let Some(load) = self.0.upgrade() else { return };
        if !load.hostile {
            violate("operations", format!("queue {queue} broke, {fault}, and no fault explains it"));
        }
        load.queues[usize::from(queue)].broken.store(true, Relaxed);
        load.repairer.get().into_iter().for_each(|&thread| SimHal.wake(thread));
    }
}

//! One queue of a block device: its slots, each with a header and a status byte that the device sees.

use super::super::{Part, Queue, QueueFault, Refusal, Used, VirtioError};
use super::{BlockError, BlockOp, BlockRequest, Completed};
use alloc::boxed::Box;
use alloc::vec::Vec;
use hal::{DeviceAddress, Dma, Hal, Word, Work};
use spec::virtio::block::{ID_BYTES, Outcome, Request, header};

/// Completions handed on at once.
pub(super) const BATCH: usize = 32;
/// Bytes of a slot in device memory: header, then status.
const SLOT_BYTES: usize = 32;
const STATUS: usize = header::BYTES;
/// Initial value of the status byte; shows whether the device has written one.
const UNANSWERED: u8 = 0xff;

/// Counters of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BlockQueueCounters {
    /// Requests accepted.
    pub requests: u64,
    /// Requests that are over, however.
    pub completed: u64,
    /// Of them, those that failed.
    pub errors: u64,
    /// Notifications written.
    pub notifications: u64,
}

/// A request in its slot.
#[derive(Clone, Copy)]
struct Slot {
    tag: u64,
    submitted_ns: u64,
    /// Bytes that the device writes for a complete request: data and status.
    writes_bytes: u32,
}

/// Data that the lock guards.
pub(super) struct Side<H: Hal> {
    queue: Queue<H>,
    memory: H::Dma,
    slots: Box<[Option<Slot>]>,
    free: Vec<u16>,
    told_broken: bool,
    counters: BlockQueueCounters,
    /// Rings of the last start, if it failed when the device had their addresses. The device may use them until this queue or
    /// the device is reset.
    unready: Option<Queue<H>>,
}

/// Completions, the number of valid ones, and a fault that was not reported yet.
pub(super) type Batch = ([Completed; BATCH], usize, Option<QueueFault>);

impl<H: Hal> Side<H> {
    /// Memory for the slots of a queue of at most so many entries.
    pub(super) fn memory(hal: H, entries_max: u16) -> Result<H::Dma, VirtioError> {
        Ok(hal.dma_alloc(usize::from(entries_max.max(1)) * SLOT_BYTES, 64)?)
    }

    /// Its memory was allocated before the device started the queue: nothing may fail between the start and the first owner of
    /// the rings.
    pub(super) fn new(memory: H::Dma, queue: Queue<H>) -> Self {
        let entries = queue.memory().entries;
        Self {
            memory,
            slots: (0..entries).map(|_| None).collect(),
            free: (0..entries).rev().collect(),
            told_broken: false,
            counters: BlockQueueCounters::default(),
            queue,
            unready: None,
        }
    }

    fn at(&self, slot: u16, offset: usize) -> DeviceAddress {
        self.memory.device_address().offset((usize::from(slot) * SLOT_BYTES + offset) as u64)
    }

    pub(super) fn add(&mut self, request: &BlockRequest, now_ns: u64) -> Result<(), Refusal> {
        let &slot = self.free.last().ok_or(Refusal::Full)?;
        let (kind, sector, len_bytes) = match request.op {
            BlockOp::Read => (Request::IN, request.sector, request.len_bytes),
            BlockOp::Write => (Request::OUT, request.sector, request.len_bytes),
            BlockOp::Flush => (Request::FLUSH, 0, 0),
            BlockOp::GetId => (Request::GET_ID, 0, ID_BYTES as u32),
        };
        let first = usize::from(slot) * SLOT_BYTES;
        self.memory.words()[(first + header::TYPE) / 8].set(kind.0.into());
        self.memory.words()[(first + header::SECTOR) / 8].set(sector);
        self.memory.write8(first + STATUS, UNANSWERED);
        let head = Part::read(self.at(slot, 0), header::BYTES as u32);
        let status = Part::write(self.at(slot, STATUS), 1);
        let writes = request.op != BlockOp::Write;
        let data = Part { address: request.buffer, len_bytes, device_writes: writes };
        if len_bytes == 0 {
            self.queue.add(slot.into(), &[head, status])?;
        } else {
            self.queue.add(slot.into(), &[head, data, status])?;
        }
        self.free.pop();
        let writes_bytes = 1 + if writes { len_bytes } else { 0 };
        self.slots[usize::from(slot)] = Some(Slot { tag: request.tag, submitted_ns: now_ns, writes_bytes });
        self.counters.requests += 1;
        Ok(())
    }

    pub(super) fn publish(&mut self) -> bool {
        let notify = self.queue.publish();
        self.counters.notifications += u64::from(notify);
        notify
    }

    pub(super) fn take(&mut self, hal: H) -> Batch {
        let mut batch = [Completed { tag: 0, result: Ok(()), submitted_ns: 0 }; BATCH];
        let mut count = 0;
        while count < BATCH
            && let Ok(Some(used)) = self.queue.take()
        {
            if let Some(completed) = self.complete(used) {
                batch[count] = completed;
                count += 1;
            }
        }
        hal.work(Work::ReapEntry, count as u32);
        let fault = self.queue.fault().filter(|_| !self.told_broken);
        self.told_broken |= fault.is_some();
        (batch, count, fault)
    }

    fn complete(&mut self, used: Used) -> Option<Completed> {
        let slot = used.tag as u16;
        let outcome = Outcome(self.memory.read8(usize::from(slot) * SLOT_BYTES + STATUS));
        self.end(slot, |slot| match outcome {
            Outcome::OK if used.written_bytes >= slot.writes_bytes => Ok(()),
            Outcome::OK | Outcome(UNANSWERED) => Err(BlockError::Short(used.written_bytes)),
            other => Err(BlockError::Device(other)),
        })
    }

    fn end(&mut self, slot: u16, result: impl FnOnce(&Slot) -> Result<(), BlockError>) -> Option<Completed> {
        let ended = self.slots[usize::from(slot)].take()?;
        self.free.push(slot);
        let result = result(&ended);
        self.counters.completed += 1;
        self.counters.errors += u64::from(result.is_err());
        Some(Completed { tag: ended.tag, result, submitted_ns: ended.submitted_ns })
    }

    /// Ends one request that the device cannot reach any more.
    pub(super) fn reclaim(&mut self, error: BlockError) -> Option<Completed> {
        let slot = self.queue.reclaim()? as u16;
        self.end(slot, |_| Err(error))
    }

    pub(super) fn enable_notifications(&mut self) -> bool {
        self.queue.enable_notifications()
    }

    /// Keeps the rings of a start that failed. Those of an earlier one are freed: the queue was reset since.
    pub(super) fn keep(&mut self, unready: Queue<H>) {
        self.unready = Some(unready);
    }

    pub(super) fn stop(&mut self) {
        self.queue.stop();
    }

    pub(super) fn fault(&self) -> Option<QueueFault> {
        self.queue.fault()
    }

    pub(super) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn oldest_ns(&self) -> Option<u64> {
        self.slots.iter().flatten().map(|slot| slot.submitted_ns).min()
    }

    pub(super) fn counters(&self) -> BlockQueueCounters {
        self.counters
    }
}

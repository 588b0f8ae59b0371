//! A dedicated work queue: submission through the portal, completion by records, and the interrupt handler.

use super::{BatchDone, Completed, DsaError, Fill, Next, QueueConfig, Refusal, Submitted, TransferError};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use hal::{Dma, Hal, Lock, Regs, Word, Work};
use irq::{Action, Irq, IrqReturn};
use spec::dsa::{
    CompletionRecord, CompletionStatus, Control, Descriptor, Flags, Opcode, Portal, RecordHead, Size, portal,
};

/// Words of a completion record.
const RECORD_WORDS: usize = CompletionRecord::BYTES / 8;

/// Counters of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueCounters {
    /// Descriptors written to the portal.
    pub submitted: u64,
    /// Of them, descriptors that the user submitted in answer to a batch of completions.
    pub resubmitted: u64,
    /// Submissions cut short because the queue was full.
    pub full: u64,
    /// Descriptors that ended, with or without an error.
    pub completed: u64,
    /// Of them, descriptors that failed.
    pub errors: u64,
    /// Bytes filled, including the bytes before a fault.
    pub bytes: u64,
    /// Calls of the interrupt handler.
    pub interrupts: u64,
    /// Of them, calls that found no completion.
    pub empty_interrupts: u64,
    /// Of those, interrupts before which a poll had taken completions. The handler reports them as handled.
    pub overtaken_interrupts: u64,
    /// Completions that the interrupt handler found.
    pub interrupt_completions: u64,
    /// Calls of [`WorkQueue::poll`].
    pub polls: u64,
    /// Of them, calls that found no completion.
    pub empty_polls: u64,
}

/// Snapshot of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueSnapshot {
    /// Number of the queue.
    pub index: u8,
    /// True while the queue accepts requests.
    pub open: bool,
    /// Number of entries.
    pub entries: u16,
    /// Descriptors in flight.
    pub in_flight: u16,
    /// Submission time of the oldest descriptor in flight.
    pub oldest_ns: Option<u64>,
    /// Counters.
    pub counters: QueueCounters,
}

impl fmt::Display for QueueSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let c = &self.counters;
        write!(
            f,
            "work queue {}: {}, {} of {} in flight, {} submitted, {} completed ({} errors), {} interrupts ({} empty)",
            self.index,
            if self.open { "open" } else { "closed" },
            self.in_flight,
            self.entries,
            c.submitted,
            c.completed,
            c.errors,
            c.interrupts,
            c.empty_interrupts,
        )
    }
}

/// A descriptor in flight.
#[derive(Clone, Copy, Default)]
struct Slot {
    tag: u64,
    submitted_ns: u64,
    bytes: u32,
}

/// Written under the lock.
struct Side {
    open: bool,
    slots: Vec<Slot>,
    /// Slots in flight, unordered, because engines overtake each other.
    busy: Vec<u16>,
    free: Vec<u16>,
    /// Has room for every slot, as do the other vectors here; none of them ever grows.
    batch: Vec<Completed>,
    next: Next,
    /// Completions were taken without an interrupt since the last one.
    taken_early: bool,
    counters: QueueCounters,
}

/// A dedicated work queue. The caller requests its interrupt's line with the queue as the action.
pub struct WorkQueue<H: Hal> {
    hal: H,
    index: u8,
    portals: Arc<H::Regs>,
    interrupt: Option<u16>,
    entries: u16,
    transfer_bytes_max: u32,
    /// A completion record for each slot.
    records: H::Dma,
    done: Arc<dyn BatchDone>,
    /// 1 once the device was told to disable it, and did not say whether it has.
    leaving: H::Word,
    side: Lock<H, Side>,
}

impl<H: Hal> WorkQueue<H> {
    pub(super) fn new(
        hal: H,
        portals: Arc<H::Regs>,
        config: &QueueConfig,
        done: Arc<dyn BatchDone>,
    ) -> Result<Self, DsaError> {
        let count = usize::from(config.entries);
        let transfer_bytes_max = config.transfer_bytes_max;
        let side = Side {
            open: false,
            slots: alloc::vec![Slot::default(); count],
            busy: Vec::with_capacity(count),
            free: (0..config.entries).rev().collect(),
            batch: Vec::with_capacity(count),
            next: Next { fills: Vec::with_capacity(count), room: 0, transfer_bytes_max },
            taken_early: false,
            counters: QueueCounters::default(),
        };
        Ok(Self {
            hal,
            index: config.index,
            portals,
            interrupt: config.interrupt,
            entries: config.entries,
            transfer_bytes_max,
            records: hal.dma_alloc(count * CompletionRecord::BYTES, CompletionRecord::BYTES)?,
            done,
            leaving: H::Word::new(0),
            side: Lock::new(hal, side),
        })
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.get() != 0
    }

    pub(super) fn set_leaving(&self, is_leaving: bool) {
        self.leaving.set(is_leaving.into());
    }

    /// Its number.
    pub fn index(&self) -> u8 {
        self.index
    }

    /// Submits requests from the front until one is refused.
    pub fn submit(&self, fills: &[Fill]) -> Submitted {
        let mut side = self.side.lock();
        for (accepted, fill) in fills.iter().enumerate() {
            if let Err(refusal) = self.submit_one(&mut side, fill) {
                side.counters.full += u64::from(refusal == Refusal::Full);
                return Submitted { accepted, refusal: Some(refusal) };
            }
        }
        Submitted { accepted: fills.len(), refusal: None }
    }

    fn submit_one(&self, side: &mut Side, fill: &Fill) -> Result<(), Refusal> {
        if !side.open {
            return Err(Refusal::Stopped);
        }
        fill.validate(self.transfer_bytes_max)?;
        let slot = side.free.pop().ok_or(Refusal::Full)?;
        side.slots[usize::from(slot)] = Slot { tag: fill.tag, submitted_ns: self.hal.now_ns(), bytes: fill.bytes };
        side.busy.push(slot);
        side.counters.submitted += 1;
        self.head_word(slot).set(RecordHead::new().with_status(CompletionStatus::NONE.0).into_bits());
        self.write_portal(self.descriptor(slot, fill));
        Ok(())
    }

    fn descriptor(&self, slot: u16, fill: &Fill) -> Descriptor {
        let flags = Flags::new()
            .with_record_valid(true)
            .with_request_record(true)
            .with_request_interrupt(self.interrupt.is_some());
        let record = self.records.device_address().offset(u64::from(slot) * CompletionRecord::BYTES as u64);
        Descriptor {
            control: Control::new().with_flags(flags.into_bits()).with_opcode(Opcode::FILL.0),
            record: record.0,
            source: fill.pattern,
            destination: fill.destination.0,
            size: Size::new().with_bytes(fill.bytes).with_interrupt_handle(self.interrupt.unwrap_or(0)),
            specific: [0; 3],
        }
    }

    /// Writes eight quadwords in order; the last one submits. The lock keeps other submitters out meanwhile.
    fn write_portal(&self, descriptor: Descriptor) {
        let base = portal(self.index, Portal::UnlimitedMsix);
        for (word, offset) in descriptor.to_words().into_iter().zip((0..).step_by(8)) {
            self.portals.write64(base + offset, word);
        }
    }

    /// The first word of a slot's completion record: it holds the status, which the device writes last.
    fn head_word(&self, slot: u16) -> &H::Word {
        &self.records.words()[usize::from(slot) * RECORD_WORDS]
    }

    /// Takes completed descriptors without an interrupt, and returns their number.
    pub fn poll(&self) -> usize {
        let mut side = self.side.lock();
        self.hal.work(Work::PollLook, 1);
        let taken = self.reap(&mut side);
        side.taken_early |= taken > 0;
        side.counters.polls += 1;
        side.counters.empty_polls += u64::from(taken == 0);
        taken
    }

    /// Takes every descriptor whose record has a status, reports them to the user, and submits the user's next
    /// requests.
    fn reap(&self, side: &mut Side) -> usize {
        let mut looked = 0;
        while let Some(&slot) = side.busy.get(looked) {
            // A plain read first. If it finds a status, an acquire load orders the rest of the record and the data
            // before all later reads.
            if self.head_word(slot).get() == 0 {
                looked += 1;
                continue;
            }
            let head = RecordHead::from_bits(self.head_word(slot).load());
            let result = self.outcome(slot, head, side.slots[usize::from(slot)].bytes);
            side.end(looked, result);
        }
        let taken = side.batch.len();
        if taken > 0 {
            self.hal.work(Work::ReapEntry, taken as u32);
            self.deliver(side);
        }
        taken
    }

    /// Converts a completion record into the descriptor's result.
    fn outcome(&self, slot: u16, head: RecordHead, bytes: u32) -> Result<u32, TransferError> {
        if head.status() == CompletionStatus::SUCCESS.0 {
            return Ok(bytes);
        }
        Err(TransferError::Device {
            status: CompletionStatus(head.status()),
            // Caps the count at the requested length, whatever the device reports.
            bytes_completed: head.bytes_completed().min(bytes),
            fault_address: self.records.words()[usize::from(slot) * RECORD_WORDS + 1].get(),
        })
    }

    /// Hands the batch to the user, and submits the user's next requests.
    fn deliver(&self, side: &mut Side) {
        side.next.room = if side.open { side.free.len() } else { 0 };
        self.done.batch_done(&side.batch, &mut side.next);
        side.batch.clear();
        let mut fills = core::mem::take(&mut side.next.fills);
        for fill in fills.drain(..) {
            // `push` has checked the request, and the room is still free because the lock was held throughout.
            if self.submit_one(side, &fill).is_ok() {
                side.counters.resubmitted += 1;
            }
        }
        side.next.fills = fills;
    }

    /// Counters and state.
    pub fn snapshot(&self) -> QueueSnapshot {
        let side = self.side.lock();
        QueueSnapshot {
            index: self.index,
            open: side.open,
            entries: self.entries,
            in_flight: side.busy.len() as u16,
            oldest_ns: side.busy.iter().map(|&slot| side.slots[usize::from(slot)].submitted_ns).min(),
            counters: side.counters,
        }
    }

    /// Opens the queue to requests, or closes it to them.
    pub(super) fn set_open(&self, open: bool) {
        self.side.lock().open = open;
    }

    /// Ends a queue that the device has finished with, or will never finish: takes the last completions and ends all
    /// other descriptors with `why`. No request can arrive at this time, because the queue is not open.
    pub(super) fn fail_all(&self, why: TransferError) {
        let mut side = self.side.lock();
        side.taken_early |= self.reap(&mut side) > 0;
        while !side.busy.is_empty() {
            side.end(0, Err(why));
        }
        if !side.batch.is_empty() {
            self.deliver(&mut side);
        }
    }
}

impl Side {
    /// Ends the descriptor at index `place` of the busy list.
    fn end(&mut self, place: usize, result: Result<u32, TransferError>) {
        let slot = self.busy.swap_remove(place);
        let Slot { tag, submitted_ns, .. } = self.slots[usize::from(slot)];
        self.free.push(slot);
        self.counters.completed += 1;
        self.counters.errors += u64::from(result.is_err());
        self.counters.bytes += match result {
            Ok(bytes) => bytes.into(),
            Err(TransferError::Device { bytes_completed, .. }) => bytes_completed.into(),
            Err(_) => 0,
        };
        self.batch.push(Completed { tag, result, submitted_ns });
    }
}

/// The handler of the queue's interrupt. The device sends a message for each descriptor, and an earlier handler or a poll may
/// have taken that descriptor already. The counters record such empty interrupts.
impl<H: Hal> Action for WorkQueue<H> {
    fn handle(&self, _irq: Irq) -> IrqReturn {
        self.hal.work(Work::IrqHandler, 1);
        let mut side = self.side.lock();
        let taken = self.reap(&mut side);
        let overtaken = core::mem::take(&mut side.taken_early) && taken == 0;
        side.counters.interrupts += 1;
        side.counters.empty_interrupts += u64::from(taken == 0);
        side.counters.overtaken_interrupts += u64::from(overtaken);
        side.counters.interrupt_completions += taken as u64;
        if taken > 0 || overtaken { IrqReturn::Handled } else { IrqReturn::None }
    }
}

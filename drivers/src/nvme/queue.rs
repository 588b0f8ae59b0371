//! A queue pair: its memory, its submission side, and what both sides share.

use super::error::check_range;
use super::look::{LookState, Sharing, Yield};
use super::prp;
use super::reap::CompletionSide;
use super::ring::Cursor;
use super::slots::{FreeIds, Slot, Taken, slots};
use super::stats::SubmissionCounters;
use super::tuning::QueueTuning;
use super::{BatchDone, IoOp, IoRequest, Namespace, NvmeError, QueueSnapshot, QueueState, Refusal, Submitted};
use crate::register::Typed as _;
use alloc::boxed::Box;
use alloc::sync::Arc;
use hal::{CpuId, DeviceAddress, Dma, Hal, Lock, LockGuard, Word};
use spec::nvme::{CQE_BYTES, Cdw0, Command, DatasetDw11, DatasetRange, IoOpcode, ReadWriteDw12, SQE_BYTES, registers};
use spec::register::{Register, WriteOnly};

/// 64-bit words of a submission queue entry.
const SQE_WORDS: usize = SQE_BYTES / 8;

/// What a queue pair is made with.
pub(super) struct Parts<H: Hal> {
    pub(super) hal: H,
    pub(super) regs: Arc<H::Regs>,
    pub(super) dstrd: u8,
    pub(super) qid: u16,
    pub(super) entries: u16,
    pub(super) vector: Option<u16>,
    pub(super) namespace: Namespace,
    /// The device has Dataset Management.
    pub(super) deallocates: bool,
    /// 0 for a queue whose commands bring their own PRPs.
    pub(super) transfer_bytes_max: u32,
    pub(super) done: Arc<dyn BatchDone>,
}

/// A submission queue and its completion queue.
///
/// Any thread may submit and any may reap. Each side has its own lock, and neither waits for the other. The pair stays
/// valid memory after its controller has deleted it; it then refuses all requests and reaps nothing.
pub struct QueuePair<H: Hal> {
    pub(super) hal: H,
    regs: Arc<H::Regs>,
    qid: u16,
    pub(super) entries: u16,
    vector: Option<u16>,
    namespace: Namespace,
    deallocates: bool,
    transfer_bytes_max: u32,
    sq: H::Dma,
    pub(super) cq: H::Dma,
    sq_doorbell: Register<u32, WriteOnly>,
    cq_doorbell: Register<u32, WriteOnly>,
    /// A PRP list or a range to deallocate for each slot, none of which crosses a page.
    lists: Option<H::Dma>,
    list_stride_bytes: usize,
    pub(super) slots: Box<[Slot<H::Word>]>,
    pub(super) free: FreeIds<H::Word>,
    pub(super) done: Arc<dyn BatchDone>,
    submission: Lock<H, SubmissionSide>,
    pub(super) completion: Lock<H, CompletionSide>,
    /// The completion side's [`Cursor`], for looks without its lock.
    pub(super) cursor: H::Word,
    pub(super) look: LookState<H::Word>,
    pub(super) tuning: QueueTuning<H>,
}

/// Data that the submission lock guards.
struct SubmissionSide {
    state: QueueState,
    tail: u16,
    taken: Taken,
    counters: SubmissionCounters,
    look: LookSide,
}

/// State of the look that the submission side keeps.
pub(super) struct LookSide {
    pub(super) sharing: Sharing,
    pub(super) pays: Yield,
    pub(super) looks: u64,
    pub(super) hits: u64,
}

impl<H: Hal> QueuePair<H> {
    /// Allocates a pair, stopped.
    ///
    /// A queue of n entries has n − 1 slots, so its rings cannot overflow (Base 3.3.1: one entry stays empty). Both an
    /// unfetched entry and an unreaped completion count as a command in flight. The driver therefore does not need the
    /// device's queue head, and a wrong queue head from the device cannot starve the queue.
    pub(super) fn new(parts: Parts<H>) -> Result<Self, NvmeError> {
        let Parts { hal, regs, dstrd, qid, entries, vector, namespace, deallocates, transfer_bytes_max, done } = parts;
        let slot_count = entries - 1;
        let (free, given, taken) = FreeIds::new(slot_count);
        let page = prp::PAGE_BYTES as usize;
        let list_bytes = prp::list_entries(transfer_bytes_max) * prp::ENTRY_BYTES;
        let list_stride_bytes = list_bytes.max(size_of::<DatasetRange>()).next_power_of_two();
        // A command holds one or two pages itself, without a list.
        let lists = (deallocates || transfer_bytes_max > prp::PAGE_BYTES as u32)
            .then(|| hal.dma_alloc(list_stride_bytes * usize::from(slot_count), page))
            .transpose()?;
        let look = LookSide { sharing: Sharing::NONE, pays: Yield::default(), looks: 0, hits: 0 };
        let counters = SubmissionCounters::default();
        let side = SubmissionSide { state: QueueState::Stopped, tail: 0, taken, counters, look };
        Ok(Self {
            sq: hal.dma_alloc(usize::from(entries) * SQE_BYTES, page)?,
            cq: hal.dma_alloc(usize::from(entries) * CQE_BYTES, page)?,
            sq_doorbell: registers::sq_tail_doorbell(qid, dstrd),
            cq_doorbell: registers::cq_head_doorbell(qid, dstrd),
            slots: slots(slot_count),
            submission: Lock::new(hal, side),
            completion: Lock::new(hal, CompletionSide::new(given, slot_count)),
            cursor: H::Word::new(Cursor::START.to_word()),
            look: LookState::new(),
            tuning: QueueTuning::new(hal),
            hal,
            regs,
            qid,
            entries,
            vector,
            namespace,
            deallocates,
            transfer_bytes_max,
            lists,
            list_stride_bytes,
            free,
            done,
        })
    }

    /// Its number: 1 or above, or 0 for the admin queue.
    pub fn qid(&self) -> u16 {
        self.qid
    }

    /// The vector of its interrupts; none when it is polled.
    pub fn vector(&self) -> Option<u16> {
        self.vector
    }

    /// How many commands it can have in flight: one less than its entries.
    pub fn depth(&self) -> u16 {
        self.entries - 1
    }

    /// The longest transfer of one request, in bytes.
    pub fn transfer_bytes_max(&self) -> u32 {
        self.transfer_bytes_max
    }

    /// The namespace that its requests address.
    pub fn namespace(&self) -> Namespace {
        self.namespace
    }

    /// Submits requests in order, up to the first that cannot be accepted, and rings the doorbell once. Any CPU may
    /// submit to any queue.
    ///
    /// Where the [look](super::CompletionLook) is on, completions that lie there are then taken, so
    /// [`BatchDone::batch_done`] may run inside this call: hold no lock across it that it takes.
    pub fn submit(&self, requests: &[IoRequest]) -> Submitted {
        let mut side = self.submission.lock();
        self.make_ready(&mut side, requests.len());
        let now_ns = self.hal.now_ns();
        let cpu = self.hal.cpu();
        let mut accepted = 0;
        let mut refused = None;
        for request in requests {
            if let Err(why) = self.submit_one(&mut side, request, now_ns, cpu) {
                refused = Some(why);
                break;
            }
            accepted += 1;
        }
        self.ring(&mut side, accepted);
        side.counters.full += u64::from(refused == Some(Refusal::Full));
        let pending = accepted > 0 && self.look_after_submission(&mut side.look, cpu);
        // The batch's user may submit here again.
        drop(side);
        if pending {
            self.reap_after_submission();
        }
        Submitted { accepted, refused }
    }

    /// Submits one command that is complete except for its id.
    pub(super) fn submit_command(&self, command: Command, tag: u64) -> Result<(), Refusal> {
        let mut side = self.submission.lock();
        self.make_ready(&mut side, 1);
        let cid = self.take_slot(&mut side)?;
        let now_ns = self.hal.now_ns();
        self.write_entry(&mut side, command, cid, tag, now_ns, self.hal.cpu());
        self.ring(&mut side, 1);
        Ok(())
    }

    /// Fetches returned ids when the known free ids are too few.
    fn make_ready(&self, side: &mut SubmissionSide, wanted: usize) {
        if (side.taken.ready() as usize) < wanted {
            self.free.look(&mut side.taken);
        }
    }

    fn take_slot(&self, side: &mut SubmissionSide) -> Result<u16, Refusal> {
        if side.state != QueueState::Running {
            return Err(Refusal::Stopped);
        }
        self.free.take(&mut side.taken).ok_or(Refusal::Full)
    }

    fn submit_one(
        &self,
        side: &mut SubmissionSide,
        request: &IoRequest,
        now_ns: u64,
        cpu: CpuId,
    ) -> Result<(), Refusal> {
        let opcode = match request.op {
            IoOp::Read => IoOpcode::READ,
            IoOp::Write => IoOpcode::WRITE,
            IoOp::Flush => IoOpcode::FLUSH,
            IoOp::Deallocate => IoOpcode::DATASET_MANAGEMENT,
        };
        let mut command = Command { nsid: self.namespace.nsid, ..Command::default() };
        command.cdw0.set_opcode(opcode.0);
        if request.op == IoOp::Flush {
            let cid = self.take_slot(side)?;
            self.write_entry(side, command, cid, request.tag, now_ns, cpu);
            return Ok(());
        }
        if request.op == IoOp::Deallocate {
            return self.deallocate(side, command, request, now_ns, cpu);
        }
        let blocks = check_range(&self.namespace, request.lba, request.len_bytes, self.transfer_bytes_max)?;
        check_buffer(request.buffer, request.len_bytes)?;
        let cid = self.take_slot(side)?;
        (command.prp1, command.prp2) = self.describe(cid, request.buffer, request.len_bytes);
        command.cdw12 = ReadWriteDw12::new().with_nlb((blocks - 1) as u16).into_bits();
        self.write_entry(side, command.with_slba(request.lba), cid, request.tag, now_ns, cpu);
        Ok(())
    }

    /// One range, which lies where the slot's PRP list would lie.
    #[cold]
    fn deallocate(
        &self,
        side: &mut SubmissionSide,
        mut command: Command,
        request: &IoRequest,
        now_ns: u64,
        cpu: CpuId,
    ) -> Result<(), Refusal> {
        let Some(lists) = self.lists.as_ref().filter(|_| self.deallocates) else {
            return Err(Refusal::Unsupported(request.op));
        };
        let blocks = check_range(&self.namespace, request.lba, request.len_bytes, u32::MAX)?;
        let cid = self.take_slot(side)?;
        let offset = usize::from(cid) * self.list_stride_bytes;
        let range = DatasetRange { attributes: 0, blocks, slba: request.lba };
        for (word, value) in lists.words()[offset / prp::ENTRY_BYTES..].iter().zip(range.to_words()) {
            word.set(value);
        }
        command.prp1 = lists.device_address().offset(offset as u64).0;
        command.cdw11 = DatasetDw11::new().with_ad(true).into_bits();
        self.write_entry(side, command, cid, request.tag, now_ns, cpu);
        Ok(())
    }

    /// PRP1 and PRP2 of the buffer; the list, if it takes one, is the slot's.
    fn describe(&self, cid: u16, buffer: DeviceAddress, len_bytes: u32) -> (u64, u64) {
        let Some(lists) = &self.lists else {
            return prp::build(buffer.0, len_bytes, 0, |_, _| ());
        };
        let offset = usize::from(cid) * self.list_stride_bytes;
        let words = &lists.words()[offset / prp::ENTRY_BYTES..];
        let list = lists.device_address().offset(offset as u64);
        prp::build(buffer.0, len_bytes, list.0, |index, page| words[index].set(page))
    }

    #[inline(always)]
    fn write_entry(
        &self,
        side: &mut SubmissionSide,
        mut command: Command,
        cid: u16,
        tag: u64,
        now_ns: u64,
        cpu: CpuId,
    ) {
        command.cdw0 = Cdw0::with_cid(command.cdw0, cid);
        self.slots[usize::from(cid)].start(tag, now_ns, cpu);
        let first = usize::from(side.tail) * SQE_WORDS;
        for (word, &value) in self.sq.words()[first..first + SQE_WORDS].iter().zip(&command.to_words()) {
            word.set(value);
        }
        side.tail = if side.tail + 1 == self.entries { 0 } else { side.tail + 1 };
    }

    /// One doorbell write for `accepted` commands. Their entries were stored with release order before.
    fn ring(&self, side: &mut SubmissionSide, accepted: usize) {
        if accepted > 0 {
            self.regs.write(self.sq_doorbell, u32::from(side.tail));
            side.counters.commands += accepted as u64;
            side.counters.doorbells += 1;
            self.tuning.submitted(side.counters.commands);
        }
    }

    /// Tells the device that the completion queue was read up to `head`.
    pub(super) fn ring_completion(&self, head: u16) {
        self.regs.write(self.cq_doorbell, u32::from(head));
    }

    pub(super) fn sq_address(&self) -> DeviceAddress {
        self.sq.device_address()
    }

    pub(super) fn cq_address(&self) -> DeviceAddress {
        self.cq.device_address()
    }

    /// Refuses requests from now on.
    pub(super) fn stop(&self) {
        self.submission.lock().state = QueueState::Stopped;
    }

    /// Accepts requests from now on.
    pub(super) fn open(&self) {
        self.submission.lock().state = QueueState::Running;
    }

    /// Empties the rings, as the device expects after their creation, and reaps from now on. Nothing may be in flight.
    ///
    /// Lock order: the completion lock before the submission lock, because a batch's user may submit while it is held.
    pub(super) fn restart(&self) {
        let mut completion = self.completion.lock();
        let mut submission = self.submission.lock();
        for word in self.cq.words() {
            word.set(0);
        }
        self.restart_completion(&mut completion);
        self.free.look(&mut submission.taken);
        submission.tail = 0;
    }

    /// What it looks like now.
    pub fn snapshot(&self) -> QueueSnapshot {
        let completion = self.completion.lock();
        let submission = self.submission.lock();
        QueueSnapshot {
            qid: self.qid,
            vector: self.vector,
            state: submission.state,
            entries: self.entries,
            in_flight: self.in_flight(&submission, &completion),
            sq_tail: submission.tail,
            sq_head: completion.sq_head,
            cq_head: completion.cursor.head,
            phase: completion.cursor.phase,
            submission: SubmissionCounters {
                looks: submission.look.looks,
                look_hits: submission.look.hits,
                ..submission.counters
            },
            completion: completion.counters,
            last_fault: completion.last_fault,
        }
    }

    /// Ids taken and not given back, except those that are only withheld.
    fn in_flight(
        &self,
        submission: &LockGuard<'_, H, SubmissionSide>,
        completion: &LockGuard<'_, H, CompletionSide>,
    ) -> u16 {
        let free = completion.given.position().wrapping_sub(submission.taken.position());
        self.depth() - free as u16 - completion.held
    }
}

fn check_buffer(buffer: DeviceAddress, len_bytes: u32) -> Result<(), Refusal> {
    let fits = buffer.0.checked_add(u64::from(len_bytes)).is_some();
    if buffer.0.is_multiple_of(4) && fits { Ok(()) } else { Err(Refusal::Buffer(buffer.0)) }
}

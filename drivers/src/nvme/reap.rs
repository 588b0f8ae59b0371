//! The completion side of a queue pair: reaping by phase, and ending commands that the device will not end.

use super::check::Observer;
use super::ring::Cursor;
use super::slots::{Given, Slot, SlotState};
use super::stats::CompletionCounters;
use super::{Completed, DeviceFault, IoError, NvmeError, QueuePair};
use alloc::vec::Vec;
use hal::{CpuId, Dma, Hal, LockGuard, Word, Work};
use irq::{Action, Irq, IrqReturn};
use spec::nvme::{Completion, Status};

/// How much one interrupt of a queue may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReapBound {
    /// One ring's worth of entries. What comes meanwhile has its own interrupt, and threads and other interrupts their
    /// turn before it.
    #[default]
    Ring,
    /// Everything: it acknowledges what it took and looks again, until the queue is empty. A queue whose submitters
    /// are faster than the interrupt's CPU completes keeps that CPU for as long as they submit.
    None,
}

/// Written under the completion lock.
pub(super) struct CompletionSide {
    /// Whether the device may post here.
    alive: bool,
    pub(super) cursor: Cursor,
    pub(super) sq_head: u16,
    pub(super) given: Given,
    /// Slots in [`SlotState::Held`] or [`SlotState::Withheld`].
    pub(super) held: u16,
    /// Room for every slot, so that it never grows: no slot completes twice in one batch.
    batch: Vec<Completed>,
    pub(super) bound: ReapBound,
    /// Who reaps.
    cpu: CpuId,
    /// Entries were taken without an interrupt since the last one.
    pub(super) taken_early: bool,
    observer: Observer,
    /// Feature 08h is on: the device holds interrupts back because it was told to.
    coalescing_declared: bool,
    pub(super) counters: CompletionCounters,
    pub(super) last_fault: Option<DeviceFault>,
}

impl CompletionSide {
    pub(super) fn new(given: Given, slot_count: u16) -> Self {
        Self {
            alive: false,
            cursor: Cursor::START,
            sq_head: 0,
            given,
            held: 0,
            batch: Vec::with_capacity(slot_count.into()),
            bound: ReapBound::default(),
            cpu: CpuId::default(),
            taken_early: false,
            observer: Observer::default(),
            coalescing_declared: false,
            counters: CompletionCounters::default(),
            last_fault: None,
        }
    }

    fn fault(&mut self, fault: DeviceFault) {
        self.counters.device_faults += 1;
        self.last_fault = Some(fault);
    }

    /// Adds a command to the batch.
    fn complete<W: Word>(&mut self, slot: &Slot<W>, result: Result<u32, IoError>) {
        self.counters.completed += 1;
        self.counters.remote += u64::from(slot.cpu() != self.cpu);
        self.counters.errors += u64::from(result.is_err());
        self.batch.push(Completed { tag: slot.tag(), result, submitted_ns: slot.submitted_ns() });
    }
}

impl<H: Hal> QueuePair<H> {
    /// Whether a new entry lies at the head of the completion queue: one plain look at its phase, without a lock. It
    /// may be out of date when another CPU reaps.
    pub fn completion_pending(&self) -> bool {
        let cursor = Cursor::from_word(self.cursor.get());
        is_new(self.entry_word(cursor.head).get(), cursor.phase)
    }

    /// Takes up to `max` new entries, without an interrupt, and completes their commands; returns how many entries.
    pub fn poll(&self, max: usize) -> usize {
        let mut side = self.completion.lock();
        self.hal.work(Work::PollLook, 1);
        let taken = self.reap(&mut side, max);
        side.counters.count_poll(taken);
        side.taken_early |= taken > 0;
        self.tuning.found(taken, side.counters.completed, false);
        taken
    }

    /// As [`QueuePair::poll`] without limit, for control operations, which are no poller's looks.
    pub(super) fn take_completions(&self) {
        self.reap(&mut self.completion.lock(), usize::MAX);
    }

    /// Waits until a new entry lies at the head or `deadline_ns` has passed; returns whether one does. May return
    /// early: the caller looks again.
    pub fn wait_for_completion(&self, deadline_ns: u64) -> bool {
        let cursor = Cursor::from_word(self.cursor.get());
        let word = self.entry_word(cursor.head);
        let seen = word.get();
        if !is_new(seen, cursor.phase) {
            self.hal.relax_on(word, seen, deadline_ns);
        }
        self.completion_pending()
    }

    /// The second word of entry `index`: it holds phase, status, command id and queue head, and is written last.
    fn entry_word(&self, index: u16) -> &H::Word {
        &self.cq.words()[usize::from(index) * 2 + 1]
    }

    /// Takes new entries, at most one ring's worth, tells the device, and then the commands' user.
    ///
    /// One ring's worth is all that an honest device can have posted: ids taken here go back only at the end.
    pub(super) fn reap(&self, side: &mut CompletionSide, max: usize) -> usize {
        if !side.alive {
            return 0;
        }
        let max = max.min(self.entries.into());
        let remote_before = side.counters.remote;
        let mut taken = 0;
        side.batch.clear();
        side.cpu = self.hal.cpu();
        while let Some((fresh, last)) = self.fresh_run(side.cursor, max - taken) {
            // The phase was seen by plain reads. One acquire load of the last new entry orders everything that the
            // device wrote before it (the other entries' first words and all of the data) before what we read next.
            self.entry_word(last).load();
            for _ in 0..fresh {
                self.take_entry(side);
            }
            taken += fresh;
        }
        if taken > 0 {
            side.counters.entries += taken as u64;
            side.counters.doorbells += 1;
            self.hal.work(Work::ReapEntry, taken as u32);
            let remote = side.counters.remote - remote_before;
            if remote > 0 {
                self.hal.work(Work::RemoteCompletion, remote as u32);
            }
            self.ring_completion(side.cursor.head);
            self.cursor.set(side.cursor.to_word());
            self.deliver(side);
        }
        taken
    }

    /// As [`QueuePair::reap`], in an interrupt: one ring's worth, or on and on ([`ReapBound`]). The lock is free between
    /// two rings' worth.
    fn reap_in_interrupt(&self) -> (LockGuard<'_, H, CompletionSide>, usize) {
        let mut taken = 0;
        loop {
            let mut side = self.completion.lock();
            let more = self.reap(&mut side, usize::MAX);
            taken += more;
            side.counters.interrupt_entries += more as u64;
            if more == 0 || side.bound == ReapBound::Ring {
                return (side, taken);
            }
            let head = side.cursor.head;
            drop(side);
            // Time has passed since the last plain look.
            self.entry_word(head).load();
        }
    }

    /// Sets how much one interrupt may take.
    pub fn set_reap_bound(&self, bound: ReapBound) {
        self.completion.lock().bound = bound;
    }

    /// How many new entries lie at the cursor, up to `max`, and the index of the last.
    fn fresh_run(&self, mut cursor: Cursor, max: usize) -> Option<(usize, u16)> {
        let mut run = None;
        for count in 1..=max {
            if !is_new(self.entry_word(cursor.head).get(), cursor.phase) {
                break;
            }
            run = Some((count, cursor.head));
            cursor = cursor.next(self.entries);
        }
        run
    }

    /// Takes the entry at the cursor, whatever it holds.
    fn take_entry(&self, side: &mut CompletionSide) {
        let words = &self.cq.words()[usize::from(side.cursor.head) * 2..][..2];
        let entry = Completion::from_words([words[0].get(), words[1].get()]);
        side.cursor = side.cursor.next(self.entries);
        if entry.sqid != self.qid() {
            return side.fault(DeviceFault::WrongQueue(entry.sqid, self.qid()));
        }
        if entry.sqhd < self.entries {
            side.sq_head = entry.sqhd;
        } else {
            side.fault(DeviceFault::HeadOutOfRange(entry.sqhd, self.entries));
        }
        self.end_command(side, entry.cid, outcome(entry));
    }

    /// Ends command `cid` if it is in flight.
    fn end_command(&self, side: &mut CompletionSide, cid: u16, result: Result<u32, IoError>) {
        let Some(slot) = self.slots.get(usize::from(cid)) else {
            return side.fault(DeviceFault::UnknownCommand(cid, self.depth()));
        };
        match slot.state() {
            SlotState::Free | SlotState::Held | SlotState::Withheld => side.fault(DeviceFault::NotInFlight(cid)),
            SlotState::InFlight | SlotState::Aborted => {
                side.complete(slot, result);
                self.give_back(side, cid);
            }
            SlotState::Aborting => self.hold_back(side, cid, result, SlotState::Held),
            SlotState::Abandoned => self.hold_back(side, cid, result, SlotState::Withheld),
        }
    }

    /// Ends command `cid` but keeps its id.
    fn hold_back(&self, side: &mut CompletionSide, cid: u16, result: Result<u32, IoError>, state: SlotState) {
        let slot = &self.slots[usize::from(cid)];
        side.complete(slot, result);
        slot.set_state(state);
        side.held += 1;
    }

    fn release_held(&self, side: &mut CompletionSide, cid: u16) {
        side.held -= 1;
        self.give_back(side, cid);
    }

    fn give_back(&self, side: &mut CompletionSide, cid: u16) {
        self.slots[usize::from(cid)].set_state(SlotState::Free);
        self.free.give(&mut side.given, cid);
    }

    /// Gives the batch's ids to the submission side and the batch to its user.
    fn deliver(&self, side: &CompletionSide) {
        self.free.publish(&side.given);
        if !side.batch.is_empty() {
            self.done.batch_done(&side.batch);
        }
    }

    /// The device has stopped with this queue: takes what it still completed, ends the rest with `why`, and looks at
    /// its entries no more. The queue takes no requests at this time.
    pub(super) fn fail_all(&self, why: IoError) {
        let mut side = self.completion.lock();
        self.reap(&mut side, usize::MAX);
        side.alive = false;
        side.batch.clear();
        side.cpu = self.hal.cpu();
        for (cid, slot) in (0..).zip(&self.slots) {
            if !matches!(slot.state(), SlotState::Free | SlotState::Held | SlotState::Withheld) {
                self.end_command(&mut side, cid, Err(why));
            }
            // No Abort outlives the device's stop.
            if slot.state() == SlotState::Withheld {
                self.release_held(&mut side, cid);
            }
        }
        self.deliver(&side);
    }

    /// Starts at the first entry again, with nothing in flight.
    pub(super) fn restart_completion(&self, side: &mut CompletionSide) {
        side.alive = true;
        side.cursor = Cursor::START;
        side.sq_head = 0;
        side.taken_early = false;
        side.observer = Observer::default();
        side.coalescing_declared = false;
        self.check.set_coalesces(false);
        self.cursor.set(side.cursor.to_word());
        self.free.publish(&side.given);
    }

    /// Feature 08h was set: from now on, interrupts that are held back say nothing about the device.
    pub(super) fn declare_coalescing(&self, on: bool) {
        let mut side = self.completion.lock();
        side.coalescing_declared = on;
        side.observer = Observer::default();
        if on {
            self.check.set_coalesces(false);
        }
    }

    /// Marks one command that has been in flight for at least `timeout_ns`, so that its id stays its own until
    /// [`QueuePair::end_abort`].
    pub(super) fn begin_abort(&self, now_ns: u64, timeout_ns: u64) -> Option<u16> {
        let _side = self.completion.lock();
        let mut ids = (0..).zip(&self.slots);
        let (cid, slot) = ids.find(|(_, slot)| {
            slot.state() == SlotState::InFlight && now_ns.saturating_sub(slot.submitted_ns()) >= timeout_ns
        })?;
        slot.set_state(SlotState::Aborting);
        Some(cid)
    }

    /// The Abort command for `cid` is over.
    pub(super) fn end_abort(&self, cid: u16, end: AbortEnd) {
        let mut side = self.completion.lock();
        let slot = &self.slots[usize::from(cid)];
        match (slot.state() == SlotState::Held, end) {
            (true, AbortEnd::Unanswered) => slot.set_state(SlotState::Withheld),
            (true, _) => {
                self.release_held(&mut side, cid);
                self.free.publish(&side.given);
            }
            (false, AbortEnd::Answered) => slot.set_state(SlotState::Aborted),
            (false, AbortEnd::Refused) => slot.set_state(SlotState::InFlight),
            (false, AbortEnd::Unanswered) => slot.set_state(SlotState::Abandoned),
        }
    }

    /// How many commands an Abort did not end.
    pub(super) fn count_aborted(&self) -> u32 {
        let _side = self.completion.lock();
        self.slots.iter().filter(|slot| matches!(slot.state(), SlotState::Aborted | SlotState::Abandoned)).count()
            as u32
    }
}

/// How an Abort command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AbortEnd {
    /// The device says whether it aborted.
    Answered,
    /// The device will not look for the command.
    Refused,
    /// It may still do so.
    Unanswered,
}

impl AbortEnd {
    pub(super) fn of(answer: &Result<bool, NvmeError>) -> Self {
        match answer {
            Ok(_) => Self::Answered,
            Err(NvmeError::Timeout(..) | NvmeError::Fatal | NvmeError::Gone) => Self::Unanswered,
            Err(_) => Self::Refused,
        }
    }
}

/// The handler of the queue's interrupt vector: reaps what there is, bounded by [`ReapBound`]. Several queues may share a vector.
impl<H: Hal> Action for QueuePair<H> {
    fn handle(&self, _irq: Irq) -> IrqReturn {
        let (mut side, taken) = self.reap_in_interrupt();
        self.hal.work(Work::IrqHandler, 1);
        // What a submitter or a poller took was this interrupt's.
        let overtaken = core::mem::take(&mut side.taken_early) && taken == 0;
        side.counters.count_interrupt(taken, overtaken);
        self.tuning.found(taken, side.counters.completed, true);
        let side = &mut *side;
        if side.observer.note(taken, || self.hal.now_ns()) && !side.coalescing_declared {
            self.check.set_coalesces(true);
        }
        if taken > 0 || overtaken { IrqReturn::Handled } else { IrqReturn::None }
    }
}

/// A new entry's phase is the one that the cursor expects (Base 3.3.3.2.1).
fn is_new(second_word: u64, phase: bool) -> bool {
    (second_word >> Completion::PHASE_BIT & 1 != 0) == phase
}

/// What the entry says of its command.
fn outcome(entry: Completion) -> Result<u32, IoError> {
    match entry.status.status() {
        Status::SUCCESS => Ok(entry.dw0),
        status => Err(IoError::Device { status, do_not_retry: entry.status.dnr() }),
    }
}

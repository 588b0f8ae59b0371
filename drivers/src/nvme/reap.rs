//! The completion side of a queue pair: reaping by phase, and ending commands that the device will not end.

use super::look::Observer;
use super::ring::Cursor;
use super::slots::{Given, Slot, SlotState};
use super::stats::CompletionCounters;
use super::{Completed, DeviceFault, IoError, NvmeError, QueuePair};
use alloc::boxed::Box;
use hal::{CpuId, Dma, Hal, LockGuard, Word, Work};
use irq::{Action, Irq, IrqReturn};
use spec::nvme::{Completion, Status, StatusField};

/// How much one interrupt of a queue may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReapBound {
    /// One ring's worth of entries. Entries that arrive meanwhile raise their own interrupt. Threads and other
    /// interrupts can run before it.
    #[default]
    Ring,
    /// Until the queue is empty: it acknowledges its entries and looks again. A queue whose submitters
    /// are faster than the interrupt's CPU completes keeps that CPU for as long as they submit.
    None,
}

/// Data that the completion lock guards.
pub(super) struct CompletionSide {
    /// True while the device may write completions here.
    alive: bool,
    /// How often the device was stopped, or the queue deleted.
    stops: u64,
    pub(super) cursor: Cursor,
    pub(super) sq_head: u16,
    pub(super) given: Given,
    /// Slots in [`SlotState::Held`] or [`SlotState::Withheld`].
    pub(super) held: u16,
    batch: Batch,
    pub(super) bound: ReapBound,
    /// The CPU that reaps.
    cpu: CpuId,
    /// Entries were taken without an interrupt since the last one.
    pub(super) taken_early: bool,
    observer: Observer,
    /// Feature 08h is on: the driver has told the device to hold interrupts back.
    coalescing_declared: bool,
    pub(super) counters: CompletionCounters,
    pub(super) last_fault: Option<DeviceFault>,
}

/// Commands that have ended and must be reported to the user.
struct Batch {
    /// Room for every slot: no command completes twice in one batch.
    places: Box<[Completed]>,
    len: usize,
}

impl Batch {
    fn new(slot_count: u16) -> Self {
        let nothing = Completed { tag: 0, result: Ok(0), submitted_ns: 0, cpu: CpuId::default() };
        Self { places: (0..slot_count).map(|_| nothing).collect(), len: 0 }
    }

    #[inline]
    fn push(&mut self, completed: Completed) {
        self.places[self.len] = completed;
        self.len += 1;
    }

    #[inline]
    fn commands(&self) -> &[Completed] {
        &self.places[..self.len]
    }
}

impl CompletionSide {
    pub(super) fn new(given: Given, slot_count: u16) -> Self {
        Self {
            alive: false,
            stops: 0,
            cursor: Cursor::START,
            sq_head: 0,
            given,
            held: 0,
            batch: Batch::new(slot_count),
            bound: ReapBound::default(),
            cpu: CpuId::default(),
            taken_early: false,
            observer: Observer::default(),
            coalescing_declared: false,
            counters: CompletionCounters::default(),
            last_fault: None,
        }
    }

    #[cold]
    fn fault(&mut self, fault: DeviceFault) {
        self.counters.device_faults += 1;
        self.last_fault = Some(fault);
    }

    /// Adds a command to the batch.
    #[inline]
    fn complete<W: Word>(&mut self, slot: &Slot<W>, cpu: CpuId, result: Result<u32, IoError>) {
        if cpu != self.cpu {
            self.counters.remote += 1;
        }
        self.counters.errors += u64::from(result.is_err());
        self.batch.push(Completed { tag: slot.tag(), result, submitted_ns: slot.submitted_ns(), cpu });
    }

    /// Adds a command to the batch but keeps its id.
    #[cold]
    fn hold_back<W: Word>(&mut self, slot: &Slot<W>, cpu: CpuId, result: Result<u32, IoError>, state: SlotState) {
        self.complete(slot, cpu, result);
        slot.set_state(state);
        self.held += 1;
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

    /// As [`QueuePair::poll`] without limit, for control operations. It does not count as a poll of the user.
    pub(super) fn take_completions(&self) {
        self.take_early(&mut self.completion.lock());
    }

    /// Takes all entries. Their interrupts may still come, and are then the queue's own.
    fn take_early(&self, side: &mut CompletionSide) {
        side.taken_early |= self.reap(side, usize::MAX) > 0;
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

    /// The entries of the completion queue. The second word of each holds phase, status, command id and queue head, and
    /// is written last.
    #[inline]
    fn entries(&self) -> &[[H::Word; 2]] {
        &self.cq.words().as_chunks().0[..self.entries.into()]
    }

    #[inline]
    fn entry_word(&self, index: u16) -> &H::Word {
        &self.entries()[usize::from(index)][1]
    }

    /// Takes new entries, at most one ring's worth. Tells the device first, then the commands' user.
    ///
    /// A correct device cannot have posted more than one ring's worth, because ids taken here go back only at the end.
    pub(super) fn reap(&self, side: &mut CompletionSide, max: usize) -> usize {
        if !side.alive {
            return 0;
        }
        let max = max.min(self.entries.into());
        let entries = self.entries();
        let mut taken = 0;
        let mut cursor = side.cursor;
        side.batch.len = 0;
        side.cpu = self.hal.cpu();
        while taken < max && is_new(entries[usize::from(cursor.head)][1].get(), cursor.phase) {
            let (behind, ahead) = entries.split_at(cursor.head.into());
            let ahead = new_entries(ahead, cursor.phase, max - taken);
            let behind = if ahead.len() + behind.len() == entries.len() {
                new_entries(behind, !cursor.phase, max - taken - ahead.len())
            } else {
                &[]
            };
            // The phase was seen by plain reads. One acquire load of the last new entry orders everything that the
            // device wrote before it (the other entries' first words and all of the data) before what we read next.
            let Some([_, second]) = behind.last().or(ahead.last()) else { break };
            second.load();
            ahead.iter().for_each(|entry| self.take_entry(side, entry));
            behind.iter().for_each(|entry| self.take_entry(side, entry));
            let fresh = ahead.len() + behind.len();
            cursor = cursor.after(fresh as u16, self.entries);
            taken += fresh;
        }
        if taken > 0 {
            side.cursor = cursor;
            side.counters.entries += taken as u64;
            side.counters.doorbells += 1;
            self.hal.work(Work::ReapEntry, taken as u32);
            self.ring_completion(side.cursor.head);
            self.cursor.set(side.cursor.to_word());
            self.deliver(side);
        }
        taken
    }

    /// As [`QueuePair::reap`], in an interrupt: takes one ring's worth, or repeats until the queue is empty
    /// ([`ReapBound`]). The lock is free between two rounds.
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

    /// Takes an entry, valid or not.
    #[inline]
    fn take_entry(&self, side: &mut CompletionSide, [first, second]: &[H::Word; 2]) {
        let entry = Completion::from_words([first.get(), second.get()]);
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

    /// Ends command `cid` if it is in flight. Out of line, because it uses many registers.
    #[inline(never)]
    fn end_command(&self, side: &mut CompletionSide, cid: u16, result: Result<u32, IoError>) {
        let Some(slot) = self.slots.get(usize::from(cid)) else {
            return side.fault(DeviceFault::UnknownCommand(cid, self.depth()));
        };
        let (state, cpu) = slot.state_and_cpu();
        match state {
            SlotState::InFlight | SlotState::Aborted => {
                side.complete(slot, cpu, result);
                self.give_back(side, slot, cid);
            }
            SlotState::Aborting => side.hold_back(slot, cpu, result, SlotState::Held),
            SlotState::Abandoned => side.hold_back(slot, cpu, result, SlotState::Withheld),
            SlotState::Free | SlotState::Held | SlotState::Withheld => side.fault(DeviceFault::NotInFlight(cid)),
        }
    }

    fn release_held(&self, side: &mut CompletionSide, cid: u16) {
        side.held -= 1;
        self.give_back(side, &self.slots[usize::from(cid)], cid);
    }

    #[inline]
    fn give_back(&self, side: &mut CompletionSide, slot: &Slot<H::Word>, cid: u16) {
        slot.free();
        self.free.give(&mut side.given, cid);
    }

    /// Gives the batch's ids to the submission side and the batch to its user.
    #[inline]
    fn deliver(&self, side: &mut CompletionSide) {
        self.free.publish(&side.given);
        let batch = side.batch.commands();
        side.counters.completed += batch.len() as u64;
        if !batch.is_empty() {
            self.done.batch_done(batch);
        }
    }

    /// Ends a queue after the device has stopped using it: takes the last completions, ends all other commands with
    /// `why`, and never looks at the entries again. The queue accepts no requests at this time.
    pub(super) fn fail_all(&self, why: IoError) {
        let mut side = self.completion.lock();
        self.take_early(&mut side);
        side.alive = false;
        side.stops += 1;
        side.batch.len = 0;
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
        self.deliver(&mut side);
    }

    /// Starts at the first entry again, with nothing in flight. What was taken early may still interrupt: a line that was
    /// disabled over the reset delivers when it is enabled.
    pub(super) fn restart_completion(&self, side: &mut CompletionSide) {
        side.alive = true;
        side.cursor = Cursor::START;
        side.sq_head = 0;
        side.observer = Observer::default();
        side.coalescing_declared = false;
        self.look.set_coalesces(false);
        self.cursor.set(side.cursor.to_word());
        self.free.publish(&side.given);
    }

    /// Feature 08h was set. From now on, late interrupts do not show that the device coalesces on its own.
    pub(super) fn declare_coalescing(&self, on: bool) {
        let mut side = self.completion.lock();
        side.coalescing_declared = on;
        side.observer = Observer::default();
        if on {
            self.look.set_coalesces(false);
        }
    }

    /// Marks one command that has been in flight for at least `timeout_ns`, so that its id stays its own until
    /// [`QueuePair::end_abort`].
    pub(super) fn begin_abort(&self, now_ns: u64, timeout_ns: u64) -> Option<Abort> {
        let side = self.completion.lock();
        let (cid, slot) = (0..).zip(&self.slots).find(|(_, slot)| slot.is_overdue(now_ns, timeout_ns))?;
        slot.set_state(SlotState::Aborting);
        Some(Abort { cid, stops: side.stops })
    }

    /// The Abort command is over.
    pub(super) fn end_abort(&self, Abort { cid, stops }: Abort, end: AbortEnd) {
        let mut side = self.completion.lock();
        let slot = &self.slots[usize::from(cid)];
        // No Abort outlives the device's stop.
        let end = if side.stops == stops { end } else { AbortEnd::Refused };
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

/// An Abort command under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Abort {
    pub(super) cid: u16,
    /// The device's stops before it.
    stops: u64,
}

/// How an Abort command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AbortEnd {
    /// The device says whether it aborted.
    Answered,
    /// The device will not look for the command.
    Refused,
    /// The device may still abort the command.
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
        // This interrupt belongs to entries that a submitter or a poller has already taken.
        let overtaken = core::mem::take(&mut side.taken_early) && taken == 0;
        side.counters.count_interrupt(taken, overtaken);
        self.tuning.found(taken, side.counters.completed, true);
        let side = &mut *side;
        if side.observer.note(taken, || self.hal.now_ns()) && !side.coalescing_declared {
            self.look.set_coalesces(true);
        }
        if taken > 0 || overtaken { IrqReturn::Handled } else { IrqReturn::None }
    }
}

/// The new entries at the beginning of `entries`, at most `max`.
#[inline]
fn new_entries<W: Word>(entries: &[[W; 2]], phase: bool, max: usize) -> &[[W; 2]] {
    let entries = &entries[..max.min(entries.len())];
    let old = entries.iter().position(|[_, second]| !is_new(second.get(), phase));
    old.map_or(entries, |old| &entries[..old])
}

/// A new entry's phase is the one that the cursor expects (Base 3.3.3.2.1).
#[inline]
fn is_new(second_word: u64, phase: bool) -> bool {
    second_word >> Completion::PHASE_BIT & 1 == u64::from(phase)
}

/// The entry's report on its command.
#[inline]
fn outcome(entry: Completion) -> Result<u32, IoError> {
    match entry.status.status() {
        Status::SUCCESS => Ok(entry.dw0),
        _ => Err(device_error(entry.status)),
    }
}

#[cold]
fn device_error(status: StatusField) -> IoError {
    IoError::Device { status: status.status(), do_not_retry: status.dnr() }
}

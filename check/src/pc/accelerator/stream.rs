//! The load of one work queue: memory fills, and the right result of each.

use super::early::Early;
use super::{COMMAND, OUTSIDE_STRADDLE_BYTES, memory_end};
use crate::draw::Draw;
use crate::mark::Mark;
use crate::verdict::violate;
use drivers::dsa::{BatchDone, Completed, Fill, Next, QueueCounters, Refusal, TransferError, WorkQueue};
use hal::{Dma as _, Hal as _, Word as _};
use irq::{Action, Irq, IrqReturn};
use machine::SimHal;
use machine::memory::MEMORY_BASE;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// The content of a buffer, and of the words beside it, until a fill comes.
const POISON: u64 = 0xbad0_bad1_bad2_bad3;
/// More than any run finds.
const NO_HANDLER: u32 = u32::MAX;
/// DSA, "Operation Status Codes": a page fault stopped the operation.
const PAGE_FAULT: u8 = 0x03;

/// Where a fill ends that begins or ends outside memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Fault {
    address: u64,
    bytes_done: u32,
}

struct Flight {
    slot: u16,
    fill: Fill,
    fault: Option<Fault>,
    since_ns: u64,
    /// The queue has accepted it, at this time or before.
    accepted_ns: Option<u64>,
}

struct State {
    draw: Draw,
    given: u64,
    accepted: u64,
    in_flight: BTreeMap<u64, Flight>,
    free: Vec<u16>,
    /// Fills still to submit from completions.
    carried: u64,
    /// So many of the next fills go outside memory.
    wrong: u64,
    /// Buffers of fills that were given up, and the byte behind each: the device must have let go of them.
    given_up: BTreeMap<u16, u64>,
    /// Buffers of fills that ended with a queue whose command may have failed: until one succeeds, the device may write there.
    held: Vec<u16>,
}

/// The load of one work queue. It stays the same when the queue is closed and opened.
pub(super) struct Stream {
    /// In the high bits of its fills' numbers.
    number: u64,
    memory: <SimHal as hal::Hal>::Dma,
    /// Words of a buffer, with a word before and a word behind it.
    stride: usize,
    bytes_max: u32,
    current: Mutex<Option<Arc<Opening>>>,
    state: Mutex<State>,
    /// Operations under way that close the queue to new fills.
    pub(super) closing: AtomicU32,
    /// Of them, operations that abort fills, and operations that end fills with the device.
    pub(super) aborting: AtomicU32,
    pub(super) stopping: AtomicU32,
    /// For each CPU: completions that the handler has found there, or [`NO_HANDLER`].
    found: Vec<AtomicU32>,
    /// Handlers run in threads, where another finder may come between.
    pub(super) threaded: bool,
    /// Commands of the device may fail.
    faulty: bool,
}

/// The queue from one opening to its close, and what its counters must be.
pub(super) struct Opening {
    stream: Arc<Stream>,
    queue: OnceLock<Weak<WorkQueue<SimHal>>>,
    tally: Mutex<QueueCounters>,
    early: Early,
}

impl Stream {
    /// The load of place `number`, with a buffer more than its queue has entries; on a CPU of the machine.
    pub(super) fn new(
        seed: u64,
        number: u32,
        (entries, bytes_max): (u16, u32),
        cpus: u32,
        (threaded, faulty): (bool, bool),
    ) -> Arc<Self> {
        // A buffer may begin anywhere in a word.
        let stride = bytes_max.div_ceil(8) as usize + 3;
        let buffers = entries + 2;
        let memory = SimHal.dma_alloc(8 * stride * usize::from(buffers), 4096).expect("memory for buffers");
        let state = State {
            draw: Draw::new(seed, "fills", number),
            given: 0,
            accepted: 0,
            in_flight: BTreeMap::new(),
            free: (0..buffers).rev().collect(),
            carried: 0,
            wrong: 0,
            given_up: BTreeMap::new(),
            held: Vec::new(),
        };
        Arc::new(Self {
            number: COMMAND | u64::from(number) << 32,
            memory,
            stride,
            bytes_max,
            current: Mutex::default(),
            state: Mutex::new(state),
            closing: AtomicU32::new(0),
            aborting: AtomicU32::new(0),
            stopping: AtomicU32::new(0),
            found: (0..cpus).map(|_| AtomicU32::new(NO_HANDLER)).collect(),
            threaded,
            faulty,
        })
    }

    fn state<R>(&self, with: impl FnOnce(&mut State) -> R) -> R {
        with(&mut self.state.lock().expect("one host thread"))
    }

    /// The opening that takes the fills; none: they go nowhere.
    pub(super) fn attach(&self, opening: Option<Arc<Opening>>) {
        *self.current.lock().expect("one host thread") = opening;
    }

    pub(super) fn current(&self) -> Option<Arc<Opening>> {
        self.current.lock().expect("one host thread").clone()
    }

    /// So many of the next fills go outside memory.
    pub(super) fn go_wrong(&self, count: u64) {
        self.state(|state| state.wrong += count);
    }

    /// Submits up to `count` fills in one batch; returns how many were accepted.
    pub(super) fn submit(&self, count: u32) -> u32 {
        let Some((opening, queue)) = self.current().and_then(|opening| Some((opening.clone(), opening.queue()?)))
        else {
            return 0;
        };
        let fills: Vec<Fill> = (0..count).map_while(|_| self.prepare()).collect();
        let submitted = queue.submit(&fills);
        let now_ns = SimHal.now_ns();
        let (accepted, refused) = fills.split_at(submitted.accepted);
        self.state(|state| {
            state.accepted += accepted.len() as u64;
            for fill in accepted {
                if let Some(flight) = state.in_flight.get_mut(&fill.tag) {
                    flight.accepted_ns = Some(now_ns);
                }
            }
        });
        opening.count(|tally| {
            tally.submitted += accepted.len() as u64;
            tally.full += u64::from(submitted.refusal == Some(Refusal::Full));
        });
        refused.iter().for_each(|fill| self.take_back(fill.tag));
        match submitted.refusal {
            Some(Refusal::Stopped) => accepted.len() as u32,
            Some(Refusal::Full) if accepted.len() < fills.len() => accepted.len() as u32,
            None if accepted.len() == fills.len() => accepted.len() as u32,
            other => {
                violate("commands", format!("{} valid fills, {} accepted: {other:?}", fills.len(), accepted.len()))
            }
        }
    }

    fn prepare(&self) -> Option<Fill> {
        let since_ns = SimHal.now_ns();
        let base = self.memory.device_address();
        let (slot, fill, fault) = self.state(|state| {
            let slot = state.free.pop()?;
            let tag = self.number | state.given;
            state.given += 1;
            let bytes = match state.draw.below(20) {
                0 => self.bytes_max,
                _ => state.draw.time_ns(1, self.bytes_max.min(256).into()).min(self.bytes_max.into()) as u32,
            };
            let own = base.offset((8 * self.stride * usize::from(slot)) as u64 + 8 + state.draw.below(8));
            let pattern = state.draw.within(1..=u64::MAX - 1);
            let (destination, fault) = if state.wrong > 0 {
                state.wrong -= 1;
                let (address, fault) = outside(&mut state.draw, bytes);
                (hal::DeviceAddress(address), Some(fault))
            } else {
                (own, None)
            };
            let fill = Fill { pattern, destination, bytes, tag };
            state.in_flight.insert(tag, Flight { slot, fill, fault, since_ns, accepted_ns: None });
            Some((slot, fill, fault))
        })?;
        self.check_given_up(slot);
        if fault.is_none() {
            self.poison(slot, self.end_of(&fill, slot));
        }
        Mark::Submitted.of(fill.tag);
        Some(fill)
    }

    /// The first byte of a fill within its buffer's words.
    fn place(&self, fill: &Fill, slot: u16) -> u64 {
        fill.destination.0 - self.memory.device_address().offset((8 * self.stride * usize::from(slot)) as u64).0
    }

    fn end_of(&self, fill: &Fill, slot: u16) -> u64 {
        self.place(fill, slot) + u64::from(fill.bytes)
    }

    fn poison(&self, slot: u16, end: u64) {
        self.words(slot, end).for_each(|word| word.set(POISON));
    }

    /// Nothing has come to the buffer since its last fill was given up.
    fn check_given_up(&self, slot: u16) {
        let Some(end) = self.state(|state| state.given_up.remove(&slot)) else { return };
        if self.words(slot, end).any(|word| word.get() != POISON) {
            violate("commands", "a fill was given up, and the device wrote to its buffer afterwards");
        }
    }

    /// All is at rest.
    pub(super) fn check_all_given_up(&self) {
        let slots: Vec<_> = self.state(|state| state.given_up.keys().copied().collect());
        slots.into_iter().for_each(|slot| self.check_given_up(slot));
    }

    /// The words of a buffer up to the one behind byte `end`.
    fn words(&self, slot: u16, end: u64) -> impl Iterator<Item = &<SimHal as hal::Hal>::Word> {
        let own = &self.memory.words()[self.stride * usize::from(slot)..][..self.stride];
        own.iter().take(end.div_ceil(8) as usize + 1)
    }

    fn take_back(&self, tag: u64) {
        Mark::Refused.of(tag);
        self.land(tag);
    }

    fn land(&self, tag: u64) {
        self.state(|state| state.free.extend(state.in_flight.remove(&tag).map(|flight| flight.slot)));
    }

    /// As [`Self::land`], but the device may still write to the buffer.
    fn hold(&self, tag: u64) {
        self.state(|state| state.held.extend(state.in_flight.remove(&tag).map(|flight| flight.slot)));
    }

    /// A command has succeeded behind which the device writes to none of the buffers.
    pub(super) fn let_go(&self) {
        self.state(|state| state.free.append(&mut state.held));
    }

    /// Submits `count` fills: `depth` of them now, each of the others from a completion.
    pub(super) fn carry(&self, count: u64, depth: u32) {
        self.state(|state| state.carried += count.saturating_sub(depth.into()));
        self.submit(depth);
    }

    /// Submits no further fills from completions.
    pub(super) fn carry_no_more(&self) {
        self.state(|state| (state.carried, state.wrong) = (0, 0));
    }

    /// True if no fill is in flight. Fills still to submit need a completion to go on; without one they are forgotten.
    pub(super) fn is_idle(&self) -> bool {
        self.state(|state| {
            if state.in_flight.is_empty() {
                state.carried = 0;
            }
            state.in_flight.is_empty()
        })
    }

    /// Fills that its queues accepted.
    pub(super) fn given(&self) -> u64 {
        self.state(|state| state.accepted)
    }

    /// The queue has given up all that it had accepted; a fill that it still owes, if there is one.
    pub(super) fn owed(&self) -> Option<u64> {
        self.state(|state| state.in_flight.iter().find(|(_, flight)| flight.accepted_ns.is_some()).map(|(&tag, _)| tag))
    }

    /// Fills in flight: their numbers, since when, and since when they are known to be accepted.
    pub(super) fn in_flight(&self) -> Vec<(u64, u64, Option<u64>)> {
        self.state(|state| {
            state.in_flight.iter().map(|(&tag, flight)| (tag, flight.since_ns, flight.accepted_ns)).collect()
        })
    }

    pub(super) fn is_in_flight(&self, tag: u64) -> bool {
        self.state(|state| state.in_flight.contains_key(&tag))
    }

    fn ended(&self, completed: &Completed) {
        let now_ns = SimHal.now_ns();
        let wrong = self.state(|state| {
            let flight = state.in_flight.get(&completed.tag)?;
            self.judge(flight, completed, now_ns).err()
        });
        let is_given_up = matches!(completed.result, Err(TransferError::Closed | TransferError::Aborted));
        if is_given_up && self.faulty {
            self.hold(completed.tag);
        } else {
            if is_given_up {
                self.give_up(completed.tag);
            }
            self.land(completed.tag);
        }
        if let Some(text) = wrong {
            violate("commands", format!("fill {:#x} {text}", completed.tag));
        }
        match completed.result {
            Ok(_) => Mark::Completed.of(completed.tag),
            Err(_) => Mark::Failed.of(completed.tag),
        }
    }

    fn give_up(&self, tag: u64) {
        let flight = self.state(|state| {
            let flight = state.in_flight.get(&tag).filter(|flight| flight.fault.is_none())?;
            Some((flight.slot, self.end_of(&flight.fill, flight.slot)))
        });
        let Some((slot, end)) = flight else { return };
        self.poison(slot, end);
        self.state(|state| state.given_up.insert(slot, end));
    }

    fn judge(&self, flight: &Flight, completed: &Completed, now_ns: u64) -> Result<(), String> {
        let latest = flight.accepted_ns.unwrap_or(now_ns);
        if !(flight.since_ns..=latest).contains(&completed.submitted_ns) {
            let (from, at) = (flight.since_ns, completed.submitted_ns);
            return Err(format!("was submitted from {from} to {latest} ns, and its queue says {at} ns"));
        }
        match (completed.result, flight.fault) {
            (Ok(bytes), None) if bytes == flight.fill.bytes => self.check_data(flight),
            (Err(TransferError::Device { status, bytes_completed, fault_address }), Some(fault))
                if status.0 == PAGE_FAULT && (fault_address, bytes_completed) == (fault.address, fault.bytes_done) =>
            {
                Ok(())
            }
            (Err(TransferError::Closed), _) if self.stopping.load(Relaxed) > 0 => Ok(()),
            // The device does not end what is in flight if it does not close the queue.
            (Err(TransferError::Closed), _) if self.faulty && self.closing.load(Relaxed) > 0 => Ok(()),
            (Err(TransferError::Aborted), _) if self.aborting.load(Relaxed) > 0 => Ok(()),
            (result, expected) => {
                Err(format!("of {} bytes ended as {result:?}, fault {expected:?}", flight.fill.bytes))
            }
        }
    }

    /// The bytes hold the pattern, its first byte first, and those beside them are as they were (DSA, "Memory Fill").
    fn check_data(&self, flight: &Flight) -> Result<(), String> {
        let start = self.place(&flight.fill, flight.slot);
        let end = start + u64::from(flight.fill.bytes);
        let turned = flight.fill.pattern.rotate_left((start % 8 * 8) as u32);
        for (at, word) in (0..).step_by(8).zip(self.words(flight.slot, end)) {
            let (low, high) = (start.clamp(at, at + 8) - at, end.clamp(at, at + 8) - at);
            let below = |bytes: u64| if bytes == 8 { u64::MAX } else { (1 << (8 * bytes)) - 1 };
            let mask = below(high) & !below(low);
            let (expected, found) = (POISON & !mask | turned & mask, word.get());
            if found != expected {
                return Err(format!("completed, and word {} has {found:#x} instead of {expected:#x}", at / 8));
            }
        }
        Ok(())
    }
}

/// A destination outside memory, in one of four ways, and where the fill stops.
fn outside(draw: &mut Draw, bytes: u32) -> (u64, Fault) {
    let end = memory_end();
    let at = |address| (address, Fault { address, bytes_done: 0 });
    match draw.below(4) {
        0 => at(end + draw.below(4096)),
        1 => at(MEMORY_BASE - 8 - draw.below(4096)),
        // Its last byte is the last one of the address space.
        2 => at(u64::MAX - u64::from(bytes) + 1),
        _ => {
            let bytes_done = (draw.below(OUTSIDE_STRADDLE_BYTES) as u32).min(bytes - 1);
            (end - u64::from(bytes_done), Fault { address: end, bytes_done })
        }
    }
}

impl Opening {
    pub(super) fn new(stream: Arc<Stream>) -> Arc<Self> {
        Arc::new(Self { stream, queue: OnceLock::new(), tally: Mutex::default(), early: Early::default() })
    }

    pub(super) fn set_queue(&self, queue: &Arc<WorkQueue<SimHal>>) {
        assert!(self.queue.set(Arc::downgrade(queue)).is_ok(), "an opening has one queue");
    }

    pub(super) fn queue(&self) -> Option<Arc<WorkQueue<SimHal>>> {
        self.queue.get().and_then(Weak::upgrade)
    }

    fn count(&self, change: impl FnOnce(&mut QueueCounters)) {
        change(&mut self.tally.lock().expect("one host thread"));
    }

    /// What the queue's counters must be when nothing is under way.
    pub(super) fn tally(&self) -> QueueCounters {
        *self.tally.lock().expect("one host thread")
    }

    /// Looks for completions without an interrupt.
    pub(super) fn poll(&self) {
        let Some(queue) = self.queue() else { return };
        let found = queue.poll();
        self.count(|tally| {
            tally.polls += 1;
            tally.empty_polls += u64::from(found == 0);
        });
    }
}

impl BatchDone for Opening {
    fn batch_done(&self, done: &[Completed], next: &mut Next) {
        let stream = &self.stream;
        let found = &stream.found[SimHal.cpu().index()];
        match found.load(Relaxed) {
            NO_HANDLER => self.early.taken(done),
            before => found.store(before + done.len() as u32, Relaxed),
        }
        for completed in done {
            stream.ended(completed);
            self.count(|tally| {
                tally.completed += 1;
                tally.errors += u64::from(completed.result.is_err());
                tally.bytes += match completed.result {
                    Ok(bytes) | Err(TransferError::Device { bytes_completed: bytes, .. }) => bytes.into(),
                    Err(_) => 0,
                };
            });
        }
        for _ in done {
            if stream.state(|state| state.carried == 0) {
                return;
            }
            let Some(fill) = stream.prepare() else { return };
            match next.push(fill) {
                Ok(()) => {
                    stream.state(|state| {
                        state.accepted += 1;
                        state.carried = state.carried.saturating_sub(1);
                    });
                    self.count(|tally| {
                        tally.submitted += 1;
                        tally.resubmitted += 1;
                    });
                }
                Err(refusal) => {
                    stream.take_back(fill.tag);
                    if refusal != Refusal::Full || stream.closing.load(Relaxed) == 0 {
                        violate(
                            "commands",
                            format!("a completed fill leaves room, and the next one is refused: {refusal}"),
                        );
                    }
                    return;
                }
            }
        }
    }
}

/// The handler of the queue, judged by what its run found.
impl Action for Opening {
    fn handle(&self, irq: Irq) -> IrqReturn {
        let Some(queue) = self.queue() else { return IrqReturn::None };
        let found = &self.stream.found[SimHal.cpu().index()];
        let before = self.early.times();
        found.store(0, Relaxed);
        let answer = queue.handle(irq);
        let found = found.swap(NO_HANDLER, Relaxed);
        self.count(|tally| {
            tally.interrupts += 1;
            tally.empty_interrupts += u64::from(answer == IrqReturn::None);
            tally.overtaken_interrupts += u64::from(answer == IrqReturn::Handled && found == 0);
            tally.interrupt_completions += u64::from(found);
        });
        if !self.stream.threaded {
            self.early.judge(before, found, answer);
        }
        answer
    }
}

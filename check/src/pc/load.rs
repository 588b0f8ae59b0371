//! The load of one queue: submits commands, and knows the right result of each.

use super::user::User;
use crate::mark::Mark;
use crate::verdict::violate;
use drivers::nvme::{BatchDone, Completed, IoError, IoOp, IoRequest, QueuePair, Refusal};
use hal::{Dma as _, Hal as _, Word as _};
use machine::SimHal;
use spec::nvme::Status;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};

/// Bytes of a command: one block, whose first word the drive fills with the block's number.
const BLOCK_BYTES: usize = 512;
/// Commands that a load has buffers for: more than a queue of 32 entries takes.
const BUFFERS: u16 = 32;
/// The content of a buffer until the drive writes it.
const POISON: u64 = 0xdead_dead_dead_dead;

struct Flight {
    since_ns: u64,
    buffer: u16,
    lba: u64,
    user: Option<Arc<User>>,
}

#[derive(Default)]
struct State {
    given: u64,
    accepted: u64,
    in_flight: BTreeMap<u64, Flight>,
    free: Vec<u16>,
    /// Commands still to submit from completions.
    carried: u64,
    /// Commands in flight since then, in ns, may be aborted.
    aborted_ns: u64,
}

/// The load of one queue. It stays the same when the queue pair is replaced.
pub(super) struct Load {
    /// In the high bits of its commands' numbers.
    number: u64,
    memory: <SimHal as hal::Hal>::Dma,
    /// The queue pair reports to the load, and so owns it.
    pair: Mutex<Weak<QueuePair<SimHal>>>,
    state: Mutex<State>,
    /// Operations under way that may end its commands with an error.
    disrupted: AtomicU32,
    /// The drive's reports cannot be trusted.
    pub(super) distrusted: AtomicBool,
}

impl Load {
    /// The load of queue `number`; on a CPU of the machine.
    pub(super) fn new(number: u32) -> Arc<Self> {
        let memory = SimHal.dma_alloc(BLOCK_BYTES * usize::from(BUFFERS), 4096).expect("memory for buffers");
        let state = State { free: (0..BUFFERS).rev().collect(), ..State::default() };
        Arc::new(Self {
            number: u64::from(number) << 32,
            memory,
            pair: Mutex::default(),
            state: Mutex::new(state),
            disrupted: AtomicU32::new(0),
            distrusted: AtomicBool::new(false),
        })
    }

    /// The queue pair that takes the commands; none: commands go nowhere.
    pub(super) fn attach(&self, pair: Option<&Arc<QueuePair<SimHal>>>) {
        *self.pair.lock().expect("one host thread") = pair.map(Arc::downgrade).unwrap_or_default();
    }

    fn pair(&self) -> Option<Arc<QueuePair<SimHal>>> {
        self.pair.lock().expect("one host thread").upgrade()
    }

    fn state<R>(&self, with: impl FnOnce(&mut State) -> R) -> R {
        with(&mut self.state.lock().expect("one host thread"))
    }

    /// Submits up to `count` commands in one batch; returns how many were accepted.
    pub(super) fn submit(&self, count: u32, user: Option<&Arc<User>>) -> u32 {
        let Some(pair) = self.pair() else { return 0 };
        let requests: Vec<IoRequest> = (0..count).map_while(|_| self.prepare(user)).collect();
        let submitted = pair.submit(&requests);
        self.state(|state| state.accepted += submitted.accepted as u64);
        let refused = &requests[submitted.accepted..];
        refused.iter().for_each(|request| self.take_back(request.tag));
        match submitted.refused {
            None | Some(Refusal::Full | Refusal::Stopped) => submitted.accepted as u32,
            Some(other) => violate("commands", format!("a valid command was refused: {other}")),
        }
    }

    fn prepare(&self, user: Option<&Arc<User>>) -> Option<IoRequest> {
        let since_ns = SimHal.now_ns();
        let (tag, lba, buffer) = self.state(|state| {
            let buffer = state.free.pop()?;
            let (tag, lba) = (self.number | state.given, state.given % 4096);
            state.given += 1;
            state.in_flight.insert(tag, Flight { since_ns, buffer, lba, user: user.cloned() });
            Some((tag, lba, buffer))
        })?;
        let offset = BLOCK_BYTES * usize::from(buffer);
        self.memory.words()[offset / 8].set(POISON);
        if let Some(user) = user {
            user.begins();
        }
        Mark::Submitted.of(tag);
        let buffer = self.memory.device_address().offset(offset as u64);
        Some(IoRequest { tag, op: IoOp::Read, lba, buffer, len_bytes: BLOCK_BYTES as u32 })
    }

    fn take_back(&self, tag: u64) {
        Mark::Refused.of(tag);
        if let Some(flight) = self.land(tag)
            && let Some(user) = flight.user
        {
            user.ends();
        }
    }

    fn land(&self, tag: u64) -> Option<Flight> {
        self.state(|state| {
            let flight = state.in_flight.remove(&tag)?;
            state.free.push(flight.buffer);
            Some(flight)
        })
    }

    /// Submits `count` commands: `depth` of them now, each of the others from a completion.
    pub(super) fn carry(&self, count: u64, depth: u32) {
        self.state(|state| state.carried += count);
        for _ in 0..depth {
            self.carry_one();
        }
    }

    /// Submits no further commands from completions.
    pub(super) fn carry_no_more(&self) {
        self.state(|state| state.carried = 0);
    }

    fn carry_one(&self) {
        if self.state(|state| state.carried == 0) {
            return;
        }
        if self.submit(1, None) == 1 {
            self.state(|state| state.carried = state.carried.saturating_sub(1));
        }
    }

    /// Commands that its queues accepted.
    pub(super) fn given(&self) -> u64 {
        self.state(|state| state.accepted)
    }

    /// True if no command is in flight. Commands still to submit need a completion to go on; without one they are
    /// forgotten.
    pub(super) fn is_idle(&self) -> bool {
        self.state(|state| {
            if state.in_flight.is_empty() {
                state.carried = 0;
            }
            state.in_flight.is_empty()
        })
    }

    /// How long the oldest command has been in flight, in ns.
    pub(super) fn oldest_ns(&self) -> u64 {
        let now_ns = SimHal.now_ns();
        self.state(|state| {
            state.in_flight.values().map(|flight| now_ns.saturating_sub(flight.since_ns)).max().unwrap_or(0)
        })
    }

    fn completed(&self, completed: &Completed) {
        let flight = self.land(completed.tag);
        match completed.result {
            Ok(_) => {
                if let Some(flight) = &flight {
                    self.check_data(completed.tag, flight);
                }
                Mark::Completed.of(completed.tag);
            }
            Err(error) => {
                self.check_error(completed.tag, flight.as_ref(), error);
                Mark::Failed.of(completed.tag);
            }
        }
        if let Some(user) = flight.and_then(|flight| flight.user) {
            user.ends();
        }
    }

    /// A completion follows its data: the buffer holds the drive's data of that block.
    fn check_data(&self, tag: u64, flight: &Flight) {
        let found = self.memory.words()[BLOCK_BYTES / 8 * usize::from(flight.buffer)].get();
        if found != flight.lba && !self.distrusted.load(Relaxed) {
            let text = format!("command {tag:#x} completed; its buffer holds {found:#x} instead of {:#x}", flight.lba);
            violate("commands", text);
        }
    }

    /// From now on, commands in flight since `since_ns` may be aborted. Younger ones may not: no Abort names them.
    pub(super) fn may_be_aborted(&self, since_ns: u64) {
        self.state(|state| state.aborted_ns = state.aborted_ns.max(since_ns));
    }

    fn check_error(&self, tag: u64, flight: Option<&Flight>, error: IoError) {
        let old = self.state(|state| flight.is_some_and(|flight| flight.since_ns <= state.aborted_ns));
        let explained = match error {
            IoError::Device { status: Status::ABORT_REQUESTED, .. } if old => true,
            IoError::Device { .. } => self.distrusted.load(Relaxed) || self.disrupted.load(Relaxed) > 0,
            IoError::QueueDeleted | IoError::ControllerReset | IoError::Shutdown => self.disrupted.load(Relaxed) > 0,
        };
        if !explained {
            violate("commands", format!("command {tag:#x} failed, and no fault explains it: {error}"));
        }
    }
}

/// Runs an operation that may end commands of `loads` with an error.
pub(super) fn disrupt<R>(loads: &[&Load], body: impl FnOnce() -> R) -> R {
    loads.iter().for_each(|load| _ = load.disrupted.fetch_add(1, Relaxed));
    let result = body();
    loads.iter().for_each(|load| _ = load.disrupted.fetch_sub(1, Relaxed));
    result
}

impl BatchDone for Load {
    fn batch_done(&self, batch: &[Completed]) {
        for completed in batch {
            self.completed(completed);
            self.carry_one();
        }
    }
}

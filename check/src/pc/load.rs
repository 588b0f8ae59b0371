//! The load of one queue: submits commands, and knows the right result of each.

use super::blocks::{Access, Blocks, Done, End, Mix, Op};
use super::user::User;
use crate::checkers::{queues, scatter};
use crate::mark::Mark;
use crate::server::Host;
use crate::verdict::violate;
use drivers::nvme::{BatchDone, Completed, IoError, IoOp, IoRequest, QueuePair, Refusal};
use hal::{CpuId, Dma as _, Hal as _, Word as _};
use machine::SimHal;
use spec::nvme::Status;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};

/// Bytes of a block. Its first word stands for its data.
const BLOCK_BYTES: usize = 512;
/// Commands that a load has buffers for: more than a queue of 32 entries takes.
const BUFFERS: u16 = 32;
/// The content of a buffer until a read fills it.
const POISON: u64 = 0xdead_dead_dead_dead;

struct Flight {
    since_ns: u64,
    buffer: u16,
    access: Access,
    cpu: CpuId,
    user: Option<Arc<User>>,
}

struct State {
    blocks: Blocks,
    given: u64,
    accepted: u64,
    /// Over the commands that were done and the data that reads found, in whatever order.
    found: u64,
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
    /// Words of a buffer.
    stride: usize,
    /// The queue pair reports to the load, and so owns it.
    pair: Mutex<Weak<QueuePair<SimHal>>>,
    state: Mutex<State>,
    /// Operations under way that may end its commands with an error.
    disrupted: AtomicU32,
    /// There was one.
    pub(super) was_disrupted: AtomicBool,
    /// The drive's reports cannot be trusted.
    pub(super) distrusted: AtomicBool,
    /// For calls of CPUs; none: nobody calls. The core of the machine keeps the load.
    calls: Weak<Host>,
}

impl Load {
    /// The load of queue `number` in the history of this seed; on a CPU of the machine. Its buffers begin anywhere in a
    /// page and cross into the next ones.
    pub(super) fn new(seed: u64, number: u32, mix: Mix, calls: Weak<Host>) -> Arc<Self> {
        let bytes = BLOCK_BYTES * mix.blocks_max as usize;
        let memory = SimHal.dma_alloc(bytes * usize::from(BUFFERS), 4096).expect("memory for buffers");
        let state = State {
            blocks: Blocks::new(seed, number, mix),
            given: 0,
            accepted: 0,
            found: 0,
            in_flight: BTreeMap::new(),
            free: (0..BUFFERS).rev().collect(),
            carried: 0,
            aborted_ns: 0,
        };
        Arc::new(Self {
            number: u64::from(number) << 32,
            memory,
            stride: bytes / 8,
            pair: Mutex::default(),
            state: Mutex::new(state),
            disrupted: AtomicU32::new(0),
            was_disrupted: AtomicBool::new(false),
            distrusted: AtomicBool::new(false),
            calls,
        })
    }

    /// Its number.
    pub(super) fn index(&self) -> u64 {
        self.number >> 32
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
        if user.is_some() {
            self.call(CpuId(SimHal.cpu().0 + 1));
        }
        self.state(|state| state.accepted += submitted.accepted as u64);
        let refused = &requests[submitted.accepted..];
        refused.iter().for_each(|request| self.take_back(request.tag));
        match submitted.refused {
            None | Some(Refusal::Full | Refusal::Stopped) => submitted.accepted as u32,
            Some(other) => violate("commands", format!("a valid command was refused: {other}")),
        }
    }

    fn prepare(&self, user: Option<&Arc<User>>) -> Option<IoRequest> {
        let (since_ns, cpu) = (SimHal.now_ns(), SimHal.cpu());
        let (tag, access, buffer) = self.state(|state| {
            let buffer = state.free.pop()?;
            let (tag, access) = (self.number | state.given, state.blocks.begin());
            state.given += 1;
            state.in_flight.insert(tag, Flight { since_ns, buffer, access, cpu, user: user.cloned() });
            Some((tag, access, buffer))
        })?;
        let data = written(tag).map(|data| if access.op == Op::Write { data } else { POISON });
        self.first_words(buffer, access.blocks).zip(data).for_each(|(word, data)| word.set(data));
        if let Some(user) = user {
            user.begins();
        }
        Mark::Submitted.of(tag);
        let buffer = self.memory.device_address().offset((8 * self.stride * usize::from(buffer)) as u64);
        let op = match access.op {
            Op::Read => IoOp::Read,
            Op::Write => IoOp::Write,
            Op::Flush => IoOp::Flush,
            Op::Deallocate => IoOp::Deallocate,
        };
        Some(IoRequest { tag, op, lba: access.lba, buffer, len_bytes: BLOCK_BYTES as u32 * access.blocks })
    }

    /// The words of a buffer that stand for its blocks.
    fn first_words(&self, buffer: u16, blocks: u32) -> impl Iterator<Item = &<SimHal as hal::Hal>::Word> {
        let words = &self.memory.words()[self.stride * usize::from(buffer)..];
        words.iter().step_by(BLOCK_BYTES / 8).take(blocks as usize)
    }

    fn take_back(&self, tag: u64) {
        Mark::Refused.of(tag);
        if let Some(flight) = self.land(tag, End::Refused)
            && let Some(user) = flight.user
        {
            user.ends();
        }
    }

    fn land(&self, tag: u64, end: End) -> Option<Flight> {
        self.state(|state| {
            let flight = state.in_flight.remove(&tag)?;
            state.blocks.end(flight.access, end, written(tag));
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

    /// Commands that were done.
    pub(super) fn done(&self) -> Done {
        self.state(|state| state.blocks.done)
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
        if completed.result.is_ok() {
            self.check_data(completed.tag);
            self.note_found(completed.tag);
        }
        let is_done = completed.result.is_ok() && !self.distrusted.load(Relaxed);
        let flight = self.land(completed.tag, if is_done { End::Done } else { End::Unknown });
        match completed.result {
            Ok(_) => {
                Mark::Completed.of(completed.tag);
            }
            Err(error) => {
                self.check_error(completed.tag, flight.as_ref(), error);
                Mark::Failed.of(completed.tag);
            }
        }
        let Some(flight) = flight else { return };
        self.call(flight.cpu);
        if let Some(user) = flight.user {
            user.ends();
        }
    }

    /// Calls a CPU as a kernel does: from threads, with interrupts on, and from completions.
    fn call(&self, cpu: CpuId) {
        if let Some(host) = self.calls.upgrade() {
            host.call(CpuId(cpu.0 % host.cpus()));
        }
    }

    /// A completion follows its data: the buffer of a read holds what its blocks may hold.
    fn check_data(&self, tag: u64) {
        if self.distrusted.load(Relaxed) {
            return;
        }
        let wrong = self.state(|state| {
            let Flight { buffer, access, .. } =
                state.in_flight.get(&tag).filter(|flight| flight.access.op == Op::Read)?;
            let mut found = (access.lba..).zip(self.first_words(*buffer, access.blocks).map(|word| word.get()));
            found.find_map(|(lba, found)| Some((lba, found, state.blocks.found(lba, found).err()?)))
        });
        if let Some((lba, found, expected)) = wrong {
            violate(
                "commands",
                format!("read {tag:#x} completed; it found {found:#x} in block {lba:#x} instead of {expected}"),
            );
        }
    }

    fn note_found(&self, tag: u64) {
        self.state(|state| {
            let Some(Flight { buffer, access, .. }) = state.in_flight.get(&tag) else { return };
            let data = self.first_words(*buffer, access.blocks).map(|word| word.get());
            let words = [tag, access.op as u64, access.lba].into_iter().chain(data);
            let command = words.fold(0, |digest: u64, word| scatter(digest.rotate_left(7) ^ word));
            state.found = state.found.wrapping_add(command);
        });
    }

    /// A digest of the commands that were done and of the data that reads found.
    pub(super) fn found(&self) -> u64 {
        self.state(|state| state.found)
    }

    /// From now on, commands in flight since `since_ns` may be aborted. Younger ones may not: no Abort names them.
    pub(super) fn may_be_aborted(&self, since_ns: u64) {
        self.state(|state| state.aborted_ns = state.aborted_ns.max(since_ns));
    }

    /// Commands in flight since `since_ns` or longer.
    pub(super) fn old(&self, since_ns: u64) -> Vec<u64> {
        let is_old = |(&tag, flight): (&u64, &Flight)| (flight.since_ns <= since_ns).then_some(tag);
        self.state(|state| state.in_flight.iter().filter_map(is_old).collect())
    }

    pub(super) fn is_in_flight(&self, tag: u64) -> bool {
        self.state(|state| state.in_flight.contains_key(&tag))
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

/// What a write of this number writes into its blocks, one after the other: nothing that was there before.
fn written(tag: u64) -> impl Iterator<Item = u64> {
    (0..).map(move |block| 1 << 63 | tag << 8 | block)
}

/// Runs an operation that may end commands of `loads` with an error.
pub(super) fn disrupt<R>(loads: &[&Load], body: impl FnOnce() -> R) -> R {
    for load in loads {
        load.disrupted.fetch_add(1, Relaxed);
        load.was_disrupted.store(true, Relaxed);
        queues::disrupted(load.index(), false);
    }
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

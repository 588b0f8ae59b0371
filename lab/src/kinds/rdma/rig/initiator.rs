//! The initiator: a thread that keeps reads in flight, and the user that completes them.
//!
//! A read is a *capsule* of 64 bytes that goes out with a send. The target writes the data to the address in the
//! capsule and answers with a message, whose receive completes the read.

use super::level::Recorded;
use crate::kinds::rdma::{Rdma, Tells};
use crate::outcome::histogram;
use crate::run::error::SetupError;
use crate::work;
use drivers::rdma::{Completion, CompletionQueue, CqUser, MemoryKey, PostReceive, PostSend, QueuePair};
use hal::{DeviceAddress, Dma as _, Hal as _, Lock, ThreadId, Threads, Word as _};
use hdrhistogram::Histogram;
use machine::{SimHal, Stream, Word};
use spec::rdma::{Operation, Status};
use std::sync::{Arc, Mutex};

/// Bytes of a capsule: the length of an NVMe command.
pub(super) const CAPSULE_BYTES: u32 = 64;
/// Bytes of an answer: the length of an NVMe completion.
pub(super) const ANSWER_BYTES: u32 = 16;
/// Every nth send asks for a completion, which also ends the sends before it.
pub(super) const SIGNAL_EVERY: u32 = 32;
/// Receives beyond the depth, so that an answer always finds a receive.
pub(super) const SPARE_RECEIVES: u32 = 16;

pub(super) type Buffer = machine::memory::Dma;

/// Words of a capsule.
pub(super) mod capsule {
    /// Identifies the read; the answer repeats it.
    pub(in super::super) const SLOT: usize = 0;
    /// Address of the data.
    pub(in super::super) const ADDRESS: usize = 1;
    /// Key of the memory.
    pub(in super::super) const KEY: usize = 2;
    /// Number of bytes.
    pub(in super::super) const BYTES: usize = 3;
}

/// Counters of all initiators of a run.
#[derive(Clone)]
pub(super) struct Tally(Arc<Mutex<Counts>>);

struct Counts {
    ios: u64,
    errors: u64,
    latency: Histogram<u64>,
}

impl Default for Tally {
    fn default() -> Self {
        let latency = histogram();
        Self(Arc::new(Mutex::new(Counts { ios: 0, errors: 0, latency })))
    }
}

impl Tally {
    fn with<R>(&self, f: impl FnOnce(&mut Counts) -> R) -> R {
        f(&mut self.0.lock().expect("no panic while counts are held"))
    }
    pub(super) fn ios(&self) -> u64 {
        self.with(|counts| counts.ios)
    }
    pub(super) fn errors(&self) -> u64 {
        self.with(|counts| counts.errors)
    }
    pub(super) fn latency<R>(&self, of: impl FnOnce(&Histogram<u64>) -> R) -> R {
        self.with(|counts| of(&counts.latency))
    }
    /// Resets the counters to zero.
    pub(super) fn reset(&self) {
        self.with(|counts| {
            (counts.ios, counts.errors) = (0, 0);
            counts.latency.reset();
        });
    }
}

struct Slots {
    free: Vec<u32>,
    /// Completed reads that the thread has not seen yet.
    done: Vec<u32>,
    submitted_ns: Vec<u64>,
    /// Sends since the last send that asked for a completion.
    unsignalled: u32,
}

/// One initiator: the user of its completion queue.
pub(super) struct Initiator {
    slots: Lock<SimHal, Slots>,
    /// Reads that were posted and are not completed.
    posted: Word,
    /// Reads that the application keeps under way.
    depth: Word,
    tells: Tells,
    pair: std::sync::OnceLock<Arc<QueuePair<SimHal>>>,
    /// The sleeping thread's id, plus 1.
    sleeper: Word,
    capsules: Buffer,
    answers: Buffer,
    data: Buffer,
    stride: u64,
    tally: Tally,
}

impl Initiator {
    pub(super) fn new(rdma: &Rdma, tally: &Tally) -> Result<Self, SetupError> {
        let depth = rdma.depth_max();
        let stride = u64::from(rdma.block_bytes);
        let memory = |bytes: u64| SimHal.dma_alloc(bytes as usize, 4096).map_err(SetupError::Memory);
        let slots = Slots {
            free: (0..depth).rev().collect(),
            done: Vec::with_capacity(depth as usize),
            submitted_ns: vec![0; depth as usize],
            unsignalled: 0,
        };
        Ok(Self {
            slots: Lock::new(SimHal, slots),
            posted: hal::Word::new(0),
            depth: hal::Word::new(0),
            tells: rdma.tells,
            pair: std::sync::OnceLock::new(),
            sleeper: hal::Word::new(0),
            capsules: memory(u64::from(depth * CAPSULE_BYTES))?,
            answers: memory(u64::from((depth + SPARE_RECEIVES) * ANSWER_BYTES))?,
            data: memory(u64::from(depth) * stride)?,
            stride,
            tally: tally.clone(),
        })
    }

    /// Memory that the target writes to.
    pub(super) fn data(&self) -> (DeviceAddress, u64) {
        (self.data.device_address(), self.data.len_bytes() as u64)
    }

    /// Called once the pair is connected: writes the capsules, posts the receives.
    pub(super) fn begin(&self, pair: Arc<QueuePair<SimHal>>, key: MemoryKey, rdma: &Rdma) {
        for slot in 0..rdma.depth_max() {
            let base = (slot * CAPSULE_BYTES / 8) as usize;
            let words = &self.capsules.words()[base..];
            words[capsule::SLOT].set(slot.into());
            words[capsule::ADDRESS].set(self.data().0.0 + u64::from(slot) * self.stride);
            words[capsule::KEY].set(key.0.into());
            words[capsule::BYTES].set(rdma.block_bytes.into());
        }
        let receives = rdma.depth_max() + SPARE_RECEIVES;
        for number in 0..receives {
            pair.post_receive(&self.receive(number.into())).expect("the queue was opened for as many");
        }
        pair.ring_receives();
        assert!(self.pair.set(pair).is_ok(), "connected once");
    }

    fn pair(&self) -> &QueuePair<SimHal> {
        self.pair.get().expect("connected before anything runs")
    }

    fn receive(&self, id: u64) -> PostReceive {
        let local = self.answers.device_address().offset(id * u64::from(ANSWER_BYTES));
        PostReceive { id, local, bytes: ANSWER_BYTES }
    }

    /// Posts a read of a call that began at `start_ns`.
    fn post(&self, start_ns: u64) {
        SimHal.work(work::FABRIC_SUBMIT, 1);
        let mut slots = self.slots.lock();
        let slot = slots.free.pop().expect("the thread counts what it has outstanding");
        slots.submitted_ns[slot as usize] = start_ns;
        slots.unsignalled += 1;
        let signalled = slots.unsignalled == SIGNAL_EVERY;
        if signalled {
            slots.unsignalled = 0;
        }
        self.posted.set(self.posted.get() + 1);
        let local = self.capsules.device_address().offset(u64::from(slot * CAPSULE_BYTES));
        let send = PostSend { id: slot.into(), local, bytes: CAPSULE_BYTES, remote: None, signalled };
        self.pair().post_send(&send).expect("the queue was opened for more than the slots");
        self.pair().ring_sends();
    }

    /// A read has ended.
    fn answered(&self, slots: &mut Slots, completion: &Completion) {
        let word = completion.id as usize * ANSWER_BYTES as usize / 8;
        let slot = self.answers.words()[word].get() as u32;
        if completion.status == Status::SUCCESS && (slot as usize) < slots.submitted_ns.len() {
            slots.done.push(slot);
            self.posted.set(self.posted.get() - 1);
        } else {
            self.tally.with(|counts| counts.errors += 1);
        }
        // A stopped queue pair accepts nothing more.
        let _ = self.pair().post_receive(&self.receive(completion.id));
    }

    /// Takes at most this many completed reads and returns their number.
    fn see(&self, most: u32) -> u32 {
        let mut slots = self.slots.lock();
        let now_ns = SimHal.now_ns();
        let Slots { free, done, submitted_ns, .. } = &mut *slots;
        let seen = done.len().min(most as usize);
        self.tally.with(|counts| {
            counts.ios += seen as u64;
            for slot in done.drain(..seen) {
                counts.latency.saturating_record(now_ns - submitted_ns[slot as usize]);
                free.push(slot);
            }
        });
        seen as u32
    }
}

impl CqUser for Initiator {
    fn completions(&self, batch: &[Completion]) {
        let reads = batch.iter().filter(|completion| completion.operation == Operation::RECEIVE);
        SimHal.work(work::FABRIC_COMPLETE, reads.clone().count() as u32);
        let mut slots = self.slots.lock();
        let mut received = 0;
        for completion in reads {
            received += 1;
            self.pair().receives_ended(1);
            self.answered(&mut slots, completion);
        }
        self.pair().sends_ended((batch.len() as u32 - received) * SIGNAL_EVERY);
        drop(slots);
        self.pair().ring_receives();
        let sleeper = self.sleeper.get();
        if sleeper != 0 {
            self.sleeper.set(0);
            SimHal.wake(ThreadId((sleeper - 1) as u32));
        }
    }

    fn in_flight(&self) -> Option<u32> {
        match self.tells {
            Tells::Nothing => None,
            Tells::Posted => Some(self.posted.get() as u32),
            Tells::All => Some(self.depth.get() as u32),
        }
    }
}

/// The thread of an initiator.
pub(super) struct Load {
    pub(super) initiator: Arc<Initiator>,
    pub(super) queue: Arc<CompletionQueue<SimHal>>,
    pub(super) recorded: Arc<Recorded>,
    pub(super) rdma: Rdma,
    pub(super) random: Stream,
    pub(super) start_ns: u64,
}

impl Load {
    /// Runs until the machine stops.
    pub(super) fn run(mut self) {
        let me = u64::from(SimHal.current_thread().0) + 1;
        let mut outstanding = 0;
        loop {
            let seen = self.initiator.see(self.rdma.batch);
            outstanding -= seen;
            self.recorded.wake_late();
            let depth = self.rdma.depth_at(SimHal.now_ns() - self.start_ns);
            self.initiator.depth.set(depth.into());
            let is_full = outstanding >= depth;
            while outstanding < depth {
                let count = (depth - outstanding).min(self.rdma.batch);
                self.submit(count);
                outstanding += count;
            }
            if seen > 0 || !is_full {
                continue;
            }
            self.initiator.sleeper.set(me);
            // A completion that came before the sleeper was set is seen by this second look.
            if self.initiator.slots.lock().done.is_empty() {
                SimHal.park();
            }
        }
    }

    /// Submits this many reads in one call. The kernel posts each as a send of its own, with a doorbell (Linux
    /// `nvme_rdma_queue_rq`).
    fn submit(&mut self, count: u32) {
        let start_ns = SimHal.now_ns();
        for _ in 0..count {
            self.initiator.post(start_ns);
            if self.random.next() % 100 < self.rdma.polled_percent.into() {
                self.queue.poll_direct(drivers::rdma::BATCH as u32);
            }
        }
    }
}

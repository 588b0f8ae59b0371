//! What is left of a NIC in the end: its driver refuses more than there is, keeps nothing of what it has refused, and gives
//! exactly what is left.
//!
//! The consumers leave some objects of each kind. Requests that must be refused come between ones that must be granted. What a
//! refusal kept would be missing from a later grant, or would show in the numbers of a later refusal.

use crate::verdict::violate;
use drivers::rdma::{
    Completion, CompletionQueue, CqConfig, CqUse, CqUser, Device, MemoryKey, QpConfig, QueuePair, RdmaError,
};
use hal::{DeviceAddress, DmaError};
use machine::SimHal;
use std::sync::Arc;

const NAME: &str = "fullness";

/// Queue pairs, completion queues and memory regions that a NIC has beside those of the consumers.
pub(super) const PAIRS: u16 = 3;
pub(super) const QUEUES: u16 = 2;
pub(super) const REGIONS: u8 = 2;

/// The least entries of a queue of the NIC (`drivers::rdma::CqConfig`).
const LEAST: u32 = 16;
/// The three pairs have `LEAST` requests of each kind. All of their sends and one's receives end on the first queue, and the
/// other receives on the second.
const ENTRIES: [u32; 2] = [4 * LEAST, 2 * LEAST];

type Queue = Arc<CompletionQueue<SimHal>>;

/// The user of queues on which nothing is sent.
struct Nobody;

impl CqUser for Nobody {
    fn completions(&self, batch: &[Completion]) {
        violate("commands", format!("completions of queue pairs that never sent: {batch:?}"));
    }
}

/// The answer to a request for more than there is.
fn refused<T>(asked: &str, answer: Result<T, RdmaError>, expected: &RdmaError) {
    match answer {
        Err(error) if error == *expected => {}
        Err(error) => violate(NAME, format!("{asked}: refused because {error}, and must be because {expected}")),
        Ok(_) => violate(NAME, format!("{asked}: granted, and must be refused because {expected}")),
    }
}

/// The answer to a request for what is left.
fn granted<T>(asked: &str, answer: Result<T, RdmaError>) -> T {
    answer.unwrap_or_else(|error| violate(NAME, format!("{asked}: refused although it is left: {error}")))
}

/// No memory is left for devices: the error names a size, which is the driver's own affair.
fn refused_for_memory<T>(asked: &str, answer: Result<T, RdmaError>) {
    if !matches!(answer, Err(RdmaError::Memory(DmaError::Exhausted(_)))) {
        let error = answer.map(|_| ());
        violate(NAME, format!("{asked} without memory: {error:?}"));
    }
}

/// A NIC of which the consumers have left something.
pub(super) struct Spare<'a> {
    pub(super) device: &'a Device<SimHal>,
    /// Pairs, and completion queues, of the consumers.
    pub(super) used: u16,
}

impl Spare<'_> {
    fn open_cq(&self, entries: u32, event_queue: u16) -> Result<Queue, RdmaError> {
        self.device.open_cq(CqConfig { entries, event_queue, owner: CqUse::Exclusive }, Arc::new(Nobody), None)
    }

    fn open_qp(&self, (sends, receives): (u32, u32), on: [&Queue; 2]) -> Result<Arc<QueuePair<SimHal>>, RdmaError> {
        self.device.open_qp(QpConfig { sends, receives }, on[0], on[1])
    }

    /// Asks for queues that no NIC of this kind has, and takes the first of what is left.
    pub(super) fn begin(&self) -> Queue {
        let (most, events) = (1 << self.device.capabilities().entries_shift_max(), self.used);
        for entries in [0, LEAST / 2, LEAST + LEAST / 2, 2 * most] {
            refused("a completion queue", self.open_cq(entries, 0), &RdmaError::Entries(entries, most));
        }
        refused("events elsewhere", self.open_cq(LEAST, events), &RdmaError::NoEventQueue(events, events));
        let first = granted("the first completion queue", self.open_cq(ENTRIES[0], 0));
        for entries in [0, LEAST / 2, LEAST + LEAST / 2, 2 * most] {
            let error = RdmaError::Entries(entries, most);
            refused("a queue pair's sends", self.open_qp((entries, LEAST), [&first; 2]), &error);
            refused("a queue pair's receives", self.open_qp((LEAST, entries), [&first; 2]), &error);
        }
        first
    }

    /// There is no memory for devices.
    pub(super) fn without_memory(&self, first: &Queue) {
        refused_for_memory("a completion queue", self.open_cq(LEAST, 0));
        refused_for_memory("a queue pair", self.open_qp((LEAST, LEAST), [first; 2]));
    }

    /// Takes the rest. Before each grant it asks for more than the completion queues can hold: first for sends, which are
    /// promised before receives, then for receives behind sends for which there is room.
    pub(super) fn take_all(&self, first: &Queue) {
        let second = granted("the last completion queue", self.open_cq(ENTRIES[1], 0));
        let queues = u32::from(self.used + QUEUES);
        refused("one more", self.open_cq(LEAST, 0), &RdmaError::Exhausted("completion queues", queues));
        let ends = [[first, first], [first, &second], [first, &second]];
        let mut promised = [0, 0];
        let mut pairs = Vec::new();
        for on in ends {
            self.ask_for_more(promised, [first, &second]);
            pairs.push(granted("a queue pair", self.open_qp((LEAST, LEAST), on)));
            for queue in on {
                promised[usize::from(queue.number() == second.number())] += LEAST;
            }
        }
        let count = u32::from(self.used + PAIRS);
        let more = self.open_qp((LEAST, LEAST), [first, &second]);
        refused("one more", more, &RdmaError::Exhausted("queue pairs", count));
        for pair in &pairs {
            granted("a connection", pair.connect(pair.number()));
        }
        self.lend_all();
        // The NIC uses them until it is off.
        self.device.shutdown();
    }

    fn ask_for_more(&self, promised: [u32; 2], queues: [&Queue; 2]) {
        for (at, on) in queues.into_iter().enumerate() {
            let other = queues[1 - at];
            // The least power of two that does not fit.
            let much = (ENTRIES[at] - promised[at] + 1).next_power_of_two();
            let error = RdmaError::Capacity(promised[at] + much, ENTRIES[at]);
            refused("too many sends", self.open_qp((much, LEAST), [on, other]), &error);
            refused("too many receives", self.open_qp((LEAST, much), [other, on]), &error);
            // The sends alone fit.
            let error = RdmaError::Capacity(promised[at] + LEAST + much, ENTRIES[at]);
            refused("too many of both", self.open_qp((LEAST, much), [on; 2]), &error);
        }
    }

    /// Lends all regions that there are. Each has a key of its own.
    fn lend_all(&self) {
        let lend = || self.device.lend(DeviceAddress(0), 8);
        let mut keys: Vec<MemoryKey> = (0..REGIONS).map(|_| granted("a memory region", lend())).collect();
        refused("one more", lend(), &RdmaError::Exhausted("memory regions", REGIONS.into()));
        keys.sort_unstable();
        if let Some(twice) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
            violate(NAME, format!("{:?} is given out twice", twice[0]));
        }
    }
}

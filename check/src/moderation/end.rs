//! One end of a connection between two RDMA NICs: the user of its completion queue, and a load of messages to the
//! other end.

use super::work::Source;
use crate::mark::Mark;
use crate::verdict::violate;
use drivers::rdma::{Completion, CompletionQueue, CqUser, PostReceive, PostSend, QueuePair, Refusal};
use hal::{Dma as _, Hal as _, Lock, Regs as _, Word as _, Work};
use irq::moderation::Setting;
use machine::{Regs, SimHal};
use spec::rdma::registers::{self, Moderation};
use spec::rdma::{Operation, Status};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};

/// Work of this host for each message that is reported to its user.
pub(super) const COMPLETE: Work = Work::custom(0);

/// Messages that an end may have under way; the other end has as many receives ready.
pub(super) const DEPTH_MAX: u64 = 24;
/// Sends, and receives, of a queue pair.
pub(super) const ENTRIES: u32 = 32;
/// A message: its number, and its place at its sender.
const MESSAGE_BYTES: u32 = 16;

struct Side {
    left: u64,
    sent: u64,
    /// By place: the message's number, and how many of its two completions are still to come.
    under_way: Vec<Option<(u64, u32)>>,
}

impl Side {
    fn count(&self) -> u64 {
        self.under_way.iter().flatten().count() as u64
    }
}

/// The parts that an end has once it is connected.
struct Connected {
    pair: Arc<QueuePair<SimHal>>,
    /// It holds its user.
    queue: Weak<CompletionQueue<SimHal>>,
    /// Registers of its NIC.
    regs: Regs,
    peer: Weak<End>,
}

/// An end.
pub(super) struct End {
    pub(super) number: u32,
    connected: OnceLock<Connected>,
    depth: AtomicU64,
    side: Lock<SimHal, Side>,
    sends: machine::memory::Dma,
    receives: machine::memory::Dma,
    tells_depth: bool,
    done: AtomicU64,
}

impl End {
    pub(super) fn new(number: u32, depth: u64, tells_depth: bool) -> Arc<Self> {
        let memory = || SimHal.dma_alloc((ENTRIES * MESSAGE_BYTES) as usize, 64).expect("memory");
        let side = Side { left: 0, sent: 0, under_way: vec![None; DEPTH_MAX as usize] };
        Arc::new(Self {
            number,
            connected: OnceLock::new(),
            depth: AtomicU64::new(depth),
            side: Lock::new(SimHal, side),
            sends: memory(),
            receives: memory(),
            tells_depth,
            done: AtomicU64::new(0),
        })
    }

    /// Its queue pair is connected: posts its receives.
    pub(super) fn begin(
        &self,
        pair: Arc<QueuePair<SimHal>>,
        queue: &Arc<CompletionQueue<SimHal>>,
        regs: Regs,
        peer: &Arc<Self>,
    ) {
        let connected = Connected { pair, queue: Arc::downgrade(queue), regs, peer: Arc::downgrade(peer) };
        assert!(self.connected.set(connected).is_ok(), "once");
        (0..u64::from(ENTRIES)).for_each(|id| self.receive(id));
        self.connected().pair.ring_receives();
    }

    fn connected(&self) -> &Connected {
        self.connected.get().expect("connected before anything is sent")
    }

    /// The queue for the completions of its own messages and of the other end's.
    fn queue(&self) -> Arc<CompletionQueue<SimHal>> {
        self.connected().queue.upgrade().expect("it lives as long as it is polled")
    }

    fn receive(&self, id: u64) {
        let local = self.receives.device_address().offset(id * u64::from(MESSAGE_BYTES));
        let posted = self.connected().pair.post_receive(&PostReceive { id, local, bytes: MESSAGE_BYTES });
        posted.expect("as many as the queue has");
    }

    /// Sends until the depth is reached.
    fn go_on(&self) {
        while let Some((place, number)) = self.next() {
            let base = place * MESSAGE_BYTES as usize / 8;
            self.sends.words()[base].set(number);
            self.sends.words()[base + 1].set(place as u64);
            Mark::Submitted.of(number);
            Mark::Submitted.of(number | 1);
            let local = self.sends.device_address().offset(place as u64 * u64::from(MESSAGE_BYTES));
            let send = PostSend { id: number, local, bytes: MESSAGE_BYTES, remote: None, signalled: true };
            self.connected().pair.post_send(&send).expect("the queue is longer than the depth");
        }
        self.connected().pair.ring_sends();
    }

    /// A place and a number for one more message.
    fn next(&self) -> Option<(usize, u64)> {
        let mut side = self.side.lock();
        if side.left == 0 || side.count() >= self.depth.load(Relaxed) {
            return None;
        }
        let place = side.under_way.iter().position(Option::is_none)?;
        let number = u64::from(self.number) << 40 | side.sent << 1;
        (side.left, side.sent) = (side.left - 1, side.sent + 1);
        side.under_way[place] = Some((number, 2));
        Some((place, number))
    }

    /// One of the two completions of a message of this end has come.
    fn half(&self, number: u64) {
        let mut side = self.side.lock();
        let place = side.under_way.iter_mut().find(|place| place.is_some_and(|(other, _)| other == number));
        match place {
            Some(place @ Some((_, 1))) => *place = None,
            Some(Some((_, halves))) => *halves -= 1,
            _ => violate("commands", format!("message {number:#x} is not under way")),
        }
    }

    /// A receive has ended and is posted again. Returns the number of its message.
    fn arrived(&self, id: u64) -> u64 {
        let word = &self.receives.words()[id as usize * MESSAGE_BYTES as usize / 8];
        let number = word.get();
        Mark::Completed.of(number | 1);
        self.connected().pair.receives_ended(1);
        self.receive(id);
        number
    }
}

impl CqUser for End {
    fn completions(&self, batch: &[Completion]) {
        SimHal.work(COMPLETE, batch.len() as u32);
        self.done.fetch_add(batch.len() as u64, Relaxed);
        let peer = self.connected().peer.upgrade().expect("both ends live");
        let mut arrived = Vec::new();
        for completion in batch {
            if completion.status != Status::SUCCESS {
                violate("operations", format!("a message failed, {:?}, and no fault explains it", completion.status));
            }
            if completion.operation == Operation::RECEIVE {
                arrived.push(self.arrived(completion.id));
            } else {
                Mark::Completed.of(completion.id);
                self.connected().pair.sends_ended(1);
                self.half(completion.id);
            }
        }
        self.connected().pair.ring_receives();
        // Only after the device knows of the receives: the other end then sends as many more messages.
        arrived.into_iter().for_each(|number| peer.half(number));
        self.go_on();
        peer.go_on();
    }

    fn in_flight(&self) -> Option<u32> {
        self.tells_depth.then(|| self.side.lock().count() as u32)
    }
}

impl Source for End {
    fn add(&self, count: u64) {
        self.side.lock().left += count;
        self.go_on();
    }

    fn trim(&self, most: u64) {
        let mut side = self.side.lock();
        side.left = side.left.min(most);
    }

    fn set_depth(&self, depth: u64) {
        self.depth.store(depth.min(DEPTH_MAX), Relaxed);
        self.go_on();
    }

    fn is_idle(&self) -> bool {
        let side = self.side.lock();
        side.left == 0 && side.count() == 0
    }

    fn completed(&self) -> u64 {
        self.done.load(Relaxed)
    }

    fn poll_direct(&self, most: u32) -> u32 {
        self.queue().poll_direct(most)
    }

    /// All receives are posted; the sends that are posted now are never rung.
    fn fill(&self) {
        let (pair, local) = (&self.connected().pair, self.sends.device_address());
        let send = || pair.post_send(&PostSend { id: 0, local, bytes: MESSAGE_BYTES, remote: None, signalled: true });
        let receive = pair.post_receive(&PostReceive { id: 0, local, bytes: MESSAGE_BYTES });
        let sends = (0..=ENTRIES).take_while(|_| send().is_ok()).count();
        if (receive, send(), sends) != (Err(Refusal::Full(ENTRIES)), Err(Refusal::Full(ENTRIES)), ENTRIES as usize) {
            violate(
                "fullness",
                format!("queue pair of {ENTRIES}: one more receive gives {receive:?}, {sends} sends are taken"),
            );
        }
    }

    fn setting(&self) -> Setting {
        let block = registers::CQ + u32::from(self.queue().number()) * registers::CQ_STRIDE;
        let register = registers::cq::MODERATION.offset() + block;
        let now = Moderation::from_bits(self.connected().regs.read32(register));
        Setting::new(now.period_us().into(), now.count().into())
    }

    fn describe(&self) -> String {
        let side = self.side.lock();
        let (left, under_way) = (side.left, side.count());
        format!("end {}: {left} left, {under_way} under way, {:?}", self.number, self.queue().counters())
    }
}

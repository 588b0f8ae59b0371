//! The network's receiver: it sends everything back, polled at the end of interrupts.

use crate::mark::Mark;
use drivers::virtio::net::{Net, Packet, ReceivePoll, Receiver, Verdict};
use hal::{CpuId, Hal};
use irq::poll::{PollConfig, Polled, SoftId, SoftPoll};
use machine::SimHal;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};

/// A pair of the present driver.
#[derive(Default)]
struct PairPoll(Mutex<Option<Arc<ReceivePoll<SimHal>>>>);

impl PairPoll {
    fn now(&self) -> Option<Arc<ReceivePoll<SimHal>>> {
        self.0.lock().expect("one host thread").clone()
    }
}

impl Polled for PairPoll {
    fn poll(&self, weight: u32) -> u32 {
        self.now().map_or(0, |poll| poll.poll(weight))
    }
    fn rearm(&self) -> bool {
        self.now().is_some_and(|poll| poll.rearm())
    }
}

/// Packets are commands with numbers from this one on.
const FIRST: u64 = 1 << 48;

/// The receiver and its polls.
pub(super) struct Reflector {
    poll: Arc<SoftPoll<SimHal>>,
    ids: Vec<SoftId>,
    pairs: Vec<Arc<PairPoll>>,
    packets: AtomicU64,
    net: Mutex<Option<Arc<Net<SimHal>>>>,
    /// The sum of the tags that came back.
    pub(super) transmitted: AtomicU64,
}

impl Reflector {
    /// Assigns pairs to CPUs, each of which completes `budget` packets per pass. Its threads run.
    pub(super) fn new(cpus: u32, pairs: u16, budget: u32) -> Arc<Self> {
        let pairs: Vec<Arc<PairPoll>> = (0..pairs).map(|_| Arc::default()).collect();
        let mut poll = SoftPoll::new(SimHal, cpus, PollConfig { budget, ..PollConfig::default() }).expect("a budget");
        let add = |(index, pair): (u32, &Arc<PairPoll>)| {
            poll.add(CpuId(index % cpus), budget.min(16), pair.clone(), None).expect("a weight")
        };
        let ids = (0..).zip(&pairs).map(add).collect();
        let poll = Arc::new(poll);
        poll.start().expect("threads");
        let (packets, transmitted) = (AtomicU64::new(FIRST), AtomicU64::new(0));
        Arc::new(Self { poll, ids, pairs, packets, net: Mutex::default(), transmitted })
    }

    pub(super) fn poll(&self) -> Arc<SoftPoll<SimHal>> {
        self.poll.clone()
    }

    pub(super) fn net(&self) -> Option<Arc<Net<SimHal>>> {
        self.net.lock().expect("one host thread").clone()
    }

    /// From now on it polls this driver.
    pub(super) fn attach(&self, net: Option<&Arc<Net<SimHal>>>) {
        for (index, pair) in (0..).zip(&self.pairs) {
            *pair.0.lock().expect("one host thread") = net.map(|net| Arc::new(ReceivePoll::new(net.clone(), index)));
        }
        *self.net.lock().expect("one host thread") = net.cloned();
    }
}

/// The receiver of the driver's reports: the reflector, which owns the driver.
pub(super) struct Told(pub(super) Weak<Reflector>);

impl Receiver<SimHal> for Told {
    fn ready(&self, pair: u16) {
        if let Some(reflector) = self.0.upgrade() {
            reflector.poll.schedule(reflector.ids[usize::from(pair)]);
        }
    }

    fn received(&self, _: Packet<'_, <SimHal as Hal>::Dma>) -> Verdict {
        // A packet is a command that ends when the driver sees it; the device's own counts show whether it comes back.
        if let Some(reflector) = self.0.upgrade() {
            let number = reflector.packets.fetch_add(1, Relaxed);
            Mark::Submitted.of(number);
            Mark::Completed.of(number);
        }
        Verdict::Reflect
    }

    fn transmitted(&self, _: u16, tag: u64) {
        if let Some(reflector) = self.0.upgrade() {
            reflector.transmitted.fetch_add(tag, Relaxed);
        }
    }
}

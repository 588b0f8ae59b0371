//! A consumer of budgeted polling: a device of the board, its interrupt, and a load that knows how each item ended.

use super::board::Port;
use super::turns::{LISTED, WANTED, mark};
use super::work::Source;
use crate::mark::Mark;
use crate::verdict::violate;
use hal::{Hal as _, Lock, Work};
use irq::moderation::{Found, Moderated, Outcome, Setting, Tuner};
use irq::poll::{Polled, SoftId, SoftPoll};
use irq::{Action, Irq, IrqReturn};
use machine::SimHal;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};

#[derive(Default)]
struct Side {
    left: u64,
    asked: u64,
    done: u64,
}

/// The queue of a device.
pub(super) struct Queue {
    pub(super) number: u32,
    port: Port,
    /// Between two items of one request.
    gap_ns: u32,
    depth: AtomicU64,
    side: Lock<SimHal, Side>,
    pub(super) tuner: Option<Arc<Tuner<SimHal>>>,
    /// The list holds its instances.
    soft: OnceLock<(Weak<SoftPoll<SimHal>>, SoftId)>,
}

impl Queue {
    pub(super) fn new(
        number: u32,
        port: Port,
        gap_ns: u32,
        depth: u64,
        tuner: Option<Arc<Tuner<SimHal>>>,
    ) -> Arc<Self> {
        let side = Lock::new(SimHal, Side::default());
        Arc::new(Self { number, port, gap_ns, depth: AtomicU64::new(depth), side, tuner, soft: OnceLock::new() })
    }

    /// The list that polls it from now on.
    pub(super) fn start(&self, soft: &Arc<SoftPoll<SimHal>>, id: SoftId) {
        assert!(self.soft.set((Arc::downgrade(soft), id)).is_ok(), "once");
        self.port.arm(true);
    }

    fn command(&self, item: u64) -> u64 {
        u64::from(self.number) << 40 | item
    }

    /// Takes at most `most` items.
    fn take(&self, most: u32) -> u32 {
        let count = {
            let mut side = self.side.lock();
            let produced = self.port.produced();
            let first = side.done;
            side.done = produced.min(first + u64::from(most));
            // Under the lock: who sees the queue idle has heard of all its items.
            (first..side.done).for_each(|item| Mark::Completed.of(self.command(item)));
            (side.done - first) as u32
        };
        SimHal.work(Work::ReapEntry, count);
        self.go_on();
        count
    }

    /// Asks for items until the depth is reached.
    fn go_on(&self) {
        let mut side = self.side.lock();
        let room = self.depth.load(Relaxed).saturating_sub(side.asked - side.done).min(side.left);
        if room > 0 {
            (side.asked..side.asked + room).for_each(|item| Mark::Submitted.of(self.command(item)));
            (side.asked, side.left) = (side.asked + room, side.left - room);
            self.port.ask(room as u32, self.gap_ns);
        }
    }
}

impl Source for Queue {
    fn add(&self, count: u64) {
        self.side.lock().left += count;
        self.go_on();
    }

    fn trim(&self, most: u64) {
        let mut side = self.side.lock();
        side.left = side.left.min(most);
    }

    fn set_depth(&self, depth: u64) {
        self.depth.store(depth, Relaxed);
        self.go_on();
    }

    fn is_idle(&self) -> bool {
        let side = self.side.lock();
        side.left == 0 && side.done == side.asked
    }

    fn completed(&self) -> u64 {
        self.side.lock().done
    }

    fn poll_direct(&self, most: u32) -> u32 {
        let completions = self.take(most);
        if let Some(tuner) = &self.tuner {
            tuner.polled(Found::completions(completions));
        }
        completions
    }

    fn setting(&self) -> Setting {
        self.port.moderation().unwrap_or_else(|kept| kept)
    }

    fn describe(&self) -> String {
        let side = self.side.lock();
        format!("queue {}: {} left, {} asked, {} done", self.number, side.left, side.asked, side.done)
    }
}

impl Polled for Queue {
    fn poll(&self, weight: u32) -> u32 {
        self.take(weight)
    }

    fn rearm(&self) -> bool {
        self.port.arm(true);
        self.port.produced() > self.side.lock().done
    }
}

impl Moderated for Queue {
    fn program(&self, setting: Setting) -> Outcome {
        self.port.moderate(setting).map_or(Outcome::Failed, Outcome::Done)
    }
}

impl Action for Queue {
    fn handle(&self, _: Irq) -> IrqReturn {
        SimHal.work(Work::IrqHandler, 1);
        let soft = self.soft.get().and_then(|(soft, id)| Some((soft.upgrade()?, id)));
        let Some((soft, id)) = soft else { violate("operations", "an interrupt before it was armed") };
        self.port.arm(false);
        mark(WANTED, self.number, 0);
        soft.schedule(*id);
        mark(LISTED, self.number, 0);
        IrqReturn::Handled
    }
}

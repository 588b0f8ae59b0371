//! What a handler does to other lines, and to its own: whatever does not wait is allowed there.

use crate::draw::{Draw, Knobs};
use hal::Hal as _;
use machine::SimHal;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Deeds lie so far apart, so that handlers that run all the time leave their CPUs to others.
const APART_NS: u64 = 20_000;

type Deed = Box<dyn Fn(&mut Draw) + Send + Sync>;

/// The deeds of a history.
pub(crate) struct Deeds {
    seed: u64,
    /// So many of a hundred interrupts see one.
    percent: u64,
    deed: OnceLock<Deed>,
    turns: AtomicU32,
    next_ns: AtomicU64,
    ended: AtomicBool,
}

/// How many handlers of a hundred do something to a line.
pub(crate) fn draw_percent(knobs: &mut Knobs) -> u64 {
    knobs.number_with("deeds", 0..=100, 0, |draw| if draw.percent(60) { 0 } else { draw.within(5..=100) })
}

impl Deeds {
    pub(crate) fn new(seed: u64, percent: u64) -> Self {
        let (turns, next_ns, ended) = (AtomicU32::new(0), AtomicU64::new(0), AtomicBool::new(false));
        Self { seed, percent, deed: OnceLock::new(), turns, next_ns, ended }
    }

    /// All lines are there. From now on some handlers do `deed`.
    pub(crate) fn begin(&self, deed: impl Fn(&mut Draw) + Send + Sync + 'static) {
        _ = self.deed.set(Box::new(deed));
    }

    /// The last load begins: where lines are delivered is judged from now on.
    pub(crate) fn end(&self) {
        self.ended.store(true, Relaxed);
    }

    /// A handler runs.
    pub(crate) fn act(&self) {
        let now_ns = SimHal.now_ns();
        if self.percent == 0 || self.ended.load(Relaxed) || now_ns < self.next_ns.load(Relaxed) {
            return;
        }
        let Some(deed) = self.deed.get() else { return };
        let draw = &mut Draw::new(self.seed, "deeds", self.turns.fetch_add(1, Relaxed));
        if draw.percent(self.percent) {
            self.next_ns.store(now_ns + APART_NS, Relaxed);
            deed(draw);
        }
    }
}

//! What a handler does to other lines, and to its own: whatever does not wait is allowed there.

use crate::draw::{Draw, Knobs};
use hal::Hal as _;
use machine::SimHal;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Deeds lie so far apart, so that handlers that run all the time leave their CPUs to others.
const APART_NS: u64 = 20_000;

/// What a handler does. Lines count modulo their number.
pub(crate) enum Deed {
    /// Lets a line be delivered on these CPUs, a bit each.
    Move { line: u32, cpus: u64 },
    /// Disables a line at once, and enables it after this time.
    Disable { line: u32, ns: u64 },
    /// Makes a line fire once more.
    Retrigger { line: u32 },
}

impl Deed {
    fn draw(draw: &mut Draw) -> Self {
        let line = draw.below(64) as u32;
        match draw.below(100) {
            0..50 => Self::Move { line, cpus: draw.within(1..=255) },
            50..75 => Self::Disable { line, ns: draw.below(1_000) },
            _ => Self::Retrigger { line },
        }
    }
}

/// The deeds of a history.
pub(crate) struct Deeds {
    seed: u64,
    /// So many of a hundred interrupts see one.
    percent: u64,
    act: OnceLock<Box<dyn Fn(Deed) + Send + Sync>>,
    turns: AtomicU32,
    next_ns: AtomicU64,
}

/// How many handlers of a hundred do something to a line.
pub(crate) fn draw_percent(knobs: &mut Knobs) -> u64 {
    knobs.number_with("deeds", 0..=100, 0, |draw| if draw.percent(60) { 0 } else { draw.within(5..=100) })
}

impl Deeds {
    pub(crate) fn new(seed: u64, percent: u64) -> Self {
        Self { seed, percent, act: OnceLock::new(), turns: AtomicU32::new(0), next_ns: AtomicU64::new(0) }
    }

    /// All lines are there. From now on some handlers do something, by `act`.
    pub(crate) fn begin(&self, act: impl Fn(Deed) + Send + Sync + 'static) {
        _ = self.act.set(Box::new(act));
    }

    /// A handler runs.
    pub(crate) fn act(&self) {
        let now_ns = SimHal.now_ns();
        if self.percent == 0 || now_ns < self.next_ns.load(Relaxed) {
            return;
        }
        let Some(act) = self.act.get() else { return };
        let draw = &mut Draw::new(self.seed, "deeds", self.turns.fetch_add(1, Relaxed));
        if draw.percent(self.percent) {
            self.next_ns.store(now_ns + APART_NS, Relaxed);
            act(Deed::draw(draw));
        }
    }
}

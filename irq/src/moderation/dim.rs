//! The two controllers of Linux's lib/dim, as published.

use super::program::Deferred;
use super::sample::scale;
use super::{Controller, Counts, Found, LevelTable, Next, Outcome, Sample, Step, TuningView};

/// Events of a sample (`DIM_NEVENTS`).
const EVENTS: u16 = 64;

/// The rates of a sample per millisecond, in the integer widths of the publication.
#[derive(Clone, Copy, Default, Debug)]
struct Stats {
    bytes_per_ms: u32,
    packets_per_ms: u32,
    events_per_ms: u32,
    /// Completions per event, in hundredths.
    ratio: u32,
}

/// The direction of the tuning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tune {
    OnTop,
    Tired,
    Right,
    Left,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Start,
    Measuring,
    Apply,
}

#[derive(Clone, Copy, Default, Debug)]
struct Totals {
    at_us: u64,
    events: u16,
    packets: u32,
    bytes: u32,
}

/// The common part of both controllers: counting, the state of the program step, and steps.
#[derive(Debug)]
struct Dim {
    table: LevelTable,
    phase: Phase,
    tune: Tune,
    level: usize,
    steps_right: usize,
    steps_left: usize,
    tired: usize,
    now: Totals,
    start: Totals,
    previous: Stats,
    deferred: Deferred,
    counts: Counts,
}

impl Dim {
    fn new(table: LevelTable, tune: Tune, level: usize) -> Self {
        Self {
            level: level.min(table.last()),
            table,
            phase: Phase::Start,
            tune,
            steps_right: 0,
            steps_left: 0,
            tired: 0,
            now: Totals::default(),
            start: Totals::default(),
            previous: Stats::default(),
            deferred: Deferred::default(),
            counts: Counts::default(),
        }
    }

    fn add(&mut self, found: Found) {
        self.now.packets = self.now.packets.wrapping_add(found.completions);
        self.now.bytes = self.now.bytes.wrapping_add(found.bytes as u32);
    }

    /// Counts one event. Calls `decide` when a sample is complete.
    fn event(&mut self, now_ns: u64, found: Found, decide: fn(&mut Self, &Stats)) -> Next {
        self.add(found);
        self.now.events = self.now.events.wrapping_add(1);
        self.now.at_us = now_ns / 1_000;
        match self.phase {
            Phase::Start => self.restart(),
            Phase::Measuring if self.now.events.wrapping_sub(self.start.events) >= EVENTS => {
                let Some(stats) = self.stats() else { return Next::Measure };
                let before = self.level;
                decide(self, &stats);
                if self.level != before {
                    self.counts.changes += 1;
                    self.counts.steps += 1;
                    self.phase = Phase::Apply;
                    self.deferred.request();
                    return Next::Program;
                }
                self.restart();
            }
            Phase::Measuring | Phase::Apply => {}
        }
        Next::Measure
    }

    fn restart(&mut self) {
        self.start = self.now;
        self.phase = Phase::Measuring;
    }

    /// Returns none while less than a microsecond has passed.
    fn stats(&self) -> Option<Stats> {
        let elapsed_us = self.now.at_us.saturating_sub(self.start.at_us) as u32;
        if elapsed_us == 0 {
            return None;
        }
        let per_ms = |count: u32| (u64::from(count) * 1_000).div_ceil(elapsed_us.into()) as u32;
        let packets_per_ms = per_ms(self.now.packets.wrapping_sub(self.start.packets));
        let events_per_ms = per_ms(EVENTS.into());
        let ratio = u64::from(packets_per_ms) * 100 / u64::from(events_per_ms.max(1));
        Some(Stats {
            bytes_per_ms: per_ms(self.now.bytes.wrapping_sub(self.start.bytes)),
            packets_per_ms,
            events_per_ms,
            ratio: ratio as u32,
        })
    }

    fn turn(&mut self) {
        match self.tune {
            Tune::Right => (self.tune, self.steps_left) = (Tune::Left, 0),
            Tune::Left => (self.tune, self.steps_right) = (Tune::Right, 0),
            Tune::OnTop | Tune::Tired => {}
        }
    }

    /// Moves one level on. Returns false at the end of the table.
    fn step_on(&mut self) -> bool {
        match self.tune {
            Tune::Right if self.level == self.table.last() => return false,
            Tune::Left if self.level == 0 => return false,
            Tune::Right => (self.level, self.steps_right) = (self.level + 1, self.steps_right + 1),
            Tune::Left => (self.level, self.steps_left) = (self.level - 1, self.steps_left + 1),
            Tune::OnTop | Tune::Tired => {}
        }
        true
    }

    fn step(&self) -> Option<Step> {
        self.deferred.step(self.level, self.table.setting(self.level))
    }

    fn programmed(&mut self, id: u32, outcome: Outcome) -> Next {
        if self.deferred.answer(id) {
            self.counts.failed += u64::from(outcome == Outcome::Failed);
            self.phase = Phase::Start;
        } else {
            self.counts.strays += 1;
        }
        Next::Measure
    }

    fn view(&self, algorithm: &'static str) -> TuningView {
        let Stats { packets_per_ms, events_per_ms, ratio, .. } = self.previous;
        TuningView {
            algorithm,
            phase: match (self.phase, self.tune) {
                (Phase::Apply, _) => "programming",
                (_, Tune::OnTop) => "parking on top",
                (_, Tune::Tired) => "parking tired",
                (_, Tune::Right) => "going right",
                (_, Tune::Left) => "going left",
            },
            level: self.level,
            level_last: self.table.last(),
            setting: self.table.setting(self.level),
            actual: None,
            wanted: None,
            sample: (packets_per_ms != 0).then_some(Sample {
                elapsed_ns: 0,
                completions_per_s: scale(packets_per_ms.into(), 1_000, 1),
                events_per_s: scale(events_per_ms.into(), 1_000, 1),
                completions_per_event_x100: ratio.into(),
                in_flight_x100: None,
            }),
            counts: self.counts,
        }
    }
}

/// True if the values are more than 10 % apart. False if the previous value is 0.
fn differs(now: u32, before: u32) -> bool {
    (u64::from(now.abs_diff(before)) * 100).checked_div(before.into()).is_some_and(|pct| pct > 10)
}

/// The controller of Linux's RDMA completion queues (lib/dim/rdma_dim.c), for comparison.
///
/// Its faults are kept. A step without an answer stops it for good. A failed step counts as done. Samples have no
/// bound in time. Completions found by polling are not counted. At the ends of the table it turns round and leaves the
/// best level. Linux corrected its division by a previous ratio of 0; this code has the same correction.
#[derive(Debug)]
pub struct RdmaDim(Dim);

impl RdmaDim {
    /// Starts at level 0, upwards. [`LevelTable::RDMA_DIM`] is the published table.
    pub fn new(table: LevelTable) -> Self {
        Self(Dim::new(table, Tune::Right, 0))
    }

    fn decide(dim: &mut Dim, now: &Stats) {
        let before = dim.previous;
        let better = if before.packets_per_ms == 0 {
            None
        } else if differs(now.packets_per_ms, before.packets_per_ms) {
            Some(now.packets_per_ms > before.packets_per_ms)
        } else {
            differs(now.ratio, before.ratio).then_some(now.ratio > before.ratio)
        };
        match better {
            None if u64::from(now.ratio) <= 50 * dim.level as u64 => dim.level = 0,
            None => {}
            Some(better) => {
                if !better {
                    dim.turn();
                }
                if !dim.step_on() {
                    dim.turn();
                }
            }
        }
        dim.previous = *now;
    }
}

/// The controller of Linux's network drivers (lib/dim/net_dim.c), for comparison.
///
/// It parks on top, which is where a turn brought it back to or an end of the table. It parks tired after twice as
/// many steps as there are levels (10 for the published five). Its faults are kept: a step without an answer stops it
/// for good, a failed step counts as done, and samples have no bound in time. It compares bytes first.
#[derive(Debug)]
pub struct NetDim(Dim);

impl NetDim {
    /// Starts at level 1, parked. [`LevelTable::NET_DIM_RX`] is a published table.
    pub fn new(table: LevelTable) -> Self {
        Self(Dim::new(table, Tune::OnTop, 1))
    }

    fn is_better(now: &Stats, before: &Stats) -> Option<bool> {
        let pairs = [(now.bytes_per_ms, before.bytes_per_ms), (now.packets_per_ms, before.packets_per_ms)];
        for (now, before) in pairs {
            if before == 0 {
                return (now != 0).then_some(true);
            }
            if differs(now, before) {
                return Some(now > before);
            }
        }
        differs(now.events_per_ms, before.events_per_ms).then_some(now.events_per_ms < before.events_per_ms)
    }

    fn decide(dim: &mut Dim, now: &Stats) {
        let was_on_top = dim.tune == Tune::OnTop;
        match dim.tune {
            Tune::OnTop => {
                if Self::is_better(now, &dim.previous).is_some() {
                    Self::leave(dim);
                }
            }
            Tune::Tired => {
                dim.tired = dim.tired.saturating_sub(1);
                if dim.tired == 0 {
                    Self::leave(dim);
                }
            }
            Tune::Right | Tune::Left => Self::walk(dim, Self::is_better(now, &dim.previous)),
        }
        if !was_on_top || dim.tune != Tune::OnTop {
            dim.previous = *now;
        }
    }

    fn walk(dim: &mut Dim, better: Option<bool>) {
        if better != Some(true) {
            dim.turn();
        }
        let on_top = match dim.tune {
            Tune::Right => dim.steps_left > 1 && dim.steps_right == 1,
            _ => dim.steps_right > 1 && dim.steps_left == 1,
        };
        if on_top {
            Self::park_on_top(dim);
        } else if dim.tired == 2 * (dim.table.last() + 1) {
            (dim.steps_right, dim.steps_left, dim.tune) = (0, 0, Tune::Tired);
        } else if dim.step_on() {
            dim.tired += 1;
        } else {
            Self::park_on_top(dim);
        }
    }

    fn park_on_top(dim: &mut Dim) {
        (dim.steps_right, dim.steps_left, dim.tired, dim.tune) = (0, 0, 0, Tune::OnTop);
    }

    fn leave(dim: &mut Dim) {
        dim.tune = if dim.level > 0 { Tune::Left } else { Tune::Right };
        if dim.step_on() {
            dim.tired += 1;
        }
    }
}

impl Controller for RdmaDim {
    fn interrupt(&mut self, now_ns: u64, found: Found) -> Next {
        self.0.event(now_ns, found, Self::decide)
    }

    fn polled(&mut self, _now_ns: u64, _found: Found) -> Next {
        Next::Measure
    }

    fn deadline_ns(&self) -> Option<u64> {
        None
    }

    fn elapsed(&mut self, _now_ns: u64) -> Next {
        Next::Measure
    }

    fn step(&self) -> Option<Step> {
        self.0.step()
    }

    fn programmed(&mut self, _now_ns: u64, id: u32, outcome: Outcome) -> Next {
        self.0.programmed(id, outcome)
    }

    fn level(&self) -> usize {
        self.0.level
    }

    fn view(&self) -> TuningView {
        self.0.view("rdma_dim")
    }
}

impl Controller for NetDim {
    fn interrupt(&mut self, now_ns: u64, found: Found) -> Next {
        self.0.event(now_ns, found, Self::decide)
    }

    /// Packets count as the totals of the ring do in Linux. A poll is not an event.
    fn polled(&mut self, _now_ns: u64, found: Found) -> Next {
        self.0.add(found);
        Next::Measure
    }

    fn deadline_ns(&self) -> Option<u64> {
        None
    }

    fn elapsed(&mut self, _now_ns: u64) -> Next {
        Next::Measure
    }

    fn step(&self) -> Option<Step> {
        self.0.step()
    }

    fn programmed(&mut self, _now_ns: u64, id: u32, outcome: Outcome) -> Next {
        self.0.programmed(id, outcome)
    }

    fn level(&self) -> usize {
        self.0.level
    }

    fn view(&self) -> TuningView {
        self.0.view("net_dim")
    }
}

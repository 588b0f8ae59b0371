//! irq-am as published.

use super::program::Deferred;
use super::{Controller, Counts, Found, LevelTable, Next, Outcome, Sample, Step, TuningView};

/// The rates of a sample, in the integer widths of the publication.
#[derive(Clone, Copy, Default, Debug)]
struct Stats {
    completions_per_s: u32,
    events_per_s: u32,
    completions_per_event: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Start,
    Measuring,
    Program,
}

/// The controller of the RFC "irq-am: Introduce library implementing generic adaptive moderation" (March 2018), for
/// comparison.
///
/// Its faults are kept. At either end of the table it programs the same level and takes a new baseline after every
/// sample. It uses 32-bit arithmetic. A sample has no bound in time, and a sample of less than a microsecond reads as
/// a collapse. A step without an answer stops it for good; a failed step counts as done. Completions found by polling
/// are not counted. Where the publication divides by 0 or reads an unwritten value, this code sees no difference, or
/// 0.
#[derive(Debug)]
pub struct IrqAm {
    table: LevelTable,
    nr_events: u16,
    phase: Phase,
    up: bool,
    level: usize,
    events: u32,
    completions: u32,
    start_us: u64,
    start_events: u32,
    start_completions: u32,
    previous: Stats,
    deferred: Deferred,
    counts: Counts,
}

impl IrqAm {
    /// Starts at level 0, upwards. `nr_events` interrupts make a sample.
    pub fn new(table: LevelTable, nr_events: u16) -> Self {
        Self {
            table,
            nr_events,
            phase: Phase::Start,
            up: true,
            level: 0,
            events: 0,
            completions: 0,
            start_us: 0,
            start_events: 0,
            start_completions: 0,
            previous: Stats::default(),
            deferred: Deferred::default(),
            counts: Counts::default(),
        }
    }

    fn start(&mut self, now_us: u64) {
        (self.start_us, self.start_events, self.start_completions) = (now_us, self.events, self.completions);
        self.phase = Phase::Measuring;
    }

    fn stats(&self, now_us: u64) -> Stats {
        let elapsed_us = now_us.saturating_sub(self.start_us) as u32;
        let completions = self.completions.wrapping_sub(self.start_completions);
        if elapsed_us == 0 {
            return Stats::default();
        }
        let per_s = |count: u32| (u64::from(count) * 1_000_000).div_ceil(elapsed_us.into()) as u32;
        Stats {
            completions_per_s: per_s(completions),
            events_per_s: per_s(self.nr_events.into()),
            completions_per_event: completions.div_ceil(u32::from(self.nr_events).max(1)),
        }
    }

    /// Whether `now` is better than before; none if they are the same.
    fn is_better(&self, now: &Stats) -> Option<bool> {
        let before = &self.previous;
        if before.completions_per_s == 0 {
            return None;
        }
        if differs(now.completions_per_s, before.completions_per_s) {
            return Some(now.completions_per_s > before.completions_per_s);
        }
        if differs(now.events_per_s, before.events_per_s) {
            return Some(now.events_per_s < before.events_per_s);
        }
        (now.completions_per_event == 1 && self.level > 0).then_some(!self.up)
    }

    fn try_step(&mut self) {
        match self.up {
            true => self.level = (self.level + 1).min(self.table.last()),
            false => self.level = self.level.saturating_sub(1),
        }
    }

    /// True when a level must be programmed.
    fn decide(&mut self, now: Stats) -> bool {
        let before = self.level;
        let verdict = self.is_better(&now);
        self.up ^= verdict == Some(false);
        if verdict.is_some() {
            self.try_step();
        }
        self.counts.changes += u64::from(self.level != before);
        let program = self.level != before || self.level == 0 || self.level == self.table.last();
        if program || self.previous.completions_per_s == 0 {
            self.previous = now;
        }
        program
    }
}

/// More than 20 % apart, in 32 bits.
fn differs(now: u32, before: u32) -> bool {
    (now.wrapping_sub(before) as i32).unsigned_abs().wrapping_mul(100).checked_div(before).is_some_and(|pct| pct > 20)
}

impl Controller for IrqAm {
    fn interrupt(&mut self, now_ns: u64, found: Found) -> Next {
        let now_us = now_ns / 1_000;
        self.completions = self.completions.wrapping_add(found.completions);
        self.events = self.events.wrapping_add(1);
        match self.phase {
            Phase::Start => self.start(now_us),
            Phase::Measuring if self.events.wrapping_sub(self.start_events) as u16 >= self.nr_events => {
                if self.decide(self.stats(now_us)) {
                    self.phase = Phase::Program;
                    self.counts.steps += 1;
                    self.deferred.request();
                    return Next::Program;
                }
                self.start(now_us);
            }
            Phase::Measuring | Phase::Program => {}
        }
        Next::Measure
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
        self.deferred.step(self.level, self.table.setting(self.level))
    }

    fn programmed(&mut self, _now_ns: u64, id: u32, outcome: Outcome) -> Next {
        if self.deferred.answer(id) {
            self.counts.failed += u64::from(outcome == Outcome::Failed);
            self.phase = Phase::Start;
        } else {
            self.counts.strays += 1;
        }
        Next::Measure
    }

    fn level(&self) -> usize {
        self.level
    }

    fn view(&self) -> TuningView {
        let Stats { completions_per_s, events_per_s, completions_per_event } = self.previous;
        TuningView {
            algorithm: "irq-am",
            phase: match (self.phase, self.up) {
                (Phase::Program, _) => "programming",
                (_, true) => "measuring upwards",
                (_, false) => "measuring downwards",
            },
            level: self.level,
            level_last: self.table.last(),
            setting: self.table.setting(self.level),
            actual: None,
            wanted: None,
            sample: (completions_per_s != 0).then_some(Sample {
                elapsed_ns: 0,
                completions_per_s: completions_per_s.into(),
                events_per_s: events_per_s.into(),
                completions_per_event_x100: u64::from(completions_per_event) * 100,
                in_flight_x100: None,
            }),
            counts: self.counts,
        }
    }
}

//! The default controller.
//!
//! It *settles* until the load is steady. Then it *searches* the table once, upwards from level 0, and takes the
//! lowest level that is as good as the best. Then it *holds* that level. It searches again only when the load leaves
//! the band round the settled values for several windows in a row, and only after a rest, unless the load was steady.
//! The load is the throughput, the I/Os under way and the completions per interrupt. So nothing is programmed without
//! a reason, at the ends of the table or elsewhere. A theft of the CPU spoils one sample and changes no level.

use super::change::{Change, is_within};
use super::program::{Outcome, Step};
use super::sample::Meter;
use super::search::{Search, Verdict};
use super::{Controller, Counts, Found, LevelTable, Next, Sample, Setting, TuningView};
use core::cell::Cell;

/// A load that held for this share of the rest was steady. A load that then differs is a new one, and need not wait.
const STEADY_SHARE: u64 = 8;
/// Two windows within this many per cent of each other are steady.
const STEADY_PCT: u64 = 10;
/// After this many windows outside the band the load counts as a new one.
const STRIKES: u64 = 3;
/// After this many windows an unsteady load is accepted as it is.
const SETTLE_WINDOWS: u32 = 8;
/// Up to this many completions per event, or I/Os under way, in hundredths, there is nothing to gather.
const SINGLE_X100: u64 = 125;
/// After this many refusals a level is not tried again. This does not apply to level 0.
const REFUSALS: u8 = 3;

/// The times and bounds of an [`Adaptive`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdaptiveConfig {
    /// Number of interrupts, or successful polls, in a sample.
    pub nr_events: u64,
    /// The longest sample of a search, in nanoseconds.
    pub search_ns_max: u64,
    /// The shortest window while a level is held, in nanoseconds.
    pub window_ns_min: u64,
    /// The longest such window, in nanoseconds.
    pub window_ns_max: u64,
    /// A step without an answer after this time is late, in nanoseconds.
    pub program_ns_max: u64,
    /// The rest after a search, in nanoseconds; it doubles with each search that found nothing new.
    pub rest_ns_min: u64,
    /// The longest rest, in nanoseconds.
    pub rest_ns_max: u64,
    /// The longest time at level 0 without another search, in nanoseconds, unless the consumer reports single I/Os. Any
    /// other load may deepen unseen: when the CPU is the limit, a consumer that knows only its posted I/Os has as many as
    /// before.
    pub recheck_ns: u64,
    /// Below this interrupt rate at level 0 there is no search: 5 % of a CPU are 7.8 µs for each of 6,400.
    pub events_per_s_min: u64,
}

impl Default for AdaptiveConfig {
    fn default() -> Self {
        Self {
            nr_events: 64,
            search_ns_max: 10_000_000,
            window_ns_min: 20_000_000,
            window_ns_max: 100_000_000,
            program_ns_max: 100_000_000,
            rest_ns_min: 1_000_000_000,
            rest_ns_max: 16_000_000_000,
            recheck_ns: 16_000_000_000,
            events_per_s_min: 6_400,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Until two windows agree.
    Settle { before: Option<u64>, windows: u32 },
    /// Discards the first sample after a step, while the load adjusts. It only shows how far apart looks are.
    Search { skip: bool },
    /// Number of windows that were outside the band.
    Hold { strikes: u64 },
}

const SETTLE: Phase = Phase::Settle { before: None, windows: 0 };

#[derive(Clone, Copy, Debug)]
struct Pending {
    step: Step,
    deadline_ns: u64,
}

/// The default controller: lowest latency unless more delay buys throughput.
///
/// If nobody calls [`Controller::elapsed`], the controller still works, but its samples end only with the next
/// interrupt or poll.
#[derive(Debug)]
pub struct Adaptive {
    table: LevelTable,
    config: AdaptiveConfig,
    now_ns: u64,
    meter: Meter,
    phase: Phase,
    search: Search,
    level: usize,
    actual: Option<Setting>,
    wanted: usize,
    pending: Option<Pending>,
    /// The last step that was given up after somebody had taken it. Its answer may still come.
    late: Option<Step>,
    /// The id of a step that was given up before anybody took it. Whoever was asked for it may still come, and then takes
    /// the wanted level under this id.
    untaken: Option<u32>,
    /// The step that was last taken.
    taken: Cell<Option<Step>>,
    steps: u32,
    refusals: [u8; LevelTable::LEVELS_MAX],
    /// The load at which it settled.
    reference: Sample,
    /// The time at which it settled.
    settled_ns: u64,
    /// True once a search has judged the present load.
    proven: bool,
    /// The held level and the number of taken steps when the search began.
    before_search: (usize, u64),
    searched_ns: u64,
    search_at_ns: u64,
    rest_ns: u64,
    retry_at_ns: u64,
    retry_ns: u64,
    last: Option<Sample>,
    counts: Counts,
}

impl Adaptive {
    /// Starts at level 0. The device must already be programmed with it.
    pub fn new(table: LevelTable, config: AdaptiveConfig) -> Self {
        Self {
            table,
            config,
            now_ns: 0,
            meter: Meter::default(),
            phase: SETTLE,
            search: Search::new(),
            level: 0,
            actual: None,
            wanted: 0,
            pending: None,
            late: None,
            untaken: None,
            taken: Cell::new(None),
            steps: 0,
            refusals: [0; LevelTable::LEVELS_MAX],
            reference: Sample::default(),
            settled_ns: 0,
            proven: false,
            before_search: (0, 0),
            searched_ns: 0,
            search_at_ns: 0,
            rest_ns: config.rest_ns_min,
            retry_at_ns: 0,
            retry_ns: config.rest_ns_min,
            last: None,
            counts: Counts::default(),
        }
    }

    fn advance(&mut self) -> Next {
        if let Some(pending) = self.pending {
            return if self.now_ns < pending.deadline_ns { Next::Measure } else { self.overdue(pending.step) };
        }
        if !self.is_due() {
            return Next::Measure;
        }
        let sample = self.meter.sample(self.now_ns);
        match self.phase {
            Phase::Search { .. } => self.meter.restart_without_thefts(self.now_ns),
            _ => self.restart(),
        }
        self.last = Some(sample);
        match self.phase {
            Phase::Settle { before, windows } => self.settle(&sample, before, windows),
            Phase::Search { skip } => self.search_on(&sample, skip),
            Phase::Hold { strikes } => self.hold(&sample, strikes),
        }
    }

    /// The bounds of a sample's time in the present phase.
    fn bounds_ns(&self) -> (u64, u64) {
        match self.phase {
            Phase::Search { .. } => (1, self.config.search_ns_max),
            _ => (self.config.window_ns_min, self.config.window_ns_max),
        }
    }

    fn is_due(&self) -> bool {
        let (min_ns, max_ns) = self.bounds_ns();
        let elapsed_ns = self.meter.elapsed_ns(self.now_ns);
        elapsed_ns >= max_ns || (elapsed_ns >= min_ns && self.meter.looks() >= self.config.nr_events)
    }

    fn restart(&mut self) {
        self.meter = Meter::start(self.now_ns);
    }

    fn settle(&mut self, sample: &Sample, before: Option<u64>, windows: u32) -> Next {
        let rate = sample.completions_per_s;
        let steady = before.is_some_and(|before| is_within(rate, before, STEADY_PCT));
        if !steady && windows + 1 < SETTLE_WINDOWS {
            self.phase = Phase::Settle { before: Some(rate), windows: windows + 1 };
            return Next::Measure;
        }
        (self.reference, self.settled_ns) = (*sample, self.now_ns);
        self.phase = Phase::Hold { strikes: 0 };
        self.pursue()
    }

    fn hold(&mut self, sample: &Sample, strikes: u64) -> Next {
        let change = Change::between(&self.reference, sample);
        if change == Change::None {
            self.phase = Phase::Hold { strikes: 0 };
            let since_ns = self.now_ns.saturating_sub(self.searched_ns);
            let is_seen = self.level > 0 || sample.in_flight_x100.is_some_and(|x100| x100 <= SINGLE_X100);
            self.proven &= is_seen || since_ns < self.config.recheck_ns;
            return self.pursue();
        }
        // A window that nobody ended in time counts as several.
        let strikes = strikes.saturating_add((sample.elapsed_ns / self.config.window_ns_max.max(1)).max(1));
        self.phase = Phase::Hold { strikes };
        if strikes < STRIKES {
            return Next::Measure;
        }
        self.proven = false;
        // A clear change need not wait for the rest, which earlier searches without result have lengthened.
        let rest_ns = if change == Change::Twofold { self.config.rest_ns_min } else { self.rest_ns };
        if self.now_ns.saturating_sub(self.settled_ns) >= rest_ns / STEADY_SHARE {
            self.search_at_ns = self.now_ns;
        } else if change == Change::Twofold {
            self.search_at_ns = self.search_at_ns.min(self.searched_ns.saturating_add(rest_ns));
        }
        let falls = sample.completions_per_s < self.reference.completions_per_s;
        if falls && sample.completions_per_event_x100 <= SINGLE_X100 {
            self.wanted = 0;
        }
        self.pursue()
    }

    /// Starts a search that is due, or asks for a step to a level that is not reached yet.
    fn pursue(&mut self) -> Next {
        if !self.proven && self.now_ns >= self.search_at_ns {
            return self.begin_search();
        }
        if self.wanted != self.level && self.now_ns >= self.retry_at_ns {
            return self.request(self.wanted);
        }
        Next::Measure
    }

    fn begin_search(&mut self) -> Next {
        self.counts.searches += 1;
        self.before_search = (self.level, self.counts.steps);
        self.search = Search::new();
        self.phase = Phase::Search { skip: true };
        if self.level == 0 { Next::Measure } else { self.request(0) }
    }

    fn search_on(&mut self, sample: &Sample, skip: bool) -> Next {
        if skip {
            self.phase = Phase::Search { skip: false };
            return Next::Measure;
        }
        match self.search.sample(sample.completions_per_s) {
            Verdict::More => Next::Measure,
            Verdict::Next if self.search.level > 0 || sample.events_per_s >= self.config.events_per_s_min => {
                self.search_next()
            }
            Verdict::Next | Verdict::Enough => self.end_search(true),
        }
    }

    fn search_next(&mut self) -> Next {
        let above = self.search.level + 1..=self.table.last();
        match above.into_iter().find(|&level| self.refusals[level] < REFUSALS) {
            Some(level) => {
                self.search.enter(level);
                self.request(level)
            }
            None => self.end_search(true),
        }
    }

    /// Ends the search with its results so far. `whole` is false when it was broken off.
    fn end_search(&mut self, whole: bool) -> Next {
        let (held, steps) = self.before_search;
        self.wanted = self.search.choice().unwrap_or(self.level);
        self.proven = whole;
        self.searched_ns = self.now_ns;
        if self.wanted != held {
            self.rest_ns = self.config.rest_ns_min;
        }
        // A search that changed no level costs nothing and needs no rest.
        let moved = self.counts.steps != steps;
        self.search_at_ns = self.now_ns.saturating_add(if moved { self.rest_ns } else { 0 });
        if self.wanted == held && moved {
            self.rest_ns = self.rest_ns.saturating_mul(2).min(self.config.rest_ns_max);
        }
        self.phase = SETTLE;
        self.restart();
        if whole && self.wanted != self.level { self.request(self.wanted) } else { Next::Measure }
    }

    fn request(&mut self, level: usize) -> Next {
        if let Some(step) = self.untaken.take().and_then(|id| self.taken_as(id)) {
            self.late = Some(step);
        }
        self.steps = self.steps.wrapping_add(1);
        self.counts.steps += 1;
        let step = Step { id: self.steps, level, setting: self.table.setting(level) };
        self.pending = Some(Pending { step, deadline_ns: self.now_ns.saturating_add(self.config.program_ns_max) });
        Next::Program
    }

    fn retry_later(&mut self) {
        self.retry_at_ns = self.now_ns.saturating_add(self.retry_ns);
        self.retry_ns = self.retry_ns.saturating_mul(2).min(self.config.rest_ns_max);
    }

    fn overdue(&mut self, step: Step) -> Next {
        self.counts.late += 1;
        if self.taken_as(step.id).is_some() {
            self.late = Some(step);
        } else {
            self.untaken = Some(step.id);
        }
        self.pending = None;
        self.retry_later();
        self.restart();
        if matches!(self.phase, Phase::Search { .. }) { self.end_search(false) } else { Next::Measure }
    }

    fn done(&mut self, step: Step, actual: Setting) -> Next {
        let before = (self.level, self.actual);
        self.take(step, actual);
        (self.retry_ns, self.refusals[step.level]) = (self.config.rest_ns_min, 0);
        if !matches!(self.phase, Phase::Search { .. }) {
            self.phase = SETTLE;
            return Next::Measure;
        }
        self.phase = Phase::Search { skip: true };
        // A device that rounds may have ignored the step.
        if before.1 == Some(actual) && self.search.same_as(before.0) { self.search_next() } else { Next::Measure }
    }

    /// The device now has `actual`.
    fn take(&mut self, step: Step, actual: Setting) {
        self.counts.changes += u64::from(self.level != step.level);
        self.counts.quantised += u64::from(actual != step.setting);
        (self.level, self.actual) = (step.level, Some(actual));
        self.restart();
    }

    fn failed(&mut self, step: Step) -> Next {
        self.refused(step);
        self.restart();
        if matches!(self.phase, Phase::Search { .. }) {
            return self.search_next();
        }
        self.retry_later();
        Next::Measure
    }

    /// The device has refused a step. What it refuses again and again is not wanted any more.
    fn refused(&mut self, step: Step) {
        self.counts.failed += 1;
        self.refusals[step.level] = self.refusals[step.level].saturating_add(1);
        if step.level > 0 && step.level == self.wanted && self.refusals[step.level] >= REFUSALS {
            self.wanted = self.level;
        }
    }

    /// The step that was last taken, if it has this id.
    fn taken_as(&self, id: u32) -> Option<Step> {
        self.taken.get().filter(|step| step.id == id)
    }

    /// The step for somebody who comes after the asked one was given up. It stays the same once it is taken.
    fn overdue_step(&self) -> Option<Step> {
        let id = self.untaken?;
        let is_wanted = self.wanted != self.level && !matches!(self.phase, Phase::Search { .. });
        let wanted = Step { id, level: self.wanted, setting: self.table.setting(self.wanted) };
        self.taken_as(id).or(is_wanted.then_some(wanted))
    }

    /// The answer to a step that was given up.
    fn answered_late(&mut self, step: Step, outcome: Outcome) -> Next {
        let Outcome::Done(actual) = outcome else {
            self.refused(step);
            return Next::Measure;
        };
        self.take(step, actual);
        if self.pending.is_none() {
            self.proven &= !matches!(self.phase, Phase::Search { .. });
            self.phase = SETTLE;
        }
        Next::Measure
    }
}

impl Controller for Adaptive {
    fn interrupt(&mut self, now_ns: u64, found: Found) -> Next {
        self.now_ns = self.now_ns.max(now_ns);
        self.meter.interrupt(self.now_ns, found);
        self.advance()
    }

    fn polled(&mut self, now_ns: u64, found: Found) -> Next {
        self.now_ns = self.now_ns.max(now_ns);
        self.meter.polled(self.now_ns, found);
        self.advance()
    }

    fn deadline_ns(&self) -> Option<u64> {
        let sample_end_ns = self.meter.start_ns().saturating_add(self.bounds_ns().1);
        Some(self.pending.map_or(sample_end_ns, |pending| pending.deadline_ns))
    }

    fn elapsed(&mut self, now_ns: u64) -> Next {
        self.now_ns = self.now_ns.max(now_ns);
        self.advance()
    }

    fn step(&self) -> Option<Step> {
        let step = self.pending.map(|pending| pending.step).or_else(|| self.overdue_step())?;
        self.taken.set(Some(step));
        Some(step)
    }

    fn programmed(&mut self, now_ns: u64, id: u32, outcome: Outcome) -> Next {
        self.now_ns = self.now_ns.max(now_ns);
        if let Some(Pending { step, .. }) = self.pending.take_if(|pending| pending.step.id == id) {
            return match outcome {
                Outcome::Done(actual) => self.done(step, actual),
                Outcome::Failed => self.failed(step),
            };
        }
        let overdue = self.untaken.filter(|&untaken| untaken == id).and_then(|id| self.taken_as(id));
        if let Some(step) = overdue {
            self.untaken = None;
            return self.answered_late(step, outcome);
        }
        if let Some(step) = self.late.take_if(|step| step.id == id) {
            return self.answered_late(step, outcome);
        }
        self.counts.strays += 1;
        Next::Measure
    }

    fn level(&self) -> usize {
        self.level
    }

    fn view(&self) -> TuningView {
        TuningView {
            algorithm: "adaptive",
            phase: match self.phase {
                _ if self.pending.is_some() => "programming",
                Phase::Settle { .. } => "settling",
                Phase::Search { .. } => "searching",
                Phase::Hold { .. } => "holding",
            },
            level: self.level,
            level_last: self.table.last(),
            setting: self.table.setting(self.level),
            actual: self.actual,
            wanted: self
                .pending
                .map(|pending| pending.step.level)
                .or((self.wanted != self.level).then_some(self.wanted)),
            sample: self.last,
            counts: self.counts,
        }
    }
}

//! Tells a controller and its model the same, and compares every decision.

use super::levels::draw_table;
use crate::draw::Draw;
use crate::trials::same;
use irq::moderation::{Algorithm, Controller, Counts, Found, LevelTable, Next, Outcome, Setting};

/// Rates that a controller reports: completions and events a second, completions an event in hundredths.
pub(super) type Rates = (u64, u64, u64);

/// A controller as it was published.
pub(super) trait Model {
    /// An interrupt at this time found this. True when a level is to be programmed.
    fn interrupt(&mut self, now_us: u64, completions: u32, bytes: u64) -> bool;
    /// A poll found this.
    fn polled(&mut self, _completions: u32, _bytes: u64) {}
    /// The step was answered.
    fn answered(&mut self);
    /// The level.
    fn level(&self) -> usize;
    /// What it does, as people read it.
    fn phase(&self, programs: bool) -> &'static str;
    /// The sample that it compares the next one with, if it has one.
    fn sample(&self) -> Option<Rates>;
}

/// One controller in so many is old when its samples begin. It takes as long as some hundred others.
const OLD_IN: u64 = 1_000;
/// How many interrupts before a count of 16 bits begins anew the samples begin, at most.
const LIFE_SPREAD: u16 = 300;

/// Load of one sample.
struct Load {
    gap_ns: u64,
    completions: u64,
    bytes: u64,
    polled: bool,
}

/// The next load: as the last, or another by a factor around the thresholds of 10 and 20 per cent.
fn draw_load(draw: &mut Draw, load: &mut Load) {
    let factors = [50, 79, 80, 83, 84, 88, 89, 90, 91, 92, 100, 100, 109, 110, 111, 112, 119, 120, 121, 122, 150, 200];
    let by = |value: u64, percent: u64| (value * percent / 100).clamp(1, 1 << 40);
    match draw.below(9) {
        0 | 1 => load.completions = by(load.completions, *draw.pick(&factors)),
        2 | 3 => load.gap_ns = by(load.gap_ns, *draw.pick(&factors)),
        4 => load.bytes = by(load.bytes, *draw.pick(&factors)),
        5 => load.completions = *draw.pick(&[0, 1, 1, 2, 100]),
        6 => load.polled = !load.polled,
        7 => *load = any_load(draw),
        _ => {}
    }
}

fn any_load(draw: &mut Draw) -> Load {
    // A millisecond an event makes the rates those numbers themselves.
    let gap_ns = if draw.percent(60) { 1_000_000 } else { draw.time_ns(200, 3_000_000) };
    let completions = match draw.below(12) {
        0 => u64::from(u32::MAX) / draw.within(1..=64),
        1 => 1,
        _ => draw.within(80..=125),
    };
    let bytes = *draw.pick(&[0, 0, 1_000, 100, 1 << 33]);
    Load { gap_ns, completions, bytes, polled: draw.percent(20) }
}

/// The run of a controller beside its model.
struct Run<'m> {
    controller: Box<dyn Controller>,
    model: &'m mut dyn Model,
    table: Vec<Setting>,
    name: &'static str,
    counts: Counts,
    /// The step under way.
    step: Option<u32>,
    now_ns: u64,
}

impl Run<'_> {
    /// Both are in the same state.
    fn compare(&self, next: Next, programs: bool) -> Result<(), String> {
        same("asks for a step", &programs, &(next == Next::Program))?;
        let level = self.model.level();
        same("level", &level, &self.controller.level())?;
        let step = self.controller.step().map(|step| (step.id, step.level, step.setting));
        same("step", &self.step.map(|id| (id, level, self.table[level])), &step)?;
        if programs || self.counts.steps.is_multiple_of(5) {
            self.compare_view(level)?;
        }
        if programs {
            self.compare_text()?;
        }
        let deadline = (self.controller.deadline_ns(), Next::Measure);
        same("deadline", &(None, Next::Measure), &deadline)
    }

    fn compare_view(&self, level: usize) -> Result<(), String> {
        let view = self.controller.view();
        let expected = (self.name, self.model.phase(self.step.is_some()), level, self.table.len() - 1);
        same("view", &expected, &(view.algorithm, view.phase, view.level, view.level_last))?;
        let expected = (self.table[level], None, None, self.counts);
        same("view", &expected, &(view.setting, view.actual, view.wanted, view.counts))?;
        let rates = view
            .sample
            .map(|sample| (sample.completions_per_s, sample.events_per_s, sample.completions_per_event_x100));
        same("sample", &self.model.sample(), &rates)
    }

    /// What people read. Only with a step: a text costs as much as many interrupts.
    fn compare_text(&self) -> Result<(), String> {
        let text = self.controller.view().to_string();
        let named = text.contains(self.name) && text.contains(&format!("changes {}", self.counts.changes));
        if named { Ok(()) } else { Err(format!("a view says only {text:?}")) }
    }

    fn interrupt(&mut self, load: &Load) -> Result<(), String> {
        self.now_ns += load.gap_ns;
        let (completions, before) = (load.completions as u32, self.model.level());
        let found = Found { completions, bytes: load.bytes, in_flight: None };
        let next = self.controller.interrupt(self.now_ns, found);
        let programs = self.model.interrupt(self.now_ns / 1000, completions, load.bytes);
        self.counts.changes += u64::from(self.model.level() != before);
        if programs {
            self.counts.steps += 1;
            self.step = Some(self.counts.steps as u32);
        }
        self.compare(next, programs)?;
        if load.polled {
            let next = self.controller.polled(self.now_ns, found);
            self.model.polled(completions, load.bytes);
            self.compare(next, false)?;
        }
        Ok(())
    }

    /// Lets both grow so old that a count of 16 bits is about to begin anew: that is seconds of a fast device. The load stays the
    /// same, so that only decisions need to be compared.
    fn grow_old(&mut self, draw: &mut Draw) -> Result<(), String> {
        let load = any_load(draw);
        let found = Found { completions: load.completions as u32, bytes: load.bytes, in_flight: None };
        for _ in draw.below(u64::from(LIFE_SPREAD))..1 << 16 {
            self.now_ns += load.gap_ns;
            let before = self.model.level();
            let next = self.controller.interrupt(self.now_ns, found);
            let programs = self.model.interrupt(self.now_ns / 1000, found.completions, found.bytes);
            if programs || next == Next::Program {
                self.counts.changes += u64::from(self.model.level() != before);
                self.counts.steps += u64::from(programs);
                self.step = Some(self.counts.steps as u32);
                self.compare(next, programs)?;
                self.answer(draw)?;
            }
        }
        self.compare(Next::Measure, false)
    }

    /// Answers the step under way, or one that is none.
    fn answer(&mut self, draw: &mut Draw) -> Result<(), String> {
        let id = self.step.filter(|_| draw.percent(85)).unwrap_or_else(|| draw.within(1 << 20..=1 << 30) as u32);
        let outcome = if draw.percent(80) { Outcome::Done(Setting::OFF) } else { Outcome::Failed };
        if self.step == Some(id) {
            self.step = None;
            self.counts.failed += u64::from(outcome == Outcome::Failed);
            self.model.answered();
        } else {
            self.counts.strays += 1;
        }
        let next = self.controller.programmed(self.now_ns, id, outcome);
        self.compare(next, false)
    }
}

/// Tells both the same for some samples of `events` interrupts each.
pub(super) fn replay(
    draw: &mut Draw,
    algorithm: Algorithm,
    events: u16,
    model: impl FnOnce(usize) -> Box<dyn Model>,
) -> Result<(), String> {
    let table = draw_table(draw);
    let mut model = model(table.len());
    let levels = LevelTable::new(table.clone()).map_err(|error| error.to_string())?;
    let controller = algorithm.build(levels, events).map_err(|error| error.to_string())?;
    same("name", &algorithm.name(), &algorithm.to_string().as_str())?;
    let name = algorithm.name();
    let now_ns = draw.below(1 << 40);
    let counts = Counts::default();
    let mut run = Run { controller, model: &mut *model, table, name, counts, step: None, now_ns };
    run.compare(Next::Measure, false)?;
    if draw.below(OLD_IN) == 0 {
        run.grow_old(draw).map_err(|text| format!("grown old: {text}"))?;
    }
    let mut load = any_load(draw);
    // Parking tired takes as many samples as two walks through the table.
    let samples = if draw.percent(15) { draw.within(24..=40) } else { draw.within(4..=12) };
    for sample in 0..samples {
        draw_load(draw, &mut load);
        let still = draw.percent(3);
        let gap_ns = if still { 0 } else { load.gap_ns };
        // Mostly whole samples, so that each is of one load.
        let count = if draw.percent(90) { u64::from(events) } else { draw.within(1..=2 * u64::from(events)) };
        let load = Load { gap_ns, ..load };
        for _ in 0..count {
            run.interrupt(&load).map_err(|text| format!("sample {sample}: {text}"))?;
            if run.step.is_some() && draw.percent(90) || draw.percent(1) {
                run.answer(draw).map_err(|text| format!("sample {sample}: {text}"))?;
            }
        }
        let elapsed = run.controller.elapsed(run.now_ns);
        run.compare(elapsed, false)?;
    }
    Ok(())
}

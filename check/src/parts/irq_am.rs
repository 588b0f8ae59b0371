//! irq-am (RFC "irq-am: Introduce library implementing generic adaptive moderation", 2018; ../shared/facts/moderation.md): more
//! completions a second are better, else fewer events; one completion an event above level 0 is worse on the way up and better
//! on the way down. A difference counts beyond 20 per cent.

use super::replay::{Model, Rates, replay};
use crate::draw::Draw;
use irq::moderation::Algorithm;

/// A sample: completions and events a second, completions an event.
type Sample = (u32, u32, u32);

struct IrqAm {
    events: u32,
    levels: usize,
    level: usize,
    goes_up: bool,
    /// Since the sample began: when, interrupts, completions; none before the first.
    started: Option<(u64, u32, u32)>,
    programs: bool,
    previous: Sample,
}

/// More than a fifth of what was before, in the 32 bits of the publication.
fn is_significant(now: u32, before: u32) -> bool {
    let difference = (i64::from(now.wrapping_sub(before) as i32)).unsigned_abs() as u32;
    before != 0 && difference.wrapping_mul(100) / before > 20
}

impl IrqAm {
    /// True for better, false for worse.
    fn compare(&self, now: Sample) -> Option<bool> {
        let before = self.previous;
        if before.0 == 0 {
            None
        } else if is_significant(now.0, before.0) {
            Some(now.0 > before.0)
        } else if is_significant(now.1, before.1) {
            Some(now.1 < before.1)
        } else if now.2 == 1 && self.level > 0 {
            Some(!self.goes_up)
        } else {
            None
        }
    }

    fn decide(&mut self, now: Sample) -> bool {
        let before = self.level;
        match self.compare(now) {
            None => {}
            Some(better) => {
                if !better {
                    self.goes_up = !self.goes_up;
                }
                if self.goes_up && self.level + 1 < self.levels {
                    self.level += 1;
                } else if !self.goes_up && self.level > 0 {
                    self.level -= 1;
                }
            }
        }
        let at_an_end = self.level == 0 || self.level + 1 == self.levels;
        let programs = at_an_end || self.level != before;
        if programs || self.previous.0 == 0 {
            self.previous = now;
        }
        programs
    }
}

impl Model for IrqAm {
    fn interrupt(&mut self, now_us: u64, completions: u32, _bytes: u64) -> bool {
        if self.programs {
            return false;
        }
        let Some((start_us, events, found)) = &mut self.started else {
            // What the first interrupt found was found before the sample.
            self.started = Some((now_us, 0, 0));
            return false;
        };
        *events += 1;
        *found = found.wrapping_add(completions);
        if *events < self.events {
            return false;
        }
        let elapsed_us = (now_us - *start_us) & 0xffff_ffff;
        let rate = |count: u32| (u64::from(count) * 1_000_000).div_ceil(elapsed_us) as u32;
        // In no time, nothing.
        let now = match elapsed_us {
            0 => (0, 0, 0),
            _ => (rate(*found), rate(self.events), found.div_ceil(self.events)),
        };
        self.started = Some((now_us, 0, 0));
        self.programs = self.decide(now);
        self.programs
    }

    fn answered(&mut self) {
        self.programs = false;
        self.started = None;
    }

    fn level(&self) -> usize {
        self.level
    }

    fn phase(&self, programs: bool) -> &'static str {
        match (programs, self.goes_up) {
            (true, _) => "programming",
            (_, true) => "measuring upwards",
            (_, false) => "measuring downwards",
        }
    }

    fn sample(&self) -> Option<Rates> {
        let (completions, events, ratio) = self.previous;
        (completions != 0).then_some((completions.into(), events.into(), 100 * u64::from(ratio)))
    }
}

pub(super) fn irq_am(draw: &mut Draw) -> Result<(), String> {
    let events = *draw.pick(&[1, 8, 16, 64]);
    replay(draw, Algorithm::IrqAm, events, |levels| {
        let events = events.into();
        Box::new(IrqAm { events, levels, level: 0, goes_up: true, started: None, programs: false, previous: (0, 0, 0) })
    })
}

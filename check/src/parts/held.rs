//! A controller believes in the level that the device has, however late the device is asked and answers, and whatever it refuses.

use crate::draw::Draw;
use crate::trials::same;
use irq::moderation::{Algorithm, Controller, Found, LevelTable, Next, Outcome, Setting, Step};

/// Longer than an answer may take: see `AdaptiveConfig::program_ns_max`.
const LATE_NS: u64 = 200_000_000;
/// Steps that a controller may still ask for when nothing happens any more.
const ROUNDS: u32 = 64;

/// A device, and the thread that programs it: one step at a time.
struct Device {
    has: Setting,
    /// The thread was asked, and has not looked yet.
    asked: bool,
    /// What it is at, and until when.
    at: Option<(Step, u64)>,
    refused_percent: u64,
    late_percent: u64,
}

impl Device {
    fn hear(&mut self, next: Next) {
        self.asked |= next == Next::Program;
    }

    /// The thread gets its turn.
    fn turn(&mut self, now_ns: u64, controller: &mut dyn Controller, draw: &mut Draw) {
        match self.at {
            Some((_, until_ns)) if now_ns < until_ns => {}
            Some((step, _)) => {
                self.at = None;
                let outcome = if draw.percent(self.refused_percent) {
                    Outcome::Failed
                } else {
                    self.has = step.setting;
                    Outcome::Done(step.setting)
                };
                let next = controller.programmed(now_ns, step.id, outcome);
                self.hear(next);
            }
            None if std::mem::take(&mut self.asked) => {
                let longest_ns = if draw.percent(self.late_percent) { LATE_NS } else { 100_000 };
                let takes_ns = draw.time_ns(1_000, longest_ns);
                self.at = controller.step().map(|step| (step, now_ns + takes_ns));
            }
            None => {}
        }
    }
}

pub(super) fn held(draw: &mut Draw) -> Result<(), String> {
    let levels = super::levels::draw_table(draw);
    let algorithm = *draw.pick(&Algorithm::ALL);
    let table = LevelTable::new(levels.clone()).map_err(|error| error.to_string())?;
    let mut controller = algorithm.build(table, draw.within(1..=32) as u16).map_err(|error| error.to_string())?;
    let controller = &mut *controller;
    // The published controllers go on as if the device had done what it refused.
    let refused_percent = if algorithm == Algorithm::Adaptive { draw.below(60) } else { 0 };
    let late_percent = draw.below(60);
    let has = controller.view().setting;
    let mut device = Device { has, asked: false, at: None, refused_percent, late_percent };
    let mut now_ns = 0;
    for _ in 0..draw.within(1..=6) {
        // A load: interrupts so far apart that find so much.
        let (gap_ns, completions) = (draw.time_ns(2_000, 4_000_000), draw.time_ns(1, 32) as u32);
        let in_flight = draw.percent(50).then(|| draw.time_ns(1, 256) as u32);
        let turns_percent = *draw.pick(&[1, 20, 100]);
        for _ in 0..draw.within(10..=400) {
            now_ns += gap_ns + draw.below(gap_ns / 16 + 1);
            if let Some(due_ns) = controller.deadline_ns().filter(|&due_ns| due_ns < now_ns) {
                device.hear(controller.elapsed(due_ns));
            }
            let found = Found { completions, bytes: u64::from(completions) << 12, in_flight };
            let next =
                if draw.percent(90) { controller.interrupt(now_ns, found) } else { controller.polled(now_ns, found) };
            device.hear(next);
            if draw.percent(turns_percent) {
                device.turn(now_ns, controller, draw);
            }
        }
    }
    // The load ends. The thread does what it was asked for, and the device takes it.
    device.refused_percent = 0;
    for _ in 0..ROUNDS {
        now_ns += LATE_NS;
        device.hear(controller.elapsed(now_ns));
        device.turn(now_ns, controller, draw);
        if !device.asked && device.at.is_none() && controller.view().wanted.is_none() {
            break;
        }
    }
    let view = controller.view();
    let what = format!("level of {}, {} asked, {} late", view.algorithm, view.counts.steps, view.counts.late);
    same(&what, &device.has, &view.setting)
}

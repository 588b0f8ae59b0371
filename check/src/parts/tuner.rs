//! The tuner between consumers and a controller: each report arrives once and with its time, and each step that the controller
//! asks for is programmed and answered.

use crate::draw::Draw;
use crate::trials::same;
use hal::host::HostHal;
use irq::moderation::{
    Algorithm, Controller, Counts, Found, LevelTable, Moderated, Next, Outcome, Setting, Step, Tuner, Tuning,
    TuningView,
};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

thread_local! {
    /// A host for all trials of this thread.
    static HOST: HostHal = HostHal::manual(1);
}

/// What a controller hears: an interrupt, a poll, the passing of time, an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Heard {
    Interrupt(u64, Found),
    Polled(u64, Found),
    Elapsed(u64),
    Programmed(u64, u32, Outcome),
}

/// What it will answer: a step from the next call on, or none.
#[derive(Default)]
pub(super) struct Script {
    pub(super) heard: Vec<Heard>,
    asks: bool,
    step: Option<Step>,
    /// The setting of the last step that was programmed.
    setting: Option<Setting>,
}

/// A controller that does as the script says.
pub(super) struct Scripted(pub(super) Arc<Mutex<Script>>);

impl Scripted {
    fn hear(&self, heard: Heard) -> Next {
        let mut script = self.0.lock().expect("one thread");
        script.heard.push(heard);
        if std::mem::take(&mut script.asks) { Next::Program } else { Next::Measure }
    }
}

impl Controller for Scripted {
    fn interrupt(&mut self, now_ns: u64, found: Found) -> Next {
        self.hear(Heard::Interrupt(now_ns, found))
    }
    fn polled(&mut self, now_ns: u64, found: Found) -> Next {
        self.hear(Heard::Polled(now_ns, found))
    }
    fn deadline_ns(&self) -> Option<u64> {
        None
    }
    fn elapsed(&mut self, now_ns: u64) -> Next {
        self.hear(Heard::Elapsed(now_ns))
    }
    fn step(&self) -> Option<Step> {
        self.0.lock().expect("one thread").step
    }
    fn programmed(&mut self, now_ns: u64, id: u32, outcome: Outcome) -> Next {
        let next = self.hear(Heard::Programmed(now_ns, id, outcome));
        let mut script = self.0.lock().expect("one thread");
        script.setting = script.step.map(|step| step.setting);
        next
    }
    fn level(&self) -> usize {
        0
    }
    fn view(&self) -> TuningView {
        let script = self.0.lock().expect("one thread");
        let (level_last, setting, counts) =
            (script.heard.len(), script.setting.unwrap_or(Setting::OFF), Counts::default());
        TuningView {
            algorithm: "scripted",
            phase: "heard",
            level: 0,
            level_last,
            setting,
            actual: None,
            wanted: None,
            sample: None,
            counts,
        }
    }
}

/// A device that takes what it can.
struct Device(Mutex<Vec<Setting>>, Outcome);

impl Moderated for Device {
    fn program(&self, setting: Setting) -> Outcome {
        self.0.lock().expect("one thread").push(setting);
        self.1
    }
}

pub(super) fn tuner(draw: &mut Draw) -> Result<(), String> {
    let hal = HOST.with(|&host| host);
    let script = Arc::new(Mutex::new(Script::default()));
    let tuner = Tuner::new(hal, Box::new(Scripted(script.clone())));
    let outcome = if draw.percent(70) { Outcome::Done(Setting::new(3, 4)) } else { Outcome::Failed };
    let device = Device(Mutex::default(), outcome);
    let (mut expected, mut programmed, mut asked) = (Vec::new(), Vec::new(), false);
    for round in 0..draw.within(2..=20) as u32 {
        hal.advance_ns(draw.below(1_000));
        let now_ns = hal::Hal::now_ns(hal);
        let in_flight = draw.percent(50).then_some(round);
        let found = Found { completions: draw.below(100) as u32, bytes: draw.below(1 << 40), in_flight };
        let asks = draw.percent(30);
        let setting = Setting::new(round, round + 1);
        {
            let mut script = script.lock().expect("one thread");
            script.asks = asks;
            script.step = Some(Step { id: round, level: 0, setting });
        }
        let fed = match draw.below(5) {
            0 => {
                tuner.interrupt(found);
                expected.push(Heard::Interrupt(now_ns, found));
                true
            }
            1 => {
                tuner.polled(found);
                expected.push(Heard::Polled(now_ns, found));
                true
            }
            2 => {
                expected.push(Heard::Interrupt(now_ns, found));
                tuner.try_interrupt(found)
            }
            3 => {
                expected.push(Heard::Polled(now_ns, found));
                tuner.try_polled(found)
            }
            _ => {
                tuner.elapsed();
                expected.push(Heard::Elapsed(now_ns));
                true
            }
        };
        same("nobody else uses the controller", &true, &fed)?;
        asked |= asks;
        if draw.percent(50) {
            // An answer may ask for another step.
            let again = asked && draw.percent(30);
            script.lock().expect("one thread").asks = again;
            tuner.work(&device);
            for _ in 0..u32::from(asked) + u32::from(again) {
                expected.push(Heard::Programmed(now_ns, round, outcome));
                programmed.push(setting);
            }
            asked = false;
        }
    }
    same("reports", &expected, &script.lock().expect("one thread").heard)?;
    same("programmed", &programmed, &*device.0.lock().expect("one thread"))?;
    same("view", &expected.len(), &tuner.view().level_last)?;
    restored(draw, hal)?;
    tuning(draw, hal)
}

/// A device that others come to before it answers, so often.
struct Crossed<'a> {
    tuner: &'a Tuner<HostHal>,
    script: &'a Mutex<Script>,
    device: &'a Device,
    /// A step comes to a reset; else a reset comes to a step.
    is_reset: bool,
    times: AtomicU32,
}

impl Crossed<'_> {
    /// The controller wants one level more.
    fn want(&self) {
        {
            let mut script = self.script.lock().expect("one thread");
            let id = script.heard.len() as u32 + 1;
            script.asks = true;
            script.step = Some(Step { id, level: 0, setting: Setting::new(id, 1) });
        }
        self.tuner.interrupt(Found::completions(1));
    }
}

impl Moderated for Crossed<'_> {
    fn program(&self, setting: Setting) -> Outcome {
        let outcome = self.device.program(setting);
        let comes = self.times.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok();
        if comes && self.is_reset {
            self.want();
            self.tuner.work(self.device);
        } else if comes {
            self.tuner.restore(self.device);
        }
        outcome
    }
}

/// Resets come while the thread programs, and steps while a reset restores: in the end the device has what is believed.
fn restored(draw: &mut Draw, hal: HostHal) -> Result<(), String> {
    let script = Arc::new(Mutex::new(Script::default()));
    let tuner = Tuner::new(hal, Box::new(Scripted(script.clone())));
    let device = Device(Mutex::default(), Outcome::Done(Setting::OFF));
    for _ in 0..draw.within(1..=4) {
        let (is_reset, times) = (draw.percent(50), AtomicU32::new(draw.below(3) as u32));
        let crossed = Crossed { tuner: &tuner, script: &script, device: &device, is_reset, times };
        if is_reset {
            tuner.restore(&crossed);
        } else {
            crossed.want();
            tuner.work(&crossed);
        }
        let has = device.0.lock().expect("one thread").last().copied();
        same("level behind resets and steps", &Some(tuner.view().setting), &has)?;
    }
    Ok(())
}

/// A consumer's tuner begins at the controller's first level.
fn tuning(draw: &mut Draw, hal: HostHal) -> Result<(), String> {
    let levels = super::levels::draw_table(draw);
    let table = LevelTable::new(levels.clone()).map_err(|error| error.to_string())?;
    let algorithm = *draw.pick(&Algorithm::ALL);
    let tuning = Tuning { algorithm, table, nr_events: draw.below(3) as u16 };
    let view = tuning.tuner(hal).map(|tuner| tuner.view());
    let first = if algorithm == Algorithm::NetDim { 1.min(levels.len() - 1) } else { 0 };
    let expected = (tuning.nr_events > 0).then(|| (algorithm.name(), first, levels[first]));
    same("tuner", &expected, &view.ok().map(|view| (view.algorithm, view.level, view.setting)))
}

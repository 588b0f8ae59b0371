//! A formula for a device, its users and a CPU: completions per interrupt, and the time between interrupts.

use crate::moderation::*;
use std::vec::Vec;

pub(super) const MS: u64 = 1_000_000;
pub(super) const S: u64 = 1_000 * MS;

/// A closed loop: `depth` I/Os are always under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) depth: u32,
    /// The device's latency without moderation.
    pub(super) latency_ns: u32,
    /// The CPU's time for each I/O and for each interrupt.
    pub(super) io_ns: u32,
    pub(super) event_ns: u32,
    /// The device's shortest time between completions.
    pub(super) spacing_ns: u32,
    /// Share of completions that polling finds, in per cent.
    pub(super) polled_pct: u32,
    /// Mean time between thefts of the CPU, each for 1 ms.
    pub(super) theft_every_ns: u64,
    /// True if the consumer tells how many I/Os are in flight.
    pub(super) tells_depth: bool,
}

/// The RDMA target on one core: 2,750 ns an I/O and 1,560 ns an event.
pub(super) const RDMA: Load = Load {
    depth: 64,
    latency_ns: 12_000,
    io_ns: 2_750,
    event_ns: 1_560,
    spacing_ns: 0,
    polled_pct: 0,
    theft_every_ns: 0,
    tells_depth: false,
};

impl Load {
    /// Completions per interrupt and nanoseconds between interrupts, found as a fixed point.
    fn event(&self, setting: Setting) -> (f64, f64) {
        let (depth, delay) = (f64::from(self.depth), f64::from(setting.delay_us) * 1e3);
        let by_interrupt = 1.0 - f64::from(self.polled_pct) / 100.0;
        let is_off = setting.delay_us == 0 || setting.completions <= 1;
        let (mut rate, mut batch) = (1.0 / f64::from(self.latency_ns), 1.0);
        for _ in 0..200 {
            let arriving = rate * by_interrupt;
            let count = f64::from(setting.completions);
            let gathered = (1.0 + arriving * delay).min(depth);
            let first_waits = match is_off {
                true => 0.0,
                false if count <= gathered => (count - 1.0) / arriving,
                false => delay,
            };
            batch = if is_off { 1.0 } else { count.min(gathered) };
            let waits = first_waits * (batch + 1.0) / (2.0 * batch) * by_interrupt;
            let (io, event) = (f64::from(self.io_ns), f64::from(self.event_ns));
            let round = f64::from(self.latency_ns) + waits + io + event;
            let busy = (io + event * by_interrupt / batch).max(f64::from(self.spacing_ns));
            rate = (rate + (depth / round).min(1.0 / busy)) / 2.0;
        }
        (batch, batch / (rate * by_interrupt))
    }
}

/// How the device and the kernel's deferred work execute a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Device {
    Obeys,
    /// Delays are rounded up to this many microseconds.
    RoundsTo(u32),
    /// The device refuses this level.
    Refuses(usize),
    /// The deferred work never runs.
    Forgets,
    /// Delay of the deferred work.
    Slow(u64),
}

/// The result of a run.
#[derive(Default)]
pub(super) struct Run {
    pub(super) completions: u64,
    /// Each change: its time and the new level.
    pub(super) changes: Vec<(u64, usize)>,
    /// Completions in each tenth of a second.
    tenths: Vec<u64>,
    pub(super) level: usize,
}

impl Run {
    /// Completions between two times, whole tenths of seconds.
    pub(super) fn completions(&self, from_ns: u64, to_ns: u64) -> u64 {
        self.tenths[(from_ns / (100 * MS)) as usize..(to_ns / (100 * MS)) as usize].iter().sum()
    }

    /// The most changes of the level in any second between two times.
    pub(super) fn changes_a_second(&self, from_ns: u64, to_ns: u64) -> usize {
        let times: Vec<u64> =
            self.changes.iter().map(|&(at, _)| at).filter(|at| (from_ns..to_ns).contains(at)).collect();
        times.iter().map(|&at| times.iter().filter(|&&t| (at..at + S).contains(&t)).count()).max().unwrap_or(0)
    }
}

/// Random numbers, of xorshift64.
struct Random(u64);

impl Random {
    /// 1.0, ±`spread`.
    fn around_one(&mut self, spread: f64) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        1.0 + spread * ((self.0 >> 11) as f64 / (1u64 << 52) as f64 - 1.0)
    }
}

/// Loads in sequence, each up to its end time. A controller sets the level; without one the level is fixed.
pub(super) struct Plant<'a> {
    pub(super) table: &'a LevelTable,
    pub(super) loads: &'a [(u64, Load)],
    pub(super) device: Device,
    pub(super) seed: u64,
}

impl Plant<'_> {
    pub(super) fn fixed(&self, level: usize) -> Run {
        self.run(None, level)
    }

    /// The best fixed level by completions between two times.
    pub(super) fn best(&self, from_ns: u64, to_ns: u64) -> u64 {
        let levels = 0..=self.table.last();
        levels.map(|level| self.fixed(level).completions(from_ns, to_ns)).max().expect("a table has a level")
    }

    pub(super) fn with(&self, controller: &mut dyn Controller) -> Run {
        let level = controller.level();
        self.run(Some(controller), level)
    }

    fn run(&self, mut controller: Option<&mut dyn Controller>, level: usize) -> Run {
        let mut sim = Sim {
            device: self.device,
            random: Random(self.seed),
            now: 0.0,
            theft_at: 0.0,
            by_interrupt: 0.0,
            polled: 0.0,
            batch: 0.0,
            gap: 0.0,
            setting: self.table.setting(level),
            work: None,
            run: Run { level, ..Run::default() },
        };
        for &(until_ns, load) in self.loads {
            sim.theft_at = sim.next_theft(&load);
            (sim.batch, sim.gap) = load.event(sim.setting);
            while sim.now < until_ns as f64 {
                let (by_interrupt, polled) = sim.arrive(&load);
                if let Some(controller) = controller.as_deref_mut() {
                    sim.tell(controller, &load, by_interrupt, polled);
                    sim.work(controller, &load);
                }
            }
        }
        sim.run
    }
}

struct Sim {
    device: Device,
    random: Random,
    now: f64,
    theft_at: f64,
    /// Completions that are due, fractions included.
    by_interrupt: f64,
    polled: f64,
    batch: f64,
    gap: f64,
    setting: Setting,
    /// When the deferred work runs, and its step.
    work: Option<(u64, Option<Step>)>,
    run: Run,
}

impl Sim {
    fn next_theft(&mut self, load: &Load) -> f64 {
        match load.theft_every_ns {
            0 => f64::INFINITY,
            every => self.now + every as f64 * self.random.around_one(0.5),
        }
    }

    /// The next interrupt: its completions, and those that polling has found since the last one.
    fn arrive(&mut self, load: &Load) -> (u32, u32) {
        self.now += self.gap * self.random.around_one(0.4);
        let mut batch = self.batch;
        if self.now >= self.theft_at {
            self.now += MS as f64;
            batch += (MS as f64 / self.gap * self.batch).min(f64::from(load.depth) - 1.0);
            self.theft_at = self.next_theft(load);
        }
        self.by_interrupt += batch;
        self.polled += batch * f64::from(load.polled_pct) / f64::from(100 - load.polled_pct);
        let found = (self.by_interrupt as u32, self.polled as u32);
        self.by_interrupt -= f64::from(found.0);
        self.polled -= f64::from(found.1);
        let tenth = (self.now as u64 / (100 * MS)) as usize;
        self.run.tenths.resize(self.run.tenths.len().max(tenth + 1), 0);
        self.run.tenths[tenth] += u64::from(found.0 + found.1);
        self.run.completions += u64::from(found.0 + found.1);
        found
    }

    fn tell(&mut self, controller: &mut dyn Controller, load: &Load, by_interrupt: u32, polled: u32) {
        let now_ns = self.now as u64;
        let in_flight = load.tells_depth.then_some(load.depth);
        let found = |completions: u32| Found { completions, bytes: u64::from(completions) * 512, in_flight };
        let by_interrupt = controller.interrupt(now_ns, found(by_interrupt));
        let polled = if polled > 0 { controller.polled(now_ns, found(polled)) } else { Next::Measure };
        if by_interrupt == Next::Program || polled == Next::Program {
            self.queue_work(controller);
        }
    }

    fn queue_work(&mut self, controller: &dyn Controller) {
        let late_ns = match self.device {
            Device::Forgets => return,
            Device::Slow(late_ns) => late_ns,
            _ => 20_000,
        };
        self.work = Some((self.now as u64 + late_ns, controller.step()));
    }

    /// The deferred work, once it is due.
    fn work(&mut self, controller: &mut dyn Controller, load: &Load) {
        let now_ns = self.now as u64;
        let Some((at_ns, handed)) = self.work.take_if(|(at_ns, _)| now_ns >= *at_ns) else { return };
        // Slow work received its step when it began. Other work asks for its step when it runs.
        let step = if matches!(self.device, Device::Slow(_)) { handed } else { controller.step() };
        let Some(step) = step else { return };
        let outcome = self.program(step);
        if let Outcome::Done(actual) = outcome {
            self.setting = actual;
            (self.batch, self.gap) = load.event(actual);
            if step.level != self.run.level {
                self.run.changes.push((at_ns, step.level));
            }
            self.run.level = step.level;
        }
        if controller.programmed(now_ns, step.id, outcome) == Next::Program {
            self.queue_work(controller);
        }
    }

    fn program(&self, step: Step) -> Outcome {
        match self.device {
            Device::Refuses(level) if level == step.level => Outcome::Failed,
            Device::RoundsTo(us) => {
                Outcome::Done(Setting { delay_us: step.setting.delay_us.next_multiple_of(us), ..step.setting })
            }
            _ => Outcome::Done(step.setting),
        }
    }
}

//! The counters of every machine, at one moment and between two.

use crate::outcome::{CpuTime, Engine, Fault};
use hal::CpuSet;
use machine::time::Ps;
use machine::{CpuTimes, EngineCounters, Machine};

/// A model's counters.
pub(crate) type Counters = Vec<(&'static str, u64)>;

/// The counter called `name`.
///
/// # Panics
/// When the model has none: lab and machine then disagree about a name.
pub(crate) fn counter(counters: &Counters, name: &str) -> u64 {
    let found = counters.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("no counter {name} among {counters:?}")).1
}

/// Every cumulative counter, at one moment.
pub struct Moment {
    at: Ps,
    cpus: Vec<CpuTimes>,
    engine: EngineCounters,
}

impl Moment {
    pub fn of(machine: &Machine) -> Self {
        Self { at: machine.now(), cpus: machine.cpu_times(), engine: machine.engine_counters() }
    }
}

/// Between two moments.
pub struct Span {
    pub start: Moment,
    pub end: Moment,
}

impl Span {
    /// Its length, at least a picosecond.
    pub fn ps(&self) -> u64 {
        (self.end.at - self.start.at).0.max(1)
    }

    /// The growth of a time in which places are in use. A moment has the number of places in use, and
    /// the ends less the beginnings of all stays until then, modulo 2^64.
    pub fn stays_ps(&self, [start, end]: [(u64, u64); 2]) -> u64 {
        let until = |at: Ps, (taken, ended_ps): (u64, u64)| ended_ps.wrapping_add(taken.wrapping_mul(at.0));
        until(self.end.at, end).wrapping_sub(until(self.start.at, start))
    }

    /// The growth of the busy time of a server that takes work ahead. A moment has the time of all that
    /// it has accepted, and when it is through with it.
    pub fn worked_ps(&self, [start, end]: [(u64, u64); 2]) -> u64 {
        let until = |at: Ps, (accepted_ps, end_ps): (u64, u64)| accepted_ps - end_ps.saturating_sub(at.0);
        until(self.end.at, end) - until(self.start.at, start)
    }

    /// When it began.
    pub fn start(&self) -> Ps {
        self.start.at
    }

    /// When it ended.
    pub fn end(&self) -> Ps {
        self.end.at
    }

    /// When it ended, in ns since the machine began.
    pub fn end_ns(&self) -> u64 {
        self.end.at.as_ns()
    }

    /// `busy_ps` as a share of the span.
    pub fn share(&self, busy_ps: u64) -> f64 {
        busy_ps as f64 / self.ps() as f64
    }

    /// The use of the time of `cpus`.
    pub fn cpus(&self, cpus: &CpuSet) -> Vec<CpuTime> {
        cpus.iter().map(|cpu| self.cpu(cpu.index())).collect()
    }

    fn cpu(&self, cpu: usize) -> CpuTime {
        let part = |of: fn(&CpuTimes) -> Ps| (of(&self.end.cpus[cpu]) - of(&self.start.cpus[cpu])).0 / 1000;
        let [user_ns, system_ns, irq_ns] =
            [part(|times| times.user), part(|times| times.system), part(|times| times.irq)];
        // A charge that began before the span ends is counted whole, so the parts may exceed it by one charge.
        let idle_ns = (self.ps() / 1000).saturating_sub(user_ns + system_ns + irq_ns);
        CpuTime { cpu: cpu as u32, user_ns, system_ns, irq_ns, idle_ns }
    }

    /// Application time of all CPUs, in ns.
    pub fn user_ns(&self) -> u64 {
        (0..self.end.cpus.len()).map(|cpu| self.cpu(cpu).user_ns).sum()
    }

    /// The cost of the simulation itself. The caller adds the host's time.
    pub fn engine(&self) -> Engine {
        Engine {
            events: self.end.engine.events - self.start.engine.events,
            switches: self.end.engine.switches - self.start.engine.switches,
            host_ns: 0,
            digest: self.end.engine.digest,
        }
    }
}

/// Everything that was recorded as faulty.
pub(crate) fn faults(machine: &Machine) -> Vec<Fault> {
    let (records, dropped) = machine.faults();
    let mut faults: Vec<Fault> = records
        .into_iter()
        .map(|record| Fault {
            kind: record.kind.into(),
            requester: record.requester as u16,
            count: record.count,
            text: record.text,
        })
        .collect();
    if dropped > 0 {
        let text = "more kinds of faults than are kept apart".into();
        faults.push(Fault { kind: "not kept".into(), requester: 0, count: dropped, text });
    }
    faults
}

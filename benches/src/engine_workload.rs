//! The engine against a plain baseline, both in one run, on the workload of [`machine::engine::workload`].

use machine::engine::TaskError;
use machine::engine::workload::{Outcome, Workload};
use machine::time::Ps;
use std::fmt;
use std::time::Instant;

/// Which engine runs the workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    /// The calendar with a coroutine a CPU.
    Calendar,
    /// std's `BinaryHeap` without coroutines.
    Baseline,
}

impl Engine {
    /// Runs `workload` once.
    ///
    /// # Errors
    /// [`TaskError`] when the host has no room for the CPUs' stacks.
    pub fn run(self, workload: &Workload) -> Result<Outcome, TaskError> {
        match self {
            Self::Calendar => workload.run_engine(),
            Self::Baseline => Ok(workload.run_baseline()),
        }
    }
}

/// A size of the workload with the result that every engine must give.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// What to run.
    pub workload: Workload,
    /// I/Os expected.
    pub ios: u64,
    /// Checksum expected.
    pub checksum: u64,
}

const fn size(drives: u32, end_us: u64, ios: u64, checksum: u64) -> Size {
    Size { workload: Workload { drives, depth: 64, end: Ps::from_ns(end_us * 1000) }, ios, checksum }
}

/// 1, 64 and 1,024 drives with 64 I/Os in flight each: about 4.4 M I/Os every one.
pub const SIZES: [Size; 3] = [
    size(1, 800_000, 4_447_739, 0x0006_5214_6dfb_1942),
    size(64, 12_500, 4_445_060, 0x0000_1948_5225_e8ad),
    size(1024, 800, 4_337_212, 0x0000_01a7_082f_e51c),
];

/// Host time per event over several runs, in ns.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Time {
    /// The middle run.
    pub median_ns: f64,
    /// The quickest run.
    pub min_ns: f64,
    /// The slowest run.
    pub max_ns: f64,
}

impl Time {
    /// Of at least one run.
    fn of(mut runs_ns: Vec<f64>) -> Self {
        runs_ns.sort_by(f64::total_cmp);
        Self { median_ns: runs_ns[runs_ns.len() / 2], min_ns: runs_ns[0], max_ns: runs_ns[runs_ns.len() - 1] }
    }
}

/// Why a comparison gives no figure.
#[derive(Debug)]
pub enum CompareError {
    /// The host has no room for the stacks.
    Task(TaskError),
    /// An engine computed something else than the workload's result.
    Wrong(Engine, Outcome, Size),
}

impl fmt::Display for CompareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Task(error) => error.fmt(f),
            Self::Wrong(engine, outcome, size) => write!(
                f,
                "{engine:?} with {} drives: {} I/Os, checksum {:#018x}; expected {} and {:#018x}",
                size.workload.drives, outcome.ios, outcome.checksum, size.ios, size.checksum
            ),
        }
    }
}

impl std::error::Error for CompareError {}

/// Both engines on one size.
#[derive(Clone, Copy, Debug)]
pub struct Comparison {
    /// The size.
    pub size: Size,
    /// The machine's engine.
    pub engine: Time,
    /// The baseline.
    pub baseline: Time,
    /// Coroutine switches per I/O of the machine's engine.
    pub switches_per_io: f64,
}

/// Runs both engines on `size`, alternately, `runs` times (at least once) each, and checks every result.
///
/// # Errors
/// [`CompareError`] when a result is wrong or the host has no room.
pub fn compare(size: &Size, runs: usize) -> Result<Comparison, CompareError> {
    let mut switches_per_io = 0.0;
    let (mut engine_ns, mut baseline_ns) = (Vec::new(), Vec::new());
    for _ in 0..runs.max(1) {
        let (outcome, ns) = timed(Engine::Calendar, size)?;
        switches_per_io = outcome.switches as f64 / outcome.ios as f64;
        engine_ns.push(ns);
        baseline_ns.push(timed(Engine::Baseline, size)?.1);
    }
    let (engine, baseline) = (Time::of(engine_ns), Time::of(baseline_ns));
    Ok(Comparison { size: *size, engine, baseline, switches_per_io })
}

fn timed(engine: Engine, size: &Size) -> Result<(Outcome, f64), CompareError> {
    let start = Instant::now();
    let outcome = engine.run(&size.workload).map_err(CompareError::Task)?;
    let ns = start.elapsed().as_nanos() as f64 / outcome.events as f64;
    if (outcome.ios, outcome.checksum) != (size.ios, size.checksum) {
        return Err(CompareError::Wrong(engine, outcome, *size));
    }
    Ok((outcome, ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_result_is_no_figure() {
        let wrong = Size { ios: 0, ..size(1, 100, 0, 0) };
        let error = compare(&wrong, 1).expect_err("100 µs hold some I/Os");
        assert!(error.to_string().starts_with("Calendar with 1 drives: "), "{error}");
    }

    #[test]
    fn both_engines_are_timed_on_one_result() {
        let mut size = size(2, 100, 0, 0);
        let outcome = size.workload.run_baseline();
        (size.ios, size.checksum) = (outcome.ios, outcome.checksum);
        let comparison = compare(&size, 3).expect("both engines agree");
        assert!(comparison.engine.min_ns <= comparison.engine.median_ns);
        assert!(comparison.switches_per_io > 0.0);
    }
}

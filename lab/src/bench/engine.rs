//! The engine against a plain baseline, both in one run, on the workload of [`machine::engine::workload`].

use super::BenchError;
use machine::engine::workload::{Outcome, Workload};
use machine::time::Ps;
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
    /// [`BenchError::Task`] when the host has no room for the CPUs' stacks.
    pub fn run(self, workload: &Workload) -> Result<Outcome, BenchError> {
        match self {
            Self::Calendar => workload.run_engine().map_err(BenchError::Task),
            Self::Baseline => Ok(workload.run_baseline()),
        }
    }
}

/// A size of the workload with the result that every engine must give.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// The run to measure.
    pub workload: Workload,
    /// I/Os expected.
    pub ios: u64,
    /// Expected checksum.
    pub checksum: u64,
}

const fn size(drives: u32, end_us: u64, ios: u64, checksum: u64) -> Size {
    Size { workload: Workload { drives, depth: 64, end: Ps::from_ns(end_us * 1000) }, ios, checksum }
}

/// 1, 64 and 1,024 drives with 64 I/Os in flight each: about 4.4 M I/Os in each size.
pub const SIZES: [Size; 3] = [
    size(1, 800_000, 4_447_739, 0x0006_5214_6dfb_1942),
    size(64, 12_500, 4_445_060, 0x0000_1948_5225_e8ad),
    size(1024, 800, 4_337_212, 0x0000_01a7_082f_e51c),
];

/// Runs `engine` once on `size`. Returns the host time per event in ns, and the result.
///
/// # Errors
/// [`BenchError`] when the result is not the workload's, or the host has no room.
pub fn timed(engine: Engine, size: &Size) -> Result<(f64, Outcome), BenchError> {
    let start = Instant::now();
    let outcome = engine.run(&size.workload)?;
    let ns = start.elapsed().as_nanos() as f64 / outcome.events as f64;
    if (outcome.ios, outcome.checksum) != (size.ios, size.checksum) {
        return Err(BenchError::Engine(engine, outcome, *size));
    }
    Ok((ns, outcome))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_result_is_no_figure() {
        let wrong = size(1, 100, 0, 0);
        let error = timed(Engine::Calendar, &wrong).expect_err("100 µs hold some I/Os");
        assert!(error.to_string().starts_with("Calendar with 1 drives: "), "{error}");
    }

    #[test]
    fn both_engines_are_timed_on_one_result() {
        let mut size = size(2, 100, 0, 0);
        let outcome = size.workload.run_baseline();
        (size.ios, size.checksum) = (outcome.ios, outcome.checksum);
        for engine in [Engine::Calendar, Engine::Baseline] {
            assert!(timed(engine, &size).expect("both engines agree").0 > 0.0);
        }
    }
}

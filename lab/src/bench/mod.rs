//! `campanile bench`: the cost of this program and of the delivery core on the user's own machine.
//!
//! Every figure is measured host time. Contenders run alternately, and a figure is the median of its runs.

pub mod demux;
pub mod engine;
pub mod server;
mod table;

use crate::input::InputError;
use crate::interrupt::StopFlag;
use crate::kinds::storage::StorageVariant;
use crate::progress::Progress;
use crate::run::RunError;
use engine::{Engine, Size};
use machine::engine::TaskError;
use machine::engine::workload::Outcome;
use serde::Serialize;
use std::fmt;

pub use table::table;

/// Why a bench gives no figure.
#[derive(Debug)]
pub enum BenchError {
    /// The host has no room for the stacks.
    Task(TaskError),
    /// An engine's result differs from the workload's.
    Engine(Engine, Outcome, Size),
    /// The carried scenario is not valid.
    Input(InputError),
    /// The simulated server did not run.
    Run(RunError),
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Task(error) => error.fmt(f),
            Self::Engine(engine, outcome, size) => write!(
                f,
                "{engine:?} with {} drives: {} I/Os, checksum {:#018x}; expected {} and {:#018x}",
                size.workload.drives, outcome.ios, outcome.checksum, size.ios, size.checksum
            ),
            Self::Input(error) => error.fmt(f),
            Self::Run(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BenchError {}

/// One figure.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Measurement {
    /// Its name.
    pub name: String,
    /// The median of its runs.
    pub value: f64,
    /// The unit of value, min and max.
    pub unit: &'static str,
    /// The number of runs.
    pub runs: usize,
    /// The smallest of them.
    pub min: f64,
    /// The largest of them.
    pub max: f64,
}

impl Measurement {
    /// The median; none without runs.
    fn of(name: &str, unit: &'static str, mut samples: Vec<f64>) -> Option<Self> {
        samples.sort_by(f64::total_cmp);
        let (&min, &max) = (samples.first()?, samples.last()?);
        let value = (samples[(samples.len() - 1) / 2] + samples[samples.len() / 2]) / 2.0;
        Some(Self { name: name.into(), value, unit, runs: samples.len(), min, max })
    }
}

/// Something that gives a sample each time it is run.
struct Contender<'a> {
    name: String,
    unit: &'static str,
    run: Box<dyn FnMut() -> Result<f64, BenchError> + 'a>,
}

impl<'a> Contender<'a> {
    fn new(name: impl Into<String>, unit: &'static str, run: impl FnMut() -> Result<f64, BenchError> + 'a) -> Self {
        Self { name: name.into(), unit, run: Box::new(run) }
    }
}

/// Runs all contenders in turn, `rounds` times, so that disturbances of the host affect all alike. After Ctrl-C it
/// returns the samples taken so far.
fn compete(
    contenders: Vec<Contender<'_>>,
    rounds: usize,
    progress: &Progress,
    stop: &StopFlag,
) -> Result<Vec<Measurement>, BenchError> {
    let mut samples = vec![Vec::new(); contenders.len()];
    let mut contenders = contenders;
    for _ in 0..rounds {
        for (contender, samples) in contenders.iter_mut().zip(&mut samples) {
            if !stop.is_set() {
                samples.push((contender.run)()?);
                progress.step();
            }
        }
    }
    let of = |(contender, samples): (&Contender<'_>, _)| Measurement::of(&contender.name, contender.unit, samples);
    Ok(contenders.iter().zip(samples).filter_map(of).collect())
}

/// The extent of the measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effort {
    /// Runs of each engine on each size.
    pub engine_runs: usize,
    /// Runs of the server with each delivery.
    pub server_runs: usize,
    /// Simulated time of each, in ns.
    pub server_ns: u64,
    /// Runs of each notification handler with each number of vectors.
    pub demux_runs: usize,
}

impl Effort {
    /// About half a minute on one core.
    pub const FULL: Self = Self { engine_runs: 5, server_runs: 7, server_ns: 20_000_000, demux_runs: 31 };
}

/// Sizes of the engine's workload that have a name of their own: number of drives, I/Os in flight on each.
const ENGINE_SIZES: [(usize, &str); 2] = [(1, "64x64"), (2, "1024x64")];
const DELIVERIES: [StorageVariant; 2] = [StorageVariant::Posted, StorageVariant::Remapped];

/// Measures everything.
///
/// # Errors
/// [`BenchError`] when something gave a wrong result or could not run.
pub fn measure(effort: Effort, stop: &StopFlag) -> Result<Vec<Measurement>, BenchError> {
    let steps = effort.engine_runs * 2 * ENGINE_SIZES.len()
        + effort.server_runs * DELIVERIES.len()
        + effort.demux_runs * 2 * demux::PENDING.len();
    let progress = Progress::new(steps as u64, "bench");
    let mut figures = Vec::new();
    for (index, name) in ENGINE_SIZES {
        let run = |engine| move || engine::timed(engine, &engine::SIZES[index]).map(|(ns, _)| ns);
        let contenders = vec![
            Contender::new(format!("engine_{name}"), "ns/event", run(Engine::Calendar)),
            Contender::new(format!("engine_baseline_{name}"), "ns/event", run(Engine::Baseline)),
        ];
        figures.extend(compete(contenders, effort.engine_runs, &progress, stop)?);
    }
    figures.extend(servers(effort, &progress, stop)?);
    for pending in demux::PENDING {
        let bench = demux::Bench::new(pending);
        let run = |handler| {
            let bench = &bench;
            move || Ok(bench.timed(handler))
        };
        let contenders = vec![
            Contender::new(format!("demux_{pending}"), "ns/notification", run(demux::Handler::Core)),
            Contender::new(format!("demux_minimal_{pending}"), "ns/notification", run(demux::Handler::Minimal)),
        ];
        figures.extend(compete(contenders, effort.demux_runs, &progress, stop)?);
    }
    Ok(figures)
}

/// The server's speed with each delivery, and the engine's cost per I/O.
fn servers(effort: Effort, progress: &Progress, stop: &StopFlag) -> Result<Vec<Measurement>, BenchError> {
    let plan = server::plan(effort.server_ns)?;
    let mut costs = [None; DELIVERIES.len()];
    let contenders = DELIVERIES
        .iter()
        .zip(&mut costs)
        .map(|(&delivery, cost)| {
            let plan = &plan;
            Contender::new(format!("server_{delivery}_4_drives"), "I/O/s", move || {
                let this = server::cost(plan, delivery)?;
                *cost = Some(this);
                Ok(this.ios_per_second())
            })
        })
        .collect();
    let mut figures = compete(contenders, effort.server_runs, progress, stop)?;
    for (delivery, cost) in DELIVERIES.iter().zip(costs) {
        let Some(cost) = cost else { continue };
        let name = |what: &str| format!("server_{delivery}_{what}_per_io");
        let per_io = |count: u64| vec![count as f64 / cost.ios as f64];
        figures.extend(Measurement::of(&name("switches"), "switches/I/O", per_io(cost.switches)));
        figures.extend(Measurement::of(&name("events"), "events/I/O", per_io(cost.events)));
    }
    figures.extend(peak_memory_mib().and_then(|mib| Measurement::of("peak_memory", "MiB", vec![mib])));
    Ok(figures)
}

/// The peak resident memory of this process; none where the system does not report it (Linux does, in /proc).
pub fn peak_memory_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_the_median_between_its_extremes() {
        let figure = Measurement::of("x", "ns", vec![3.0, 9.0, 1.0, 2.0]).expect("four runs");
        assert_eq!((figure.value, figure.min, figure.max, figure.runs), (2.5, 1.0, 9.0, 4));
        assert_eq!(Measurement::of("x", "ns", vec![]), None);
    }

    #[test]
    fn contenders_take_turns_until_ctrl_c() {
        let order = std::cell::RefCell::new(Vec::new());
        let stop = StopFlag::default();
        let contender = |name: &'static str, stops_at: usize| {
            let (order, stop) = (&order, &stop);
            Contender::new(name, "ns", move || {
                order.borrow_mut().push(name);
                if order.borrow().len() == stops_at {
                    stop.set();
                }
                Ok(1.0)
            })
        };
        let contenders = vec![contender("a", 3), contender("b", 9)];
        let figures = compete(contenders, 5, &Progress::new(10, "test"), &stop).expect("none fails");
        assert_eq!(*order.borrow(), ["a", "b", "a"]);
        assert_eq!(figures.iter().map(|figure| figure.runs).collect::<Vec<_>>(), [2, 1]);
    }

    #[test]
    fn the_process_has_some_memory() {
        if cfg!(target_os = "linux") {
            assert!(peak_memory_mib().expect("/proc is there") > 1.0);
        }
    }
}

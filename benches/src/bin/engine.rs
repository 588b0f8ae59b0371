//! Times the engine against the baseline, or runs one of them once for an instruction count.

use campanile_benches::engine_workload::{Engine, SIZES, compare};
use machine::engine::workload::Workload;
use machine::time::Ps;
use std::error::Error;
use std::process::ExitCode;

const USAGE: &str = "usage: engine [RUNS]                                             host time per event (9 runs)
       engine once calendar|baseline DRIVES DEPTH NANOSECONDS    one run: its events, I/Os and switches";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => times(9),
        ["once", engine, drives, depth, end_ns] => once(engine, drives, depth, end_ns),
        [runs] if runs.parse::<usize>().is_ok_and(|runs| runs > 0) => times(runs.parse().unwrap_or(1)),
        _ => Err(USAGE.into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// One line a size: median, then the range, of the runs.
fn times(runs: usize) -> Result<(), Box<dyn Error>> {
    println!("host ns per event, median [min..max] of {runs} alternating runs; measured");
    for size in &SIZES {
        let comparison = compare(size, runs)?;
        let (engine, baseline) = (comparison.engine, comparison.baseline);
        println!(
            "{:>4} x {}  engine {:5.1} [{:.1}..{:.1}]  baseline {:5.1} [{:.1}..{:.1}]  ratio {:.2}  switches/IO {:.2}",
            size.workload.drives,
            size.workload.depth,
            engine.median_ns,
            engine.min_ns,
            engine.max_ns,
            baseline.median_ns,
            baseline.min_ns,
            baseline.max_ns,
            engine.median_ns / baseline.median_ns,
            comparison.switches_per_io,
        );
    }
    Ok(())
}

fn once(engine: &str, drives: &str, depth: &str, end_ns: &str) -> Result<(), Box<dyn Error>> {
    let engine = match engine {
        "calendar" => Engine::Calendar,
        "baseline" => Engine::Baseline,
        _ => return Err(format!("no engine `{engine}`: calendar or baseline").into()),
    };
    let workload = Workload { drives: drives.parse()?, depth: depth.parse()?, end: Ps::from_ns(end_ns.parse()?) };
    let outcome = engine.run(&workload)?;
    println!("events {}\nios {}\nswitches {}", outcome.events, outcome.ios, outcome.switches);
    Ok(())
}

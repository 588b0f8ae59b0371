//! Runs one engine once, for a count of its instructions.

use lab::bench::engine::Engine;
use machine::engine::workload::Workload;
use machine::time::Ps;
use std::error::Error;
use std::process::ExitCode;

const USAGE: &str = "usage: engine calendar|baseline DRIVES DEPTH NANOSECONDS    its events, I/Os and switches";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["calendar", drives, depth, end_ns] => once(Engine::Calendar, drives, depth, end_ns),
        ["baseline", drives, depth, end_ns] => once(Engine::Baseline, drives, depth, end_ns),
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

fn once(engine: Engine, drives: &str, depth: &str, end_ns: &str) -> Result<(), Box<dyn Error>> {
    let workload = Workload { drives: drives.parse()?, depth: depth.parse()?, end: Ps::from_ns(end_ns.parse()?) };
    let outcome = engine.run(&workload)?;
    println!("events {}\nios {}\nswitches {}", outcome.events, outcome.ios, outcome.switches);
    Ok(())
}

//! Runs the four-drive server once, for a count of its instructions.

use lab::bench::server;
use lab::kinds::storage::StorageVariant;
use std::error::Error;
use std::process::ExitCode;

const USAGE: &str = "usage: server posted|remapped NANOSECONDS    I/Os, switches and events of the measured span";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["posted", span_ns] => once(StorageVariant::Posted, span_ns),
        ["remapped", span_ns] => once(StorageVariant::Remapped, span_ns),
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

fn once(delivery: StorageVariant, span_ns: &str) -> Result<(), Box<dyn Error>> {
    let cost = server::cost(&server::plan(span_ns.parse()?)?, delivery)?;
    println!("ios {}\nswitches {}\nevents {}", cost.ios, cost.switches, cost.events);
    Ok(())
}

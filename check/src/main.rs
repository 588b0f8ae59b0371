//! `campanile check` alone. It builds in a fraction of the time, for runs over many changes of the code under test.

use campanile_check::cli::{CheckArgs, execute};
use clap::Parser;
use std::process::ExitCode;

/// Searches random histories of the simulated machine for interrupts that are lost, late, doubled or let in.
#[derive(Parser)]
#[command(name = "campanile-check", version, max_term_width = 110)]
struct Cli {
    #[command(flatten)]
    check: CheckArgs,
}

fn main() -> ExitCode {
    match execute(&Cli::parse().check, campanile_check::scenarios::all()) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(error.exit_code())
        }
    }
}

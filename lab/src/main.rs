//! The `campanile` command.

use clap::Parser;
use lab::cli::Cli;
use std::process::ExitCode;

fn main() -> ExitCode {
    match lab::commands::dispatch(&Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("campanile: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}

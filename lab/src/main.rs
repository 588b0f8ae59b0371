//! The `campanile` command.

use lab::cli::Cli;
use std::process::ExitCode;

fn main() -> ExitCode {
    match lab::commands::dispatch(&Cli::of_process().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("campanile: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}

//! The `campanile` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(lab::commands::main(std::env::args_os().collect()))
}

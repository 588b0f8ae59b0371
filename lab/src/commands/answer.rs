//! Commands for a program in place of a person: a command line in, the JSON of the command out. Nothing is printed, and
//! Ctrl-C is the caller's.

use super::{advise, import, run, sweep};
use crate::cli::{Cli, Command, Failure};
use crate::input::{InputError, Place};
use crate::interrupt::StopFlag;
use clap::Parser;

/// Carries out `run`, `advise`, `import` or `sweep`. `arguments` is the command line behind `campanile`. Returns the bytes
/// that `--json` would write; of a sweep, its folder.
///
/// # Errors
/// As the command.
pub fn answer(arguments: &[String], stop: &StopFlag) -> Result<String, Failure> {
    match parse(arguments)? {
        Command::Run(args) => run::answer(&args, arguments, stop),
        Command::Advise(args) => advise::answer(&args, arguments, stop),
        Command::Import(args) => import::answer(&args, arguments, stop),
        Command::Sweep(args) => sweep::answer(&args, stop),
        _ => Err(other(arguments, "run, advise, import, sweep")),
    }
}

/// The command of a command line without the program's name.
pub(super) fn parse(arguments: &[String]) -> Result<Command, Failure> {
    let line = std::iter::once("campanile").chain(arguments.iter().map(String::as_str));
    Ok(Cli::try_parse_from(line)?.command)
}

pub(super) fn other(arguments: &[String], valid: &str) -> Failure {
    let command = arguments.first().map_or("", String::as_str);
    Failure::Input(InputError::value(&Place::option("command"), "", command, "has no answer of this kind", valid))
}

//! The commands, each from its arguments to its printed and written results.

mod bench;
mod boot;
mod calibrate;
mod check;
mod fio_outputs;
mod import;
mod lint;
mod reproduce;
mod run;
mod serve;
mod transfer;

use crate::atomic_file::AtomicFile;
use crate::cli::{self, Command, Failure, IrqsArgs, ServeCommand};
use crate::input::InputError;
use crate::interrupt::StopFlag;
use crate::plan::Plan;
use crate::report;
use crate::run::RunError;
use std::path::Path;

/// Carries out a command.
///
/// # Errors
/// [`Failure`], whose kind says how the program ends.
pub fn dispatch(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Run(args) => run::run(args),
        Command::Lint(args) => lint::run(args),
        Command::Reproduce(args) => reproduce::reproduce(args),
        Command::Calibrate(args) => calibrate::calibrate(args),
        Command::Import(args) => import::import(args),
        Command::Transfer(args) => transfer::transfer(args),
        Command::Irqs(args) => irqs(args),
        Command::Bench(args) => bench::bench(args),
        Command::Boot(args) => boot::boot(args),
        Command::Check(args) => check::check(args),
        Command::Serve(ServeCommand::Nvme(args)) => serve::nvme(args),
        Command::Serve(ServeCommand::Poster(args)) => serve::poster(args),
        Command::Serve(ServeCommand::Virtio(args)) => serve::virtio(args),
    }
}

fn irqs(args: &IrqsArgs) -> Result<(), Failure> {
    let plan = args.experiment.request().plan()?;
    let json = output("--json", args.json.as_deref())?;
    announce(&plan);
    let lines = crate::run::lines(&plan.trials()[0]).map_err(failed)?;
    cli::print(&report::lines::table(&lines))?;
    write(json, || report::lines::json(&lines))
}

fn stop_flag() -> Result<StopFlag, Failure> {
    StopFlag::install().map_err(|error| Failure::Run(error.into()))
}

fn failed(error: RunError) -> Failure {
    Failure::Run(error.into())
}

/// Prints warnings about the result on standard error.
fn announce(plan: &Plan) {
    for warning in &plan.warnings {
        eprintln!("warning: {warning}");
    }
}

/// Opens the output that an option names. An output that cannot be written is refused now, before the run.
fn output(option: &str, path: Option<&Path>) -> Result<Option<AtomicFile>, InputError> {
    path.map(|path| AtomicFile::prepare(option, path)).transpose()
}

/// Writes an output that was asked for.
fn write(output: Option<AtomicFile>, text: impl FnOnce() -> String) -> Result<(), Failure> {
    match output {
        Some(file) => Ok(file.commit(text().as_bytes())?),
        None => Ok(()),
    }
}

/// The end of an interrupted command, after it has printed its results so far.
fn ended(stop: &StopFlag) -> Result<(), Failure> {
    if stop.is_set() { Err(Failure::Interrupted) } else { Ok(()) }
}

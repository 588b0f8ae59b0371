//! The commands, each from its arguments to its printed and written results.

mod advise;
mod bench;
mod boot;
mod calibrate;
mod check;
mod fio_outputs;
mod import;
mod lint;
mod reproduce;
mod rerun;
mod run;
mod serve;
mod sweep;
mod tell;
mod transfer;

use crate::atomic_file::AtomicFile;
use crate::cli::{self, Command, Failure, IrqsArgs, ServeCommand};
use crate::input::InputError;
use crate::inputs::{self, Given};
use crate::interrupt::StopFlag;
use crate::manifest::Manifest;
use crate::plan::Plan;
use crate::report;
use crate::run::RunError;
use serde::Serialize;
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
        Command::Advise(args) => advise::advise(args),
        Command::Import(args) => import::import(args),
        Command::Rerun(args) => rerun::rerun(args),
        Command::Sweep(args) => sweep::sweep(args),
        Command::Merge(args) => sweep::merge(args),
        Command::List(args) => tell::list(args),
        Command::Completions(args) => tell::completions(args),
        Command::Man(args) => tell::man(args),
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
    let (planned, read) = inputs::noted(Given::default(), || args.experiment.request().plan());
    let plan = planned?;
    let json = output("--json", args.json.as_deref())?;
    announce(&plan);
    let lines = crate::run::lines(&plan.trials()[0]).map_err(failed)?;
    if !takes_standard_output(json.as_ref()) {
        cli::print_wide(&report::lines::table(&lines))?;
    }
    write_list(json, &Manifest::of_process(&read).with_plan(&plan), || report::lines::json(&lines))
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

/// Writes an output that is one table, with its manifest as its last key.
fn write_table<T: Serialize>(output: Option<AtomicFile>, manifest: Manifest, result: &T) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Table<'a, T> {
        #[serde(flatten)]
        result: &'a T,
        manifest: Manifest,
    }
    write(output, || serde_json::to_string_pretty(&Table { result, manifest }).expect("plain data") + "\n")
}

/// Writes an output that is a list, and so has no place for a manifest: that goes into a file of its own beside it,
/// `FILE.manifest.json`. Standard output and other files that are no regular ones have none.
fn write_list(output: Option<AtomicFile>, manifest: &Manifest, text: impl FnOnce() -> String) -> Result<(), Failure> {
    let Some(file) = output else { return Ok(()) };
    let path = file.path().to_owned();
    file.commit(text().as_bytes())?;
    if path.is_file() {
        let mut beside = path.into_os_string();
        beside.push(".manifest.json");
        AtomicFile::prepare("--json", Path::new(&beside))?.commit(manifest.text().as_bytes())?;
    }
    Ok(())
}

/// True if an output takes the place of the table.
fn takes_standard_output(output: Option<&AtomicFile>) -> bool {
    output.is_some_and(AtomicFile::is_standard_output)
}

/// The end of an interrupted command, after it has printed its results so far.
fn ended(stop: &StopFlag) -> Result<(), Failure> {
    if stop.is_set() { Err(Failure::Interrupted) } else { Ok(()) }
}

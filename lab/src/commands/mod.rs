//! The commands, each from its arguments to its printed and written results.

mod advise;
pub mod answer;
mod bench;
mod boot;
mod calibrate;
pub mod check;
mod fio_outputs;
mod import;
mod lint;
mod reproduce;
mod rerun;
mod run;
mod serve;
pub mod sweep;
mod tell;
mod transfer;

use crate::atomic_file::{AtomicFile, say};
use crate::cli::{self, Cli, Command, Failure, IrqsArgs, ServeCommand};
use crate::input::{InputError, Warning};
use crate::inputs::{self, Given};
use crate::interrupt::StopFlag;
use crate::manifest::Manifest;
use crate::plan::Plan;
use crate::report;
use crate::run::RunError;
use serde::Serialize;
use std::ffi::OsString;
use std::path::Path;

/// The program: carries out a command line, the program's name first, and returns the exit code.
pub fn main(line: Vec<OsString>) -> u8 {
    let arguments: Vec<String> = line.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    match dispatch(&Cli::of(line).command, &arguments) {
        Ok(()) => 0,
        Err(failure) => {
            say(format_args!("campanile: {failure}"));
            failure.exit_code()
        }
    }
}

/// Carries out a command. `arguments` is the command line behind `campanile`, for the manifests of results.
///
/// # Errors
/// [`Failure`], whose kind says how the program ends.
fn dispatch(command: &Command, arguments: &[String]) -> Result<(), Failure> {
    match command {
        Command::Run(args) => run::run(args, arguments),
        Command::Lint(args) => lint::run(args),
        Command::Reproduce(args) => reproduce::reproduce(args, arguments),
        Command::Calibrate(args) => calibrate::calibrate(args, arguments),
        Command::Advise(args) => advise::advise(args, arguments),
        Command::Import(args) => import::import(args, arguments),
        Command::Rerun(args) => rerun::rerun(args),
        Command::Sweep(args) => sweep::sweep(args),
        Command::Merge(args) => sweep::merge(args),
        Command::List(args) => tell::list(args),
        Command::Completions(args) => tell::completions(args),
        Command::Man(args) => tell::man(args),
        Command::Transfer(args) => transfer::transfer(args),
        Command::Irqs(args) => irqs(args, arguments),
        Command::Bench(args) => bench::bench(args, arguments),
        Command::Boot(args) => boot::boot(args, arguments),
        Command::Check(args) => check::check(args, arguments),
        Command::Serve(ServeCommand::Nvme(args)) => serve::nvme(args),
        Command::Serve(ServeCommand::Poster(args)) => serve::poster(args),
        Command::Serve(ServeCommand::Virtio(args)) => serve::virtio(args),
    }
}

fn irqs(args: &IrqsArgs, arguments: &[String]) -> Result<(), Failure> {
    let (planned, read) = inputs::noted(Given::default(), || args.experiment.request().plan());
    let plan = planned?;
    let json = output_of_list(args.json.as_deref())?;
    announce(&plan);
    let lines = crate::run::lines(&plan.trials()[0]).map_err(failed)?;
    if !takes_standard_output(json.as_ref()) {
        cli::print_wide(&report::lines::table(&lines))?;
    }
    write_list(json, &Manifest::new(arguments, &read).with_plan(&plan), || report::lines::json(&lines))
}

fn stop_flag() -> Result<StopFlag, Failure> {
    StopFlag::install().map_err(|error| Failure::Run(error.into()))
}

fn failed(error: RunError) -> Failure {
    Failure::Run(error.into())
}

/// Prints warnings about the result on standard error.
fn announce(plan: &Plan) {
    for warning in Warning::texts(&plan.warnings) {
        say(format_args!("warning: {warning}"));
    }
}

/// Opens the output that an option names. An output that cannot be written is refused now, before the run.
fn output(option: &str, path: Option<&Path>) -> Result<Option<AtomicFile>, InputError> {
    path.map(|path| AtomicFile::prepare(option, path)).transpose()
}

/// Opens the output `--json` of a list, whose manifest goes into a file beside it; see [`write_list`].
fn output_of_list(path: Option<&Path>) -> Result<Option<AtomicFile>, InputError> {
    let file = output("--json", path)?;
    if let Some(file) = file.as_ref().filter(|file| file.is_regular()) {
        manifest_beside(file.path())?;
    }
    Ok(file)
}

fn manifest_beside(path: &Path) -> Result<AtomicFile, InputError> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".manifest.json");
    AtomicFile::prepare("--json", Path::new(&beside))
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
    write(output, || table(manifest, result))
}

/// A result that is one table as JSON, with its manifest as its last key.
fn table<T: Serialize>(manifest: Manifest, result: &T) -> String {
    #[derive(Serialize)]
    struct Table<'a, T> {
        #[serde(flatten)]
        result: &'a T,
        manifest: Manifest,
    }
    serde_json::to_string_pretty(&Table { result, manifest }).expect("plain data") + "\n"
}

/// Writes an output that is a list, and so has no place for a manifest: that goes into a file of its own beside it,
/// `FILE.manifest.json`. Standard output and other files that are no regular ones have none.
fn write_list(output: Option<AtomicFile>, manifest: &Manifest, text: impl FnOnce() -> String) -> Result<(), Failure> {
    let Some(file) = output else { return Ok(()) };
    let beside = if file.is_regular() { Some(manifest_beside(file.path())?) } else { None };
    file.commit(text().as_bytes())?;
    beside.map_or(Ok(()), |beside| Ok(beside.commit(manifest.text().as_bytes())?))
}

/// True if an output takes the place of the table.
fn takes_standard_output(output: Option<&AtomicFile>) -> bool {
    output.is_some_and(AtomicFile::is_standard_output)
}

/// The end of an interrupted command, after it has printed its results so far.
fn ended(stop: &StopFlag) -> Result<(), Failure> {
    if stop.is_set() { Err(Failure::Interrupted) } else { Ok(()) }
}

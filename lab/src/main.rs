//! The `campanile` command.

use clap::Parser;
use lab::atomic_file::AtomicFile;
use lab::cli::{CalibrateArgs, Cli, Command, ExperimentArgs, Failure, ReproduceArgs, RunArgs};
use lab::input::{InputError, Place};
use lab::plan::Plan;
use lab::platform::Platform;
use lab::published::{self, Usage};
use lab::setting::Setting;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    match dispatch(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("campanile: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}

fn dispatch(command: Command) -> Result<(), Failure> {
    match command {
        Command::Run(args) => run(&args),
        Command::Reproduce(args) => reproduce(&args),
        Command::Calibrate(args) => calibrate(&args),
        Command::Irqs(args) => irqs(&args),
        Command::Bench(args) => {
            let _json = output("--json", args.json.as_deref())?;
            Err(unavailable("bench"))
        }
    }
}

fn run(args: &RunArgs) -> Result<(), Failure> {
    let plan = args.request()?.plan()?;
    let _json = output("--json", args.json.as_deref())?;
    let _html = output("--html", args.html.as_deref())?;
    let _trace = output("--trace", args.trace.as_deref())?;
    announce(&plan);
    Err(unavailable("run"))
}

fn reproduce(args: &ReproduceArgs) -> Result<(), Failure> {
    let _rows = published::select(&args.ids)?;
    let _json = output("--json", args.json.as_deref())?;
    let _html = output("--html", args.html.as_deref())?;
    Err(unavailable("reproduce"))
}

fn calibrate(args: &CalibrateArgs) -> Result<(), Failure> {
    let named = Setting::new(Place::option("calibrate"), "", &args.platform);
    let platform = Platform::load(&named)?;
    let rows = published::rows()?;
    let fitted = rows.iter().filter(|row| row.platform == platform.name && row.usage == Usage::Fit).count();
    if fitted == 0 {
        return Err(Failure::Input(named.wrong("has no rows to calibrate with", "emr, spr, optane")));
    }
    Err(unavailable("calibrate"))
}

fn irqs(args: &ExperimentArgs) -> Result<(), Failure> {
    let plan = args.request().plan()?;
    announce(&plan);
    Err(unavailable("irqs"))
}

/// Says on standard error what the result must be read with.
fn announce(plan: &Plan) {
    for warning in &plan.warnings {
        eprintln!("warning: {warning}");
    }
}

/// The output that an option names, refused now when it could not be written later.
fn output(option: &str, path: Option<&Path>) -> Result<Option<AtomicFile>, InputError> {
    path.map(|path| AtomicFile::prepare(option, path)).transpose()
}

/// The failure of a command whose machine is not joined to this program.
fn unavailable(command: &str) -> Failure {
    Failure::Run(format!("`{command}` is not available in this build").into())
}

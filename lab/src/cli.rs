//! The command line: the commands, and their exit codes.

mod advise;
mod import;
mod negative;
mod pasted;

pub use advise::AdviseArgs;
pub use import::ImportArgs;

use crate::atomic_file::say;
use crate::input::{InputError, Place};
use crate::report::narrow;
use crate::report::table::WIDTH;
use crate::scenario::{Request, SEEDS_MAX};
use clap::{Args, Parser, Subcommand};
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

mod serve;
mod sweeps;

pub use serve::{ServeCommand, ServeNvmeArgs, ServePosterArgs, ServeVirtioArgs};
pub use sweeps::{CompletionsArgs, ListArgs, Listed, ManArgs, MergeArgs, SweepArgs};

/// Delivers interrupts on a simulated server, and measures the cost.
#[derive(Parser, Clone, PartialEq, Eq, Debug)]
#[command(name = "campanile", version, max_term_width = 110)]
pub struct Cli {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand, Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// Run an experiment and print its measurements, one column per delivery.
    Run(RunArgs),
    /// Judge fio job files without running them: how each option is taken, and all warnings and errors.
    Lint(LintArgs),
    /// Run every published row. Print one table per system, fitted rows and predictions apart, each with its error.
    Reproduce(ReproduceArgs),
    /// Refit a platform's free constants to its calibration rows, and show the changes.
    Calibrate(CalibrateArgs),
    /// Rank what would help a server: try every remedy on a job, with its interval, its needs and how it is switched on.
    Advise(AdviseArgs),
    /// Make a platform of a measured server: fit what its figures decide, borrow the rest.
    Import(ImportArgs),
    /// Run one experiment in many settings, and write a table of all.
    Sweep(SweepArgs),
    /// Put the shards of a sweep together.
    Merge(MergeArgs),
    /// Make a result again from its manifest, and compare it byte for byte.
    Rerun(RerunArgs),
    /// Fit one platform's only constant, and predict other platforms' rows with it.
    Transfer(TransferArgs),
    /// Show every interrupt line of a scenario: the domain and chip of each level, flags, affinity.
    Irqs(IrqsArgs),
    /// Measure the speed of this program on this host.
    Bench(BenchArgs),
    /// Run the same drivers on bare metal under QEMU, and judge the counts.
    Boot(BootArgs),
    /// Search random histories of a simulated machine for lost, late, doubled or forged interrupts.
    Check(Box<check::cli::CheckArgs>),
    /// List scenarios, platforms and the keys of --set. `campanile --list` is the same.
    List(ListArgs),
    /// Print the completions of a shell.
    Completions(CompletionsArgs),
    /// Write the man pages.
    Man(ManArgs),
    /// Lend a device model of the machine to a virtual machine monitor.
    #[command(subcommand)]
    Serve(ServeCommand),
}

/// An experiment.
#[derive(Args, Clone, PartialEq, Eq, Debug)]
pub struct ExperimentArgs {
    /// A scenario.toml, a job.fio, the name of a built-in scenario (emr-4-drives), or - for standard input.
    pub input: String,
    /// The platform: emr, spr, optane, azure, … or the path of a platform file. The default for a job file is emr.
    #[arg(long, value_name = "P")]
    pub platform: Option<String>,
    /// The variants to compare, separated by commas: remapped, posted, polled, or others of the scenario's kind.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub delivery: Vec<String>,
    /// Set a constant or an option: fabric.dispatch=56ns, duration=5ms, job.iodepth=8. May be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,
    /// Set a variable of job files, `${VAR}`, over the environment. May be given several times.
    #[arg(long = "define", value_name = "VAR=VALUE")]
    pub defines: Vec<String>,
}

/// `campanile run`.
#[derive(Args, Clone, PartialEq, Eq, Debug)]
pub struct RunArgs {
    /// The experiment.
    #[command(flatten)]
    pub experiment: ExperimentArgs,
    /// Run with seeds 1 to N. The figures are means with their 95 % confidence.
    #[arg(long, value_name = "N", value_parser = seeds)]
    pub seeds: Option<u32>,
    /// Write the figures as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write one self-contained page with plots.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Show each job or group as fio's users know it: latencies with their percentiles, depths, and classes of latency.
    #[arg(long)]
    pub per_job: bool,
    /// Write fio's JSON (json+) of the first delivery and seed; `-`: to standard output, in place of the table. With
    /// {delivery} in its name, a file for each delivery.
    #[arg(long, value_name = "FILE")]
    pub fio_json: Option<PathBuf>,
    /// Write the logs that the jobs ask for (write_bw_log, write_lat_log, …) into this folder: those of the first delivery
    /// and seed. With {delivery} in its name, a folder for each delivery.
    #[arg(long, value_name = "DIR")]
    pub fio_logs: Option<PathBuf>,
    /// Write a trace of every delivery for Perfetto (ui.perfetto.dev): CPUs, drives, IOMMUs, and how messages pass.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
}

/// `campanile rerun`.
#[derive(Args, Clone, PartialEq, Eq, Debug)]
pub struct RerunArgs {
    /// The JSON, the trace or fio's JSON of `campanile run`, or manifest.json of a sweep beside its results.
    pub result: PathBuf,
}

/// `campanile lint`.
#[derive(Args, Clone, PartialEq, Eq, Debug)]
pub struct LintArgs {
    /// Job files.
    #[arg(required = true)]
    pub files: Vec<String>,
    /// The platform that the jobs would run on. The default is emr.
    #[arg(long, value_name = "P")]
    pub platform: Option<String>,
    /// Set a constant or an option, as for `campanile run`. May be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,
    /// Set a variable of job files, `${VAR}`, over the environment. May be given several times.
    #[arg(long = "define", value_name = "VAR=VALUE")]
    pub defines: Vec<String>,
    /// Print one JSON array, with an element for each file.
    #[arg(long)]
    pub json: bool,
}

/// `campanile irqs`.
#[derive(Args, Clone, PartialEq, Eq, Debug)]
pub struct IrqsArgs {
    /// The experiment. The command shows its first variant.
    #[command(flatten)]
    pub experiment: ExperimentArgs,
    /// Write the lines as one JSON array.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// `campanile reproduce`.
#[derive(Args, Clone, PartialEq, Eq, Debug)]
pub struct ReproduceArgs {
    /// The rows to run: H4 A5. The default is all rows.
    pub ids: Vec<String>,
    /// Rows of your own, in the form of scenarios/published.csv, instead of the published ones.
    #[arg(long, value_name = "FILE")]
    pub rows: Option<PathBuf>,
    /// Give each prediction the interval that the fitted rows leave it. Takes minutes.
    #[arg(long, conflicts_with = "rows")]
    pub intervals: bool,
    /// Write the rows as one JSON array.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write one self-contained page.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// `campanile calibrate`.
#[derive(Args, Clone, PartialEq, Eq, Debug)]
pub struct CalibrateArgs {
    /// emr, spr, optane, azure, … or the path of a platform file.
    pub platform: String,
    /// Rows of your own to fit, in the form of scenarios/published.csv, instead of the published ones.
    #[arg(long, value_name = "FILE")]
    pub rows: Option<PathBuf>,
    /// Write the constants and the rows as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// `campanile transfer`.
#[derive(Args, Clone, PartialEq, Eq, Debug)]
pub struct TransferArgs {
    /// Platforms with rows of the same quantity: emag altra juno. Those with one free constant and one fitted row are fitted.
    #[arg(required = true, num_args = 2..)]
    pub platforms: Vec<String>,
    /// Set a constant or an option in every run: "threaded.linux=since 5.19". May stand several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,
}

/// `campanile bench`.
#[derive(Args, Clone, PartialEq, Eq, Debug)]
pub struct BenchArgs {
    /// Write the figures as one JSON array.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// `campanile boot`.
#[derive(Args, Clone, PartialEq, Eq, Debug)]
pub struct BootArgs {
    /// A case, run on every machine that supports it: raise, serial, private, nvme, …; path: instructions of a read;
    /// judges: Linux and our image on a QEMU that posts interrupts (`make judges` builds it); or judges-virtio: of those,
    /// only Linux with virtio devices.
    #[arg(required_unless_present_any = ["all", "quick"], conflicts_with = "all")]
    pub case: Option<String>,
    /// Run every case on every machine, a million reads, and path.
    #[arg(long)]
    pub all: bool,
    /// Run each case on a few machines; with judges, fewer reads. Cases whose QEMU or compiler target is missing are
    /// skipped and named.
    #[arg(long, conflicts_with = "all")]
    pub quick: bool,
    /// With judges: run this built image of ours alone, posted, and not Linux.
    #[arg(long, value_name = "FILE", requires = "case", conflicts_with_all = ["all", "quick"])]
    pub image: Option<PathBuf>,
    /// Write the tables of this document anew: those whose line `<!-- boot: CASE | CASE -->` names only cases of this run.
    #[arg(long, value_name = "FILE")]
    pub table: Option<PathBuf>,
    /// Write the counts as one JSON array.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl Cli {
    /// Reads a command line, the program's name first. `campanile --list` and `campanile run --list` are `campanile list`.
    /// What is wrong is printed, and ends the process.
    pub fn of(line: Vec<OsString>) -> Self {
        let line = as_list(line);
        negative::parsed(&line).unwrap_or_else(|error| {
            let words: Vec<String> = line.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
            match pasted::advice(&words).filter(|_| error.exit_code() == 2) {
                Some(advice) => {
                    say(format_args!("campanile: {}", advice.trim_end()));
                    std::process::exit(error.exit_code())
                }
                None => error.exit(),
            }
        })
    }
}

/// The number of `--seeds`.
fn seeds(text: &str) -> Result<u32, String> {
    let count = text.parse().ok().filter(|count| (1..=SEEDS_MAX).contains(&u64::from(*count)));
    count.ok_or_else(|| format!("valid: a whole number from 1 to {SEEDS_MAX}"))
}

fn as_list(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let is = |at: usize, names: &[&str]| arguments.get(at).is_some_and(|given| names.iter().any(|name| given == name));
    if is(1, &["run", "irqs", "sweep", "calibrate"]) && is(2, &["--list"]) {
        arguments.remove(1);
        arguments[1] = "list".into();
    } else if is(1, &["--list"]) {
        arguments[1] = "list".into();
    }
    arguments
}

impl ExperimentArgs {
    /// The request, for [`Request::plan`].
    pub fn request(&self) -> Request {
        let mut deliveries: Vec<String> = Vec::new();
        for delivery in self.delivery.iter().map(|name| name.trim()).filter(|name| !name.is_empty()) {
            if !deliveries.iter().any(|known| known == delivery) {
                deliveries.push(delivery.into());
            }
        }
        Request {
            input: self.input.clone(),
            platform: self.platform.clone(),
            deliveries: (!deliveries.is_empty()).then_some(deliveries),
            seeds: None,
            sets: self.sets.clone(),
            defines: self.defines.clone(),
        }
    }
}

impl RunArgs {
    /// The request, for [`Request::plan`].
    ///
    /// # Errors
    /// Two outputs have the same path.
    pub fn request(&self) -> Result<Request, InputError> {
        let outputs =
            [("--json", &self.json), ("--html", &self.html), ("--trace", &self.trace), ("--fio-json", &self.fio_json)];
        for (index, (option, path)) in outputs.iter().enumerate() {
            if let Some(path) = path
                && outputs[..index].iter().any(|(_, earlier)| earlier.as_ref() == Some(path))
            {
                let place = Place::option(*option);
                return Err(InputError::value(
                    &place,
                    "",
                    path.display(),
                    "is written twice",
                    "a file for each output",
                ));
            }
        }
        Ok(Request { seeds: self.seeds, ..self.experiment.request() })
    }
}

/// Why a command failed. Each kind has its exit code.
#[derive(Debug)]
pub enum Failure {
    /// The input was wrong.
    Input(InputError),
    /// `campanile check` found and printed a failure: its exit code.
    Found(u8),
    /// The command line is wrong: what the program would print.
    Usage(Box<clap::Error>),
    /// `campanile check` refused its arguments.
    Check(check::cli::CheckError),
    /// `campanile lint` found and printed so many files that do not run.
    Refused(usize),
    /// The run failed, or its results could not be written.
    Run(Box<dyn std::error::Error + Send + Sync>),
    /// Ctrl-C: the completed part has been printed.
    Interrupted,
}

impl Failure {
    /// 2 for wrong input, 3 to 5 for failures that `check` found, 1 for a failed run or a refused file, 130 (128 + SIGINT) after Ctrl-C.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Input(_) | Self::Usage(_) => 2,
            Self::Found(code) => *code,
            Self::Check(error) => error.exit_code(),
            Self::Run(_) | Self::Refused(_) => 1,
            Self::Interrupted => 130,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(error) => write!(f, "{error}"),
            Self::Usage(error) => write!(f, "{error}"),
            Self::Found(_) => f.write_str("a history failed"),
            Self::Refused(1) => f.write_str("1 file does not run"),
            Self::Refused(count) => write!(f, "{count} files do not run"),
            Self::Check(error) => write!(f, "{error}"),
            Self::Run(error) => write!(f, "{error}"),
            Self::Interrupted => f.write_str("interrupted; the figures cover only the completed runs"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<clap::Error> for Failure {
    fn from(error: clap::Error) -> Self {
        Self::Usage(Box::new(error))
    }
}

impl From<InputError> for Failure {
    fn from(error: InputError) -> Self {
        Self::Input(error)
    }
}

/// Prints `text` on standard output. A reader that has closed the pipe (`| head`) is no failure.
///
/// # Errors
/// Standard output cannot be written.
pub fn print(text: &str) -> Result<(), Failure> {
    crate::atomic_file::to_standard_output(text.as_bytes()).map_err(|error| Failure::Run(error.into()))
}

/// The same for text that is wider than some terminals: there its lines are folded.
///
/// # Errors
/// As [`print`].
pub fn print_wide(text: &str) -> Result<(), Failure> {
    match narrow::width() {
        columns if columns < WIDTH => print(&narrow::fold(text, columns)),
        _ => print(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use clap::error::ErrorKind;

    fn parse(line: &str) -> Result<Command, ErrorKind> {
        Cli::try_parse_from(line.split(' ')).map(|cli| cli.command).map_err(|error| error.kind())
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn run_takes_what_the_readme_says() {
        let line = "campanile run j.fio --platform spr --delivery remapped,posted,polled,posted --set a.b=1 --set c=2 \
                    --seeds 5 --json o.json --html o.html --trace o.trace";
        let Ok(Command::Run(args)) = parse(line) else { panic!("a run") };
        let request = args.request().unwrap();
        assert_eq!(request.deliveries, Some(["remapped", "posted", "polled"].map(String::from).to_vec()));
        assert_eq!((request.sets.len(), request.seeds, request.platform.as_deref()), (2, Some(5), Some("spr")));
        let Ok(Command::Run(args)) = parse("campanile run j.fio --delivery posted,") else { panic!("a run") };
        assert_eq!(args.request().unwrap().deliveries, Some(vec!["posted".to_owned()]));
        let Ok(Command::Run(args)) = parse("campanile run emr-4-drives") else { panic!("a run") };
        assert_eq!(args.request().unwrap(), Request::of("emr-4-drives"));
    }

    #[test]
    fn a_list_can_be_an_option_too() {
        for line in ["campanile --list keys --json", "campanile run --list keys --json", "campanile list keys --json"] {
            let arguments = as_list(line.split(' ').map(OsString::from).collect());
            assert_eq!(arguments, ["campanile", "list", "keys", "--json"]);
        }
        let other = as_list(["campanile", "check", "--list"].map(OsString::from).into());
        assert_eq!(other, ["campanile", "check", "--list"]);
    }

    #[test]
    fn wrong_command_lines_are_refused_with_code_2() {
        for line in [
            "campanile",
            "campanile run",
            "campanile run x --seeds -1",
            "campanile run x --seeds 0",
            "campanile advise x --seeds 1001",
            "campanile run x --sets a=1",
            "campanile calibrate",
            "campanile sing",
            "campanile serve nvme",
            "campanile serve nvme --socket s --storage f --memory 1MiB",
            "campanile serve nvme --socket s --queues 0",
        ] {
            let error = Cli::try_parse_from(line.split(' ')).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn a_number_of_seeds_is_refused_with_one_range() {
        for line in ["run x --seeds 0", "run x --seeds 1001", "advise x --seeds 99999999999", "advise x --seeds many"] {
            let error = Cli::try_parse_from(format!("campanile {line}").split(' ')).unwrap_err().to_string();
            assert!(error.contains("valid: a whole number from 1 to 1000") && !error.contains("in 0.."), "{error}");
        }
    }

    #[test]
    fn two_outputs_cannot_be_one_file() {
        let Ok(Command::Run(args)) = parse("campanile run x --json o --trace o") else { panic!("a run") };
        assert_eq!(
            args.request().unwrap_err().to_string(),
            "--trace: `o` is written twice; valid: a file for each output"
        );
    }

    #[test]
    fn failures_have_codes_of_their_own() {
        let input = InputError::new(&Place::file("f"), "", crate::input::Problem::Io("gone".into()));
        assert_eq!(Failure::from(input).exit_code(), 2);
        assert_eq!(Failure::Run("broken".into()).exit_code(), 1);
        assert_eq!(Failure::Interrupted.exit_code(), 130);
    }
}

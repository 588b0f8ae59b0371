//! `campanile sweep` and `campanile merge`.

use super::answer::{other, parse};
use super::{ended, stop_flag};
use crate::atomic_file::say;
use crate::cli::{self, Command, Failure, MergeArgs, SweepArgs};
use crate::input::{InputError, Place, Problem};
use crate::inputs::Given;
use crate::interrupt::StopFlag;
use crate::report::figure::{are, counted};
use crate::sweep::{Done, Parts, Results, Shard, Sweep, Written, carry_out, carry_out_runs, impossible};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

pub(super) fn sweep(args: &SweepArgs) -> Result<(), Failure> {
    let sweep = read(&args.file)?;
    let folder = args.out.clone().unwrap_or_else(|| folder_of(&args.file));
    let stop = stop_flag()?;
    let shard = args.shard.unwrap_or(Shard::WHOLE);
    let (wrong, points) = on_threads(args.jobs, || impossible(&sweep, shard, &stop))?;
    tell(&wrong, points);
    let done = on_threads(args.jobs, || carry_out(&sweep, shard, &folder, &stop))??;
    warn(&done.warnings);
    cli::print(&text(&done, shard, &folder))?;
    ended(&stop)?;
    if shard.count > 1 {
        let folder = folder.display();
        return cli::print(&format!("When all {} shards are done: campanile merge {folder}\n", shard.count));
    }
    told(&Results::new(sweep, done.records)?.write(&folder)?)
}

/// Carries out a sweep or a shard, and writes the table of a whole one. Returns the folder; prints nothing.
///
/// # Errors
/// As [`sweep`].
pub(super) fn answer(args: &SweepArgs, stop: &StopFlag) -> Result<String, Failure> {
    let sweep = read(&args.file)?;
    let folder = args.out.clone().unwrap_or_else(|| folder_of(&args.file));
    let shard = args.shard.unwrap_or(Shard::WHOLE);
    let done = on_threads(args.jobs, || carry_out(&sweep, shard, &folder, stop))??;
    ended(stop)?;
    if shard.count == 1 {
        judged(&Results::new(sweep, done.records)?.write(&folder)?)?;
    }
    Ok(folder.to_string_lossy().into_owned())
}

fn read(file: &str) -> Result<Sweep, InputError> {
    Sweep::read(file, &["sweep".to_owned(), file.to_owned()], Given::default())
}

/// A sweep whose runs are carried out elsewhere, on any machines, and kept here.
pub struct Remote {
    file: String,
    folder: PathBuf,
    parts: Parts,
}

impl Remote {
    /// Opens the sweep of a command line without the word `campanile`, and its folder.
    ///
    /// # Errors
    /// As `campanile sweep`.
    pub fn open(arguments: &[String]) -> Result<Self, Failure> {
        let Command::Sweep(args) = parse(arguments)? else { return Err(other(arguments, "sweep")) };
        let folder = args.out.clone().unwrap_or_else(|| folder_of(&args.file));
        let parts = Parts::open(read(&args.file)?, &folder)?;
        Ok(Self { file: args.file, folder, parts })
    }

    /// The sweep's file as it was named, and its identity.
    pub fn name(&self) -> (String, String) {
        (self.file.clone(), self.parts.sweep().identity())
    }

    /// What a machine needs that has none of the files.
    pub fn given(&self) -> &Given {
        &self.parts.sweep().given
    }

    /// The runs that are not done; each list shares a plan.
    pub fn pending(&self) -> Vec<Vec<u64>> {
        self.parts.pending()
    }

    /// Keeps what [`part`] has returned.
    ///
    /// # Errors
    /// A line is damaged, or cannot be written.
    pub fn keep(&mut self, lines: &str) -> Result<(), Failure> {
        Ok(self.parts.keep(lines)?)
    }

    /// Writes the table. Returns the folder.
    ///
    /// # Errors
    /// Runs are missing, a file cannot be written, or no run was possible.
    pub fn finish(self) -> Result<String, Failure> {
        judged(&self.parts.finish()?.write(&self.folder)?)?;
        Ok(self.folder.to_string_lossy().into_owned())
    }
}

/// Carries out runs of a sweep on one thread, from its files' contents. Returns them as lines for [`Remote::keep`].
///
/// # Errors
/// The sweep is not the one with this identity: another version of the program. Or `stop` was set.
pub fn part(file: &str, identity: &str, given: Given, runs: &[u64], stop: &StopFlag) -> Result<String, Failure> {
    let sweep = Sweep::read(file, &["sweep".to_owned(), file.to_owned()], given)?;
    if sweep.identity() != identity {
        let why = "is another sweep here; valid: the same version of campanile on all machines";
        return Err(Failure::Input(InputError::new(&Place::file(file), "", Problem::Syntax(why.into()))));
    }
    if let Some(run) = runs.iter().find(|run| **run >= sweep.grid.runs()) {
        let valid = format!("0 to {}", sweep.grid.runs().saturating_sub(1));
        return Err(Failure::Input(InputError::value(
            &Place::file(file),
            "runs",
            run,
            "is no run of this sweep",
            valid,
        )));
    }
    let lines = on_threads(Some(1), || carry_out_runs(&sweep, runs, stop))?;
    ended(stop)?;
    Ok(lines)
}

pub(super) fn merge(args: &MergeArgs) -> Result<(), Failure> {
    let folder = match (&args.out, args.shards.first()) {
        (Some(out), _) => out.clone(),
        (None, Some(first)) if first.is_dir() => first.clone(),
        (None, Some(first)) => first.parent().unwrap_or(Path::new(".")).to_owned(),
        (None, None) => PathBuf::from("."),
    };
    told(&Results::merge(&args.shards)?.write(&folder)?)
}

/// Carries out a sweep again in a folder of its own. Returns its table as CSV and Parquet.
///
/// # Errors
/// As `campanile sweep`.
pub(super) fn again(sweep: Sweep, stop: &StopFlag) -> Result<tempfile::TempDir, Failure> {
    let folder = tempfile::tempdir().map_err(|error| Failure::Run(error.into()))?;
    let done = carry_out(&sweep, Shard::WHOLE, folder.path(), stop)?;
    ended(stop)?;
    Results::new(sweep, done.records)?.write(folder.path())?;
    Ok(folder)
}

/// Runs on so many threads; without a number, on all CPUs.
fn on_threads<T: Send>(jobs: Option<u16>, work: impl FnOnce() -> T + Send) -> Result<T, Failure> {
    let Some(jobs) = jobs else { return Ok(work()) };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(jobs.into()).build();
    let pool = pool.map_err(|error| {
        Failure::Input(InputError::value(&Place::option("--jobs"), "", jobs, error.to_string(), "1 to 1024"))
    })?;
    Ok(pool.install(work))
}

/// The folder of a sweep that names none: beside nothing, in the current folder.
fn folder_of(file: &str) -> PathBuf {
    let stem = Path::new(file).file_stem().map_or("sweep".into(), |stem| stem.to_string_lossy());
    PathBuf::from(if stem == "-" { "sweep-results".to_owned() } else { format!("{stem}-results") })
}

/// Most warnings that are printed.
const TOLD_MAX: usize = 20;

/// Says which points are not possible, before the first run.
fn tell(impossible: &BTreeMap<String, u64>, points: usize) {
    let count: u64 = impossible.values().sum();
    if count > 0 {
        let of = counted(points, "point");
        say(format_args!("warning: {count} of {of} {} not possible; their rows have the error:", are(count)));
    }
    for (error, count) in impossible.iter().take(TOLD_MAX) {
        say(format_args!("warning:   {error} ({})", counted(*count, "point")));
    }
    if let Some(more) = impossible.len().checked_sub(TOLD_MAX).filter(|more| *more > 0) {
        say(format_args!("warning:   and {}", counted(more, "other error")));
    }
}

/// Says what the plans of the runs warn of.
fn warn(warnings: &BTreeSet<String>) {
    warnings.iter().take(TOLD_MAX).for_each(|warning| say(format_args!("warning: {warning}")));
    if let Some(more) = warnings.len().checked_sub(TOLD_MAX).filter(|more| *more > 0) {
        say(format_args!("warning: and {more} more; campanile lint tells those of one setting"));
    }
}

fn text(done: &Done, shard: Shard, folder: &Path) -> String {
    let Done { records, before, torn, .. } = done;
    let runs = records.len() as u64;
    let of = if shard == Shard::WHOLE { String::new() } else { format!(" of shard {shard}") };
    let mut text =
        format!("{}{of} in {}: {before} done before, {} now\n", counted(runs, "run"), folder.display(), runs - before);
    if *torn > 0 {
        text += &format!("{} left out; what was lost has been run again\n", counted(*torn, "damaged line"));
    }
    text
}

/// Prints what was written, and judges it.
fn told(written: &Written) -> Result<(), Failure> {
    cli::print(&written_text(written))?;
    judged(written)
}

/// A sweep of which no run was possible has its table, and is a failure.
fn judged(written: &Written) -> Result<(), Failure> {
    let Written { errors, none_ran, .. } = written;
    match none_ran {
        Some(why) if *errors == 1 => Err(Failure::Run(format!("the only run was not possible: {why}").into())),
        Some(why) => Err(Failure::Run(format!("none of {errors} runs was possible; the first: {why}").into())),
        None => Ok(()),
    }
}

fn written_text(written: &Written) -> String {
    let Written { files, rows, errors, unsteady: [unsteady, judged], .. } = written;
    let mut text = counted(*rows, "row");
    if *errors > 0 {
        text += &format!("; {} not possible, column `error` says why", counted(*errors, "run"));
    }
    text.push('\n');
    if *unsteady > 0 {
        let (of, are) = (counted(*judged, "point"), are(*unsteady));
        text += &format!(
            "{unsteady} of {of} {are} not steady, column `steadiness` says why; `campanile run` names a ramp and a \
             duration that may do\n"
        );
    }
    text.extend(files.iter().map(|file| format!("  {}\n", file.display())));
    text
}

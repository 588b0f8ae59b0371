//! `campanile sweep` and `campanile merge`.

use super::{ended, stop_flag};
use crate::cli::{self, Failure, MergeArgs, SweepArgs};
use crate::input::{InputError, Place};
use crate::inputs::Given;
use crate::interrupt::StopFlag;
use crate::sweep::{Done, Results, Shard, Sweep, Written, carry_out};
use std::path::{Path, PathBuf};

pub(super) fn sweep(args: &SweepArgs) -> Result<(), Failure> {
    let arguments = ["sweep".to_owned(), args.file.clone()];
    let sweep = Sweep::read(&args.file, &arguments, Given::default())?;
    let folder = args.out.clone().unwrap_or_else(|| folder_of(&args.file));
    let stop = stop_flag()?;
    let shard = args.shard.unwrap_or(Shard::WHOLE);
    let done = on_threads(args.jobs, || carry_out(&sweep, shard, &folder, &stop))??;
    cli::print(&text(&done, shard, &folder))?;
    ended(&stop)?;
    if shard.count > 1 {
        let folder = folder.display();
        return cli::print(&format!("When all {} shards are done: campanile merge {folder}\n", shard.count));
    }
    let written = Results::new(sweep, done.records)?.write(&folder)?;
    cli::print(&written_text(&written))
}

pub(super) fn merge(args: &MergeArgs) -> Result<(), Failure> {
    let folder = match (&args.out, args.shards.first()) {
        (Some(out), _) => out.clone(),
        (None, Some(first)) if first.is_dir() => first.clone(),
        (None, Some(first)) => first.parent().unwrap_or(Path::new(".")).to_owned(),
        (None, None) => PathBuf::from("."),
    };
    let written = Results::merge(&args.shards)?.write(&folder)?;
    cli::print(&written_text(&written))
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

fn text(done: &Done, shard: Shard, folder: &Path) -> String {
    let Done { records, before, torn } = done;
    let runs = records.len() as u64;
    let of = if shard == Shard::WHOLE { String::new() } else { format!(" of shard {shard}") };
    let mut text =
        format!("{runs} runs{of} in {}: {before} were done before, {} now\n", folder.display(), runs - before);
    if *torn > 0 {
        text += &format!("{torn} damaged lines were left out, and their runs done again\n");
    }
    text
}

fn written_text(written: &Written) -> String {
    let Written { files, rows, errors } = written;
    let mut text = format!("{rows} rows");
    if *errors > 0 {
        text += &format!("; {errors} runs were not possible, column `error` says why");
    }
    text.push('\n');
    text.extend(files.iter().map(|file| format!("  {}\n", file.display())));
    text
}

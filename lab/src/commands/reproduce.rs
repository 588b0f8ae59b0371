//! `campanile reproduce`.

use super::{ended, output, output_of_list, stop_flag, takes_standard_output, write, write_list};
use crate::calibrate::{self, Carried};
use crate::cli::{self, Failure, ReproduceArgs};
use crate::input::{InputError, Place, Problem};
use crate::inputs::{self, Given};
use crate::interrupt::StopFlag;
use crate::manifest::Manifest;
use crate::published::Row;
use crate::report::narrow;
use crate::reproduce::{self as rows_of, FailedRun, Outcomes};
use crate::{published, report};

pub(super) fn reproduce(args: &ReproduceArgs, arguments: &[String]) -> Result<(), Failure> {
    let (rows, mut read) = inputs::noted(Given::default(), || asked(args));
    let (all, rows) = rows?;
    let json = output_of_list(args.json.as_deref())?;
    let html = output("--html", args.html.as_deref())?;
    let needed = needed(&all, &rows, args.intervals)?;
    let (plans, of_plans) = inputs::noted(Given::default(), || rows_of::plans(&needed));
    let plans = plans?;
    read.add(of_plans);
    let stop = stop_flag()?;
    let ran = rows_of::run_plans(&plans, &needed, &stop);
    rows_of::check_quantities(&needed, &ran.outcomes)?;
    let mut compared = rows_of::compare(&needed, &ran.outcomes);
    let empty = rows_of::without_value(&needed, &compared);
    compared.retain(|found| rows.iter().any(|row| row.id == found.id));
    let carried = intervals(args, &rows, &ran.outcomes, &stop);
    for row in &mut compared {
        row.interval = carried.intervals.get(&row.id).copied();
        if args.rows.is_some() {
            row.class = row.class.yours();
        }
    }
    let shown = rows_of::plans(&published::with_sources_of(&all, &rows))?;
    let free = rows_of::free_constants_for(&all, &shown);
    if !takes_standard_output(json.as_ref()) {
        cli::print_wide(&(narrow::reproduce(&compared, &free, narrow::width()) + &notes(&carried)))?;
    }
    let ids: Vec<&str> = needed.iter().map(|row| row.id.as_str()).collect();
    let manifest = Manifest::new(arguments, &read).with("rows", ids).with_plans(&plans);
    write_list(json, &manifest, || report::json::reproduce(&compared).expect("rows are plain data"))?;
    write(html, || report::html::with_manifest(&report::rows_page(&compared, &free), &manifest))?;
    ended(&stop)?;
    failed(&ran.failed, empty, &needed)
}

/// All rows of the file that is asked for, and those of them that are asked for.
fn asked(args: &ReproduceArgs) -> Result<(Vec<Row>, Vec<Row>), InputError> {
    let all = match &args.rows {
        Some(path) => published::read(&path.to_string_lossy())?,
        None => published::rows()?,
    };
    if let Some(path) = args.rows.as_ref().filter(|_| all.is_empty()) {
        let why = "holds no row; valid: a row below the line with the names of the columns".to_owned();
        return Err(InputError::new(&Place::file(path.to_string_lossy()), "", Problem::Syntax(why)));
    }
    let rows = published::select(all.clone(), &args.ids)?;
    Ok((all, rows))
}

/// The rows of `all` to run: those that were asked for, their sources, and for intervals the rows that hold the
/// constants.
fn needed(all: &[Row], rows: &[Row], with_intervals: bool) -> Result<Vec<Row>, Failure> {
    let sources = published::with_sources_of(all, rows);
    if !with_intervals {
        return Ok(sources);
    }
    let holding = calibrate::holding_rows(rows)?;
    let is_needed = |row: &&Row| sources.contains(row) || holding.contains(row);
    Ok(all.iter().filter(is_needed).cloned().collect())
}

/// The intervals, if they were asked for.
fn intervals(args: &ReproduceArgs, rows: &[Row], outcomes: &Outcomes, stop: &StopFlag) -> Carried {
    if args.intervals { calibrate::intervals(rows, outcomes, stop) } else { Carried::default() }
}

fn notes(carried: &Carried) -> String {
    if carried.notes.is_empty() {
        return String::new();
    }
    let lines: String = carried.notes.iter().map(|note| format!("  {note}\n")).collect();
    let end = if carried.interrupted { "INTERRUPTED: other platforms have no intervals.\n" } else { "" };
    format!("\nIntervals of predictions: least and greatest value\n{lines}{end}")
}

/// After all that could be printed: the runs that failed, each with the rows that need it, and the rows without a value.
fn failed(failed: &[FailedRun], empty: Vec<String>, rows: &[Row]) -> Result<(), Failure> {
    if failed.is_empty() && empty.is_empty() {
        return Ok(());
    }
    let line = |run: &FailedRun| {
        let is_hit =
            |row: &&Row| row.scenarios.contains(&run.scenario) && row.variants().any(|name| *name == run.variant);
        let ids: Vec<&str> = rows.iter().filter(is_hit).map(|row| row.id.as_str()).collect();
        format!("{run} (rows {})", ids.join(", "))
    };
    Err(Failure::Run(failed.iter().map(line).chain(empty).collect::<Vec<_>>().join("\n").into()))
}

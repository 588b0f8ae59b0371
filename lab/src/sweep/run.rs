//! Carries out the runs of a shard that are not done yet.

use super::grid::Grid;
use super::store::{Record, Store};
use super::{Shard, Sweep};
use crate::input::{InputError, Warning};
use crate::inputs;
use crate::interrupt::StopFlag;
use crate::outcome::Span;
use crate::plan::Plan;
use crate::progress::Progress;
use crate::run;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;

/// What a shard has done.
#[derive(Debug)]
pub struct Done {
    /// Its finished runs by number. All of the shard's, unless the sweep was stopped.
    pub records: BTreeMap<u64, Record>,
    /// Runs that were done before.
    pub before: u64,
    /// Damaged lines, whose runs were done again.
    pub torn: u64,
    /// What the plans of the runs that were done now warn of, each once: at most [`WARNINGS_MAX`].
    pub warnings: BTreeSet<String>,
}

/// Most warnings of a sweep. A grid can have one for each of its values.
const WARNINGS_MAX: usize = 1000;

/// Carries out a shard's runs on all CPUs, except those that its file in `folder` has. After Ctrl-C, runs that have begun
/// are finished and kept.
///
/// # Errors
/// The file cannot be used. A run that is not possible is no error: its record says why.
pub fn carry_out(sweep: &Sweep, shard: Shard, folder: &Path, stop: &StopFlag) -> Result<Done, InputError> {
    let (store, mut records, torn) = Store::open(folder, sweep, shard)?;
    let runs = sweep.grid.runs();
    records.retain(|&run, _| run < runs && shard.has(run));
    let before = records.len() as u64;
    let points = pending(&sweep.grid, shard, &records);
    let left: usize = points.iter().map(|(_, runs)| runs.len()).sum();
    let progress = Progress::new(left as u64, &format!("sweep, {before} done before"));
    let failed: Mutex<Option<InputError>> = Mutex::new(None);
    let warnings = Mutex::new(BTreeSet::new());
    let warn = |plans: &Plans| {
        let mut warnings = warnings.lock().unwrap_or_else(|poison| poison.into_inner());
        warnings.extend(plans.values().flatten().flat_map(|plan| Warning::texts(&plan.warnings)));
        while warnings.len() > WARNINGS_MAX {
            warnings.pop_last();
        }
    };
    let keep = |record: Record| {
        let kept = store.append(&record);
        if let Err(error) = kept {
            failed.lock().unwrap_or_else(|poison| poison.into_inner()).get_or_insert(error);
            stop.set();
        }
        progress.step();
        record
    };
    let new: Vec<Record> = points
        .into_par_iter()
        .flat_map_iter(|(point, runs)| {
            let plans = if stop.is_set() { BTreeMap::new() } else { plans(sweep, point, &runs) };
            warn(&plans);
            let done = runs.into_iter().take_while(|_| !stop.is_set()).map(|run| keep(record(sweep, run, &plans)));
            done.collect::<Vec<_>>()
        })
        .collect();
    if let Some(error) = failed.into_inner().unwrap_or_else(|poison| poison.into_inner()) {
        return Err(error);
    }
    records.extend(new.into_iter().map(|record| (record.run, record)));
    let warnings = warnings.into_inner().unwrap_or_else(|poison| poison.into_inner());
    Ok(Done { records, before, torn, warnings })
}

/// The points of a shard that are not possible, found by planning all of them: each error once, with how many points have
/// it; and the number of the shard's points. Those are left out that were not planned when `stop` was set.
pub fn impossible(sweep: &Sweep, shard: Shard, stop: &StopFlag) -> (BTreeMap<String, u64>, usize) {
    let runs = (0..sweep.grid.runs()).filter(|&run| shard.has(run));
    let mut points: Vec<u64> = runs.map(|run| sweep.grid.point_of(run)).collect();
    points.dedup();
    let progress = Progress::new(points.len() as u64, "points planned");
    let refusal = |&point: &u64| {
        let error = inputs::with(sweep.given.clone(), || sweep.grid.refusal(point));
        progress.step();
        error.map(|error| error.to_string())
    };
    let found: Vec<String> = points.par_iter().filter(|_| !stop.is_set()).filter_map(refusal).collect();
    let mut counts = BTreeMap::new();
    found.into_iter().for_each(|error| *counts.entry(error).or_default() += 1);
    (counts, points.len())
}

/// Carries out these runs, and keeps them nowhere. Returns a line for each that ended before `stop` was set, as the file of
/// a shard has it.
pub fn carry_out_runs(sweep: &Sweep, runs: &[u64], stop: &StopFlag) -> String {
    let all = sweep.grid.runs();
    let known: Vec<u64> = runs.iter().copied().filter(|run| *run < all).collect();
    known
        .chunk_by(|a, b| sweep.grid.point_of(*a) == sweep.grid.point_of(*b))
        .flat_map(|runs| {
            let plans = plans(sweep, sweep.grid.point_of(runs[0]), runs);
            runs.iter().take_while(|_| !stop.is_set()).map(|&run| record(sweep, run, &plans).line()).collect::<Vec<_>>()
        })
        .collect()
}

/// The points with runs of the shard that are not done, each with those runs. They are in no order of cost, so that the mean
/// of those done tells what the others take; the seeds of a point are parts of their own if there are few points.
pub(super) fn pending(grid: &Grid, shard: Shard, done: &BTreeMap<u64, Record>) -> Vec<(u64, Vec<u64>)> {
    /// Runs that share a plan: planning costs less than a tenth of a millisecond's run, and all CPUs have something to do.
    const TOGETHER_MAX: usize = 16;
    let mut points: Vec<(u64, Vec<u64>)> = Vec::new();
    for run in (0..grid.runs()).filter(|&run| shard.has(run) && !done.contains_key(&run)) {
        let point = grid.point_of(run);
        match points.last_mut() {
            Some((last, runs)) if *last == point && runs.len() < TOGETHER_MAX => runs.push(run),
            _ => points.push((point, vec![run])),
        }
    }
    // Fibonacci hashing: multiples of the golden ratio spread evenly.
    points.sort_by_key(|(_, runs)| (runs[0].wrapping_mul(0x9e37_79b9_7f4a_7c15), runs[0]));
    points
}

/// The plan of each delivery of a point, or why there is none.
type Plans = BTreeMap<String, Result<Plan, String>>;

fn plans(sweep: &Sweep, point: u64, runs: &[u64]) -> Plans {
    let deliveries = runs.iter().map(|&run| sweep.grid.setup(run).delivery);
    let plan = |delivery: String| {
        let plan = inputs::with(sweep.given.clone(), || sweep.grid.plan(point, Some(&delivery)));
        (delivery, plan.map_err(|error| error.to_string()))
    };
    deliveries.collect::<BTreeSet<_>>().into_iter().map(plan).collect()
}

/// Carries out one run.
fn record(sweep: &Sweep, run: u64, plans: &Plans) -> Record {
    let setup = sweep.grid.setup(run);
    let plan = match plans.get(&setup.delivery) {
        Some(Ok(plan)) => plan,
        Some(Err(error)) => return failed(run, error.clone()),
        None => return failed(run, format!("{} has no plan", setup.delivery)),
    };
    let trials = plan.trials();
    let Some(trial) = trials.first() else { return failed(run, "no delivery".into()) };
    // A run that was begun is finished: half of one has other figures.
    let outcome = catch_unwind(AssertUnwindSafe(|| run::run_one(trial, setup.seed, false, &StopFlag::default())));
    let outcome = match outcome {
        Ok(Ok(run)) => run.outcome,
        Ok(Err(error)) => return failed(run, error.to_string()),
        Err(_) => return failed(run, "the simulation panicked".into()),
    };
    let unit =
        |unit| serde_json::to_value(unit).ok().and_then(|unit| Some(unit.as_str()?.to_owned())).unwrap_or_default();
    let quantities = outcome.section.measured().quantities();
    let value = |quantity: &crate::outcome::Quantity| {
        let value = (quantity.of)(&outcome).filter(|value| value.is_finite())?;
        Some((quantity.id.to_owned(), unit(quantity.unit), value))
    };
    let spans = std::iter::once(&outcome).chain(outcome.phases.iter().map(|phase| &phase.outcome)).map(Span::of);
    Record { run, error: None, values: quantities.iter().filter_map(value).collect(), spans: spans.collect() }
}

fn failed(run: u64, why: String) -> Record {
    Record { run, error: Some(why), values: Vec::new(), spans: Vec::new() }
}

//! `campanile reproduce`: the published rows, each from a run of the scenario that gives it.

use crate::input::InputError;
use crate::interrupt::StopFlag;
use crate::outcome::{Estimate, Outcome};
use crate::plan::{Plan, Trial};
use crate::progress::Progress;
use crate::published::{self, Usage};
use crate::report::table::FreeConstants;
use crate::report::{Class, Reference, Row};
use crate::run::{self, RunError};
use crate::scenario::Request;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// The outcomes of the scenarios that the rows need, by scenario and variant, in the order of the seeds.
pub type Outcomes = BTreeMap<(String, String), Vec<Outcome>>;

/// The plans of every scenario that `rows` need, by name.
///
/// # Errors
/// A scenario that the program carries is wrong.
pub fn plans(rows: &[published::Row]) -> Result<BTreeMap<String, Plan>, InputError> {
    let names: BTreeSet<&String> = rows.iter().flat_map(|row| &row.scenarios).collect();
    names.into_iter().map(|name| Ok((name.clone(), Request::of(name).plan()?))).collect()
}

/// Runs the plans that `rows` need, on all cores. After Ctrl-C it returns the runs that have ended.
///
/// # Errors
/// The first run that failed, in the order of scenarios, variants and seeds.
pub fn run_plans(
    plans: &BTreeMap<String, Plan>,
    rows: &[published::Row],
    stop: &StopFlag,
) -> Result<Outcomes, RunError> {
    let trials: BTreeMap<&String, Vec<Trial<'_>>> = plans.iter().map(|(name, plan)| (name, plan.trials())).collect();
    let mut needed: BTreeSet<(&String, usize)> = BTreeSet::new();
    for row in rows {
        for name in &row.scenarios {
            let index = |variant: &String| trials[name].iter().position(|trial| trial.name() == *variant);
            needed.extend(row.variants().filter_map(index).map(|index| (name, index)));
        }
    }
    let runs: Vec<_> = needed
        .into_iter()
        .flat_map(|(name, index)| plans[name].seeds.iter().map(move |&seed| (name, index, seed)))
        .collect();
    let progress = Progress::new(runs.len() as u64, "published rows");
    let results: Vec<_> = runs
        .into_par_iter()
        .filter(|_| !stop.is_set())
        .map(|(name, index, seed)| {
            let trial = &trials[name][index];
            let run = run::run_one(trial, seed, false, stop);
            progress.step();
            run.map(|run| ((name.clone(), trial.name()), run.outcome))
        })
        .collect();
    let mut outcomes = Outcomes::new();
    for result in results {
        let (key, outcome) = result?;
        outcomes.entry(key).or_default().push(outcome);
    }
    Ok(outcomes)
}

/// Every row beside the value from the outcomes. Rows whose runs are missing are left out.
pub fn compare(rows: &[published::Row], outcomes: &Outcomes) -> Vec<Row> {
    rows.iter()
        .filter_map(|row| {
            let estimates = row.scenarios.iter().filter_map(|name| estimate(row, name, outcomes));
            // Of several scenarios, the one that is furthest from the published value counts.
            let target = row.published.unwrap_or(0.0);
            let distance = |estimate: &Estimate| (estimate.mean - target).abs();
            let estimate = estimates.max_by(|a, b| distance(a).total_cmp(&distance(b)))?;
            Some(Row::new(reference(row), estimate))
        })
        .collect()
}

fn reference(row: &published::Row) -> Reference {
    Reference {
        id: row.id.clone(),
        platform: row.platform.clone(),
        scenario: row.scenario.clone(),
        delivery: row.variants().cloned().collect::<Vec<_>>().join(" against "),
        quantity: row.quantity.clone(),
        unit: row.unit.clone(),
        published: row.published,
        class: if row.usage == Usage::Fit { Class::Fitted } else { Class::Predicted },
    }
}

fn estimate(row: &published::Row, name: &str, outcomes: &Outcomes) -> Option<Estimate> {
    let of = |variant: &String| outcomes.get(&(name.to_owned(), variant.clone()));
    let quantity = row.base_quantity();
    let sample = |run: &Outcome| {
        let value = value(quantity, run)?;
        let Some(against) = &row.against else { return Some(value) };
        // Seed by seed: the same random numbers on both sides.
        let base = of(against)?.iter().find(|base| base.seed == run.seed)?;
        Some((value / self::value(quantity, base)? - 1.0) * 100.0)
    };
    let samples: Vec<f64> = of(&row.delivery)?.iter().filter_map(sample).collect();
    Estimate::of(&samples)
}

/// A row's quantity in the published unit: from the published tables, or else from our own table.
fn value(quantity: &str, outcome: &Outcome) -> Option<f64> {
    if let Some(published) = outcome.section.measured().published().iter().find(|known| known.name == quantity) {
        return (published.of)(outcome);
    }
    let ours = outcome.section.measured().quantities().into_iter().find(|known| known.id == quantity)?;
    (ours.of)(outcome)
}

/// How many constants each platform of `plans` has free, for how many rows.
///
/// # Errors
/// As [`published::rows`].
pub fn free_constants(plans: &BTreeMap<String, Plan>) -> Result<Vec<FreeConstants>, InputError> {
    let rows = published::rows()?;
    let platforms: BTreeMap<&str, usize> =
        plans.values().map(|plan| (plan.platform.name.as_str(), plan.platform.free_constants().len())).collect();
    let fitted = |name| rows.iter().filter(|row| row.usage == Usage::Fit && row.platform == name).count();
    let entry = |(name, count)| FreeConstants { platform: String::from(name), count, fitted: fitted(name) };
    Ok(platforms.into_iter().map(entry).collect())
}

//! `campanile reproduce`: the published rows, each from a run of the scenario that gives it.

use crate::input::InputError;
use crate::interrupt::StopFlag;
use crate::outcome::{Estimate, Outcome};
use crate::plan::{Delivery, Plan};
use crate::progress::Progress;
use crate::published::{self, Quantity, Usage};
use crate::report::table::FreeConstants;
use crate::report::{Class, Reference, Row};
use crate::run::{self, RunError};
use crate::scenario::Request;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Seconds of CPU time that the published tables count: 30 s and their ramp of 3 s.
const PUBLISHED_CPU_SECONDS: f64 = 33.0;

/// The outcomes of every scenario that some rows need, by scenario, delivery and seed.
pub type Outcomes = BTreeMap<(String, Delivery), Vec<Outcome>>;

/// The plans of every scenario that `rows` need, by name.
///
/// # Errors
/// A scenario that the program carries is wrong.
pub fn plans(rows: &[published::Row]) -> Result<BTreeMap<String, Plan>, InputError> {
    let names: BTreeSet<&String> = rows.iter().flat_map(|row| &row.scenarios).collect();
    names.into_iter().map(|name| Ok((name.clone(), Request::of(name).plan()?))).collect()
}

/// The runs that `rows` need of the plans, on all cores. After Ctrl-C, those that have ended.
///
/// # Errors
/// The first run that failed, in the order of scenarios, deliveries and seeds.
pub fn run_plans(
    plans: &BTreeMap<String, Plan>,
    rows: &[published::Row],
    stop: &StopFlag,
) -> Result<Outcomes, RunError> {
    let mut needed: BTreeSet<(&String, Delivery)> = BTreeSet::new();
    for row in rows {
        for name in &row.scenarios {
            needed.insert((name, row.delivery));
            if row.quantity == Quantity::IopsChange {
                needed.insert((name, Delivery::Remapped));
            }
        }
    }
    let runs: Vec<_> = needed
        .into_iter()
        .flat_map(|(name, delivery)| plans[name].seeds.iter().map(move |&seed| (name, delivery, seed)))
        .collect();
    let progress = Progress::new(runs.len() as u64, "published rows");
    let results: Vec<_> = runs
        .into_par_iter()
        .filter(|_| !stop.is_set())
        .map(|(name, delivery, seed)| {
            let run = run::run_one(&plans[name], delivery, seed, false, stop);
            progress.step();
            run.map(|run| ((name.clone(), delivery), run.outcome))
        })
        .collect();
    let mut outcomes = Outcomes::new();
    for result in results {
        let (key, outcome) = result?;
        outcomes.entry(key).or_default().push(outcome);
    }
    Ok(outcomes)
}

/// Every row beside what the outcomes give for it; rows whose runs are missing are left out.
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
        delivery: row.delivery.name().into(),
        quantity: row.quantity.name().into(),
        unit: row.unit.clone(),
        published: row.published,
        class: if row.usage == Usage::Fit { Class::Fitted } else { Class::Predicted },
    }
}

fn estimate(row: &published::Row, name: &str, outcomes: &Outcomes) -> Option<Estimate> {
    let of = |delivery| outcomes.get(&(name.to_owned(), delivery));
    let runs = of(row.delivery)?;
    if row.quantity == Quantity::IopsChange {
        // Seed by seed: the same random numbers on both sides.
        let changes: Vec<f64> = runs
            .iter()
            .filter_map(|run| {
                let base = of(Delivery::Remapped)?.iter().find(|base| base.seed == run.seed)?;
                Some((iops(run) / iops(base) - 1.0) * 100.0)
            })
            .collect();
        return Estimate::of(&changes);
    }
    let samples: Vec<f64> = runs.iter().filter_map(|run| value(row.quantity, run)).collect();
    Estimate::of(&samples)
}

fn per_second(count: u64, outcome: &Outcome) -> f64 {
    count as f64 * 1e9 / outcome.span_ns.max(1) as f64
}

fn iops(outcome: &Outcome) -> f64 {
    per_second(outcome.drives.iter().map(|drive| drive.ios).sum(), outcome)
}

/// CPU seconds in the published span.
fn cpu_seconds(outcome: &Outcome, ns: u64) -> f64 {
    ns as f64 / outcome.span_ns.max(1) as f64 * PUBLISHED_CPU_SECONDS
}

/// A row's quantity in the unit of the published tables.
fn value(quantity: Quantity, outcome: &Outcome) -> Option<f64> {
    let interrupts = &outcome.interrupts;
    Some(match quantity {
        Quantity::IopsPerDrive => iops(outcome) / outcome.drives.len().max(1) as f64,
        Quantity::Iops => iops(outcome),
        // A kernel counts the MSIs that it handles, and so did whoever published: two that met in a request bit are one.
        Quantity::MsiPerVector => per_second(interrupts.dispatched, outcome) / interrupts.vectors.max(1) as f64,
        Quantity::Msi => per_second(interrupts.dispatched, outcome),
        Quantity::Notifications => per_second(interrupts.notifications, outcome),
        Quantity::NotificationsPerMsi => interrupts.notifications as f64 * 100.0 / interrupts.dispatched.max(1) as f64,
        Quantity::Interrupts if interrupts.notifications > 0 => per_second(interrupts.notifications, outcome),
        Quantity::Interrupts => per_second(interrupts.dispatched, outcome),
        Quantity::UserTime => cpu_seconds(outcome, outcome.cpus.iter().map(|cpu| cpu.user_ns).sum()),
        Quantity::SystemTime => cpu_seconds(outcome, outcome.cpus.iter().map(|cpu| cpu.system_ns + cpu.irq_ns).sum()),
        Quantity::Slat => outcome.submission_latency.mean_ns,
        Quantity::Clat => outcome.completion_latency.mean_ns / 1000.0,
        Quantity::IopsChange => return None,
    })
}

/// How many constants each platform of `plans` has free.
pub fn free_constants(plans: &BTreeMap<String, Plan>) -> Vec<FreeConstants> {
    let by_name: BTreeMap<&str, usize> =
        plans.values().map(|plan| (plan.platform.name.as_str(), plan.platform.free_constants().len())).collect();
    by_name.into_iter().map(|(platform, count)| FreeConstants { platform: platform.into(), count }).collect()
}

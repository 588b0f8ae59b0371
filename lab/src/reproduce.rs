//! `campanile reproduce`: the published rows, each from a run of the scenario that gives it.

use crate::input::{InputError, Place, Problem};
use crate::interrupt::StopFlag;
use crate::outcome::{Estimate, Outcome};
use crate::plan::{Plan, Trial};
use crate::progress::Progress;
use crate::published::{self, Formula, Usage};
use crate::report::table::FreeConstants;
use crate::report::{Class, Reference, Row};
use crate::run::{self, RunError};
use crate::scenario::Request;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The outcomes of the scenarios that the rows need, by scenario and variant, in the order of the seeds.
pub type Outcomes = BTreeMap<(String, String), Vec<Outcome>>;

/// The plans of every scenario that `rows` need, by name.
///
/// # Errors
/// A scenario is wrong, or does not run the delivery of one of its rows.
pub fn plans(rows: &[published::Row]) -> Result<BTreeMap<String, Plan>, InputError> {
    let mut plans: BTreeMap<String, Plan> = BTreeMap::new();
    for row in rows {
        for name in &row.scenarios {
            if !plans.contains_key(name) {
                let plan = Request::of(name).plan().map_err(|error| of_row(error, row, name))?;
                plans.insert(name.clone(), plan);
            }
        }
    }
    for row in rows {
        for name in &row.scenarios {
            let valid = plans[name].work.names();
            if let Some(delivery) = row.variants().find(|delivery| !valid.contains(delivery)) {
                let why = format!("is no delivery of {name}");
                let key = format!("row {}: delivery", row.id);
                return Err(InputError::value(&row.place, key, delivery, why, valid.join(", ")));
            }
            let of = &plans[name].platform.name;
            if *of != row.platform {
                let key = format!("row {}: platform", row.id);
                let why = format!("is not the platform of {name}");
                return Err(InputError::value(&row.place, key, &row.platform, why, of));
            }
        }
    }
    Ok(plans)
}

/// An error about a scenario that does not exist is one of the row that names it.
fn of_row(error: InputError, row: &published::Row, name: &str) -> InputError {
    let key = format!("row {}: files", row.id);
    match &*error.problem {
        Problem::Io(why) if error.place.file == name => {
            InputError::value(&row.place, key, name, why, "a scenario, or s.toml beside this file")
        }
        _ if error.place == Place::option("input") => InputError { place: row.place.clone(), key, ..error },
        _ => error,
    }
}

/// A run that failed.
#[derive(Debug)]
pub struct FailedRun {
    /// Its scenario.
    pub scenario: String,
    /// Its variant.
    pub variant: String,
    /// Its seed.
    pub seed: u64,
    /// Why.
    pub error: RunError,
}

impl fmt::Display for FailedRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scenario, variant, seed, error } = self;
        write!(f, "{scenario}, {variant}, seed {seed}: {error}")
    }
}

impl std::error::Error for FailedRun {}

/// The runs of [`run_plans`].
#[derive(Debug, Default)]
pub struct Ran {
    /// Those that ended well.
    pub outcomes: Outcomes,
    /// Those that failed, in the order of scenarios, variants and seeds.
    pub failed: Vec<FailedRun>,
}

impl Ran {
    /// The outcomes, if no run failed.
    ///
    /// # Errors
    /// The first run that failed.
    pub fn complete(self) -> Result<Outcomes, FailedRun> {
        self.failed.into_iter().next().map_or(Ok(self.outcomes), Err)
    }
}

/// Runs the plans that `rows` need, on all cores, and shows how far it is. After Ctrl-C it returns the runs that have
/// ended.
pub fn run_plans(plans: &BTreeMap<String, Plan>, rows: &[published::Row], stop: &StopFlag) -> Ran {
    run_needed(plans, rows, stop, true)
}

/// As [`run_plans`], without a sign of progress: for runs that are part of a longer search.
pub(crate) fn run_quietly(plans: &BTreeMap<String, Plan>, rows: &[published::Row], stop: &StopFlag) -> Ran {
    run_needed(plans, rows, stop, false)
}

fn run_needed(plans: &BTreeMap<String, Plan>, rows: &[published::Row], stop: &StopFlag, shown: bool) -> Ran {
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
    let progress = shown.then(|| Progress::new(runs.len() as u64, "published rows"));
    let results: Vec<_> = runs
        .into_par_iter()
        .filter(|_| !stop.is_set())
        .map(|(name, index, seed)| {
            let trial = &trials[name][index];
            let run = run::run_one(trial, seed, false, stop);
            if let Some(progress) = &progress {
                progress.step();
            }
            (name, trial.name(), seed, run)
        })
        .collect();
    let mut ran = Ran::default();
    for (name, variant, seed, result) in results {
        match result {
            Ok(run) => ran.outcomes.entry((name.clone(), variant)).or_default().push(run.outcome),
            Err(error) => ran.failed.push(FailedRun { scenario: name.clone(), variant, seed, error }),
        }
    }
    ran
}

/// Every row beside the value from the outcomes. Rows whose runs are missing are left out, and derived rows whose
/// sources are.
pub fn compare(rows: &[published::Row], outcomes: &Outcomes) -> Vec<Row> {
    let mut samples: BTreeMap<&str, Samples> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.formula.is_none()) {
        samples.extend(worst(row, outcomes).map(|found| (row.id.as_str(), found)));
    }
    for row in rows {
        // A formula names derived rows only above its own.
        let found = row.formula.as_ref().and_then(|formula| derived(formula, &samples));
        samples.extend(found.map(|found| (row.id.as_str(), found)));
    }
    let compared = |row: &published::Row| {
        let values: Vec<f64> = samples.get(row.id.as_str())?.values().copied().collect();
        Some(Row::new(reference(row), Estimate::of(&values)?))
    };
    rows.iter().filter_map(compared).collect()
}

/// Derived rows that have no value though their sources have one, each with its formula.
pub fn without_value(rows: &[published::Row], compared: &[Row]) -> Vec<String> {
    let has = |id: &str| compared.iter().any(|found| found.id == id);
    let lost = |row: &published::Row| {
        let formula = row.formula.as_ref().filter(|formula| formula.rows().into_iter().all(has))?;
        Some(format!("{}: row {}: `{}` has no finite value: it divides by zero", row.place, row.id, formula.text()))
    };
    rows.iter().filter(|row| !has(&row.id)).filter_map(lost).collect()
}

/// What the runs of each row measure has the row's quantity.
///
/// # Errors
/// A row asks for a quantity that its runs do not have: it would be left out of every table.
pub fn check_quantities(rows: &[published::Row], outcomes: &Outcomes) -> Result<(), InputError> {
    for row in rows.iter().filter(|row| row.formula.is_none()) {
        for name in &row.scenarios {
            let runs = outcomes.get(&(name.clone(), row.delivery.clone()));
            let Some(outcome) = runs.and_then(|runs| runs.first()) else { continue };
            let measured = outcome.section.measured();
            let theirs = measured.published().iter().map(|known| known.name.to_owned());
            let known: BTreeSet<String> =
                theirs.chain(measured.quantities().into_iter().map(|known| known.id.to_string())).collect();
            let quantity = row.base_quantity();
            if !known.contains(quantity) {
                let key = format!("row {}: quantity", row.id);
                let valid = known.into_iter().collect::<Vec<_>>().join(", ");
                let why = format!("is no quantity of {name}");
                return Err(InputError::value(&row.place, key, quantity, why, valid));
            }
        }
    }
    Ok(())
}

/// A row's value of each seed.
type Samples = BTreeMap<u64, f64>;

/// Of a row's scenarios, the samples that are furthest from the published value.
fn worst(row: &published::Row, outcomes: &Outcomes) -> Option<Samples> {
    let target = row.published.unwrap_or(0.0);
    let distance = |samples: &Samples| (mean(samples) - target).abs();
    let all = row.scenarios.iter().map(|name| samples(row, name, outcomes)).filter(|samples| !samples.is_empty());
    all.max_by(|a, b| distance(a).total_cmp(&distance(b)))
}

/// The formula's value, seed by seed; of the means if its rows have no seeds in common.
fn derived(formula: &Formula, samples: &BTreeMap<&str, Samples>) -> Option<Samples> {
    let sources: Option<Vec<&Samples>> = formula.rows().into_iter().map(|id| samples.get(id)).collect();
    let sources = sources?;
    let fewest = sources.iter().min_by_key(|source| source.len())?;
    let is_shared = |seed: &&u64| sources.iter().all(|source| source.contains_key(seed));
    let shared: Vec<u64> = fewest.keys().filter(is_shared).copied().collect();
    let is_paired = sources.iter().all(|source| source.len() == shared.len());
    if !is_paired {
        let value = formula.value(&|id| samples.get(id).map(mean))?;
        return Some(Samples::from([(0, value)]));
    }
    let of = |seed: u64| Some((seed, formula.value(&|id| samples.get(id)?.get(&seed).copied())?));
    Some(shared.into_iter().filter_map(of).collect())
}

fn mean(samples: &Samples) -> f64 {
    samples.values().sum::<f64>() / samples.len() as f64
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
        class: match row.usage {
            Usage::Fit => Class::Fitted,
            Usage::Informed => Class::Informed,
            Usage::Report | Usage::Predict => Class::Predicted,
            Usage::Derive => Class::Derived,
        },
        from: row.formula.as_ref().map(|formula| formula.text().to_owned()),
    }
}

/// The row's value of each seed of one scenario.
fn samples(row: &published::Row, name: &str, outcomes: &Outcomes) -> Samples {
    let of = |variant: &String| outcomes.get(&(name.to_owned(), variant.clone()));
    let quantity = row.base_quantity();
    let sample = |run: &Outcome| {
        let value = value(quantity, run)?;
        let Some(against) = &row.against else { return Some((run.seed, value)) };
        // Seed by seed: the same random numbers on both sides.
        let base = of(against)?.iter().find(|base| base.seed == run.seed)?;
        Some((run.seed, (value / self::value(quantity, base)? - 1.0) * 100.0))
    };
    of(&row.delivery).into_iter().flatten().filter_map(sample).collect()
}

/// A row's quantity in the published unit: from the published tables, or else from our own table.
fn value(quantity: &str, outcome: &Outcome) -> Option<f64> {
    if let Some(published) = outcome.section.measured().published().iter().find(|known| known.name == quantity) {
        return (published.of)(outcome);
    }
    let ours = outcome.section.measured().quantities().into_iter().find(|known| known.id == quantity)?;
    (ours.of)(outcome)
}

/// How many constants each platform of `plans` has free, for how many of all published rows.
///
/// # Errors
/// As [`published::rows`].
pub fn free_constants(plans: &BTreeMap<String, Plan>) -> Result<Vec<FreeConstants>, InputError> {
    Ok(free_constants_for(&published::rows()?, plans))
}

/// The same for how many of `rows`.
pub fn free_constants_for(rows: &[published::Row], plans: &BTreeMap<String, Plan>) -> Vec<FreeConstants> {
    let platforms: BTreeMap<&str, usize> =
        plans.values().map(|plan| (plan.platform.name.as_str(), plan.platform.free_constants().len())).collect();
    let fitted = |name| rows.iter().filter(|row| row.usage == Usage::Fit && row.platform == name).count();
    let entry = |(name, count)| FreeConstants { platform: String::from(name), count, fitted: fitted(name) };
    platforms.into_iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::samples;

    fn row(id: &str, delivery: &str, usage: Usage, published: Option<f64>) -> published::Row {
        published::Row {
            id: id.into(),
            platform: "emr".into(),
            scenario: "two drives".into(),
            delivery: delivery.into(),
            against: None,
            quantity: "iops".into(),
            published,
            unit: "1/s".into(),
            usage,
            scenarios: if usage == Usage::Derive { Vec::new() } else { vec!["s".into()] },
            formula: None,
            source: "a test".into(),
            place: Place::line("rows.csv", 7),
        }
    }

    #[test]
    fn a_delivery_that_a_scenario_does_not_run_is_named() {
        let scenarios = vec!["emr-4-drives".to_owned()];
        let of = |delivery: &str| {
            let row = published::Row { scenarios: scenarios.clone(), ..row("X1", delivery, Usage::Fit, Some(1.0)) };
            plans(&[row]).map(|plans| plans.len()).map_err(|error| error.to_string())
        };
        assert_eq!(of("posted"), Ok(1));
        let error = "rows.csv:7: row X1: delivery: `psoted` is no delivery of emr-4-drives; valid: remapped, posted";
        assert_eq!(of("psoted"), Err(error.to_owned()));
    }

    #[test]
    fn a_scenario_that_does_not_exist_is_an_error_of_its_row() {
        let scenarios = vec!["emr-4-drives".into(), "emr-4-divers".into()];
        let error = plans(&[published::Row { scenarios, ..row("X1", "posted", Usage::Fit, Some(1.0)) }]).unwrap_err();
        assert!(error.to_string().starts_with("rows.csv:7: row X1: files: `emr-4-divers` is neither"), "{error}");
    }

    /// Defect: it got the figure of the scenario's platform.
    #[test]
    fn a_row_of_another_platform_than_its_scenario_is_refused() {
        let wrong = published::Row {
            platform: "spr".into(),
            scenarios: vec!["emr-4-drives".into()],
            ..row("X1", "posted", Usage::Report, Some(1.0))
        };
        let error = plans(&[wrong]).map(|plans| plans.len()).map_err(|error| error.to_string());
        assert_eq!(
            error,
            Err("rows.csv:7: row X1: platform: `spr` is not the platform of emr-4-drives; valid: emr".into())
        );
    }

    /// Defect: such a row was left out without a word.
    #[test]
    fn a_quantity_that_no_run_measures_is_refused() {
        let of = |quantity: &str| {
            let row = published::Row { quantity: quantity.into(), ..row("X1", "posted", Usage::Report, Some(1.0)) };
            check_quantities(&[row], &outcomes(&[("posted", 1, 1.0)])).map_err(|error| error.to_string())
        };
        assert_eq!(of("iops"), Ok(()));
        let error = of("p99").unwrap_err();
        assert!(error.starts_with("rows.csv:7: row X1: quantity: `p99` is no quantity of s; valid: "), "{error}");
    }

    fn derived(id: &str, formula: &str, ids: &[&str]) -> published::Row {
        let formula = Formula::parse(formula, ids).unwrap();
        published::Row { formula: Some(formula), ..row(id, "gain", Usage::Derive, None) }
    }

    fn outcomes(of: &[(&str, u64, f64)]) -> Outcomes {
        let mut outcomes = Outcomes::new();
        for &(delivery, seed, scale) in of {
            let list = outcomes.entry(("s".into(), delivery.into())).or_default();
            list.push(samples::outcome(delivery, seed, scale));
        }
        outcomes
    }

    #[test]
    fn a_formula_that_divides_by_nothing_is_told() {
        let rows = [
            row("A1", "remapped", Usage::Fit, Some(2e6)),
            derived("A2", "A1/(A1-A1)", &["A1"]),
            derived("A3", "A1*2", &["A1"]),
            derived("A4", "A2*2", &["A2"]),
        ];
        let compared = compare(&rows, &outcomes(&[("remapped", 1, 1.0)]));
        let told = without_value(&rows, &compared);
        assert!(told.len() == 1 && told[0].contains("row A2: `A1/(A1-A1)` has no finite value"), "{told:?}");
    }

    #[test]
    fn a_derived_row_is_computed_seed_by_seed() {
        let rows = [
            derived("A0", "(A2/A1-1)*100", &["A1", "A2"]),
            derived("A00", "A0*2", &["A0"]),
            row("A1", "remapped", Usage::Fit, Some(2e6)),
            row("A2", "posted", Usage::Informed, Some(3e6)),
        ];
        let compared = compare(
            &rows,
            &outcomes(&[("remapped", 1, 1.0), ("remapped", 2, 2.0), ("posted", 1, 1.5), ("posted", 2, 3.0)]),
        );
        let found: Vec<_> = compared.iter().map(|row| (row.id.as_str(), row.value, row.class, row.seeds)).collect();
        assert_eq!(
            found,
            [
                ("A0", 50.0, Class::Derived, 2),
                ("A00", 100.0, Class::Derived, 2),
                ("A1", 3e6, Class::Fitted, 2),
                ("A2", 4.5e6, Class::Informed, 2)
            ]
        );
        assert_eq!((compared[0].ci95, compared[0].from.as_deref()), (Some(0.0), Some("(A2/A1-1)*100")));
    }

    #[test]
    fn a_derived_row_without_shared_seeds_is_of_means_and_one_without_sources_is_left_out() {
        let rows = [
            row("A1", "remapped", Usage::Fit, Some(2e6)),
            row("A2", "posted", Usage::Predict, None),
            row("A3", "polled", Usage::Predict, None),
            derived("A4", "A2-A1", &["A1", "A2"]),
            derived("A5", "A3*2", &["A3"]),
        ];
        let compared = compare(&rows, &outcomes(&[("remapped", 1, 1.0), ("remapped", 2, 2.0), ("posted", 1, 2.5)]));
        let found: Vec<_> = compared.iter().map(|row| (row.id.as_str(), row.value, row.ci95)).collect();
        assert_eq!(found[2], ("A4", 2e6, None));
        assert_eq!(found.len(), 3, "{found:?}");
    }

    #[test]
    fn a_failed_run_names_itself_and_leaves_the_other_rows() {
        let error = RunError::Stuck { at_ns: 5, end: machine::RunEnd::Quiet };
        let failed = FailedRun { scenario: "s".into(), variant: "posted".into(), seed: 2, error };
        let ran = Ran { outcomes: outcomes(&[("remapped", 1, 1.0)]), failed: vec![failed] };
        let rows = [row("A1", "remapped", Usage::Fit, Some(2e6)), row("A2", "posted", Usage::Predict, None)];
        let compared = compare(&rows, &ran.outcomes);
        assert_eq!(compared.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), ["A1"]);
        let text = ran.complete().unwrap_err().to_string();
        assert_eq!(text, "s, posted, seed 2: the machine stands still at 5 ns: Quiet");
    }
}

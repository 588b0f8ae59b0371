//! Which of many constants the rows decide, and the fit of those: for data that somebody measured, where nobody knows
//! beforehand what they tell.
//!
//! A constant is decided if the rows' change with it cannot be had from the constants that are decided already. The
//! constant with the largest such change comes first. A fit can bring another limit into play, so the choice is made
//! again after each fit.
//!
//! The fit may begin at a guess. In the end each constant that is not decided takes its home value, and the others are
//! fitted again with it. A home value that the rows contradict is not taken: the constant stays where it was.

use super::choose::{choose_and_fit, residual};
use super::linear::dot;
use super::rows::{Anchored, DRIFTING, FreeConstant, Rows, Whole};
use super::{CalibrateError, Model};
use crate::interrupt::StopFlag;
use crate::plan::Plan;
use crate::platform::{Platform, Unit};
use crate::published::Row;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

/// A constant that the rows may decide.
#[derive(Clone, PartialEq, Debug)]
pub struct Candidate {
    /// Its key.
    pub key: String,
    /// The value that it takes unless the rows decide it, in the base of its unit.
    pub home: f64,
    /// Another constant that keeps its ratio to this one.
    pub follower: Option<String>,
}

/// A constant that the rows decide.
#[derive(Clone, PartialEq, Debug)]
pub struct Decided {
    /// Its key.
    pub key: String,
    /// Its unit.
    pub unit: Unit,
    /// In the base of its unit.
    pub value: f64,
    /// Its relative standard error, for the given noise of a row.
    pub uncertainty: f64,
    /// The rows that hold it, the strongest first: the change in per cent for 1 % more of the constant.
    pub rows: Vec<(String, f64)>,
}

/// What the rows decide.
#[derive(Clone, PartialEq, Debug)]
pub struct Decision {
    /// In the candidates' order.
    pub decided: Vec<Decided>,
    /// Keys of the candidates that the rows do not decide.
    pub undecided: Vec<String>,
    /// Those of them whose home value the rows contradict, each with the value that it keeps, in the base of its unit.
    pub kept: Vec<(String, f64)>,
    /// The rows' relative errors with the decided constants.
    pub errors: Vec<f64>,
    /// Ctrl-C ended it early.
    pub interrupted: bool,
    /// It ended early because it took too many runs.
    pub is_cut: bool,
}

/// Most places at which a fit looks at the rows. One of six measurements takes about a hundred.
const LOOKS_MAX: u32 = 500;

/// A short run is off by chance by up to a per cent; a move of this size shows the constant.
const SHORT_PROBE: f64 = 0.15;

/// An error beyond this counts by its size and no longer by its square.
const GENTLE: f64 = 0.1;

/// An error as a fit counts it (Huber): one row that nothing explains, such as the latency on a CPU that is full, must not
/// turn all others.
fn gentle(error: f64) -> f64 {
    let size = error.abs();
    if size <= GENTLE { error } else { (GENTLE * (2.0 * size - GENTLE)).sqrt().copysign(error) }
}

/// A model that stops after so many places, and looks at short runs.
struct Bounded<'a> {
    model: &'a dyn Model,
    left: AtomicU32,
}

impl Model for Bounded<'_> {
    fn errors(&self, steps: &[f64]) -> Result<Vec<f64>, CalibrateError> {
        let left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if left.is_err() {
            return Err(CalibrateError::Stopped);
        }
        Ok(self.model.errors(steps)?.into_iter().map(gentle).collect())
    }

    fn probe(&self) -> f64 {
        SHORT_PROBE
    }
}

/// Decides the constants of `platform` by rows whose values have a relative noise.
///
/// # Errors
/// A run fails with the platform's own constants; Ctrl-C before there is anything to show.
pub fn decide(
    platform: &Platform,
    candidates: &[Candidate],
    rows: &[Row],
    plans: &BTreeMap<String, Plan>,
    noise: f64,
    stop: &StopFlag,
) -> Result<Decision, CalibrateError> {
    let found =
        candidates.iter().filter_map(|candidate| Some((FreeConstant::candidate(platform, candidate)?, candidate.home)));
    let (constants, homes): (Vec<FreeConstant>, Vec<f64>) = found.unzip();
    let homes: Vec<f64> = constants.iter().zip(homes).map(|(constant, home)| constant.step_to(home)).collect();
    let of_plans = Rows { rows: rows.to_vec(), plans: plans.clone(), constants: &constants, stop };
    let whole = of_plans.outcomes(&vec![0.0; constants.len()])?;
    let model = Anchored::with(DRIFTING, of_plans, &whole)?;
    let bounded = Bounded { model: &model, left: AtomicU32::new(LOOKS_MAX) };
    let found = choose_and_fit(&bounded, &homes)?;
    let decided = found.chosen.iter().map(|&index| {
        let alone = residual(&found.slopes, &found.chosen, index);
        let mut held: Vec<(String, f64)> =
            rows.iter().zip(&found.slopes[index]).map(|(row, slope)| (row.id.clone(), *slope)).collect();
        held.retain(|(_, slope)| slope.abs() >= 0.1);
        held.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
        Decided {
            key: constants[index].key.clone(),
            unit: constants[index].spec.unit,
            value: constants[index].moved(found.at[index]),
            uncertainty: noise / dot(&alone, &alone).sqrt(),
            rows: held,
        }
    });
    let is_decided = |index: &usize| found.chosen.contains(index);
    let kept = found.kept.iter().filter(|index| !is_decided(index));
    Ok(Decision {
        decided: decided.collect(),
        undecided: (0..constants.len())
            .filter(|index| !is_decided(index))
            .map(|index| constants[index].key.clone())
            .collect(),
        kept: kept.map(|&index| (constants[index].key.clone(), constants[index].moved(found.at[index]))).collect(),
        errors: found.errors,
        interrupted: found.interrupted && stop.is_set(),
        is_cut: found.interrupted && !stop.is_set(),
    })
}

/// The relative errors of rows with the platforms of their plans.
///
/// # Errors
/// A run fails; Ctrl-C.
pub fn errors(rows: &[Row], plans: &BTreeMap<String, Plan>, stop: &StopFlag) -> Result<Vec<f64>, CalibrateError> {
    Whole(Rows { rows: rows.to_vec(), plans: plans.clone(), constants: &[], stop }).errors(&[])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The product of two constants, and a limit.
    struct Toy;

    impl Model for Toy {
        fn errors(&self, steps: &[f64]) -> Result<Vec<f64>, CalibrateError> {
            Ok(vec![(steps[0] + steps[1] - 0.4).exp() - 1.0, f64::max(steps[2], -0.3).exp() / 0.9 - 1.0])
        }
    }

    /// A row that contradicts ten others.
    struct Outlier;

    impl Model for Outlier {
        fn errors(&self, steps: &[f64]) -> Result<Vec<f64>, CalibrateError> {
            Ok([steps[0] - 0.2; 10].into_iter().chain([steps[0] + 0.9]).collect())
        }
    }

    #[test]
    fn a_row_that_nothing_explains_does_not_turn_all_others() {
        let bounded = Bounded { model: &Outlier, left: AtomicU32::new(LOOKS_MAX) };
        let found = choose_and_fit(&bounded, &[0.0]).unwrap();
        assert!((0.18..=0.2).contains(&found.at[0]), "{:?}", found.at);
        assert!((gentle(-0.05), gentle(0.1)) == (-0.05, 0.1) && (gentle(-0.6) + 0.3317).abs() < 1e-3);
    }

    #[test]
    fn a_fit_ends_with_the_best_that_it_has() {
        let of = |left: u32| choose_and_fit(&Bounded { model: &Toy, left: AtomicU32::new(left) }, &[0.0; 4]);
        assert!(of(4).is_err(), "not even the slopes");
        let found = of(12).unwrap();
        assert!(found.interrupted && found.errors[0].abs() < 0.33, "{:?}", found.errors);
        assert!(!of(LOOKS_MAX).unwrap().interrupted);
    }
}

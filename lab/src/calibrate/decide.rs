//! Which of many constants the rows decide, and the fit of those: for data that somebody measured, where nobody knows
//! beforehand what they tell.
//!
//! A constant is decided if the rows' change with it cannot be had from the constants that are decided already. The
//! constant with the largest such change comes first. A fit can bring another limit into play, so the choice is made
//! again after each fit.

use super::rows::{FreeConstant, Rows, Whole};
use super::{CalibrateError, Model, fit, linear::dot};
use crate::interrupt::StopFlag;
use crate::plan::Plan;
use crate::platform::{Platform, Unit};
use crate::published::Row;
use std::collections::BTreeMap;

/// Least change of all rows together, for a change of the constant's logarithm by one, at which it is decided: at a
/// noise of 3 % it is then known within 12 %.
const CHANGE_MIN: f64 = 0.25;
/// Most times that the choice is made.
const CHOICES_MAX: usize = 3;

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
    /// The rows' relative errors with the decided constants.
    pub errors: Vec<f64>,
    /// Ctrl-C ended it early.
    pub interrupted: bool,
}

/// Some of a model's constants; the others stand still.
struct Part<'a> {
    model: &'a dyn Model,
    at: &'a [f64],
    chosen: &'a [usize],
}

impl Model for Part<'_> {
    fn errors(&self, steps: &[f64]) -> Result<Vec<f64>, CalibrateError> {
        let mut all = self.at.to_vec();
        for (&index, step) in self.chosen.iter().zip(steps) {
            all[index] += step;
        }
        self.model.errors(&all)
    }
}

/// Decides the constants of `platform` with these keys by rows whose values have a relative noise.
///
/// # Errors
/// A run fails with the platform's own constants; Ctrl-C before there is anything to show.
pub fn decide(
    platform: &Platform,
    keys: &[String],
    rows: &[Row],
    plans: &BTreeMap<String, Plan>,
    noise: f64,
    stop: &StopFlag,
) -> Result<Decision, CalibrateError> {
    let constants: Vec<FreeConstant> = keys.iter().filter_map(|key| FreeConstant::of(platform, key)).collect();
    let model = Whole(Rows { rows: rows.to_vec(), plans: plans.clone(), constants: &constants, stop });
    let found = choose_and_fit(&model, constants.len())?;
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
    Ok(Decision {
        decided: decided.collect(),
        undecided: (0..constants.len())
            .filter(|index| !found.chosen.contains(index))
            .map(|index| constants[index].key.clone())
            .collect(),
        errors: found.errors,
        interrupted: found.interrupted,
    })
}

/// The relative errors of rows with the platforms of their plans.
///
/// # Errors
/// A run fails; Ctrl-C.
pub fn errors(rows: &[Row], plans: &BTreeMap<String, Plan>, stop: &StopFlag) -> Result<Vec<f64>, CalibrateError> {
    Whole(Rows { rows: rows.to_vec(), plans: plans.clone(), constants: &[], stop }).errors(&[])
}

struct Found {
    at: Vec<f64>,
    chosen: Vec<usize>,
    slopes: Vec<Vec<f64>>,
    errors: Vec<f64>,
    interrupted: bool,
}

fn choose_and_fit(model: &dyn Model, size: usize) -> Result<Found, CalibrateError> {
    let mut at = vec![0.0; size];
    let mut errors = model.errors(&at)?;
    let mut slopes = fit::slopes(model, &at, &errors)?;
    let mut chosen = choose(&slopes);
    let mut interrupted = false;
    for _ in 0..CHOICES_MAX {
        let part = Part { model, at: &at, chosen: &chosen };
        let fitted = fit::fit(&part, chosen.len(), fit::GOOD_ENOUGH)?;
        let mut next = at.clone();
        for (&index, step) in chosen.iter().zip(&fitted.steps) {
            next[index] += step;
        }
        (at, errors, interrupted) = (next, fitted.after, fitted.interrupted);
        if interrupted {
            break;
        }
        slopes = match fit::slopes(model, &at, &errors) {
            Ok(slopes) => slopes,
            Err(CalibrateError::Stopped) => {
                interrupted = true;
                break;
            }
            Err(error) => return Err(error),
        };
        let again = choose(&slopes);
        if again == chosen {
            break;
        }
        // A constant that the rows held while it moved, and no longer do, goes back to where it began.
        for &index in chosen.iter().filter(|index| !again.contains(index)) {
            at[index] = 0.0;
        }
        chosen = again;
    }
    Ok(Found { at, chosen, slopes, errors, interrupted })
}

/// The constants that the rows decide, ascending: by the change of the rows that no other chosen constant explains.
fn choose(slopes: &[Vec<f64>]) -> Vec<usize> {
    let mut chosen: Vec<usize> = Vec::new();
    loop {
        let change = |index: &usize| {
            let alone = residual(slopes, &chosen, *index);
            dot(&alone, &alone).sqrt()
        };
        let left = (0..slopes.len()).filter(|index| !chosen.contains(index));
        match left.max_by(|a, b| change(a).total_cmp(&change(b))) {
            Some(best) if change(&best) >= CHANGE_MIN => chosen.push(best),
            _ => break,
        }
    }
    chosen.sort_unstable();
    chosen
}

/// The part of a constant's slopes that no combination of the other constants' slopes gives (Gram–Schmidt).
fn residual(slopes: &[Vec<f64>], others: &[usize], index: usize) -> Vec<f64> {
    let mut basis: Vec<Vec<f64>> = Vec::new();
    for &other in others.iter().filter(|other| **other != index) {
        let vector = without(&slopes[other], &basis);
        let length = dot(&vector, &vector).sqrt();
        if length > 1e-9 {
            basis.push(vector.iter().map(|value| value / length).collect());
        }
    }
    without(&slopes[index], &basis)
}

/// A vector without its parts along an orthonormal basis.
fn without(vector: &[f64], basis: &[Vec<f64>]) -> Vec<f64> {
    let mut rest = vector.to_vec();
    for direction in basis {
        let along = dot(&rest, direction);
        rest.iter_mut().zip(direction).for_each(|(value, direction)| *value -= along * direction);
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two rows: the product of constants 0 and 1, and constant 2 as long as it is above a limit.
    struct Toy;

    impl Model for Toy {
        fn errors(&self, steps: &[f64]) -> Result<Vec<f64>, CalibrateError> {
            Ok(vec![(steps[0] + steps[1] - 0.4).exp() - 1.0, f64::max(steps[2], -0.3).exp() / 0.9 - 1.0])
        }
    }

    #[test]
    fn of_constants_that_act_alike_one_is_decided() {
        let found = choose_and_fit(&Toy, 4).unwrap();
        assert_eq!(found.chosen.len(), 2, "{:?}", found.chosen);
        assert!(found.chosen.contains(&2) && !found.chosen.contains(&3), "{:?}", found.chosen);
        assert!((found.at[0] + found.at[1] - 0.4).abs() < 1e-3 && (found.at[2] - 0.9f64.ln()).abs() < 1e-2);
        assert!(found.errors.iter().all(|error| error.abs() < 4e-3), "{:?}", found.errors);
    }

    #[test]
    fn a_residual_is_what_others_do_not_explain() {
        let slopes = vec![vec![1.0, 0.0], vec![3.0, 4.0]];
        assert_eq!(residual(&slopes, &[0], 1), [0.0, 4.0]);
        assert_eq!(choose(&slopes), [0, 1]);
        assert_eq!(choose(&[vec![0.1, 0.1], vec![0.0, 0.0]]), Vec::<usize>::new());
    }
}

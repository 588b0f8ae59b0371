//! Gauss–Newton on the relative errors of the rows.
//!
//! For each derivative the scenarios run with one constant moved a little. All runs use the same seeds, so that a
//! derivative shows the constant's effect and not the random draw's. A step is damped (Levenberg–Marquardt) and taken
//! only when it makes the sum of squares smaller.

use super::linear::{dot, eliminate};
use super::{CalibrateError, Model};

/// The result of a fit.
pub(super) struct Fit {
    /// How far each constant's logarithm moved.
    pub steps: Vec<f64>,
    /// The rows' errors before.
    pub before: Vec<f64>,
    /// The rows' errors after.
    pub after: Vec<f64>,
    /// Rounds that made the fit better.
    pub rounds: u32,
    /// Ctrl-C ended it.
    pub interrupted: bool,
}

/// Most rounds. The fit ends earlier when a round changes little.
const ROUNDS_MAX: u32 = 8;
/// The relative move of a constant that measures its effect.
pub(super) const PROBE: f64 = 0.06;
/// The sum of squared relative errors at which every row is as accurate as its repetitions (0.3 % each).
pub(super) const GOOD_ENOUGH: f64 = 1e-5;
/// A round that gains less than this share of the sum of squares is the last.
const GAIN_MIN: f64 = 0.02;
/// The greatest change of a constant's logarithm in one round.
const STEP_MAX: f64 = 0.5;

/// Fits `size` constants, until the sum of squared errors is below `good_enough`. After Ctrl-C, the best fit so far.
///
/// # Errors
/// The rows have no errors at the start: a run failed, or Ctrl-C came before the first end.
pub(super) fn fit(model: &dyn Model, size: usize, good_enough: f64) -> Result<Fit, CalibrateError> {
    let before = model.errors(&vec![0.0; size])?;
    let mut fit = Fit { steps: vec![0.0; size], after: before.clone(), before, rounds: 0, interrupted: false };
    let mut damping = 1e-3;
    while size > 0 && fit.rounds < ROUNDS_MAX && squares(&fit.after) >= good_enough {
        match round(model, &fit, &mut damping) {
            Ok(Some((steps, after))) => {
                let gain = squares(&fit.after) - squares(&after);
                (fit.steps, fit.after) = (steps, after);
                fit.rounds += 1;
                if gain < squares(&fit.after) * GAIN_MIN {
                    break;
                }
            }
            Ok(None) => break,
            Err(CalibrateError::Stopped) => {
                fit.interrupted = true;
                break;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(fit)
}

/// The constants' logarithms, and the rows' errors there.
type Found = (Vec<f64>, Vec<f64>);

/// A better place and its errors, if there is one. Constants with which a run fails are no better.
fn round(model: &dyn Model, fit: &Fit, damping: &mut f64) -> Result<Option<Found>, CalibrateError> {
    let slopes = slopes(model, &fit.steps, &fit.after)?;
    while *damping < 10.0 {
        let step = solve(&slopes, &fit.after, *damping);
        let steps: Vec<f64> =
            fit.steps.iter().zip(&step).map(|(at, step)| at + step.clamp(-STEP_MAX, STEP_MAX)).collect();
        let found = super::tried(model.errors(&steps))?;
        if let Some(found) = found.filter(|found| squares(found) < squares(&fit.after)) {
            *damping = f64::max(*damping / 10.0, 1e-6);
            return Ok(Some((steps, found)));
        }
        *damping *= 10.0;
    }
    Ok(None)
}

/// For each constant, how each row's error changes with the constant's logarithm. A constant that makes a run fail in
/// both directions has no effect that could be measured.
pub(super) fn slopes(model: &dyn Model, at: &[f64], errors: &[f64]) -> Result<Vec<Vec<f64>>, CalibrateError> {
    let slope = |index: usize| {
        for probe in [model.probe(), -model.probe()] {
            let mut steps = at.to_vec();
            steps[index] += probe;
            if let Some(probed) = super::tried(model.errors(&steps))? {
                return Ok(probed.iter().zip(errors).map(|(after, before)| (after - before) / probe).collect());
            }
        }
        Ok(vec![0.0; errors.len()])
    };
    (0..at.len()).map(slope).collect()
}

pub(super) fn squares(errors: &[f64]) -> f64 {
    errors.iter().map(|error| error * error).sum()
}

/// Solves (JᵀJ + λ·diag) step = −Jᵀe by Gaussian elimination with pivots; J's columns are `slopes`.
fn solve(slopes: &[Vec<f64>], errors: &[f64], damping: f64) -> Vec<f64> {
    let size = slopes.len();
    let line = |row: usize| {
        let mut line: Vec<f64> = (0..size).map(|column| dot(&slopes[row], &slopes[column])).collect();
        // A constant that affects no row gets a diagonal of its own and keeps its value.
        line[row] += damping * line[row] + 1e-9;
        line.push(-dot(&slopes[row], errors));
        line
    };
    eliminate((0..size).map(line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_problem_is_solved_in_one_step() {
        // e0 = 0.1 + 2a, e1 = −0.3 + b: a = −0.05, b = 0.3.
        let step = solve(&[vec![2.0, 0.0], vec![0.0, 1.0]], &[0.1, -0.3], 0.0);
        assert!((step[0] + 0.05).abs() < 1e-6 && (step[1] - 0.3).abs() < 1e-6, "{step:?}");
    }

    #[test]
    fn a_constant_that_no_row_sees_stays() {
        let step = solve(&[vec![1.0], vec![0.0]], &[0.2], 0.0);
        assert!((step[0] + 0.2).abs() < 1e-6 && step[1] == 0.0, "{step:?}");
    }
}

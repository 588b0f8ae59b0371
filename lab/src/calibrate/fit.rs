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

/// Moves of a constant's logarithm by which a search looks further than a fit's steps go.
const FAR: [f64; 6] = [-0.2, 0.2, -0.5, 0.5, -1.0, 1.0];
/// Most times that a search goes on from another place.
const SEARCHES_MAX: u32 = 2;

/// Fits `size` constants, until the sum of squared errors is below `good_enough`. After Ctrl-C, the best fit so far.
///
/// # Errors
/// The rows have no errors at the start: a run failed, or Ctrl-C came before the first end.
pub(super) fn fit(model: &dyn Model, size: usize, good_enough: f64) -> Result<Fit, CalibrateError> {
    let before = model.errors(&vec![0.0; size])?;
    let mut fit = Fit { steps: vec![0.0; size], after: before.clone(), before, rounds: 0, interrupted: false };
    fit.improve(model, good_enough)?;
    Ok(fit)
}

/// As [`fit`]. As long as `is_off` says that rows stay off, it goes on: a row need not rise and fall with a constant all along, so
/// that a step by the slope at one place may lead away from the rows. It takes the slopes on the other side, and then looks
/// further along each constant.
///
/// # Errors
/// As [`fit`].
pub(super) fn search(
    model: &dyn Model,
    size: usize,
    good_enough: f64,
    is_off: &dyn Fn(&[f64]) -> bool,
) -> Result<Fit, CalibrateError> {
    let mut found = fit(model, size, good_enough)?;
    for _ in 0..SEARCHES_MAX {
        let goes_on = |found: &Fit| size > 0 && !found.interrupted && is_off(&found.after);
        let before = squares(&found.after);
        if goes_on(&found) {
            found.improve(&Turned(model), good_enough)?;
        }
        if goes_on(&found) {
            found.look_around(model)?;
            found.improve(model, good_enough)?;
        }
        if !goes_on(&found) || before - squares(&found.after) < before * GAIN_MIN {
            break;
        }
    }
    Ok(found)
}

/// A model whose constants are probed to the other side.
struct Turned<'a>(&'a dyn Model);

impl Model for Turned<'_> {
    fn errors(&self, steps: &[f64]) -> Result<Vec<f64>, CalibrateError> {
        self.0.errors(steps)
    }

    fn probe(&self) -> f64 {
        -self.0.probe()
    }
}

impl Fit {
    /// Rounds from where it is.
    fn improve(&mut self, model: &dyn Model, good_enough: f64) -> Result<(), CalibrateError> {
        let mut damping = 1e-3;
        let most = self.rounds + ROUNDS_MAX;
        while !self.steps.is_empty() && self.rounds < most && squares(&self.after) >= good_enough {
            match round(model, self, &mut damping) {
                Ok(Some((steps, after))) => {
                    let gain = squares(&self.after) - squares(&after);
                    (self.steps, self.after) = (steps, after);
                    self.rounds += 1;
                    if gain < squares(&self.after) * GAIN_MIN {
                        break;
                    }
                }
                Ok(None) => break,
                Err(error) => return self.ended(error),
            }
        }
        Ok(())
    }

    /// Moves one constant to the best of the far places, if that is clearly better.
    fn look_around(&mut self, model: &dyn Model) -> Result<(), CalibrateError> {
        let places = (0..self.steps.len()).flat_map(|index| FAR.map(|step| (index, step)));
        let mut best: Option<Found> = None;
        for (index, step) in places {
            let mut steps = self.steps.clone();
            steps[index] += step;
            let found = match super::tried(model.errors(&steps)) {
                Ok(found) => found,
                Err(error) => return self.ended(error),
            };
            let least = best.as_ref().map_or(squares(&self.after) * (1.0 - GAIN_MIN), |(_, best)| squares(best));
            if let Some(found) = found.filter(|found| squares(found) < least) {
                best = Some((steps, found));
            }
        }
        if let Some((steps, after)) = best {
            (self.steps, self.after) = (steps, after);
            self.rounds += 1;
        }
        Ok(())
    }

    /// After Ctrl-C, what was found stays.
    fn ended(&mut self, error: CalibrateError) -> Result<(), CalibrateError> {
        match error {
            CalibrateError::Stopped => {
                self.interrupted = true;
                Ok(())
            }
            error => Err(error),
        }
    }
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

    /// A row that falls beside the start, where I/Os no longer go in step, and rises on both sides of it.
    struct Dip;

    impl Model for Dip {
        fn errors(&self, steps: &[f64]) -> Result<Vec<f64>, CalibrateError> {
            let in_step = if steps[0] <= 0.0 { 0.1 } else { f64::max(0.1 - steps[0] * 2.5, 0.0) };
            Ok(vec![(steps[0] + in_step - 0.25).exp() - 1.0])
        }
    }

    /// A row that does not move until its constant is far away.
    struct Step;

    impl Model for Step {
        fn errors(&self, steps: &[f64]) -> Result<Vec<f64>, CalibrateError> {
            Ok(vec![if steps[0] < 0.4 { 0.5 } else { 0.3 * (steps[0] - 0.6) }])
        }
    }

    #[test]
    fn a_search_leaves_a_place_from_which_no_step_is_better() {
        let is_off = |errors: &[f64]| errors.iter().any(|error| error.abs() > 0.02);
        let models: [&dyn Model; 2] = [&Dip, &Step];
        for (model, wanted) in models.into_iter().zip([0.25, 0.6]) {
            assert_eq!(fit(model, 1, GOOD_ENOUGH).unwrap().rounds, 0);
            let found = search(model, 1, GOOD_ENOUGH, &is_off).unwrap();
            assert!((found.steps[0] - wanted).abs() < 0.02 && found.rounds > 0, "{:?}", found.steps);
        }
        // Rows that are near enough are left as they are.
        assert_eq!(search(&Dip, 1, GOOD_ENOUGH, &|_| false).unwrap().rounds, 0);
    }

    #[test]
    fn a_constant_that_no_row_sees_stays() {
        let step = solve(&[vec![1.0], vec![0.0]], &[0.2], 0.0);
        assert!((step[0] + 0.2).abs() < 1e-6 && step[1] == 0.0, "{step:?}");
    }
}

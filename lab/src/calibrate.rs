//! `campanile calibrate`: refits a platform's free constants from its `fit` rows and nothing else.
//!
//! The method is Gauss–Newton on the relative errors of the rows. For each derivative the scenarios run with one
//! constant moved a little. All runs use the same seeds, so that a derivative shows the constant's effect and not the
//! random draw's. A step is damped (Levenberg–Marquardt) and taken only when it makes the sum of squares smaller.

use crate::input::InputError;
use crate::interrupt::StopFlag;
use crate::plan::Plan;
use crate::platform::Platform;
use crate::published;
use crate::reproduce::{self, Outcomes};
use crate::run::RunError;
use std::collections::BTreeMap;

/// A constant before and after.
#[derive(Clone, PartialEq, Debug)]
pub struct Moved {
    /// Its key: `fabric.dispatch`.
    pub key: String,
    /// Before, with its unit.
    pub before: String,
    /// After, with its unit.
    pub after: String,
    /// Change in per cent.
    pub percent: f64,
}

/// A row before and after.
#[derive(Clone, PartialEq, Debug)]
pub struct Fitted {
    /// Its published id.
    pub id: String,
    /// Its published value.
    pub published: f64,
    /// Its error before, in per cent.
    pub before: f64,
    /// Its error after, in per cent.
    pub after: f64,
}

/// The result of a calibration.
#[derive(Clone, PartialEq, Debug)]
pub struct Calibration {
    /// The free constants.
    pub constants: Vec<Moved>,
    /// The rows that the constants were fitted to.
    pub rows: Vec<Fitted>,
    /// Rounds that made the fit better.
    pub rounds: u32,
}

/// Most rounds. The fit ends earlier when a round changes little.
const ROUNDS_MAX: u32 = 8;
/// The relative move of a constant that measures its effect.
const PROBE: f64 = 0.06;
/// The sum of squared relative errors at which every row is as accurate as its repetitions (0.3 % each).
const GOOD_ENOUGH: f64 = 1e-5;

/// Fits `platform` to its `fit` rows.
///
/// # Errors
/// A run failed.
pub fn calibrate(platform: &Platform, stop: &StopFlag) -> Result<Calibration, CalibrateError> {
    let rows: Vec<_> = published::rows()?
        .into_iter()
        .filter(|row| row.platform == platform.name && row.usage == published::Usage::Fit)
        .collect();
    let fit = Fit { plans: reproduce::plans(&rows)?, rows, stop };
    let keys: Vec<String> = platform.free_constants().into_iter().map(|(key, ..)| key).collect();
    let start = values(platform, &keys);
    let mut best = platform.clone();
    let before = fit.errors(&best)?;
    let mut errors = before.clone();
    let mut damping = 1e-3;
    let mut rounds = 0;
    for _ in 0..ROUNDS_MAX {
        if stop.is_set() || squares(&errors) < GOOD_ENOUGH {
            break;
        }
        let slopes = fit.slopes(&best, &keys, &errors)?;
        let mut better = None;
        while better.is_none() && damping < 10.0 {
            let step = solve(&slopes, &errors, damping);
            let candidate = moved(&best, &keys, &step);
            let found = fit.errors(&candidate)?;
            if squares(&found) < squares(&errors) {
                better = Some((candidate, found));
                damping = f64::max(damping / 10.0, 1e-6);
            } else {
                damping *= 10.0;
            }
        }
        let Some((candidate, found)) = better else { break };
        let gain = squares(&errors) - squares(&found);
        (best, errors) = (candidate, found);
        rounds += 1;
        if gain < squares(&errors) * 0.02 {
            break;
        }
    }
    let constants = keys.iter().zip(&start).map(|(key, &old)| change(&mut best, key, old)).collect();
    let rows = fit
        .rows
        .iter()
        .zip(before.iter().zip(&errors))
        .map(|(row, (before, after))| Fitted {
            id: row.id.clone(),
            published: row.published.unwrap_or(f64::NAN),
            before: before * 100.0,
            after: after * 100.0,
        })
        .collect();
    Ok(Calibration { constants, rows, rounds })
}

fn change(platform: &mut Platform, key: &str, old: f64) -> Moved {
    let (spec, constant) = platform.get_mut(key).expect("a key of this platform");
    Moved {
        key: key.into(),
        before: spec.unit.format(old),
        after: spec.unit.format(constant.value),
        percent: (constant.value / old - 1.0) * 100.0,
    }
}

/// Why a calibration gave nothing.
#[derive(Debug)]
pub enum CalibrateError {
    /// The project's own files are wrong.
    Input(InputError),
    /// A run failed.
    Run(RunError),
}

impl From<InputError> for CalibrateError {
    fn from(error: InputError) -> Self {
        Self::Input(error)
    }
}

impl From<RunError> for CalibrateError {
    fn from(error: RunError) -> Self {
        Self::Run(error)
    }
}

struct Fit<'a> {
    plans: BTreeMap<String, Plan>,
    rows: Vec<published::Row>,
    stop: &'a StopFlag,
}

impl Fit<'_> {
    /// Relative errors of the rows with these constants, in the rows' order.
    fn errors(&self, platform: &Platform) -> Result<Vec<f64>, RunError> {
        let plans: BTreeMap<String, Plan> =
            self.plans.iter().map(|(name, plan)| (name.clone(), with_platform(plan, platform))).collect();
        let outcomes: Outcomes = reproduce::run_plans(&plans, &self.rows, self.stop)?;
        let compared = reproduce::compare(&self.rows, &outcomes);
        let relative = |row: &published::Row| {
            let value = compared.iter().find(|found| found.id == row.id).map_or(f64::NAN, |found| found.value);
            value / row.published.unwrap_or(f64::NAN) - 1.0
        };
        Ok(self.rows.iter().map(relative).collect())
    }

    /// For each constant, how each row's relative error changes with the constant's logarithm.
    fn slopes(&self, platform: &Platform, keys: &[String], errors: &[f64]) -> Result<Vec<Vec<f64>>, RunError> {
        let mut slopes = Vec::new();
        for index in 0..keys.len() {
            let step: Vec<f64> = (0..keys.len()).map(|other| if other == index { PROBE } else { 0.0 }).collect();
            let probed = self.errors(&moved(platform, keys, &step))?;
            slopes.push(probed.iter().zip(errors).map(|(after, before)| (after - before) / PROBE).collect());
        }
        Ok(slopes)
    }
}

/// The plan with other constants. Constants that a scenario sets itself stay set.
fn with_platform(plan: &Plan, platform: &Platform) -> Plan {
    let mut plan = plan.clone();
    let free: Vec<String> = platform.free_constants().into_iter().map(|(key, ..)| key).collect();
    for (key, value) in free.iter().zip(values(platform, &free)) {
        if let Some((_, constant)) = plan.platform.get_mut(key)
            && constant.fit
        {
            constant.value = value;
        }
    }
    plan
}

fn values(platform: &Platform, keys: &[String]) -> Vec<f64> {
    let mut platform = platform.clone();
    keys.iter().map(|key| platform.get_mut(key).expect("a key of this platform").1.value).collect()
}

/// The platform with each constant's logarithm moved by its step, within the constant's bounds.
fn moved(platform: &Platform, keys: &[String], step: &[f64]) -> Platform {
    let mut platform = platform.clone();
    for (key, step) in keys.iter().zip(step) {
        let (spec, constant) = platform.get_mut(key).expect("a key of this platform");
        constant.value = (constant.value * step.clamp(-0.5, 0.5).exp()).clamp(spec.min, spec.max);
    }
    platform
}

fn squares(errors: &[f64]) -> f64 {
    errors.iter().map(|error| error * error).sum()
}

/// Solves (JᵀJ + λ·diag) step = −Jᵀe by Gaussian elimination with pivots; J's columns are `slopes`.
fn solve(slopes: &[Vec<f64>], errors: &[f64], damping: f64) -> Vec<f64> {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
    let size = slopes.len();
    let mut rows: Vec<Vec<f64>> = (0..size)
        .map(|row| {
            let mut line: Vec<f64> = (0..size).map(|column| dot(&slopes[row], &slopes[column])).collect();
            // A constant that affects no row gets a diagonal of its own and keeps its value.
            line[row] += damping * line[row] + 1e-9;
            line.push(-dot(&slopes[row], errors));
            line
        })
        .collect();
    for pivot in 0..size {
        let best = (pivot..size).max_by(|&a, &b| rows[a][pivot].abs().total_cmp(&rows[b][pivot].abs()));
        rows.swap(pivot, best.unwrap_or(pivot));
        let line = rows[pivot].clone();
        for (index, row) in rows.iter_mut().enumerate() {
            let factor = if index == pivot { 0.0 } else { row[pivot] / line[pivot] };
            row.iter_mut().zip(&line).for_each(|(value, of_line)| *value -= factor * of_line);
        }
    }
    (0..size).map(|row| rows[row][size] / rows[row][row]).collect()
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

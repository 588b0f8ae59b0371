//! `campanile calibrate`: refits a platform's free constants from its `fit` rows and nothing else, and shows how far
//! those rows hold each constant.
//!
//! | file | content |
//! |---|---|
//! | `rows.rs` | rows as a function of the constants, by whole and by short runs |
//! | `fit.rs` | the fit: Gauss–Newton |
//! | `choose.rs` | the choice of constants and their fit, and other explanations |
//! | `decide.rs` | which of many constants the rows of a measured server decide |
//! | `region.rs` | the region in which all fitted rows stay within 2 % |
//! | `linear.rs` | a region with linear limits: its furthest points, points drawn inside it |
//! | `ranges.rs` | how far a server's measurements leave its constants open |
//! | `explain.rs` | servers that could have printed a server's measurements |
//! | `ways.rs` | the ways of such servers to the measurements |
//! | `predict.rs` | predictions over that region |

mod choose;
mod decide;
mod explain;
mod fit;
mod linear;
mod predict;
mod ranges;
mod region;
mod rows;
#[cfg(test)]
mod tests;
mod ways;

pub use decide::{Candidate, Decided, Decision, decide, errors};
pub use predict::{Carried, holding_rows, intervals};
pub use ranges::{Open, POINTS_KEPT, Range, ranges};
pub use region::{POINTS_MIN, TOLERANCE};

use crate::input::{InputError, Place};
use crate::interrupt::StopFlag;
use crate::plan::Plan;
use crate::platform::Platform;
use crate::published::{self, Usage};
use crate::reproduce::{self, FailedRun};
use region::{Held, Region};
use rows::{Anchored, Rows, Whole};
pub(crate) use rows::{Family, FreeConstant, TOGETHER_IOS_SHORT, short_ns};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// The rows' errors as a function of the constants.
trait Model: Sync {
    /// The rows' relative errors with each constant's logarithm moved by its step.
    ///
    /// # Errors
    /// A run fails, a row has no figure, Ctrl-C.
    fn errors(&self, steps: &[f64]) -> Result<Vec<f64>, CalibrateError>;

    /// As [`Model::errors`], by runs that are not shortened.
    ///
    /// # Errors
    /// As [`Model::errors`].
    fn whole(&self, steps: &[f64]) -> Result<Vec<f64>, CalibrateError> {
        self.errors(steps)
    }

    /// The relative move of a constant that measures its effect: the shorter the runs, the greater.
    fn probe(&self) -> f64 {
        fit::PROBE
    }
}

/// None for constants with which a run fails; the error of Ctrl-C remains one.
fn tried<T>(result: Result<T, CalibrateError>) -> Result<Option<T>, CalibrateError> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(CalibrateError::Stopped) => Err(CalibrateError::Stopped),
        Err(_) => Ok(None),
    }
}

/// A free constant: its fit, and how the rows hold it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Pinned {
    /// Its key: `fabric.dispatch`.
    pub key: String,
    /// Before the fit, with its unit.
    pub before: String,
    /// After the fit, with its unit.
    pub after: String,
    /// Change in per cent.
    pub percent: f64,
    /// The interval in which all fitted rows stay within the tolerance. None if one is outside it.
    pub held: Option<Interplay>,
}

/// A drive's smallest media time, which is never above its mean.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Follower {
    /// Its key: `drive.gen5.media_floor`.
    pub key: String,
    /// Before the fit, with its unit.
    pub before: String,
    /// After the fit, with its unit.
    pub after: String,
    /// Change in per cent.
    pub percent: f64,
}

/// How the fitted rows hold a constant.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Interplay {
    /// Lowest and highest value if it moves alone, with their unit.
    pub alone: [String; 2],
    /// The row that leaves the tolerance below and above; or why there is none.
    pub by: [String; 2],
    /// Lowest and highest value over the points of the region in which all constants move.
    pub joint: [String; 2],
    /// The change of each row, in per cent or points, for a constant that grows by 1 %; the greatest first.
    pub rows: Vec<(String, f64)>,
}

/// A row before and after.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Fitted {
    /// Its published id.
    pub id: String,
    /// Its published value.
    pub published: f64,
    /// Its relative error before, in per cent.
    pub before: f64,
    /// Its relative error after, in per cent.
    pub after: f64,
}

/// The result of a calibration.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Calibration {
    /// The free constants.
    pub constants: Vec<Pinned>,
    /// Constants that are not free, and that the fit moves with one that is: they have to be put into the file with it.
    pub followers: Vec<Follower>,
    /// The rows that the constants were fitted to.
    pub rows: Vec<Fitted>,
    /// Rounds that made the fit better.
    pub rounds: u32,
    /// Points that were found in the region, and candidates that were run for them.
    pub points: usize,
    /// Candidates that were run for the points.
    pub tried: usize,
    /// Ctrl-C ended it: the fit is the best so far, and intervals may be missing.
    pub interrupted: bool,
}

/// Fits `platform` to its `fit` rows among `rows`, and finds the region in which they stay within [`TOLERANCE`].
///
/// # Errors
/// The platform has more free constants than rows, or a run failed with its own constants.
pub fn calibrate(platform: &Platform, rows: &[published::Row], stop: &StopFlag) -> Result<Calibration, CalibrateError> {
    let is_own = |row: &&published::Row| row.platform == platform.name && row.usage == Usage::Fit;
    let fitted: Vec<published::Row> = rows.iter().filter(is_own).cloned().collect();
    refit(platform, &fitted, stop)
}

/// The value of the only free constant of `platform` with which `plans` give `row`, to a relative `error`. None if no
/// value within its bounds does.
///
/// # Errors
/// As [`calibrate`].
pub(crate) fn fit_alone(
    platform: &Platform,
    row: &published::Row,
    plans: &BTreeMap<String, Plan>,
    error: f64,
    stop: &StopFlag,
) -> Result<Option<f64>, CalibrateError> {
    let constants = FreeConstant::own(platform);
    let [constant] = &constants[..] else { return Ok(None) };
    let rows = Rows { plans: plans.clone(), rows: vec![row.clone()], constants: &constants, stop };
    let good_enough = error * error;
    let fit = fit::fit(&Whole(rows), 1, good_enough)?;
    if fit.interrupted {
        return Err(CalibrateError::Stopped);
    }
    Ok((fit::squares(&fit.after) < good_enough).then(|| constant.moved(fit.steps[0])))
}

/// As [`calibrate`], with these rows.
fn refit(platform: &Platform, fitted: &[published::Row], stop: &StopFlag) -> Result<Calibration, CalibrateError> {
    let constants = FreeConstant::own(platform);
    if constants.len() > fitted.len() {
        let (count, rows) = (constants.len(), fitted.len());
        let why = format!("has more free constants ({count}) than rows to fit ({rows})");
        let place = Place::option("calibrate");
        let valid = format!("at most {rows} constant{} with fit = true", if rows == 1 { "" } else { "s" });
        return Err(InputError::value(&place, "", &platform.name, why, valid).into());
    }
    let plans = reproduce::plans(fitted)?;
    let rows = |constants| Rows { plans: plans.clone(), rows: fitted.to_vec(), constants, stop };
    let is_off = |errors: &[f64]| {
        // Of a share, in points.
        let scale = |row: &published::Row| if row.unit == "%" { row.published.unwrap_or(0.0) / 100.0 } else { 1.0 };
        fitted.iter().zip(errors).any(|(row, error)| error.is_nan() || (error * scale(row)).abs() > TOLERANCE)
    };
    let fit = fit::search(&Whole(rows(&constants)), constants.len(), fit::GOOD_ENOUGH, &is_off)?;
    let mut found = Calibration {
        followers: Vec::new(),
        constants: constants.iter().zip(&fit.steps).map(|(constant, step)| pinned(constant, *step)).collect(),
        rows: Vec::new(),
        rounds: fit.rounds,
        points: 0,
        tried: 0,
        interrupted: fit.interrupted,
    };
    follow(&mut found, platform, &constants, &fit.steps);
    let errors = fitted.iter().zip(fit.before.iter().zip(&fit.after));
    let row = |(row, (before, after)): (&published::Row, (&f64, &f64))| Fitted {
        id: row.id.clone(),
        published: row.published.unwrap_or(f64::NAN),
        before: before * 100.0,
        after: after * 100.0,
    };
    found.rows = errors.map(row).collect();
    if !fit.interrupted && !constants.is_empty() {
        match region_of(rows(&constants), &fit.steps, &platform.name) {
            Ok(Some((centre, region))) => hold(&mut found, &centre, &region),
            Ok(None) => {}
            Err(CalibrateError::Stopped) => found.interrupted = true,
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// The region round the fit, and the constants at its centre.
fn region_of(rows: Rows<'_>, steps: &[f64], name: &str) -> Result<Option<(Vec<FreeConstant>, Region)>, CalibrateError> {
    let centre: Vec<FreeConstant> = rows.constants.iter().zip(steps).map(|(free, step)| free.shifted(*step)).collect();
    let whole = rows.outcomes(steps)?;
    let rows = Rows { rows: rows.rows, plans: rows.plans, constants: &centre, stop: rows.stop };
    let bounds: Vec<[f64; 2]> = centre.iter().map(FreeConstant::bounds).collect();
    let found = region::find(&Anchored::new(rows, &whole)?, &bounds, name)?;
    Ok(found.map(|region| (centre.clone(), region)))
}

fn pinned(constant: &FreeConstant, step: f64) -> Pinned {
    let (before, after) = (constant.value, constant.moved(step));
    Pinned {
        key: constant.key.clone(),
        before: constant.spec.unit.format(before),
        after: constant.spec.unit.format(after),
        percent: (after / before - 1.0) * 100.0,
        held: None,
    }
}

/// Notes where the fit keeps a drive's smallest media time at its mean: the file has to say so too.
fn follow(found: &mut Calibration, platform: &Platform, constants: &[FreeConstant], steps: &[f64]) {
    let mut moved = platform.clone();
    FreeConstant::move_all(&mut moved, constants.iter().zip(steps.iter().copied()));
    for ((name, before), (_, after)) in platform.drives.iter().zip(&moved.drives) {
        let key = format!("drive.{name}.media_floor");
        let (was, now) = (before.media_floor.value, after.media_floor.value);
        let text = |ns| crate::platform::Unit::Time.format(ns);
        let percent = (now / was - 1.0) * 100.0;
        match found.constants.iter_mut().find(|constant| constant.key == key) {
            // It is free, and its own step leads above the mean.
            Some(own) => (own.after, own.percent) = (text(now), percent),
            None if now != was => {
                found.followers.push(Follower { key, before: text(was), after: text(now), percent });
            }
            None => {}
        }
    }
}

/// Notes how the rows hold each constant.
fn hold(found: &mut Calibration, centre: &[FreeConstant], region: &Region) {
    (found.points, found.tried) = (region.points.len(), region.tried + 1);
    for (at, constant) in centre.iter().enumerate() {
        let text = |step: f64| constant.spec.unit.format(rounded(constant.moved(step)));
        let by = |held: Held| match held {
            Held::Row(row) => found.rows[row].id.clone(),
            Held::Failure => "a run fails".into(),
            Held::Nothing => "no row".into(),
        };
        let slopes = region.slopes(at).into_iter().zip(&found.rows);
        let mut rows: Vec<(String, f64)> = slopes.map(|(slope, row)| (row.id.clone(), slope)).collect();
        rows.retain(|(_, slope)| slope.abs() >= SEEN);
        rows.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
        let ends = &region.alone[at];
        let alone = [text(ends[0].step), text(ends[1].step)];
        let held = Interplay {
            // With one constant there is nothing to move together: points drawn inside would only say less.
            joint: if centre.len() == 1 { alone.clone() } else { region.joint(at).map(text) },
            alone,
            by: [by(ends[0].held), by(ends[1].held)],
            rows,
        };
        found.constants[at].held = Some(held);
    }
}

/// The least change of a row for 1 % of a constant that counts as seen, in per cent.
const SEEN: f64 = 0.03;

/// To four digits: intervals are no more exact.
pub(crate) fn rounded(value: f64) -> f64 {
    let scale = 10f64.powf(3.0 - value.abs().max(f64::MIN_POSITIVE).log10().floor());
    (value * scale).round() / scale
}

/// Why a calibration gave nothing.
#[derive(Debug)]
pub enum CalibrateError {
    /// The project's own files are wrong, or the platform cannot be calibrated.
    Input(InputError),
    /// A run failed.
    Run(FailedRun),
    /// A row has no figure from its runs.
    NoFigure(String),
    /// Ctrl-C.
    Stopped,
}

impl fmt::Display for CalibrateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(error) => write!(f, "{error}"),
            Self::Run(error) => write!(f, "{error}"),
            Self::NoFigure(id) => write!(
                f,
                "row {id}: its runs gave no figure; valid: a quantity that its scenario's jobs give within their span"
            ),
            Self::Stopped => f.write_str("interrupted"),
        }
    }
}

impl std::error::Error for CalibrateError {}

impl From<InputError> for CalibrateError {
    fn from(error: InputError) -> Self {
        Self::Input(error)
    }
}

impl From<FailedRun> for CalibrateError {
    fn from(error: FailedRun) -> Self {
        Self::Run(error)
    }
}

//! `campanile transfer`: what a constant that one platform's row fitted gives on other platforms.
//!
//! A platform with one free constant and one fitted row shows nothing by its fit: any model could give the row. If the
//! constant is a property of hardware that platforms share, its value also has to give the other platforms' rows. This
//! command fits each platform that can be fitted, as `campanile calibrate` does, and runs the rows of all others with that
//! constant.

use crate::calibrate::{self, CalibrateError};
use crate::input::InputError;
use crate::interrupt::StopFlag;
use crate::plan::Plan;
use crate::platform::Platform;
use crate::published::{self, Row, Usage};
use crate::reproduce::{self, FailedRun};
use crate::scenario::Request;
use std::collections::BTreeMap;

/// A platform's only free constant, fitted to its only row.
#[derive(Clone, PartialEq, Debug)]
pub struct Fit {
    /// The platform.
    pub platform: String,
    /// The row.
    pub row: String,
    /// The constant's key: `gic.distributor`.
    pub key: String,
    /// Its value that gives the row, with its unit.
    pub value: String,
    /// The rows of every platform with it.
    pub given: Vec<Given>,
}

/// A row with a constant that may come from another platform.
#[derive(Clone, PartialEq, Debug)]
pub struct Given {
    /// The row.
    pub row: String,
    /// Its platform.
    pub platform: String,
    /// The published value.
    pub published: f64,
    /// Its unit.
    pub unit: String,
    /// The row's value with the constant as it is.
    pub same: f64,
    /// The row's value with the constant times the ratio of the two platforms' `cpu.scale`: as many of the core's cycles.
    pub scaled: f64,
}

/// Why there is no table.
#[derive(Debug)]
pub enum TransferError {
    /// A wrong input.
    Input(InputError),
    /// A run failed.
    Run(FailedRun),
    /// The row has no figure.
    NoFigure(String),
    /// No platform has exactly one free constant and one fitted row: of each, how many.
    Unfittable(Vec<(String, usize, usize)>),
    /// No value of the constant within its bounds gives the row: platform, key, row.
    NoValue(String, String, String),
    /// Ctrl-C.
    Stopped,
}

impl std::fmt::Display for TransferError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Input(error) => error.fmt(f),
            Self::Run(error) => error.fmt(f),
            Self::NoFigure(row) => write!(f, "row {row}: its runs gave no figure"),
            Self::Unfittable(found) => {
                write!(f, "no platform has exactly one free constant and one fitted row:")?;
                found.iter().try_for_each(|(name, free, fitted)| write!(f, " {name} has {free} and {fitted};"))?;
                write!(f, " emag and altra have")
            }
            Self::NoValue(platform, key, row) => write!(f, "{platform}: no value of {key} gives {row}"),
            Self::Stopped => write!(f, "stopped"),
        }
    }
}

impl std::error::Error for TransferError {}

impl From<InputError> for TransferError {
    fn from(error: InputError) -> Self {
        Self::Input(error)
    }
}

impl From<FailedRun> for TransferError {
    fn from(error: FailedRun) -> Self {
        Self::Run(error)
    }
}

impl From<CalibrateError> for TransferError {
    fn from(error: CalibrateError) -> Self {
        match error {
            CalibrateError::Input(error) => Self::Input(error),
            CalibrateError::Run(error) => Self::Run(error),
            CalibrateError::NoFigure(row) => Self::NoFigure(row),
            CalibrateError::Stopped => Self::Stopped,
        }
    }
}

/// The relative distance to the published value at which a fit ends.
const GOOD_ENOUGH: f64 = 1e-4;

/// Fits every platform of `platforms` that has one free constant and one fitted row, with these settings, and runs the
/// rows of all of them with each constant.
///
/// # Errors
/// [`TransferError`].
pub fn transfer(platforms: &[Platform], sets: &[String], stop: &StopFlag) -> Result<Vec<Fit>, TransferError> {
    let rows = published::rows()?;
    let fitted_rows = |platform: &Platform| {
        let own = rows.iter().filter(|row| row.platform == platform.name && row.usage == Usage::Fit);
        own.cloned().collect::<Vec<_>>()
    };
    let mut fits = Vec::new();
    for platform in platforms {
        let (free, own) = (platform.free_constants(), fitted_rows(platform));
        let ([(key, spec, _)], [row]) = (&free[..], &own[..]) else { continue };
        let run = Runs { key, sets, stop };
        let value = calibrate::fit_alone(platform, row, &run.plans(row)?, GOOD_ENOUGH, stop)?
            .ok_or_else(|| TransferError::NoValue(platform.name.clone(), key.clone(), row.id.clone()))?;
        let alike = |other: &&Row| {
            let is_asked = platforms.iter().any(|platform| platform.name == other.platform);
            is_asked && other.quantity == row.quantity && other.delivery == row.delivery && other.published.is_some()
        };
        let given = rows.iter().filter(alike).map(|other| {
            let to = platforms.iter().find(|to| to.name == other.platform).expect("it was asked for");
            run.given(other, value, to.cpu.scale.value / platform.cpu.scale.value)
        });
        fits.push(Fit {
            platform: platform.name.clone(),
            row: row.id.clone(),
            key: key.clone(),
            value: spec.unit.format(to_four_digits(value)),
            given: given.collect::<Result<_, _>>()?,
        });
    }
    if fits.is_empty() {
        let counts =
            |platform: &Platform| (platform.name.clone(), platform.free_constants().len(), fitted_rows(platform).len());
        return Err(TransferError::Unfittable(platforms.iter().map(counts).collect()));
    }
    Ok(fits)
}

/// For print: a fit ends at a distance of [`GOOD_ENOUGH`], so more digits say nothing.
fn to_four_digits(value: f64) -> f64 {
    if value == 0.0 {
        return 0.0;
    }
    let unit = 10f64.powi(value.abs().max(f64::MIN_POSITIVE).log10().floor() as i32 - 3);
    (value / unit).round() * unit
}

/// How rows are run with a value of one constant.
struct Runs<'a> {
    key: &'a str,
    sets: &'a [String],
    stop: &'a StopFlag,
}

impl Runs<'_> {
    /// The plans that give the row, with these settings.
    fn plans(&self, row: &Row) -> Result<BTreeMap<String, Plan>, InputError> {
        let plan = |name: &String| {
            let plan = Request { sets: self.sets.to_vec(), ..Request::of(name) }.plan()?;
            Ok((name.clone(), plan))
        };
        row.scenarios.iter().map(plan).collect()
    }

    /// The row's value with this value of the constant.
    fn value(&self, row: &Row, constant: f64) -> Result<f64, TransferError> {
        let mut plans = self.plans(row)?;
        for plan in plans.values_mut() {
            if let Some((_, own)) = plan.platform.get_mut(self.key) {
                own.value = constant;
            }
        }
        let rows = std::slice::from_ref(row);
        let outcomes = reproduce::run_quietly(&plans, rows, self.stop).complete()?;
        reproduce::compare(rows, &outcomes).first().map(|found| found.value).ok_or(TransferError::Stopped)
    }

    fn given(&self, row: &Row, constant: f64, scale: f64) -> Result<Given, TransferError> {
        Ok(Given {
            row: row.id.clone(),
            platform: row.platform.clone(),
            published: row.published.expect("asked for above"),
            unit: row.unit.clone(),
            same: self.value(row, constant)?,
            scaled: self.value(row, constant * scale)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::to_four_digits;

    #[test]
    fn four_digits_are_enough() {
        assert_eq!(
            [288.341246, 0.0123456, 1234.0, 98765.0].map(to_four_digits).map(|value| format!("{value:.5}")),
            ["288.30000", "0.01235", "1234.00000", "98770.00000"]
        );
        assert_eq!(to_four_digits(0.0), 0.0);
    }
}

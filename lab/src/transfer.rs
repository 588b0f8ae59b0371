//! `campanile transfer`: what a constant that one platform's row fitted gives on other platforms.
//!
//! A platform with one free constant and one fitted row shows nothing by its fit: any model could give the row. If the
//! constant is a property of hardware that platforms share, its value also has to give the other platforms' rows. This
//! command fits each platform that can be fitted, by secants, and runs the rows of all others with that constant.

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

/// Most secants; a row that is nearly linear in its constant takes two or three.
const STEPS_MAX: u32 = 12;
/// The relative distance to the published value at which a fit ends.
const GOOD_ENOUGH: f64 = 1e-4;
/// The relative move of the constant that begins the secants.
const PROBE: f64 = 0.1;

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
        let ([(key, spec, constant)], [row]) = (&free[..], &own[..]) else { continue };
        let run = Runs { key, sets, stop };
        let value = run
            .fit(row, constant.value, (spec.min, spec.max))?
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
    /// The row's value with this value of the constant.
    fn value(&self, row: &Row, constant: f64) -> Result<f64, TransferError> {
        let plan = |name: &String| -> Result<(String, Plan), InputError> {
            let mut plan = Request { sets: self.sets.to_vec(), ..Request::of(name) }.plan()?;
            if let Some((_, own)) = plan.platform.get_mut(self.key) {
                own.value = constant;
            }
            Ok((name.clone(), plan))
        };
        let plans = row.scenarios.iter().map(plan).collect::<Result<BTreeMap<_, _>, _>>()?;
        let rows = std::slice::from_ref(row);
        let outcomes = reproduce::run_quietly(&plans, rows, self.stop).complete()?;
        reproduce::compare(rows, &outcomes).first().map(|found| found.value).ok_or(TransferError::Stopped)
    }

    /// The constant's value that gives the row, by secants from `start`. None if there is none within the bounds.
    fn fit(&self, row: &Row, start: f64, (min, max): (f64, f64)) -> Result<Option<f64>, TransferError> {
        let Some(published) = row.published else { return Ok(None) };
        let error = |constant: f64| Ok::<_, TransferError>(self.value(row, constant)? - published);
        let mut before = (start, error(start)?);
        let mut now = before;
        for step in 0..STEPS_MAX {
            if now.1.abs() <= GOOD_ENOUGH * published.abs() {
                return Ok(Some(now.0));
            }
            let slope = (now.1 - before.1) / (now.0 - before.0);
            let next = if step == 0 { start * (1.0 + PROBE) } else { now.0 - now.1 / slope };
            if !next.is_finite() {
                return Ok(None);
            }
            let next = next.clamp(min, max);
            (before, now) = (now, (next, error(next)?));
        }
        Ok(None)
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

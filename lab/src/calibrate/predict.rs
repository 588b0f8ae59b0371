//! The uncertainty of predictions: their values over the region in which the fitted rows stay within the tolerance.

use super::region::{self, Region};
use super::rows::{Anchored, Family, Rows};
use super::{CalibrateError, tried};
use crate::input::{InputError, Place};
use crate::interrupt::StopFlag;
use crate::platform::Platform;
use crate::progress::Progress;
use crate::published::{self, Usage};
use crate::report::Interval;
use crate::report::figure::counted;
use crate::reproduce::{self, Outcomes};
use crate::setting::Setting;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// The intervals of the rows that have one, and a line a platform on how they came about.
#[derive(Debug, Default)]
pub struct Carried {
    /// By the row's id.
    pub intervals: BTreeMap<String, Interval>,
    /// One line a platform.
    pub notes: Vec<String>,
    /// Ctrl-C ended it: the platforms that were done have intervals.
    pub interrupted: bool,
}

/// True if a row carries the uncertainty of the constants: predictions, and what is computed from them.
fn is_predicted(row: &published::Row) -> bool {
    matches!(row.usage, Usage::Report | Usage::Predict | Usage::Derive)
}

/// The fitted rows that hold the constants of the predictions among `rows`. Their runs are needed for intervals.
///
/// # Errors
/// A platform or the rows cannot be read.
pub fn holding_rows(rows: &[published::Row]) -> Result<Vec<published::Row>, InputError> {
    let mut ids = BTreeSet::new();
    for name in platforms(rows) {
        ids.extend(Family::of(&load(&name)?)?.fitted_rows()?.into_iter().map(|row| row.id));
    }
    Ok(published::rows()?.into_iter().filter(|row| ids.contains(&row.id)).collect())
}

/// The interval of each prediction among `rows`, over points of its platform's region. `outcomes` are those of the
/// rows, their sources and [`holding_rows`].
/// A platform whose runs fail has none, and a note says why.
pub fn intervals(rows: &[published::Row], outcomes: &Outcomes, stop: &StopFlag) -> Carried {
    let mut carried = Carried::default();
    for name in platforms(rows) {
        match of_platform(&name, rows, outcomes, stop) {
            Ok((intervals, note)) => {
                carried.intervals.extend(intervals);
                carried.notes.push(note);
            }
            Err(CalibrateError::Stopped) => {
                carried.interrupted = true;
                break;
            }
            Err(error) => carried.notes.push(format!("{name}: {error}, so no interval.")),
        }
    }
    carried
}

/// The platforms that have predictions among `rows`, in the rows' order.
fn platforms(rows: &[published::Row]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for row in rows.iter().filter(|row| is_predicted(row)) {
        if !names.contains(&row.platform) {
            names.push(row.platform.clone());
        }
    }
    names
}

fn load(name: &str) -> Result<Platform, InputError> {
    Platform::load(&Setting::new(Place::option("reproduce"), "", name))
}

type Intervals = BTreeMap<String, Interval>;

fn of_platform(
    name: &str,
    rows: &[published::Row],
    outcomes: &Outcomes,
    stop: &StopFlag,
) -> Result<(Intervals, String), CalibrateError> {
    let family = Family::of(&load(name)?)?;
    let fitted = family.fitted_rows()?;
    if family.constants.is_empty() {
        return Ok((Intervals::new(), format!("{name}: no free constants, so no interval.")));
    }
    let group = |rows: Vec<published::Row>| {
        Ok::<_, InputError>(Rows { plans: reproduce::plans(&rows)?, rows, constants: &family.constants, stop })
    };
    let bounds: Vec<[f64; 2]> = family.constants.iter().map(|constant| constant.bounds()).collect();
    let count = (fitted.len(), family.constants.len());
    let model = Anchored::new(group(fitted)?, outcomes)?;
    let Some(region) = region::find(&model, &bounds, name)? else {
        return Ok((Intervals::new(), format!("{name}: a fitted row is off by more than 2 %, so no interval.")));
    };
    let predicted: Vec<published::Row> =
        rows.iter().filter(|row| is_predicted(row) && row.platform == name).cloned().collect();
    let ids: BTreeSet<String> = predicted.iter().map(|row| row.id.clone()).collect();
    let predicted = published::with_sources(&predicted)?;
    let model = Anchored::new(group(predicted.clone())?, outcomes)?;
    let values = over(&model, &region, name)?;
    let interval = |at: usize| {
        let of_row = values.iter().map(|values| values[at]);
        let low = of_row.clone().fold(f64::INFINITY, f64::min);
        Interval { low, high: of_row.fold(f64::NEG_INFINITY, f64::max), points: values.len() }
    };
    let all = predicted.iter().enumerate().map(|(at, row)| (row.id.clone(), interval(at)));
    let note = format!(
        "{name}: {} of the region in which {} {} within 2 %, of {} tried; {}{}.",
        counted(values.len(), "point"),
        counted(count.0, "fitted row"),
        if count.0 == 1 { "stays" } else { "stay" },
        region.tried + 1,
        counted(count.1, "constant"),
        if family.platforms.len() > 1 { format!(", of {}", family.platforms.join(" and ")) } else { String::new() }
    );
    Ok((all.filter(|(id, _)| ids.contains(id)).collect(), note))
}

/// The predicted rows' values at each point of the region. A point at which a run fails is left out.
fn over(model: &Anchored<'_>, region: &Region, name: &str) -> Result<Vec<Vec<f64>>, CalibrateError> {
    let progress = Progress::new(region.points.len() as u64, &format!("{name}: predictions"));
    let values: Result<Vec<Option<Vec<f64>>>, CalibrateError> = region
        .points
        .par_iter()
        .map(|steps| {
            let values = tried(model.values(steps));
            progress.step();
            values
        })
        .collect();
    Ok(values?.into_iter().flatten().collect())
}

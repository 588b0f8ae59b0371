//! `campanile calibrate`.

use super::{ended, stop_flag};
use crate::calibrate::{self, CalibrateError, Calibration};
use crate::cli::{self, CalibrateArgs, Failure};
use crate::input::Place;
use crate::platform::{EMBEDDED, Platform};
use crate::published::{self, Usage};
use crate::setting::Setting;
use std::fmt::Write as _;

pub(super) fn calibrate(args: &CalibrateArgs) -> Result<(), Failure> {
    let named = Setting::new(Place::option("calibrate"), "", &args.platform);
    let platform = Platform::load(&named)?;
    let rows = published::rows()?;
    let is_fitted = |row: &published::Row, name: &str| row.platform == name && row.usage == Usage::Fit;
    if !rows.iter().any(|row| is_fitted(row, &platform.name)) {
        let fitted = EMBEDDED.iter().map(|(name, ..)| *name).filter(|name| rows.iter().any(|row| is_fitted(row, name)));
        let valid = fitted.collect::<Vec<_>>().join(", ");
        return Err(Failure::Input(named.wrong("has no rows to calibrate with", valid)));
    }
    let stop = stop_flag()?;
    let found = calibrate::calibrate(&platform, &stop).map_err(|error| match error {
        CalibrateError::Input(error) => Failure::Input(error),
        CalibrateError::Run(error) => Failure::Run(error.into()),
    })?;
    cli::print(&text(&platform, &found))?;
    ended(&stop)
}

/// The constants that moved, and the effect on the rows.
fn text(platform: &Platform, found: &Calibration) -> String {
    let mut text = format!(
        "{}: {} free constants, {} rows to fit; {} rounds made the fit better\n\n",
        platform.name,
        found.constants.len(),
        found.rows.len(),
        found.rounds
    );
    writeln!(text, "{:28} {:>14} {:>14} {:>9}", "constant", "before", "after", "change").expect("a String takes all");
    for constant in &found.constants {
        let (key, before, after) = (&constant.key, &constant.before, &constant.after);
        writeln!(text, "{key:28} {before:>14} {after:>14} {:>+8.2} %", constant.percent).expect("a String takes all");
    }
    writeln!(text, "\n{:28} {:>14} {:>14} {:>9}", "row", "published", "error before", "after")
        .expect("a String takes all");
    for row in &found.rows {
        let (id, published) = (&row.id, row.published);
        writeln!(text, "{id:28} {published:>14} {:>+12.2} % {:>+7.2} %", row.before, row.after)
            .expect("a String takes all");
    }
    text + "\nNothing is written: put the values into the platform file, with the reason, and run `reproduce`.\n"
}

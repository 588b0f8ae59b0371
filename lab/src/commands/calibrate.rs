//! `campanile calibrate`.

use super::{ended, output, stop_flag, takes_standard_output, write_table};
use crate::calibrate::{self, CalibrateError, Calibration, Fitted, Follower, Pinned, TOLERANCE};
use crate::cli::{self, CalibrateArgs, Failure};
use crate::input::{InputError, Place};
use crate::inputs::{self, Given};
use crate::manifest::Manifest;
use crate::platform::Platform;
use crate::published::{self, Usage};
use crate::reproduce;
use crate::setting::Setting;
use std::collections::BTreeSet;

pub(super) fn calibrate(args: &CalibrateArgs, arguments: &[String]) -> Result<(), Failure> {
    let named = Setting::new(Place::option("calibrate"), "", &args.platform);
    let json = output("--json", args.json.as_deref())?;
    let (inputs, read) = inputs::noted(Given::default(), || {
        let platform = Platform::load(&named)?;
        let rows = match &args.rows {
            Some(path) => published::read(&path.to_string_lossy())?,
            None => published::rows()?,
        };
        Ok::<_, InputError>((platform, rows))
    });
    let ((platform, rows), mut read) = (inputs?, read);
    let is_fitted = |row: &published::Row, name: &str| row.platform == name && row.usage == Usage::Fit;
    if !rows.iter().any(|row| is_fitted(row, &platform.name)) {
        let fitted: BTreeSet<&str> =
            rows.iter().filter(|row| row.usage == Usage::Fit).map(|row| row.platform.as_str()).collect();
        if args.rows.is_none() && named.text.ends_with(".toml") {
            let valid = format!("--rows with a file of rows whose platform is {} and whose use is fit", platform.name);
            let why = "has no rows to calibrate with: the carried ones are of other platforms";
            return Err(named.wrong(why, valid).into());
        }
        return Err(Failure::Input(without_rows(&named, &platform.name, rows.len(), fitted)));
    }
    let fitted: Vec<published::Row> = rows.iter().filter(|row| is_fitted(row, &platform.name)).cloned().collect();
    let (plans, of_plans) = inputs::noted(Given::default(), || reproduce::plans(&fitted));
    let plans = plans?;
    read.add(of_plans);
    let stop = stop_flag()?;
    let found = calibrate::calibrate(&platform, &rows, &stop).map_err(|error| match error {
        CalibrateError::Input(error) => Failure::Input(error),
        CalibrateError::Stopped => Failure::Interrupted,
        CalibrateError::NoFigure(ref id) => {
            let place = fitted.iter().find(|row| row.id == *id).map(|row| format!("{}: ", row.place));
            Failure::Run(format!("{}{error}", place.unwrap_or_default()).into())
        }
        error => Failure::Run(error.into()),
    })?;
    if !takes_standard_output(json.as_ref()) {
        cli::print_wide(&text(&platform.name, &found))?;
    }
    let ids: Vec<&str> = fitted.iter().map(|row| row.id.as_str()).collect();
    let manifest = Manifest::new(arguments, &read).with("platform", platform.name.as_str()).with("rows", ids);
    write_table(json, manifest.with_plans(&plans), &found)?;
    ended(&stop)
}

/// The error of a platform of which no row is fitted; `fitted` are the platforms that have some.
fn without_rows(named: &Setting, platform: &str, count: usize, fitted: BTreeSet<&str>) -> InputError {
    let valid = fitted.into_iter().collect::<Vec<_>>().join(", ");
    match valid.is_empty() {
        true => {
            let why = format!("has no rows to calibrate with: of {count} rows, none has the use `fit`");
            named.wrong(why, format!("rows whose platform is {platform} and whose use is fit"))
        }
        false => named.wrong(format!("has no rows to calibrate with: none has the platform {platform}"), valid),
    }
}

/// The constants, the rows, and how these hold those.
fn text(platform: &str, found: &Calibration) -> String {
    let Calibration { constants, rows, rounds, .. } = found;
    let (count, fitted) = (constants.len(), rows.len());
    let interrupted = if found.interrupted { "INTERRUPTED: this is the best fit so far.\n" } else { "" };
    let rounds = match rounds {
        0 if count == 0 => "nothing is fitted".into(),
        0 if is_off(found) => {
            "no step made the fit better, and rows stay off: these constants alone do not give them back".into()
        }
        0 => "no round made the fit better: the constants are at rest".into(),
        1 => "1 round made the fit better".into(),
        rounds => format!("{rounds} rounds made the fit better"),
    };
    let mut text = format!("{interrupted}{platform}: free constants {count}, rows to fit {fitted}; {rounds}.\n");
    if count > 0 {
        let line = |key: &str, before: &str, after: &str, percent: f64| {
            format!("{key:28} {before:>14} {after:>14} {percent:>+8.2} %\n")
        };
        text += &format!("\n{:28} {:>14} {:>14} {:>10}\n", "constant", "before", "after", "change");
        text.extend(constants.iter().map(|one| line(&one.key, &one.before, &one.after, one.percent)));
        for Follower { key, before, after, percent } in &found.followers {
            text += &line(key, before, after, *percent);
            text += "  It is not free, but no drive has a mean below its smallest time: put both values in.\n";
        }
    }
    text += &format!("\n{:28} {:>14} {:>14} {:>9}\n", "row", "published", "error before", "after");
    text.extend(rows.iter().map(|Fitted { id, published, before, after }| {
        format!("{id:28} {published:>14} {before:>+12.2} % {after:>+7.2} %\n")
    }));
    if count > 0 {
        text += &pinned(found);
        text += "\nNothing is written: put the values into the platform file, with the reason, and run `reproduce`.\n";
    }
    text
}

/// Whether a row is outside the tolerance with the constants of the fit.
fn is_off(found: &Calibration) -> bool {
    !found.interrupted && found.constants.iter().all(|constant| constant.held.is_none())
}

/// What the rows pin: the interval of each constant, and the rows that hold it.
fn pinned(found: &Calibration) -> String {
    let percent = TOLERANCE * 100.0;
    if found.constants.iter().all(|constant| constant.held.is_none()) {
        let why = if is_off(found) { "one of them is outside it" } else { "it was interrupted" };
        return format!("\nNo intervals in which all rows stay within {percent} %: {why}.\n");
    }
    // Of one constant, both intervals are one.
    let is_one = found.constants.len() == 1;
    let names = if is_one { ["from, to", ""] } else { ["moved alone", "all together"] };
    let head = format!("{:28} {:>24} {:>17} {:>24}", "constant", names[0], "held by", names[1]);
    let mut text =
        format!("\nWhere all rows stay within {percent} % ({percent} points of a share)\n{}\n", head.trim_end());
    for Pinned { key, held, .. } in &found.constants {
        let Some(held) = held else { continue };
        let span = |[low, high]: &[String; 2]| format!("{low} to {high}");
        let by = held.by.join(", ");
        let joint = if is_one { String::new() } else { span(&held.joint) };
        let line = format!("{key:28} {:>24} {by:>17} {joint:>24}", span(&held.alone));
        text += &format!("{}\n", line.trim_end());
    }
    text += "\nWhat 1 % more of a constant changes\n";
    for Pinned { key, held, .. } in &found.constants {
        let Some(held) = held else { continue };
        let row = |(id, change): &(String, f64)| format!("{id} {change:+.2}");
        let rows: Vec<String> = held.rows.iter().map(row).collect();
        text += &format!("{key:28} {}\n", if rows.is_empty() { "no row".into() } else { rows.join(", ") + " %" });
    }
    let Calibration { points, tried, .. } = found;
    let together = if is_one {
        String::new()
    } else {
        format!("All together: least and greatest over {points} points of {tried} that were run.\n")
    };
    text + "\n"
        + &together
        + "Held below and above by the row that leaves its 2 % first; `no row`: not by any, up to the constant's bounds,\n\
           a quarter or four times.\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::Interplay;

    #[test]
    fn one_constant_has_one_interval_in_the_text() {
        let span = |low: &str, high: &str| [low.to_owned(), high.to_owned()];
        let constant = |key: &str| Pinned {
            key: key.into(),
            before: "1 ns".into(),
            after: "1 ns".into(),
            percent: 0.0,
            held: Some(Interplay {
                alone: span("1 ns", "2 ns"),
                by: span("X1", "X1"),
                joint: span("1 ns", "3 ns"),
                rows: Vec::new(),
            }),
        };
        let of = |constants: Vec<Pinned>| {
            let (followers, rows) = (Vec::new(), Vec::new());
            pinned(&Calibration { constants, followers, rows, rounds: 0, points: 9, tried: 9, interrupted: false })
        };
        let one = of(vec![constant("fabric.a")]);
        assert!(one.contains("from, to") && one.contains("1 ns to 2 ns"), "{one}");
        assert!(!one.contains("together") && !one.contains("1 ns to 3 ns"), "{one}");
        let two = of(vec![constant("fabric.a"), constant("fabric.b")]);
        assert!(two.contains("moved alone") && two.contains("all together") && two.contains("1 ns to 3 ns"), "{two}");
    }
}

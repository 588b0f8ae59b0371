//! What the platform's file says of its constants after a fit.

use super::DRIVE;
use super::fit::{Folder, ImportError, NOISE};
use super::write::{self, Own};
use crate::calibrate::{Decided, Decision, Range};
use crate::input::InputError;
use crate::platform::Platform;
use std::collections::BTreeMap;

/// The reason of a value that is only where the fit begins.
pub(super) const GUESS: &str = "where the fit begins";

/// A constant that moved by less, as a change of its logarithm, did not move.
const SAME: f64 = 1e-3;

/// Shares of the mean that a smallest media time may have, in the order in which they are tried.
const FLOORS: [f64; 5] = [0.9, 0.97, 0.99, 0.997, 0.999];
/// By so much a row may become worse: less than chance moves it.
const WORSE_MAX: f64 = 0.002;

/// What the platform's file says of its constants after a fit.
pub(super) struct Shape<'a> {
    pub base: &'a Platform,
    pub started: BTreeMap<String, Own>,
    pub decision: Decision,
    /// Constants that are neither fitted nor the base's: the measurements come out with all of them together.
    pub taken: BTreeMap<String, f64>,
}

impl Shape<'_> {
    /// Takes the constants of a server that explains the measurements better than the fit.
    pub(super) fn take(&mut self, server: &[(String, f64)], before: &Platform) {
        let constants = before.constants();
        let is_moved = |key: &str, value: f64| {
            let now = constants.iter().find(|(known, ..)| known == key).map_or(0.0, |(.., own)| own.value);
            (value / now).ln().abs() >= SAME
        };
        let [mean, floor] = ["media_mean", "media_floor"].map(|name| format!("drive.{DRIVE}.{name}"));
        let mean_moved = server.iter().any(|(key, value)| *key == mean && is_moved(key, *value));
        for (key, value) in server {
            // The smallest time would follow the mean.
            if !(is_moved(key, *value) || *key == floor && mean_moved) {
                continue;
            }
            let Decision { decided, kept, undecided, .. } = &mut self.decision;
            if let Some(decided) = decided.iter_mut().find(|decided| decided.key == *key) {
                decided.value = *value;
            } else if undecided.contains(key) {
                kept.retain(|(kept, _)| kept != key);
                kept.push((key.clone(), *value));
            } else {
                self.taken.insert(key.clone(), *value);
            }
        }
    }

    /// Lowers a smallest media time that came out at the mean, as far as the measurements allow. True if it was lowered.
    ///
    /// At the mean, each I/O takes the same time: I/Os go in step and wait for each other, and with any other value the
    /// figures jump. Few drives are so, and few measurements can tell.
    pub(super) fn lower_floor(
        &mut self,
        files: &Folder<'_>,
        errors: &dyn Fn() -> Result<Vec<f64>, ImportError>,
    ) -> Result<bool, ImportError> {
        let key = format!("drive.{DRIVE}.media_floor");
        let platform = files.platform()?;
        let Some((was, mean)) =
            self.taken.get(&key).copied().zip(platform.drive(DRIVE).map(|drive| drive.media_mean.value))
        else {
            return Ok(false);
        };
        if was < mean * (1.0 - SAME) {
            return Ok(false);
        }
        for share in FLOORS {
            self.taken.insert(key.clone(), mean * share);
            self.write(files)?;
            let found = errors()?;
            let is_allowed = |(now, was): (&f64, &f64)| now.abs() <= NOISE.max(was.abs() + WORSE_MAX);
            if found.iter().zip(&self.decision.errors).all(is_allowed) {
                self.decision.errors = found;
                return Ok(true);
            }
        }
        self.taken.insert(key, was);
        self.write(files)?;
        Ok(false)
    }

    /// A constant that the file does not borrow.
    pub(super) fn own(&self, key: &str) -> Option<Own> {
        self.of_fit(key).or_else(|| floor(key, self.base, &|key| self.of_fit(key)))
    }

    fn of_fit(&self, key: &str) -> Option<Own> {
        let decided = self.decision.decided.iter().find(|decided| decided.key == key);
        let own = |decided: &Decided| {
            let rows: Vec<&str> = decided.rows.iter().take(3).map(|(id, _)| id.as_str()).collect();
            let reason = format!("fitted, ±{:.0} %: {}", decided.uncertainty * 100.0, rows.join(", "));
            Own { value: decided.value, reason, fit: true, uncertainty: Some(decided.uncertainty), ..Own::default() }
        };
        let kept = self.decision.kept.iter().find(|(kept, _)| kept == key).map(|(_, value)| {
            let reason = format!("not decided, but what was measured contradicts {}'s value", self.base.name);
            Own { value: *value, reason, ..Own::default() }
        });
        let taken = self.taken.get(key).map(|value| {
            let reason = format!("not decided; with {}'s values the measurements do not come out", self.base.name);
            Own { value: *value, reason, ..Own::default() }
        });
        decided.map(own).or(taken).or(kept).or_else(|| self.started.get(key).filter(|own| own.reason != GUESS).cloned())
    }

    /// Writes the platform, and reads it again.
    pub(super) fn write(&self, files: &Folder<'_>) -> Result<Platform, InputError> {
        let text = write::platform(files.name, self.base, &[], &|key| self.own(key));
        files.write(&format!("{}.toml", files.name), &text)?;
        files.platform()
    }
}

/// The media's smallest time. The fit moves it with the mean, as the base has it; only drawn servers have one of their own.
pub(super) fn floor(key: &str, base: &Platform, given: write::Given<'_>) -> Option<Own> {
    let (_, drive) = base.drives.first().filter(|_| key == format!("drive.{DRIVE}.media_floor"))?;
    let mean = given(&format!("drive.{DRIVE}.media_mean")).map_or(drive.media_mean.value, |own| own.value);
    let reason = format!("borrowed from {}: its share of media_mean", base.name);
    Some(Own { value: mean * drive.media_floor.value / drive.media_mean.value, reason, ..Own::default() })
}

/// A range of a constant that another fit has moved.
pub(super) fn moved(range: Range, before: &Platform, now: &Platform) -> Range {
    let value = |of: &Platform| of.constants().iter().find(|(key, ..)| *key == range.key).map(|(.., own)| own.value);
    let factor = value(now).zip(value(before)).map(|(now, before)| now / before);
    range.about(factor.filter(|factor| factor.is_finite() && *factor > 0.0).unwrap_or(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::Place;
    use crate::setting::Setting;

    #[test]
    fn a_smallest_time_at_the_mean_is_lowered_as_far_as_the_rows_allow() {
        let base = Platform::load(&Setting::new(Place::option("test"), "", "emr")).unwrap();
        let files = tempfile::tempdir().unwrap();
        let files = Folder { path: files.path(), name: "mine" };
        let [mean, floor] = ["media_mean", "media_floor"].map(|name| format!("drive.{DRIVE}.{name}"));
        let of_written = || files.platform().unwrap().drive(DRIVE).map(|drive| drive.media_floor.value).unwrap();
        // The row is off by the distance to the mean, as far as 10 % of it is 1.
        for (scale, expected, is_lowered) in [(0.1, 81_000.0, true), (2.0, 89_100.0, true), (100.0, 90_000.0, false)] {
            let decision = Decision {
                decided: Vec::new(),
                undecided: vec![mean.clone()],
                kept: vec![(mean.clone(), 90_000.0)],
                errors: vec![0.0],
                interrupted: false,
                is_cut: false,
            };
            let taken = [(floor.clone(), 90_000.0)].into();
            let mut shape = Shape { base: &base, started: BTreeMap::new(), decision, taken };
            shape.write(&files).unwrap();
            let found = shape.lower_floor(&files, &|| Ok(vec![(1.0 - of_written() / 90_000.0) * scale])).unwrap();
            assert_eq!((found, of_written()), (is_lowered, expected), "{scale}");
            shape.taken.clear();
            assert!(!shape.lower_floor(&files, &|| panic!("it is the base's")).unwrap());
        }
    }

    /// A server's smallest time is its own, also where it is what the fit had, and the mean is not.
    #[test]
    fn the_smallest_time_of_a_server_is_taken_with_its_mean() {
        let base = Platform::load(&Setting::new(Place::option("test"), "", "emr")).unwrap();
        let files = tempfile::tempdir().unwrap();
        let files = Folder { path: files.path(), name: "mine" };
        let [mean, floor] = ["media_mean", "media_floor"].map(|name| format!("drive.{DRIVE}.{name}"));
        let decision = Decision {
            decided: Vec::new(),
            undecided: vec![mean.clone()],
            kept: Vec::new(),
            errors: Vec::new(),
            interrupted: false,
            is_cut: false,
        };
        let mut shape = Shape { base: &base, started: BTreeMap::new(), decision, taken: BTreeMap::new() };
        let before = shape.write(&files).unwrap();
        let of =
            |platform: &Platform| platform.drive(DRIVE).map(|drive| (drive.media_floor.value, drive.media_mean.value));
        let (was, _) = of(&before).unwrap();
        shape.take(&[(mean.clone(), 90_000.0), (floor.clone(), was)], &before);
        assert_eq!(of(&shape.write(&files).unwrap()), Some((was, 90_000.0)));
        let now = files.platform().unwrap();
        shape.take(&[(mean, 90_000.0), (floor, was)], &now);
        assert_eq!(shape.taken.len(), 1, "nothing moved");
    }
}

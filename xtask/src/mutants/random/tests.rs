//! The tests of a crate as killers.

use crate::mutants::copy::Copy;
use crate::mutants::{build, kill};
use std::time::{Duration, Instant};

/// Driver against model: it stands on all rooms that are changed.
const CONFORMANCE: &str = "campanile-conformance";
/// A test program hangs if it takes this long: many times what any of them takes without a change.
const HANGS: Duration = Duration::from_secs(180);

/// Runs the tests of `package` and the conformance tests on the changed copy, for `limit` at most. Returns the first test
/// that fails, if any, and the time. The unchanged tree passes all of them.
pub(super) fn find(copy: &Copy, package: &str, limit: Duration) -> Result<(Option<String>, Duration), String> {
    let programs = build::tests(copy, &[package, CONFORMANCE])?;
    let log = copy.target.join("killer.log");
    let started = Instant::now();
    for program in programs {
        let left = limit.saturating_sub(started.elapsed());
        let ended =
            kill::run(&mut kill::command(&program), &log, left.min(HANGS), |output| output.contains(" ... FAILED"))?;
        let by = match (kill::failure(&ended.output), ended.status) {
            (Some(test), _) => test.to_owned(),
            (None, Some(status)) if status.success() => continue,
            (None, Some(status)) => status.to_string(),
            (None, None) if left >= HANGS => "it hangs".to_owned(),
            (None, None) => break,
        };
        let name = program.file.file_stem().unwrap_or_default().to_string_lossy();
        let name = name.rsplit_once('-').map_or(&*name, |(name, _)| name);
        return Ok((Some(format!("{name}: {by}")), started.elapsed()));
    }
    Ok((None, started.elapsed()))
}

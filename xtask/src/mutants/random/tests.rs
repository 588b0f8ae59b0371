//! The tests of a crate as killers.

use super::VARIABLE;
use crate::mutants::build::Program;
use crate::mutants::kill;
use std::path::Path;
use std::time::{Duration, Instant};

/// Driver against model: it stands on all rooms that are changed.
pub(super) const CONFORMANCE: &str = "campanile-conformance";
/// A test program hangs if it takes this long: many times what any of them takes without a change.
const HANGS: Duration = Duration::from_secs(180);

/// Runs the test programs, for `limit` at most. Returns the first that fails, if any, and the time. `number`: the change to draw,
/// if the programs have several; what fails then must pass without it, or it is left out.
pub(super) fn find(
    programs: &[&Program],
    number: Option<u32>,
    log: &Path,
    limit: Duration,
) -> Result<(Option<String>, Duration), String> {
    let started = Instant::now();
    for program in programs {
        let left = limit.saturating_sub(started.elapsed());
        let Some(by) = failure(program, number.unwrap_or(0), log, left)? else { continue };
        let took = started.elapsed();
        let file = program.file.file_stem().unwrap_or_default().to_string_lossy();
        let name = file.rsplit_once('-').map_or(&*file, |(name, _)| name);
        match number {
            Some(_) if failure(program, 0, log, HANGS)?.is_some() => println!("without any change: test: {name}: {by}"),
            _ => return Ok((Some(format!("{name}: {by}")), took)),
        }
    }
    Ok((None, started.elapsed()))
}

/// What fails in `program`, if anything does within `limit`.
fn failure(program: &Program, number: u32, log: &Path, limit: Duration) -> Result<Option<String>, String> {
    let mut command = kill::command(program);
    command.env(VARIABLE, number.to_string());
    let ended = kill::run(&mut command, log, limit.min(HANGS), |output| output.contains(" ... FAILED"))?;
    Ok(match (kill::failure(&ended.output), ended.status) {
        (Some(test), _) => Some(test.to_owned()),
        (None, Some(status)) if status.success() => None,
        (None, Some(status)) => Some(status.to_string()),
        (None, None) if limit >= HANGS => Some("it hangs".to_owned()),
        (None, None) => None,
    })
}

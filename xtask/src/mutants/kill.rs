//! Runs the killers of a mutant with a time limit.

use super::build::Program;
use super::patch::Suite;
use std::fs::File;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Time between two looks at a running program.
const LOOK: Duration = Duration::from_millis(50);

/// How a program ended.
pub(crate) struct Ended {
    /// None: the program did not end by itself, and was ended.
    pub(crate) status: Option<ExitStatus>,
    pub(crate) output: String,
}

/// Runs `command` for `limit` at most, or until its output is `enough`. The output is in `log`.
pub(crate) fn run(
    command: &mut Command,
    log: &Path,
    limit: Duration,
    enough: impl Fn(&str) -> bool,
) -> Result<Ended, String> {
    let said = || std::fs::read(log).map(|output| String::from_utf8_lossy(&output).into_owned());
    let failed = |error: std::io::Error| format!("{}: {error}", log.display());
    let output = File::create(log).map_err(failed)?;
    let errors = output.try_clone().map_err(failed)?;
    let mut child = command.stdin(Stdio::null()).stdout(output).stderr(errors).spawn().map_err(failed)?;
    let started = Instant::now();
    let status = loop {
        match child.try_wait().map_err(failed)? {
            Some(status) => break Some(status),
            None if started.elapsed() >= limit || enough(&said().map_err(failed)?) => {
                child.kill().map_err(failed)?;
                child.wait().map_err(failed)?;
                break None;
            }
            None => std::thread::sleep(LOOK),
        }
    };
    Ok(Ended { status, output: said().map_err(failed)? })
}

/// A test program as cargo would run it.
pub(crate) fn command(program: &Program) -> Command {
    let mut command = Command::new(&program.file);
    command.current_dir(&program.folder).env("CARGO_MANIFEST_DIR", &program.folder);
    // The failure of a property is enough: shrinking takes long, and its smallest case would run first on the next
    // mutant.
    command.env("PROPTEST_MAX_SHRINK_ITERS", "0").env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1");
    command
}

/// Runs the chosen tests of a program; returns the first that failed, if any.
pub(crate) fn tests(program: &Program, suite: &Suite, log: &Path, limit: Duration) -> Result<Option<String>, String> {
    // Other tests of the program may wait for ever for a test that has failed.
    let ended = run(command(program).args(&suite.choice), log, limit, |output| output.contains(" ... FAILED"))?;
    let place = format!("{}/{}", suite.package.trim_start_matches("campanile-"), suite.target);
    Ok(match ended.status {
        Some(status) if status.success() => {
            if ran_nothing(&ended.output) {
                return Err(format!("{place}: no test of {:?}", suite.choice));
            }
            None
        }
        status => {
            let without_name = if status.is_some() { "it died" } else { "it hangs" };
            Some(format!("{place}: {}", failure(&ended.output).unwrap_or(without_name)))
        }
    })
}

/// The first test that libtest reports as failed.
pub(crate) fn failure(output: &str) -> Option<&str> {
    output.lines().find_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"))
}

fn ran_nothing(output: &str) -> bool {
    output.lines().any(|line| line == "running 0 tests")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_that_failed_is_named() {
        let output = "running 2 tests\ntest a::b ... ok\ntest a::c ... FAILED\n\nfailures:\n";
        assert_eq!((failure(output), failure("test x ... ok\n")), (Some("a::c"), None));
        assert!(ran_nothing("\nrunning 0 tests\n") && !ran_nothing(output));
    }

    #[test]
    fn a_program_that_hangs_is_ended() {
        let log = std::env::temp_dir().join(format!("campanile-kill-{}", std::process::id()));
        let hangs = run(Command::new("sleep").arg("60"), &log, Duration::from_millis(50), |_| false).unwrap();
        let says = run(Command::new("echo").arg("here"), &log, Duration::from_secs(60), |_| false).unwrap();
        std::fs::remove_file(&log).unwrap();
        assert!(hangs.status.is_none());
        assert_eq!((says.status.map(|status| status.success()), says.output.as_str()), (Some(true), "here\n"));
    }
}

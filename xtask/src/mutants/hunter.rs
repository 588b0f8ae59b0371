//! Puts mutants into one copy of the tree and asks the killers.

use super::copy::Copy;
use super::patch::{Mutant, Suite};
use super::{Kill, Killed, build, kill, mix};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long check may look for a defect.
const SEARCH: [&str; 2] = ["--minutes", "1"];
/// How long it looks at the tree as it is; what it finds later is held against that too ([`Hunter::prove_clean`]).
const GLANCE: [&str; 2] = ["--seeds", "30"];
/// When it is taken to hang. It knows by itself when a history does not end, and needs a minute for it.
const CHECK_LIMIT: Duration = Duration::from_secs(150);
/// When a test program is taken to hang: after so many times as long as it takes without a defect, and this at least.
const TESTS_FACTOR: u32 = 3;
const TESTS_LIMIT_MIN: Duration = Duration::from_secs(10);
/// The same, while that is not known.
const TESTS_LIMIT: Duration = Duration::from_secs(30);

pub(super) struct Hunter {
    copy: Copy,
    seed: u64,
    /// `campanile check` of the tree as it is.
    check: Option<PathBuf>,
    /// How long test programs take that were found content with the tree as it is.
    content: BTreeMap<Suite, Duration>,
}

impl Hunter {
    /// A hunter with a copy of its own. Without a defect check must be content, or every mutant would seem to die.
    pub(super) fn new(root: &Path, job: usize, seed: u64, asks_check: bool) -> Result<Self, String> {
        let mut hunter = Self { copy: Copy::new(root, job)?, seed, check: None, content: BTreeMap::new() };
        if asks_check {
            println!("building `campanile check`, and asking it about the tree as it is");
            let program = build::check(&hunter.copy)?;
            if let Some(found) = hunter.ask_check(&program, &format!("job {job}"), GLANCE)? {
                return Err(format!("without any defect: check: {}: {}", found.by, found.replay.join(" ")));
            }
            let kept = hunter.copy.target.join("check-without-defect");
            std::fs::copy(&program, &kept).map_err(|error| format!("{}: {error}", kept.display()))?;
            hunter.check = Some(kept);
        }
        Ok(hunter)
    }

    /// Puts a defect in, has it found, and takes it out again.
    pub(super) fn kill(&mut self, mutant: &Mutant) -> Result<Killed, String> {
        mutant.apply(&self.copy.root)?;
        let found = self.find(mutant);
        mutant.mend(&self.copy.root)?;
        let named = |error| format!("{}: {error}", mutant.name);
        let (kill, suite, ran) = found.map_err(named)?;
        if let Some(suite) = suite {
            self.prove_content(suite).map_err(named)?;
        }
        Ok(Killed { mutant: mutant.name.clone(), kill, seconds: ran.as_secs_f64() })
    }

    /// Asks the killers in turn. Says which tests found the defect, and how long all ran.
    fn find<'a>(&self, mutant: &'a Mutant) -> Result<(Kill, Option<&'a Suite>, Duration), String> {
        let mut ran = Duration::ZERO;
        if self.check.is_some() {
            let program = build::check(&self.copy)?;
            let started = Instant::now();
            let found = self.ask_check(&program, &mutant.name, SEARCH)?;
            ran += started.elapsed();
            if let Some(found) = found {
                self.prove_clean(&found)?;
                return Ok((Kill::Check(found.by), None, ran));
            }
        }
        for suite in &mutant.suites {
            let known = self.content.get(suite).map(|&time| TESTS_LIMIT_MIN.max(time * TESTS_FACTOR));
            let program = build::test(&self.copy, suite)?;
            let started = Instant::now();
            let by = kill::tests(&program, suite, &self.log(), known.unwrap_or(TESTS_LIMIT))?;
            ran += started.elapsed();
            if let Some(by) = by {
                return Ok((Kill::Test(by), Some(suite), ran));
            }
        }
        Ok((Kill::None, None, ran))
    }

    /// Tests that found something must be content with the tree as it is.
    fn prove_content(&mut self, suite: &Suite) -> Result<(), String> {
        if self.content.contains_key(suite) {
            return Ok(());
        }
        let program = build::test(&self.copy, suite)?;
        let started = Instant::now();
        match kill::tests(&program, suite, &self.log(), TESTS_LIMIT)? {
            Some(by) => Err(format!("without any defect: test: {by}")),
            None => {
                self.content.insert(suite.clone(), started.elapsed());
                Ok(())
            }
        }
    }

    fn log(&self) -> PathBuf {
        self.copy.target.join("killer.log")
    }

    /// `campanile check` with a seed drawn for `name`: what it found, if it found something.
    fn ask_check(&self, program: &Path, name: &str, length: [&str; 2]) -> Result<Option<Found>, String> {
        let json = self.copy.target.join("check.json");
        let seed = mix(self.seed, name).to_string();
        let mut command = self.command(program);
        command.args(["--seed", &seed, "--no-shrink"]).args(length).arg("--json").arg(&json);
        // What an earlier run said is not this one's word.
        _ = std::fs::remove_file(&json);
        let ended = kill::run(&mut command, &self.log(), CHECK_LIMIT, |_| false)?;
        if ended.status.is_some_and(|status| status.success()) {
            return Ok(None);
        }
        let said = std::fs::read_to_string(&json).unwrap_or_default();
        let died =
            || Found { by: ended.status.map_or("it hangs".into(), |status| status.to_string()), replay: Vec::new() };
        Ok(Some(found(&said).unwrap_or_else(died)))
    }

    /// The history that check found wrong must be right without the defect.
    fn prove_clean(&self, found: &Found) -> Result<(), String> {
        let Some(program) = self.check.as_ref().filter(|_| !found.replay.is_empty()) else { return Ok(()) };
        let ended = kill::run(self.command(program).args(&found.replay), &self.log(), CHECK_LIMIT, |_| false)?;
        if ended.status.is_some_and(|status| status.success()) {
            return Ok(());
        }
        Err(format!("without any defect: check: {}: {}", found.by, found.replay.join(" ")))
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.copy.root).arg("--trace").arg(self.copy.target.join("check.trace.json"));
        command
    }
}

/// What check found.
struct Found {
    /// The checker that did, and which way the history failed.
    by: String,
    /// What runs that history again.
    replay: Vec<String>,
}

/// The first failure of a campaign's JSON.
fn found(json: &str) -> Option<Found> {
    let summary: serde_json::Value = serde_json::from_str(json).ok()?;
    let failure = summary.get("failures")?.get(0)?;
    let text = |key: &str| failure.get(key)?.as_str();
    let (scenario, seed) = (text("scenario")?, text("seed")?);
    let replay = ["--scenario", scenario, "--replay", seed].map(str::to_owned).into();
    Some(Found { by: format!("{} ({}), {scenario}", text("checker")?, text("kind")?), replay })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_check_found_is_read() {
        let json = r#"{"histories": 3, "failures": [{"scenario": "pc-posted", "seed": "0x7", "kind": "liveness",
            "checker": "commands", "message": "m", "replay": "campanile check"}]}"#;
        let found = found(json).unwrap();
        assert_eq!(found.by, "commands (liveness), pc-posted");
        assert_eq!(found.replay, ["--scenario", "pc-posted", "--replay", "0x7"]);
        assert!(super::found(r#"{"failures": []}"#).is_none());
    }
}

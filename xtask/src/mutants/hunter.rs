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
/// How long it looks on behind a history that is wrong without the defect too.
const SEARCH_LIMIT: Duration = Duration::from_secs(60);
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
    /// What check found in the tree as it is. It kills no mutant, and fails the run.
    pub(super) troubles: Vec<String>,
}

impl Hunter {
    /// A hunter with a copy of its own. Without a defect check must be content, or every mutant would seem to die.
    pub(super) fn new(root: &Path, job: usize, seed: u64, asks_check: bool) -> Result<Self, String> {
        let mut hunter =
            Self { copy: Copy::new(root, job)?, seed, check: None, content: BTreeMap::new(), troubles: Vec::new() };
        if asks_check {
            println!("building `campanile check`, and asking it about the tree as it is");
            let program = build::check(&hunter.copy)?;
            let seed = mix(seed, &format!("job {job}"));
            if let Some(found) = hunter.ask_check(&program, seed, GLANCE, CHECK_LIMIT)? {
                return Err(found.without_defect());
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
    fn find<'a>(&mut self, mutant: &'a Mutant) -> Result<(Kill, Option<&'a Suite>, Duration), String> {
        let mut ran = Duration::ZERO;
        if self.check.is_some() {
            let program = build::check(&self.copy)?;
            let (by, time) = self.search(&program, mix(self.seed, &mutant.name))?;
            ran += time;
            if let Some(by) = by {
                return Ok((Kill::Check(by), None, ran));
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

    /// `campanile check` from `seed` on, until it finds a history that is right without the defect, or its time is over.
    fn search(&mut self, program: &Path, mut seed: u64) -> Result<(Option<String>, Duration), String> {
        let (mut ran, mut limit) = (Duration::ZERO, CHECK_LIMIT);
        loop {
            let started = Instant::now();
            let found = self.ask_check(program, seed, SEARCH, limit)?;
            ran += started.elapsed();
            let Some(found) = found else { return Ok((None, ran)) };
            if self.is_clean(&found)? {
                return Ok((Some(found.by), ran));
            }
            println!("{}", found.without_defect());
            self.troubles.push(found.without_defect());
            seed = found.seed.wrapping_add(1);
            limit = SEARCH_LIMIT.saturating_sub(ran);
            if limit.is_zero() {
                return Ok((None, ran));
            }
        }
    }

    /// `campanile check` from `seed` on: what it found, if it found something. Time that ran out under a limit of its
    /// own is nothing.
    fn ask_check(
        &self,
        program: &Path,
        seed: u64,
        length: [&str; 2],
        limit: Duration,
    ) -> Result<Option<Found>, String> {
        let json = self.copy.target.join("check.json");
        let mut command = self.command(program);
        command.args(["--seed", &seed.to_string(), "--no-shrink"]).args(length).arg("--json").arg(&json);
        // What an earlier run said is not this one's word.
        _ = std::fs::remove_file(&json);
        let ended = kill::run(&mut command, &self.log(), limit, |_| false)?;
        let by = match ended.status {
            Some(status) if status.success() => return Ok(None),
            None if limit < CHECK_LIMIT => return Ok(None),
            Some(status) => status.to_string(),
            None => "it hangs".to_owned(),
        };
        let said = std::fs::read_to_string(&json).unwrap_or_default();
        Ok(Some(found(&said).unwrap_or(Found { by, seed, replay: Vec::new() })))
    }

    /// Whether the history that check found wrong is right without the defect.
    fn is_clean(&self, found: &Found) -> Result<bool, String> {
        let Some(program) = self.check.as_ref().filter(|_| !found.replay.is_empty()) else { return Ok(true) };
        let ended = kill::run(self.command(program).args(&found.replay), &self.log(), CHECK_LIMIT, |_| false)?;
        Ok(ended.status.is_some_and(|status| status.success()))
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
    seed: u64,
    /// What runs that history again.
    replay: Vec<String>,
}

impl Found {
    fn without_defect(&self) -> String {
        format!("without any defect: check: {}: {}", self.by, self.replay.join(" "))
    }
}

/// The first failure of a campaign's JSON.
fn found(json: &str) -> Option<Found> {
    let summary: serde_json::Value = serde_json::from_str(json).ok()?;
    let failure = summary.get("failures")?.get(0)?;
    let text = |key: &str| failure.get(key)?.as_str();
    let (scenario, seed) = (text("scenario")?, text("seed")?);
    let number = u64::from_str_radix(seed.trim_start_matches("0x"), 16).ok()?;
    let replay = ["--scenario", scenario, "--replay", seed].map(str::to_owned).into();
    let by = format!("{} ({}), {scenario}", text("checker")?, text("kind")?);
    Some(Found { by, seed: number, replay })
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
        assert_eq!(found.seed, 7);
        assert_eq!(found.replay, ["--scenario", "pc-posted", "--replay", "0x7"]);
        assert!(super::found(r#"{"failures": []}"#).is_none());
    }
}

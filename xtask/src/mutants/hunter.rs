//! Applies mutants to one copy of the tree and runs the killers.

use super::copy::Copy;
use super::patch::{Mutant, Suite};
use super::random::{Batch, VARIABLE};
use super::{Kill, Killed, Options, build, kill, mix};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long check searches the unchanged tree; later findings count against that too ([`Hunter::prove_clean`]).
const GLANCE: [&str; 2] = ["--seeds", "30"];
/// Check hangs if it runs on for this long. It notices by itself when a history does not end, and needs a minute for
/// it.
const CHECK_LIMIT: Duration = Duration::from_secs(150);
/// How long check searches on after a history that fails without the defect too.
const SEARCH_LIMIT: Duration = Duration::from_secs(60);
/// A test program hangs if it takes this many times as long as without a defect, and at least this long.
const TESTS_FACTOR: u32 = 3;
const TESTS_LIMIT_MIN: Duration = Duration::from_secs(10);
/// The limit while its usual time is not known.
const TESTS_LIMIT: Duration = Duration::from_secs(30);

pub(super) struct Hunter {
    pub(super) copy: Copy,
    /// The folder of what the killers write.
    work: PathBuf,
    seed: u64,
    /// How long check may look for a defect.
    minutes: String,
    /// Check gets one core, so that its minute is the same on every machine.
    one_core: bool,
    /// `campanile check` of the unchanged tree.
    check: Option<PathBuf>,
    /// Run times of test programs that passed on the unchanged tree.
    content: BTreeMap<Suite, Duration>,
    /// Check's findings in the unchanged tree. They kill no mutant, and fail the run.
    pub(super) troubles: Vec<String>,
}

impl Hunter {
    /// A hunter with a copy of its own. Check must pass without a defect, or every mutant would seem to die.
    pub(super) fn new(root: &Path, job: usize, seed: u64, options: &Options) -> Result<Self, String> {
        let copy = Copy::new(root, job)?;
        let work = copy.target.clone();
        let mut hunter = Self::idle(copy, work, seed, options);
        if !options.without_check {
            println!("building `campanile check`, and asking it about the tree as it is");
            let program = build::check(&hunter.copy)?;
            hunter.glance(&program, job)?;
            let kept = hunter.copy.target.join("check-without-defect");
            std::fs::copy(&program, &kept).map_err(|error| format!("{}: {error}", kept.display()))?;
            hunter.check = Some(kept);
        }
        Ok(hunter)
    }

    /// A hunter that shares the programs of `batch` with other jobs.
    pub(super) fn of_switched(batch: &Batch, job: usize, seed: u64, options: &Options) -> Result<Self, String> {
        let Batch { copy, check, .. } = batch;
        let work = copy.target.join(format!("job-{job}"));
        std::fs::create_dir_all(&work).map_err(|error| format!("{}: {error}", work.display()))?;
        let mut hunter = Self::idle(copy.clone(), work, seed, options);
        if let Some(program) = check {
            println!("asking `campanile check` about the tree with no change drawn");
            hunter.glance(program, job)?;
        }
        hunter.check = check.clone();
        Ok(hunter)
    }

    fn idle(copy: Copy, work: PathBuf, seed: u64, options: &Options) -> Self {
        Self {
            copy,
            work,
            seed,
            minutes: options.minutes.clone(),
            one_core: options.random.is_some(),
            check: None,
            content: BTreeMap::new(),
            troubles: Vec::new(),
        }
    }

    fn glance(&self, program: &Path, job: usize) -> Result<(), String> {
        let seed = mix(self.seed, &format!("job {job}"));
        match self.ask_check(self.command(program, None), seed, &GLANCE, CHECK_LIMIT)? {
            Some(found) => Err(found.without_defect()),
            None => Ok(()),
        }
    }

    /// Applies a defect, runs the killers, and removes the defect again.
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

    /// Runs the killers in turn. Returns which of them found the defect, and how long all ran.
    pub(super) fn find<'a>(&mut self, mutant: &'a Mutant) -> Result<(Kill, Option<&'a Suite>, Duration), String> {
        let mut ran = Duration::ZERO;
        if self.check.is_some() {
            let program = build::check(&self.copy)?;
            let (by, time) = self.search(&program, None, mutant)?;
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

    /// Tests that found the defect must pass on the unchanged tree.
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

    pub(super) fn log(&self) -> PathBuf {
        self.work.join("killer.log")
    }

    /// Asks check, if it is to run, about the change of this number.
    pub(super) fn find_switched(&mut self, number: u32, mutant: &Mutant) -> Result<(Option<String>, Duration), String> {
        match self.check.clone() {
            Some(program) => self.search(&program, Some(number), mutant),
            None => Ok((None, Duration::ZERO)),
        }
    }

    /// Runs `campanile check` until it finds a history that passes without the defect, or its time is over. It is told
    /// which files the defect touches, as it would be of a change. `number`: of the defect, if the program has several.
    fn search(
        &mut self,
        program: &Path,
        number: Option<u32>,
        mutant: &Mutant,
    ) -> Result<(Option<String>, Duration), String> {
        let mut seed = mix(self.seed, &mutant.name);
        let (mut ran, mut limit) = (Duration::ZERO, CHECK_LIMIT);
        let touched = mutant.files().collect::<Vec<_>>().join(",");
        loop {
            let started = Instant::now();
            let length = ["--minutes", &self.minutes, "--touched", &touched];
            let found = self.ask_check(self.command(program, number), seed, &length, limit)?;
            ran += started.elapsed();
            let Some(found) = found else { return Ok((None, ran)) };
            if self.is_clean(&found)? {
                return Ok((Some(found.by), ran));
            }
            println!("{}", found.without_defect());
            self.troubles.push(found.without_defect());
            seed = mix(seed, "again");
            limit = SEARCH_LIMIT.saturating_sub(ran);
            if limit.is_zero() {
                return Ok((None, ran));
            }
        }
    }

    /// Runs `campanile check` from `seed` on; returns its finding, if any. Running into its own time limit is no
    /// finding.
    fn ask_check(
        &self,
        mut command: Command,
        seed: u64,
        length: &[&str],
        limit: Duration,
    ) -> Result<Option<Found>, String> {
        let json = self.work.join("check.json");
        command.args(["--seed", &seed.to_string(), "--no-shrink"]).args(length).arg("--json").arg(&json);
        // The report of an earlier run must not count for this one.
        _ = std::fs::remove_file(&json);
        let ended = kill::run(&mut command, &self.log(), limit, |_| false)?;
        let by = match ended.status {
            Some(status) if status.success() => return Ok(None),
            None if limit < CHECK_LIMIT => return Ok(None),
            Some(status) => status.to_string(),
            None => "it hangs".to_owned(),
        };
        let said = std::fs::read_to_string(&json).unwrap_or_default();
        Ok(Some(found(&said).unwrap_or(Found { by, replay: Vec::new() })))
    }

    /// True if the history that failed under the defect passes without it.
    fn is_clean(&self, found: &Found) -> Result<bool, String> {
        let Some(program) = self.check.as_ref().filter(|_| !found.replay.is_empty()) else { return Ok(true) };
        let ended = kill::run(self.command(program, None).args(&found.replay), &self.log(), CHECK_LIMIT, |_| false)?;
        Ok(ended.status.is_some_and(|status| status.success()))
    }

    fn command(&self, program: &Path, number: Option<u32>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.copy.root).arg("--trace").arg(self.work.join("check.trace.json"));
        command.env(VARIABLE, number.unwrap_or(0).to_string());
        if self.one_core {
            command.args(["--jobs", "1"]);
        }
        command
    }
}

/// A finding of check.
struct Found {
    /// The checker that found it, and the kind of failure.
    by: String,
    /// The options that run the history again; none if it is not known.
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
    let line = text("replay")?.strip_prefix("campanile check ")?;
    let replay = line.split_whitespace().map(str::to_owned).collect();
    let by = format!("{} ({}), {}", text("checker")?, text("kind")?, text("scenario")?);
    Some(Found { by, replay })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_check_found_is_read() {
        let json = r#"{"histories": 3, "failures": [{"scenario": "gicv3", "kind": "liveness", "checker": "commands",
            "message": "m", "replay": "campanile check --scenario gicv3 --systematic edge/move+free --schedule ab,a7b"}]}"#;
        let found = found(json).unwrap();
        assert_eq!(found.by, "commands (liveness), gicv3");
        assert_eq!(found.replay.join(" "), "--scenario gicv3 --systematic edge/move+free --schedule ab,a7b");
        assert!(super::found(r#"{"failures": []}"#).is_none());
    }
}

//! Puts mutants into one copy of the tree and asks the killers.

use super::copy::Copy;
use super::patch::{Mutant, Suite};
use super::{Kill, Killed, build, kill, mix};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long check may look for a defect, and when it is taken to hang.
const CHECK_MINUTES: &str = "0.5";
const CHECK_LIMIT: Duration = Duration::from_secs(50);
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
            if let Some(by) = hunter.ask_check(&program, &format!("job {job}"))? {
                return Err(format!("without any defect: check: {by}"));
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
        self.copy.mend(mutant)?;
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
            let by = self.ask_check(&program, &mutant.name)?;
            ran += started.elapsed();
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

    /// `campanile check` with a seed drawn for `name`: what it found, if it found something.
    fn ask_check(&self, program: &Path, name: &str) -> Result<Option<String>, String> {
        let seed = mix(self.seed, name);
        let mut command = Command::new(program);
        command.current_dir(&self.copy.root).args(["--seed", &seed.to_string(), "--minutes", CHECK_MINUTES]);
        let ended = kill::run(&mut command, &self.log(), CHECK_LIMIT)?;
        Ok(match ended.status {
            Some(status) if status.success() => None,
            Some(status) => Some(checker(&ended.output).unwrap_or(status.to_string())),
            None => Some("it hangs".into()),
        })
    }
}

/// The checker that a failed check names.
fn checker(output: &str) -> Option<String> {
    output.lines().find_map(|line| line.strip_prefix("checker: ")).map(str::to_owned)
}

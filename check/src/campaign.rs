//! Runs many histories on all cores.
//!
//! Workers take numbers in turn. A number determines scenario and seed, so the report does not depend on which worker
//! is faster. A failure ends the campaign: histories with lower numbers are finished, histories with higher numbers do
//! not count. A search for a given time is divided otherwise ([`crate::minutes`]).

use crate::coverage::Coverage;
use crate::history::Recipe;
use crate::minutes::{self, Spent};
use crate::run::{Run, Scenario};
use crate::verdict::{Failure, Kind};
use indicatif::{ProgressBar, ProgressStyle};
use machine::time::Ps;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A history that takes the host longer than this does not end.
pub(crate) const HANG: Duration = Duration::from_secs(60);
/// Progress is shown after this time.
pub(crate) const QUIET: Duration = Duration::from_secs(2);

/// How long to search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Length {
    /// This many histories of each scenario.
    Seeds(u64),
    /// For this much wall-clock time.
    Time(Duration),
    /// The histories with these numbers: a part of a campaign whose other parts run elsewhere.
    Part {
        /// The first.
        from: u64,
        /// How many.
        count: u64,
    },
}

/// The request of a campaign.
#[derive(Clone)]
pub struct Campaign {
    /// The scenarios, searched in turn.
    pub scenarios: Vec<&'static dyn Scenario>,
    /// Seed of the first round of histories.
    pub first_seed: u64,
    /// How long.
    pub length: Length,
    /// The part of the recipe that all histories share.
    pub recipe: Recipe,
    /// Files that a change touches: in a given time their scenarios get most of it.
    pub touched: Vec<String>,
    /// Worker threads.
    pub jobs: usize,
    /// Once it is set, workers begin no further history.
    pub stop: Arc<AtomicBool>,
}

impl Campaign {
    /// The histories of the whole campaign; none: as many as the time allows.
    pub fn histories(&self) -> Option<u64> {
        match self.length {
            Length::Seeds(seeds) => Some(seeds.saturating_mul(self.scenarios.len() as u64)),
            Length::Time(_) => None,
            Length::Part { count, .. } => Some(count),
        }
    }

    /// The scenario of history `index`.
    pub fn scenario(&self, index: u64) -> &'static dyn Scenario {
        self.scenarios[(index % self.scenarios.len() as u64) as usize]
    }

    /// The scenario of a finding.
    ///
    /// # Panics
    /// If it is none of this campaign's.
    pub fn scenario_of(&self, found: &Found) -> &'static dyn Scenario {
        let named = self.scenarios.iter().find(|scenario| scenario.name() == found.scenario);
        *named.expect("a campaign finds what it searches")
    }

    /// Runs one history again, which failed elsewhere. None if it does not fail here.
    pub fn failure(&self, index: u64) -> Option<Found> {
        let run = self.run_one(index);
        let scenario = self.scenario(index).name();
        Some(Found { index, scenario, recipe: self.recipe_of(index), failure: run.failure?, hangs: false, line: None })
    }

    /// What is said of a history that does not end on the host.
    pub fn hang(&self, index: u64) -> Found {
        let scenario = self.scenario(index).name();
        Found { index, scenario, recipe: self.recipe_of(index), failure: hangs(), hangs: true, line: None }
    }

    fn run_one(&self, index: u64) -> Run {
        run_of(self.scenario(index), &self.recipe_of(index))
    }

    fn recipe_of(&self, index: u64) -> Recipe {
        let seed = self.first_seed.wrapping_add(index / self.scenarios.len() as u64);
        Recipe { seed, ..self.recipe.clone() }
    }
}

/// The history of a recipe. Knobs that do not exist are a failure too.
pub(crate) fn run_of(scenario: &dyn Scenario, recipe: &Recipe) -> Run {
    scenario.run(recipe).unwrap_or_else(|error| Run {
        failure: Some(Failure::new(Kind::Correctness, "input", Ps(0), error.to_string())),
        ..Run::default()
    })
}

/// The failure of a history that does not end on the host.
pub(crate) fn hangs() -> Failure {
    let text = format!("the host has worked on this history for {} s: it spins without the machine", HANG.as_secs());
    Failure::new(Kind::Liveness, "hang", Ps(0), text)
}

/// A history that failed, or what another search of small machines or forms found.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its number in the campaign; 0 in a search for a given time, which has no numbers.
    pub index: u64,
    /// Its scenario.
    pub scenario: &'static str,
    /// The recipe that makes it again.
    pub recipe: Recipe,
    /// The error of the option.
    pub failure: Failure,
    /// It does not end on the host either.
    pub hangs: bool,
    /// The command line that shows it again, if it is no random history.
    pub line: Option<String>,
}

impl Found {
    /// The command line that shows it again.
    pub fn replay(&self) -> String {
        self.line.clone().unwrap_or_else(|| replay_line(self.scenario, &self.recipe))
    }

    /// Whether a recipe makes it again, which can be shortened.
    pub fn is_history(&self) -> bool {
        self.line.is_none() && !self.hangs
    }
}

/// The line that runs one history.
pub fn replay_line(scenario: &str, recipe: &Recipe) -> String {
    format!("campanile check --scenario {scenario} {recipe}")
}

#[derive(Serialize)]
struct FoundRow<'a> {
    scenario: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<String>,
    kind: Kind,
    checker: &'a str,
    message: &'a str,
    replay: String,
}

impl Serialize for Found {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Failure { kind, checker, text, .. } = &self.failure;
        let seed = self.line.is_none().then(|| format!("{:#x}", self.recipe.seed));
        let row =
            FoundRow { scenario: self.scenario, seed, kind: *kind, checker, message: text, replay: self.replay() };
        row.serialize(serializer)
    }
}

/// The result of a campaign.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// Histories.
    pub histories: u64,
    /// Commands that stacks were given.
    pub ios: u64,
    /// Interrupts that CPUs took.
    pub interrupts: u64,
    /// Faults that were injected, by kind.
    pub faults: BTreeMap<Cow<'static, str>, u64>,
    /// Simulated time.
    #[serde(rename = "simulated_seconds", serialize_with = "seconds")]
    pub simulated: Ps,
    /// Wall clock.
    pub seconds: f64,
    /// Commands by second and worker: measured on this machine.
    pub ios_per_second_per_core: f64,
    /// The failures.
    pub failures: Vec<Found>,
    /// Transitions that were seen, by scenario.
    pub coverage: BTreeMap<Cow<'static, str>, Coverage>,
    /// What a given time went to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub spent: Vec<Spent>,
}

impl Summary {
    pub(crate) fn add(&mut self, scenario: &'static str, run: &Run) {
        self.histories += 1;
        self.ios += run.ios;
        self.interrupts += run.interrupts;
        run.faults.iter().for_each(|(kind, count)| *self.faults.entry(Cow::Borrowed(kind)).or_default() += count);
        self.coverage.entry(Cow::Borrowed(scenario)).or_default().merge(&run.coverage);
        self.simulated.0 += run.simulated.0;
    }

    /// Notes how long all of it took on so many workers.
    pub fn measured_over(&mut self, seconds: f64, jobs: usize) {
        self.seconds = seconds;
        self.ios_per_second_per_core = self.ios as f64 / seconds / jobs as f64;
    }

    /// Adds a part that ran elsewhere. Parts are added in the order of their histories, up to the first with a failure:
    /// then the sum is that of one campaign.
    pub fn add_part(&mut self, part: &Part) {
        self.histories += part.histories;
        self.ios += part.ios;
        self.interrupts += part.interrupts;
        self.simulated.0 += part.simulated_ps;
        for (kind, count) in &part.faults {
            *self.faults.entry(kind.clone()).or_default() += count;
        }
        for (scenario, coverage) in &part.coverage {
            self.coverage.entry(scenario.clone()).or_default().merge(coverage);
        }
    }

    /// What the whole campaign needs to know of it.
    pub fn part(&self) -> Part {
        let Self { histories, ios, interrupts, faults, simulated, coverage, failures, .. } = self.clone();
        let failed = failures.first().map(|found| (found.index, found.hangs));
        Part { histories, ios, interrupts, faults, simulated_ps: simulated.0, coverage, failed }
    }
}

fn seconds<S: serde::Serializer>(time: &Ps, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.0 as f64 / 1e12)
}

/// The result of a part of a campaign ([`Length::Part`]), as it is sent. Its failure is a number: the history can be run
/// again anywhere.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// As [`Summary::histories`].
    pub histories: u64,
    /// As [`Summary::ios`].
    pub ios: u64,
    /// As [`Summary::interrupts`].
    pub interrupts: u64,
    /// As [`Summary::faults`].
    pub faults: BTreeMap<Cow<'static, str>, u64>,
    /// Simulated time.
    pub simulated_ps: u64,
    /// As [`Summary::coverage`].
    pub coverage: BTreeMap<Cow<'static, str>, Coverage>,
    /// The number of the first history that failed, and whether it does not end.
    pub failed: Option<(u64, bool)>,
}

/// The state that the workers share.
struct Shared {
    campaign: Campaign,
    next: AtomicU64,
    /// The lowest failing number, or the number of histories. Workers start no history at or beyond it.
    end: AtomicU64,
    /// The history of each worker, and when it began.
    at: Vec<Mutex<Option<(u64, Instant)>>>,
}

/// Runs a campaign.
///
/// # Panics
/// If a worker of this program fails, which is a defect of the program.
pub fn run(campaign: &Campaign) -> Summary {
    let start = Instant::now();
    let from = match campaign.length {
        Length::Seeds(_) => 0,
        Length::Time(time) => return minutes::run(campaign, time),
        Length::Part { from, .. } => from,
    };
    let end = campaign.histories().map_or(u64::MAX, |count| from.saturating_add(count));
    let jobs = campaign.jobs;
    let at = (0..jobs).map(|_| Mutex::new(None)).collect();
    let (next, end) = (AtomicU64::new(from), AtomicU64::new(end));
    let shared = Arc::new(Shared { campaign: campaign.clone(), next, end, at });
    let (results, done) = mpsc::channel();
    for worker in 0..jobs {
        let (shared, results) = (shared.clone(), results.clone());
        std::thread::spawn(move || work(&shared, worker, &results));
    }
    drop(results);
    let bar = progress(campaign);
    let mut runs: BTreeMap<u64, Run> = BTreeMap::new();
    let mut summary = Summary::default();
    let mut counted = from;
    let mut hung = None;
    loop {
        match done.recv_timeout(Duration::from_millis(200)) {
            Ok((index, run)) => {
                runs.insert(index, run);
                bar.inc(1);
            }
            Err(RecvTimeoutError::Timeout) => hung = shared.hung(),
            Err(RecvTimeoutError::Disconnected) => break,
        }
        // Takes results in order and stops at the first gap, so memory stays flat.
        while let Some(run) = runs.remove(&counted) {
            count(&shared.campaign, &mut summary, counted, run);
            counted += 1;
            if !summary.failures.is_empty() {
                runs.clear();
                counted = u64::MAX;
            }
        }
        show_progress(&bar, start, &summary, jobs);
        if hung.is_some() {
            break;
        }
    }
    bar.finish_and_clear();
    if let Some(index) = hung.filter(|_| summary.failures.is_empty()) {
        summary.failures.push(campaign.hang(index));
    }
    summary.measured_over(start.elapsed().as_secs_f64(), jobs);
    summary
}

fn count(campaign: &Campaign, summary: &mut Summary, index: u64, run: Run) {
    let scenario = campaign.scenario(index).name();
    summary.add(scenario, &run);
    if let Some(failure) = run.failure {
        summary.failures.push(Found {
            index,
            scenario,
            recipe: campaign.recipe_of(index),
            failure,
            hangs: false,
            line: None,
        });
    }
}

fn work(shared: &Shared, worker: usize, results: &Sender<(u64, Run)>) {
    loop {
        let index = shared.next.fetch_add(1, Relaxed);
        if shared.campaign.stop.load(Relaxed) || index >= shared.end.load(Relaxed) {
            return;
        }
        *shared.at[worker].lock().expect("no panic while it is held") = Some((index, Instant::now()));
        let run = shared.campaign.run_one(index);
        *shared.at[worker].lock().expect("no panic while it is held") = None;
        if run.failure.is_some() {
            shared.end.fetch_min(index + 1, Relaxed);
        }
        if results.send((index, run)).is_err() {
            return;
        }
    }
}

impl Shared {
    /// A history that does not end on the host.
    fn hung(&self) -> Option<u64> {
        let at = self.at.iter().filter_map(|at| *at.lock().expect("no panic while it is held"));
        at.filter(|(_, since)| since.elapsed() > HANG).map(|(index, _)| index).min()
    }
}

pub(crate) fn progress(campaign: &Campaign) -> ProgressBar {
    let (bar, style) = match campaign.histories() {
        Some(histories) => (ProgressBar::new(histories), "{bar:30} {pos}/{len} histories, {msg}"),
        None => (ProgressBar::new_spinner(), "{spinner} {elapsed} {pos} histories, {msg}"),
    };
    bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
    bar.with_style(ProgressStyle::with_template(style).expect("a valid template"))
}

pub(crate) fn show_progress(bar: &ProgressBar, start: Instant, summary: &Summary, jobs: usize) {
    let elapsed = start.elapsed();
    if elapsed > QUIET && bar.is_hidden() {
        bar.set_draw_target(indicatif::ProgressDrawTarget::stderr());
    }
    let speed = summary.ios as f64 / elapsed.as_secs_f64() / jobs as f64;
    bar.set_message(format!("{} I/Os, {speed:.0} I/Os/s/core", summary.ios));
}

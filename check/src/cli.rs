//! The command line of `campanile check`, and of the small program with the same function but without the rest of the
//! lab.

use crate::campaign::{self, Campaign, Found, Length, Summary};
use crate::guided;
use crate::history::{PARTS, Recipe};
use crate::metamorphic;
use crate::report;
use crate::run::{Run, Scenario};
use crate::shrink;
use crate::single;
use crate::systematic;
use clap::Args;
use machine::unrest::turns::Schedule;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

mod replay;

use replay::replay;

/// Histories of a default campaign, for each scenario.
const SEEDS_DEFAULT: u64 = 300;
/// Spans of a failure's trace.
pub(crate) const TRACE_SPANS_MAX: usize = 200_000;
/// The file of a failure's trace, unless another is named.
pub const TRACE: &str = "check-failure.trace.json";

/// `campanile check`.
///
/// Exit codes: 0 nothing found; 2 wrong input; 3 a history breaks a rule (correctness); 4 an interrupt or I/O
/// never came (liveness); 5 the code under test panicked (crash); 1 results could not be written; 130 interrupted.
#[derive(Args, Clone, PartialEq, Eq, Debug, Default)]
pub struct CheckArgs {
    /// The scenarios to search. The default is all. See --list.
    #[arg(long, value_name = "S", value_delimiter = ',')]
    pub scenario: Vec<String>,
    /// Number of histories of each scenario.
    #[arg(long, value_name = "N", value_parser = seeds, conflicts_with_all = ["minutes", "replay"])]
    pub seeds: Option<u64>,
    /// Search for this time: random histories of all scenarios, orders of operations and single faults on their small
    /// machines, and one history in several forms. The report says what the time went to.
    #[arg(long, value_name = "M", value_parser = minutes, conflicts_with = "replay")]
    pub minutes: Option<Duration>,
    /// Files that a change touches: the scenarios that run them get most of the time of --minutes.
    #[arg(long, value_name = "FILES", value_delimiter = ',', num_args = 1.., requires = "minutes", conflicts_with = "guided")]
    pub touched: Vec<String>,
    /// The seed of the first history. Later ones count up. The default comes from the clock.
    #[arg(long, value_name = "SEED", value_parser = seed, conflicts_with = "replay")]
    pub seed: Option<u64>,
    /// The kinds of fault that may happen, or all, or none.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub faults: Vec<String>,
    /// Run one history again. Needs exactly one --scenario.
    #[arg(long, value_name = "SEED", value_parser = seed)]
    pub replay: Option<u64>,
    /// Keep only these events of the replayed history, or none.
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', requires = "replay")]
    pub keep: Vec<String>,
    /// The kinds of unrest to switch off: preempt, … See --list.
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    pub without: Vec<String>,
    /// Set a number of the machine or its load: cpus=2. Each history prints its numbers.
    #[arg(long, value_name = "NAME=VALUE", value_delimiter = ',')]
    pub set: Vec<String>,
    /// Draw parts of the replayed history from other seeds: machine, load, steps, faults, unrest, or the number of an event.
    #[arg(long, value_name = "PART=SEED", value_delimiter = ',', requires = "replay")]
    pub reseed: Vec<String>,
    /// Let events of the replayed history happen at other times, in ns since its start.
    #[arg(long, value_name = "NUMBER=NS", value_delimiter = ',', requires = "replay")]
    pub at: Vec<String>,
    /// Shrink the replayed history if it fails. A campaign shrinks its failures unless --no-shrink is given.
    #[arg(long)]
    pub shrink: bool,
    /// Do not shrink failures.
    #[arg(long, conflicts_with = "shrink")]
    pub no_shrink: bool,
    /// Number of worker threads. The default is one per core.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
    /// Write counts, failures and coverage as JSON; -: to standard output, and the text to standard error.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["replay", "schedule", "position", "list"])]
    pub json: Option<PathBuf>,
    /// File for the trace of a failure, for Perfetto or chrome://tracing.
    #[arg(long, value_name = "FILE", default_value = TRACE)]
    pub trace: PathBuf,
    /// Instead of random histories, try every order of pairs of operations on small machines, up to a bound of
    /// preemptions: all pairs, or those whose name contains a text, such as edge/move.
    #[arg(long, value_name = "PAIR", group = "search", num_args = 0..=1, default_missing_value = "",
        conflicts_with_all = ["seeds", "minutes", "seed", "faults", "replay", "without", "set", "shrink"])]
    pub systematic: Option<String>,
    /// Run one schedule of a pair again. Needs exactly one --scenario and the pair's full name.
    #[arg(long, value_name = "SCHEDULE", requires = "systematic")]
    pub schedule: Option<Schedule>,
    /// With --systematic: let a fault strike once in each order of the operations, at the first thing that it meets, then at the
    /// next, up to the fourth. All faults, or those whose name contains a text, such as no-memory; no-memory:3: from the third on.
    #[arg(long, value_name = "FAULT", num_args = 0..=1, default_missing_value = "", requires = "systematic")]
    pub struck: Option<String>,
    /// Instead of random histories, let each fault strike once at every position of a short history of small machines: all
    /// machines and faults, or those whose name contains a text, such as its/message-late.
    #[arg(long, value_name = "NAME", group = "search", num_args = 0..=1, default_missing_value = "",
        conflicts_with_all = ["seeds", "minutes", "seed", "faults", "replay", "without", "set", "shrink", "systematic"])]
    pub single_faults: Option<String>,
    /// Instead of random histories, run each history in several forms whose load must come to the same: messages plain,
    /// remapped and posted, one CPU and many, with and without moderation. All families of forms, or those whose name
    /// contains a text, such as delivery.
    #[arg(long, value_name = "FAMILY", num_args = 0..=1, default_missing_value = "",
        conflicts_with_all = ["minutes", "faults", "replay", "set", "shrink", "scenario", "systematic", "single_faults"])]
    pub metamorphic: Option<String>,
    /// Run one position again. Needs exactly one --scenario and the full name of machine and fault.
    #[arg(long, value_name = "N", requires = "single_faults")]
    pub position: Option<u64>,
    /// Keep histories that reach something new, and make this many of a hundred further ones from those. 0 is the random
    /// search, with the same counts.
    #[arg(long, value_name = "PERCENT", num_args = 0..=1, default_missing_value = "50",
        conflicts_with_all = ["replay", "shrink", "search", "metamorphic"], value_parser = clap::value_parser!(u8).range(0..=100))]
    pub guided: Option<u8>,
    /// Folder of the histories that a guided search keeps. They run first, and the least that reach all of it are written.
    #[arg(long, value_name = "DIR", requires = "guided")]
    pub corpus: Option<PathBuf>,
    /// Most preemptions of a schedule. The default is 2.
    #[arg(long, value_name = "N", requires = "systematic", value_parser = clap::value_parser!(u8).range(0..=4))]
    pub bound: Option<u8>,
    /// Most schedules of a pair, or positions of a machine and fault. The default is 2000.
    #[arg(long, value_name = "N", requires = "search", value_parser = clap::value_parser!(u64).range(1..))]
    pub budget: Option<u64>,
    /// Print scenarios, kinds of fault and kinds of unrest.
    #[arg(long)]
    pub list: bool,
}

/// Why the search could not run, or why its results could not be written.
#[derive(Debug)]
pub enum CheckError {
    /// The input is wrong: the value, and what would be valid.
    Input(String),
    /// A file could not be written.
    Write(PathBuf, std::io::Error),
}

impl std::fmt::Display for CheckError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Input(text) => f.write_str(text),
            Self::Write(path, error) => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for CheckError {}

impl CheckError {
    /// 2 for wrong input, 1 if results could not be written.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Input(_) => 2,
            Self::Write(..) => 1,
        }
    }
}

fn seed(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|error| format!("{error}; valid is 0 to 2^64 - 1, decimal or 0x…"))
}

fn seeds(text: &str) -> Result<u64, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or("valid is 1 or more".into())
}

fn minutes(text: &str) -> Result<Duration, String> {
    let minutes: Option<f64> = text.parse().ok().filter(|minutes| *minutes > 0.0 && *minutes <= 100_000.0);
    minutes.map(|minutes| Duration::from_secs_f64(60.0 * minutes)).ok_or("valid is above 0 to 100000".into())
}

/// Runs the request of `args` on `scenarios`, prints the results, and returns the exit code.
///
/// # Errors
/// Wrong input, or a file that cannot be written.
pub fn execute(args: &CheckArgs, scenarios: &[&'static dyn Scenario]) -> Result<u8, CheckError> {
    execute_with(args, scenarios, |_| None)
}

/// As [`execute`]. `origin` makes the manifest of the JSON file, from the seed of the first history.
///
/// # Errors
/// As [`execute`].
pub fn execute_with(
    args: &CheckArgs,
    scenarios: &[&'static dyn Scenario],
    origin: impl Fn(u64) -> Option<serde_json::Value>,
) -> Result<u8, CheckError> {
    if args.list {
        report::list(scenarios);
        return Ok(0);
    }
    if args.json.as_deref().is_some_and(is_standard_output) {
        report::leave_standard_output();
    }
    let chosen = choose(args, scenarios)?;
    if let Some(pairs) = &args.systematic {
        return systematic::execute(args, &chosen, pairs);
    }
    if let Some(wanted) = &args.single_faults {
        return single::execute(args, &chosen, wanted);
    }
    let recipe = recipe(args, &chosen)?;
    if let Some(wanted) = &args.metamorphic {
        return metamorphic::execute(args, &chosen, recipe, wanted);
    }
    if args.replay.is_none() {
        refuse_numbers(&chosen, &recipe)?;
    }
    match args.replay {
        Some(seed) => replay(args, &chosen, Recipe { seed, ..recipe }),
        None if args.guided.is_some() => guided::execute(args, &guided_of(args, chosen, recipe)),
        None => search(args, chosen, recipe, origin),
    }
}

/// Refuses a number that no machine can have before any history of a search runs: there it would be told as a finding.
fn refuse_numbers(scenarios: &[&'static dyn Scenario], recipe: &Recipe) -> Result<(), CheckError> {
    for scenario in scenarios.iter().filter(|_| !recipe.set.is_empty()) {
        scenario.run(recipe).map_err(|error| CheckError::Input(format!("{}: {error}", scenario.name())))?;
    }
    Ok(())
}

fn choose(args: &CheckArgs, scenarios: &[&'static dyn Scenario]) -> Result<Vec<&'static dyn Scenario>, CheckError> {
    if args.scenario.is_empty() {
        return Ok(scenarios.to_vec());
    }
    let find = |name: &String| {
        let known = || scenarios.iter().map(|scenario| scenario.name()).collect::<Vec<_>>().join(", ");
        let found = scenarios.iter().find(|scenario| scenario.name() == name).copied();
        found.ok_or_else(|| CheckError::Input(format!("--scenario {name}: valid is {}", known())))
    };
    args.scenario.iter().map(find).collect()
}

/// How the option is written.
const RESEED: &str = "--reseed PART=SEED, with machine, load, steps, faults, unrest or the number of an event";

/// The settings that all histories share.
pub(crate) fn recipe(args: &CheckArgs, scenarios: &[&'static dyn Scenario]) -> Result<Recipe, CheckError> {
    let set = pairs("--set NAME=VALUE", &args.set, |name, value| Some((name.into(), value.into())))?;
    let is_part = |part: &str| PARTS.contains(&part) || part.parse::<u32>().is_ok();
    let reseed =
        pairs(RESEED, &args.reseed, |part, text| Some((part.to_owned(), seed(text).ok().filter(|_| is_part(part))?)))?;
    let at = pairs("--at NUMBER=NS", &args.at, |number, ns| Some((number.parse().ok()?, ns.parse().ok()?)))?;
    let keep: Result<BTreeSet<u32>, _> =
        args.keep.iter().filter(|number| *number != "none").map(|n| n.parse()).collect();
    let keep =
        keep.map_err(|error| CheckError::Input(format!("--keep: {error}; valid are numbers of events, or none")))?;
    Ok(Recipe {
        seed: 0,
        set,
        keep: (!args.keep.is_empty()).then_some(keep),
        faults: faults(args, scenarios)?,
        without: without(args)?,
        reseed,
        at,
        ..Recipe::default()
    })
}

/// The pairs of an option.
fn pairs<K: Ord, V>(
    valid: &str,
    given: &[String],
    parse: impl Fn(&str, &str) -> Option<(K, V)>,
) -> Result<BTreeMap<K, V>, CheckError> {
    let one = |pair: &String| {
        let parsed = pair.split_once('=').and_then(|(name, value)| parse(name, value));
        let (option, form) = valid.split_once(' ').unwrap_or((valid, ""));
        parsed.ok_or_else(|| CheckError::Input(format!("{option} {pair}: valid is {form}")))
    };
    given.iter().map(one).collect()
}

fn faults(args: &CheckArgs, scenarios: &[&'static dyn Scenario]) -> Result<Option<BTreeSet<String>>, CheckError> {
    if args.faults.is_empty() || args.faults == ["all"] {
        return Ok(None);
    }
    if args.faults == ["none"] {
        return Ok(Some(BTreeSet::new()));
    }
    let known: BTreeSet<&str> = scenarios.iter().flat_map(|scenario| scenario.fault_kinds()).copied().collect();
    match args.faults.iter().find(|kind| !known.contains(kind.as_str())) {
        Some(kind) if known.is_empty() => {
            Err(CheckError::Input(format!("--faults {kind}: valid is all or none: these scenarios have no faults")))
        }
        Some(kind) => {
            let known: Vec<_> = known.into_iter().collect();
            Err(CheckError::Input(format!("--faults {kind}: valid is all, none, or of {}", known.join(", "))))
        }
        None => Ok(Some(args.faults.iter().cloned().collect())),
    }
}

fn without(args: &CheckArgs) -> Result<BTreeSet<String>, CheckError> {
    let known: Vec<_> = crate::unrest::kinds().collect();
    match args.without.iter().find(|kind| !known.contains(&kind.as_str())) {
        Some(kind) => Err(CheckError::Input(format!("--without {kind}: valid is of {}", known.join(", ")))),
        None => Ok(args.without.iter().cloned().collect()),
    }
}

pub(crate) fn jobs(args: &CheckArgs) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    args.jobs.map_or_else(cores, |jobs| jobs as usize)
}

fn search(
    args: &CheckArgs,
    scenarios: Vec<&'static dyn Scenario>,
    recipe: Recipe,
    origin: impl Fn(u64) -> Option<serde_json::Value>,
) -> Result<u8, CheckError> {
    let campaign = campaign_of(args, scenarios, recipe);
    report::options(&campaign);
    let summary = campaign::run(&campaign);
    report::summary(&summary);
    write_json(args, &document(&summary, origin(campaign.first_seed)))?;
    let Some(found) = summary.failures.first() else { return Ok(0) };
    if found.is_history() {
        show(args, campaign.scenario_of(found), &shortest(args, &campaign, found))?;
    }
    Ok(found.failure.kind.exit_code())
}

fn campaign_of(args: &CheckArgs, scenarios: Vec<&'static dyn Scenario>, recipe: Recipe) -> Campaign {
    let (first_seed, length) = (first_seed(args), length(args));
    let touched = args.touched.clone();
    Campaign { scenarios, first_seed, length, recipe, touched, jobs: jobs(args), stop: Arc::default() }
}

fn guided_of(args: &CheckArgs, scenarios: Vec<&'static dyn Scenario>, recipe: Recipe) -> guided::Search {
    let (seed, length) = (first_seed(args), length(args));
    let mutated = args.guided.unwrap_or(0).into();
    guided::Search { scenarios, seed, length, recipe, mutated, jobs: jobs(args) }
}

fn length(args: &CheckArgs) -> Length {
    match (args.seeds, args.minutes) {
        (_, Some(time)) => Length::Time(time),
        (seeds, None) => Length::Seeds(seeds.unwrap_or(SEEDS_DEFAULT)),
    }
}

/// The seed that was given, or one from the clock.
pub(crate) fn first_seed(args: &CheckArgs) -> u64 {
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_micros() as u64);
    args.seed.unwrap_or_else(clock)
}

fn shortest(args: &CheckArgs, campaign: &Campaign, found: &Found) -> Recipe {
    let scenario = campaign.scenario_of(found);
    match args.no_shrink || found.hangs {
        true => found.recipe.clone(),
        false => shrink::shrink(scenario, &found.recipe, &found.failure, &campaign.stop),
    }
}

/// The campaign that `args` ask for, for a program that runs it or parts of it, and prints nothing.
///
/// # Errors
/// Wrong input, or a request for something other than a search.
pub fn campaign(args: &CheckArgs, scenarios: &[&'static dyn Scenario]) -> Result<Campaign, CheckError> {
    let others = [args.systematic.is_some(), args.single_faults.is_some(), args.metamorphic.is_some()];
    if args.replay.is_some() || args.list || args.guided.is_some() || others.contains(&true) {
        return Err(CheckError::Input(
            "--replay, --list, --guided, --systematic, --single-faults, --metamorphic: are for the command alone"
                .into(),
        ));
    }
    let chosen = choose(args, scenarios)?;
    let recipe = recipe(args, &chosen)?;
    refuse_numbers(&chosen, &recipe)?;
    Ok(campaign_of(args, chosen, recipe))
}

/// What a campaign found.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The JSON of `--json`.
    pub json: String,
    /// The command's.
    pub exit_code: u8,
    /// The line that runs the shortest history that fails, and that history with its failure; none: nothing failed, or the
    /// history does not end.
    pub shortest: Option<(String, String)>,
}

/// Shortens the failure of a campaign that has run. Writes its trace if `--trace` names a file.
///
/// # Errors
/// The trace cannot be written.
pub fn answer(
    args: &CheckArgs,
    campaign: &Campaign,
    summary: &Summary,
    manifest: Option<serde_json::Value>,
) -> Result<Answer, CheckError> {
    let mut answer = Answer { json: document(summary, manifest), exit_code: 0, shortest: None };
    let Some(found) = summary.failures.first() else { return Ok(answer) };
    answer.exit_code = found.failure.kind.exit_code();
    if found.is_history() {
        let scenario = campaign.scenario_of(found);
        let recipe = shortest(args, campaign, found);
        let run = traced(scenario, &recipe)?;
        let replay = campaign::replay_line(scenario.name(), &recipe);
        answer.shortest = Some((replay, report::history(scenario, &recipe, &run)));
        if args.trace != Path::new(TRACE) {
            report::write_trace(&args.trace, &run).map_err(|error| CheckError::Write(args.trace.clone(), error))?;
        }
    }
    Ok(answer)
}

/// Prints a failing history, and writes its trace.
pub(crate) fn show(args: &CheckArgs, scenario: &'static dyn Scenario, recipe: &Recipe) -> Result<(), CheckError> {
    let run = traced(scenario, recipe)?;
    report::say(format_args!("\n{}", report::history(scenario, recipe, &run)));
    report::write_trace(&args.trace, &run).map_err(|error| CheckError::Write(args.trace.clone(), error))?;
    report::say(format_args!("trace: {}", args.trace.display()));
    Ok(())
}

fn traced(scenario: &'static dyn Scenario, recipe: &Recipe) -> Result<Run, CheckError> {
    let traced = Recipe { trace_spans_max: TRACE_SPANS_MAX, ..recipe.clone() };
    scenario.run(&traced).map_err(|error| CheckError::Input(error.to_string()))
}

/// Whether an output is `-`.
fn is_standard_output(path: &Path) -> bool {
    path == Path::new("-")
}

/// The JSON of a search.
pub(crate) fn document<T: serde::Serialize>(summary: &T, manifest: Option<serde_json::Value>) -> String {
    #[derive(serde::Serialize)]
    struct Document<'a, T: serde::Serialize> {
        #[serde(flatten)]
        summary: &'a T,
        #[serde(skip_serializing_if = "Option::is_none")]
        manifest: Option<serde_json::Value>,
    }
    serde_json::to_string_pretty(&Document { summary, manifest }).expect("plain data") + "\n"
}

pub(crate) fn write_json(args: &CheckArgs, text: &str) -> Result<(), CheckError> {
    let Some(path) = &args.json else { return Ok(()) };
    let write = |path: &Path| {
        if is_standard_output(path) {
            let mut out = std::io::stdout().lock();
            return match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
                written => written,
            };
        }
        std::fs::write(path, text)
    };
    write(path).map_err(|error| CheckError::Write(path.clone(), error))
}

#[cfg(test)]
mod tests;

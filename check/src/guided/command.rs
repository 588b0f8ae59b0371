//! The command of the guided search.

use super::{Outcome, Search};
use crate::campaign::{QUIET, replay_line};
use crate::cli::{self, CheckArgs, CheckError};
use crate::history::Recipe;
use crate::report;
use crate::run::Scenario;
use crate::shrink;
use clap::Parser as _;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// A line of a corpus.
#[derive(clap::Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Line {
    #[command(flatten)]
    check: CheckArgs,
}

/// Searches as `args` say.
///
/// # Errors
/// Wrong input, or a file that cannot be read or written.
pub(crate) fn execute(args: &CheckArgs, search: &Search) -> Result<u8, CheckError> {
    let given = match &args.corpus {
        Some(folder) => load(folder, &search.scenarios)?,
        None => BTreeMap::new(),
    };
    let names: Vec<_> = search.scenarios.iter().map(|scenario| scenario.name()).collect();
    report::say(format_args!(
        "guided search from seed {:#x}: {} of 100 histories are made from kept ones, {} jobs; {} given; {}",
        search.seed,
        search.mutated,
        search.jobs,
        given.values().map(Vec::len).sum::<usize>(),
        names.join(", ")
    ));
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    let bar = bar.with_style(ProgressStyle::with_template("{spinner} {elapsed} {msg}").expect("a valid template"));
    let outcome = super::run(search, given, |outcome| progress(&bar, outcome));
    bar.finish_and_clear();
    if let Some(folder) = &args.corpus {
        save(folder, &outcome.kept)?;
    }
    print(&outcome);
    cli::write_json(args, &cli::document(&outcome, None))?;
    for found in outcome.summary.failures.iter().filter(|found| !found.hangs) {
        let scenario = *search.scenarios.iter().find(|scenario| scenario.name() == found.scenario).expect("it ran");
        let shortest = match args.no_shrink {
            true => found.recipe.clone(),
            false => shrink::shrink(scenario, &found.recipe, &found.failure, &AtomicBool::new(false)),
        };
        cli::show(args, scenario, &shortest)?;
    }
    Ok(outcome.summary.failures.first().map_or(0, |found| found.failure.kind.exit_code()))
}

fn progress(bar: &ProgressBar, outcome: &Outcome) {
    if bar.is_hidden() && outcome.summary.seconds > QUIET.as_secs_f64() {
        bar.set_draw_target(ProgressDrawTarget::stderr());
    }
    let (histories, features) = (outcome.summary.histories, sum(outcome, |growth| growth.features));
    bar.set_message(format!("{histories} histories, {features} features, {} kept", sum(outcome, |growth| growth.kept)));
}

fn sum(outcome: &Outcome, of: impl Fn(&super::Growth) -> u64) -> u64 {
    outcome.reached.values().map(of).sum()
}

fn print(outcome: &Outcome) {
    report::summary(&outcome.summary);
    for (scenario, growth) in &outcome.reached {
        let grown: Vec<_> = growth.grown.iter().skip(5).map(|(after, reached)| format!("{after}: {reached}")).collect();
        report::say(format_args!(
            "{scenario:<14} {} histories reached {} features ({} first by one made from a kept one); {} kept, {} of them needed",
            growth.histories,
            growth.features,
            growth.by_mutation,
            growth.kept,
            outcome.kept.get(scenario).map_or(0, Vec::len)
        ));
        report::say(format_args!("{:<14} features after histories: {}", "", grown.join(", ")));
    }
}

fn file_of(folder: &Path, scenario: &str) -> std::path::PathBuf {
    folder.join(format!("{scenario}.txt"))
}

/// The recipes of a folder. A scenario without a file has none.
fn load(folder: &Path, scenarios: &[&'static dyn Scenario]) -> Result<BTreeMap<&'static str, Vec<Recipe>>, CheckError> {
    let mut given = BTreeMap::new();
    for scenario in scenarios {
        let path = file_of(folder, scenario.name());
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(CheckError::Input(format!("{}: {error}", path.display()))),
        };
        given.insert(
            scenario.name(),
            parse(&text, *scenario).map_err(|error| CheckError::Input(format!("{}: {error}", path.display())))?,
        );
    }
    Ok(given)
}

/// The recipes of a corpus: a command that replays one history on each line.
///
/// # Errors
/// The first line that is none for this scenario.
pub fn parse(text: &str, scenario: &'static dyn Scenario) -> Result<Vec<Recipe>, String> {
    let recipe = |(number, line): (usize, &str)| {
        let wrong = |why: String| format!("line {}: {why}", number + 1);
        let expected = replay_line(scenario.name(), &Recipe::of(0));
        let expected = expected.split("check ").next().expect("a command");
        let words = line.strip_prefix(expected).and_then(|rest| rest.strip_prefix("check "));
        let words =
            words.ok_or_else(|| wrong(format!("valid is `{expected}check --scenario {} …`", scenario.name())))?;
        let args = Line::try_parse_from(words.split(' ')).map_err(|error| wrong(error.to_string()))?.check;
        if args.scenario != [scenario.name()] {
            return Err(wrong(format!("valid is --scenario {}", scenario.name())));
        }
        let seed = args.replay.ok_or_else(|| wrong("has no --replay".into()))?;
        let recipe = cli::recipe(&args, &[scenario]).map_err(|error| wrong(error.to_string()))?;
        Ok(Recipe { seed, ..recipe })
    };
    text.lines().enumerate().map(recipe).collect()
}

fn save(folder: &Path, kept: &BTreeMap<&'static str, Vec<String>>) -> Result<(), CheckError> {
    fs::create_dir_all(folder).map_err(|error| CheckError::Write(folder.into(), error))?;
    for (scenario, lines) in kept {
        let path = file_of(folder, scenario);
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        fs::write(&path, text).map_err(|error| CheckError::Write(path, error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_corpus_is_read_as_it_was_written() {
        let recipe = Recipe {
            set: [("cpus".into(), "2".into())].into(),
            without: ["preempt".into()].into(),
            reseed: [("load".into(), 9), ("12".into(), u64::MAX)].into(),
            at: [(4, 1_234)].into(),
            keep: Some([4, 12].into()),
            faults: Some(["storm".to_owned()].into()),
            ..Recipe::of(5)
        };
        let folder = tempfile::tempdir().expect("a folder");
        let kept = [("pc-plain", [&Recipe::of(3), &recipe].map(|recipe| replay_line("pc-plain", recipe)).to_vec())];
        save(folder.path(), &kept.into()).expect("written");
        let read = load(folder.path(), &[&crate::pc::PLAIN, &crate::gic::V2]).expect("valid");
        assert_eq!(read, [("pc-plain", vec![Recipe::of(3), recipe])].into());
    }

    #[test]
    fn a_line_that_is_wrong_is_named() {
        let refused = |text| parse(text, &crate::pc::PLAIN).expect_err("refused");
        assert!(refused("campanile check --scenario pc-plain --replay 1\n\n").starts_with("line 2: valid is "));
        assert!(refused("campanile check --scenario virtio --replay 1").contains("valid is --scenario pc-plain"));
        assert!(refused("campanile check --scenario pc-plain").contains("no --replay"));
        assert!(refused("campanile check --scenario pc-plain --replay 1 --reseed x=1").contains("--reseed x=1: valid"));
    }
}

//! The guided search: a history that reaches something new is kept, and changed into further ones.
//!
//! A share of the histories are those of the random search; the others are made from kept ones, by another seed for a part, an
//! event at another time, a knob of another history, fewer events or less unrest. All are ordinary histories: a recipe of
//! each is a line that `--replay` takes. They are chosen in generations, and a generation is counted in its order, so the same
//! seed and corpus give the same histories on any number of cores.

mod command;
mod corpus;

pub(crate) use command::execute;
pub use command::parse;

use crate::campaign::{self, Found, Length, Summary, replay_line};
use crate::draw::Draw;
use crate::history::Recipe;
use crate::run::{Run, Scenario};
use corpus::Corpus;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::Instant;

/// Histories that are chosen together.
const GENERATION: u64 = 64;

/// What to search.
pub struct Search {
    /// The scenarios.
    pub scenarios: Vec<&'static dyn Scenario>,
    /// Seed of the first history, and of all choices.
    pub seed: u64,
    /// How long.
    pub length: Length,
    /// What all random histories share.
    pub recipe: Recipe,
    /// Histories in a hundred that are made from kept ones.
    pub mutated: u64,
    /// Worker threads.
    pub jobs: usize,
}

/// How much one scenario reached.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Growth {
    /// Histories.
    pub histories: u64,
    /// What they reached.
    pub features: u64,
    /// Histories that are kept.
    pub kept: u64,
    /// Features that a history made from a kept one reached first.
    pub by_mutation: u64,
    /// After how many histories how much was reached.
    pub grown: Vec<(u64, u64)>,
}

/// One scenario's part.
struct Field {
    scenario: &'static dyn Scenario,
    corpus: Corpus,
    growth: Growth,
    /// Recipes to run before any are chosen.
    given: Vec<Recipe>,
    /// Seeds that were used.
    drawn: u64,
    /// What the last generation brought, and generations since.
    yielded: u64,
    waited: u64,
}

impl Field {
    /// The recipes of the next generation. The flag: made from a kept one.
    fn choose(&mut self, search: &Search, generation: u64, most: u64) -> Vec<(Recipe, bool)> {
        if !self.given.is_empty() {
            let count = self.given.len().min(most as usize);
            return self.given.drain(..count).map(|recipe| (recipe, false)).collect();
        }
        let mut draw = Draw::new(search.seed, self.scenario.name(), generation as u32);
        let choose = |_| {
            if !self.corpus.entries.is_empty() && draw.percent(search.mutated) {
                return (self.corpus.mutate(&mut draw), true);
            }
            self.drawn += 1;
            let seed = search.seed.wrapping_add(self.drawn - 1);
            (Recipe { seed, ..search.recipe.clone() }, false)
        };
        (0..most).map(choose).collect()
    }

    fn count(&mut self, recipe: &Recipe, is_mutated: bool, run: Run) {
        let new = self.corpus.add(recipe, run);
        self.yielded += new;
        let growth = &mut self.growth;
        growth.histories += 1;
        growth.by_mutation += if is_mutated { new } else { 0 };
        (growth.features, growth.kept) = (self.corpus.features, self.corpus.entries.len() as u64);
        if growth.histories.is_power_of_two() {
            growth.grown.push((growth.histories, growth.features));
        }
    }
}

/// The result of a guided search.
#[derive(Debug, Default, Serialize)]
pub struct Outcome {
    /// As of any campaign.
    #[serde(flatten)]
    pub summary: Summary,
    /// Recipes that no machine has: a knob without the one on which it depends.
    pub refused: u64,
    /// How much each scenario reached.
    pub reached: BTreeMap<&'static str, Growth>,
    /// The least histories that reach all of it, as lines of the command.
    #[serde(skip)]
    pub kept: BTreeMap<&'static str, Vec<String>>,
}

/// Searches. `given` are recipes of an earlier search, by scenario; they run first.
pub fn run(search: &Search, mut given: BTreeMap<&'static str, Vec<Recipe>>, progress: impl Fn(&Outcome)) -> Outcome {
    let start = Instant::now();
    let field = |&scenario: &&'static dyn Scenario| Field {
        scenario,
        corpus: Corpus::default(),
        growth: Growth::default(),
        given: given.remove(scenario.name()).unwrap_or_default(),
        drawn: 0,
        yielded: 0,
        waited: 0,
    };
    let mut fields: Vec<_> = search.scenarios.iter().map(field).collect();
    let mut outcome = Outcome::default();
    let mut generation = 0;
    while outcome.summary.failures.is_empty() {
        let Some((field, most)) = next(&mut fields, search.length, start) else { break };
        let chosen = field.choose(search, generation, most);
        field.yielded = 0;
        let runs = run_all(field.scenario, &chosen, search.jobs);
        for (index, ((recipe, is_mutated), run)) in (0..).zip(chosen.iter().zip(runs)) {
            let run = match run {
                Some(Ok(run)) => run,
                Some(Err(_)) => {
                    outcome.refused += 1;
                    field.growth.histories += 1;
                    continue;
                }
                None => Run { failure: Some(campaign::hangs()), ..Run::default() },
            };
            note(&mut outcome.summary, field.scenario.name(), index, recipe, &run);
            field.count(recipe, *is_mutated, run);
        }
        generation += 1;
        outcome.summary.measured_over(start.elapsed().as_secs_f64(), search.jobs);
        outcome.reached.insert(field.scenario.name(), field.growth.clone());
        progress(&outcome);
    }
    for field in fields {
        let line = |recipe: &Recipe| replay_line(field.scenario.name(), recipe);
        outcome.kept.insert(field.scenario.name(), field.corpus.least().into_iter().map(line).collect());
    }
    outcome
}

/// The scenario that goes on, and how many histories it may run: in a given time the one that brought most, the longer ago the
/// sooner; else each in turn.
fn next(fields: &mut [Field], length: Length, start: Instant) -> Option<(&mut Field, u64)> {
    fields.iter_mut().for_each(|field| field.waited += 1);
    let (field, most) = match length {
        Length::Time(time) if start.elapsed() >= time => return None,
        Length::Time(_) => {
            let urgency = |field: &&mut Field| (field.yielded + 8) * field.waited * field.waited;
            let untried = fields.iter().position(|field| field.growth.histories == 0);
            let field = match untried {
                Some(index) => &mut fields[index],
                None => fields.iter_mut().max_by_key(urgency)?,
            };
            (field, GENERATION)
        }
        Length::Seeds(seeds) | Length::Part { count: seeds, .. } => {
            let field = fields.iter_mut().min_by_key(|field| field.growth.histories)?;
            let left = seeds.saturating_sub(field.growth.histories);
            (field, left.min(GENERATION))
        }
    };
    field.waited = 0;
    (most > 0).then_some((field, most))
}

/// A failure is told once for each scenario, kind and checker.
fn note(summary: &mut Summary, scenario: &'static str, index: u64, recipe: &Recipe, run: &Run) {
    summary.add(scenario, run);
    let Some(failure) = &run.failure else { return };
    if !summary.failures.iter().any(|found| found.failure.is_like(failure)) {
        let (recipe, failure) = (Recipe { reaches: false, ..recipe.clone() }, failure.clone());
        let hangs = failure.checker == "hang";
        summary.failures.push(Found { index, scenario, recipe, failure, hangs, line: None });
    }
}

/// Runs all of `chosen`, in any order. None: it does not end on the host.
fn run_all(
    scenario: &'static dyn Scenario,
    chosen: &[(Recipe, bool)],
    jobs: usize,
) -> Vec<Option<Result<Run, crate::draw::KnobError>>> {
    let recipes: Arc<Vec<_>> =
        Arc::new(chosen.iter().map(|(recipe, _)| Recipe { reaches: true, ..recipe.clone() }).collect());
    let taken = Arc::new(AtomicUsize::new(0));
    let (results, done) = mpsc::channel();
    for _ in 0..jobs.min(recipes.len()) {
        let (recipes, taken, results) = (recipes.clone(), taken.clone(), results.clone());
        std::thread::spawn(move || {
            while let Some((index, recipe)) =
                Some(taken.fetch_add(1, Relaxed)).and_then(|at| Some((at, recipes.get(at)?)))
            {
                if results.send((index, scenario.run(recipe))).is_err() {
                    return;
                }
            }
        });
    }
    drop(results);
    let mut runs: Vec<_> = chosen.iter().map(|_| None).collect();
    // A worker whose history does not end is left behind.
    while let Ok((index, run)) = done.recv_timeout(campaign::HANG) {
        runs[index] = Some(run);
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(jobs: usize) -> Outcome {
        let search = Search {
            scenarios: vec![&crate::gic::V2, &crate::pc::PLAIN],
            seed: 1,
            length: Length::Seeds(100),
            recipe: Recipe::default(),
            mutated: 50,
            jobs,
        };
        run(&search, BTreeMap::new(), |_| {})
    }

    #[test]
    fn the_same_seed_searches_the_same_on_any_number_of_cores() {
        let (one, two) = (search(1), search(2));
        assert_eq!(one.kept, two.kept);
        assert_eq!((one.summary.histories + one.refused, one.summary.ios), (200, two.summary.ios));
        for growth in one.reached.values() {
            assert!(growth.by_mutation > 0 && growth.features > growth.by_mutation, "{growth:?}");
        }
    }
}

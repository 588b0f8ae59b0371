//! Histories that reached something which no earlier one had, and what can be made of them.

use crate::draw::{Draw, Knob};
use crate::history::{Event, Recipe};
use crate::reach::BITS;
use crate::run::Run;
use std::collections::BTreeMap;

/// Two events that are brought together are at most this far apart.
const APART_NS: u64 = 2_000;
/// Bring-up and end of a history cost about as much as so many commands.
const IOS_OF_REST: u64 = 500;
/// Knobs that say how many events there are. Another number would give the events other numbers.
const COUNTS: [&str; 2] = ["steps", "faults"];

/// A history that was worth keeping.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) recipe: Recipe,
    features: Vec<u32>,
    knobs: Vec<Knob>,
    events: Vec<Event>,
    unrest: Vec<&'static str>,
    /// What it costs to run it again.
    ios: u64,
}

/// The histories of one scenario that were worth keeping.
#[derive(Debug)]
pub(super) struct Corpus {
    pub(super) entries: Vec<Entry>,
    /// How many histories reached each feature.
    hits: Vec<u32>,
    /// Features that were reached.
    pub(super) features: u64,
}

impl Default for Corpus {
    fn default() -> Self {
        Self { entries: Vec::new(), hits: vec![0; 1 << BITS], features: 0 }
    }
}

impl Corpus {
    /// Counts what a history reached, and keeps the history if that is new. Returns how much was new.
    pub(super) fn add(&mut self, recipe: &Recipe, run: Run) -> u64 {
        let before = self.features;
        for &feature in &run.reached {
            let hits = &mut self.hits[feature as usize];
            self.features += u64::from(*hits == 0);
            *hits = hits.saturating_add(1);
        }
        if self.features > before {
            let Run { reached: features, history, ios, .. } = run;
            let recipe = Recipe { reaches: false, ..recipe.clone() };
            let (knobs, events, unrest) = (history.knobs, history.events, history.unrest);
            self.entries.push(Entry { recipe, features, knobs, events, unrest, ios });
        }
        self.features - before
    }

    /// A history made from a kept one.
    ///
    /// # Panics
    /// If none is kept.
    pub(super) fn mutate(&self, draw: &mut Draw) -> Recipe {
        let (one, other) = (self.choose(draw), self.choose(draw));
        let mut recipe = one.recipe.clone();
        loop {
            change(&mut recipe, one, other, draw);
            if draw.percent(60) {
                return recipe;
            }
        }
    }

    /// The one of two whose rarest feature costs less to reach: hits, times the commands of its history.
    fn choose(&self, draw: &mut Draw) -> &Entry {
        let rarest = |entry: &Entry| entry.features.iter().map(|&feature| self.hits[feature as usize]).min();
        let cost = |entry: &Entry| u64::from(rarest(entry).unwrap_or(u32::MAX)) * (entry.ios + IOS_OF_REST);
        let [one, other] = [(); 2].map(|()| draw.pick(&self.entries));
        if cost(one) <= cost(other) { one } else { other }
    }

    /// As few as are needed to reach all that was reached, and cheap ones: the cheapest of each feature, unless one that was
    /// taken before has the feature too.
    pub(super) fn least(&self) -> Vec<&Recipe> {
        let mut cheapest: BTreeMap<u32, usize> = BTreeMap::new();
        for (index, entry) in self.entries.iter().enumerate() {
            for &feature in &entry.features {
                let best = cheapest.entry(feature).or_insert(index);
                if entry.ios < self.entries[*best].ios {
                    *best = index;
                }
            }
        }
        let mut order: Vec<_> =
            cheapest.iter().map(|(feature, index)| (self.hits[*feature as usize], *feature, *index)).collect();
        order.sort_unstable();
        let mut reached = vec![false; self.hits.len()];
        let mut taken = Vec::new();
        for (_, feature, index) in order {
            if !reached[feature as usize] {
                self.entries[index].features.iter().for_each(|&feature| reached[feature as usize] = true);
                taken.push(index);
            }
        }
        taken.sort_unstable();
        taken.into_iter().map(|index| &self.entries[index].recipe).collect()
    }
}

/// Changes one thing. `one` is what `recipe` came from.
fn change(recipe: &mut Recipe, one: &Entry, other: &Entry, draw: &mut Draw) {
    let seed = draw.below(u64::MAX);
    let reseed = |recipe: &mut Recipe, part: &str| {
        recipe.reseed.insert(part.into(), seed);
    };
    match draw.below(100) {
        0..20 => reseed(recipe, "unrest"),
        20..30 => reseed(recipe, "load"),
        30..37 => reseed(recipe, "steps"),
        37..43 => reseed(recipe, "faults"),
        43..48 => reseed(recipe, "machine"),
        48..60 if !one.events.is_empty() => {
            let event = draw.pick(&one.events).number.to_string();
            reseed(recipe, &event);
        }
        60..78 if !one.events.is_empty() => meet(recipe, &one.events, draw),
        78..86 => {
            let knob = draw.pick(&other.knobs);
            if !COUNTS.contains(&knob.name) && one.knobs.iter().any(|own| own.name == knob.name) {
                recipe.set.insert(knob.name.into(), knob.text_of(knob.value));
            }
        }
        86..90 if !one.unrest.is_empty() => {
            recipe.without.insert((*draw.pick(&one.unrest)).into());
        }
        90..95 if !one.events.is_empty() => {
            let less = draw.pick(&one.events).number;
            let all = || one.events.iter().map(|event| event.number).collect();
            recipe.keep.get_or_insert_with(all).remove(&less);
        }
        _ => {
            recipe.reseed.insert("steps".into(), other.recipe.seed_of("steps"));
        }
    }
}

/// Moves an event to the time of another.
fn meet(recipe: &mut Recipe, events: &[Event], draw: &mut Draw) {
    let (one, other) = (draw.pick(events), draw.pick(events));
    let apart = draw.time_ns(1, APART_NS);
    let at_ns = if draw.percent(50) { other.at_ns + apart } else { other.at_ns.saturating_sub(apart) };
    recipe.at.insert(one.number, at_ns);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Scenario as _;

    fn reached(features: &[u32], ios: u64) -> Run {
        Run { reached: features.to_vec(), ios, ..Run::default() }
    }

    #[test]
    fn only_what_is_new_is_kept_and_the_cheapest_are_saved() {
        let mut corpus = Corpus::default();
        assert_eq!(corpus.add(&Recipe::of(1), reached(&[1, 2], 50)), 2);
        assert_eq!(corpus.add(&Recipe::of(2), reached(&[2], 1)), 0);
        assert_eq!(corpus.add(&Recipe::of(3), reached(&[1, 2, 3], 10)), 1);
        assert_eq!((corpus.entries.len(), corpus.features), (2, 3));
        assert_eq!(corpus.least(), [&Recipe::of(3)]);
    }

    #[test]
    fn a_rare_feature_is_chosen_more_often() {
        let mut corpus = Corpus::default();
        corpus.add(&Recipe::of(1), reached(&[1], 1));
        corpus.add(&Recipe::of(2), reached(&[2], 1));
        (0..10).for_each(|_| assert_eq!(corpus.add(&Recipe::of(3), reached(&[1], 1)), 0));
        let mut draw = Draw::new(1, "test", 0);
        let rare = (0..400).filter(|_| corpus.choose(&mut draw).recipe.seed == 2).count();
        assert!((250..350).contains(&rare), "{rare} of 400");
    }

    #[test]
    fn the_same_draws_make_the_same_mutants() {
        let mut corpus = Corpus::default();
        corpus.add(&Recipe::of(1), crate::pc::POSTED.run(&Recipe { reaches: true, ..Recipe::of(1) }).expect("valid"));
        let mutants = |seed| {
            let mut draw = Draw::new(seed, "test", 0);
            (0..50).map(|_| corpus.mutate(&mut draw)).collect::<Vec<_>>()
        };
        assert_eq!(mutants(1), mutants(1));
        assert_ne!(mutants(1), mutants(2));
        assert!(mutants(1).iter().all(|mutant| *mutant != Recipe::of(1) || mutant.keep.is_none()));
    }
}

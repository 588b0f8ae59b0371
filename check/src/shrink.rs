//! The shortest history that still shows a failure.
//!
//! Delta debugging (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", ddmin) over the events,
//! then kinds of unrest one by one, then the machine and its load towards their simplest values; again, until nothing
//! gets simpler. Every candidate is the same seed with something left out.

use crate::history::Recipe;
use crate::run::{Run, Scenario};
use crate::verdict::Failure;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The number of histories that shrinking may run.
const RUNS_MAX: u32 = 400;

/// The shortest history found that fails as `failure` does, up to the time at which `stop` is set.
pub fn shrink(scenario: &dyn Scenario, recipe: &Recipe, failure: &Failure, stop: &AtomicBool) -> Recipe {
    let fails = |candidate: &Recipe| {
        if stop.load(Relaxed) {
            return None;
        }
        let run = scenario.run(candidate).ok()?;
        run.failure.as_ref().is_some_and(|found| found.is_like(failure)).then_some(run)
    };
    Shrinker { fails, runs: 0 }.shrink(recipe.clone())
}

struct Shrinker<F> {
    fails: F,
    runs: u32,
}

impl<F: Fn(&Recipe) -> Option<Run>> Shrinker<F> {
    fn fails(&mut self, recipe: &Recipe) -> Option<Run> {
        if self.runs >= RUNS_MAX {
            return None;
        }
        self.runs += 1;
        (self.fails)(recipe)
    }

    fn shrink(&mut self, mut best: Recipe) -> Recipe {
        let Some(mut run) = self.fails(&best) else { return best };
        loop {
            let before = best.clone();
            let all = run.history.events.iter().map(|event| event.number).collect();
            best = self.shrink_events(best, all);
            best = self.shrink_unrest(best, &run);
            best = self.shrink_knobs(best, &run);
            match self.fails(&best) {
                Some(again) if best != before => run = again,
                _ => return best,
            }
        }
    }

    fn shrink_events(&mut self, best: Recipe, all: BTreeSet<u32>) -> Recipe {
        let with = |keep: BTreeSet<u32>| Recipe { keep: Some(keep), ..best.clone() };
        let kept = ddmin(all.into_iter().collect(), |kept| self.fails(&with(kept.iter().copied().collect())).is_some());
        let candidate = with(kept.into_iter().collect());
        // Without any left out, the history is the same as before.
        if self.fails(&candidate).is_some() { candidate } else { best }
    }

    fn shrink_unrest(&mut self, mut best: Recipe, run: &Run) -> Recipe {
        for kind in &run.history.unrest {
            let mut candidate = best.clone();
            candidate.without.insert((*kind).into());
            if self.fails(&candidate).is_some() {
                best = candidate;
            }
        }
        best
    }

    fn shrink_knobs(&mut self, mut best: Recipe, run: &Run) -> Recipe {
        for knob in &run.history.knobs {
            let mut value = knob.value;
            // Tries the simplest value, then half the way there, again and again.
            let mut next = knob.least;
            while value != next {
                let mut candidate = best.clone();
                candidate.set.insert(knob.name.into(), knob.text_of(next));
                if self.fails(&candidate).is_some() {
                    (best, value) = (candidate, next);
                    next = knob.least;
                    if value == next {
                        break;
                    }
                }
                let middle = value.midpoint(next);
                next = if middle == next { value } else { middle };
            }
        }
        best
    }
}

/// The shortest part of `items` for which `fails` holds, as far as leaving out pieces finds it.
fn ddmin(mut items: Vec<u32>, mut fails: impl FnMut(&[u32]) -> bool) -> Vec<u32> {
    if fails(&[]) {
        return Vec::new();
    }
    let mut pieces = 2;
    while items.len() >= 2 {
        let size = items.len().div_ceil(pieces);
        let without = |skip: usize| -> Vec<u32> {
            items
                .chunks(size)
                .enumerate()
                .filter(|(index, _)| *index != skip)
                .flat_map(|(_, piece)| piece)
                .copied()
                .collect()
        };
        let count = items.len().div_ceil(size);
        match (0..count).map(without).find(|rest| fails(rest)) {
            Some(rest) => {
                items = rest;
                pieces = (pieces - 1).max(2);
            }
            None if size == 1 => break,
            None => pieces = (2 * pieces).min(items.len()),
        }
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ddmin_finds_the_few_that_matter() {
        let all: Vec<u32> = (1..=60).collect();
        let needs = |wanted: &'static [u32]| move |kept: &[u32]| wanted.iter().all(|number| kept.contains(number));
        assert_eq!(ddmin(all.clone(), needs(&[7])), [7]);
        assert_eq!(ddmin(all.clone(), needs(&[3, 31, 59])), [3, 31, 59]);
        assert!(ddmin(all, needs(&[])).is_empty());
    }
}

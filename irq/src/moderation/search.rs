//! One walk through the table, from the lowest level up.

use super::LevelTable;

/// The fewest samples that judge a level. Their median counts, so a few spoiled samples do no harm.
const SAMPLES_MIN: usize = 9;
/// The most samples. More than the fewest are taken while they scatter too much to tell levels apart by one per cent.
const SAMPLES_MAX: usize = 33;
/// A level within this share of the best is as good, in per mille. The search chooses the lowest such level.
const AS_GOOD: u64 = 970;
/// A level below this share of the best is a fall, in per mille. Two falls in a row end the search.
const FALL: u64 = 900;
/// One level below this share of the best ends the search, in per mille.
const COLLAPSE: u64 = 600;
/// A level below this share of the best needs no better measurement, in per mille.
const HOPELESS: u64 = 850;

/// The decision after a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// Measure on at this level.
    More,
    /// Go on to the next level.
    Next,
    /// Stop: no higher level is worth a look.
    Enough,
}

/// The results of the search so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search {
    /// The level under measurement.
    pub(super) level: usize,
    /// Completions per second, by level. 0: not measured.
    rates: [u64; LevelTable::LEVELS_MAX],
    samples: [u64; SAMPLES_MAX],
    taken: usize,
    /// The first median at this level was a fall. The level gets a second chance.
    doubted: Option<u64>,
    best: u64,
    falls: u32,
}

impl Search {
    pub(super) fn new() -> Self {
        Self {
            level: 0,
            rates: [0; LevelTable::LEVELS_MAX],
            samples: [0; SAMPLES_MAX],
            taken: 0,
            doubted: None,
            best: 0,
            falls: 0,
        }
    }

    /// Goes on to `level`.
    pub(super) fn enter(&mut self, level: usize) {
        (self.level, self.taken, self.doubted) = (level, 0, None);
    }

    /// Takes a sample of the present level.
    pub(super) fn sample(&mut self, completions_per_s: u64) -> Verdict {
        self.samples[self.taken] = completions_per_s;
        self.taken += 1;
        let taken = &mut self.samples[..self.taken];
        taken.sort_unstable();
        let (count, median) = (taken.len(), taken[taken.len() / 2]);
        let quartiles = taken[count * 3 / 4] - taken[count / 4];
        let known = count >= SAMPLES_MIN && is_known(count, median, quartiles)
            || count >= SAMPLES_MIN / 2 && self.is_below(median, HOPELESS);
        if !known && count < SAMPLES_MAX {
            return Verdict::More;
        }
        self.taken = 0;
        match self.doubted {
            None if self.is_below(median, FALL) => {
                self.doubted = Some(median);
                Verdict::More
            }
            first => self.judge(median.max(first.unwrap_or(0))),
        }
    }

    /// Records for the present level the rate of level `other`. Returns false when `other` was not measured.
    pub(super) fn same_as(&mut self, other: usize) -> bool {
        self.rates[self.level] = self.rates[other];
        self.rates[other] != 0
    }

    fn is_below(&self, rate: u64, per_mille: u64) -> bool {
        u128::from(rate) * 1_000 < u128::from(self.best) * u128::from(per_mille)
    }

    fn judge(&mut self, rate: u64) -> Verdict {
        self.rates[self.level] = rate;
        self.best = self.best.max(rate);
        self.falls = if self.is_below(rate, FALL) { self.falls + 1 } else { 0 };
        if self.falls >= 2 || self.is_below(rate, COLLAPSE) { Verdict::Enough } else { Verdict::Next }
    }

    /// The lowest level that is as good as the best; none when nothing was measured.
    pub(super) fn choice(&self) -> Option<usize> {
        self.rates.iter().position(|&rate| rate != 0 && !self.is_below(rate, AS_GOOD))
    }
}

/// True if the error of the median of `count` samples is at most one per cent. The error is 0.93 · (distance of the
/// quartiles) / √count for a normal spread.
fn is_known(count: usize, median: u64, quartiles: u64) -> bool {
    let error = u128::from(quartiles).saturating_mul(93);
    error.saturating_mul(error) <= u128::from(median).pow(2).saturating_mul(count as u128)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Half of the fewest samples tell that a level is hopeless, and no fewer do.
    #[test]
    fn a_hopeless_level_is_known_by_half_of_the_samples() {
        let mut search = Search::new();
        let verdicts: std::vec::Vec<_> = (0..SAMPLES_MIN).map(|_| search.sample(1_000)).collect();
        assert_eq!(verdicts.iter().position(|verdict| *verdict != Verdict::More), Some(SAMPLES_MIN - 1));
        search.enter(1);
        for chance in 0..2 {
            for taken in 1..SAMPLES_MIN / 2 {
                assert_eq!((search.sample(500), search.taken), (Verdict::More, taken), "chance {chance}");
            }
            let verdict = search.sample(500);
            assert_eq!((verdict == Verdict::Enough, search.taken), (chance == 1, 0), "a collapse, seen twice");
        }
    }
}

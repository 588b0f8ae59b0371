//! Uneven random offsets: Zipf, Pareto, normal.

use super::random::Random;
use crate::kinds::storage::load::Distribution;

/// Ranges over which Zipf's sum is taken, as in fio.
const EXACT_RANGES: u64 = 10_000_000;
/// Terms of that sum that are added one by one.
const SINGLE_TERMS: u64 = 1_000;
/// Draws whose mean is close to normal.
const NORMAL_DRAWS: u64 = 12;

/// The sum of `k` to the power of `-theta` for `k` from 1 to `count`; `theta` is not 1. The terms behind the first thousand by
/// the formula of Euler and Maclaurin, whose error there is far below that of a float.
fn zeta(count: u64, theta: f64) -> f64 {
    let term = |k: f64| k.powf(-theta);
    let single: f64 = (1..=count.min(SINGLE_TERMS)).map(|k| term(k as f64)).sum();
    if count <= SINGLE_TERMS {
        return single;
    }
    let (first, last) = (SINGLE_TERMS as f64, count as f64);
    let rest = 1.0 - theta;
    let integral = first.powf(rest) * (rest * (last / first).ln()).exp_m1() / rest;
    let slope = |k: f64| theta * term(k) / k;
    let third = |k: f64| (theta + 1.0) * (theta + 2.0) * slope(k) / (k * k);
    single + integral + (term(last) - term(first)) / 2.0 + (slope(first) - slope(last)) / 12.0
        - (third(first) - third(last)) / 720.0
}

/// A distribution over a number of ranges.
pub(super) struct Draw {
    law: Law,
    ranges: u64,
    offset: u64,
    /// Neighbours in the law lie far apart in the file.
    scatters: bool,
    random: Random,
}

enum Law {
    Zipf { theta: f64, zeta2: f64, zetan: f64 },
    Pareto { power: f64 },
    Normal { deviation: u64 },
}

impl Draw {
    /// None for a distribution that is drawn evenly.
    pub(super) fn new(distribution: &Distribution, ranges: u64, seed: u64) -> Option<Self> {
        let mut random = Random::new(seed, false);
        let ranges = ranges.max(1);
        let mut offset = |centre: Option<f64>| {
            let drawn = random.next();
            centre.map_or(drawn, |centre| (ranges as f64 * centre) as u64)
        };
        let (law, offset) = match *distribution {
            Distribution::Zipf(theta, centre) => {
                let zetan = zeta(ranges.min(EXACT_RANGES), theta);
                (Law::Zipf { theta, zeta2: 1.0 + 0.5f64.powf(theta), zetan }, offset(centre))
            }
            Distribution::Pareto(power, centre) => {
                (Law::Pareto { power: power.ln() / (1.0 - power).ln() }, offset(centre))
            }
            Distribution::Normal(percent, centre) => {
                let deviation = (ranges as f64 * percent / 100.0).ceil() as u64;
                let moved =
                    centre.map_or(0, |centre| (ranges as f64 * (centre - 0.5)).rem_euclid(ranges as f64) as u64);
                (Law::Normal { deviation: deviation.min(ranges / 2) }, moved)
            }
            Distribution::Even | Distribution::Zoned(_) | Distribution::ZonedAbsolute(_) => return None,
        };
        Some(Self { law, ranges, offset, scatters: true, random })
    }

    /// The same law, whose neighbours stay neighbours.
    pub(super) fn in_order(self) -> Self {
        Self { scatters: false, ..self }
    }

    /// The next range.
    pub(super) fn next(&mut self) -> u64 {
        let value = match self.law {
            Law::Zipf { theta, zeta2, zetan } => {
                let ranges = self.ranges as f64;
                let alpha = 1.0 / (1.0 - theta);
                let eta = (1.0 - (2.0 / ranges).powf(1.0 - theta)) / (1.0 - zeta2 / zetan);
                let even = self.random.fraction();
                match even * zetan {
                    z if z < 1.0 => 0,
                    z if z < zeta2 => 1,
                    _ => (ranges * (eta * even - eta + 1.0).powf(alpha)) as u64,
                }
            }
            Law::Pareto { power } => ((self.ranges - 1) as f64 * self.random.fraction().powf(power)) as u64,
            Law::Normal { deviation } => {
                let sum: u64 = (0..NORMAL_DRAWS).map(|_| self.random.next() % (self.ranges + 1)).sum();
                let mut value = sum.div_ceil(NORMAL_DRAWS);
                if deviation > 0 {
                    let moved = (deviation as f64 * self.random.fraction()) as u64;
                    value = (value + moved).saturating_sub(deviation / 2);
                }
                value.min(self.ranges - 1)
            }
        };
        let value = if self.scatters { value.wrapping_mul(0x9e37_79b9_7f4a_7c15) } else { value };
        value.wrapping_add(self.offset) % self.ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_long_sum_is_that_of_its_terms() {
        for theta in [0.2, 0.99, 1.000_001, 1.2, 3.0] {
            let terms: f64 = (1..=200_000u64).map(|k| (k as f64).powf(-theta)).sum();
            assert!((zeta(200_000, theta) / terms - 1.0).abs() < 1e-11, "{theta}");
            assert_eq!(zeta(1, theta), 1.0);
        }
    }

    /// The share of the draws that the most frequent tenth of the ranges has.
    fn share_of_hottest_tenth(distribution: &Distribution) -> f64 {
        let mut draw = Draw::new(distribution, 1000, 7).unwrap();
        let mut counts = BTreeMap::<u64, u64>::new();
        (0..20_000).for_each(|_| *counts.entry(draw.next()).or_default() += 1);
        assert!(counts.keys().all(|&range| range < 1000));
        let mut counts: Vec<u64> = counts.into_values().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        counts.iter().take(100).sum::<u64>() as f64 / 20_000.0
    }

    #[test]
    fn laws_are_uneven() {
        assert!(share_of_hottest_tenth(&Distribution::Zipf(1.2, None)) > 0.7);
        assert!(share_of_hottest_tenth(&Distribution::Pareto(0.2, None)) > 0.5);
        assert!(share_of_hottest_tenth(&Distribution::Normal(5.0, None)) > 0.3);
        assert!(Draw::new(&Distribution::Even, 10, 1).is_none());
    }
}

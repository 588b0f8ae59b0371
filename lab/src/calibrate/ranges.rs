//! How far measurements leave a server's constants open: over servers that could have printed them (`explain.rs`).
//!
//! A row may be off by twice the noise: by the measured value's own, and by that of a short run. A row that even the best
//! server misses by more may be off by as much as there.

use super::CalibrateError;
use super::decide::Candidate;
use super::explain::{PRIOR, Sought};
use super::rows::{Anchored, DRIFTING, FreeConstant, Rows};
use crate::interrupt::StopFlag;
use crate::plan::Plan;
use crate::platform::{Platform, Unit};
use crate::published::Row;
use std::collections::BTreeMap;

/// Points that are kept of a region.
pub const POINTS_KEPT: usize = 16;

/// The range of a constant over the region.
#[derive(Clone, PartialEq, Debug)]
pub struct Range {
    /// Its key.
    pub key: String,
    /// Its unit.
    pub unit: Unit,
    /// Its least and its greatest value over the points; none at an end that nothing measured holds.
    pub ends: [Option<f64>; 2],
    /// The factor on its value at each point that is kept.
    pub factors: Vec<f64>,
}

/// How far constants are open.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Open {
    /// Their ranges, in the order of the candidates.
    pub ranges: Vec<Range>,
    /// The constants' values with which a server explains the rows clearly better than the platform as it stands.
    pub better: Option<Vec<(String, f64)>>,
}

impl Range {
    /// The same range, of a constant whose value is this times as large.
    pub fn about(mut self, factor: f64) -> Self {
        self.factors.iter_mut().for_each(|of_point| *of_point /= factor);
        self
    }
}

/// The ranges of constants, at points that lie far apart.
///
/// # Errors
/// A run fails with the platform's own constants; Ctrl-C.
pub fn ranges(
    platform: &Platform,
    candidates: &[Candidate],
    rows: &[Row],
    plans: &BTreeMap<String, Plan>,
    noise: f64,
    stop: &StopFlag,
) -> Result<Open, CalibrateError> {
    let of = |candidate| Some((candidate, FreeConstant::candidate(platform, candidate)?));
    let (candidates, constants): (Vec<&Candidate>, Vec<FreeConstant>) = candidates.iter().filter_map(of).unzip();
    let rows = Rows { rows: rows.to_vec(), plans: plans.clone(), constants: &constants, stop };
    let whole = rows.outcomes(&vec![0.0; constants.len()])?;
    let model = Anchored::with(DRIFTING, rows, &whole)?;
    let homes = candidates.iter().map(|candidate| candidate.home);
    let bounds: Vec<[f64; 2]> =
        constants.iter().zip(homes).map(|(constant, home)| drawn_from(constant, home)).collect();
    let homes: Vec<f64> =
        constants.iter().zip(&candidates).map(|(constant, candidate)| constant.step_to(candidate.home)).collect();
    let found = Sought::new(&model, &bounds, &homes, noise)?.servers(&platform.name)?;
    let better = found.better.as_ref().map(|best| {
        let mut there = platform.clone();
        FreeConstant::move_all(&mut there, constants.iter().zip(best.iter().copied()));
        let is_open = |key: &String| constants.iter().any(|constant| constant.key == *key);
        there.constants().into_iter().filter(|(key, ..)| is_open(key)).map(|(key, _, own)| (key, own.value)).collect()
    });
    let points = with_centre(found.points, bounds.len());
    let kept = spread(&points, POINTS_KEPT);
    let range = |(index, constant): (usize, &FreeConstant)| Range {
        key: constant.key.clone(),
        unit: constant.spec.unit,
        ends: ends(&points, index, bounds[index]).map(|step| step.map(|step| constant.moved(step))),
        factors: kept.iter().map(|&point| points[point][index].exp()).collect(),
    };
    Ok(Open { ranges: constants.iter().enumerate().map(range).collect(), better })
}

/// The steps that a constant is drawn from: those to a third and to three times its home value, and those near where it is.
fn drawn_from(constant: &FreeConstant, home: f64) -> [f64; 2] {
    let home = constant.step_to(home);
    let end = |bound: f64, none: f64| {
        if bound > 0.0 && constant.value > 0.0 { (bound / constant.value).ln() } else { none }
    };
    let [least, most] = [end(constant.spec.min, f64::NEG_INFINITY), end(constant.spec.max, f64::INFINITY)];
    [(home - PRIOR).min(-ABOUT).max(least).min(0.0), (home + PRIOR).max(ABOUT).min(most).max(0.0)]
}

/// A constant whose value is beyond what it is drawn from is drawn from this far about it, too.
const ABOUT: f64 = 0.3;

/// An end this near to the furthest that a constant is moved is held by nothing.
const OPEN: f64 = 0.25;

/// The least and the greatest step of a constant over the points; none at an end that nothing holds. The platform alone, where
/// no server gives the rows back, holds none.
fn ends(points: &[Vec<f64>], index: usize, bounds: [f64; 2]) -> [Option<f64>; 2] {
    let steps = points.iter().map(|point| point[index]);
    let [low, high] = steps.fold([0.0, 0.0], |[low, high], step| [f64::min(low, step), f64::max(high, step)]);
    let end = |step: f64, bound: f64| Some(step).filter(|step| points.len() > 1 && (step - bound).abs() >= OPEN);
    [end(low, bounds[0]), end(high, bounds[1])]
}

/// The platform's own constants and the servers that were found.
fn with_centre(found: Vec<Vec<f64>>, size: usize) -> Vec<Vec<f64>> {
    std::iter::once(vec![0.0; size]).chain(found).collect()
}

/// The indices of `count` points that lie far apart, and far from the first one, which is left out. Distances are in
/// widths of the region.
fn spread(points: &[Vec<f64>], count: usize) -> Vec<usize> {
    let size = points.first().map_or(0, Vec::len);
    let widths: Vec<f64> = (0..size)
        .map(|at| {
            let of = points.iter().map(|point| point[at]);
            let low = of.clone().fold(f64::INFINITY, f64::min);
            (of.fold(f64::NEG_INFINITY, f64::max) - low).max(f64::MIN_POSITIVE)
        })
        .collect();
    let distance = |a: usize, b: usize| -> f64 {
        let apart = points[a].iter().zip(&points[b]).zip(&widths);
        apart.map(|((a, b), width)| ((a - b) / width).powi(2)).sum()
    };
    let mut kept = vec![0];
    while kept.len() <= count && kept.len() < points.len() {
        let nearest = |point: &usize| kept.iter().map(|&other| distance(*point, other)).fold(f64::INFINITY, f64::min);
        let left = (0..points.len()).filter(|point| !kept.contains(point));
        kept.extend(left.max_by(|a, b| nearest(a).total_cmp(&nearest(b))));
    }
    kept.split_off(1)
}

#[cfg(test)]
mod tests {
    use super::super::Model;
    use super::*;

    /// The first constant is held on both sides, the second from below, the third by nothing.
    struct Toy;

    impl Model for Toy {
        fn errors(&self, steps: &[f64]) -> Result<Vec<f64>, CalibrateError> {
            Ok(vec![0.02 + steps[0], f64::min(steps[1] + 0.2, 0.0)])
        }
    }

    #[test]
    fn a_range_is_as_wide_as_the_noise() {
        let bounds = [[-2.0, 2.0]; 3];
        let points =
            with_centre(Sought::new(&Toy, &bounds, &[0.0; 3], 0.03).unwrap().servers("test").unwrap().points, 3);
        let of = |index: usize| ends(&points, index, bounds[index]);
        let [low, high] = of(0).map(Option::unwrap);
        // Servers are moved to errors of -3 to +3 %, and taken up to twice that.
        assert!((-0.0801..-0.03).contains(&low) && (-1e-9..=0.0401).contains(&high), "{low} {high}");
        let [low, high] = of(1);
        assert!(low.is_some_and(|low| (-0.2601..-0.1).contains(&low)) && high.is_none(), "{low:?} {high:?}");
        assert_eq!(of(2), [None; 2]);
        assert_eq!(ends(&points[..1], 0, bounds[0]), [None; 2], "the platform alone");
    }

    #[test]
    fn points_that_lie_apart_are_kept() {
        let points = [[0.0, 0.0], [1.0, 0.0], [0.99, 0.01], [-1.0, 0.0], [0.0, 100.0]].map(Vec::from);
        assert_eq!(spread(&points, 3), [4, 3, 1]);
        assert_eq!(spread(&points, 9).len(), 4);
        assert!(spread(&points[..1], 3).is_empty() && spread(&[], 3).is_empty());
    }
}

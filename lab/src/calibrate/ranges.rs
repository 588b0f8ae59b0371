//! How far measurements leave a server's constants open: over servers that could have printed them (`explain.rs`).
//!
//! A row may be off by the noise more than it is with the platform as it stands; where the model misses a row, the ranges
//! are as much wider.

use super::decide::Candidate;
use super::explain::Sought;
use super::rows::{Anchored, FreeConstant, Rows};
use super::{CalibrateError, Model};
use crate::interrupt::StopFlag;
use crate::plan::Plan;
use crate::platform::{Platform, Unit};
use crate::published::Row;
use std::collections::BTreeMap;

/// Points that are kept of a region.
pub const POINTS_KEPT: usize = 12;

/// The range of a constant over the region.
#[derive(Clone, PartialEq, Debug)]
pub struct Range {
    /// Its key.
    pub key: String,
    /// Another constant with the same factors.
    pub follower: Option<String>,
    /// Its unit.
    pub unit: Unit,
    /// Its least and its greatest value over the points; none at an end that nothing measured holds.
    pub ends: [Option<f64>; 2],
    /// The factor on its value at each point that is kept.
    pub factors: Vec<f64>,
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
) -> Result<Vec<Range>, CalibrateError> {
    let of = |candidate| Some((candidate, FreeConstant::candidate(platform, candidate)?));
    let (candidates, constants): (Vec<&Candidate>, Vec<FreeConstant>) = candidates.iter().filter_map(of).unzip();
    let rows = Rows { rows: rows.to_vec(), plans: plans.clone(), constants: &constants, stop };
    let whole = rows.outcomes(&vec![0.0; constants.len()])?;
    let model = Anchored::new(rows, &whole)?;
    let bounds: Vec<[f64; 2]> = constants.iter().map(FreeConstant::bounds).collect();
    let (bounds, points) = servers(&model, &bounds, noise, &platform.name)?;
    let kept = spread(&points, POINTS_KEPT);
    let range = |(index, constant): (usize, &FreeConstant)| {
        let steps = points.iter().map(|point| point[index]);
        let [low, high] = steps.fold([0.0, 0.0], |[low, high], step| [f64::min(low, step), f64::max(high, step)]);
        let end = |step: f64, bound: f64| ((step - bound).abs() >= OPEN).then(|| constant.moved(step));
        Range {
            key: constant.key.clone(),
            follower: candidates[index].follower.clone(),
            unit: constant.spec.unit,
            ends: [end(low, bounds[index][0]), end(high, bounds[index][1])],
            factors: kept.iter().map(|&point| points[point][index].exp()).collect(),
        }
    };
    Ok(constants.iter().enumerate().map(range).collect())
}

/// An end this near to the furthest that a constant is moved is held by nothing.
const OPEN: f64 = 0.25;

/// The steps that servers may take, and the servers: first the platform's own, then those that were found.
fn servers(model: &dyn Model, bounds: &[[f64; 2]], noise: f64, name: &str) -> Result<Servers, CalibrateError> {
    let sought = Sought::new(model, bounds, noise)?;
    let found = sought.servers(name)?;
    Ok((sought.bounds, std::iter::once(vec![0.0; bounds.len()]).chain(found).collect()))
}

type Servers = (Vec<[f64; 2]>, Vec<Vec<f64>>);

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
    use super::*;

    /// The first constant is held on both sides, the second from below, the third by nothing.
    struct Toy;

    impl Model for Toy {
        fn errors(&self, steps: &[f64]) -> Result<Vec<f64>, CalibrateError> {
            Ok(vec![0.02 + steps[0], f64::min(steps[1] + 0.2, 0.0)])
        }
    }

    #[test]
    fn a_range_is_as_wide_as_the_noise_and_what_the_model_misses() {
        let (bounds, points) = servers(&Toy, &[[-2.0, 2.0]; 3], 0.03, "test").unwrap();
        let ends = |index: usize| {
            let steps = points.iter().map(|point| point[index]);
            steps.fold([0.0, 0.0], |[low, high], step| [f64::min(low, step), f64::max(high, step)])
        };
        let [low, high] = ends(0);
        // The error may go from -5 to +5 %.
        assert!((-0.0701..-0.03).contains(&low) && (-1e-9..=0.0301).contains(&high), "{low} {high}");
        let [low, high] = ends(1);
        assert!((-0.2301..-0.1).contains(&low) && high > bounds[1][1] - OPEN, "{low} {high}");
        let [low, high] = ends(2);
        assert!(low < bounds[2][0] + OPEN && high > bounds[2][1] - OPEN, "{low} {high}");
    }

    #[test]
    fn points_that_lie_apart_are_kept() {
        let points = [[0.0, 0.0], [1.0, 0.0], [0.99, 0.01], [-1.0, 0.0], [0.0, 100.0]].map(Vec::from);
        assert_eq!(spread(&points, 3), [4, 3, 1]);
        assert_eq!(spread(&points, 9).len(), 4);
        assert!(spread(&points[..1], 3).is_empty() && spread(&[], 3).is_empty());
    }
}

//! How far measurements leave constants open: the region of `region.rs`, with the measurements' own noise as its limit.
//!
//! A row may be off by the noise more than it is with the platform as it stands. So the region holds the constants of every
//! server that could have printed these rows; where the model misses a row, it is as much wider.

use super::decide::{Candidate, Part};
use super::region;
use super::rows::{Anchored, FreeConstant, Rows};
use super::{CalibrateError, Model, tried};
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

/// The ranges of those candidates that the rows tell something of, at points that lie far apart.
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
    let (seen, region) = seen_region(&model, &bounds, noise, &platform.name)?;
    let Some(region) = region else { return Ok(Vec::new()) };
    let kept = spread(&region.points, POINTS_KEPT);
    let range = |(at, &index): (usize, &usize)| {
        let constant = &constants[index];
        let joint = region.joint(at);
        let end = |side: usize| {
            let is_open = (joint[side] - bounds[index][side]).abs() < OPEN;
            (!is_open).then(|| constant.moved(joint[side]))
        };
        Range {
            key: constant.key.clone(),
            follower: candidates[index].follower.clone(),
            unit: constant.spec.unit,
            ends: [end(0), end(1)],
            factors: kept.iter().map(|&point| region.points[point][at].exp()).collect(),
        }
    };
    Ok(seen.iter().enumerate().map(range).collect())
}

/// An end of the region this near to the furthest that a constant is moved is held by nothing.
const OPEN: f64 = 0.05;

/// The constants that rows see, and their region. A constant that changes no row by more than the noise, however far it is
/// moved, is left where it is: nothing that was measured tells it.
fn seen_region(
    model: &dyn Model,
    bounds: &[[f64; 2]],
    noise: f64,
    name: &str,
) -> Result<(Vec<usize>, Option<region::Region>), CalibrateError> {
    let still = vec![0.0; bounds.len()];
    let centre = model.errors(&still)?;
    let mut seen = Vec::new();
    for index in 0..bounds.len() {
        let changes = |step: f64| {
            let mut steps = still.clone();
            steps[index] = step;
            let moved = tried(model.errors(&steps))?;
            let is_changed = |moved: Vec<f64>| moved.iter().zip(&centre).any(|(now, then)| (now - then).abs() > noise);
            Ok::<bool, CalibrateError>(moved.is_none_or(is_changed))
        };
        if changes(bounds[index][0])? || changes(bounds[index][1])? {
            seen.push(index);
        }
    }
    let part = Part { model, at: &still, chosen: &seen };
    let of_seen: Vec<[f64; 2]> = seen.iter().map(|&index| bounds[index]).collect();
    let mut region = region::find_within(&part, &of_seen, |error| error.abs() + noise, name)?;
    if let Some(region) = &mut region {
        // A limit that holds on one side alone is far from linear: the ends that were run are points too.
        let alone = region.alone.iter().enumerate().flat_map(|(at, ends)| ends.iter().map(move |end| (at, end.step)));
        let point = |(at, step)| (0..seen.len()).map(|other| if other == at { step } else { 0.0 }).collect();
        region.points.extend(alone.map(point).collect::<Vec<Vec<f64>>>());
    }
    Ok((seen, region))
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
        let bounds = [[-region::LOG_MAX, region::LOG_MAX]; 3];
        let (seen, region) = seen_region(&Toy, &bounds, 0.03, "test").unwrap();
        assert_eq!(seen, [0, 1]);
        let region = region.unwrap();
        let [low, high] = region.joint(0);
        // The error may go from -5 to +5 %.
        assert!((-0.0701..-0.066).contains(&low) && (0.028..=0.0301).contains(&high), "{low} {high}");
        let [low, high] = region.joint(1);
        assert!((-0.2301..-0.22).contains(&low) && high > region::LOG_MAX - OPEN, "{low} {high}");
    }

    #[test]
    fn points_that_lie_apart_are_kept() {
        let points = [[0.0, 0.0], [1.0, 0.0], [0.99, 0.01], [-1.0, 0.0], [0.0, 100.0]].map(Vec::from);
        assert_eq!(spread(&points, 3), [4, 3, 1]);
        assert_eq!(spread(&points, 9).len(), 4);
        assert!(spread(&points[..1], 3).is_empty() && spread(&[], 3).is_empty());
    }
}

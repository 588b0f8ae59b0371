//! The region of the constants in which every fitted row stays within the tolerance.
//!
//! 1. Each constant alone is moved until a row leaves the tolerance: by runs, closing in on the place.
//! 2. Between the two ends of each constant every row is taken as linear. The rows' limits then enclose a polytope:
//!    its furthest points along each constant, and points drawn inside it, are candidates.
//! 3. Candidates are run. Those whose rows all stay within the tolerance are points of the region.

use super::linear::Polytope;
use super::{CalibrateError, Model, tried};
use crate::progress::Progress;
use machine::Stream;
use rayon::prelude::*;

/// The error that a fitted row may have: 2 %, of a share 2 points.
pub const TOLERANCE: f64 = 0.02;
/// Points that a region is represented by, at least.
pub const POINTS_MIN: usize = 30;
/// The furthest that a constant is moved: to a quarter and to four times its value.
pub(super) const LOG_MAX: f64 = std::f64::consts::LN_2 * 2.0;

/// Candidates that are tried before a region counts as having fewer points.
const TRIED_MAX: usize = 240;
/// Candidates in one batch.
const BATCH: usize = 40;
/// A constant's end is known as exactly as this share of its distance...
const CLOSE_RELATIVE: f64 = 0.03;
/// ... or as this change of the logarithm, a tenth of a per cent.
const CLOSE: f64 = 0.001;
/// Most runs that close in on one end.
const RUNS_MAX: u32 = 12;
/// The first move, if nothing is known of the rows.
const FIRST: f64 = 0.02;
/// The shares of the way to a furthest point that are tried, until one is in the region.
const PULLED_BACK: [f64; 5] = [1.0, 0.9, 0.75, 0.55, 0.3];
/// The seed of the drawn points.
const SEED: u64 = 1;

/// The limit that ends a constant's interval on one side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Held {
    /// This row leaves the tolerance, by its index.
    Row(usize),
    /// A run fails beyond.
    Failure,
    /// Nothing up to the constant's own bounds, or to a quarter or four times its value.
    Nothing,
}

/// One end of the interval in which a constant alone may move.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct End {
    /// The furthest move of its logarithm with which all rows were within the tolerance.
    pub step: f64,
    /// The rows' errors there.
    pub errors: Vec<f64>,
    /// The limit beyond.
    pub held: Held,
}

/// A region. Steps are changes of the constants' logarithms.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Region {
    /// For each constant, the lower and the upper end of its interval when it moves alone.
    pub alone: Vec<[End; 2]>,
    /// Steps of all constants with which every row was within the tolerance. The first is the centre.
    pub points: Vec<Vec<f64>>,
    /// Candidates that were run.
    pub tried: usize,
}

impl Region {
    /// The least and the greatest step of a constant over the points.
    pub(super) fn joint(&self, constant: usize) -> [f64; 2] {
        let steps = self.points.iter().map(|point| point[constant]);
        steps.fold([0.0, 0.0], |[low, high], step| [f64::min(low, step), f64::max(high, step)])
    }

    /// For each row, the change of its error for a change of the constant's logarithm, between the two ends.
    pub(super) fn slopes(&self, constant: usize) -> Vec<f64> {
        let [low, high] = &self.alone[constant];
        let width = high.step - low.step;
        let slope = |(high, low): (&f64, &f64)| if width > 0.0 { (high - low) / width } else { 0.0 };
        high.errors.iter().zip(&low.errors).map(slope).collect()
    }
}

/// Finds the region round a model's centre; `bounds` are the least and the greatest step of each constant. None if a
/// row is outside the tolerance at the centre.
///
/// # Errors
/// A run fails at the centre, or Ctrl-C.
pub(super) fn find(model: &dyn Model, bounds: &[[f64; 2]], name: &str) -> Result<Option<Region>, CalibrateError> {
    find_within(model, bounds, |_| TOLERANCE, name)
}

/// As [`find`]; `limit` gives the size of the error that a row may have, from its error at the centre.
///
/// # Errors
/// As [`find`].
pub(super) fn find_within(
    model: &dyn Model,
    bounds: &[[f64; 2]],
    limit: impl Fn(f64) -> f64,
    name: &str,
) -> Result<Option<Region>, CalibrateError> {
    let size = bounds.len();
    let centre = model.errors(&vec![0.0; size])?;
    let limits: Vec<f64> = centre.iter().map(|error| limit(*error)).collect();
    let search = Search { model, bounds, centre: &centre, limits: &limits };
    if !search.is_inside(&centre) {
        return Ok(None);
    }
    let progress = Progress::new(2 * size as u64, &format!("{name}: each constant alone"));
    let ends: Result<Vec<End>, CalibrateError> = (0..2 * size)
        .into_par_iter()
        .map(|at| {
            let end = search.end(at / 2, if at % 2 == 0 { -1.0 } else { 1.0 });
            progress.step();
            end
        })
        .collect();
    let mut ends = ends?.into_iter();
    let alone: Vec<[End; 2]> = std::iter::from_fn(|| Some([ends.next()?, ends.next()?])).collect();
    let mut region = Region { alone, points: vec![vec![0.0; size]], tried: 0 };
    if size > 0 {
        search.fill(&mut region, name)?;
    }
    Ok(Some(region))
}

struct Search<'a> {
    model: &'a dyn Model,
    bounds: &'a [[f64; 2]],
    centre: &'a [f64],
    /// The size of the error that each row may have.
    limits: &'a [f64],
}

impl Search<'_> {
    fn is_inside(&self, errors: &[f64]) -> bool {
        errors.iter().zip(self.limits).all(|(error, limit)| error.abs() <= *limit)
    }

    /// The row that is furthest outside.
    fn worst(&self, errors: &[f64]) -> Option<usize> {
        let size = |row: usize| {
            if errors[row].is_finite() { errors[row].abs() / self.limits[row] } else { f64::INFINITY }
        };
        (0..errors.len()).max_by(|&a, &b| size(a).total_cmp(&size(b)))
    }

    fn size(&self) -> usize {
        self.bounds.len()
    }

    /// The rows' errors with one constant moved; None if a run fails.
    fn moved(&self, constant: usize, step: f64) -> Result<Option<Vec<f64>>, CalibrateError> {
        let steps: Vec<f64> = (0..self.size()).map(|at| if at == constant { step } else { 0.0 }).collect();
        tried(self.model.errors(&steps))
    }

    /// Moves one constant to the `side` (-1 or 1) until a row leaves the tolerance, and closes in on that place.
    fn end(&self, constant: usize, side: f64) -> Result<End, CalibrateError> {
        let furthest = self.bounds[constant][usize::from(side > 0.0)].abs();
        let mut inside = (0.0, self.centre.to_vec());
        let mut outside: Option<(f64, Held, Option<Vec<f64>>)> = None;
        let mut next = FIRST.min(furthest);
        for _ in 0..RUNS_MAX {
            let is_close = |limit: f64| limit - inside.0 <= f64::max(CLOSE, CLOSE_RELATIVE * limit);
            if inside.0 >= furthest || outside.as_ref().is_some_and(|(limit, ..)| is_close(*limit)) {
                break;
            }
            match self.moved(constant, side * next)? {
                Some(errors) if self.is_inside(&errors) => inside = (next, errors),
                Some(errors) => {
                    let held = self.worst(&errors).map_or(Held::Nothing, Held::Row);
                    outside = Some((next, held, Some(errors)));
                }
                None => outside = Some((next, Held::Failure, None)),
            }
            next = self.next(&inside, outside.as_ref(), furthest);
        }
        let held = outside.map_or(Held::Nothing, |(_, held, _)| held);
        Ok(End { step: side * inside.0, errors: inside.1, held })
    }

    /// The next place to look at: where a straight line through what is known leaves the tolerance, but never within a
    /// tenth of a known place.
    fn next(&self, inside: &(f64, Vec<f64>), outside: Option<&(f64, Held, Option<Vec<f64>>)>, furthest: f64) -> f64 {
        match outside {
            Some((limit, _, Some(errors))) => {
                let share =
                    inside.1.iter().zip(errors).zip(self.limits).filter(|((_, out), limit)| out.abs() > **limit);
                let share = share.map(|((within, out), limit)| (limit.copysign(*out) - within) / (out - within));
                let share = share.fold(1.0, f64::min).clamp(0.1, 0.9);
                inside.0 + share * (limit - inside.0)
            }
            Some((limit, ..)) => f64::midpoint(inside.0, *limit),
            None => {
                let leaves = inside.1.iter().zip(self.centre).zip(self.limits).filter_map(|((now, then), limit)| {
                    let speed = (now - then) / inside.0;
                    (speed.abs() > 1e-9).then(|| inside.0 + (limit.copysign(speed) - now) / speed)
                });
                let line = leaves.fold(f64::INFINITY, f64::min) * 1.1;
                line.clamp(inside.0 * 1.5, inside.0 * 8.0).min(furthest)
            }
        }
    }

    /// Runs candidates until the region has its points.
    fn fill(&self, region: &mut Region, name: &str) -> Result<(), CalibrateError> {
        let (polytope, widths) = self.polytope(region);
        let progress = Progress::new((2 * self.size() + TRIED_MAX) as u64, &format!("{name}: points of the region"));
        let corners: Result<Vec<_>, CalibrateError> = (0..2 * self.size())
            .into_par_iter()
            .map(|at| {
                let side = if at % 2 == 0 { -1.0 } else { 1.0 };
                let direction: Vec<f64> =
                    (0..self.size()).map(|other| if other == at / 2 { side } else { 0.0 }).collect();
                let found = self.pulled_back(&polytope.furthest(&direction));
                progress.step();
                found
            })
            .collect();
        for (point, tried) in corners? {
            region.tried += tried;
            region.points.extend(point);
        }
        let mut random = Stream::new(SEED, 0);
        while region.points.len() < POINTS_MIN.max(4 * self.size() + 2) + 1 && region.tried < TRIED_MAX {
            let candidates = polytope.draw(BATCH, &widths, &mut random);
            let judged: Result<Vec<bool>, CalibrateError> = candidates
                .par_iter()
                .map(|steps| {
                    let errors = tried(self.model.errors(steps))?;
                    progress.step();
                    Ok(errors.is_some_and(|errors| self.is_inside(&errors)))
                })
                .collect();
            region.tried += candidates.len();
            let kept = candidates.into_iter().zip(judged?).filter(|(_, is_kept)| *is_kept);
            region.points.extend(kept.map(|(steps, _)| steps));
        }
        Ok(())
    }

    /// The linear region, and its size along each constant.
    fn polytope(&self, region: &Region) -> (Polytope, Vec<f64>) {
        let slopes: Vec<Vec<f64>> = (0..self.size()).map(|constant| region.slopes(constant)).collect();
        let mut polytope = Polytope::of_box(self.bounds);
        for (row, (centre, limit)) in self.centre.iter().zip(self.limits).enumerate() {
            let normal: Vec<f64> = slopes.iter().map(|of_constant| of_constant[row]).collect();
            polytope.limit(normal.iter().map(|slope| -slope).collect(), limit + centre);
            polytope.limit(normal, limit - centre);
        }
        let widths = region.alone.iter().map(|[low, high]| (high.step - low.step).max(CLOSE)).collect();
        (polytope, widths)
    }

    /// The furthest place on the way to `corner` that is in the region, and how many were tried.
    fn pulled_back(&self, corner: &[f64]) -> Result<(Option<Vec<f64>>, usize), CalibrateError> {
        for (count, share) in PULLED_BACK.iter().enumerate() {
            let steps: Vec<f64> = corner.iter().map(|step| step * share).collect();
            if tried(self.model.errors(&steps))?.is_some_and(|errors| self.is_inside(&errors)) {
                return Ok((Some(steps), count + 1));
            }
        }
        Ok((None, PULLED_BACK.len()))
    }
}

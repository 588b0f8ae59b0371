//! Servers that could have printed the rows.
//!
//! Before anything is measured, a constant may be from a third to three times its value. A server is drawn from that, all
//! constants at once, and then moved until it gives the rows back, each row to another value within the noise: Gauss–Newton
//! steps that leave alone what the rows do not see. So two explanations of one row are both found, if drawn servers lead
//! to both, and what the rows cannot tell keeps the spread of the draws.

use super::linear::{dot, eliminate, unit};
use super::{CalibrateError, Model, tried};
use crate::progress::Progress;
use machine::Stream;
use rayon::prelude::*;

/// A constant that nothing tells may be a third of its value or three times as much: the change of its logarithm.
pub(super) const PRIOR: f64 = 1.098_612_288_668_109_8;
/// Servers that are drawn.
pub(super) const DRAWN: usize = 12;
/// The variance of a change that is equally likely up to [`PRIOR`] on both sides.
const VARIANCE: f64 = PRIOR * PRIOR / 3.0;
/// The move that measures a constant's effect.
const PROBE: f64 = 0.2;
/// Times that a server's own slopes are taken, where those of the centre do not lead to the rows.
const OWN_SLOPES: u32 = 3;
/// Steps with the same slopes.
const STEPS: u32 = 2;
/// The greatest change of a constant in one step.
const STEP_MAX: f64 = 0.7;
/// Where no step leads to the rows, shares of the way to the nearest server that are tried.
const PULLED_BACK: [f64; 3] = [0.7, 0.45, 0.2];
/// The seed of the draws.
const SEED: u64 = 1;

/// The rows' change with each constant.
type Slopes = Vec<Vec<f64>>;

/// What is sought.
pub(super) struct Sought<'a> {
    model: &'a dyn Model,
    /// The least and the greatest step of each constant.
    pub bounds: Vec<[f64; 2]>,
    /// The rows' errors at the centre.
    centre: Vec<f64>,
    /// A row may be off by so much more than at the centre.
    noise: f64,
}

impl<'a> Sought<'a> {
    /// # Errors
    /// A run fails at the centre; Ctrl-C.
    pub(super) fn new(model: &'a dyn Model, bounds: &[[f64; 2]], noise: f64) -> Result<Self, CalibrateError> {
        let centre = model.errors(&vec![0.0; bounds.len()])?;
        let bounds = bounds.iter().map(|[low, high]| [low.max(-PRIOR), high.min(PRIOR)]).collect();
        Ok(Self { model, bounds, centre, noise })
    }

    /// The servers that were found, as steps of the constants.
    ///
    /// # Errors
    /// Ctrl-C.
    pub(super) fn servers(&self, name: &str) -> Result<Vec<Vec<f64>>, CalibrateError> {
        let progress = Progress::new((self.size() + DRAWN) as u64, &format!("{name}: servers that fit"));
        let slopes: Result<Slopes, CalibrateError> = (0..self.size())
            .into_par_iter()
            .map(|index| {
                let slope = self.slope(&vec![0.0; self.size()], &self.centre, index, true);
                progress.step();
                slope
            })
            .collect();
        let slopes = slopes?;
        let seen: Result<Vec<bool>, CalibrateError> =
            (0..self.size()).into_par_iter().map(|index| self.is_seen(index, &slopes[index])).collect();
        let seen = seen?;
        let drawn = self.drawn();
        let found: Result<Vec<_>, CalibrateError> = (0..DRAWN)
            .into_par_iter()
            .map(|index| {
                let server = self.server(&drawn[index], &self.target(index as u64), &slopes, &seen);
                progress.step();
                server
            })
            .collect();
        Ok(found?.into_iter().flatten().collect())
    }

    fn size(&self) -> usize {
        self.bounds.len()
    }

    /// True if each row is off by no more than the noise and what the centre misses.
    fn fits(&self, errors: &[f64]) -> bool {
        errors.iter().zip(&self.centre).all(|(error, centre)| error.abs() <= centre.abs() + self.noise)
    }

    /// The rows' change with a constant at a place, from one side or from both. Exactly zero for one that no run comes to.
    fn slope(&self, at: &[f64], errors: &[f64], index: usize, both: bool) -> Result<Vec<f64>, CalibrateError> {
        let probed = |by: f64| {
            let mut steps = at.to_vec();
            steps[index] = self.within(index, steps[index] + by);
            let moved = steps[index] - at[index];
            let found = if moved == 0.0 { None } else { tried(self.model.errors(&steps))? };
            Ok::<_, CalibrateError>(found.map_or_else(|| (0.0, errors.to_vec()), |found| (moved, found)))
        };
        let (high, above) = probed(PROBE)?;
        let is_still = high > 0.0 && above == errors;
        let (low, below) = if is_still || (high > 0.0 && !both) { (0.0, errors.to_vec()) } else { probed(-PROBE)? };
        let width = if is_still { 0.0 } else { high - low };
        let slope = |(above, below): (&f64, &f64)| if width > 0.0 { (above - below) / width } else { 0.0 };
        Ok(above.iter().zip(&below).map(slope).collect())
    }

    /// True if a row changes with a constant, near by or at the ends of its range: a limit may be far.
    fn is_seen(&self, index: usize, slope: &[f64]) -> Result<bool, CalibrateError> {
        if slope.iter().any(|change| *change != 0.0) {
            return Ok(true);
        }
        for end in self.bounds[index] {
            let mut steps = vec![0.0; self.size()];
            steps[index] = end;
            if end != 0.0 && tried(self.model.errors(&steps))?.is_none_or(|errors| errors != self.centre) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn within(&self, index: usize, step: f64) -> f64 {
        let [low, high] = self.bounds[index];
        step.clamp(low, high)
    }

    /// Servers of which nothing is known: each constant stands once in each of as many equal parts of its range as there
    /// are servers.
    fn drawn(&self) -> Vec<Vec<f64>> {
        let mut drawn = vec![vec![0.0; self.size()]; DRAWN];
        for (index, [low, high]) in self.bounds.iter().enumerate() {
            let mut random = Stream::new(SEED, index as u64);
            let mut parts: Vec<usize> = (0..DRAWN).collect();
            for at in (1..DRAWN).rev() {
                parts.swap(at, (unit(&mut random) * (at + 1) as f64) as usize);
            }
            for (server, part) in drawn.iter_mut().zip(parts) {
                server[index] = low + (high - low) * (part as f64 + unit(&mut random)) / DRAWN as f64;
            }
        }
        drawn
    }

    /// Errors that a server's rows are moved to: within the noise, and what the centre misses beyond it.
    fn target(&self, server: u64) -> Vec<f64> {
        let mut random = Stream::new(SEED, 1 << 32 | server);
        let missed = |error: f64| (error.abs() - self.noise).max(0.0).copysign(error);
        self.centre.iter().map(|error| missed(*error) + self.noise * (2.0 * unit(&mut random) - 1.0)).collect()
    }

    /// Moves a drawn server until it gives the rows back. None if no way was found.
    fn server(
        &self,
        drawn: &[f64],
        target: &[f64],
        of_centre: &Slopes,
        seen: &[bool],
    ) -> Result<Option<Vec<f64>>, CalibrateError> {
        let mut at = self.moved(&vec![0.0; self.size()], drawn, target, &self.centre, of_centre, f64::INFINITY);
        let mut slopes = of_centre.clone();
        let mut nearest: Option<(f64, Vec<f64>)> = None;
        for turn in 0..=OWN_SLOPES {
            for _ in 0..=STEPS {
                let Some(errors) = tried(self.model.errors(&at))? else {
                    at.iter_mut().for_each(|step| *step /= 2.0);
                    continue;
                };
                if self.fits(&errors) {
                    return Ok(Some(at));
                }
                let off: f64 = errors.iter().zip(target).map(|(error, target)| (error - target).powi(2)).sum();
                if nearest.as_ref().is_none_or(|(least, _)| off < *least) {
                    nearest = Some((off, at.clone()));
                }
                at = self.moved(&at, drawn, target, &errors, &slopes, STEP_MAX);
            }
            let Some((_, place)) = nearest.as_ref().filter(|_| turn < OWN_SLOPES) else { break };
            at.clone_from(place);
            let errors = self.model.errors(&at)?;
            for index in (0..self.size()).filter(|&index| seen[index]) {
                slopes[index] = self.slope(&at, &errors, index, false)?;
            }
            at = self.moved(&at, drawn, target, &errors, &slopes, STEP_MAX);
        }
        self.pulled_back(nearest)
    }

    /// The server after a step to the target: of all servers that a linear model takes there, the nearest to the drawn one.
    fn moved(&self, at: &[f64], drawn: &[f64], target: &[f64], errors: &[f64], slopes: &Slopes, most: f64) -> Vec<f64> {
        let rows = target.len();
        let away: Vec<f64> = at.iter().zip(drawn).map(|(at, drawn)| at - drawn).collect();
        let of_row = |row: usize| slopes.iter().map(move |slope| slope[row]);
        let line = |row: usize| {
            let product = |other: usize| {
                let noise = if row == other { self.noise * self.noise } else { 0.0 };
                VARIANCE * of_row(row).zip(of_row(other)).map(|(a, b)| a * b).sum::<f64>() + noise
            };
            let along: f64 = of_row(row).zip(&away).map(|(slope, away)| slope * away).sum();
            (0..rows).map(product).chain([target[row] - errors[row] + along]).collect()
        };
        let weights = eliminate((0..rows).map(line).collect());
        let step = |index: usize| {
            let to = drawn[index] + VARIANCE * dot(&slopes[index], &weights);
            self.within(index, at[index] + (to - at[index]).clamp(-most, most))
        };
        (0..self.size()).map(step).collect()
    }

    /// The furthest place on the way to the nearest server that gives the rows back.
    fn pulled_back(&self, nearest: Option<(f64, Vec<f64>)>) -> Result<Option<Vec<f64>>, CalibrateError> {
        let Some((_, place)) = nearest else { return Ok(None) };
        for share in PULLED_BACK {
            let steps: Vec<f64> = place.iter().map(|step| step * share).collect();
            if tried(self.model.errors(&steps))?.is_some_and(|errors| self.fits(&errors)) {
                return Ok(Some(steps));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One limit of two rates, a sum of two times, and a constant that nothing sees.
    struct Toy;

    impl Model for Toy {
        fn errors(&self, steps: &[f64]) -> Result<Vec<f64>, CalibrateError> {
            let [a, b, c, d, _] = steps else { panic!("{steps:?}") };
            let limit = f64::max(a.exp(), 0.8 * b.exp());
            Ok(vec![limit - 1.0, (c.exp() + d.exp()) / 2.0 - 1.0])
        }
    }

    fn servers() -> Vec<Vec<f64>> {
        let bounds = [[-2.0, 2.0]; 5];
        let sought = Sought::new(&Toy, &bounds, 0.03).unwrap();
        sought.servers("test").unwrap()
    }

    #[test]
    fn every_server_gives_the_rows_back() {
        let found = servers();
        assert!(found.len() >= DRAWN - 2, "{}", found.len());
        for server in &found {
            assert!(Toy.errors(server).unwrap().iter().all(|error| error.abs() <= 0.03), "{server:?}");
        }
    }

    #[test]
    fn both_explanations_of_one_limit_are_found() {
        let found = servers();
        let by_first = found.iter().filter(|server| server[0].exp() > 0.96).count();
        let by_second = found.iter().filter(|server| 0.8 * server[1].exp() > 0.96 && server[0] < -0.2).count();
        assert!(by_first >= 2 && by_second >= 2, "{by_first} and {by_second} of {}", found.len());
    }

    #[test]
    fn what_the_rows_do_not_see_keeps_its_spread() {
        let found = servers();
        let spread = |index: usize| {
            let steps = found.iter().map(|server| server[index]);
            [steps.clone().fold(f64::INFINITY, f64::min), steps.fold(f64::NEG_INFINITY, f64::max)]
        };
        let [low, high] = spread(4);
        assert!(low < -0.8 * PRIOR && high > 0.8 * PRIOR, "{low} {high}");
        // Each of the two times may take most of the sum.
        let [low, high] = spread(2);
        assert!(low < -0.5 && high > 0.4, "{low} {high}");
    }
}

//! Servers that could have printed the rows.
//!
//! Before anything is measured, a constant may be from a third to three times its home value. A server is drawn from that,
//! all constants at once, and then moved until it gives the rows back, each row to another value within the noise:
//! Gauss–Newton steps that leave alone what the rows do not see (a randomised maximum likelihood). So two explanations of
//! one row are both found, if drawn servers lead to both, and what the rows cannot tell keeps the spread of the draws.
//!
//! Half of the servers begin near the centre, with its slopes; the others begin where they were drawn, with their own, so that
//! a centre that is wrong does not hold all of them. Each run mends the slopes along the step that was taken (Broyden).

use super::linear::{dot, eliminate, unit};
use super::{CalibrateError, Model, tried};
use crate::progress::Progress;
use machine::Stream;
use rayon::prelude::*;

/// A constant that nothing tells may be a third of its value or three times as much: the change of its logarithm.
pub(super) const PRIOR: f64 = 1.098_612_288_668_109_8;
/// Servers that are drawn.
pub(super) const DRAWN: usize = 16;
/// The variance of a change that is equally likely up to [`PRIOR`] on both sides.
const VARIANCE: f64 = PRIOR * PRIOR / 3.0;
/// The move that measures a constant's effect.
const PROBE: f64 = 0.2;
/// Times that a server's own slopes are taken.
const OWN_SLOPES: u32 = 2;
/// Steps between them.
const STEPS: u32 = 5;
/// The greatest change of a constant in one step.
const STEP_MAX: f64 = 0.7;
/// A step that made the rows no better is tried once more at this share.
const SHORTER: f64 = 0.4;
/// A server whose rows are off from their targets by this share of the noise, in the mean, is not moved further.
const NEAR: f64 = 0.6;
/// A row may be off by so many times the noise: a server's target is within the noise, and short runs add theirs.
const OFF_MAX: f64 = 2.0;
/// An error beyond so many times the noise counts by its size and no longer by its square, so that a row that nothing explains
/// does not turn all others.
const GENTLE: f64 = 4.0;
/// A server explains the rows clearly better than the centre if it halves its squares of the noise, and takes this off.
const BETTER: f64 = 8.0;
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
    /// A measured value may be off by so much.
    noise: f64,
}

/// The servers that were found.
pub(super) struct Servers {
    /// As steps of the constants; the one that gives the rows back best is first.
    pub points: Vec<Vec<f64>>,
    /// The first one explains the rows clearly better than the centre.
    pub is_better: bool,
}

/// A server on its way: where it is, and the rows' errors there.
#[derive(Clone)]
struct Place {
    at: Vec<f64>,
    errors: Vec<f64>,
}

/// A server to find: where it was drawn, and the rows' errors that it is to have.
struct Drawn {
    home: Vec<f64>,
    target: Vec<f64>,
}

impl<'a> Sought<'a> {
    /// `bounds` are those of the draws.
    ///
    /// # Errors
    /// A run fails at the centre; Ctrl-C.
    pub(super) fn new(model: &'a dyn Model, bounds: &[[f64; 2]], noise: f64) -> Result<Self, CalibrateError> {
        let centre = model.errors(&vec![0.0; bounds.len()])?;
        Ok(Self { model, bounds: bounds.to_vec(), centre, noise })
    }

    /// Looks for servers.
    ///
    /// # Errors
    /// Ctrl-C.
    pub(super) fn servers(&self, name: &str) -> Result<Servers, CalibrateError> {
        let progress = Progress::new((self.size() + DRAWN) as u64, &format!("{name}: servers that fit"));
        let start = Place { at: vec![0.0; self.size()], errors: self.centre.clone() };
        let slopes: Result<Slopes, CalibrateError> = (0..self.size())
            .into_par_iter()
            .map(|index| {
                let slope = self.slope(&start, index, true);
                progress.step();
                slope
            })
            .collect();
        let slopes = slopes?;
        let seen = self.seen(&slopes)?;
        let found: Result<Vec<_>, CalibrateError> = self
            .drawn()
            .into_par_iter()
            .enumerate()
            .map(|(index, home)| {
                let drawn = Drawn { home, target: self.target(index as u64) };
                let server = self.server(&drawn, &start, (index % 2 == 0).then_some(&slopes), &seen);
                progress.step();
                server
            })
            .collect();
        let found: Vec<Place> = found?.into_iter().flatten().collect();
        Ok(self.fitting(found))
    }

    /// Those that give the rows back: each row within twice the noise, or as far off as with the best server of all.
    fn fitting(&self, mut found: Vec<Place>) -> Servers {
        let off = |errors: &[f64]| errors.iter().map(|error| self.cost(*error)).sum::<f64>();
        found.sort_by(|a, b| off(&a.errors).total_cmp(&off(&b.errors)));
        let best = found.first().map(|first| &first.errors).filter(|first| off(first) < off(&self.centre));
        let least = best.unwrap_or(&self.centre).clone();
        let fits = |place: &Place| {
            place.errors.iter().zip(&least).all(|(error, least)| error.abs() <= least.abs().max(OFF_MAX * self.noise))
                || off(&place.errors) <= off(&least) + place.errors.len() as f64 / 2.0
        };
        let is_better = 2.0 * off(&least) + BETTER < off(&self.centre);
        Servers { points: found.into_iter().filter(fits).map(|place| place.at).collect(), is_better }
    }

    fn size(&self) -> usize {
        self.bounds.len()
    }

    /// An error in squares of the noise (Huber).
    fn cost(&self, error: f64) -> f64 {
        let size = (error / self.noise).abs();
        if size <= GENTLE { size * size } else { GENTLE * (2.0 * size - GENTLE) }
    }

    /// How far a server is from its rows' targets and from where it was drawn.
    fn price(&self, place: &Place, drawn: &Drawn) -> f64 {
        let rows: f64 = place.errors.iter().zip(&drawn.target).map(|(error, target)| self.cost(error - target)).sum();
        let moved: f64 = place.at.iter().zip(&drawn.home).map(|(at, home)| (at - home).powi(2)).sum();
        rows + moved / VARIANCE
    }

    /// True if a server's rows are near enough to their targets.
    fn is_near(&self, place: &Place, drawn: &Drawn) -> bool {
        let off: f64 = place.errors.iter().zip(&drawn.target).map(|(error, target)| self.cost(error - target)).sum();
        off <= NEAR * NEAR * place.errors.len() as f64
    }

    fn run(&self, at: &[f64]) -> Result<Option<Place>, CalibrateError> {
        Ok(tried(self.model.errors(at))?.map(|errors| Place { at: at.to_vec(), errors }))
    }

    /// The rows' change with a constant at a place, from one side or from both. Exactly zero for one that no run comes to.
    fn slope(&self, place: &Place, index: usize, both: bool) -> Result<Vec<f64>, CalibrateError> {
        let probed = |by: f64| {
            let mut steps = place.at.clone();
            steps[index] = self.within(index, steps[index] + by);
            let moved = steps[index] - place.at[index];
            let found = if moved == 0.0 { None } else { tried(self.model.errors(&steps))? };
            Ok::<_, CalibrateError>(found.map_or_else(|| (0.0, place.errors.clone()), |found| (moved, found)))
        };
        let (high, above) = probed(PROBE)?;
        let is_still = high > 0.0 && above == place.errors;
        let is_enough = is_still || (high > 0.0 && !both);
        let (low, below) = if is_enough { (0.0, place.errors.clone()) } else { probed(-PROBE)? };
        let width = if is_still { 0.0 } else { high - low };
        let slope = |(above, below): (&f64, &f64)| if width > 0.0 { (above - below) / width } else { 0.0 };
        Ok(above.iter().zip(&below).map(slope).collect())
    }

    /// For each constant, whether a row changes with it, near by or at the ends of its range: a limit may be far.
    fn seen(&self, slopes: &Slopes) -> Result<Vec<bool>, CalibrateError> {
        let mut seen: Vec<bool> = slopes.iter().map(|slope| slope.iter().any(|change| *change != 0.0)).collect();
        let mut groups = vec![(0..self.size()).filter(|&index| !seen[index]).collect::<Vec<usize>>()];
        while let Some(group) = groups.pop().filter(|group| !group.is_empty()) {
            if self.are_still(&group)? {
                continue;
            }
            match group.as_slice() {
                [alone] => seen[*alone] = true,
                many => groups.extend(many.chunks(many.len().div_ceil(2)).map(<[usize]>::to_vec)),
            }
        }
        Ok(seen)
    }

    /// True if no row changes when all these constants go to their ends together.
    fn are_still(&self, group: &[usize]) -> Result<bool, CalibrateError> {
        for end in [0, 1] {
            let mut steps = vec![0.0; self.size()];
            group.iter().for_each(|&index| steps[index] = self.bounds[index][end]);
            if tried(self.model.errors(&steps))?.is_none_or(|errors| errors != self.centre) {
                return Ok(false);
            }
        }
        Ok(true)
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

    /// Errors that a server's rows are moved to: within the noise.
    fn target(&self, server: u64) -> Vec<f64> {
        let mut random = Stream::new(SEED, 1 << 32 | server);
        self.centre.iter().map(|_| self.noise * (2.0 * unit(&mut random) - 1.0)).collect()
    }

    /// Moves a drawn server until it gives the rows back: from the centre with its slopes, or from where it was drawn. None
    /// where it does not run.
    fn server(
        &self,
        drawn: &Drawn,
        centre: &Place,
        of_centre: Option<&Slopes>,
        seen: &[bool],
    ) -> Result<Option<Place>, CalibrateError> {
        let (mut place, mut slopes, first) = match of_centre {
            Some(slopes) => {
                // What no row sees is where it was drawn.
                let at = |index: usize| if seen[index] { centre.at[index] } else { drawn.home[index] };
                let place = Place { at: (0..self.size()).map(at).collect(), errors: centre.errors.clone() };
                (place, slopes.clone(), 0)
            }
            None => {
                let Some(place) = self.run(&drawn.home)? else { return Ok(None) };
                (place, vec![vec![0.0; centre.errors.len()]; self.size()], 1)
            }
        };
        let mut most = if of_centre.is_some() { 2.0 * PRIOR } else { STEP_MAX };
        for turn in first..=OWN_SLOPES {
            if turn > 0 {
                for index in (0..self.size()).filter(|&index| seen[index]) {
                    slopes[index] = self.slope(&place, index, false)?;
                }
            }
            self.approach(&mut place, &mut slopes, drawn, most)?;
            if self.is_near(&place, drawn) {
                break;
            }
            most = STEP_MAX;
        }
        Ok(Some(place))
    }

    /// Steps with the same slopes, mended along each.
    fn approach(
        &self,
        place: &mut Place,
        slopes: &mut Slopes,
        drawn: &Drawn,
        mut most: f64,
    ) -> Result<(), CalibrateError> {
        for _ in 0..STEPS {
            let to = self.moved(place, drawn, slopes, most);
            let Some(next) = self.run(&to)? else {
                most *= SHORTER;
                continue;
            };
            mend(slopes, place, &next);
            let (before, after) = (self.price(place, drawn), self.price(&next, drawn));
            if after < before {
                *place = next;
                if self.is_near(place, drawn) && before - after < 1.0 {
                    break;
                }
            } else {
                let taken = to.iter().zip(&place.at).map(|(to, at)| (to - at).abs()).fold(0.0, f64::max);
                most = SHORTER * taken.min(most);
            }
        }
        Ok(())
    }

    /// The server after a step to the target: of all servers that a linear model takes there, the nearest to the drawn one.
    fn moved(&self, place: &Place, drawn: &Drawn, slopes: &Slopes, most: f64) -> Vec<f64> {
        let (at, rows) = (&place.at, place.errors.len());
        let away: Vec<f64> = at.iter().zip(&drawn.home).map(|(at, home)| at - home).collect();
        let of_row = |row: usize| slopes.iter().map(move |slope| slope[row]);
        let line = |row: usize| {
            let off = place.errors[row] - drawn.target[row];
            let product = |other: usize| {
                // A row that is far off counts less, as in its cost.
                let gentle = (off.abs() / (GENTLE * self.noise)).max(1.0);
                let noise = if row == other { self.noise * self.noise * gentle } else { 0.0 };
                VARIANCE * of_row(row).zip(of_row(other)).map(|(a, b)| a * b).sum::<f64>() + noise
            };
            let along: f64 = of_row(row).zip(&away).map(|(slope, away)| slope * away).sum();
            (0..rows).map(product).chain([along - off]).collect()
        };
        let weights = eliminate((0..rows).map(line).collect());
        let step = |index: usize| drawn.home[index] + VARIANCE * dot(&slopes[index], &weights) - at[index];
        let steps: Vec<f64> = (0..self.size()).map(step).collect();
        let longest = steps.iter().map(|step| step.abs()).fold(0.0, f64::max);
        let share = if longest > most { most / longest } else { 1.0 };
        (0..self.size()).map(|index| self.within(index, at[index] + share * steps[index])).collect()
    }
}

/// Changes slopes by as little as makes them right for a step that was run.
fn mend(slopes: &mut Slopes, from: &Place, to: &Place) {
    let step: Vec<f64> = to.at.iter().zip(&from.at).map(|(to, from)| to - from).collect();
    let length = dot(&step, &step);
    if length < 1e-6 {
        return;
    }
    for row in 0..from.errors.len() {
        let expected: f64 = slopes.iter().zip(&step).map(|(slope, step)| slope[row] * step).sum();
        let missed = to.errors[row] - from.errors[row] - expected;
        slopes.iter_mut().zip(&step).for_each(|(slope, step)| slope[row] += missed * step / length);
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
        sought.servers("test").unwrap().points
    }

    #[test]
    fn every_server_gives_the_rows_back() {
        let found = servers();
        assert!(found.len() >= DRAWN - 2, "{}", found.len());
        for server in &found {
            assert!(Toy.errors(server).unwrap().iter().all(|error| error.abs() <= 0.045), "{server:?}");
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

//! Servers that could have printed the rows.
//!
//! Before anything is measured, a constant may be from a third to three times its home value. A server is drawn from that,
//! all constants at once, and then moved until it gives the rows back, each row to another value within the noise:
//! Gauss–Newton steps that leave alone what the rows do not see (a randomised maximum likelihood). So two explanations of
//! one row are both found, if drawn servers lead to both, and what the rows cannot tell keeps the spread of the draws.
//!
//! Errors are logarithms here: most rows are products of times and rates, or the greatest of some, so a step that is far
//! too long for relative errors is the right one.
//!
//! | rounds | who goes on |
//! |---|---|
//! | first | half of the servers from the centre, with its slopes; the others from where they were drawn, with their own, so that a centre that is wrong does not hold all of them |
//! | next | those others, with new slopes |
//! | while none gives the rows back | the best few, with new slopes |
//! | last | each that does not give the rows back, from the nearest one that does, and those from the centre once more; with slopes that are measured at a few servers that give the rows back |
//!
//! Each run mends the slopes along the step that was taken (Broyden). Runs are short; at the end of a round a server that is near
//! is run in full, and what its short runs were off by is held against them from then on. Only servers that were run in full
//! are kept.
//!
//! One more server is sought beside the drawn ones: the nearest to the home values. It stands in for the centre where the centre
//! does not give the rows back.

use super::linear::{dot, eliminate, unit};
use super::ways::{Drawn, Place, STEP_MAX, Slopes, Way, apart, distance, logs, mend};
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
/// Rounds of steps from a server's own start.
const OWN_ROUNDS: usize = 3;
/// Up to this round, the best go on alone while none gives the rows back.
const BEST_ROUNDS: usize = 6;
/// So many go on then.
const BEST: usize = 3;
/// All rounds.
const ROUNDS: usize = 8;
/// The standard deviation of a value that is off by at most the noise, all alike, as a share of it.
const LIKELY: f64 = 0.577_350_269_189_625_8;
/// A server is run in full when its rows, in the mean, are off by fewer squares of the noise.
const PROMISING: f64 = 8.0;
/// Steps of a round.
const STEPS: u32 = 5;
/// After a step that made the rows better, the next may be so many times as long.
const LONGER: f64 = 2.0;
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

/// What is sought.
pub(super) struct Sought<'a> {
    model: &'a dyn Model,
    /// The least and the greatest step of each constant.
    pub bounds: Vec<[f64; 2]>,
    /// The rows' errors at the centre.
    centre: Vec<f64>,
    /// The steps to the constants' home values.
    homes: Vec<f64>,
    /// A measured value may be off by so much.
    noise: f64,
}

/// The servers that were found.
pub(super) struct Servers {
    /// As steps of the constants; the one that gives the rows back best is first.
    pub points: Vec<Vec<f64>>,
    /// One that explains the rows clearly better than the centre: the nearest to the home values.
    pub better: Option<Vec<f64>>,
}

impl<'a> Sought<'a> {
    /// `bounds` are those of the draws, `homes` the steps to what a constant is unless the rows tell otherwise.
    ///
    /// # Errors
    /// A run fails at the centre; Ctrl-C.
    pub(super) fn new(
        model: &'a dyn Model,
        bounds: &[[f64; 2]],
        homes: &[f64],
        noise: f64,
    ) -> Result<Self, CalibrateError> {
        let centre = logs(&model.errors(&vec![0.0; bounds.len()])?);
        Ok(Self { model, bounds: bounds.to_vec(), centre, homes: homes.to_vec(), noise })
    }

    /// Looks for servers.
    ///
    /// # Errors
    /// Ctrl-C.
    pub(super) fn servers(&self, name: &str) -> Result<Servers, CalibrateError> {
        let progress = Progress::new((self.size() + ROUNDS * DRAWN) as u64, &format!("{name}: servers that fit"));
        let start = Place { at: vec![0.0; self.size()], errors: self.centre.clone() };
        let still = vec![0.0; self.centre.len()];
        let slope = |index: usize| {
            let slope = self.slope(&start, index, &still, true);
            progress.step();
            slope
        };
        let slopes = (0..self.size()).into_par_iter().map(slope).collect::<Result<Slopes, CalibrateError>>()?;
        let seen = self.seen(&slopes)?;
        let drawn = self.drawn().into_iter().enumerate();
        let mut ways: Vec<Way> = drawn
            .map(|(index, home)| {
                let drawn = Drawn { home, target: self.target(index as u64) };
                Way::new(drawn, (index % 2 == 0).then_some((&start, &slopes)), &seen)
            })
            .collect();
        let own = Drawn { home: self.homes.clone(), target: still.clone() };
        ways.push(Way::new(own, Some((&start, &slopes)), &seen));
        let mut least = self.centre.clone();
        for round in 0..ROUNDS {
            match round {
                0 => {}
                1..OWN_ROUNDS => ways.iter_mut().for_each(|way| way.is_idle = way.is_central || self.has_arrived(way)),
                OWN_ROUNDS..BEST_ROUNDS if !self.is_good(&least) => self.best_go_on(&mut ways),
                _ => self.lead(&mut ways, &seen, &least)?,
            }
            ways.par_iter_mut().filter(|way| !way.is_idle).try_for_each(|way| {
                let walked = self.walk(way, &seen);
                progress.step();
                walked
            })?;
            for checked in ways.iter().flat_map(|way| &way.checked) {
                if self.off(&checked.errors) < self.off(&least) {
                    least.clone_from(&checked.errors);
                }
            }
        }
        Ok(self.fitting(ways, &least))
    }

    fn off(&self, errors: &[f64]) -> f64 {
        errors.iter().map(|error| self.cost(*error)).sum()
    }

    /// True if a place gives the rows back: each row within twice the noise, or as far off as with the best server of all.
    fn fits(&self, place: &Place, least: &[f64]) -> bool {
        let bound = OFF_MAX * self.noise;
        place.errors.iter().zip(least).all(|(error, least)| error.abs() <= least.abs().max(bound))
            || self.off(&place.errors) <= self.off(least) + place.errors.len() as f64 / 2.0
    }

    /// The place of a way that is nearest to what it seeks, of those that give the rows back.
    fn end<'w>(&self, way: &'w Way, least: &[f64]) -> Option<&'w Place> {
        let fitting = way.checked.iter().filter(|place| self.fits(place, least));
        fitting.min_by(|a, b| self.price(a, &way.drawn).total_cmp(&self.price(b, &way.drawn)))
    }

    /// True if errors are what the noise alone makes them.
    fn is_good(&self, errors: &[f64]) -> bool {
        self.off(errors) <= errors.len() as f64
    }

    /// True if a way has come near to what it seeks, or to rows that the noise alone explains.
    fn has_arrived(&self, way: &Way) -> bool {
        way.is_done
            || way.checked.last().is_some_and(|place| {
                self.is_good(&place.errors) && place.errors.iter().all(|error| error.abs() <= OFF_MAX * self.noise)
            })
    }

    /// While none gives the rows back, only those go on that are nearest to it.
    fn best_go_on(&self, ways: &mut [Way]) {
        let off = |way: &Way| way.place.as_ref().map_or(f64::INFINITY, |place| self.off(&place.errors));
        let mut all: Vec<f64> = ways.iter().map(off).collect();
        all.sort_by(f64::total_cmp);
        let most = all[BEST.min(all.len()) - 1];
        ways.iter_mut().for_each(|way| way.is_idle = off(way) > most);
    }

    /// Sets ways that came to no place that fits to the nearest such place of another way, to begin there with slopes that
    /// are measured there. Ways that came to one by the centre's slopes go on with such slopes too, once: where they are, the
    /// centre's tell little of what else would fit.
    fn lead(&self, ways: &mut [Way], seen: &[bool], least: &[f64]) -> Result<(), CalibrateError> {
        let is_idle = |way: &Way| self.end(way, least).is_some() && (way.is_settled || !way.is_central);
        ways.iter_mut().for_each(|way| way.is_idle = is_idle(way));
        let ends: Vec<(Place, Vec<f64>)> =
            ways.iter().filter_map(|way| Some((self.end(way, least)?.clone(), way.shift.clone()))).collect();
        if ends.is_empty() || ways.iter().all(|way| way.is_idle) {
            return Ok(());
        }
        let leaders: Vec<(Place, Vec<f64>)> = apart(&ends, seen).into_iter().map(|index| ends[index].clone()).collect();
        let slopes: Result<Vec<Slopes>, CalibrateError> =
            leaders.par_iter().map(|(place, shift)| self.slopes(place, shift, seen)).collect();
        let slopes = slopes?;
        for way in ways.iter_mut().filter(|way| !way.is_idle) {
            let end = self.end(way, least).cloned();
            let from = end.as_ref().map_or(&way.drawn.home, |end| &end.at);
            let away = |index: &usize| distance(&leaders[*index].0.at, from, seen);
            let Some(nearest) = (0..leaders.len()).min_by(|a, b| away(a).total_cmp(&away(b))) else { continue };
            let (leader, shift) = &leaders[nearest];
            let at = |index: usize| if seen[index] { leader.at[index] } else { way.drawn.home[index] };
            let place = Place { at: (0..self.size()).map(at).collect(), errors: leader.errors.clone() };
            if end.is_none() {
                way.shift.clone_from(shift);
            }
            way.place = Some(end.unwrap_or(place));
            way.slopes.clone_from(&slopes[nearest]);
            (way.has_slopes, way.most, way.is_settled) = (true, STEP_MAX, true);
        }
        Ok(())
    }

    /// The rows' change with each constant that they see.
    fn slopes(&self, place: &Place, shift: &[f64], seen: &[bool]) -> Result<Slopes, CalibrateError> {
        let slope = |index: usize| match seen[index] {
            true => self.slope(place, index, shift, false),
            false => Ok(vec![0.0; place.errors.len()]),
        };
        (0..self.size()).map(slope).collect()
    }

    /// Those that give the rows back.
    fn fitting(&self, mut ways: Vec<Way>, least: &[f64]) -> Servers {
        let own = ways.pop().and_then(|way| self.end(&way, least).cloned());
        let mut found: Vec<Place> = ways.iter().filter_map(|way| self.end(way, least).cloned()).collect();
        found.sort_by(|a, b| self.off(&a.errors).total_cmp(&self.off(&b.errors)));
        let best = own.as_ref().or(found.first());
        let is_better = |best: &&Place| 2.0 * self.off(&best.errors) + BETTER < self.off(&self.centre);
        let better = best.filter(is_better).map(|best| best.at.clone());
        Servers { points: found.into_iter().map(|place| place.at).collect(), better }
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
        rows / (LIKELY * LIKELY) + moved / VARIANCE
    }

    /// True if a server's rows are near enough to their targets.
    fn is_near(&self, place: &Place, drawn: &Drawn) -> bool {
        let off: f64 = place.errors.iter().zip(&drawn.target).map(|(error, target)| self.cost(error - target)).sum();
        off <= NEAR * NEAR * place.errors.len() as f64
    }

    /// The rows' errors with these steps, as logarithms; none where it does not run.
    fn look(&self, at: &[f64]) -> Result<Option<Vec<f64>>, CalibrateError> {
        Ok(tried(self.model.errors(at))?.map(|errors| logs(&errors)))
    }

    fn run(&self, at: &[f64], shift: &[f64]) -> Result<Option<Place>, CalibrateError> {
        let shifted = |errors: Vec<f64>| errors.iter().zip(shift).map(|(error, shift)| error + shift).collect();
        Ok(self.look(at)?.map(|errors| Place { at: at.to_vec(), errors: shifted(errors) }))
    }

    /// The rows' change with a constant at a place, from one side or from both. Exactly zero for one that no run comes to.
    fn slope(&self, place: &Place, index: usize, shift: &[f64], both: bool) -> Result<Vec<f64>, CalibrateError> {
        let probed = |by: f64| {
            let mut steps = place.at.clone();
            steps[index] = self.within(index, steps[index] + by);
            let moved = steps[index] - place.at[index];
            let found = if moved == 0.0 { None } else { self.run(&steps, shift)?.map(|found| found.errors) };
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
            if self.look(&steps)?.is_none_or(|errors| errors != self.centre) {
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

    /// Moves a drawn server towards one that gives the rows back: a round of steps, with its own slopes if it has none.
    fn walk(&self, way: &mut Way, seen: &[bool]) -> Result<(), CalibrateError> {
        if way.place.is_none() {
            way.place = self.run(&way.drawn.home, &way.shift)?;
        }
        let Some(mut place) = way.place.clone() else { return Ok(()) };
        if !way.has_slopes {
            way.slopes = self.slopes(&place, &way.shift, seen)?;
        }
        for _ in 0..STEPS {
            let to = self.moved(&place, &way.drawn, &way.slopes, way.most);
            let Some(next) = self.run(&to, &way.shift)? else {
                way.most *= SHORTER;
                continue;
            };
            mend(&mut way.slopes, &place, &next);
            let (before, after) = (self.price(&place, &way.drawn), self.price(&next, &way.drawn));
            if after < before {
                place = next;
                if self.is_near(&place, &way.drawn) && before - after < 1.0 {
                    break;
                }
                way.most = (way.most * LONGER).min(STEP_MAX);
            } else {
                let taken = to.iter().zip(&place.at).map(|(to, at)| (to - at).abs()).fold(0.0, f64::max);
                way.most = SHORTER * taken.min(way.most);
            }
        }
        (way.has_slopes, way.most) = (false, STEP_MAX);
        self.check(way, place)
    }

    /// Runs a server in full where its short runs promise something, and holds against them what they were off by.
    fn check(&self, way: &mut Way, mut place: Place) -> Result<(), CalibrateError> {
        if self.off(&place.errors) <= PROMISING * place.errors.len() as f64
            && let Some(whole) = tried(self.model.whole(&place.at))?
        {
            let whole = logs(&whole);
            let off = whole.iter().zip(&place.errors).map(|(whole, short)| whole - short);
            way.shift.iter_mut().zip(off).for_each(|(shift, off)| *shift += off);
            place.errors = whole;
            way.checked.push(place.clone());
            way.is_done = self.is_near(&place, &way.drawn);
        }
        way.place = Some(place);
        Ok(())
    }

    /// The server after a step to the target: of all servers that a linear model takes there, the nearest to the drawn one.
    /// A constant that would leave its bounds stands at one, and the others are moved with it there.
    fn moved(&self, place: &Place, drawn: &Drawn, slopes: &Slopes, most: f64) -> Vec<f64> {
        let mut to: Vec<Option<f64>> = vec![None; self.size()];
        let steps = loop {
            let steps = self.steps(place, drawn, slopes, &to);
            let mut is_inside = true;
            for index in 0..self.size() {
                let there = place.at[index] + steps[index];
                let bound = self.within(index, there);
                if to[index].is_none() && bound != there {
                    (to[index], is_inside) = (Some(bound), false);
                }
            }
            if is_inside {
                break steps;
            }
        };
        let longest = steps.iter().map(|step| step.abs()).fold(0.0, f64::max);
        let share = if longest > most { most / longest } else { 1.0 };
        (0..self.size()).map(|index| self.within(index, place.at[index] + share * steps[index])).collect()
    }

    /// The whole step of each constant, with those of `to` held there.
    fn steps(&self, place: &Place, drawn: &Drawn, slopes: &Slopes, to: &[Option<f64>]) -> Vec<f64> {
        let (at, rows) = (&place.at, place.errors.len());
        let is_free = |index: &usize| to[*index].is_none();
        let free: Vec<usize> = (0..self.size()).filter(is_free).collect();
        let line = |row: usize| {
            let held = (0..self.size()).filter_map(|index| Some(slopes[index][row] * (to[index]? - at[index])));
            let off = place.errors[row] - drawn.target[row];
            // A row that is far off counts less, as in its cost.
            let gentle = (off.abs() / (GENTLE * self.noise)).max(1.0);
            let product = |other: usize| {
                let noise = if row == other { (LIKELY * self.noise).powi(2) * gentle } else { 0.0 };
                VARIANCE * free.iter().map(|&index| slopes[index][row] * slopes[index][other]).sum::<f64>() + noise
            };
            let along: f64 = free.iter().map(|&index| slopes[index][row] * (at[index] - drawn.home[index])).sum();
            (0..rows).map(product).chain([along - off - held.sum::<f64>()]).collect()
        };
        let weights = eliminate((0..rows).map(line).collect());
        let step = |index: usize| {
            let there = to[index].unwrap_or_else(|| drawn.home[index] + VARIANCE * dot(&slopes[index], &weights));
            there - at[index]
        };
        (0..self.size()).map(step).collect()
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
        let sought = Sought::new(&Toy, &bounds, &[0.0; 5], 0.03).unwrap();
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

//! The choice of the constants that rows decide, and their fit, from one start or from two; other explanations of what was
//! fitted.

use super::linear::dot;
use super::{CalibrateError, Model, fit};

/// Least change of all rows together, for a change of the constant's logarithm by one, at which it is decided: at a
/// noise of 3 % it is then known within 12 %.
const CHANGE_MIN: f64 = 0.25;
/// A change of this share of the largest one is as good.
const ALIKE: f64 = 0.8;
/// Most times that the choice is made.
const CHOICES_MAX: usize = 5;
/// A chosen constant that is this far from its home, a factor of two, may stand for another one.
const FAR: f64 = 0.7;
/// Most constants for which another explanation is sought.
const OTHERS_MAX: usize = 2;
/// An explanation that is dearer by more, in squares of standard deviations, is not worth a second fit.
const NEAR: f64 = 40.0;
/// What a row may be off for no reason: its noise, and what short runs add.
const ROW_NOISE: f64 = 0.025;
/// The variance of a departure from home: a third to three times, all alike.
const HOME_VARIANCE: f64 = 0.4;
/// A row that is further off is not given back, for a fit that looks at short runs.
const GIVEN_BACK: f64 = 0.06;

/// Some of a model's constants; the others stand still.
struct Part<'a> {
    model: &'a dyn Model,
    at: &'a [f64],
    chosen: &'a [usize],
    /// The side to which its constants are probed: 1, or -1.
    side: f64,
}

impl Model for Part<'_> {
    fn errors(&self, steps: &[f64]) -> Result<Vec<f64>, CalibrateError> {
        let mut all = self.at.to_vec();
        for (&index, step) in self.chosen.iter().zip(steps) {
            all[index] += step;
        }
        self.model.errors(&all)
    }

    fn probe(&self) -> f64 {
        self.side * self.model.probe()
    }
}

/// A choice and its fit.
#[derive(Clone)]
pub(super) struct Found {
    pub at: Vec<f64>,
    pub chosen: Vec<usize>,
    /// Constants that are not chosen, whatever the rows say: another explanation is sought.
    held: Vec<usize>,
    /// Constants whose home the rows contradict.
    pub kept: Vec<usize>,
    pub slopes: Vec<Vec<f64>>,
    pub errors: Vec<f64>,
    pub interrupted: bool,
}

/// Chooses and fits; `homes` are the steps from where the fit begins to the constants' home values. A fit that does not give
/// the rows back begins once more, at home; the better one stays.
///
/// # Errors
/// A run fails at the start; it was stopped before there is anything to show.
pub(super) fn choose_and_fit(model: &dyn Model, homes: &[f64]) -> Result<Found, CalibrateError> {
    let found = fit_from(vec![0.0; homes.len()], model, homes)?;
    let is_far = found.errors.iter().any(|error| error.is_nan() || error.abs() > GIVEN_BACK);
    if found.interrupted || !is_far || homes.iter().all(|home| *home == 0.0) {
        return Ok(found);
    }
    match fit_from(homes.to_vec(), model, homes) {
        Ok(other) if other.price(homes) < found.price(homes) => Ok(other),
        Ok(other) => Ok(Found { interrupted: other.interrupted, ..found }),
        Err(CalibrateError::Stopped) => Ok(Found { interrupted: true, ..found }),
        Err(_) => Ok(found),
    }
}

/// Chooses and fits from a start.
fn fit_from(at: Vec<f64>, model: &dyn Model, homes: &[f64]) -> Result<Found, CalibrateError> {
    let errors = model.errors(&at)?;
    let slopes = fit::slopes(model, &at, &errors)?;
    let nothing = Vec::new;
    let (chosen, held, kept) = (nothing(), nothing(), nothing());
    let mut found = Found { at, chosen, held, kept, slopes, errors, interrupted: false };
    match found.settle_at_home(model, homes).and_then(|()| found.explain_otherwise(model, homes)) {
        Ok(()) => {}
        Err(CalibrateError::Stopped) => found.interrupted = true,
        Err(error) => return Err(error),
    }
    Ok(found)
}

impl Found {
    /// Chooses and fits, and moves to its home what is not chosen.
    fn settle_at_home(&mut self, model: &dyn Model, homes: &[f64]) -> Result<(), CalibrateError> {
        self.chosen = choose(&self.slopes, &[], &self.away(homes));
        self.settle(model, homes)?;
        for _ in 0..CHOICES_MAX {
            if !self.go_home(model, homes)? {
                break;
            }
            self.settle(model, homes)?;
        }
        Ok(())
    }

    /// A limit may be explained by one constant or by another, and the fit has found the one that its start was near to. So
    /// the chosen constants that are furthest from their homes are moved there, each for itself, and the others are fitted. The
    /// best explanation stays: that of the rows with the least departure from all homes.
    fn explain_otherwise(&mut self, model: &dyn Model, homes: &[f64]) -> Result<(), CalibrateError> {
        let away = self.away(homes);
        let mut far: Vec<usize> = self.chosen.iter().copied().filter(|&index| away[index] >= FAR).collect();
        far.sort_by(|&a, &b| away[b].total_cmp(&away[a]));
        for index in far.into_iter().take(OTHERS_MAX) {
            let mut other = self.clone();
            other.at[index] = homes[index];
            other.held.push(index);
            other.kept.clear();
            let Some(errors) = super::tried(model.errors(&other.at))? else { continue };
            other.errors = errors;
            other.slopes = other.slopes_of(model, &other.at, &other.errors)?;
            other.chosen = choose(&other.slopes, &[], &other.away(homes));
            if !other.is_near(model, self.price(homes), homes)? {
                continue;
            }
            other.settle_at_home(model, homes)?;
            if other.price(homes) < self.price(homes) {
                *self = other;
            }
        }
        Ok(())
    }

    /// Fits once. True if the fit comes near enough to a better price to go on.
    fn is_near(&mut self, model: &dyn Model, price: f64, homes: &[f64]) -> Result<bool, CalibrateError> {
        let fitted = self.fit(model, 1.0)?;
        if fitted.interrupted {
            return Err(CalibrateError::Stopped);
        }
        for (&index, step) in self.chosen.iter().zip(&fitted.steps) {
            self.at[index] += step;
        }
        self.errors = fitted.after;
        if self.price(homes) > price + NEAR {
            return Ok(false);
        }
        self.slopes = self.slopes_of(model, &self.at, &self.errors)?;
        Ok(true)
    }

    /// Fits the chosen constants, each probed to one side.
    fn fit(&self, model: &dyn Model, side: f64) -> Result<fit::Fit, CalibrateError> {
        let part = Part { model, at: &self.at, chosen: &self.chosen, side };
        fit::fit(&part, self.chosen.len(), fit::GOOD_ENOUGH)
    }

    /// How unlikely it is: the squares of the rows' errors and of the departures from home, each in its standard deviations.
    fn price(&self, homes: &[f64]) -> f64 {
        let departures: f64 = self.away(homes).iter().map(|away| away * away).sum();
        fit::squares(&self.errors) / (ROW_NOISE * ROW_NOISE) + departures / HOME_VARIANCE
    }

    /// The rows' change with each constant; none with those that are held.
    fn slopes_of(&self, model: &dyn Model, at: &[f64], errors: &[f64]) -> Result<Vec<Vec<f64>>, CalibrateError> {
        let mut slopes = fit::slopes(model, at, errors)?;
        self.held.iter().for_each(|&index| slopes[index].fill(0.0));
        Ok(slopes)
    }

    /// How far each constant is from its home.
    fn away(&self, homes: &[f64]) -> Vec<f64> {
        self.at.iter().zip(homes).map(|(at, home)| (at - home).abs()).collect()
    }

    /// Fits the chosen constants, and chooses again, until the choice stands. What is no longer chosen stays where it is,
    /// until it goes home: where it began, the rows may not be met.
    fn settle(&mut self, model: &dyn Model, homes: &[f64]) -> Result<(), CalibrateError> {
        for _ in 0..CHOICES_MAX {
            let mut fitted = self.fit(model, 1.0)?;
            if fitted.rounds == 0 && !fitted.interrupted {
                // At a limit, what a constant does differs between its sides.
                fitted = self.fit(model, -1.0)?;
            }
            for (&index, step) in self.chosen.iter().zip(&fitted.steps) {
                self.at[index] += step;
            }
            self.errors = fitted.after;
            if fitted.interrupted {
                return Err(CalibrateError::Stopped);
            }
            self.slopes = self.slopes_of(model, &self.at, &self.errors)?;
            let again = choose(&self.slopes, &self.chosen, &self.away(homes));
            if again == self.chosen {
                break;
            }
            self.chosen = again;
        }
        Ok(())
    }

    /// Moves what is not decided to its home; what the rows would hold there stays, since they contradict that value.
    /// False if nothing moved.
    fn go_home(&mut self, model: &dyn Model, homes: &[f64]) -> Result<bool, CalibrateError> {
        let mut moved: Vec<usize> = (0..homes.len())
            .filter(|index| !self.chosen.contains(index) && !self.kept.contains(index))
            .filter(|&index| (self.at[index] - homes[index]).abs() > 1e-9)
            .collect();
        while !moved.is_empty() {
            let mut at = self.at.clone();
            moved.iter().for_each(|&index| at[index] = homes[index]);
            let there = super::tried(model.errors(&at))?;
            let Some(errors) = there else {
                // The machine does not run with these values together.
                self.kept.append(&mut moved);
                break;
            };
            let slopes = self.slopes_of(model, &at, &errors)?;
            let held = choose(&slopes, &self.chosen, &self.away(homes));
            let (against, free): (Vec<usize>, Vec<usize>) = moved.iter().partition(|index| held.contains(index));
            self.kept.extend(&against);
            if against.is_empty() {
                (self.at, self.errors, self.slopes) = (at, errors, slopes);
                return Ok(true);
            }
            moved = free;
        }
        Ok(false)
    }
}

/// The constants that the rows decide, ascending: by the change of the rows that no other chosen constant explains. Those
/// of `before` come first, so that of two that act alike the same one stays chosen; else the one that is least `away` from
/// its home is chosen.
fn choose(slopes: &[Vec<f64>], before: &[usize], away: &[f64]) -> Vec<usize> {
    let mut chosen: Vec<usize> = Vec::new();
    for among in [before.to_vec(), (0..slopes.len()).collect()] {
        loop {
            let change = |index: usize| {
                let alone = residual(slopes, &chosen, index);
                dot(&alone, &alone).sqrt()
            };
            let left: Vec<(usize, f64)> =
                among.iter().filter(|index| !chosen.contains(index)).map(|&index| (index, change(index))).collect();
            let most = left.iter().fold(0.0, |most, (_, change)| f64::max(most, *change));
            if most < CHANGE_MIN {
                break;
            }
            let alike = left.iter().filter(|(_, change)| *change >= ALIKE * most).map(|(index, _)| *index);
            chosen.extend(alike.min_by(|&a, &b| away[a].total_cmp(&away[b])));
        }
    }
    chosen.sort_unstable();
    chosen
}

/// The part of a constant's slopes that no combination of the other constants' slopes gives (Gram–Schmidt).
pub(super) fn residual(slopes: &[Vec<f64>], others: &[usize], index: usize) -> Vec<f64> {
    let mut basis: Vec<Vec<f64>> = Vec::new();
    for &other in others.iter().filter(|other| **other != index) {
        let vector = without(&slopes[other], &basis);
        let length = dot(&vector, &vector).sqrt();
        if length > 1e-9 {
            basis.push(vector.iter().map(|value| value / length).collect());
        }
    }
    without(&slopes[index], &basis)
}

/// A vector without its parts along an orthonormal basis.
fn without(vector: &[f64], basis: &[Vec<f64>]) -> Vec<f64> {
    let mut rest = vector.to_vec();
    for direction in basis {
        let along = dot(&rest, direction);
        rest.iter_mut().zip(direction).for_each(|(value, direction)| *value -= along * direction);
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two rows: the product of constants 0 and 1, and constant 2 as long as it is above a limit.
    struct Toy;

    impl Model for Toy {
        fn errors(&self, steps: &[f64]) -> Result<Vec<f64>, CalibrateError> {
            Ok(vec![(steps[0] + steps[1] - 0.4).exp() - 1.0, f64::max(steps[2], -0.3).exp() / 0.9 - 1.0])
        }
    }

    #[test]
    fn of_constants_that_act_alike_one_is_decided() {
        let found = choose_and_fit(&Toy, &[0.0; 4]).unwrap();
        assert_eq!(found.chosen.len(), 2, "{:?}", found.chosen);
        assert!(found.chosen.contains(&2) && !found.chosen.contains(&3), "{:?}", found.chosen);
        assert!((found.at[0] + found.at[1] - 0.4).abs() < 1e-3 && (found.at[2] - 0.9f64.ln()).abs() < 1e-2);
        assert!(found.errors.iter().all(|error| error.abs() < 4e-3), "{:?}", found.errors);
    }

    #[test]
    fn what_is_not_decided_goes_home_and_the_others_are_fitted_with_it() {
        let homes = [0.3, 0.3, 0.7, 0.2];
        let found = choose_and_fit(&Toy, &homes).unwrap();
        let alike = usize::from(found.chosen.contains(&0));
        assert_eq!((found.at[alike], found.at[3]), (0.3, 0.2), "{:?}", found.at);
        assert!((found.at[1 - alike] - 0.1).abs() < 4e-3, "{:?}", found.at);
        assert!(found.kept.is_empty() && found.errors.iter().all(|error| error.abs() < 4e-3));
    }

    /// Three rows of one limit, which either constant explains.
    struct Either;

    impl Model for Either {
        fn errors(&self, steps: &[f64]) -> Result<Vec<f64>, CalibrateError> {
            let limit = f64::max(steps[0].exp(), 0.5 * steps[1].exp());
            Ok(vec![limit - 1.0, limit * 1.01 - 1.0])
        }
    }

    #[test]
    fn of_two_explanations_the_one_nearer_home_stays() {
        // The fit begins at the first one's limit.
        let found = choose_and_fit(&Either, &[-1.5, 0.2]).unwrap();
        assert_eq!((found.chosen.as_slice(), found.at[0]), (&[1][..], -1.5), "{:?}", found.at);
        assert!((found.at[1] - 2f64.ln()).abs() < 0.02);
        let found = choose_and_fit(&Either, &[-0.5, -1.5]).unwrap();
        assert_eq!((found.chosen.as_slice(), found.at[1]), (&[0][..], -1.5), "{:?}", found.at);
    }

    /// A limit that the row sees below -0.5 alone.
    struct Limit;

    impl Model for Limit {
        fn errors(&self, steps: &[f64]) -> Result<Vec<f64>, CalibrateError> {
            Ok(vec![(steps[0] - 0.2).exp() - 1.0, (f64::min(steps[1], -0.5) + 0.5).exp() - 1.0])
        }
    }

    #[test]
    fn a_home_that_the_rows_contradict_is_not_taken() {
        let found = choose_and_fit(&Limit, &[0.0, -0.9]).unwrap();
        assert_eq!((found.chosen.as_slice(), found.kept.as_slice(), found.at[1]), (&[0][..], &[1][..], 0.0));
        assert!(found.errors.iter().all(|error| error.abs() < 4e-3), "{:?}", found.errors);
        let free = choose_and_fit(&Limit, &[0.0, 0.9]).unwrap();
        assert!(free.kept.is_empty() && free.at[1] == 0.9);
    }

    #[test]
    fn a_residual_is_what_others_do_not_explain() {
        let slopes = vec![vec![1.0, 0.0], vec![3.0, 4.0]];
        assert_eq!(residual(&slopes, &[0], 1), [0.0, 4.0]);
        assert_eq!(choose(&slopes, &[], &[0.0; 2]), [0, 1]);
        assert_eq!(choose(&[vec![0.1, 0.1], vec![0.0, 0.0]], &[], &[0.0; 2]), Vec::<usize>::new());
        let alike = [vec![1.0, 0.0], vec![1.1, 0.0]];
        let of = |before: &[usize], away: [f64; 2]| choose(&alike, before, &away);
        assert_eq!((of(&[], [3.0, 1.0]), of(&[], [1.0, 3.0]), of(&[1], [1.0, 3.0])), (vec![1], vec![0], vec![1]));
    }
}

//! Which of many constants the rows decide, and the fit of those: for data that somebody measured, where nobody knows
//! beforehand what they tell.
//!
//! A constant is decided if the rows' change with it cannot be had from the constants that are decided already. The
//! constant with the largest such change comes first. A fit can bring another limit into play, so the choice is made
//! again after each fit.
//!
//! The fit may begin at a guess. In the end each constant that is not decided takes its home value, and the others are
//! fitted again with it. A home value that the rows contradict is not taken: the constant stays where it was.

use super::rows::{FreeConstant, Rows, Whole};
use super::{CalibrateError, Model, fit, linear::dot};
use crate::interrupt::StopFlag;
use crate::plan::Plan;
use crate::platform::{Platform, Unit};
use crate::published::Row;
use std::collections::BTreeMap;

/// Least change of all rows together, for a change of the constant's logarithm by one, at which it is decided: at a
/// noise of 3 % it is then known within 12 %.
const CHANGE_MIN: f64 = 0.25;
/// A change of this share of the largest one is as good.
const ALIKE: f64 = 0.8;
/// Most times that the choice is made.
const CHOICES_MAX: usize = 3;

/// A constant that the rows may decide.
#[derive(Clone, PartialEq, Debug)]
pub struct Candidate {
    /// Its key.
    pub key: String,
    /// The value that it takes unless the rows decide it, in the base of its unit.
    pub home: f64,
    /// Another constant that keeps its ratio to this one.
    pub follower: Option<String>,
}

/// A constant that the rows decide.
#[derive(Clone, PartialEq, Debug)]
pub struct Decided {
    /// Its key.
    pub key: String,
    /// Its unit.
    pub unit: Unit,
    /// In the base of its unit.
    pub value: f64,
    /// Its relative standard error, for the given noise of a row.
    pub uncertainty: f64,
    /// The rows that hold it, the strongest first: the change in per cent for 1 % more of the constant.
    pub rows: Vec<(String, f64)>,
}

/// What the rows decide.
#[derive(Clone, PartialEq, Debug)]
pub struct Decision {
    /// In the candidates' order.
    pub decided: Vec<Decided>,
    /// Keys of the candidates that the rows do not decide.
    pub undecided: Vec<String>,
    /// Those of them whose home value the rows contradict, each with the value that it keeps, in the base of its unit.
    pub kept: Vec<(String, f64)>,
    /// The rows' relative errors with the decided constants.
    pub errors: Vec<f64>,
    /// Ctrl-C ended it early.
    pub interrupted: bool,
}

/// Some of a model's constants; the others stand still.
pub(super) struct Part<'a> {
    pub model: &'a dyn Model,
    pub at: &'a [f64],
    pub chosen: &'a [usize],
}

impl Model for Part<'_> {
    fn errors(&self, steps: &[f64]) -> Result<Vec<f64>, CalibrateError> {
        let mut all = self.at.to_vec();
        for (&index, step) in self.chosen.iter().zip(steps) {
            all[index] += step;
        }
        self.model.errors(&all)
    }
}

/// Decides the constants of `platform` by rows whose values have a relative noise.
///
/// # Errors
/// A run fails with the platform's own constants; Ctrl-C before there is anything to show.
pub fn decide(
    platform: &Platform,
    candidates: &[Candidate],
    rows: &[Row],
    plans: &BTreeMap<String, Plan>,
    noise: f64,
    stop: &StopFlag,
) -> Result<Decision, CalibrateError> {
    let found =
        candidates.iter().filter_map(|candidate| Some((FreeConstant::candidate(platform, candidate)?, candidate.home)));
    let (constants, homes): (Vec<FreeConstant>, Vec<f64>) = found.unzip();
    let homes: Vec<f64> = constants.iter().zip(homes).map(|(constant, home)| constant.step_to(home)).collect();
    let model = Whole(Rows { rows: rows.to_vec(), plans: plans.clone(), constants: &constants, stop });
    let found = choose_and_fit(&model, &homes)?;
    let decided = found.chosen.iter().map(|&index| {
        let alone = residual(&found.slopes, &found.chosen, index);
        let mut held: Vec<(String, f64)> =
            rows.iter().zip(&found.slopes[index]).map(|(row, slope)| (row.id.clone(), *slope)).collect();
        held.retain(|(_, slope)| slope.abs() >= 0.1);
        held.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
        Decided {
            key: constants[index].key.clone(),
            unit: constants[index].spec.unit,
            value: constants[index].moved(found.at[index]),
            uncertainty: noise / dot(&alone, &alone).sqrt(),
            rows: held,
        }
    });
    let is_decided = |index: &usize| found.chosen.contains(index);
    let kept = found.kept.iter().filter(|index| !is_decided(index));
    Ok(Decision {
        decided: decided.collect(),
        undecided: (0..constants.len())
            .filter(|index| !is_decided(index))
            .map(|index| constants[index].key.clone())
            .collect(),
        kept: kept.map(|&index| (constants[index].key.clone(), constants[index].moved(found.at[index]))).collect(),
        errors: found.errors,
        interrupted: found.interrupted,
    })
}

/// The relative errors of rows with the platforms of their plans.
///
/// # Errors
/// A run fails; Ctrl-C.
pub fn errors(rows: &[Row], plans: &BTreeMap<String, Plan>, stop: &StopFlag) -> Result<Vec<f64>, CalibrateError> {
    Whole(Rows { rows: rows.to_vec(), plans: plans.clone(), constants: &[], stop }).errors(&[])
}

struct Found {
    at: Vec<f64>,
    chosen: Vec<usize>,
    /// Constants whose home the rows contradict.
    kept: Vec<usize>,
    slopes: Vec<Vec<f64>>,
    errors: Vec<f64>,
    interrupted: bool,
}

/// Chooses and fits; `homes` are the steps from where the fit begins to the constants' home values.
fn choose_and_fit(model: &dyn Model, homes: &[f64]) -> Result<Found, CalibrateError> {
    let at = vec![0.0; homes.len()];
    let errors = model.errors(&at)?;
    let slopes = fit::slopes(model, &at, &errors)?;
    let mut found = Found { at, chosen: Vec::new(), kept: Vec::new(), slopes, errors, interrupted: false };
    found.chosen = choose(&found.slopes, &[], &found.away(homes));
    let ended = found.settle(model, homes).and_then(|()| {
        for _ in 0..CHOICES_MAX {
            if !found.go_home(model, homes)? {
                break;
            }
            found.settle(model, homes)?;
        }
        Ok(())
    });
    match ended {
        Ok(()) => {}
        Err(CalibrateError::Stopped) => found.interrupted = true,
        Err(error) => return Err(error),
    }
    Ok(found)
}

impl Found {
    /// How far each constant is from its home.
    fn away(&self, homes: &[f64]) -> Vec<f64> {
        self.at.iter().zip(homes).map(|(at, home)| (at - home).abs()).collect()
    }

    /// Fits the chosen constants, and chooses again, until the choice stands. What is no longer chosen stays where it is,
    /// until it goes home: where it began, the rows may not be met.
    fn settle(&mut self, model: &dyn Model, homes: &[f64]) -> Result<(), CalibrateError> {
        for _ in 0..CHOICES_MAX {
            let part = Part { model, at: &self.at, chosen: &self.chosen };
            let fitted = fit::fit(&part, self.chosen.len(), fit::GOOD_ENOUGH)?;
            for (&index, step) in self.chosen.iter().zip(&fitted.steps) {
                self.at[index] += step;
            }
            self.errors = fitted.after;
            if fitted.interrupted {
                return Err(CalibrateError::Stopped);
            }
            self.slopes = fit::slopes(model, &self.at, &self.errors)?;
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
            let slopes = fit::slopes(model, &at, &errors)?;
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
fn residual(slopes: &[Vec<f64>], others: &[usize], index: usize) -> Vec<f64> {
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

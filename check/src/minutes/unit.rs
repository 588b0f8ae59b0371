//! A piece of work, and what came of it.

use crate::campaign::{self, Campaign, Found, hangs};
use crate::history::Recipe;
use crate::metamorphic::FAMILIES;
use crate::run::{Run, Scenario};
use crate::single::{self, Case};
use crate::systematic::{self, Task};
use crate::verdict::{Failure, Kind};
use machine::time::Ps;
use std::sync::Arc;

/// A piece of work.
#[derive(Clone)]
pub(super) enum Unit {
    /// A random history of this seed, with these knobs.
    History(&'static dyn Scenario, u64, Set),
    /// A set of operations in every order, within a bound and a budget.
    Orders { scenario: &'static dyn Scenario, tasks: Arc<[Task]>, task: usize, bound: usize, budget: u64 },
    /// A machine with one fault, at each position.
    Faults { scenario: &'static dyn Scenario, cases: Arc<[Case]>, case: usize },
    /// A history of this seed in all forms of a family.
    Forms(usize, u64),
}

/// Knobs with their values.
pub(super) type Set = &'static [(&'static str, &'static str)];

/// What came of it.
pub(super) struct Done {
    /// Of a random history.
    pub(super) run: Option<Run>,
    pub(super) found: Option<Found>,
}

/// Positions of a machine and fault.
const POSITIONS: u64 = 2_000;

impl Unit {
    pub(super) fn run(&self, campaign: &Campaign) -> Done {
        match self {
            Self::History(scenario, ..) => {
                let run = campaign::run_of(*scenario, &self.recipe(campaign));
                let found = run.failure.clone().map(|failure| self.found(campaign, failure, None));
                Done { run: Some(run), found }
            }
            Self::Orders { scenario, tasks, task, bound, budget } => {
                let task = &tasks[*task];
                let one = |schedule: &_| systematic::one(*scenario, task, schedule, 0);
                let explored = systematic::explore(task.operations.len() as u8, *bound, *budget, one);
                let found = explored.failure.map(|(schedule, failure)| {
                    let line = systematic::replay_line(*scenario, task, &schedule);
                    self.found(campaign, failure, Some(line))
                });
                Done { run: None, found }
            }
            Self::Faults { scenario, cases, case } => {
                let case = &cases[*case];
                let failure = match single::explore(*scenario, case, POSITIONS) {
                    Ok(verdict) => verdict.failure,
                    Err(error) => Some((0, input(error.to_string()))),
                };
                let found = failure.map(|(position, failure)| {
                    self.found(campaign, failure, Some(single::line(scenario.name(), &case.name, position)))
                });
                Done { run: None, found }
            }
            Self::Forms(family, seed) => {
                let common = Recipe { seed: *seed, ..campaign.recipe.clone() };
                let failure = match FAMILIES[*family].run(&campaign.scenarios, &common) {
                    Ok(broken) => broken.map(|broken| broken.failure()),
                    Err(error) => Some(input(error.to_string())),
                };
                Done { run: None, found: failure.map(|failure| self.found(campaign, failure, self.line())) }
            }
        }
    }

    /// The scenario of a random history; of other searches the first that they run.
    pub(super) fn scenario(&self) -> &'static str {
        match self {
            Self::History(scenario, ..) | Self::Orders { scenario, .. } | Self::Faults { scenario, .. } => {
                scenario.name()
            }
            Self::Forms(family, _) => FAMILIES[*family].forms[0].0,
        }
    }

    /// What is said of a piece that does not end on the host.
    pub(super) fn hang(&self, campaign: &Campaign) -> Found {
        Found { hangs: true, ..self.found(campaign, hangs(), self.line()) }
    }

    /// The line that runs all of it again, if that is no history.
    fn line(&self) -> Option<String> {
        match self {
            Self::History(..) => None,
            Self::Orders { scenario, tasks, task, bound, budget } => Some(format!(
                "campanile check --scenario {} --systematic {} --bound {bound} --budget {budget}",
                scenario.name(),
                tasks[*task]
            )),
            Self::Faults { scenario, cases, case } => {
                Some(format!("campanile check --scenario {} --single-faults {}", scenario.name(), cases[*case]))
            }
            Self::Forms(family, seed) => {
                Some(format!("campanile check --metamorphic {} --seed {seed:#x} --seeds 1", FAMILIES[*family].name))
            }
        }
    }

    fn found(&self, campaign: &Campaign, failure: Failure, line: Option<String>) -> Found {
        let recipe = self.recipe(campaign);
        Found { index: 0, scenario: self.scenario(), recipe, failure, hangs: false, line }
    }

    /// The recipe of a history. What was set by hand stays.
    fn recipe(&self, campaign: &Campaign) -> Recipe {
        let (seed, more) = match self {
            Self::History(_, seed, more) => (*seed, *more),
            Self::Forms(_, seed) => (*seed, &[][..]),
            Self::Orders { .. } | Self::Faults { .. } => (0, &[][..]),
        };
        let mut recipe = Recipe { seed, ..campaign.recipe.clone() };
        for &(name, value) in more {
            recipe.set.entry(name.into()).or_insert(value.into());
        }
        recipe
    }
}

fn input(text: String) -> Failure {
    Failure::new(Kind::Correctness, "input", Ps(0), text)
}

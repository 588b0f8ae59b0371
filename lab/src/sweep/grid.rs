//! Every run of a sweep, numbered.
//!
//! The number counts the seeds fastest, then the deliveries, the last axis of the grid, …, the points, the platforms, and
//! the scenarios slowest. A *point* is everything but delivery and seed: one plan.

use super::read::{Axis, Definition};
use crate::input::{InputError, Place, Problem, STANDARD_INPUT};
use crate::plan::Plan;
use crate::platform::Platform;
use crate::scenario::Request;
use crate::scenario::files::Files;
use crate::setting::Setting;

/// Most runs of one sweep. Some thirty quantities of each and its timeline are held in memory when the table is written: 3 to
/// 4 KiB a run.
pub const RUNS_MAX: u64 = 200_000;
/// Points of a scenario and platform that are tried for one that runs: 200,000 impossible ones took minutes.
const TRIED_MAX: u64 = 256;

/// A sweep's runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    /// The sweep.
    pub definition: Definition,
    /// The deliveries of each scenario's points, in order.
    deliveries: Vec<Vec<String>>,
    /// The keys that differ between points: those of the listed points, then those of the grid.
    pub keys: Vec<String>,
}

/// What one run is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Its point's number.
    pub point: u64,
    /// The scenario.
    pub scenario: String,
    /// The platform; none: the scenario's own.
    pub platform: Option<String>,
    /// A value for each of [`Grid::keys`]; none if a listed point does not set it.
    pub values: Vec<Option<String>>,
    /// The variant.
    pub delivery: String,
    /// The seed.
    pub seed: u64,
}

impl Grid {
    /// Numbers the runs of a sweep.
    ///
    /// # Errors
    /// There are more than [`RUNS_MAX`], or no delivery is named and none of the first points has any.
    pub fn new(definition: Definition) -> Result<Self, InputError> {
        let mut keys: Vec<String> = Vec::new();
        for (key, _) in definition.points.iter().flatten() {
            if !keys.contains(key) {
                keys.push(key.clone());
            }
        }
        keys.extend(definition.grid.iter().map(|axis| axis.key.clone()));
        let deliveries = vec![definition.deliveries.clone().unwrap_or_default(); definition.scenarios.len()];
        let mut grid = Self { definition, deliveries, keys };
        grid.is_small_enough()?;
        grid.try_inputs()?;
        grid.is_small_enough()?;
        Ok(grid)
    }

    /// Refuses a sweep that is too large, with its size.
    fn is_small_enough(&self) -> Result<(), InputError> {
        let Definition { scenarios, platforms, points, grid, seeds, place, .. } = &self.definition;
        let deliveries = || self.deliveries.iter().map(|deliveries| deliveries.len().max(1));
        let axes = grid.iter().map(|axis| (axis.values.len(), axis.key.as_str()));
        let shared: Vec<(usize, &str)> =
            [(platforms.len(), "platforms"), (points.len(), "points")].into_iter().chain(axes).collect();
        // Each scenario has its own deliveries.
        let counts = shared.iter().map(|(count, _)| *count).chain([deliveries().sum(), seeds.len()]);
        let runs = counts.fold(1_u128, |runs, count| runs.saturating_mul(count as u128));
        if runs <= u128::from(RUNS_MAX) {
            return Ok(());
        }
        let most = deliveries().max().unwrap_or(1);
        let counts: Vec<String> = [(scenarios.len(), "scenarios")]
            .into_iter()
            .chain(shared)
            .chain([(most, "deliveries"), (seeds.len(), "seeds")])
            .filter(|(count, _)| *count > 1)
            .map(|(count, name)| format!("{count} {name}"))
            .collect();
        let why = format!("is too large: {} make {runs} runs; valid: at most {RUNS_MAX}", counts.join(" × "));
        Err(InputError::new(place, "", Problem::Syntax(why)))
    }

    /// Plans each scenario on each platform once, so that all inputs are read. Without deliveries: a scenario has those of its
    /// first point that has a plan.
    ///
    /// # Errors
    /// A file that every point of a scenario needs is wrong, or the sweep sets a name that nowhere exists.
    fn try_inputs(&mut self) -> Result<(), InputError> {
        for name in self.definition.platforms.iter().flatten() {
            Platform::load(&Setting::new(self.definition.place.clone(), "platforms", name))?;
        }
        for name in self.definition.scenarios.iter().filter(|name| *name != STANDARD_INPUT) {
            let (files, path) = Files::locate(name).map_err(|error| self.of_file(error))?;
            files.read(&path).map_err(|why| InputError::new(&Place::file(&path), "", Problem::Io(why)))?;
        }
        let within = self.points_within();
        let outers = self.points() / within;
        let mut failed: Vec<(u64, InputError)> = Vec::new();
        for outer in 0..outers {
            let mut first_error = None;
            let scenario = self.scenario_of(outer * within);
            for inner in 0..within.min(TRIED_MAX) {
                match self.plan(outer * within + inner, None) {
                    Ok(plan) => {
                        if self.deliveries[scenario].is_empty() {
                            self.deliveries[scenario] = plan.work.names();
                        }
                        first_error = None;
                        break;
                    }
                    Err(error) => _ = first_error.get_or_insert(error),
                }
            }
            failed.extend(first_error.map(|error| (outer * within, error)));
        }
        // What only some platforms or scenarios cannot do is an error in their rows, whichever comes first.
        let is_for_all = within == 1 || failed.iter().all(|(_, error)| error.is_unknown_name());
        let is_everywhere = failed.len() as u64 == outers && is_for_all;
        let has_none = |point: u64| self.deliveries[self.scenario_of(point)].is_empty();
        failed.retain(|(point, _)| is_everywhere || has_none(*point));
        // The one that says most, wherever it stands: a value that is wrong, before a key that a scenario lacks.
        let is_shared = failed.len() as u64 == outers && failed.iter().all(|(_, error)| *error == failed[0].1);
        let worst = failed.into_iter().min_by_key(|(point, error)| (error.is_unknown_name(), self.whose(*point)));
        worst.map_or(Ok(()), |(point, error)| Err(if is_shared { error } else { self.named(error, point) }))
    }

    /// The index of a point's scenario.
    fn scenario_of(&self, point: u64) -> usize {
        (point / self.points_of_scenario()) as usize
    }

    /// A point's scenario, and its platform if the sweep names any: `emr-4-drives on optane`.
    pub(super) fn whose(&self, point: u64) -> String {
        let (scenario, platform, _) = self.of_point(point);
        let name = std::path::Path::new(scenario).file_name().map_or(scenario.into(), |name| name.to_string_lossy());
        platform.map_or_else(|| name.to_string(), |platform| format!("{name} on {platform}"))
    }

    /// An error of a point. With several scenarios or platforms it names the point's.
    fn named(&self, mut error: InputError, point: u64) -> InputError {
        if self.definition.scenarios.len() > 1 || self.definition.platforms.len() > 1 {
            let comma = if error.key.is_empty() { "" } else { ", " };
            error.key = format!("{}{comma}in {}", error.key, self.whose(point));
        }
        error
    }

    /// An error in what stands in the sweep's file and not on a command line.
    fn of_file(&self, mut error: InputError) -> InputError {
        let key = match error.place.file.as_str() {
            "--set" => "set",
            "--define" => "define",
            "--delivery" => "deliveries",
            "--platform" => "platforms",
            "input" => "scenario",
            _ => return error,
        };
        if error.key.is_empty() {
            error.key = key.to_owned();
        }
        let Definition { place, places, .. } = &self.definition;
        error.place = places.get(&error.key).unwrap_or(place).clone();
        error
    }

    /// Points of one scenario on one platform.
    fn points_within(&self) -> u64 {
        let listed = self.definition.points.len() as u64;
        listed * self.definition.grid.iter().map(|axis| axis.values.len() as u64).product::<u64>()
    }

    /// Points of one scenario.
    fn points_of_scenario(&self) -> u64 {
        self.definition.platforms.len() as u64 * self.points_within()
    }

    /// Points.
    pub fn points(&self) -> u64 {
        self.definition.scenarios.len() as u64 * self.points_of_scenario()
    }

    /// Runs.
    pub fn runs(&self) -> u64 {
        let deliveries: usize = self.deliveries.iter().map(Vec::len).sum();
        deliveries as u64 * self.points_of_scenario() * self.definition.seeds.len() as u64
    }

    /// The deliveries of any scenario, each once.
    pub fn deliveries(&self) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        for delivery in self.deliveries.iter().flatten() {
            if !found.contains(delivery) {
                found.push(delivery.clone());
            }
        }
        found
    }

    /// The point of a run, and the number of its run among those of the point.
    fn within_point(&self, mut run: u64) -> (u64, u64) {
        let (points, seeds) = (self.points_of_scenario(), self.definition.seeds.len() as u64);
        let mut first = 0;
        for deliveries in &self.deliveries {
            let of_point = deliveries.len() as u64 * seeds;
            if run < points * of_point {
                return (first + run / of_point, run % of_point);
            }
            run -= points * of_point;
            first += points;
        }
        (first, run)
    }

    /// The point of the run of that number.
    pub fn point_of(&self, run: u64) -> u64 {
        self.within_point(run).0
    }

    /// What the run of that number is.
    pub fn setup(&self, run: u64) -> Setup {
        let seeds = &self.definition.seeds;
        let (point, within) = self.within_point(run);
        let (delivery, seed) = (within / seeds.len() as u64, within % seeds.len() as u64);
        let (scenario, platform, values) = self.of_point(point);
        Setup {
            point,
            scenario: scenario.to_owned(),
            platform: platform.map(str::to_owned),
            values: values.into_iter().map(|value| value.map(str::to_owned)).collect(),
            delivery: self.deliveries[self.scenario_of(point)][delivery as usize].clone(),
            seed: seeds[seed as usize],
        }
    }

    /// Scenario, platform and values of a point.
    fn of_point(&self, point: u64) -> (&str, Option<&str>, Vec<Option<&str>>) {
        let Definition { scenarios, platforms, points, grid, .. } = &self.definition;
        let mut rest = point;
        let mut digit = |count: usize| {
            let digit = rest % count as u64;
            rest /= count as u64;
            digit as usize
        };
        let mut own: Vec<(&Axis, usize)> = grid.iter().rev().map(|axis| (axis, digit(axis.values.len()))).collect();
        own.reverse();
        let listed = &points[digit(points.len())];
        let (platform, scenario) = (digit(platforms.len()), digit(scenarios.len()));
        let keys = &self.keys[..self.keys.len() - grid.len()];
        let value = |key: &String| listed.iter().rev().find(|(known, _)| known == key).map(|(_, text)| text.as_str());
        let values = keys.iter().map(value).chain(own.iter().map(|(axis, at)| Some(axis.values[*at].as_str())));
        (&scenarios[scenario], platforms[platform].as_deref(), values.collect())
    }

    /// Why a point has no plan in any of its deliveries that are asked for; none if it has one in each.
    pub(super) fn refusal(&self, point: u64) -> Option<InputError> {
        self.plan(point, None).err().map(|error| self.named(error, point))
    }

    /// The plan of a point: with one delivery, or with those of the sweep.
    ///
    /// # Errors
    /// The point is not possible.
    pub fn plan(&self, point: u64, delivery: Option<&str>) -> Result<Plan, InputError> {
        let (scenario, platform, values) = self.of_point(point);
        let own = self.keys.iter().zip(values).filter_map(|(key, value)| Some(format!("{key}={}", value?)));
        let deliveries = match delivery {
            Some(delivery) => vec![delivery.to_owned()],
            None => self.deliveries[self.scenario_of(point)].clone(),
        };
        let request = Request {
            input: scenario.to_owned(),
            platform: platform.map(str::to_owned),
            deliveries: (!deliveries.is_empty()).then_some(deliveries),
            seeds: Some(1),
            sets: self.definition.sets.iter().cloned().chain(own).collect(),
            defines: self.definition.defines.clone(),
        };
        request.plan().map_err(|error| self.of_file(error))
    }
}

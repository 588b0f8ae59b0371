//! Published rows as a function of the constants.

use super::{CalibrateError, Candidate, Model};
use crate::input::{InputError, Place};
use crate::interrupt::StopFlag;
use crate::kinds::storage::Storage;
use crate::plan::Plan;
use crate::platform::{Constant, Platform, Spec};
use crate::published::{self, Usage};
use crate::reproduce::{self, Outcomes};
use hal::CpuSet;
use std::collections::BTreeMap;

/// A free constant.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct FreeConstant {
    /// Its key: `fabric.remap_service`.
    pub key: String,
    /// Unit and bounds.
    pub spec: &'static Spec,
    /// Its value, in the base of its unit.
    pub value: f64,
    /// Where it is set. A plan in which another place sets it, such as a scenario, keeps its own value.
    place: Place,
    /// It moves with this one, by the same factor.
    follower: Option<Box<FreeConstant>>,
}

impl FreeConstant {
    fn new(key: String, spec: &'static Spec, constant: &Constant) -> Self {
        let (value, place) = (constant.value, constant.place.clone());
        Self { key, spec, value, place, follower: None }
    }

    /// The constant of that key, free or not.
    fn of(platform: &Platform, key: &str) -> Option<Self> {
        let (key, spec, constant) = platform.constants().into_iter().find(|(known, ..)| known == key)?;
        Some(Self::new(key, spec, constant))
    }

    /// A candidate with its follower, free or not.
    pub(super) fn candidate(platform: &Platform, candidate: &Candidate) -> Option<Self> {
        let follower = candidate.follower.as_ref().and_then(|key| Self::of(platform, key)).map(Box::new);
        Some(Self { follower, ..Self::of(platform, &candidate.key)? })
    }

    /// The change of its logarithm that gives it a value.
    pub(super) fn step_to(&self, value: f64) -> f64 {
        if value > 0.0 && self.value > 0.0 { (value / self.value).ln() } else { 0.0 }
    }

    /// The free constants of a platform's own file.
    pub(crate) fn own(platform: &Platform) -> Vec<Self> {
        let own = platform.free_constants().into_iter();
        own.map(|(key, spec, constant)| Self::new(key, spec, constant)).collect()
    }

    /// The constants of a platform that have a region, free or not, each with its factors.
    pub(crate) fn with_regions(platform: &Platform) -> Vec<(Self, Vec<f64>)> {
        let all = platform.constants().into_iter().filter(|(.., constant)| !constant.region.is_empty());
        all.map(|(key, spec, constant)| (Self::new(key, spec, constant), constant.region.clone())).collect()
    }

    /// The same constant with another value.
    pub(crate) fn shifted(&self, step: f64) -> Self {
        let follower = self.follower.as_ref().map(|follower| Box::new(follower.shifted(step)));
        Self { value: self.moved(step), follower, ..self.clone() }
    }

    /// Moves it in a platform by a change of its logarithm, unless another place sets it there.
    fn move_in(&self, platform: &mut Platform, step: f64) {
        if let Some((_, constant)) = platform.get_mut(&self.key)
            && constant.place == self.place
        {
            constant.value = self.moved(step);
        }
        if let Some(follower) = &self.follower {
            follower.move_in(platform, step);
        }
    }

    /// Moves constants of a platform, each by a step of its own. A drive's smallest media time stays at most its mean.
    pub(crate) fn move_all<'a>(platform: &mut Platform, moved: impl Iterator<Item = (&'a Self, f64)>) {
        moved.for_each(|(free, step)| free.move_in(platform, step));
        for (_, drive) in &mut platform.drives {
            drive.media_floor.value = drive.media_floor.value.min(drive.media_mean.value);
        }
    }

    /// Its value after a change of its logarithm, within its bounds.
    pub(crate) fn moved(&self, step: f64) -> f64 {
        (self.value * step.exp()).clamp(self.spec.min, self.spec.max)
    }

    /// The least and the greatest change of its logarithm: to its bounds, at most to a quarter and to four times.
    pub(crate) fn bounds(&self) -> [f64; 2] {
        let log =
            |bound: f64| if bound > 0.0 && self.value > 0.0 { (bound / self.value).ln() } else { f64::NEG_INFINITY };
        let most = super::region::LOG_MAX;
        [log(self.spec.min).clamp(-most, 0.0), log(self.spec.max).clamp(0.0, most)]
    }
}

/// The free constants that a platform's figures depend on: its own, and those of its bases that it does not set.
pub(crate) struct Family {
    /// Its own first.
    pub constants: Vec<FreeConstant>,
    /// The platform and the bases that free constants come from.
    pub platforms: Vec<String>,
}

impl Family {
    /// # Errors
    /// A base cannot be read.
    pub(crate) fn of(platform: &Platform) -> Result<Self, InputError> {
        let mut family = Self { constants: FreeConstant::own(platform), platforms: vec![platform.name.clone()] };
        let mut next = platform.base.clone();
        while let Some(setting) = next {
            let base = Platform::load(&setting)?;
            let is_inherited = |key: &str, constant: &Constant| {
                platform.constants().iter().any(|(known, _, own)| known == key && own.place == constant.place)
            };
            let lent = base.free_constants().into_iter().filter(|(key, _, constant)| is_inherited(key, constant));
            let lent: Vec<_> = lent.map(|(key, spec, constant)| FreeConstant::new(key, spec, constant)).collect();
            if !lent.is_empty() {
                family.platforms.push(base.name.clone());
                family.constants.extend(lent);
            }
            next = base.base;
        }
        Ok(family)
    }

    /// The rows that hold its constants.
    ///
    /// # Errors
    /// As [`published::rows`].
    pub(crate) fn fitted_rows(&self) -> Result<Vec<published::Row>, InputError> {
        let is_own = |row: &published::Row| row.usage == Usage::Fit && self.platforms.contains(&row.platform);
        Ok(published::rows()?.into_iter().filter(is_own).collect())
    }
}

/// Rows, the plans that give them, and the constants that move.
pub(super) struct Rows<'a> {
    pub rows: Vec<published::Row>,
    pub plans: BTreeMap<String, Plan>,
    pub constants: &'a [FreeConstant],
    pub stop: &'a StopFlag,
}

impl Rows<'_> {
    /// The outcomes with each constant's logarithm moved by its step.
    pub(super) fn outcomes(&self, steps: &[f64]) -> Result<Outcomes, CalibrateError> {
        let moved = |plan: &Plan| {
            let mut plan = plan.clone();
            FreeConstant::move_all(&mut plan.platform, self.constants.iter().zip(steps.iter().copied()));
            plan.validate()?;
            Ok(plan)
        };
        let plans = self.plans.iter().map(|(name, plan)| Ok((name.clone(), moved(plan)?)));
        let plans: BTreeMap<String, Plan> = plans.collect::<Result<_, InputError>>()?;
        let ran = reproduce::run_quietly(&plans, &self.rows, self.stop);
        if self.stop.is_set() {
            return Err(CalibrateError::Stopped);
        }
        Ok(ran.complete()?)
    }

    /// Each row's value from outcomes, in the rows' order.
    ///
    /// # Errors
    /// A row asks for a quantity that its runs do not have, or has no figure.
    pub(super) fn values(&self, outcomes: &Outcomes) -> Result<Vec<f64>, CalibrateError> {
        reproduce::check_quantities(&self.rows, outcomes).map_err(CalibrateError::Input)?;
        let compared = reproduce::compare(&self.rows, outcomes);
        let value = |row: &published::Row| {
            let found = compared.iter().find(|found| found.id == row.id && found.value.is_finite());
            found.map(|found| found.value).ok_or_else(|| CalibrateError::NoFigure(row.id.clone()))
        };
        self.rows.iter().map(value).collect()
    }
}

/// What a fit makes small: relative errors, of whole runs.
pub(super) struct Whole<'a>(pub Rows<'a>);

impl Model for Whole<'_> {
    fn errors(&self, steps: &[f64]) -> Result<Vec<f64>, CalibrateError> {
        let values = self.0.values(&self.0.outcomes(steps)?)?;
        let relative = |(row, value): (&published::Row, f64)| value / row.published.unwrap_or(f64::NAN) - 1.0;
        Ok(self.0.rows.iter().zip(values).map(relative).collect())
    }
}

/// Values of rows by short runs of one seed. The whole runs at the centre anchor them: a short run gives only the
/// change from the centre, so that neither its span nor its seed shifts a value.
pub(super) struct Anchored<'a> {
    rows: Rows<'a>,
    /// The plans of the whole runs.
    full: BTreeMap<String, Plan>,
    /// The values of the whole runs, all seeds.
    whole: Vec<f64>,
    /// The values of the short runs at the centre.
    short: Vec<f64>,
}

/// How short runs are made, and when they will do.
#[derive(Clone, Copy)]
pub(super) struct Short {
    /// The ramp is divided by this.
    ramp: u64,
    /// The span is divided by this.
    span: u64,
    /// The greatest difference between short and whole run of the same seed: relative, of a share in hundredths.
    drift: f64,
}

/// Runs of a scenario that is stationary.
const STATIONARY: Short = Short { ramp: 2, span: 4, drift: 0.01 };
/// Runs of measurements, whose noise is greater. CPU times still drift in them by some per cent, whatever the constants are.
pub(super) const DRIFTING: Short = Short { ramp: 4, span: 2, drift: 0.12 };

impl<'a> Anchored<'a> {
    /// Runs the rows once at the centre. `whole` are the outcomes of the plans as they stand.
    ///
    /// # Errors
    /// A run fails, a row has no figure, Ctrl-C.
    pub(super) fn new(rows: Rows<'a>, whole: &Outcomes) -> Result<Self, CalibrateError> {
        Self::with(STATIONARY, rows, whole)
    }

    /// As [`Anchored::new`], with short runs of this kind.
    ///
    /// # Errors
    /// As [`Anchored::new`].
    pub(super) fn with(kind: Short, mut rows: Rows<'a>, whole: &Outcomes) -> Result<Self, CalibrateError> {
        let values = rows.values(whole)?;
        let mut first = whole.clone();
        first.values_mut().for_each(|outcomes| outcomes.truncate(1));
        let first = rows.values(&first)?;
        let full = rows.plans.clone();
        for plan in rows.plans.values_mut() {
            *plan = shortened(plan, kind);
        }
        let centre = vec![0.0; rows.constants.len()];
        let short = rows.values(&rows.outcomes(&centre)?)?;
        for (row, (short, first)) in rows.rows.iter().zip(short.iter().zip(&first)) {
            if error(row, *short, *first).abs() <= kind.drift {
                continue;
            }
            for name in &row.scenarios {
                let mut plan = full[name].clone();
                plan.seeds.truncate(1);
                rows.plans.insert(name.clone(), plan);
            }
        }
        let short = rows.values(&rows.outcomes(&centre)?)?;
        Ok(Self { rows, full, whole: values, short })
    }

    /// The rows' values with each constant's logarithm moved by its step.
    ///
    /// # Errors
    /// As [`Model::errors`].
    pub(super) fn values(&self, steps: &[f64]) -> Result<Vec<f64>, CalibrateError> {
        let short = self.rows.values(&self.rows.outcomes(steps)?)?;
        let anchored = |((row, now), (whole, then)): ((&published::Row, f64), (&f64, &f64))| {
            let is_share = row.unit.starts_with('%') || *then == 0.0;
            if is_share { whole + (now - then) } else { whole * (now / then) }
        };
        Ok(self.rows.rows.iter().zip(short).zip(self.whole.iter().zip(&self.short)).map(anchored).collect())
    }
}

impl Model for Anchored<'_> {
    fn errors(&self, steps: &[f64]) -> Result<Vec<f64>, CalibrateError> {
        let of = |(row, value): (&published::Row, f64)| error(row, value, row.published.unwrap_or(f64::NAN));
        Ok(self.rows.rows.iter().zip(self.values(steps)?).map(of).collect())
    }

    fn whole(&self, steps: &[f64]) -> Result<Vec<f64>, CalibrateError> {
        let of = |(row, value): (&published::Row, f64)| error(row, value, row.published.unwrap_or(f64::NAN));
        let (rows, constants, stop) = (self.rows.rows.clone(), self.rows.constants, self.rows.stop);
        let rows = Rows { rows, plans: self.full.clone(), constants, stop };
        let values = rows.values(&rows.outcomes(steps)?)?;
        Ok(rows.rows.iter().zip(values).map(of).collect())
    }
}

/// The deviation of a row's value from another: relative, of a share in hundredths.
fn error(row: &published::Row, value: f64, from: f64) -> f64 {
    match () {
        () if row.unit.starts_with('%') => (value - from) / 100.0,
        () if value == from => 0.0,
        () => value / from - 1.0,
    }
}

/// I/Os of a phase in a short run, from which on its jobs no longer wait for each other.
pub(crate) const TOGETHER_IOS_SHORT: u64 = 50_000;

/// The ramp and the span of the short run that a fit to measurements repeats, in ns.
pub(crate) fn short_ns(plan: &Plan) -> f64 {
    let short = shortened(plan, DRIFTING).spans;
    (short.ramp_ns + short.measured_ns) as f64
}

/// True if threads share a CPU: each has to have its turns.
fn is_crowded(plan: &Plan) -> bool {
    let Some(storage) = plan.storage() else { return false };
    let mut cpus = CpuSet::new();
    storage.jobs.iter().flat_map(|job| job.cpus.iter()).for_each(|cpu| cpus.insert(cpu));
    storage.jobs.len() > cpus.iter().count()
}

/// One seed, a shorter span; the plan with one seed if it does not run over the shorter span, or if threads take turns.
fn shortened(plan: &Plan, kind: Short) -> Plan {
    let mut whole = plan.clone();
    whole.seeds.truncate(1);
    if is_crowded(plan) {
        return whole;
    }
    let mut short = whole.clone();
    short.spans.ramp_ns /= kind.ramp;
    short.spans.measured_ns /= kind.span;
    // Jobs that are stopped together do not go by the span.
    if let Some(comparison) = short.work.of_mut::<Storage>() {
        comparison.experiment.together_ios = comparison.experiment.together_ios.min(TOGETHER_IOS_SHORT);
    }
    if short.validate().is_ok() { short } else { whole }
}

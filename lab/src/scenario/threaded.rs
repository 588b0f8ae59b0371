//! An experiment on a threaded interrupt: what `[threaded]` of a scenario says.

use super::Resolved;
use super::draft::{Asked, Draft};
use crate::input::{InputError, Warning};
use crate::plan::threaded::ITERATIONS_MAX;
use crate::plan::{Experiment, Spans, Threaded, ThreadedVariant, Variant};
use crate::platform::{Platform, Unit};
use crate::setting::Setting;

/// Its keys.
const KEYS: &[&str] = &["threaded.iterations", "threaded.neighbour"];
/// What an iteration stands for: the published ones last so long.
const ASKED_ITERATION_NS: u64 = 5_000_000_000;

/// An experiment on a threaded interrupt while its settings come in.
pub(super) struct ThreadedDraft {
    threaded: Threaded,
}

impl ThreadedDraft {
    /// The published one: 20 iterations, and nothing else on the CPU.
    pub(super) fn new() -> Self {
        Self { threaded: Threaded { iterations: 20, neighbour_ns: None } }
    }

    /// Every key.
    pub(super) fn keys() -> Vec<String> {
        KEYS.iter().map(ToString::to_string).collect()
    }

    /// Takes a setting if it is this kind's.
    pub(super) fn apply(&mut self, setting: &Setting) -> Result<bool, InputError> {
        match setting.key.as_str() {
            "threaded.iterations" => {
                self.threaded.iterations = Unit::Count.read(setting, 1.0, ITERATIONS_MAX.into())? as u32;
            }
            "threaded.neighbour" => self.threaded.neighbour_ns = Some(Unit::Time.read(setting, 10e3, 10e9)? as u64),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// What the settings make of it. One CPU is enough: all is pinned to it.
    pub(super) fn resolve(&self, draft: &Draft, asked: Option<Asked>) -> Result<Resolved, InputError> {
        let variants = match asked {
            Some(asked) => asked.each(variant)?,
            None => ThreadedVariant::ALL.to_vec(),
        };
        let asked_ns = ASKED_ITERATION_NS * u64::from(self.threaded.iterations);
        Ok(Resolved {
            cpus: draft.cpus_or(Some(1))?,
            experiment: Experiment::Threaded(self.threaded.clone()),
            variants: variants.into_iter().map(Variant::Threaded).collect(),
            spans: Spans { asked_runtime_ns: Some(asked_ns), ..draft.spans(u64::MAX) },
            warnings: by_construction(&draft.platform).into_iter().collect(),
        })
    }
}

/// What the gain must be read with where it has a constant of its own.
fn by_construction(platform: &Platform) -> Option<Warning> {
    let distributor = &platform.gic.as_ref()?.distributor;
    distributor.fit.then(|| Warning {
        place: distributor.place.clone(),
        key: "gic.distributor".into(),
        meaning: "one free constant for one published gain, which is so fitted by construction; the evidence is the \
                  accesses that are counted"
            .into(),
    })
}

/// A variant by its name.
fn variant(setting: &Setting) -> Result<ThreadedVariant, InputError> {
    let found = ThreadedVariant::ALL.into_iter().find(|variant| variant.name() == setting.text.trim());
    found.ok_or_else(|| setting.wrong("is no variant", ThreadedVariant::ALL.map(ThreadedVariant::name).join(", ")))
}

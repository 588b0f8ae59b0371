//! Resolves the settings of an experiment on a threaded interrupt, and validates the result.

use super::{Threaded, ThreadedVariant};
use crate::input::{InputError, Warning};
use crate::plan::{Plan, Spans, Work};
use crate::platform::Platform;
use crate::scenario::common::Common;
use crate::scenario::draft::{Asked, Resolved, variants_or};

/// Most iterations.
pub const ITERATIONS_MAX: u32 = 1000;
/// The shortest iteration: tens of cycles.
const ITERATION_NS_MIN: u64 = 100_000;
/// The duration that an iteration stands for: that of the published iterations.
const ASKED_ITERATION_NS: u64 = 5_000_000_000;
/// Most CPUs of a GICv2.
const CPUS_V2: u32 = 8;

/// The default is one CPU, because everything is pinned to it.
pub(super) fn resolve(threaded: &Threaded, common: &Common, asked: Option<Asked>) -> Result<Resolved, InputError> {
    let variants = variants_or(asked, ThreadedVariant::COMPARED)?;
    let asked_ns = ASKED_ITERATION_NS * u64::from(threaded.iterations);
    Ok(Resolved {
        cpus: common.cpus_or(Some(1))?,
        work: Work::new(threaded.clone(), variants),
        spans: Spans { asked_runtime_ns: Some(asked_ns), ..common.spans(u64::MAX) },
        warnings: by_construction(&common.platform).into_iter().collect(),
    })
}

/// Warns about the gain if the platform has a free constant for it alone.
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

/// Checks that the experiment can run on `plan`'s machine.
pub(super) fn validate(threaded: &Threaded, plan: &Plan) -> Result<(), InputError> {
    let wrong = |key: &str, value: String, why: &str, valid: String| {
        Err(InputError::value(&plan.source, key.to_owned(), value, why, valid))
    };
    let Some(gic) = &plan.platform.gic else {
        return wrong("platform", plan.platform.name.clone(), "has no GIC", "one with [gic]".into());
    };
    if gic.version.whole() == 2 && plan.cpus > CPUS_V2 {
        return wrong("cpus", plan.cpus.to_string(), "is more than a GICv2 serves", format!("1 to {CPUS_V2}"));
    }
    if threaded.iteration_ns(plan) < ITERATION_NS_MIN {
        let valid = format!("at most one for each {} us of the duration", ITERATION_NS_MIN / 1000);
        return wrong("threaded.iterations", threaded.iterations.to_string(), "leaves too few cycles to each", valid);
    }
    Ok(())
}

//! An experiment on a threaded interrupt: software raises it, waits for its thread, and raises it again.

use super::Plan;
use crate::input::InputError;
use std::fmt;

/// One line whose handler runs in a thread, raised and waited for, one cycle at a time, all on one CPU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Threaded {
    /// Equal parts of the measured span, each with a rate of its own.
    pub iterations: u32,
    /// Mean time between two interrupts of another device on the same CPU, whose handler has no thread. None: no such
    /// device.
    pub neighbour_ns: Option<u64>,
}

/// How the line is held back until its thread is done.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ThreadedVariant {
    /// EOImode 0: masked before the thread, unmasked by it.
    Mask,
    /// EOImode 1: it stays active until its thread deactivates it.
    EoiMode1,
}

impl ThreadedVariant {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Mask, Self::EoiMode1];

    /// Its name on the command line and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mask => "mask",
            Self::EoiMode1 => "eoimode1",
        }
    }
}

impl fmt::Display for ThreadedVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Most iterations.
pub const ITERATIONS_MAX: u32 = 1000;
/// The shortest one: tens of cycles.
const ITERATION_NS_MIN: u64 = 100_000;
/// CPUs that a GICv2 can have.
const CPUS_V2: u32 = 8;

impl Threaded {
    /// How long an iteration of `plan` lasts.
    pub fn iteration_ns(&self, plan: &Plan) -> u64 {
        plan.spans.measured_ns / u64::from(self.iterations)
    }

    /// Checks that the experiment can run on `plan`'s machine.
    pub(super) fn validate(&self, plan: &Plan) -> Result<(), InputError> {
        let wrong = |key: &str, value: String, why: &str, valid: String| {
            Err(InputError::value(&plan.source, key.to_owned(), value, why, valid))
        };
        let Some(gic) = &plan.platform.gic else {
            return wrong("platform", plan.platform.name.clone(), "has no GIC", "one with [gic]".into());
        };
        if gic.version.whole() == 2 && plan.cpus > CPUS_V2 {
            return wrong("cpus", plan.cpus.to_string(), "is more than a GICv2 serves", format!("1 to {CPUS_V2}"));
        }
        if self.iteration_ns(plan) < ITERATION_NS_MIN {
            let valid = format!("at most one for each {} us of the duration", ITERATION_NS_MIN / 1000);
            return wrong("threaded.iterations", self.iterations.to_string(), "leaves too few cycles to each", valid);
        }
        Ok(())
    }
}

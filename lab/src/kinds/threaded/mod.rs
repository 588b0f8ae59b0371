//! A threaded interrupt: software raises it, waits for its thread, and raises it again.

mod keys;
mod outcome;
mod page;
mod plan;
mod rig;
mod variant;

pub use keys::{Linux, Threaded};
pub use outcome::{Accesses, ThreadedOutcome};
pub use plan::ITERATIONS_MAX;
pub use variant::ThreadedVariant;

use super::{Form, Kind};
use crate::document::Table;
use crate::input::InputError;
use crate::plan::Plan;
use crate::run::RunError;
use crate::scenario::draft::{Draft, Keyed};
use rig::ThreadedRig;

impl Kind for Threaded {
    type Variant = ThreadedVariant;
    type Rig = ThreadedRig;
    type Outcome = ThreadedOutcome;

    const NAME: &'static str = "threaded";
    const FORM: Form = Form::table(&["threaded"]);

    fn draft(_root: &Table<'_, '_>, _valid: &str) -> Result<Box<dyn Draft>, InputError> {
        Ok(Keyed::boxed(keys::KEYS, keys::BLANK, plan::resolve))
    }

    fn validate(&self, plan: &Plan, _variants: &[ThreadedVariant]) -> Result<(), InputError> {
        plan::validate(self, plan)
    }

    fn rig(&self, plan: &Plan, variant: ThreadedVariant, seed: u64, traced: bool) -> Result<ThreadedRig, RunError> {
        ThreadedRig::new(plan, self, variant, seed, traced)
    }
}

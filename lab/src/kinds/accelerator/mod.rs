//! Streams of memory fills on Data Streaming Accelerators, whose interrupts all go to one CPU.

mod keys;
mod outcome;
mod page;
mod plan;
mod rig;
mod variant;

pub use keys::{Accelerator, Submitter};
pub use outcome::{AcceleratorOutcome, StreamDevice};
pub use plan::TRANSFER_BYTES_MAX;
pub use variant::StreamVariant;

use super::{Form, Kind};
use crate::document::Table;
use crate::input::InputError;
use crate::plan::Plan;
use crate::run::RunError;
use crate::scenario::draft::{Draft, Keyed};
use rig::StreamRig;

impl Kind for Accelerator {
    type Variant = StreamVariant;
    type Rig = StreamRig;
    type Outcome = AcceleratorOutcome;

    const NAME: &'static str = "accelerator";
    const FORM: Form = Form::table(&["stream"]);

    fn draft(_root: &Table<'_, '_>, _valid: &str) -> Result<Box<dyn Draft>, InputError> {
        Ok(Keyed::boxed(keys::KEYS, keys::BLANK, plan::resolve))
    }

    fn validate(&self, plan: &Plan, _variants: &[StreamVariant]) -> Result<(), InputError> {
        plan::validate(self, plan)
    }

    fn rig(&self, plan: &Plan, variant: StreamVariant, seed: u64, traced: bool) -> Result<StreamRig, RunError> {
        StreamRig::new(plan, self, variant, seed, traced)
    }
}

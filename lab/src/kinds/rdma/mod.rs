//! NVMe over RDMA between an initiator and a target, whose completion interrupts are moderated.

mod keys;
mod outcome;
mod page;
mod plan;
mod rig;
mod variant;

pub use keys::{LoadStep, Moderated, Rdma, Tells};
pub use outcome::{Held, LevelChange, RdmaOutcome, SideOutcome};
pub use variant::{Controlled, Moderation};

use super::{Form, Kind};
use crate::document::Table;
use crate::input::InputError;
use crate::plan::Plan;
use crate::run::RunError;
use crate::scenario::draft::{Draft, Keyed};
use rig::RdmaRig;

impl Kind for Rdma {
    type Variant = Moderation;
    type Rig = RdmaRig;
    type Outcome = RdmaOutcome;

    const NAME: &'static str = "moderation";
    const FORM: Form = Form::table(&["rdma"]);

    fn draft(_root: &Table<'_, '_>, _valid: &str) -> Result<Box<dyn Draft>, InputError> {
        Ok(Keyed::boxed(keys::KEYS, keys::blank(), plan::resolve))
    }

    fn validate(&self, plan: &Plan, variants: &[Moderation]) -> Result<(), InputError> {
        plan::validate(self, plan, variants)
    }

    fn rig(&self, plan: &Plan, variant: Moderation, seed: u64, traced: bool) -> Result<RdmaRig, RunError> {
        RdmaRig::new(plan, self, variant, seed, traced)
    }
}

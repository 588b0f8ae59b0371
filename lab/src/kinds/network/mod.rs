//! Flows through a guest whose network device has one or several interrupts.

mod keys;
mod outcome;
mod page;
mod plan;
mod rig;
mod variant;

pub use keys::{Network, Trigger, Workers};
pub use outcome::{FlowOutcome, NetworkOutcome};
pub use plan::{FLOWS_MAX, IRQS_MAX};
pub use variant::{Apart, Mapping, NetworkVariant};

use super::{Form, Kind};
use crate::document::Table;
use crate::input::InputError;
use crate::plan::Plan;
use crate::run::RunError;
use crate::scenario::draft::{Draft, Keyed};
use rig::NetworkRig;

impl Kind for Network {
    type Variant = NetworkVariant;
    type Rig = NetworkRig;
    type Outcome = NetworkOutcome;

    const NAME: &'static str = "network";
    const FORM: Form = Form::table(&["network"]);

    fn draft(_root: &Table<'_, '_>, _valid: &str) -> Result<Box<dyn Draft>, InputError> {
        Ok(Keyed::boxed(keys::KEYS, keys::BLANK, plan::resolve))
    }

    fn validate(&self, plan: &Plan, _variants: &[NetworkVariant]) -> Result<(), InputError> {
        plan::validate(self, plan)
    }

    fn rig(&self, plan: &Plan, variant: NetworkVariant, seed: u64, traced: bool) -> Result<NetworkRig, RunError> {
        NetworkRig::new(plan, self, variant, seed, traced)
    }
}

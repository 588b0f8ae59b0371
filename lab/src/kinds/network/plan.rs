//! Resolves the settings of a network experiment, and validates the result.

use super::{Network, NetworkVariant};
use crate::input::InputError;
use crate::plan::{Plan, Work};
use crate::scenario::common::Common;
use crate::scenario::draft::{Asked, Resolved, variants_or};

/// Most flows: with one line for each, they still fit an I/O APIC.
pub const FLOWS_MAX: u32 = 64;
/// Most interrupts of a device on the MMIO transport: the pins of the guest's I/O APIC.
pub const IRQS_MAX: u16 = 64;

/// A CPU for each flow unless it is set.
pub(super) fn resolve(network: &Network, common: &Common, asked: Option<Asked>) -> Result<Resolved, InputError> {
    let published = [NetworkVariant::mmio(1), NetworkVariant::mmio(network.flows as u16), NetworkVariant::Pci];
    let variants = variants_or(asked, published)?;
    Ok(Resolved {
        cpus: common.cpus_or(Some(network.flows))?,
        work: Work::new(network.clone(), variants),
        spans: common.spans(u64::MAX),
        warnings: Vec::new(),
    })
}

/// Checks that the guest can be built on `plan`'s machine.
pub(super) fn validate(network: &Network, plan: &Plan) -> Result<(), InputError> {
    let wrong = |key: &str, value: String, why: &str, valid: String| {
        Err(InputError::value(&plan.source, key.to_owned(), value, why, valid))
    };
    if plan.platform.vhost.is_none() {
        let why = "has no virtual machine";
        return wrong("platform", plan.platform.name.clone(), why, "one with [vhost]".into());
    }
    if network.flows == 0 || network.flows > plan.cpus.min(FLOWS_MAX) {
        let valid = format!("1 to {}: a CPU each", plan.cpus.min(FLOWS_MAX));
        return wrong("network.flows", network.flows.to_string(), "is out of bounds", valid);
    }
    Ok(())
}

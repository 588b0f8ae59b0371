//! Resolves the settings of an experiment on moderation, and validates the result.

use super::{Moderation, Rdma};
use crate::input::{InputError, Problem};
use crate::plan::{Plan, Work};
use crate::scenario::common::Common;
use crate::scenario::draft::{Asked, Resolved, variants_or};

/// Two CPUs for each initiator: its own, and one of the target.
pub(super) fn resolve(rdma: &Rdma, common: &Common, asked: Option<Asked>) -> Result<Resolved, InputError> {
    let variants = variants_or(asked, Moderation::NAMED)?;
    let cpus = 2 * rdma.initiators;
    if common.cpus_or(Some(cpus))? != cpus {
        let most = common.platform.fabric.cpus.whole();
        return Err(InputError::new(
            &common.platform.fabric.cpus.place,
            "rdma.initiators",
            Problem::Value {
                value: rdma.initiators.to_string(),
                why: format!("does not go with the CPUs: {cpus} are needed, two for each"),
                valid: format!("1 to {}", most / 2),
            },
        ));
    }
    let work = Work::new(rdma.clone(), variants);
    Ok(Resolved { cpus, work, spans: common.spans(u64::MAX), warnings: Vec::new() })
}

/// Checks that the NICs can be built on `plan`'s machine and that the table has each level of `variants`.
pub(super) fn validate(rdma: &Rdma, plan: &Plan, variants: &[Moderation]) -> Result<(), InputError> {
    if plan.platform.nic.is_none() {
        let why = "has no RDMA NIC";
        return Err(InputError::value(&plan.source, "platform", &plan.platform.name, why, "one with a group [nic]"));
    }
    for variant in variants {
        if let Moderation::Level(level) = *variant
            && usize::from(level) > rdma.levels.last()
        {
            let valid = format!("level 0 to level {}", rdma.levels.last());
            return Err(InputError::value(&plan.source, "deliveries", variant, "is not in the table", valid));
        }
    }
    Ok(())
}

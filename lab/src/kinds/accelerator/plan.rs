//! Resolves the settings of an accelerator experiment, and validates the result.

use super::{Accelerator, StreamVariant};
use crate::input::InputError;
use crate::plan::{Plan, Work};
use crate::platform::Unit;
use crate::scenario::common::Common;
use crate::scenario::draft::{Asked, Resolved, variants_or};

/// The longest fill of a stream.
pub const TRANSFER_BYTES_MAX: u32 = 1 << 20;

/// Unless CPUs are set, the machine has those up to the last one that takes interrupts or submits.
pub(super) fn resolve(stream: &Accelerator, common: &Common, asked: Option<Asked>) -> Result<Resolved, InputError> {
    let variants = variants_or(asked, [StreamVariant::Remapped, StreamVariant::Posted])?;
    Ok(Resolved {
        cpus: common.cpus_or(Some(stream.cpu.0 + stream.cpus()))?,
        work: Work::new(stream.clone(), variants),
        spans: common.spans(u64::MAX),
        warnings: Vec::new(),
    })
}

/// Checks that the devices can be built and the streams run on `plan`'s machine.
pub(super) fn validate(stream: &Accelerator, plan: &Plan) -> Result<(), InputError> {
    let wrong = |key: &str, value: String, why: &str, valid: String| {
        Err(InputError::value(&plan.source, format!("accelerator.{key}"), value, why, valid))
    };
    if plan.platform.accelerator.is_none() {
        let why = "has no accelerator";
        return Err(InputError::value(&plan.source, "platform", &plan.platform.name, why, "one with [accelerator]"));
    }
    if stream.cpu.0 >= plan.cpus {
        return wrong("cpu", stream.cpu.to_string(), "does not exist", format!("0 to {}", plan.cpus - 1));
    }
    if stream.cpu.0 + stream.cpus() > plan.cpus {
        let valid = format!("handler, or {} CPUs for the interrupts and a thread of each device", stream.cpus());
        return wrong("submitter", "thread".into(), "has no CPU of its own", valid);
    }
    for (key, value, most) in [("devices", stream.devices, 64), ("depth", stream.depth, 128)] {
        if value == 0 || value > most {
            return wrong(key, value.to_string(), "is out of bounds", format!("1 to {most}"));
        }
    }
    if stream.bytes == 0 || stream.bytes > TRANSFER_BYTES_MAX {
        let valid = format!("1 B to {}", Unit::Size.format(f64::from(TRANSFER_BYTES_MAX)));
        return wrong("bytes", stream.bytes.to_string(), "is out of bounds", valid);
    }
    Ok(())
}

//! An accelerator experiment: streams of memory fills, whose interrupts all go to one CPU.

use super::Plan;
use crate::input::InputError;
use crate::platform::Unit;
use hal::CpuId;
use std::fmt;

/// Devices with a work queue each, kept full from interrupt to interrupt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Accelerator {
    /// Devices, each with one work queue and one stream.
    pub devices: u32,
    /// Descriptors of a stream in flight.
    pub depth: u32,
    /// Bytes that a descriptor fills.
    pub bytes: u32,
    /// Where the interrupts of all queues go.
    pub cpu: CpuId,
    /// Between two expiries of that CPU's local timer, whose waiting is measured. None: no timer.
    pub timer_ns: Option<u64>,
}

/// How the devices' interrupts reach the CPU.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum StreamVariant {
    /// Every MSI through the remapping table.
    Remapped,
    /// MSIs are posted, with the plan's number of harvest passes.
    Posted,
    /// MSIs are posted, with this many harvest passes before the final one.
    Passes(u32),
    /// MSIs are posted, and a notification begins no handler after so many nanoseconds.
    Budget(u64),
    /// MSIs are posted, and the notification's handler sends each vector to its own CPU.
    SelfIpi,
}

impl StreamVariant {
    /// What would be valid, for an error.
    pub const VALID: &str = "remapped, posted, posted passes=3, posted budget=2us, posted self-ipi";
}

impl fmt::Display for StreamVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remapped => f.pad("remapped"),
            Self::Posted => f.pad("posted"),
            Self::Passes(passes) => f.pad(&format!("posted passes={passes}")),
            Self::Budget(ns) => f.pad(&format!("posted budget={}", Unit::Time.format(*ns as f64).replace(' ', ""))),
            Self::SelfIpi => f.pad("posted self-ipi"),
        }
    }
}

impl Accelerator {
    /// Checks that the devices can be built and the streams run on `plan`'s machine.
    pub(super) fn validate(&self, plan: &Plan) -> Result<(), InputError> {
        let wrong = |key: &str, value: String, why: &str, valid: String| {
            Err(InputError::value(&plan.source, format!("accelerator.{key}"), value, why, valid))
        };
        if plan.platform.accelerator.is_none() {
            let why = "has no accelerator";
            return Err(InputError::value(
                &plan.source,
                "platform",
                &plan.platform.name,
                why,
                "one with [accelerator]",
            ));
        }
        if self.cpu.0 >= plan.cpus {
            return wrong("cpu", self.cpu.to_string(), "does not exist", format!("0 to {}", plan.cpus - 1));
        }
        for (key, value, most) in [("devices", self.devices, 64), ("depth", self.depth, 128)] {
            if value == 0 || value > most {
                return wrong(key, value.to_string(), "is out of bounds", format!("1 to {most}"));
            }
        }
        if self.bytes == 0 || self.bytes > TRANSFER_BYTES_MAX {
            let valid = format!("1 B to {}", Unit::Size.format(f64::from(TRANSFER_BYTES_MAX)));
            return wrong("bytes", self.bytes.to_string(), "is out of bounds", valid);
        }
        Ok(())
    }
}

/// The longest fill of a stream.
pub const TRANSFER_BYTES_MAX: u32 = 1 << 20;

//! How the devices' interrupts reach the CPU: the variants of an accelerator experiment.

use super::Accelerator;
use crate::input::InputError;
use crate::kinds::Variant;
use crate::platform::Unit;
use crate::setting::Setting;
use std::fmt;

/// How the devices' interrupts reach the CPU.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum StreamVariant {
    /// Every MSI through the remapping table.
    Remapped,
    /// MSIs are posted, with the plan's number of harvest passes.
    Posted,
    /// MSIs are posted, with this many harvest passes before the final one.
    Passes(u32),
    /// MSIs are posted, and a notification starts no further handler after this many nanoseconds.
    Budget(u64),
    /// MSIs are posted, and the notification's handler sends each vector to its own CPU.
    SelfIpi,
}

impl StreamVariant {
    /// The valid names, for an error message.
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

impl Variant for StreamVariant {
    type Kind = Accelerator;

    fn read(name: &Setting) -> Result<Self, InputError> {
        let text = name.text.trim();
        let value = |text: &str| Setting { text: text.trim().into(), ..name.clone() };
        match text.split_once(' ').map(|(posted, rest)| (posted, rest.trim())) {
            None if text == "remapped" => Ok(Self::Remapped),
            None if text == "posted" => Ok(Self::Posted),
            Some(("posted", "self-ipi")) => Ok(Self::SelfIpi),
            Some(("posted", rest)) => match rest.split_once('=') {
                Some(("passes", passes)) => Ok(Self::Passes(Unit::Count.read(&value(passes), 0.0, 64.0)? as u32)),
                Some(("budget", budget)) => Ok(Self::Budget(Unit::Time.read(&value(budget), 0.0, 1e9)? as u64)),
                _ => Err(name.wrong("is no variant", Self::VALID)),
            },
            _ => Err(name.wrong("is no variant", Self::VALID)),
        }
    }
}

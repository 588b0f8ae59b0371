//! How completions reach the CPU: the variants of a storage experiment.

use super::Storage;
use crate::input::InputError;
use crate::kinds::Variant;
use crate::platform::Unit;
use crate::setting::Setting;
use std::fmt;

/// How completions reach the CPU.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum StorageVariant {
    /// Every MSI is an interrupt, through the remapping table.
    Remapped,
    /// MSIs are posted to a descriptor, and one notification announces several.
    Posted,
    /// The same on an IOMMU whose update of a descriptor takes so many nanoseconds (`fabric.posted_update`).
    PostedUpdate(u64),
    /// Every MSI is an interrupt, and remapping is off.
    Plain,
    /// No interrupts: the submitter polls.
    Polled,
}

impl StorageVariant {
    /// All that have no parameter.
    pub const ALL: [Self; 4] = [Self::Remapped, Self::Posted, Self::Plain, Self::Polled];
    /// The valid names, for an error message.
    const VALID: &str = "remapped, posted, posted update=150ns, plain, polled";

    /// True if MSIs are posted.
    pub fn is_posted(self) -> bool {
        matches!(self, Self::Posted | Self::PostedUpdate(_))
    }
}

impl fmt::Display for StorageVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remapped => f.pad("remapped"),
            Self::Posted => f.pad("posted"),
            Self::PostedUpdate(ns) => {
                f.pad(&format!("posted update={}", Unit::Time.format(*ns as f64).replace(' ', "")))
            }
            Self::Plain => f.pad("plain"),
            Self::Polled => f.pad("polled"),
        }
    }
}

impl Variant for StorageVariant {
    type Kind = Storage;

    fn read(name: &Setting) -> Result<Self, InputError> {
        let text = name.text.trim();
        if let Some(update) = text.strip_prefix("posted update=") {
            let update = Setting { text: update.trim().into(), ..name.clone() };
            return Ok(Self::PostedUpdate(Unit::Time.read(&update, 0.0, 1e6)? as u64));
        }
        let found = Self::ALL.into_iter().find(|variant| variant.to_string() == text);
        found.ok_or_else(|| name.wrong("is no delivery", Self::VALID))
    }
}

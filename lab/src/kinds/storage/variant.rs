//! How completions reach the CPU: the variants of a storage experiment.

use super::Storage;
use crate::input::InputError;
use crate::kinds::Variant;
use crate::setting::Setting;
use std::fmt;

/// How completions reach the CPU.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum StorageVariant {
    /// Every MSI is an interrupt, through the remapping table.
    Remapped,
    /// MSIs are posted to a descriptor, and one notification announces several.
    Posted,
    /// No interrupts: the submitter polls.
    Polled,
}

impl StorageVariant {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Remapped, Self::Posted, Self::Polled];

    /// Its name on the command line and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Remapped => "remapped",
            Self::Posted => "posted",
            Self::Polled => "polled",
        }
    }
}

impl fmt::Display for StorageVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Variant for StorageVariant {
    type Kind = Storage;

    fn read(name: &Setting) -> Result<Self, InputError> {
        let found = Self::ALL.into_iter().find(|variant| variant.name() == name.text.trim());
        found.ok_or_else(|| name.wrong("is no delivery", "remapped, posted, polled"))
    }
}

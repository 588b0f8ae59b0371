//! How completions reach the CPU: the variants of a storage experiment.

use super::Storage;
use crate::input::InputError;
use crate::kinds::Variant;
use crate::platform::Unit;
use crate::setting::Setting;
use drivers::nvme::CompletionLook;
use std::fmt;

/// How completions reach the CPU, and whose driver takes them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum StorageVariant {
    /// Stock Linux: every MSI is an interrupt, through the remapping table.
    Remapped,
    /// Stock Linux: MSIs are posted to a descriptor, and one notification announces several.
    Posted,
    /// The same on an IOMMU whose update of a descriptor takes so many nanoseconds (`fabric.posted_update`).
    PostedUpdate(u64),
    /// Stock Linux: every MSI is an interrupt, and remapping is off.
    Plain,
    /// Stock Linux without interrupts: the submitter polls.
    Polled,
    /// As `Remapped`, with `nvme.use_threaded_interrupts=1`: the interrupt wakes a thread, which takes the entries.
    RemappedThreaded,
    /// As `Posted`, likewise.
    PostedThreaded,
    /// As `Remapped`, with this driver's look at completions.
    RemappedOurs,
    /// As `Posted`, with this driver's look at completions.
    PostedOurs,
}

impl StorageVariant {
    /// All that have no parameter.
    pub const ALL: [Self; 8] = [
        Self::Remapped,
        Self::Posted,
        Self::Plain,
        Self::Polled,
        Self::RemappedThreaded,
        Self::PostedThreaded,
        Self::RemappedOurs,
        Self::PostedOurs,
    ];
    /// The valid names, for an error message.
    const VALID: &str = "remapped, posted, posted update=150ns, plain, polled, remapped threaded, posted threaded, \
                         remapped ours, posted ours";

    /// True if MSIs are posted.
    pub fn is_posted(self) -> bool {
        matches!(self, Self::Posted | Self::PostedUpdate(_) | Self::PostedThreaded | Self::PostedOurs)
    }

    /// True if a thread takes the completions.
    pub fn is_threaded(self) -> bool {
        matches!(self, Self::RemappedThreaded | Self::PostedThreaded)
    }

    /// When the driver looks for completions after a submission, unless a setting says otherwise. Stock Linux never does.
    pub fn completion_look(self) -> CompletionLook {
        match self {
            Self::RemappedOurs | Self::PostedOurs => CompletionLook::Auto,
            _ => CompletionLook::Off,
        }
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
            Self::RemappedThreaded => f.pad("remapped threaded"),
            Self::PostedThreaded => f.pad("posted threaded"),
            Self::RemappedOurs => f.pad("remapped ours"),
            Self::PostedOurs => f.pad("posted ours"),
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

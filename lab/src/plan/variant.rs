//! The variants of an experiment that are compared: the columns of its table.

use super::{Moderation, NetworkVariant, StreamVariant, ThreadedVariant};
use std::fmt;

/// One way to run an experiment. Each kind has its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Variant {
    /// Of a storage experiment.
    Delivery(Delivery),
    /// Of an accelerator experiment.
    Stream(StreamVariant),
    /// Of an experiment on moderation.
    Moderation(Moderation),
    /// Of a network experiment.
    Network(NetworkVariant),
    /// Of a threaded interrupt.
    Threaded(ThreadedVariant),
}

impl fmt::Display for Variant {
    /// Its name on the command line, in scenario files and in tables.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Delivery(delivery) => delivery.fmt(f),
            Self::Stream(variant) => variant.fmt(f),
            Self::Moderation(moderation) => moderation.fmt(f),
            Self::Network(variant) => variant.fmt(f),
            Self::Threaded(variant) => variant.fmt(f),
        }
    }
}

impl From<StreamVariant> for Variant {
    fn from(variant: StreamVariant) -> Self {
        Self::Stream(variant)
    }
}

impl From<Delivery> for Variant {
    fn from(delivery: Delivery) -> Self {
        Self::Delivery(delivery)
    }
}

impl From<Moderation> for Variant {
    fn from(moderation: Moderation) -> Self {
        Self::Moderation(moderation)
    }
}

/// How completions reach the CPU.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Delivery {
    /// Every MSI is an interrupt, through the remapping table.
    Remapped,
    /// MSIs are posted to a descriptor, and a notification tells of several.
    Posted,
    /// No interrupts: the submitter looks.
    Polled,
}

impl Delivery {
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

impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

//! The variants of an experiment on moderation: the controllers and fixed levels of the completion queues.

use super::Rdma;
use crate::input::InputError;
use crate::kinds::Variant;
use crate::setting::Setting;
use irq::moderation::Algorithm;
use std::fmt;

/// The moderation of the initiator's completion queues.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Moderation {
    /// No moderation: each completion that finds the queue armed raises an event.
    None,
    /// A fixed level of the table.
    Level(u8),
    /// A controller.
    Controlled(Controlled),
}

/// The controllers; as [`Algorithm`], with an order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Controlled {
    /// Ours.
    Adaptive,
    /// irq-am.
    IrqAm,
    /// rdma_dim.
    RdmaDim,
    /// net_dim.
    NetDim,
}

impl Controlled {
    /// The controller.
    pub fn algorithm(self) -> Algorithm {
        match self {
            Self::Adaptive => Algorithm::Adaptive,
            Self::IrqAm => Algorithm::IrqAm,
            Self::RdmaDim => Algorithm::RdmaDim,
            Self::NetDim => Algorithm::NetDim,
        }
    }
}

impl Moderation {
    /// The variants without a level.
    pub const NAMED: [Self; 5] = [
        Self::None,
        Self::Controlled(Controlled::Adaptive),
        Self::Controlled(Controlled::IrqAm),
        Self::Controlled(Controlled::RdmaDim),
        Self::Controlled(Controlled::NetDim),
    ];

    /// The variant of that name.
    pub fn named(name: &str) -> Option<Self> {
        if let Some(level) = name.strip_prefix("level ") {
            return level.parse().ok().map(Self::Level);
        }
        Self::NAMED.into_iter().find(|known| known.to_string() == name)
    }
}

impl fmt::Display for Moderation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.pad("no moderation"),
            Self::Level(level) => f.pad(&format!("level {level}")),
            Self::Controlled(controlled) => f.pad(controlled.algorithm().name()),
        }
    }
}

impl Variant for Moderation {
    type Kind = Rdma;

    fn read(name: &Setting) -> Result<Self, InputError> {
        Self::named(&name.text).ok_or_else(|| {
            let known = Self::NAMED.map(|known| known.to_string()).join(", ");
            name.wrong("is no moderation", format!("{known}, level 0, level 1, …"))
        })
    }
}

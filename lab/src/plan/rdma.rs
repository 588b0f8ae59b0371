//! An experiment on moderation: an initiator and a target of NVMe over RDMA, controller beside controller.

use super::Plan;
use crate::input::InputError;
use irq::moderation::{Algorithm, LevelTable};
use machine::rdma::ModerationAnswer;
use std::fmt;

/// What the initiator does, and how its completion queues may be moderated.
#[derive(Clone, PartialEq, Debug)]
pub struct Rdma {
    /// CPUs of the initiator, each with a thread, a queue pair and a completion queue; the target has as many.
    pub initiators: u32,
    /// I/Os that each thread keeps in flight, from when on: ascending, the first from 0.
    pub load: Vec<LoadStep>,
    /// Bytes of a read.
    pub block_bytes: u32,
    /// Interrupts that make a sample of a controller.
    pub nr_events: u16,
    /// The levels of every completion queue.
    pub levels: LevelTable,
    /// Mean time between thefts of each of the initiator's CPUs, 1 ms each.
    pub theft_every_ns: Option<u64>,
    /// After so many per cent of its submissions a thread looks at the completion queue itself.
    pub polled_percent: u32,
    /// How late the thread that programs a level comes to it, every time but the first.
    pub program_takes_ns: Option<u64>,
    /// What the NICs do with a moderation that they are told.
    pub answer: ModerationAnswer,
}

/// A depth and from when it holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoadStep {
    /// Since the start of the load, in ns.
    pub from_ns: u64,
    /// I/Os in flight, a thread.
    pub depth: u32,
}

impl Rdma {
    /// The deepest load.
    pub fn depth_max(&self) -> u32 {
        self.load.iter().map(|step| step.depth).max().unwrap_or(1)
    }

    /// The depth at a time since the start of the load.
    pub fn depth_at(&self, since_ns: u64) -> u32 {
        self.load.iter().rev().find(|step| step.from_ns <= since_ns).map_or(1, |step| step.depth)
    }

    pub(super) fn validate(&self, plan: &Plan) -> Result<(), InputError> {
        let Some(_) = plan.platform.nic else {
            let why = "has no RDMA NIC";
            return Err(InputError::value(
                &plan.source,
                "platform",
                &plan.platform.name,
                why,
                "one with a group [nic]",
            ));
        };
        for variant in &plan.variants {
            if let super::Variant::Moderation(Moderation::Level(level)) = *variant
                && usize::from(level) > self.levels.last()
            {
                let valid = format!("level 0 to level {}", self.levels.last());
                return Err(InputError::value(&plan.source, "deliveries", variant, "is not in the table", valid));
            }
        }
        Ok(())
    }
}

/// What moderates the initiator's completion queues.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Moderation {
    /// Nothing: an event for each completion that finds the queue armed.
    None,
    /// A level of the table, for good.
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
    /// Those without a level.
    pub const NAMED: [Self; 5] = [
        Self::None,
        Self::Controlled(Controlled::Adaptive),
        Self::Controlled(Controlled::IrqAm),
        Self::Controlled(Controlled::RdmaDim),
        Self::Controlled(Controlled::NetDim),
    ];

    /// The one of that name.
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

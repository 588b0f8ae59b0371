//! The kinds of experiment: a folder for each, one trait, and this file, the one table that lists them.
//!
//! The shared steps (reading, planning, running, reporting) reach a kind only through [`Kind`] and the types that it
//! names. A kind's folder has its keys, its plan with its variants, its rig, its outcome with the quantities, and its
//! part of the page. To add a kind, add a line for it to each list here.

mod kind;

pub mod accelerator;
pub mod network;
pub mod rdma;
pub mod storage;
pub mod threaded;

pub use kind::{Form, Kind, Means, Measured, State, Variant};

use accelerator::{Accelerator, AcceleratorOutcome};
use kind::{Entry, entry};
use network::{Network, NetworkOutcome};
use rdma::{Rdma, RdmaOutcome};
use serde::{Deserialize, Serialize};
use storage::{Storage, StorageOutcome};
use threaded::{Threaded, ThreadedOutcome};

/// Every kind, in the order in which a scenario file is searched for them.
pub(crate) static KINDS: [Entry; 5] =
    [entry::<Storage>(), entry::<Accelerator>(), entry::<Rdma>(), entry::<Network>(), entry::<Threaded>()];

/// The measurements of one kind of experiment. In files its fields stand among the others, with the kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Section {
    /// Jobs on NVMe drives.
    Storage(StorageOutcome),
    /// Streams of an accelerator.
    Accelerator(AcceleratorOutcome),
    /// NVMe over RDMA under moderation.
    Rdma(RdmaOutcome),
    /// Flows through a guest.
    Network(NetworkOutcome),
    /// A threaded interrupt, raised and waited for.
    Threaded(ThreadedOutcome),
}

impl Section {
    /// The trait that the shared steps use.
    pub fn measured(&self) -> &dyn Measured {
        match self {
            Self::Storage(outcome) => outcome,
            Self::Accelerator(outcome) => outcome,
            Self::Rdma(outcome) => outcome,
            Self::Network(outcome) => outcome,
            Self::Threaded(outcome) => outcome,
        }
    }
}

#[cfg(test)]
impl Default for Section {
    fn default() -> Self {
        Self::Storage(StorageOutcome::default())
    }
}

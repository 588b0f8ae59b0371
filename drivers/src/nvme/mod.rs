//! An NVMe driver: controller, admin queue, and I/O queue pairs that are interrupt-driven or polled.
//!
//! [`Controller`] brings the device up, makes and deletes [`QueuePair`]s, sets features, aborts, resets and shuts
//! down. The I/O path uses [`QueuePair`] only. Its two sides have a lock each:
//!
//! - *submission* ([`QueuePair::submit`]): takes command ids from a ring of free ones, writes entries, and rings one
//!   doorbell a batch;
//! - *completion* ([`irq::Action::handle`], [`QueuePair::poll`]): reaps by phase, rings one doorbell a batch, gives the
//!   ids back, and only then tells the user of the batch ([`BatchDone`]).
//!
//! Where it helps, a submission is followed by a look at the completion queue ([`CompletionLook`]).
//!
//! Every accepted command ends exactly once: with the device's status, or with an [`IoError`] that tells what happened
//! to its queue or controller. The driver records each violation of the specification by the device as a
//! [`DeviceFault`]. A violation changes only the command that the device names correctly. Nothing on the I/O path
//! allocates.
//!
//! Absent: asynchronous events, metadata and protection information, SGLs, namespaces beside the one of
//! [`Config::nsid`], memory pages other than 4 KiB, arbitration other than round robin, firmware and log pages.
//!
//! Sources: NVM Express Base Specification 2.0 ("Base"), NVM Command Set Specification 1.0 ("NVM").

mod admin;
mod check;
mod controller;
mod error;
mod features;
mod look;
mod port;
mod prp;
mod queue;
mod reap;
mod request;
mod ring;
mod slots;
mod stats;
#[cfg(test)]
mod tests;
mod tuning;

pub use check::EntryCheck;
pub use controller::{AbortReport, Config, Controller, ControllerInfo, ControllerSnapshot, Namespace, QueueConfig};
pub use error::{DeviceFault, IoError, NvmeError, Refusal};
pub use features::{Coalescing, CoalescingThreshold, CoalescingTime, FeatureValueError, VectorCoalescing};
pub use look::CompletionLook;
pub use queue::QueuePair;
pub use reap::ReapBound;
pub use request::{BatchDone, Completed, IoOp, IoRequest, Submitted};
pub use stats::{CompletionCounters, PER_INTERRUPT_BUCKETS, QueueSnapshot, QueueState, SubmissionCounters};
pub use tuning::COALESCING_LEVELS;

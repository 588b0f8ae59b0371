//! A driver for Intel's Data Streaming Accelerator: device, dedicated work queues, memory fills.
//!
//! [`Device`] resets the device, writes groups and work queues, enables it, and opens and closes [`WorkQueue`]s. The
//! data path uses [`WorkQueue`] only. [`WorkQueue::submit`] writes descriptors to the queue's portal. Its
//! [`irq::Action`] takes the completed descriptors, reports them to the user ([`BatchDone`]), and submits the user's
//! next requests ([`Next`]). A stream can therefore continue from interrupt to interrupt.
//!
//! **The portal write.** Hardware takes a descriptor as one write of 64 bytes (MOVDIR64B). The seam's widest write has
//! 64 bits, so the driver writes eight quadwords in ascending order with the queue's lock held, the last of which
//! submits. A kernel that embeds this driver on hardware provides a [`hal::Regs`] for BAR 2 that gathers the eight
//! writes and issues one MOVDIR64B at the last.
//!
//! Every accepted descriptor ends exactly once: with the device's status, or with a [`TransferError`] that tells what
//! happened to its queue. A dedicated queue has no flow control, so the driver counts: it never has more descriptors
//! in flight than the queue has entries. Nothing on the data path allocates.
//!
//! Absent: operations other than Memory Fill, batches, shared queues (ENQCMD), PASID, block on fault, interrupt
//! handles other than MSI-X entries (devices whose CMDCAP demands Request Interrupt Handle are refused).
//!
//! Source: Intel Data Streaming Accelerator Architecture Specification, order number 341204 ("DSA").

mod config;
mod device;
mod error;
mod port;
mod queue;
mod request;
#[cfg(test)]
mod tests;

pub use config::{Config, GroupConfig, QueueConfig};
pub use device::{Capabilities, Device, DeviceErrors, SoftwareError};
pub use error::{DsaError, Refusal, TransferError};
pub use queue::{QueueCounters, QueueSnapshot, WorkQueue};
pub use request::{BatchDone, Completed, Fill, Next, Submitted};

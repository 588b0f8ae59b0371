//! Virtio: transports, split virtqueues, network and block devices.
//!
//! ```text
//! Net, Block ─► session: reset, negotiate, map vectors rung by rung, start queues ─► Transport: Mmio | Pci
//!        └────► Queue: the rings, alike for all
//! ```
//!
//! A [`Transport`] knows no device type and a device's driver no transport. [`Mmio`] speaks our extension for several
//! interrupts (`docs/virtio-mmio-multi-irq.md`) where device and platform have it, and else is as it always was; [`Pci`]
//! uses MSI-X. Which queue gets which vector is one [ladder] for both.
//!
//! A device is taken at its word nowhere: what it does in a ring against the standard breaks that ring, with a
//! [`QueueFault`] that stays readable, and no other.
//!
//! Absent: packed virtqueues, legacy devices, address translation (VIRTIO_F_ACCESS_PLATFORM), offloads of the network
//! device, merged receive buffers, discard and zeroing of the block device, suspend and migration.
//!
//! Source: OASIS Virtual I/O Device (VIRTIO) version 1.3, cited as "VIRTIO".

pub mod block;
pub mod discovery;
mod error;
mod mmio;
pub mod net;
mod pci;
mod queue;
mod session;
#[cfg(test)]
mod tests;
mod transport;
mod vectors;

pub use error::{QueueFault, Refusal, VirtioError};
pub use mmio::{Mmio, MmioConfig};
pub use pci::{Bar, Pci};
pub use queue::{PARTS_MAX, Part, Queue, QueueConfig, QueueCounters, Used};
pub use session::QueueWish;
pub use transport::{Cause, Interrupt, QueueMemory, Transport};
pub use vectors::{Rung, VectorMap, VectorPolicy, ladder};

//! Virtio: transports, split and packed virtqueues, network and block devices.
//!
//! ```text
//! Net, Block ─► session: reset, negotiate, map vectors rung by rung, start queues ─► Transport: Mmio | Pci
//!        └────► Queue: the rings, alike for all
//! ```
//!
//! A [`Transport`] knows no device type, and a device's driver knows no transport. [`Mmio`] uses our extension for
//! several interrupts (`docs/virtio-mmio-multi-irq.md`) where device and platform have it, and standard virtio-mmio
//! otherwise. [`Pci`] uses MSI-X. One [ladder] assigns vectors to queues for both.
//!
//! The driver trusts no device. A violation of the standard in a ring breaks that ring, with a [`QueueFault`] that
//! stays readable, and no other ring.
//!
//! Absent: legacy devices, address translation (VIRTIO_F_ACCESS_PLATFORM), offloads of the network
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
pub use mmio::{Mmio, MmioConfig, RegisterWrites};
pub use pci::{Bar, Pci};
pub use queue::{PARTS_MAX, Part, Queue, QueueConfig, QueueCounters, Used};
pub use session::QueueWish;
pub use transport::{Cause, Interrupt, QueueMemory, Transport};
pub use vectors::{Rung, VectorMap, VectorPolicy, ladder};

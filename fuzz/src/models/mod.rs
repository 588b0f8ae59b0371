//! The machine's models against a host that writes any value to any place.
//!
//! Requirements: no panic; the machine ends within its time; an error is a recorded fault or a status. An access
//! outside memory cannot stay unnoticed: models reach memory through the machine, which answers with an error.

mod accelerator;
mod fabric;
mod gic;
mod host;
mod nvme;
mod rdma;
mod virtio;

pub(crate) use accelerator::dsa;
pub(crate) use fabric::{interrupt_controllers, vtd};
pub(crate) use gic::{gicv2, gicv3};
pub(crate) use nvme::nvme;
pub(crate) use rdma::rdma;
pub(crate) use virtio::{virtio_mmio, virtio_net, virtio_pci};

//! The machine's models against a host that writes whatever it likes, wherever it likes.
//!
//! What holds: no panic; the machine comes to an end within its time; what is wrong is a recorded fault or a status. An
//! access outside memory cannot happen unseen: models reach memory through the machine, which answers with an error.

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

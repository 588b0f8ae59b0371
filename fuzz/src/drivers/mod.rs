//! Drivers against devices that answer whatever they like.
//!
//! What holds: no panic, no wait without an end, no access outside what the driver was given; the driver says what is
//! wrong as an error or counts it; a request that was accepted ends exactly once.

mod dsa;
mod gic;
mod hostile;
mod nvme;
mod rdma;
mod virtio;
mod vtd;

pub(crate) use dsa::driver_dsa;
pub(crate) use gic::{driver_gicv2, driver_gicv3};
pub(crate) use nvme::driver_nvme;
pub(crate) use rdma::driver_rdma;
pub(crate) use virtio::{driver_virtio_block, driver_virtio_net, touch};
pub(crate) use vtd::driver_vtd;

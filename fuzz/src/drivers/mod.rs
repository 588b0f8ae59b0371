//! Drivers against devices that answer anything.
//!
//! Requirements: no panic, no endless wait, no access outside the driver's windows. The driver reports a fault as an
//! error or counts it. A request that was accepted ends exactly once.

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

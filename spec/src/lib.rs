//! Hardware layouts only: offsets, bit fields and codes, each with its source.
//!
//! No behaviour, so that a driver and a model of the same device agree on the bits without depending on each other.
#![no_std]

pub mod apic;
pub mod dsa;
pub mod gic;
pub mod hpet;
pub mod msi;
pub mod nvme;
pub mod posting;
pub mod rdma;
pub mod register;
pub mod timer;
pub mod virtio;
pub mod vtd;

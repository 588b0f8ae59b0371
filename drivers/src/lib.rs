//! Drivers, generic over the seam: the same code runs on the simulated machine, on bare metal and in an embedding kernel.
#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod apic;
mod control;
pub mod dsa;
pub mod gic;
pub mod hpet;
pub mod ioapic;
#[cfg(test)]
#[cfg(loom)]
mod loom_world;
pub mod message;
pub mod nvme;
pub mod pci;
pub mod posting;
pub mod rdma;
pub mod register;
mod slots;
#[cfg(test)]
mod testing;
pub mod virtio;
pub mod vtd;

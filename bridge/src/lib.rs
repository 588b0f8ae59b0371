//! Lends the machine's device models to a virtual machine monitor over vfio-user: QEMU's `vfio-user-pci`, or any other
//! client of that protocol. The models are those of the simulation, unchanged ([`machine::lent`]). This crate connects
//! them to the guest: memory, interrupts, configuration space, and a wall clock.
//!
//! One thread reads the client's messages ([`vfio_user::Server`]). A second thread owns the device: it carries out the
//! requests in order, and runs the model's events when they are due ([`server`]).
//!
//! Not implemented: INTx and MSI, DMA to memory that the client does not share as a file (the protocol's DMA
//! messages), migration, a second client at the same time.

mod blocks;
mod client_memory;
mod config_space;
mod device;
mod function;
mod guest;
mod interrupts;
mod lent;
mod nvme;
mod poster;
mod posting;
mod server;
mod virtio;

pub use blocks::{FileBlocks, MemoryBlocks};
pub use function::Served;
pub use nvme::Drive;
pub use poster::Poster;
pub use server::{Report, ServeError, Server, backend};
pub use virtio::{VirtioDisk, VirtioDiskError};

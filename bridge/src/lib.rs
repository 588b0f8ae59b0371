//! The machine's device models, lent to a virtual machine monitor over vfio-user: QEMU's `vfio-user-pci`, or any other
//! client of that protocol. The models are the ones of the simulation, unchanged ([`machine::lent`]); what is here is
//! their way to the guest: its memory, its interrupts, its configuration space, and a clock on the wall.
//!
//! One thread reads the client's messages ([`vfio_user::Server`]), another owns the device and carries out what it is
//! asked, one thing after the other, and lets the model's events happen when their time has come ([`server`]).
//!
//! Not here: INTx and MSI, DMA to memory that the client does not share as a file (the protocol's DMA messages),
//! migration, a second client at the same time.

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

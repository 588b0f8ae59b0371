//! The interrupt fabric: what lies between a device's message and a LAPIC.
//!
//! A drive's messages and data pass its [`port::RootPort`] in order, reach the [`vtd::VtdUnit`] of their root complex,
//! and from there the [`dispatch::Dispatch`] of the socket, which delivers to LAPICs. A root-complex integrated
//! endpoint has an [`integrated::IntegratedPath`] in place of a port. The [`ioapic::IoApic`] and the [`hpet::Hpet`] are
//! requesters inside the root complex: they have no port.
//!
//! **Every queue is bounded.** A message keeps its place at the IOMMU until its descriptor is updated, or until the
//! dispatch unit takes it; a port has a limited number of places. Messages that have none wait in the port, at most one
//! of each vector of its devices: an equal one merges. Requesters without places likewise have one equal message at the
//! IOMMU at most. An IOMMU has a limited number of notifications at the dispatch unit. A LAPIC has one bit a vector.
//!
//! ```
//! use campanile_machine::fabric::dispatch::Dispatch;
//! use campanile_machine::fabric::port::{Credits, RootPort, RootPortConfig};
//! use campanile_machine::fabric::vtd::{InvalidationFault, VtdConfig, VtdUnit};
//! use campanile_machine::time::Ps;
//! use campanile_machine::{Machine, MachineConfig};
//!
//! let mut machine = Machine::new(MachineConfig { memory_bytes: 4096, ..MachineConfig::default() });
//! // One dispatch unit a socket, one table of credits an IOMMU, one port a drive.
//! let socket = Dispatch::new(Ps::from_ns(112));
//! let credits = Credits::default();
//! let config = VtdConfig {
//!     name: "dmar0".into(),
//!     posted_interrupts: true,
//!     extended_interrupt_mode: true,
//!     fault_records: 8,
//!     remap_time: Ps::from_ns(53),
//!     post_time: Ps::from_ns(105),
//!     command_time: Ps::from_ns(200),
//!     invalidation_time: Ps::from_ns(100),
//!     invalidation_fault: InvalidationFault::None,
//! };
//! let iommu = machine.add_model(|_| Box::new(VtdUnit::new(config, socket.clone(), credits.clone())));
//! let config = RootPortConfig {
//!     name: "port0".into(),
//!     link_bytes_per_second: 13_300_000_000,
//!     message_order_time: Ps::from_ns(157),
//!     waiting_messages_max: 2,
//!     relaxed_ordering: false,
//!     id_based_ordering: false,
//! };
//! let port = machine.add_model(|id| Box::new(RootPort::new(id, iommu, config, &credits)));
//! // A drive then sends its transfers and messages to `port`; its driver programs `machine.regs(iommu, 0)`.
//! # assert_ne!(iommu, port);
//! ```
//!
//! All times are means from the platform file; the machine's jitter applies to each but the link's.

pub mod dispatch;
pub mod hpet;
pub mod integrated;
pub mod ioapic;
mod outbox;
pub mod port;
pub mod stranger;
pub mod tamper;
#[cfg(test)]
mod tests;
pub mod vtd;

//! The interrupt fabric: what lies between a device's message and a LAPIC.
//!
//! A drive's messages and data pass its [`port::RootPort`] in order, reach the [`vtd::VtdUnit`] of their root complex,
//! and from there the [`dispatch::Dispatch`] of the socket, which delivers to LAPICs. The [`ioapic::IoApic`] and the
//! [`hpet::Hpet`] are requesters inside the root complex: they have no port.
//!
//! All times are means from the platform file; the machine's jitter applies to each but the link's.

pub mod dispatch;
pub mod hpet;
pub mod ioapic;
pub mod port;
#[cfg(test)]
mod tests;
pub mod vtd;

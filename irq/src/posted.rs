//! Posted delivery: many device interrupts, one notification.
//!
//! A remapping unit that posts does not send the device's vector to the CPU. It sets the vector's bit in the CPU's
//! *posted descriptor* (PIR). If no notification is outstanding (ON), it sends one: a vector that all devices share.
//! The handler of that vector harvests the bits, runs each vector's ordinary handler, and ends with one EOI:
//!
//! ```text
//! device   A B   C                      PIR |= A, B, C;  ON 0→1 at A only
//! CPU        └ notification: harvest … dispatch A, B, C … clear ON … final look … EOI
//! ```
//!
//! [`Descriptor`] is the protocol, generic over [`hal::Word`] alone so that the model checker runs the very code that
//! hardware runs. [`PostedMsi`] holds the state of all CPUs.
//!
//! While the handler runs, everything else on that CPU waits, even an urgent timer. There are three remedies, each
//! with a price: fewer harvest passes ([`PostedConfig::passes`]), a time limit ([`PostedMsi::handle_within`]), and
//! handlers that run from interrupts of their own. For the last one, `dispatch` sends the vector to this CPU instead
//! of running its handler. That costs what the notification was meant to save.
//!
//! Sources: VT-d specification, "Interrupt-Posting Hardware Operation" and "Posted Interrupt Descriptor (PID)"; the
//! order of the handler follows the coalesced ("posted MSI") delivery of Linux.

mod descriptor;
mod limited;
mod notification;
#[cfg(test)]
mod tests;

pub use descriptor::{Deliverable, Descriptor, Dispatched, Harvest, Notification, Served};
pub use limited::Limited;
pub use notification::{PostedConfig, PostedError, PostedMsi, Statistics};

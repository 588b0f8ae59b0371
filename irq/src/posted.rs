//! Posted delivery: many device interrupts, one notification.
//!
//! A remapping unit that posts does not send the device's vector to the CPU. It sets the vector's bit in the CPU's
//! *posted descriptor* (PIR) and, if no notification is outstanding (ON), sends one of a vector that all share. The
//! handler of that vector harvests the bits and runs each vector's ordinary handler, and ends with one EOI:
//!
//! ```text
//! device   A B   C                      PIR |= A, B, C;  ON 0→1 at A only
//! CPU        └ notification: harvest … dispatch A, B, C … clear ON … final look … EOI
//! ```
//!
//! [`Descriptor`] is the protocol, generic over [`hal::Word`] alone so that the model checker runs the very code that
//! hardware runs. [`PostedMsi`] is the state of all CPUs round it.
//!
//! While the handler runs, everything else of that CPU waits: a timer too, however urgent. Three remedies, each for its
//! price: fewer harvest passes ([`PostedConfig::passes`]), a limit of time ([`PostedMsi::handle_within`]), and handlers
//! that run from interrupts of their own: a `dispatch` that sends the vector to this CPU instead of running its handler.
//! That costs what the notification was there to save.
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

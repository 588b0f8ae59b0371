//! Intel VT-d interrupt remapping and posting.
//!
//! ```text
//! VECTOR ← INTEL-IR      ← IOAPIC, HPET     remapped entries, always
//!        ← INTEL-IR-POST ← PCI MSI/MSI-X    posted entries, where it was asked for and the unit can
//!        ← DMAR          the unit's own fault event: a plain message, never remapped
//! ```
//!
//! [`RemapUnit`] is the hardware: table, invalidation queue, faults. [`RemapDomain`] puts lines on it.
//!
//! Source: Intel Virtualization Technology for Directed I/O, Architecture Specification; clauses by title. DMA memory
//! of the seam is coherent with its devices, so no entry needs a flush of caches beyond the seam's own ordering.

mod domain;
mod error;
mod fault;
mod queue;
#[cfg(test)]
mod tests;
mod unit;

pub use domain::{GuestPosting, RemapDomain};
pub use error::{QueueFault, VtdError};
pub use fault::{Fault, FaultEvent, FaultsTaken};
pub use unit::{EntryBelief, RemapConfig, RemapUnit, pass_unremapped};

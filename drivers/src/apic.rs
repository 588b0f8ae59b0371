//! The local APIC: the root of every interrupt hierarchy on x86.
//!
//! Source: Intel SDM vol. 3, chapter "Advanced Programmable Interrupt Controller (APIC)"; clauses by title.

mod lapic;
#[cfg(test)]
mod tests;
mod vector;

pub use lapic::{ApicError, ApicId, ApicMode, Lapic};
pub use vector::{VECTORS, VectorDomain, core_config, device_vectors};

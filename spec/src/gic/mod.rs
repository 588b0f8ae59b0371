//! Arm's Generic Interrupt Controller, versions 2 and 3, its message controllers ITS and v2m.
//!
//! Sources: Arm IHI 0048B, "Generic Interrupt Controller Architecture version 2.0"; Arm IHI 0069H, "Generic Interrupt
//! Controller Architecture Specification, version 3 and version 4"; Arm DEN 0029, "Server Base System Architecture",
//! for the v2m frame. Bit assignments are those of a system with one security state (GICD_CTLR.DS = 1), or of the
//! non-secure view of one with two, whichever the item says.
//!
//! A register's constant carries its width and what may be done to it ([`Register`]): only what can be read and written
//! back without a side effect is [`ReadWrite`].
//!
//! Left out: the extended ranges of PPIs (1056 to 1119) and SPIs (4096 to 5119), virtual interrupts and the hypervisor's
//! interface, the direct injection of GICv4, secure groups' registers, power management beyond GICR_WAKER.

pub mod gicc;
pub mod gicd;
pub mod gicr;
pub mod icc;
mod intid;
pub mod its;
pub mod msi;
mod priority;

pub use crate::register::{
    Access, OneToClear, OneToSet, ReadOnly, ReadWrite, Readable, Register, Registers, Strobe, Writable, WriteOnly,
};
pub use intid::{IntId, Kind};
pub use priority::Priority;

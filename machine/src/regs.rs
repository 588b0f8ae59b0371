//! Windows of registers.

use crate::event::ModelId;

/// A window of registers on the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Regs {
    /// A region of a model.
    Model {
        /// Which model.
        model: ModelId,
        /// Which of its regions.
        region: u8,
    },
    /// The running CPU's local APIC. Offsets are MSR numbers in x2APIC mode, and those of the page in xAPIC mode.
    Lapic,
    /// A region whose accesses are never posted: a write has arrived before the CPU goes on, and is a point as a read
    /// is.
    Unposted {
        /// Which model.
        model: ModelId,
        /// Which of its regions.
        region: u8,
        /// Each CPU sees registers of its own: the model sees the accessing CPU's number above bit 15 of the offset.
        is_banked: bool,
    },
}

/// Offsets of a banked region end here; the CPU's number is above.
pub(crate) const BANK_BITS: u32 = 16;

/// No region reaches further.
pub(crate) const REGION_BYTES: u32 = 1 << 26;

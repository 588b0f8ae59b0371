//! A GIC's register regions, and the reasons to refuse a CPU's access.

use crate::regs::BANK_BITS;

/// A region of the GIC's registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum GicRegion {
    /// The distributor.
    Distributor,
    /// GICv2's CPU interface.
    CpuInterface,
    /// GICv3's CPU interface: system registers.
    System,
    /// GICv3's redistributors.
    Redistributors,
    /// The ITS.
    Its,
    /// The v2m frame.
    V2m,
    /// The CPU's physical timer: system registers, whichever version the GIC is.
    Timer,
}

impl GicRegion {
    /// Number of regions.
    pub(super) const COUNT: usize = Self::ALL.len();

    const ALL: [Self; 7] =
        [Self::Distributor, Self::CpuInterface, Self::System, Self::Redistributors, Self::Its, Self::V2m, Self::Timer];

    pub(super) fn of(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// True if each CPU has its own copy of some or all registers at the same address.
    pub(super) fn is_banked(self) -> bool {
        matches!(self, Self::Distributor | Self::CpuInterface | Self::System | Self::Timer)
    }
}

/// Splits the machine's offset into the CPU and the register's offset.
pub(super) fn split(region: GicRegion, offset: u32) -> (u32, u32) {
    if region.is_banked() { (offset >> BANK_BITS, offset & ((1 << BANK_BITS) - 1)) } else { (0, offset) }
}

/// Why an access was refused. A refused read gives 0, a refused write is ignored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    /// No register there.
    Reserved,
    /// The register has another width, or the offset is not aligned to it.
    Width,
    /// A write to a read-only register.
    ReadOnly,
    /// A read of a write-only register.
    WriteOnly,
    /// The register may not be written in the GIC's current state.
    Busy,
}

impl Refusal {
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::Reserved => "GIC access to no register",
            Self::Width => "GIC access of a wrong width",
            Self::ReadOnly => "GIC write to a read-only register",
            Self::WriteOnly => "GIC read of a write-only register",
            Self::Busy => "GIC write to a register while it is in use",
        }
    }
}

/// The result of an access.
pub(super) type Outcome<T> = Result<T, Refusal>;

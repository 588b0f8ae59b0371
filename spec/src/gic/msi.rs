//! The v2m frame: SPIs raised by messages (Arm DEN 0029, "Server Base System Architecture", "GICv2m Architecture").
//!
//! Message-based SPIs of GICv3 are two registers of the distributor instead
//! ([`SETSPI_NSR`](super::gicd::SETSPI_NSR), [`CLRSPI_NSR`](super::gicd::CLRSPI_NSR)).

use super::{ReadOnly, Register, WriteOnly};
use bitfield_struct::bitfield;

/// Size of a v2m frame, in bytes.
pub const V2M_BYTES: u32 = 0x1000;

/// Which SPIs it raises, a [`V2mType`].
pub const TYPER: Register<u32, ReadOnly> = Register::at(0x008);
/// A device writes an INTID here: that SPI has an edge.
pub const SETSPI_NS: Register<u32, WriteOnly> = Register::at(0x040);
/// Identification of the implementer.
pub const IIDR: Register<u32, ReadOnly> = Register::at(0xfcc);

/// Which SPIs a frame raises (MSI_TYPER).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct V2mType {
    /// How many.
    #[bits(10)]
    pub count: u16,
    #[bits(6)]
    __: u8,
    /// The first INTID.
    #[bits(10)]
    pub first: u16,
    #[bits(6)]
    __: u8,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_stand_where_the_manual_has_them() {
        assert_eq!([TYPER.offset(), SETSPI_NS.offset(), IIDR.offset()], [0x008, 0x040, 0xfcc]);
        // QEMU's virt machine: 64 SPIs from 80 on.
        let frame = V2mType::from_bits(0x0050_0040);
        assert_eq!((frame.first(), frame.count()), (80, 64));
    }
}

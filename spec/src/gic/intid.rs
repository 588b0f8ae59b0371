//! Interrupt numbers (IHI 0069H, "INTIDs"; IHI 0048B, "Interrupt IDs").

use core::fmt;

/// An interrupt's number, 24 bits at most.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct IntId(pub u32);

/// The kind of an INTID.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// 0 to 15: software-generated, private to a CPU.
    Sgi,
    /// 16 to 31: a peripheral's, private to a CPU.
    Ppi,
    /// 32 to 1019: a shared peripheral's.
    Spi,
    /// 1020 to 1023: no interrupt; never ended.
    Special,
    /// 8192 and above: a message's; has no active state.
    Lpi,
    /// 1024 to 8191: reserved, or of the extended ranges, which this library leaves out.
    Reserved,
}

impl IntId {
    /// The first private peripheral interrupt.
    pub const PPI_FIRST: Self = Self(16);
    /// The first shared peripheral interrupt.
    pub const SPI_FIRST: Self = Self(32);
    /// The last one that the architecture has room for.
    pub const SPI_LAST: Self = Self(1019);
    /// Acknowledged at EL3: an interrupt of the secure world.
    pub const SECURE: Self = Self(1020);
    /// Acknowledged at EL3: an interrupt of the non-secure world.
    pub const NON_SECURE: Self = Self(1021);
    /// GICv2: the highest pending interrupt is of the group that this access does not acknowledge.
    pub const OTHER_GROUP: Self = Self(1022);
    /// Spurious: no pending interrupt may be acknowledged.
    pub const SPURIOUS: Self = Self(1023);
    /// The first message interrupt.
    pub const LPI_FIRST: Self = Self(8192);

    /// Its kind.
    pub const fn kind(self) -> Kind {
        match self.0 {
            0..=15 => Kind::Sgi,
            16..=31 => Kind::Ppi,
            32..=1019 => Kind::Spi,
            1020..=1023 => Kind::Special,
            1024..=8191 => Kind::Reserved,
            _ => Kind::Lpi,
        }
    }

    /// True for an SGI or PPI: each CPU has its own.
    pub const fn is_private(self) -> bool {
        self.0 < Self::SPI_FIRST.0
    }

    /// True if it is active from acknowledge to deactivation. Only LPIs are not.
    pub const fn has_active_state(self) -> bool {
        matches!(self.kind(), Kind::Sgi | Kind::Ppi | Kind::Spi)
    }
}

impl fmt::Display for IntId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind() {
            Kind::Sgi => write!(f, "SGI {}", self.0),
            Kind::Ppi => write!(f, "PPI {}", self.0),
            Kind::Spi => write!(f, "SPI {}", self.0),
            Kind::Special => write!(f, "special INTID {}", self.0),
            Kind::Lpi => write!(f, "LPI {}", self.0),
            Kind::Reserved => write!(f, "reserved INTID {}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ranges_end_where_the_manual_says() {
        let kinds = [
            (0, Kind::Sgi),
            (15, Kind::Sgi),
            (16, Kind::Ppi),
            (31, Kind::Ppi),
            (32, Kind::Spi),
            (1019, Kind::Spi),
            (1020, Kind::Special),
            (1023, Kind::Special),
            (1024, Kind::Reserved),
            (1056, Kind::Reserved),
            (4096, Kind::Reserved),
            (8191, Kind::Reserved),
            (8192, Kind::Lpi),
            (0xff_ffff, Kind::Lpi),
        ];
        for (number, kind) in kinds {
            assert_eq!(IntId(number).kind(), kind, "{number}");
        }
        assert!(IntId(31).is_private() && !IntId(32).is_private());
        assert!(IntId(1019).has_active_state() && !IntId(1023).has_active_state() && !IntId(8192).has_active_state());
    }
}

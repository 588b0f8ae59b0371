//! Identify data (Base 5.17): byte offsets of the fields that we use, in structures of 4,096 bytes.

use bitfield_struct::bitfield;

/// Bytes of every identify structure.
pub const BYTES: usize = 4096;

/// CNS: the requested structure (Base 5.17).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Cns(pub u8);

impl Cns {
    /// The namespace of NSID, NVM command set (NVM 4.1.5.1).
    pub const NAMESPACE: Self = Self(0x00);
    /// The controller (Base 5.17.2.1).
    pub const CONTROLLER: Self = Self(0x01);
    /// The active namespace ids above NSID, ascending, 1,024 dwords (Base 5.17.2.2).
    pub const ACTIVE_NAMESPACES: Self = Self(0x02);
}

/// Identify Controller (Base 5.17.2.1).
pub mod controller {
    /// VID: PCI vendor id, 16 bits.
    pub const VID: usize = 0;
    /// SSVID: PCI subsystem vendor id, 16 bits.
    pub const SSVID: usize = 2;
    /// SN: serial number, ASCII padded with spaces.
    pub const SN: core::ops::Range<usize> = 4..24;
    /// MN: model number, ASCII padded with spaces.
    pub const MN: core::ops::Range<usize> = 24..64;
    /// FR: firmware revision, ASCII padded with spaces.
    pub const FR: core::ops::Range<usize> = 64..72;
    /// MDTS: longest transfer, `2^MDTS` smallest memory pages, 8 bits; 0 is no limit.
    pub const MDTS: usize = 77;
    /// CNTLID: controller id, 16 bits.
    pub const CNTLID: usize = 78;
    /// VER: as the VS register, 32 bits.
    pub const VER: usize = 80;
    /// RTD3E: the longest shutdown in µs, 32 bits; 0 when not reported.
    pub const RTD3E: usize = 88;
    /// ACL: Abort commands in flight at once, 8 bits, 0's based.
    pub const ACL: usize = 258;
    /// AERL: Asynchronous Event Requests in flight at once, 8 bits, 0's based.
    pub const AERL: usize = 259;
    /// SQES: submission entry sizes, 8 bits: a [`super::EntrySizes`].
    pub const SQES: usize = 512;
    /// CQES: completion entry sizes, 8 bits: a [`super::EntrySizes`].
    pub const CQES: usize = 513;
    /// MAXCMD: the most commands in flight on a queue, 16 bits; 0 when not reported.
    pub const MAXCMD: usize = 514;
    /// NN: the largest namespace id, 32 bits.
    pub const NN: usize = 516;
    /// ONCS: optional NVM commands, 16 bits; bit 2: Dataset Management.
    pub const ONCS: usize = 520;
    /// VWC: bit 0, a volatile write cache is there; 8 bits.
    pub const VWC: usize = 525;
}

/// Identify Namespace of the NVM command set (NVM 4.1.5.1).
pub mod namespace {
    /// NSZE: size in logical blocks, 64 bits.
    pub const NSZE: usize = 0;
    /// NCAP: capacity in logical blocks, 64 bits.
    pub const NCAP: usize = 8;
    /// NUSE: blocks in use, 64 bits.
    pub const NUSE: usize = 16;
    /// NLBAF: LBA formats, 8 bits, 0's based.
    pub const NLBAF: usize = 25;
    /// FLBAS: the format in use, 8 bits: a [`super::Flbas`].
    pub const FLBAS: usize = 26;
    /// LBAF0: the first LBA format, 32 bits: a [`super::LbaFormat`].
    pub const LBAF: usize = 128;
    /// Bytes from one LBA format to the next.
    pub const LBAF_STRIDE: usize = 4;
}

/// SQES and CQES: powers of two of bytes.
#[bitfield(u8)]
#[derive(PartialEq, Eq)]
pub struct EntrySizes {
    /// The required size.
    #[bits(4)]
    pub min: u8,
    /// The largest.
    #[bits(4)]
    pub max: u8,
}
const _: () = assert!(size_of::<EntrySizes>() == 1);

/// FLBAS.
#[bitfield(u8)]
#[derive(PartialEq, Eq)]
pub struct Flbas {
    /// Bits 3:0 of the format's index.
    #[bits(4)]
    pub index_low: u8,
    /// Metadata follows the data.
    pub metadata_inline: bool,
    /// Bits 5:4 of the format's index.
    #[bits(2)]
    pub index_high: u8,
    #[bits(1)]
    __: u8,
}
const _: () = assert!(size_of::<Flbas>() == 1);

impl Flbas {
    /// The format's index.
    pub const fn index(self) -> u8 {
        self.index_high() << 4 | self.index_low()
    }
}

/// One LBA format.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct LbaFormat {
    /// MS: metadata bytes a block.
    pub ms: u16,
    /// LBADS: data bytes a block, a power of two; below 9 is unsupported.
    pub lbads: u8,
    /// RP: relative performance.
    #[bits(2)]
    pub rp: u8,
    #[bits(6)]
    __: u8,
}
const _: () = assert!(size_of::<LbaFormat>() == 4);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_from_literals() {
        assert_eq!(EntrySizes::from_bits(0x66), EntrySizes::new().with_min(6).with_max(6));
        assert_eq!(Flbas::from_bits(0b0011_0010).index(), 0x12);
        assert!(Flbas::from_bits(0x10).metadata_inline());
        let format = LbaFormat::from_bits(0x020c_0008);
        assert_eq!((format.ms(), format.lbads(), format.rp()), (8, 12, 2));
    }
}

//! Registers: a frame for control, and one for the messages of devices.

use crate::gic::{ReadOnly, ReadWrite, Register, Registers, WriteOnly};
use bitfield_struct::bitfield;

/// Size of one frame, in bytes.
pub const FRAME_BYTES: u32 = 0x1_0000;
/// Size of both frames, in bytes.
pub const REGION_BYTES: u32 = 2 * FRAME_BYTES;

/// Control, a [`Control`].
pub const CTLR: Register<u32, ReadWrite> = Register::at(0x0000);
/// Identification of the implementer.
pub const IIDR: Register<u32, ReadOnly> = Register::at(0x0004);
/// The features of the ITS, a [`Type`].
pub const TYPER: Register<u64, ReadOnly> = Register::at(0x0008);
/// The command queue, a [`CommandBase`]. Only while disabled; clears CREADR.
pub const CBASER: Register<u64, ReadWrite> = Register::at(0x0080);
/// Where software writes its next command, a [`Pointer`].
pub const CWRITER: Register<u64, ReadWrite> = Register::at(0x0088);
/// Up to where the ITS has executed commands, a [`Pointer`].
pub const CREADR: Register<u64, ReadOnly> = Register::at(0x0090);
/// Tables of the ITS, a [`Base`] each. Only while disabled.
pub const BASER: Registers<u64, ReadWrite> = Registers::at(0x0100, 8);
/// Peripheral id, the architecture's revision in bits 7:4.
pub const PIDR2: Register<u32, ReadOnly> = Register::at(0xffe8);
/// A device writes its event id here. In the second frame, the offset from the ITS's start.
pub const TRANSLATER: Register<u32, WriteOnly> = Register::at(FRAME_BYTES + 0x0040);

/// Size of a command, in bytes.
pub const COMMAND_BYTES: usize = 32;

/// Control (IHI 0069H, "GITS_CTLR").
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Control {
    /// Enabled: messages are translated, commands done.
    pub enable: bool,
    #[bits(30)]
    __: u32,
    /// Quiescent: disabled, with no operation in progress. Read-only.
    pub quiescent: bool,
}

/// The features of an ITS (IHI 0069H, "GITS_TYPER").
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct Type {
    /// Physical: LPIs, always 1.
    pub physical_lpis: bool,
    /// Virtual: virtual LPIs (GICv4).
    pub virtual_lpis: bool,
    /// CCT: collections may be cumulative in hardware and memory.
    pub cumulative_collections: bool,
    __: bool,
    /// ITT_entry_size: bytes of a device's translation entry, less one.
    #[bits(4)]
    pub itt_entry_less_one: u8,
    /// ID_bits: bits of an event id, less one.
    #[bits(5)]
    pub event_bits_less_one: u8,
    /// Devbits: bits of a device id, less one.
    #[bits(5)]
    pub device_bits_less_one: u8,
    /// SEIS: errors may be reported as system errors.
    pub system_errors: bool,
    /// PTA: commands name a redistributor by address instead of number.
    pub physical_targets: bool,
    #[bits(4)]
    __: u8,
    /// HCC: collections that need no table.
    pub hardware_collections: u8,
    /// CIDbits: bits of a collection id, less one, if CIL.
    #[bits(4)]
    pub collection_bits_less_one: u8,
    /// CIL: CIDbits is valid. Otherwise a collection id has 16 bits.
    pub limits_collections: bool,
    #[bits(27)]
    __: u64,
}

/// The command queue (IHI 0069H, "GITS_CBASER").
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct CommandBase {
    /// Pages of 4 KiB, less one.
    pub pages_less_one: u8,
    #[bits(2)]
    __: u8,
    /// A [`Shareability`](crate::gic::gicr::Shareability).
    #[bits(2)]
    pub shareability: u8,
    /// Address in pages of 4 KiB.
    #[bits(40)]
    pub page: u64,
    __: bool,
    /// 0: as the inner one.
    #[bits(3)]
    pub outer_cache: u8,
    #[bits(3)]
    __: u8,
    /// A [`Cacheability`](crate::gic::gicr::Cacheability).
    #[bits(3)]
    pub inner_cache: u8,
    __: bool,
    /// Valid.
    pub valid: bool,
}

/// A place in the command queue (IHI 0069H, "GITS_CWRITER" and "GITS_CREADR").
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct Pointer {
    /// CWRITER: Retry, done by writing 1. CREADR: Stalled, at a command in error.
    pub stalled_or_retry: bool,
    #[bits(4)]
    __: u8,
    /// The command's index.
    #[bits(15)]
    pub index: u16,
    #[bits(44)]
    __: u64,
}

/// The contents of a table of the ITS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableType(pub u8);

impl TableType {
    /// Unimplemented register.
    pub const NONE: Self = Self(0);
    /// Devices.
    pub const DEVICES: Self = Self(1);
    /// Virtual processing elements (GICv4).
    pub const VPES: Self = Self(2);
    /// Collections.
    pub const COLLECTIONS: Self = Self(4);
}

/// A table of the ITS (IHI 0069H, "GITS_BASERn"). Only the implementation knows what an entry looks like.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct Base {
    /// Pages, less one.
    pub pages_less_one: u8,
    /// Page size: 0 for 4 KiB, 1 for 16, 2 for 64.
    #[bits(2)]
    pub page_size: u8,
    /// A [`Shareability`](crate::gic::gicr::Shareability).
    #[bits(2)]
    pub shareability: u8,
    /// Address in units of 4 KiB, bits 47:12. With pages of 64 KiB its lowest four bits are bits 51:48 instead.
    #[bits(36)]
    pub page: u64,
    /// Bytes of an entry, less one. Read-only.
    #[bits(5)]
    pub entry_less_one: u8,
    /// 0: as the inner one.
    #[bits(3)]
    pub outer_cache: u8,
    /// A [`TableType`]. Read-only.
    #[bits(3)]
    pub kind: u8,
    /// A [`Cacheability`](crate::gic::gicr::Cacheability).
    #[bits(3)]
    pub inner_cache: u8,
    /// Indirect: two levels.
    pub indirect: bool,
    /// Valid.
    pub valid: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_the_manuals() {
        assert_eq!([CBASER.offset(), CWRITER.offset(), CREADR.offset()], [0x80, 0x88, 0x90]);
        assert_eq!([BASER.get(0).offset(), BASER.get(7).offset()], [0x100, 0x138]);
        assert_eq!([TYPER.offset(), TRANSLATER.offset()], [0x08, 0x1_0040]);
    }

    #[test]
    fn bits_stand_where_the_manual_has_them() {
        assert!(Control::from_bits(0x8000_0000).quiescent());
        // 8-byte translation entries, 16 bits of event and of device: as QEMU's ITS says, without its collection limit.
        let typer = Type::from_bits(0x0001_ef71);
        assert!(typer.physical_lpis() && !typer.physical_targets());
        assert_eq!((typer.itt_entry_less_one(), typer.event_bits_less_one()), (7, 15));
        assert_eq!(typer.device_bits_less_one(), 15);
        assert_eq!(Type::from_bits(0x1f_0000_0000).collection_bits_less_one(), 15);
        assert!(Type::from_bits(0x10_0000_0000).limits_collections() && Type::from_bits(1 << 19).physical_targets());
        assert_eq!(CommandBase::new().with_valid(true).with_page(0x4_0020).into_bits(), 0x8000_0000_4002_0000);
        assert_eq!(CommandBase::new().with_inner_cache(7).with_shareability(1).into_bits(), 0x3800_0000_0000_0400);
        assert_eq!(Pointer::new().with_index(3).into_bits(), 0x60);
        let base = Base::from_bits(0x0107_0000_0000_0000);
        assert_eq!((TableType(base.kind()), base.entry_less_one()), (TableType::DEVICES, 7));
        assert_eq!(
            Base::new().with_valid(true).with_page_size(2).with_page(0x4_0030).into_bits(),
            0x8000_0000_4003_0200
        );
    }
}

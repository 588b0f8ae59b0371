//! Software posting: a device sets vectors' bits in posted descriptors in memory by itself, without a remapping unit that
//! posts. The interface is this project's own; docs/software-posting.md is its manual ("SP").
//!
//! A vendor-specific capability of the function says where the *posting block* lies in a BAR: a header, the slots (a
//! descriptor each, as in [`crate::vtd::posted`]), and the sources (what becomes of each MSI-X vector's interrupt).

pub mod poster;

use bitfield_struct::bitfield;

/// Id of a vendor-specific capability (PCI Code and ID Assignment Specification).
pub const CAPABILITY_ID: u8 = 0x09;
/// "SwPI": what the second word of the capability and the first of the block hold.
pub const SIGNATURE: u32 = 0x4950_7753;
/// Version 1.0.
pub const VERSION: u32 = 0x0001_0000;
/// A block lies at a multiple of these bytes.
pub const BLOCK_ALIGN: u32 = 0x1000;

/// The first word of the capability.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct CapabilityHead {
    /// [`CAPABILITY_ID`].
    pub id: u8,
    /// Offset of the next capability.
    pub next: u8,
    /// Bytes of this one, [`capability::BYTES`].
    pub length_bytes: u8,
    /// BIR: the base address register of the block.
    #[bits(3)]
    pub bar: u8,
    #[bits(5)]
    __: u8,
}

/// Offsets in the capability, in bytes.
pub mod capability {
    /// A [`super::CapabilityHead`].
    pub const HEAD: u32 = 0x0;
    /// [`super::SIGNATURE`].
    pub const SIGNATURE: u32 = 0x4;
    /// Offset of the block in its BAR.
    pub const OFFSET: u32 = 0x8;
    /// Bytes of the block.
    pub const LENGTH: u32 = 0xc;
    /// Bytes of the capability.
    pub const BYTES: u8 = 0x10;
}

/// Registers of the block's header.
pub mod header {
    use crate::register::{OneToClear, ReadOnly, ReadWrite, Register};

    /// [`super::SIGNATURE`].
    pub const SIGNATURE: Register<u32, ReadOnly> = Register::at(0x00);
    /// Major version in 31:16, minor in 15:0.
    pub const VERSION: Register<u32, ReadOnly> = Register::at(0x04);
    /// A [`super::Counts`].
    pub const COUNTS: Register<u32, ReadOnly> = Register::at(0x08);
    /// A [`super::Tables`].
    pub const TABLES: Register<u32, ReadOnly> = Register::at(0x0c);
    /// A [`super::Control`].
    pub const CONTROL: Register<u32, ReadWrite> = Register::at(0x10);
    /// A [`super::Fault`]; writing 1 to bit 31 clears it.
    pub const FAULT: Register<u32, OneToClear> = Register::at(0x14);
    /// Requests posted.
    pub const POSTS: Register<u64, ReadOnly> = Register::at(0x20);
    /// Notifications sent.
    pub const NOTIFICATIONS: Register<u64, ReadOnly> = Register::at(0x28);
    /// Interrupts sent as messages of their own.
    pub const DIRECT: Register<u64, ReadOnly> = Register::at(0x30);
    /// Faults, recorded or not.
    pub const FAULTS: Register<u64, ReadOnly> = Register::at(0x38);
    /// Bytes of the header.
    pub const BYTES: u32 = 0x40;
}

/// How many there are.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Counts {
    /// Sources: MSI-X vectors of the function.
    pub sources: u16,
    /// Slots.
    pub slots: u16,
}

/// Offset of the tables in the block, in bytes.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Tables {
    /// Slots, [`slot::SIZE`] bytes each.
    pub slots: u16,
    /// Sources, a [`Source`] each.
    pub sources: u16,
}

/// Control.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Control {
    /// Sources that are posted post. While 0 every source sends its own message.
    pub enable: bool,
    #[bits(31)]
    __: u32,
}

/// The first fault since it was cleared.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Fault {
    /// What, a [`FaultReason`].
    pub reason: u8,
    /// Where: the source, or for a refused write the register's offset.
    pub index: u16,
    #[bits(7)]
    __: u8,
    /// There was one.
    pub valid: bool,
}

/// Reasons of faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FaultReason(pub u8);

impl FaultReason {
    /// A write set a reserved bit, or named a slot or vector that does not exist. The write had no effect.
    pub const REFUSED: Self = Self(1);
    /// A source names a slot that is not valid. The request is lost.
    pub const SLOT: Self = Self(2);
    /// There is no memory at the descriptor's address. The request is lost.
    pub const MEMORY: Self = Self(3);
}

/// Registers of a slot, behind its own offset.
pub mod slot {
    use crate::register::{ReadWrite, Register};

    /// A [`super::SlotDescriptor`].
    pub const DESCRIPTOR: Register<u64, ReadWrite> = Register::at(0x0);
    /// 15:0: the MSI-X vector that is sent as notification.
    pub const NOTIFICATION: Register<u32, ReadWrite> = Register::at(0x8);
    /// Bytes of a slot.
    pub const SIZE: u32 = 0x10;
}

/// Address of a slot's descriptor.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct SlotDescriptor {
    /// The slot may be posted to.
    pub valid: bool,
    #[bits(5)]
    __: u8,
    /// Bits 63:6 of the address, as the device sees memory.
    #[bits(58)]
    pub address_high: u64,
}

/// How the interrupts of one MSI-X vector are delivered.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Source {
    /// They are posted; else sent as the vector's own message.
    pub posted: bool,
    /// A notification is sent although SN is set.
    pub urgent: bool,
    #[bits(6)]
    __: u8,
    /// The bit of PIR.
    pub vector: u8,
    /// The slot of the descriptor.
    pub slot: u16,
}

const _: () = {
    assert!(size_of::<CapabilityHead>() == 4 && size_of::<Counts>() == 4 && size_of::<Tables>() == 4);
    assert!(size_of::<Control>() == 4 && size_of::<Fault>() == 4 && size_of::<Source>() == 4);
    assert!(size_of::<SlotDescriptor>() == 8);
    assert!(capability::LENGTH + 4 == capability::BYTES as u32);
    assert!(header::FAULTS.offset() + 8 == header::BYTES);
    assert!(slot::NOTIFICATION.offset() + 8 == slot::SIZE);
    assert!(1 << 6 == crate::vtd::posted::SIZE, "a slot's address leaves out the bits that alignment makes 0");
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_manual() {
        assert_eq!(SIGNATURE.to_le_bytes(), *b"SwPI");
        let head = CapabilityHead::new().with_id(0x09).with_next(0x80).with_length_bytes(0x10).with_bar(2);
        assert_eq!(head.into_bits(), 0x0210_8009);
        assert_eq!(Counts::new().with_sources(9).with_slots(4).into_bits(), 0x0004_0009);
        assert_eq!(Tables::new().with_slots(0x100).with_sources(0x1000).into_bits(), 0x1000_0100);
        let fault = Fault::new().with_reason(FaultReason::SLOT.0).with_index(0x1234).with_valid(true);
        assert_eq!(fault.into_bits(), 0x8012_3402);
        let source = Source::new().with_posted(true).with_urgent(true).with_vector(0x31).with_slot(2);
        assert_eq!(source.into_bits(), 0x0002_3103);
        assert_eq!(SlotDescriptor::from_bits(0x1_2345_67c1).address_high() << 6, 0x1_2345_67c0);
    }
}

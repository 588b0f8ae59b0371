//! Interrupt-remapping table entries, 128 bits each, little-endian.

use bitfield_struct::bitfield;

/// Bytes of one entry.
pub const SIZE: usize = 16;

/// The common fields of both formats: whether an entry is present, and its format.
#[bitfield(u128)]
#[derive(PartialEq, Eq)]
pub struct Common {
    /// The entry is valid.
    pub present: bool,
    /// FPD: faults of this entry are not recorded.
    pub fault_disable: bool,
    #[bits(13)]
    __: u16,
    /// IM: posted format.
    pub posted: bool,
    #[bits(48)]
    __: u64,
    /// SID: requester that may use the entry.
    pub source: u16,
    /// A [`SourceQualifier`].
    #[bits(2)]
    pub qualifier: u8,
    /// A [`SourceValidation`].
    #[bits(2)]
    pub validation: u8,
    #[bits(44)]
    __: u64,
}

/// Remapped format (VT-d, "Interrupt Remapping Table Entry (IRTE) for Remapped Interrupts").
#[bitfield(u128)]
#[derive(PartialEq, Eq)]
pub struct Remapped {
    /// The entry is valid.
    pub present: bool,
    /// FPD: faults of this entry are not recorded.
    pub fault_disable: bool,
    /// DM: the destination is logical.
    pub logical: bool,
    /// RH: redirection hint.
    pub redirection_hint: bool,
    /// TM: level triggered.
    pub level: bool,
    /// DLM: a [`crate::apic::DeliveryMode`].
    #[bits(3)]
    pub delivery_mode: u8,
    /// Free for software.
    #[bits(4)]
    pub available: u8,
    #[bits(3)]
    __: u8,
    /// IM: 0 in this format.
    pub posted: bool,
    /// Vector.
    pub vector: u8,
    __: u8,
    /// DST: the APIC id in x2APIC mode, the id in bits 15:8 in xAPIC mode.
    pub destination: u32,
    /// SID: requester that may use the entry.
    pub source: u16,
    /// SQ: a [`SourceQualifier`].
    #[bits(2)]
    pub qualifier: u8,
    /// SVT: a [`SourceValidation`].
    #[bits(2)]
    pub validation: u8,
    #[bits(44)]
    __: u64,
}

impl Remapped {
    /// Bits that must be 0; a set one is [`super::registers::FaultReason::IRTE_RESERVED`].
    pub const RESERVED: u128 = !Self::new()
        .with_present(true)
        .with_fault_disable(true)
        .with_logical(true)
        .with_redirection_hint(true)
        .with_level(true)
        .with_delivery_mode(0b111)
        .with_available(0xf)
        .with_posted(true)
        .with_vector(0xff)
        .with_destination(u32::MAX)
        .with_source(u16::MAX)
        .with_qualifier(0b11)
        .with_validation(0b11)
        .into_bits();
}

/// Posted format (VT-d, "Interrupt Remapping Table Entry (IRTE) for Posted Interrupts").
#[bitfield(u128)]
#[derive(PartialEq, Eq)]
pub struct Posted {
    /// The entry is valid.
    pub present: bool,
    /// FPD: faults of this entry are not recorded.
    pub fault_disable: bool,
    #[bits(6)]
    __: u8,
    /// Free for software.
    #[bits(4)]
    pub available: u8,
    #[bits(2)]
    __: u8,
    /// URG: notifies although the descriptor suppresses notifications.
    pub urgent: bool,
    /// IM: 1 in this format.
    pub posted: bool,
    /// Vector: which bit of the descriptor's requests.
    pub vector: u8,
    #[bits(14)]
    __: u16,
    /// PDA: bits 31:6 of the descriptor's address.
    #[bits(26)]
    pub descriptor_low: u32,
    /// SID: requester that may use the entry.
    pub source: u16,
    /// SQ: a [`SourceQualifier`].
    #[bits(2)]
    pub qualifier: u8,
    /// SVT: a [`SourceValidation`].
    #[bits(2)]
    pub validation: u8,
    #[bits(12)]
    __: u16,
    /// PDA: bits 63:32 of the descriptor's address.
    pub descriptor_high: u32,
}

impl Posted {
    /// Bits that must be 0; a set one is [`super::registers::FaultReason::IRTE_RESERVED`].
    pub const RESERVED: u128 = !Self::new()
        .with_present(true)
        .with_fault_disable(true)
        .with_available(0xf)
        .with_urgent(true)
        .with_posted(true)
        .with_vector(0xff)
        .with_descriptor_low((1 << 26) - 1)
        .with_source(u16::MAX)
        .with_qualifier(0b11)
        .with_validation(0b11)
        .with_descriptor_high(u32::MAX)
        .into_bits();
}

/// SVT: how the requester is checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SourceValidation(pub u8);

impl SourceValidation {
    /// Not at all.
    pub const NONE: Self = Self(0b00);
    /// Against SID, with the bits that SQ names.
    pub const REQUESTER: Self = Self(0b01);
    /// The requester's bus lies in the range of SID: first bus in 15:8, last in 7:0.
    pub const BUS: Self = Self(0b10);
}

/// SQ: which bits of the requester are compared with SID.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SourceQualifier(pub u8);

impl SourceQualifier {
    /// All.
    pub const ALL_16: Self = Self(0b00);
    /// All but bit 2, the highest of the function.
    pub const IGNORE_BIT_2: Self = Self(0b01);
    /// All but bits 2:1.
    pub const IGNORE_BITS_2_1: Self = Self(0b10);
    /// All but the function.
    pub const IGNORE_BITS_2_0: Self = Self(0b11);
}

const _: () = {
    assert!(size_of::<Common>() == SIZE);
    assert!(size_of::<Remapped>() == SIZE);
    assert!(size_of::<Posted>() == SIZE);
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Requester 3a:00.0, vector 0x41 on APIC id 7, all of the requester checked.
    #[test]
    fn remapped_entry() {
        let entry = Remapped::new()
            .with_present(true)
            .with_vector(0x41)
            .with_destination(7)
            .with_source(0x3a00)
            .with_validation(SourceValidation::REQUESTER.0);
        assert_eq!(entry.into_bits() as u64, 0x0000_0007_0041_0001);
        assert_eq!((entry.into_bits() >> 64) as u64, 0x0000_0000_0004_3a00);
        assert_eq!(entry.into_bits() & Remapped::RESERVED, 0);
        assert_eq!(Remapped::RESERVED as u64, 0x0000_0000_ff00_7000);
        assert_eq!((Remapped::RESERVED >> 64) as u64, 0xffff_ffff_fff0_0000);
    }

    /// The same vector posted to the descriptor at 0x1_2345_67c0.
    #[test]
    fn posted_entry() {
        let entry = Posted::new()
            .with_present(true)
            .with_posted(true)
            .with_vector(0x41)
            .with_descriptor_low(0x2345_67c0 >> 6)
            .with_descriptor_high(1)
            .with_source(0x3a00)
            .with_validation(SourceValidation::REQUESTER.0);
        assert_eq!(entry.into_bits() as u64, 0x2345_67c0_0041_8001);
        assert_eq!((entry.into_bits() >> 64) as u64, 0x0000_0001_0004_3a00);
        assert_eq!(Posted::RESERVED as u64, 0x0000_003f_ff00_30fc);
        assert_eq!((Posted::RESERVED >> 64) as u64, 0x0000_0000_fff0_0000);
        assert_eq!(Posted::new().with_urgent(true).into_bits(), 1 << 14);
    }

    #[test]
    fn both_formats_agree_on_what_they_share() {
        let shared = Common::new().with_present(true).with_source(0xffff).with_qualifier(0b11).with_validation(0b11);
        let bits = shared.into_bits();
        assert_eq!(bits, 0x000f_ffff << 64 | 1);
        assert_eq!(Remapped::from_bits(bits).validation(), 0b11);
        assert_eq!(Posted::from_bits(bits).qualifier(), 0b11);
    }
}

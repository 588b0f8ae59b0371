//! The posted-interrupt descriptor (VT-d, "Posted Interrupt Descriptor (PID)"): 64 bytes, 64-byte aligned.
//!
//! | bytes | word | contents |
//! |---|---|---|
//! | 0–31 | 0–3 | PIR: request bits of vectors 0 to 255 |
//! | 32–39 | 4 | [`Control`] |
//! | 40–63 | 5–7 | reserved, 0 |
//!
//! A post is one atomic read-modify-write of the whole (VT-d, "Interrupt-Posting Hardware Operation"): PIR\[vector\] is
//! set, and if ON is 0 and either SN is 0 or the entry is urgent, ON is set and the vector NV is sent to NDST.

use bitfield_struct::bitfield;

/// Bytes of a descriptor, and its alignment.
pub const SIZE: usize = 64;
/// 64-bit words of a descriptor.
pub const WORDS: usize = SIZE / 8;
/// Words of PIR, the first ones.
pub const PIR_WORDS: usize = 4;
/// Word that holds [`Control`].
pub const CONTROL_WORD: usize = 4;

/// Bits 256 to 319 of the descriptor.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct Control {
    /// ON: a notification was sent and not served yet.
    pub outstanding: bool,
    /// SN: no notifications, save for urgent entries.
    pub suppress: bool,
    #[bits(14)]
    __: u16,
    /// NV: the vector that is sent.
    pub notification_vector: u8,
    __: u8,
    /// NDST: the APIC id in x2APIC mode, the id in bits 15:8 in xAPIC mode.
    pub destination: u32,
}

impl Control {
    /// Bits that must be 0; a set one is [`super::registers::FaultReason::DESCRIPTOR_RESERVED`].
    pub const RESERVED: u64 = !Self::new()
        .with_outstanding(true)
        .with_suppress(true)
        .with_notification_vector(0xff)
        .with_destination(u32::MAX)
        .into_bits();
}

const _: () = {
    assert!(WORDS == 8);
    assert!(PIR_WORDS * 64 == 256);
    assert!(CONTROL_WORD * 64 == 256);
    assert!(size_of::<Control>() == 8);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_word() {
        let control = Control::new().with_outstanding(true).with_notification_vector(0xeb).with_destination(0x123);
        assert_eq!(control.into_bits(), 0x0000_0123_00eb_0001);
        assert_eq!(Control::new().with_suppress(true).into_bits(), 2);
        assert_eq!(Control::RESERVED, 0x0000_0000_ff00_fffc);
    }
}

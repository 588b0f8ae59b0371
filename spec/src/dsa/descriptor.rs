//! Descriptors and completion records.

use bitfield_struct::bitfield;

/// The operation of a descriptor (DSA, "Descriptor Types"; the codes are those of OPCAP's bits).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opcode(pub u8);

impl Opcode {
    /// No operation.
    pub const NOOP: Self = Self(0x00);
    /// The descriptors of a list.
    pub const BATCH: Self = Self(0x01);
    /// Drain: completes after all earlier descriptors.
    pub const DRAIN: Self = Self(0x02);
    /// Memory move.
    pub const MEMMOVE: Self = Self(0x03);
    /// Memory fill.
    pub const FILL: Self = Self(0x04);
}

/// The 24 flags of a descriptor (DSA, "Descriptor Flags").
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Flags {
    /// Wait for the descriptors before it in its batch.
    pub fence: bool,
    /// Wait for a page that is not present.
    pub block_on_fault: bool,
    /// The completion record address is valid.
    pub record_valid: bool,
    /// Write the completion record also on success, not only on errors.
    pub request_record: bool,
    /// Interrupt on completion.
    pub request_interrupt: bool,
    /// Traffic class selector of the record.
    pub record_steering: bool,
    __: bool,
    /// Check the result.
    pub check_result: bool,
    /// Leave the data in the cache.
    pub cache_control: bool,
    /// Traffic class selector of address 1.
    pub address1_class: bool,
    /// Traffic class selector of address 2.
    pub address2_class: bool,
    /// Traffic class selector of address 3.
    pub address3_class: bool,
    /// Traffic class selector of the record.
    pub record_class: bool,
    /// Strict ordering of the data's writes.
    pub strict_ordering: bool,
    /// Read back the destination.
    pub destination_readback: bool,
    /// Steering of the destination.
    pub destination_steering: bool,
    #[bits(16)]
    __: u16,
}
const _: () = assert!(size_of::<Flags>() == 4);

/// Bytes 0–7 of a descriptor.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct Control {
    /// PASID. A dedicated queue uses the PASID of its configuration instead.
    #[bits(20)]
    pub pasid: u32,
    /// Reserved: 0.
    #[bits(11)]
    pub reserved: u16,
    /// Privileged.
    pub privileged: bool,
    /// [`Flags`].
    #[bits(24)]
    pub flags: u32,
    /// [`Opcode`].
    pub opcode: u8,
}
const _: () = assert!(size_of::<Control>() == 8);

/// Bytes 32–39 of a descriptor.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct Size {
    /// Transfer size in bytes.
    pub bytes: u32,
    /// Interrupt handle. In devices without Request Interrupt Handle it is the MSI-X entry.
    pub interrupt_handle: u16,
    /// Reserved: 0.
    pub reserved: u16,
}
const _: () = assert!(size_of::<Size>() == 8);

/// A descriptor, 64 bytes (DSA, "Descriptor Format").
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Descriptor {
    /// Bytes 0–7.
    pub control: Control,
    /// Bytes 8–15: address of the completion record, aligned to [`CompletionRecord::BYTES`].
    pub record: u64,
    /// Bytes 16–23: the source address, or the pattern of a fill.
    pub source: u64,
    /// Bytes 24–31: the destination.
    pub destination: u64,
    /// Bytes 32–39.
    pub size: Size,
    /// Bytes 40–63: specific to the operation; zero for No-op and Fill.
    pub specific: [u64; 3],
}
const _: () = assert!(size_of::<Descriptor>() == Descriptor::BYTES);

impl Descriptor {
    /// Its length.
    pub const BYTES: usize = 64;

    /// Reads the quadwords of a portal write.
    pub const fn from_words(words: [u64; 8]) -> Self {
        Self {
            control: Control::from_bits(words[0]),
            record: words[1],
            source: words[2],
            destination: words[3],
            size: Size::from_bits(words[4]),
            specific: [words[5], words[6], words[7]],
        }
    }

    /// The quadwords of a portal write.
    pub const fn to_words(self) -> [u64; 8] {
        let [fifth, sixth, seventh] = self.specific;
        let size = self.size.into_bits();
        [self.control.into_bits(), self.record, self.source, self.destination, size, fifth, sixth, seventh]
    }
}

/// Status of a completed descriptor: bits 6:0 of the status byte (DSA, "Completion Record", "Operation Status Codes").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompletionStatus(pub u8);

impl CompletionStatus {
    /// Not completed yet: software writes this before it submits.
    pub const NONE: Self = Self(0x00);
    /// Success.
    pub const SUCCESS: Self = Self(0x01);
    /// Success, but the result differs from the expected one.
    pub const SUCCESS_UNEXPECTED: Self = Self(0x02);
    /// Partial completion: a page fault stopped it at the fault address.
    pub const PAGE_FAULT: Self = Self(0x03);
    /// The operation does not exist, or the device does not support it.
    pub const INVALID_OPCODE: Self = Self(0x10);
    /// The operation or the device does not support a flag that is set.
    pub const INVALID_FLAGS: Self = Self(0x11);
    /// A reserved field that is not zero.
    pub const RESERVED_FIELD: Self = Self(0x12);
    /// A transfer size of zero, or above the queue's.
    pub const TRANSFER_SIZE: Self = Self(0x13);
    /// An interrupt handle that is not valid.
    pub const INTERRUPT_HANDLE: Self = Self(0x19);
    /// The completion record cannot be written.
    pub const RECORD_ADDRESS: Self = Self(0x1a);
    /// The completion record's address is not aligned.
    pub const RECORD_ALIGNMENT: Self = Self(0x1b);
    /// Bit 7 of the status byte: the faulting access was a write.
    pub const WRITE: u8 = 0x80;
}

/// Bytes 0–7 of a completion record; the first of them is written last, or with the rest (DSA, "Completion Record").
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct RecordHead {
    /// [`CompletionStatus`].
    #[bits(7)]
    pub status: u8,
    /// The faulting access was a write.
    pub fault_write: bool,
    /// The operation's result.
    pub result: u8,
    __: u16,
    /// Bytes completed before a fault.
    pub bytes_completed: u32,
}
const _: () = assert!(size_of::<RecordHead>() == 8);

/// A completion record, 32 bytes (DSA, "Completion Record").
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct CompletionRecord {
    /// Bytes 0–7.
    pub head: RecordHead,
    /// Bytes 8–15: fault address.
    pub fault_address: u64,
    /// Bytes 16–19: the flags of [`CompletionStatus::INVALID_FLAGS`].
    pub invalid_flags: u32,
    /// Bytes 20–23.
    pub reserved: u32,
    /// Bytes 24–31.
    pub specific: u64,
}
const _: () = assert!(size_of::<CompletionRecord>() == CompletionRecord::BYTES);

impl CompletionRecord {
    /// Its length and alignment.
    pub const BYTES: usize = 32;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fill_has_the_words_of_the_manual() {
        let flags = Flags::new().with_record_valid(true).with_request_record(true).with_request_interrupt(true);
        let fill = Descriptor {
            control: Control::new().with_flags(flags.into_bits()).with_opcode(Opcode::FILL.0),
            record: 0x1000,
            source: 0x1122_3344_5566_7788,
            destination: 0x2000,
            size: Size::new().with_bytes(512).with_interrupt_handle(1),
            specific: [0; 3],
        };
        let words = [0x0400_001c_0000_0000, 0x1000, 0x1122_3344_5566_7788, 0x2000, 0x0000_0001_0000_0200, 0, 0, 0];
        assert_eq!(fill.to_words(), words);
        assert_eq!(Descriptor::from_words(words), fill);
    }

    #[test]
    fn a_record_begins_with_its_status() {
        let head = RecordHead::from_bits(0x0000_0100_0000_0083);
        assert_eq!((head.status(), head.fault_write(), head.bytes_completed()), (3, true, 0x100));
    }
}

//! Completion queue entries (Base 3.3.3.2) and their status (Base 3.3.3.2.1).

use bitfield_struct::bitfield;
use core::fmt;

/// A completion queue entry, 16 bytes (Base 3.3.3.2, common completion queue entry layout).
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Completion {
    /// Dword 0, command specific.
    pub dw0: u32,
    /// Dword 1, command specific.
    pub dw1: u32,
    /// SQHD: the submission queue's head when the entry was written. Entries before it may be overwritten.
    pub sqhd: u16,
    /// SQID: the submission queue.
    pub sqid: u16,
    /// CID of the command.
    pub cid: u16,
    /// Phase tag and status.
    pub status: StatusField,
}
const _: () = assert!(size_of::<Completion>() == super::CQE_BYTES);
const _: () = assert!(core::mem::offset_of!(Completion, sqhd) == 8);
const _: () = assert!(core::mem::offset_of!(Completion, status) == 14);

impl Completion {
    /// The bit of the entry's second 64-bit word that holds the phase tag: bit 16 of dword 3.
    pub const PHASE_BIT: u32 = 48;

    /// The entry as the two little-endian 64-bit words that lie in the queue. A controller that writes more than once
    /// writes the second word last (Base 3.3.3.2).
    pub const fn to_words(self) -> [u64; 2] {
        [
            self.dw0 as u64 | (self.dw1 as u64) << 32,
            self.sqhd as u64
                | (self.sqid as u64) << 16
                | (self.cid as u64) << 32
                | (self.status.into_bits() as u64) << 48,
        ]
    }

    /// The entry that lies in the queue as `words`.
    pub const fn from_words(words: [u64; 2]) -> Self {
        Self {
            dw0: words[0] as u32,
            dw1: (words[0] >> 32) as u32,
            sqhd: words[1] as u16,
            sqid: (words[1] >> 16) as u16,
            cid: (words[1] >> 32) as u16,
            status: StatusField::from_bits((words[1] >> 48) as u16),
        }
    }
}

/// The upper half of dword 3: phase tag and status field (Base 3.3.3.2.1).
#[bitfield(u16)]
#[derive(PartialEq, Eq)]
pub struct StatusField {
    /// P: inverted by each pass of the controller through the queue; 1 in the first.
    pub phase: bool,
    /// SC: the code, within its type.
    pub sc: u8,
    /// SCT: a [`StatusCodeType`].
    #[bits(3)]
    pub sct: u8,
    /// CRD: command retry delay.
    #[bits(2)]
    pub crd: u8,
    /// M: more in the error information log.
    pub more: bool,
    /// DNR: do not retry.
    pub dnr: bool,
}
const _: () = assert!(size_of::<StatusField>() == 2);

impl StatusField {
    /// Type and code together.
    pub const fn status(self) -> Status {
        Status((self.sct() as u16) << 8 | self.sc() as u16)
    }

    /// The field with type and code of `status`.
    #[must_use]
    pub const fn with_status(self, status: Status) -> Self {
        self.with_sc(status.code()).with_sct(status.code_type().0)
    }
}

/// Status code types (Base 3.3.3.2.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StatusCodeType(pub u8);

impl StatusCodeType {
    /// Generic command status.
    pub const GENERIC: Self = Self(0);
    /// Command specific status.
    pub const COMMAND_SPECIFIC: Self = Self(1);
    /// Media and data integrity errors.
    pub const MEDIA: Self = Self(2);
    /// Path related status.
    pub const PATH: Self = Self(3);
    /// Vendor specific.
    pub const VENDOR: Self = Self(7);
}

/// A status: its type in bits 10:8, its code in bits 7:0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Status(pub u16);

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $text:literal;)*) => {
        impl Status {
            $($(#[$doc])* pub const $name: Self = Self($value);)*

            /// The manual's name, if the code is one of the constants here.
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    /// Generic 00h.
    SUCCESS = 0x000, "Successful Completion";
    /// Generic 01h.
    INVALID_OPCODE = 0x001, "Invalid Command Opcode";
    /// Generic 02h.
    INVALID_FIELD = 0x002, "Invalid Field in Command";
    /// Generic 03h.
    COMMAND_ID_CONFLICT = 0x003, "Command ID Conflict";
    /// Generic 04h.
    DATA_TRANSFER_ERROR = 0x004, "Data Transfer Error";
    /// Generic 06h.
    INTERNAL_ERROR = 0x006, "Internal Error";
    /// Generic 07h: by an Abort command.
    ABORT_REQUESTED = 0x007, "Command Abort Requested";
    /// Generic 08h: its submission queue was deleted.
    ABORTED_SQ_DELETION = 0x008, "Command Aborted due to SQ Deletion";
    /// Generic 0Bh.
    INVALID_NAMESPACE = 0x00b, "Invalid Namespace or Format";
    /// Generic 0Ch.
    COMMAND_SEQUENCE_ERROR = 0x00c, "Command Sequence Error";
    /// Generic 13h.
    PRP_OFFSET_INVALID = 0x013, "PRP Offset Invalid";
    /// Generic 80h (NVM command set).
    LBA_OUT_OF_RANGE = 0x080, "LBA Out of Range";
    /// Generic 82h (NVM command set).
    NAMESPACE_NOT_READY = 0x082, "Namespace Not Ready";
    /// Command specific 00h: Create I/O Submission Queue.
    COMPLETION_QUEUE_INVALID = 0x100, "Completion Queue Invalid";
    /// Command specific 01h: create and delete queue.
    INVALID_QUEUE_ID = 0x101, "Invalid Queue Identifier";
    /// Command specific 02h: create queue.
    INVALID_QUEUE_SIZE = 0x102, "Invalid Queue Size";
    /// Command specific 03h: Abort.
    ABORT_LIMIT_EXCEEDED = 0x103, "Abort Command Limit Exceeded";
    /// Command specific 05h: Asynchronous Event Request.
    ASYNC_EVENT_LIMIT_EXCEEDED = 0x105, "Asynchronous Event Request Limit Exceeded";
    /// Command specific 08h: Create I/O Completion Queue.
    INVALID_INTERRUPT_VECTOR = 0x108, "Invalid Interrupt Vector";
    /// Command specific 0Ch: Delete I/O Completion Queue with submission queues left.
    INVALID_QUEUE_DELETION = 0x10c, "Invalid Queue Deletion";
    /// Command specific 0Dh: Set Features.
    FEATURE_NOT_SAVEABLE = 0x10d, "Feature Identifier Not Saveable";
    /// Command specific 0Eh: Set Features.
    FEATURE_NOT_CHANGEABLE = 0x10e, "Feature Not Changeable";
    /// Media 80h.
    WRITE_FAULT = 0x280, "Write Fault";
    /// Media 81h.
    UNRECOVERED_READ_ERROR = 0x281, "Unrecovered Read Error";
}

impl Status {
    /// The status of this type and code.
    pub const fn of(code_type: StatusCodeType, code: u8) -> Self {
        Self((code_type.0 as u16) << 8 | code as u16)
    }

    /// SCT.
    pub const fn code_type(self) -> StatusCodeType {
        StatusCodeType((self.0 >> 8) as u8 & 7)
    }

    /// SC.
    pub const fn code(self) -> u8 {
        self.0 as u8
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name().unwrap_or("unknown status");
        write!(f, "{name} (SCT {:x}h, SC {:02x}h)", self.code_type().0, self.code())
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::string::ToString;

    #[test]
    fn an_entry_lies_in_the_queue_as_the_manual_says() {
        let status = StatusField::new().with_phase(true).with_status(Status::INVALID_QUEUE_SIZE).with_dnr(true);
        let entry = Completion { dw0: 0xaabb_ccdd, dw1: 0, sqhd: 0x0011, sqid: 0x0002, cid: 0x1234, status };
        // Dword 3: DNR 31, SCT 1 in 27:25, SC 02h in 24:17, P 16.
        assert_eq!(entry.to_words(), [0x0000_0000_aabb_ccdd, 0x8205_1234_0002_0011]);
        assert_eq!(Completion::from_words(entry.to_words()), entry);
        assert_eq!(entry.to_words()[1] >> Completion::PHASE_BIT & 1, 1);
    }

    #[test]
    fn the_status_field_from_a_literal() {
        // SCT 2, SC 81h, more, phase 0.
        let field = StatusField::from_bits(0b0100_0101_0000_0010);
        assert_eq!(field.status(), Status::UNRECOVERED_READ_ERROR);
        assert!(field.more() && !field.dnr() && !field.phase());
        assert_eq!(Status::of(StatusCodeType::MEDIA, 0x81), Status::UNRECOVERED_READ_ERROR);
    }

    #[test]
    fn an_unknown_status_stays_a_value() {
        assert_eq!(Status(0x7c3).to_string(), "unknown status (SCT 7h, SC c3h)");
        assert_eq!(Status::ABORT_REQUESTED.to_string(), "Command Abort Requested (SCT 0h, SC 07h)");
    }
}

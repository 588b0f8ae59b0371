//! What can go wrong, by whose fault: the controller's, one I/O's, the caller's, or the device's own protocol.

use super::Namespace;
use core::fmt;
use hal::DmaError;
use spec::nvme::{AdminOpcode, Status};

/// Why an operation on the controller failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NvmeError {
    /// CAP.CSS lacks the NVM command set.
    NoNvmCommandSet,
    /// CAP.MPSMIN is above the 4 KiB pages that this driver uses; the smallest page in bytes.
    PageSize(u64),
    /// Identify Controller asks for queue entries of other sizes than 64 and 16 bytes; SQES and CQES.
    EntrySize(u8, u8),
    /// No memory for the device.
    Dma(DmaError),
    /// The registers read all ones: the device is no longer on the bus.
    Gone,
    /// CSTS.CFS: the controller needs [`super::Controller::reset`].
    Fatal,
    /// The controller did not do the named thing within this many milliseconds.
    Timeout(&'static str, u64),
    /// An admin command was refused.
    Command(AdminOpcode, Status),
    /// An admin command ended without an answer, for this reason.
    Lost(AdminOpcode, IoError),
    /// The admin queue is full; it takes this many commands.
    AdminFull(u16),
    /// Another thread is running a control operation; try again when it has finished.
    Busy,
    /// The controller was shut down, or its last reset failed.
    Stopped,
    /// The namespace id is not one of 1 to this many, or is not active.
    NoNamespace(u32, u32),
    /// The namespace's format cannot be used: LBADS and metadata bytes; valid are LBADS 9 to 16 without metadata.
    Format(u8, u16),
    /// A queue of this many entries; valid are 2 to that many.
    QueueEntries(u16, u32),
    /// A longest transfer of this many bytes; valid are 1 to that many.
    TransferLength(u32, u32),
    /// All of the queue pairs that the controller granted exist, this many.
    NoQueueLeft(u16),
    /// No I/O queue pair has this number.
    NoQueue(u16),
}

impl fmt::Display for NvmeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NoNvmCommandSet => write!(f, "the controller lacks the NVM command set (CAP.CSS bit 0)"),
            Self::PageSize(bytes) => write!(f, "the controller's smallest page is {bytes} bytes; 4096 is needed"),
            Self::EntrySize(sqes, cqes) => {
                write!(
                    f,
                    "the controller requires SQES {sqes:#x}, CQES {cqes:#x}; entries of 2^6 and 2^4 bytes are used"
                )
            }
            Self::Dma(error) => error.fmt(f),
            Self::Gone => write!(f, "the controller's registers read all ones: it has left the bus"),
            Self::Fatal => write!(f, "the controller reports a fatal error (CSTS.CFS); only a reset helps"),
            Self::Timeout(what, limit_ms) => write!(f, "{what} did not happen within {limit_ms} ms"),
            Self::Command(opcode, status) => write!(f, "admin command {:02x}h was refused: {status}", opcode.0),
            Self::Lost(opcode, error) => write!(f, "admin command {:02x}h got no answer: {error}", opcode.0),
            Self::AdminFull(slots) => write!(f, "all {slots} admin commands are in flight"),
            Self::Busy => write!(f, "another control operation runs on this controller"),
            Self::Stopped => write!(f, "the controller is stopped; a reset starts it"),
            Self::NoNamespace(nsid, nn) => write!(f, "namespace {nsid} is not active; valid ids are 1 to {nn}"),
            Self::Format(lbads, ms) => {
                write!(
                    f,
                    "the namespace has blocks of 2^{lbads} bytes with {ms} of metadata; 2^9 to 2^16 without are valid"
                )
            }
            Self::QueueEntries(entries, most) => write!(f, "a queue of {entries} entries; 2 to {most} are valid"),
            Self::TransferLength(bytes, most) => {
                write!(f, "a longest transfer of {bytes} bytes; 1 to {most} are valid")
            }
            Self::NoQueueLeft(granted) => write!(f, "all {granted} queue pairs that the controller granted exist"),
            Self::NoQueue(qid) => write!(f, "there is no I/O queue pair {qid}"),
        }
    }
}

impl core::error::Error for NvmeError {}

impl From<DmaError> for NvmeError {
    fn from(error: DmaError) -> Self {
        Self::Dma(error)
    }
}

/// Why a command that was accepted did not succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoError {
    /// The device says so.
    Device {
        /// What it says.
        status: Status,
        /// DNR: the same command would fail again.
        do_not_retry: bool,
    },
    /// Its queue was deleted.
    QueueDeleted,
    /// The controller was reset.
    ControllerReset,
    /// The controller was shut down.
    Shutdown,
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device { status, do_not_retry: false } => write!(f, "{status}"),
            Self::Device { status, do_not_retry: true } => write!(f, "{status}, do not retry"),
            Self::QueueDeleted => write!(f, "its queue was deleted"),
            Self::ControllerReset => write!(f, "the controller was reset"),
            Self::Shutdown => write!(f, "the controller was shut down"),
        }
    }
}

impl core::error::Error for IoError {}

/// Why a request was not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The queue is full of commands in flight. Try again after a completion.
    Full,
    /// The queue is stopped or deleted.
    Stopped,
    /// The length in bytes is no multiple of the block size in bytes, or is zero.
    Length(u32, u32),
    /// The length in bytes is above the queue's longest transfer in bytes.
    TooLong(u32, u32),
    /// The blocks from this LBA on reach past the end of a namespace of that many blocks.
    Range(u64, u64),
    /// The device has no command for the operation.
    Unsupported(super::IoOp),
    /// The buffer is not aligned to four bytes (Base 4.1.1), or wraps round the end of the address space.
    Buffer(u64),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Full => write!(f, "the queue is full"),
            Self::Stopped => write!(f, "the queue is stopped"),
            Self::Length(bytes, block) => write!(f, "{bytes} bytes; a multiple of {block} above 0 is valid"),
            Self::TooLong(bytes, most) => write!(f, "{bytes} bytes; this queue takes {most} at most"),
            Self::Range(lba, blocks) => {
                write!(f, "the request at LBA {lba} ends behind the last block, {}", blocks.saturating_sub(1))
            }
            Self::Unsupported(op) => write!(f, "the device does not offer {op:?}"),
            Self::Buffer(address) => write!(f, "buffer {address:#x} is not aligned to 4 bytes, or wraps"),
        }
    }
}

impl core::error::Error for Refusal {}

/// A violation of the specification by the device. The queue records it and skips the entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceFault {
    /// A completion for a command id that the queue never uses; valid are 0 up to below the second.
    UnknownCommand(u16, u16),
    /// A completion for a command that is not in flight: a duplicate, or an invention.
    NotInFlight(u16),
    /// A completion for a command of another submission queue; the second is this one's.
    WrongQueue(u16, u16),
    /// A submission queue head outside the queue of that many entries.
    HeadOutOfRange(u16, u16),
}

impl fmt::Display for DeviceFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownCommand(cid, slots) => write!(f, "completion of command {cid}; ids are below {slots}"),
            Self::NotInFlight(cid) => write!(f, "completion of command {cid}, which is not in flight"),
            Self::WrongQueue(sqid, own) => write!(f, "completion for queue {sqid} on queue {own}"),
            Self::HeadOutOfRange(sqhd, entries) => write!(f, "submission queue head {sqhd} of {entries} entries"),
        }
    }
}

/// Checks a request's place on `namespace`; returns its number of blocks.
pub(super) fn check_range(namespace: &Namespace, lba: u64, len_bytes: u32, most: u32) -> Result<u32, Refusal> {
    let block = namespace.block_bytes();
    if len_bytes == 0 || !len_bytes.is_multiple_of(block) {
        return Err(Refusal::Length(len_bytes, block));
    }
    if len_bytes > most {
        return Err(Refusal::TooLong(len_bytes, most));
    }
    let blocks = len_bytes / block;
    match lba.checked_add(u64::from(blocks)) {
        Some(end) if end <= namespace.blocks => Ok(blocks),
        _ => Err(Refusal::Range(lba, namespace.blocks)),
    }
}

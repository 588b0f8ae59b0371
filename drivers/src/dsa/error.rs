//! Errors, grouped by their origin: the device, one descriptor, or the caller.

use core::fmt;
use hal::DmaError;
use spec::dsa::CompletionStatus;
use spec::dsa::registers::{Command, CommandError};

/// Why an operation on the device failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DsaError {
    /// The registers read all ones: the device is no longer on the bus.
    Gone,
    /// VERSION reads this value; the driver supports major version 1.
    Version(u32),
    /// The named capability is missing.
    Lacks(&'static str),
    /// The named part of the configuration has the first value; the second is the largest valid value.
    TooMany(&'static str, u64, u64),
    /// The named part of the configuration is zero.
    Zero(&'static str),
    /// The configuration names this queue or engine twice.
    Twice(&'static str, u8),
    /// The group of this number has queues but no engines, or engines but no queues.
    EmptyGroup(u8),
    /// No memory for completion records.
    Dma(DmaError),
    /// The device refused a command.
    Command(Command, CommandError),
    /// The device did not complete a command within this many nanoseconds.
    Timeout(Command, u64),
    /// Another thread is sending commands; try again when it has finished.
    Busy,
    /// The configuration does not name this queue.
    NoQueue(u8),
    /// The queue is open already.
    Open(u8),
    /// The queue is not open.
    NotOpen(u8),
}

impl fmt::Display for DsaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Gone => write!(f, "the device's registers read all ones: it has left the bus"),
            Self::Version(version) => write!(f, "the device has version {version:#x}; 0x1xx is driven"),
            Self::Lacks(what) => write!(f, "the device lacks {what}"),
            Self::TooMany(what, value, most) => write!(f, "{what} is {value}; the most that is valid is {most}"),
            Self::Zero(what) => write!(f, "{what} is 0; at least 1 is valid"),
            Self::Twice(what, number) => write!(f, "{what} {number} is named twice; once is valid"),
            Self::EmptyGroup(group) => write!(f, "group {group} needs both queues and engines"),
            Self::Dma(error) => error.fmt(f),
            Self::Command(command, error) => {
                write!(f, "command {} was refused with error {:#04x}", command.0, error.0)
            }
            Self::Timeout(command, limit_ns) => write!(f, "command {} was not over within {limit_ns} ns", command.0),
            Self::Busy => write!(f, "another thread gives commands to this device"),
            Self::NoQueue(queue) => write!(f, "the configuration names no work queue {queue}"),
            Self::Open(queue) => write!(f, "work queue {queue} is open already"),
            Self::NotOpen(queue) => write!(f, "work queue {queue} is not open"),
        }
    }
}

impl core::error::Error for DsaError {}

impl From<DmaError> for DsaError {
    fn from(error: DmaError) -> Self {
        Self::Dma(error)
    }
}

/// Why an accepted descriptor failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransferError {
    /// The device reported an error.
    Device {
        /// The status that the device reported.
        status: CompletionStatus,
        /// Bytes transferred before the fault.
        bytes_completed: u32,
        /// The faulting address, if the status is a page fault.
        fault_address: u64,
    },
    /// The queue was closed before the descriptor had completed. Unless that succeeded, its destination may still be written.
    Closed,
    /// The descriptor was overdue, so the driver aborted its queue. Unless that succeeded, its destination may still be written.
    Aborted,
}

impl fmt::Display for TransferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device { status: CompletionStatus::PAGE_FAULT, bytes_completed, fault_address } => {
                write!(f, "page fault at {fault_address:#x} after {bytes_completed} bytes")
            }
            Self::Device { status, .. } => write!(f, "completion status {:#04x}", status.0),
            Self::Closed => write!(f, "its work queue was closed"),
            Self::Aborted => write!(f, "its work queue was aborted"),
        }
    }
}

impl core::error::Error for TransferError {}

/// Why a request was not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The queue is full: every entry has a descriptor in flight. Try again after a completion.
    Full,
    /// The queue is not open.
    Stopped,
    /// The first number is the invalid length in bytes. Valid lengths are 1 to the second number, the queue's maximum.
    Length(u32, u32),
    /// The destination and length wrap round the end of the address space.
    Wraps(u64, u32),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Full => write!(f, "the work queue is full"),
            Self::Stopped => write!(f, "the work queue is not open"),
            Self::Length(bytes, most) => write!(f, "{bytes} bytes; 1 to {most} are valid"),
            Self::Wraps(address, bytes) => {
                write!(f, "{bytes} bytes at {address:#x} wrap round the end of the address space")
            }
        }
    }
}

impl core::error::Error for Refusal {}

//! What can go wrong with a remapping unit.

use core::fmt;
use hal::{DeviceAddress, DmaError};
use irq::{IrqError, RequesterId};
use spec::vtd::registers::QueueErrorInfo;

/// How the invalidation queue failed (VT-d, "Invalidation Queue Error Record Register").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueFault {
    /// IQE: the unit refused a descriptor; it was replaced, and the queue runs on.
    Refused(QueueErrorInfo),
    /// ITE: this device did not answer an invalidation, again and again; requester 0 may stand for unknown.
    DeviceTimeout(RequesterId),
    /// ICE: this device answered an invalidation wrongly.
    WrongAnswer(RequesterId),
    /// The wait descriptor did not complete within this many nanoseconds.
    Timeout(u64),
}

impl fmt::Display for QueueFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(info) => write!(f, "the unit refused an invalidation descriptor (IQEI {})", info.0),
            Self::DeviceTimeout(source) => write!(f, "device {source} did not answer an invalidation"),
            Self::WrongAnswer(source) => write!(f, "device {source} answered an invalidation wrongly"),
            Self::Timeout(ns) => write!(f, "an invalidation did not complete within {ns} ns"),
        }
    }
}

/// Why a remapping unit refused or failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VtdError {
    /// The named capability is missing.
    Missing(&'static str),
    /// A table size that is no power of two from 2 to 65,536 entries.
    TableEntries(u32),
    /// No memory for table or queue.
    Memory(DmaError),
    /// The named command did not take effect within this many nanoseconds.
    CommandTimeout(&'static str, u64),
    /// The invalidation queue failed.
    Queue(QueueFault),
    /// All entries of the table, of which there are this many, are taken.
    TableFull(u32),
    /// No line has this entry.
    NoEntry(u64),
    /// Other software wrote this entry: it no longer holds the driver's value.
    Overwritten(u64),
    /// A posted descriptor that is not aligned to 64 bytes.
    Descriptor(DeviceAddress),
}

impl fmt::Display for VtdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(capability) => write!(f, "the remapping unit lacks {capability}"),
            Self::TableEntries(count) => {
                write!(f, "a remapping table of {count} entries; a power of two from 2 to 65536 is needed")
            }
            Self::Memory(error) => write!(f, "remapping unit: {error}"),
            Self::CommandTimeout(command, ns) => {
                write!(f, "the remapping unit did not take the command {command} within {ns} ns")
            }
            Self::Queue(fault) => write!(f, "{fault}"),
            Self::TableFull(count) => write!(f, "all {count} entries of the remapping table are taken"),
            Self::NoEntry(index) => write!(f, "entry {index} of the remapping table belongs to no line"),
            Self::Overwritten(index) => write!(f, "entry {index} of the remapping table was written by somebody else"),
            Self::Descriptor(address) => {
                write!(f, "a posted descriptor at {address}; an address that is a multiple of 64 is needed")
            }
        }
    }
}

impl core::error::Error for VtdError {}

impl From<DmaError> for VtdError {
    fn from(error: DmaError) -> Self {
        Self::Memory(error)
    }
}

impl From<QueueFault> for VtdError {
    fn from(fault: QueueFault) -> Self {
        Self::Queue(fault)
    }
}

impl From<VtdError> for IrqError {
    fn from(error: VtdError) -> Self {
        match error {
            VtdError::TableFull(count) => Self::Exhausted("entries of the remapping table", count),
            VtdError::Queue(_) => Self::Hardware("remapping unit", "an invalidation failed"),
            VtdError::NoEntry(_) => Self::Hardware("remapping unit", "the line has no entry"),
            VtdError::Overwritten(_) => Self::Hardware("remapping unit", "an entry was written by somebody else"),
            VtdError::Descriptor(_) => Self::Hardware("remapping unit", "a posted descriptor is not aligned"),
            VtdError::Missing(_) | VtdError::TableEntries(_) | VtdError::Memory(_) | VtdError::CommandTimeout(..) => {
                Self::Hardware("remapping unit", "it is not set up")
            }
        }
    }
}

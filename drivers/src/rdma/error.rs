//! What can go wrong.

use core::fmt;
use hal::DmaError;
use irq::moderation::Setting;

/// Why the device or one of its objects refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RdmaError {
    /// The registers read all ones: the device is gone.
    Gone,
    /// The identity register's value, which is not that of this NIC.
    Identity(u32),
    /// The device was not ready after this long, in nanoseconds.
    Timeout(u64),
    /// All of this kind are in use; the device, or the configuration, has so many.
    Exhausted(&'static str, u32),
    /// The device takes queues of up to two to the power of this, which is not 4 to 16.
    EntriesShift(u8),
    /// Queues have a power of two of entries, from 16 up to this many; this many were asked for.
    Entries(u32, u32),
    /// The queue pairs of a completion queue could have this many requests under way; it holds so many.
    Capacity(u32, u32),
    /// There is no event queue of this number; there are so many.
    NoEventQueue(u16, u16),
    /// The device did not accept an object. The value of the object's control register.
    Rejected(&'static str, u32),
    /// The completion queue is shared. No user may change its moderation.
    Shared,
    /// The device cannot express this moderation; it takes counts up to 65,535 and periods up to 32,767 µs.
    Moderation(Setting),
    /// The device refused the moderation and keeps this one.
    ModerationRefused(Setting),
    /// No memory.
    Memory(DmaError),
}

impl fmt::Display for RdmaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => write!(f, "the RDMA NIC does not answer"),
            Self::Identity(id) => {
                let wanted = spec::rdma::registers::IDENTITY;
                write!(f, "the RDMA NIC's identity is {id:#010x}, not {wanted:#010x}")
            }
            Self::Timeout(ns) => write!(f, "the RDMA NIC is not ready after {ns} ns"),
            Self::Exhausted(what, count) => write!(f, "all {count} {what} are in use"),
            Self::EntriesShift(shift) => {
                write!(f, "the RDMA NIC takes queues up to 2^{shift} entries; 4 to 16 is valid")
            }
            Self::Entries(asked, max) => {
                write!(f, "a queue of {asked} entries; a power of two from 16 to {max} is valid")
            }
            Self::Capacity(requests, entries) => write!(
                f,
                "{requests} requests of its queue pairs could end on a completion queue of {entries} entries; at most as \
                 many as it has are valid"
            ),
            Self::NoEventQueue(number, count) => write!(f, "no event queue {number}; there are {count}"),
            Self::Rejected(what, control) => write!(f, "the device rejects a {what}: control reads {control:#010x}"),
            Self::Shared => write!(f, "a shared completion queue's moderation cannot be changed by one of its users"),
            Self::Moderation(setting) => {
                write!(f, "moderation of {setting}; counts up to 65535 and periods up to 32767 µs are valid")
            }
            Self::ModerationRefused(kept) => write!(f, "the device refuses the moderation and keeps {kept}"),
            Self::Memory(error) => write!(f, "{error}"),
        }
    }
}

impl core::error::Error for RdmaError {}

impl From<DmaError> for RdmaError {
    fn from(error: DmaError) -> Self {
        Self::Memory(error)
    }
}

/// Why a queue pair did not take a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The queue is full; it has this many entries.
    Full(u32),
    /// Addresses and lengths are multiples of 8, and a length is not 0: the length in bytes.
    Length(u32),
    /// The queue pair is not connected.
    NotConnected,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(entries) => write!(f, "all {entries} entries are in use"),
            Self::Length(bytes) => {
                write!(f, "{bytes} bytes; lengths and addresses are multiples of 8 and lengths are not 0")
            }
            Self::NotConnected => write!(f, "the queue pair is not connected"),
        }
    }
}

impl core::error::Error for Refusal {}

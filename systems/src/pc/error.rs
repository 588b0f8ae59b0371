//! Why a PC cannot be brought up.

use super::policy::Fallback;
use core::fmt;
use drivers::apic::{ApicError, ApicMode};
use drivers::ioapic::IoApicError;
use drivers::posting::PostingError;
use drivers::vtd::VtdError;
use irq::posted::PostedError;
use irq::{IrqError, Vector};

/// Why a PC cannot be brought up, or a device cannot be connected to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PcError {
    /// No CPU was named, or this system's CPUs are not a valid part of the machine's.
    Cpus(u32, u32),
    /// The timers' clock was given with this many hertz; it needs at least 1.
    TimerHz(u64),
    /// Notifications end with a self-IPI, which needs x2APIC mode to succeed always; the mode is this one.
    Serving(ApicMode),
    /// The core refuses the configuration, a system vector or a line.
    Core(IrqError),
    /// The vector of a system vector cannot be the notifications' too.
    Notification(Vector),
    /// The notification vector belongs to a device, or is another system vector too.
    Apic(ApicError),
    /// Posted descriptors.
    Posted(PostedError),
    /// The remapping unit of this number does not come up.
    Unit(usize, VtdError),
    /// Messages take another path than wished, and the wish was strict.
    Fallback(usize, Fallback),
    /// There is no remapping unit of this number; there are only this many, from 0.
    NoUnit(usize, usize),
    /// An I/O APIC.
    IoApic(IoApicError),
    /// A device shall post by itself, but the CPUs have no posted descriptors.
    NoDescriptors,
    /// A device shall post by itself behind the remapping unit of this number, which blocks its notifications.
    PostsBehindUnit(usize),
    /// A device's posting block.
    Posting(PostingError),
}

impl fmt::Display for PcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpus(0, 0) => write!(f, "no CPU was named; at least 1 APIC id is needed"),
            Self::Cpus(end, cpus) => {
                write!(f, "CPUs up to {end} are this system's, of {cpus}; at least 1, at most all can be")
            }
            Self::TimerHz(hz) => write!(f, "a timer clock of {hz} Hz; at least 1 Hz is needed"),
            Self::Serving(mode) => {
                write!(f, "notifications that end with a self-IPI need x2APIC mode, not {mode:?}")
            }
            Self::Core(error) => write!(f, "{error}"),
            Self::Notification(vector) => {
                write!(f, "vector {:#04x} of notifications is a device's or another system vector", vector.0)
            }
            Self::Apic(error) => write!(f, "local APIC: {error}"),
            Self::Posted(error) => write!(f, "{error}"),
            Self::Unit(unit, error) => write!(f, "remapping unit {unit}: {error}"),
            Self::Fallback(unit, why) => write!(f, "remapping unit {unit}: {why}, and no other way is wished"),
            Self::NoUnit(unit, units) => write!(f, "no remapping unit {unit}; there are {units}, from 0"),
            Self::IoApic(error) => write!(f, "{error}"),
            Self::NoDescriptors => {
                write!(f, "no posted descriptors for a device that posts; wish for posting, or ask for descriptors")
            }
            Self::PostsBehindUnit(unit) => {
                write!(
                    f,
                    "remapping unit {unit} blocks the notifications of a device that posts; wish for plain messages"
                )
            }
            Self::Posting(error) => write!(f, "{error}"),
        }
    }
}

impl core::error::Error for PcError {}

impl From<IrqError> for PcError {
    fn from(error: IrqError) -> Self {
        Self::Core(error)
    }
}

impl From<ApicError> for PcError {
    fn from(error: ApicError) -> Self {
        Self::Apic(error)
    }
}

impl From<PostedError> for PcError {
    fn from(error: PostedError) -> Self {
        Self::Posted(error)
    }
}

impl From<IoApicError> for PcError {
    fn from(error: IoApicError) -> Self {
        Self::IoApic(error)
    }
}

impl From<PostingError> for PcError {
    fn from(error: PostingError) -> Self {
        Self::Posting(error)
    }
}

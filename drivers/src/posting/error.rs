//! Why software posting cannot be used.

use core::fmt;
use spec::posting::{SIGNATURE, VERSION};

/// Why software posting cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PostingError {
    /// The function has no such capability.
    Missing,
    /// Its list of capabilities does not end.
    Loop,
    /// The block does not begin with the signature, but with this.
    Signature(u32),
    /// The block's version.
    Version(u32),
    /// It has so many slots, and there are so many CPUs.
    Slots(u16, u32),
    /// The tables do not lie inside the block, which has so many bytes.
    Tables(u32),
    /// A slot does not keep the value that was written to it.
    Slot(u32),
}

impl fmt::Display for PostingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => write!(f, "the PCI function has no capability of software posting"),
            Self::Loop => write!(f, "the PCI function's capabilities do not end"),
            Self::Signature(word) => {
                write!(f, "posting block: {word:#x} in the signature's place; valid: {SIGNATURE:#x}")
            }
            Self::Version(version) => {
                write!(f, "posting block: version {:#x}; valid: {:#x}.x", version >> 16, VERSION >> 16)
            }
            Self::Slots(slots, cpus) => write!(f, "posting block: {slots} slots for {cpus} CPUs, which take one each"),
            Self::Tables(bytes) => write!(f, "posting block: tables outside its {bytes:#x} bytes"),
            Self::Slot(slot) => write!(f, "posting block: slot {slot} does not take its descriptor's address"),
        }
    }
}

impl core::error::Error for PostingError {}

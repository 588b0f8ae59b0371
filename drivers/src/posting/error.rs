//! Why software posting cannot be used.

use core::fmt;
use spec::posting::{BLOCK_ALIGN, SIGNATURE, VERSION, header};

/// Why software posting cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PostingError {
    /// The function has no such capability.
    Missing,
    /// Its list of capabilities does not end.
    Loop,
    /// The vendor-specific capability at this offset reaches beyond the 256 bytes of configuration space.
    Cut(u32),
    /// A block at the first offset, of the second number of bytes, does not fit into the region of the third.
    Region(u32, u32, u32),
    /// The block does not begin at a multiple of 4 KiB, but at this offset.
    Offset(u32),
    /// The block has only this many bytes: too few for its header.
    Short(u32),
    /// The block does not begin with the signature, but with this.
    Signature(u32),
    /// The block's version.
    Version(u32),
    /// It has so many slots, and there are so many CPUs.
    Slots(u16, u32),
    /// The tables do not lie inside the block, which has so many bytes.
    Tables(u32),
    /// A table begins at this offset of the block: slots at no multiple of 8, or sources at none of 4.
    Crooked(u32),
    /// A slot does not keep the value that was written to it.
    Slot(u32),
}

impl fmt::Display for PostingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => write!(f, "the PCI function has no capability of software posting"),
            Self::Loop => write!(f, "the PCI function's capabilities do not end"),
            Self::Cut(offset) => {
                write!(f, "the vendor-specific capability at {offset:#x} does not end in configuration space")
            }
            Self::Region(offset, bytes, region) => {
                write!(f, "posting block: {bytes:#x} bytes at {offset:#x} of a region; it has {region:#x} bytes")
            }
            Self::Offset(offset) => {
                write!(f, "posting block: offset {offset:#x}; a multiple of {BLOCK_ALIGN:#x} is needed")
            }
            Self::Short(bytes) => {
                write!(f, "posting block: {bytes:#x} bytes; the header alone has {:#x}", header::BYTES)
            }
            Self::Signature(word) => {
                write!(f, "posting block: {word:#x} in the signature's place; valid: {SIGNATURE:#x}")
            }
            Self::Version(version) => {
                write!(f, "posting block: version {:#x}; valid: {:#x}.x", version >> 16, VERSION >> 16)
            }
            Self::Slots(slots, cpus) => write!(f, "posting block: {slots} slots for {cpus} CPUs, which take one each"),
            Self::Tables(bytes) => write!(f, "posting block: tables outside its {bytes:#x} bytes"),
            Self::Crooked(offset) => write!(f, "posting block: a table at {offset:#x}, which is not aligned"),
            Self::Slot(slot) => write!(f, "posting block: slot {slot} does not take its descriptor's address"),
        }
    }
}

impl core::error::Error for PostingError {}

//! The list of capabilities in a function's configuration space (PCI Local Bus Specification 3.0, "Capabilities List").

use hal::Regs;
use spec::msi::{CapabilityHeader, Status, configuration};

/// More capabilities than 256 bytes can hold: a longer list is a loop.
pub(crate) const CAPABILITIES_MAX: u32 = 48;
/// Configuration space that capabilities may lie in.
pub(crate) const CONFIGURATION_BYTES: u32 = 256;

/// Why nothing was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unfound {
    /// The list ends, or there is none.
    Missing,
    /// The list does not end.
    Loop,
}

/// The first capability that `take` takes, by its offset and its first 32 bits.
pub(crate) fn find<T>(config: &impl Regs, mut take: impl FnMut(u32, u32) -> Option<T>) -> Result<T, Unfound> {
    let status = Status::from_bits((config.read32(configuration::COMMAND_STATUS) >> 16) as u16);
    if !status.has_capabilities() {
        return Err(Unfound::Missing);
    }
    let mut at = config.read32(configuration::CAPABILITIES) as u8 & !0b11;
    for _ in 0..CAPABILITIES_MAX {
        if at == 0 {
            return Err(Unfound::Missing);
        }
        let head = config.read32(at.into());
        if let Some(taken) = take(at.into(), head) {
            return Ok(taken);
        }
        at = CapabilityHeader::from_bits(head).next() & !0b11;
    }
    Err(Unfound::Loop)
}

/// Whether a capability of so many bytes at `offset` ends in configuration space.
pub(crate) fn is_whole(offset: u32, bytes: u32) -> bool {
    offset + bytes <= CONFIGURATION_BYTES
}

//! Discovery of virtio-mmio devices and their interrupts: from the command line, a device tree, or ACPI
//! (MULTI_IRQ 8). All three give the same [`MmioDevice`].
//!
//! Input of firmware and of users is not trusted: whatever it is, the answer is a list or a [`DiscoveryError`].
//!
//! Device trees are read with the crate `dtoolkit`. ACPI is read here: what is needed is one static buffer (`_CRS`) of
//! devices with one id, and the one maintained crate that reads AML (`acpi`) interprets it, which takes memory mapping,
//! ports, timers and a namespace in memory, and trusts the table.

mod acpi;
mod aml;
mod command_line;
mod device_tree;
#[cfg(test)]
mod tests;

pub use acpi::from_acpi;
pub use command_line::from_command_line;
pub use device_tree::from_device_tree;

use super::MmioConfig;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use spec::virtio::mmio::VECTORS_MAX;

/// How a line triggers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trigger {
    /// Edge.
    Edge,
    /// Level.
    Level,
}

/// One interrupt of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Line {
    /// Its number in the system: a global system interrupt of ACPI; on a GIC the INTID.
    pub number: u32,
    /// How it triggers, if the platform says.
    pub trigger: Option<Trigger>,
}

/// A device as the platform describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MmioDevice {
    /// Physical address of its registers.
    pub base: u64,
    /// Their length, in bytes.
    pub size_bytes: u64,
    /// Its interrupts; vector v is the v-th.
    pub lines: Vec<Line>,
    /// Its number, if the platform gives it one.
    pub id: Option<u32>,
}

impl MmioDevice {
    /// Converts the description for the transport. Writes count as posted, because no description says otherwise.
    pub fn config(&self) -> MmioConfig {
        MmioConfig { interrupts: self.lines.len() as u16, ..MmioConfig::default() }
    }

    /// Rejects a description that no device can have.
    fn checked(self) -> Result<Self, DiscoveryError> {
        // The registers of a device without configuration.
        const REGISTERS_BYTES: u64 = 0x100;
        if self.size_bytes < REGISTERS_BYTES || self.base.checked_add(self.size_bytes).is_none() {
            return Err(DiscoveryError::Window(self.base, self.size_bytes));
        }
        match self.lines.len() {
            0 => Err(DiscoveryError::NoInterrupt(self.base)),
            count if count > VECTORS_MAX as usize => Err(DiscoveryError::Interrupts(count)),
            _ => Ok(self),
        }
    }
}

/// Why a description cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DiscoveryError {
    /// This is not `<size>@<base>:<irq>[-<last>][:<id>]`; the second says where it goes wrong.
    Syntax(String, &'static str),
    /// Interrupt 0 is none.
    InterruptZero,
    /// The last interrupt is before the first.
    Backwards(u32, u32),
    /// More interrupts than a device can have: so many.
    Interrupts(usize),
    /// The device at this address has no interrupt.
    NoInterrupt(u64),
    /// Registers at this address of so many bytes: too few, or round the end of the address space.
    Window(u64, u64),
    /// The device tree is not valid, or the named property is not.
    DeviceTree(&'static str),
    /// The ACPI table is not valid, for this reason.
    Table(&'static str),
    /// AML that is not read here: the opcode and where it stands in the table's body, in bytes.
    Aml(u8, usize),
    /// AML ends in the middle of an object, which begins there.
    AmlEnd(usize),
}

impl fmt::Display for DiscoveryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(text, what) => {
                write!(f, "`{text}`: {what}; valid is <size>@<base>:<irq>[-<last>][:<id>]")
            }
            Self::InterruptZero => write!(f, "interrupt 0; 1 and above are valid"),
            Self::Backwards(first, last) => write!(f, "interrupts {first} to {last}: the last is before the first"),
            Self::Interrupts(count) => write!(f, "{count} interrupts; 1 to {VECTORS_MAX} are valid"),
            Self::NoInterrupt(base) => write!(f, "the device at {base:#x} has no interrupt"),
            Self::Window(base, bytes) => write!(f, "registers of {bytes} bytes at {base:#x}; at least 256 are needed"),
            Self::DeviceTree(what) => write!(f, "device tree: {what}"),
            Self::Table(what) => write!(f, "ACPI table: {what}"),
            Self::Aml(opcode, at) => write!(f, "AML opcode {opcode:#04x} at byte {at} is not read"),
            Self::AmlEnd(at) => write!(f, "AML ends within the object at byte {at}"),
        }
    }
}

impl core::error::Error for DiscoveryError {}

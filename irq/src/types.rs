//! The names of things.

use core::fmt;
use hal::CpuId;

/// A line's number in the core: dense, from 0; what `/proc/interrupts` shows in its first column.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Irq(pub u32);

impl fmt::Display for Irq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A line's number inside one domain: a vector, an index of the remapping table, an MSI-X entry, an INTID.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HardwareIrq(pub u64);

/// A CPU's interrupt vector. 0 to 31 are exceptions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Vector(pub u8);

/// Where a line is delivered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Target {
    /// The CPU.
    pub cpu: CpuId,
    /// The vector on that CPU.
    pub vector: Vector,
}

/// A PCI requester: bus in 15:8, device in 7:3, function in 2:0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequesterId(pub u16);

impl fmt::Display for RequesterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}:{:02x}.{}", self.0 >> 8, (self.0 >> 3) & 0x1f, self.0 & 7)
    }
}

/// What a device writes to raise an interrupt.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct MsiMessage {
    /// Where.
    pub address: u64,
    /// What.
    pub data: u32,
}

/// What a handler says of the interrupt it was called for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IrqReturn {
    /// Not from my device.
    None,
    /// Served.
    Handled,
}

/// A driver's handler of one line.
pub trait Action: Send + Sync {
    /// Serves the interrupt. Interrupts are off, the line's lock is not held.
    fn handle(&self, irq: Irq) -> IrqReturn;
}

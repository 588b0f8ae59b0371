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

/// The number by which a CPU learns which interrupt it takes: a vector of a local APIC, an identity of an IMSIC. As
/// wide as controllers make it; how many a CPU has is in [`crate::IdentitySpace`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Identity(pub u32);

/// An identity of eight bits, as local APICs and posted descriptors have them. 0 to 31 are exceptions there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Vector(pub u8);

impl Vector {
    /// The same number as an identity.
    #[inline]
    pub const fn identity(self) -> Identity {
        Identity(self.0 as u32)
    }
}

impl From<Vector> for Identity {
    #[inline]
    fn from(vector: Vector) -> Self {
        vector.identity()
    }
}

/// The target of a line.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Target {
    /// The CPU.
    pub cpu: CpuId,
    /// The identity on that CPU; none where the controller itself tells the CPU which line it is, as a GIC does
    /// ([`crate::IrqDomain::needs_identity`]).
    pub identity: Option<Identity>,
}

impl Target {
    /// A CPU of a system whose lines have no identities.
    pub const fn on(cpu: CpuId) -> Self {
        Self { cpu, identity: None }
    }

    /// An identity of a CPU.
    #[inline]
    pub const fn of(cpu: CpuId, identity: Identity) -> Self {
        Self { cpu, identity: Some(identity) }
    }

    /// A vector of a CPU.
    pub const fn at(cpu: CpuId, vector: Vector) -> Self {
        Self::of(cpu, vector.identity())
    }

    /// The identity as a vector; none without one, or when it has more than eight bits.
    #[inline]
    pub fn vector(&self) -> Option<Vector> {
        u8::try_from(self.identity?.0).ok().map(Vector)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CPU {}", self.cpu)?;
        self.identity.map_or(Ok(()), |identity| write!(f, " vector {:#04x}", identity.0))
    }
}

/// The condition on which a wire interrupts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Trigger {
    /// From low to high.
    EdgeRising,
    /// From high to low.
    EdgeFalling,
    /// Both.
    EdgeBoth,
    /// Level: while the wire is high.
    LevelHigh,
    /// Level: while the wire is low.
    LevelLow,
}

impl Trigger {
    /// True if the wire itself keeps the interrupt until the device is served.
    pub fn is_level(self) -> bool {
        matches!(self, Self::LevelHigh | Self::LevelLow)
    }
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EdgeRising => "rising edge",
            Self::EdgeFalling => "falling edge",
            Self::EdgeBoth => "both edges",
            Self::LevelHigh => "high level",
            Self::LevelLow => "low level",
        })
    }
}

/// A bit of state that a controller keeps for a line, read and written by
/// [`crate::IrqCore::irqchip_state`] and [`crate::IrqCore::set_irqchip_state`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IrqChipState {
    /// Raised, and not taken yet.
    Pending,
    /// Taken, and not ended yet.
    Active,
    /// Held back.
    Masked,
}

impl fmt::Display for IrqChipState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pending => "pending",
            Self::Active => "active",
            Self::Masked => "masked",
        })
    }
}

/// A PCI requester: bus in 15:8, device in 7:3, function in 2:0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequesterId(pub u16);

impl fmt::Display for RequesterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}:{:02x}.{}", self.0 >> 8, (self.0 >> 3) & 0x1f, self.0 & 7)
    }
}

/// The write by which a device raises an interrupt.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct MsiMessage {
    /// Where.
    pub address: u64,
    /// The data.
    pub data: u32,
}

/// A handler's answer about its interrupt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IrqReturn {
    /// Not from my device.
    None,
    /// Served.
    Handled,
    /// Mine, and the rest is for the handler's thread. Without a thread it counts as not served.
    WakeThread,
}

/// A driver's handler of one line, or its thread function.
pub trait Action: Send + Sync {
    /// Serves the interrupt. The line's lock is not held. Interrupts are off in a handler, on in a thread function,
    /// which may sleep.
    fn handle(&self, irq: Irq) -> IrqReturn;
}

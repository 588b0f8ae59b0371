//! Hierarchical domains: vector ← remapping ← PCI MSI, each with its own chip and hardware number.

use crate::{HardwareIrq, Irq, IrqChip, IrqError, RequesterId, Target};
use alloc::sync::Arc;
use hal::CpuSet;

/// One level of one line.
pub struct LevelData {
    /// The chip of this level.
    pub chip: Arc<dyn IrqChip>,
    /// The line's number at this level.
    pub hwirq: HardwareIrq,
}

/// A view of one level of one line, from which the levels towards the CPU can be reached.
#[derive(Clone, Copy)]
pub struct Level<'a> {
    irq: Irq,
    /// From the device's level to the CPU's.
    levels: &'a [LevelData],
}

impl<'a> Level<'a> {
    /// The view of the first of `levels`, which are ordered from the device to the CPU.
    ///
    /// # Panics
    /// When there is none.
    #[inline]
    pub fn new(irq: Irq, levels: &'a [LevelData]) -> Self {
        if levels.is_empty() {
            no_level(irq);
        }
        Self { irq, levels }
    }

    /// The line.
    pub fn irq(&self) -> Irq {
        self.irq
    }

    /// The line's number at this level.
    pub fn hwirq(&self) -> HardwareIrq {
        self.levels[0].hwirq
    }

    /// The chip of this level.
    #[inline]
    pub fn chip(&self) -> &'a dyn IrqChip {
        &*self.levels[0].chip
    }

    /// The next level towards the CPU.
    pub fn parent(&self) -> Option<Self> {
        (self.levels.len() > 1).then(|| Self { irq: self.irq, levels: &self.levels[1..] })
    }
}

#[cold]
fn no_level(irq: Irq) -> ! {
    panic!("line {irq} has no level")
}

/// How a line reaches its CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Delivery {
    /// To the vector of one CPU, as nearly every line does.
    #[default]
    Fixed,
    /// As a non-maskable interrupt.
    Nmi,
    /// To a logical destination, that is to any of several CPUs.
    Logical,
    /// To a vector whose handler runs on a stack of its own.
    PrivateStack,
}

/// What a line is allocated for.
#[derive(Clone, Debug)]
pub struct AllocRequest {
    /// The device whose messages these are.
    pub requester: RequesterId,
    /// Which of the device's own interrupts: the MSI-X entry, the pin of an IOAPIC.
    pub index: u32,
    /// Where it may be delivered.
    pub affinity: CpuSet,
    /// Managed: the line belongs to these CPUs for life, is shut down with the last of them and comes back with them.
    pub managed: bool,
    /// How it must be delivered; a domain that cannot refuses.
    pub delivery: Delivery,
}

/// A place where lines are numbered.
pub trait IrqDomain: Send + Sync {
    /// Shown in the debug view.
    fn name(&self) -> &str;
    /// The domain towards the CPU; none for the CPU's vectors themselves.
    fn parent(&self) -> Option<&dyn IrqDomain>;
    /// Whether each of its lines needs a vector of a CPU to be delivered by; asked of the root. False for a controller
    /// that names the line itself when it is acknowledged, as a GIC does: its lines have [`Target`]s without a vector,
    /// touch no vector table, and are delivered by [`crate::IrqCore::handle_irq`]. Such a root keeps the way from its
    /// own numbers to lines: [`IrqDomain::activate`] tells it the line, [`IrqChip::release`] takes it back.
    fn needs_vector(&self) -> bool {
        true
    }
    /// Whether its lines are posted: no place for lines of a device that does not write PCI messages.
    fn is_posted(&self) -> bool {
        false
    }
    /// Takes a number for a line and says which chip serves it. Called from the CPU's level outwards. Undone by
    /// [`IrqChip::release`].
    ///
    /// # Errors
    /// When the domain is full, or cannot serve what is asked.
    fn allocate(&self, request: &AllocRequest) -> Result<LevelData, IrqError>;
    /// Makes the hardware of this level deliver to `target` for the first time. Called from the CPU's level outwards,
    /// with `level` masked where its chips can.
    ///
    /// # Errors
    /// When the hardware refuses.
    fn activate(&self, level: &Level<'_>, target: Target) -> Result<(), IrqError>;
}

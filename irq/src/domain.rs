//! Hierarchical domains: vector ← remapping ← PCI MSI, each with its own chip and hardware number.

use crate::{HardwareIrq, Irq, IrqChip, IrqError, MsiMessage, RequesterId, Target};
use alloc::sync::Arc;
use hal::CpuSet;

/// One level of one line.
pub struct LevelData {
    /// The chip of this level.
    pub chip: Arc<IrqChip>,
    /// The line's number at this level.
    pub hwirq: HardwareIrq,
}

/// A view of one level of one line, from which the levels towards the CPU can be reached.
#[derive(Clone, Copy)]
pub struct Level<'a> {
    irq: Irq,
    /// The levels, from the device's to the CPU's.
    levels: &'a [LevelData],
}

impl<'a> Level<'a> {
    /// A view of the first of `levels`. They are ordered from the device to the CPU.
    ///
    /// # Panics
    /// When `levels` is empty.
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
    pub fn chip(&self) -> &'a IrqChip {
        &self.levels[0].chip
    }

    /// The next level towards the CPU.
    pub fn parent(&self) -> Option<Self> {
        (self.levels.len() > 1).then(|| Self { irq: self.irq, levels: &self.levels[1..] })
    }

    /// The nearest level towards the CPU whose chip `has` an operation.
    fn parent_with(&self, has: impl Fn(&IrqChip) -> bool) -> Result<Self, IrqError> {
        core::iter::successors(self.parent(), Self::parent)
            .find(|level| has(level.chip()))
            .ok_or(IrqError::NotSupported("operation at any level towards the CPU"))
    }
}

/// A chip that does only part of an operation calls these for the rest. Each call goes to the nearest level towards
/// the CPU that has the operation.
impl Level<'_> {
    /// Calls that level's eoi.
    pub fn parent_eoi(&self) {
        if let Ok(parent) = self.parent_with(|chip| chip.eoi.is_some()) {
            parent.chip().eoi(&parent);
        }
    }

    /// Points the line at `target`, at that level.
    ///
    /// # Errors
    /// [`IrqError::NotSupported`] when no level has the operation, or the error of that chip.
    pub fn set_parent_affinity(&self, target: Target) -> Result<(), IrqError> {
        let parent = self.parent_with(|chip| chip.set_affinity.is_some())?;
        parent.chip().set_affinity(&parent, target)
    }

    /// Retriggers the line at that level; false when no level can.
    pub fn parent_retrigger(&self) -> bool {
        let parent = self.parent_with(|chip| chip.retrigger.is_some());
        parent.is_ok_and(|parent| parent.chip().retrigger(&parent))
    }

    /// Returns the message that the levels towards the CPU expect from the device.
    ///
    /// # Errors
    /// [`IrqError::NotSupported`] when no level composes a message, or the error of that chip.
    pub fn parent_message(&self) -> Result<MsiMessage, IrqError> {
        let parent = self.parent_with(|chip| chip.compose_message.is_some())?;
        parent.chip().compose_message(&parent)
    }

    /// True if that level reports the identity of `target` pending; false when no level can tell.
    pub fn is_pending_at_parent(&self, target: Target) -> bool {
        let parent = self.parent_with(|chip| chip.is_pending.is_some());
        parent.is_ok_and(|parent| parent.chip().is_pending(&parent, target))
    }
}

#[cold]
fn no_level(irq: Irq) -> ! {
    panic!("line {irq} has no level")
}

/// How an interrupt of a line reaches its CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DeliveryKind {
    /// To the vector of one CPU, as nearly every line does.
    #[default]
    Fixed,
    /// As a non-maskable interrupt.
    Nmi,
    /// To a logical destination, that is to any of several CPUs.
    Logical,
    /// To a logical destination: any of several CPUs may take it.
    PrivateStack,
}

/// The description of a line to allocate.
#[derive(Clone, Debug)]
pub struct AllocRequest {
    /// The device that sends the interrupt.
    pub requester: RequesterId,
    /// The number of the interrupt within the device: the MSI-X entry, or the pin of an IOAPIC.
    pub index: u32,
    /// The CPUs on which the line may be delivered.
    pub affinity: CpuSet,
    /// Managed: the line keeps these CPUs for life. It is shut down when the last of them goes offline, and returns
    /// with them.
    pub managed: bool,
    /// The required delivery. A domain that cannot provide it refuses the request.
    pub delivery: DeliveryKind,
}

impl AllocRequest {
    /// Interrupt `index` of `requester`. It is delivered to the vector of one CPU of `affinity`, and may be moved.
    pub fn fixed(requester: RequesterId, index: u32, affinity: CpuSet) -> Self {
        Self { requester, index, affinity, managed: false, delivery: DeliveryKind::Fixed }
    }
}

/// A number space of lines. The domain that allocates a number also takes it back:
///
/// ```text
/// allocate → activate → (deactivate → the chip's set_affinity)* → release → settles, until true
/// ```
///
/// The core keeps the domains of a line as long as the line lives.
pub trait IrqDomain: Send + Sync {
    /// The name that the debug view shows.
    fn name(&self) -> &str;
    /// The domain towards the CPU; none for the root.
    fn parent(&self) -> Option<Arc<dyn IrqDomain>>;
    /// True if each line needs an identity of a CPU for its delivery. The core asks only the root. Return false for a
    /// controller that names the line when it is acknowledged, such as a GIC: its lines have [`Target`]s without an
    /// identity, have no entry in the identity table, and are delivered by [`crate::IrqCore::handle_irq`]. Such a root
    /// maps its own numbers to lines: [`IrqDomain::activate`] adds the line to that map, [`IrqDomain::release`]
    /// removes it.
    fn needs_identity(&self) -> bool {
        true
    }
    /// True if the lines are posted. Such a domain accepts only devices that write PCI messages.
    fn is_posted(&self) -> bool {
        false
    }
    /// Allocates a number for a line and returns it with its chip. The core calls the CPU's level first, the device's
    /// last.
    ///
    /// # Errors
    /// When the domain is full, or cannot serve the request.
    fn allocate(&self, request: &AllocRequest) -> Result<LevelData, IrqError>;
    /// Makes the hardware of this level deliver to `target` for the first time. The core calls the CPU's level first,
    /// the device's last. `level` is masked if its chips can mask.
    ///
    /// # Errors
    /// When the hardware refuses.
    fn activate(&self, level: &Level<'_>, target: Target) -> Result<(), IrqError>;
    /// The last CPU of the masked line goes offline. From now on no interrupt of `hwirq` may reach a CPU until the
    /// chip gets a new affinity. Messages that the device should not send must be blocked too. A domain that cannot do
    /// this does nothing.
    ///
    /// # Errors
    /// When the hardware refuses; the line then stays where it was.
    fn deactivate(&self, _hwirq: HardwareIrq) -> Result<(), IrqError> {
        Ok(())
    }
    /// True once no hardware cache holds a stale route of `hwirq`. A route is stale when the line has left it, or when
    /// a move to it failed. If a cache was not flushed, the domain flushes it again. After [`IrqDomain::release`] the
    /// core asks until the answer is true. Only then may another line get a vector of this line.
    fn settles(&self, _hwirq: HardwareIrq) -> bool {
        true
    }
    /// Frees the number `hwirq` of a line that ends, and undoes its setup in hardware.
    fn release(&self, hwirq: HardwareIrq);
}

//! Interrupt controllers as the core sees them: one chip a level of a hierarchy.

use crate::{HardwareIrq, IrqError, Level, MsiMessage, Target};

/// The operations a level performs itself. What it does not provide, the nearest level towards the CPU does.
///
/// The core resolves each operation to its level once, when the line is allocated: an interrupt then costs one
/// indirect call an operation however deep the hierarchy is, and a hierarchy that cannot ack or eoi is refused at
/// allocation instead of failing at its first interrupt.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ChipOps {
    /// [`IrqChip::ack`].
    pub ack: bool,
    /// [`IrqChip::eoi`].
    pub eoi: bool,
    /// [`IrqChip::mask`] and [`IrqChip::unmask`].
    pub mask: bool,
    /// [`IrqChip::set_affinity`].
    pub set_affinity: bool,
    /// [`IrqChip::retrigger`].
    pub retrigger: bool,
    /// [`IrqChip::compose_message`].
    pub compose_message: bool,
    /// [`IrqChip::write_message`].
    pub write_message: bool,
    /// [`IrqChip::is_pending`].
    pub is_pending: bool,
    /// [`IrqChip::set_affinity`] is safe only just after an ack of the line, before its device can send again: the
    /// core then keeps a move until the line's next interrupt.
    pub moves_on_ack: bool,
}

/// An interrupt controller, or one level of a hierarchy of them.
///
/// Called with the line's lock held and interrupts off, except [`IrqChip::ack`] and [`IrqChip::eoi`] of per-CPU
/// lines, which have no lock. `level` is this chip's level of the line; [`Level::parent`] is the next towards the CPU.
pub trait IrqChip: Send + Sync {
    /// The name that `/proc/interrupts` shows.
    fn name(&self) -> &'static str;
    /// What it does itself. Must not change over its life.
    fn provides(&self) -> ChipOps;
    /// The interrupt was taken. Edge flow: before the handler.
    fn ack(&self, _level: &Level<'_>) {}
    /// The interrupt is over.
    fn eoi(&self, _level: &Level<'_>) {}
    /// Lets the line deliver nothing more. Idempotent.
    fn mask(&self, _level: &Level<'_>) {}
    /// Lets it deliver again.
    fn unmask(&self, _level: &Level<'_>) {}
    /// Points the line at `target`, whose vector has been allocated. The core calls the level nearest the device that
    /// provides this; its chip has the levels towards the CPU follow. Where the level that writes messages is nearer
    /// the device still, the core has the message composed and written anew.
    ///
    /// # Errors
    /// When the hardware refuses; the line then stays where it was.
    fn set_affinity(&self, _level: &Level<'_>, _target: Target) -> Result<(), IrqError> {
        Err(IrqError::NotSupported("set_affinity"))
    }
    /// Makes the line fire once more; false when this chip cannot.
    fn retrigger(&self, _level: &Level<'_>) -> bool {
        false
    }
    /// What a device must write to raise this line.
    ///
    /// # Errors
    /// When the target cannot be expressed in this message format.
    fn compose_message(&self, _level: &Level<'_>) -> Result<MsiMessage, IrqError> {
        Err(IrqError::NotSupported("compose_message"))
    }
    /// Tells the device `message`.
    fn write_message(&self, _level: &Level<'_>, _message: MsiMessage) {}
    /// Whether `target`'s vector waits somewhere between device and CPU: LAPIC IRR, or posted descriptor.
    fn is_pending(&self, _level: &Level<'_>, _target: Target) -> bool {
        false
    }
    /// The line goes: undo what the domain's allocation of `hwirq` did in hardware.
    fn release(&self, _hwirq: HardwareIrq) {}
}

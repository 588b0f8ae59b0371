//! Interrupt controllers as the core sees them: one chip a level of a hierarchy.

use crate::{Flow, HardwareIrq, IrqChipState, IrqError, Level, MsiMessage, Target, Trigger};

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
    /// [`IrqChip::set_type`].
    pub set_type: bool,
    /// [`IrqChip::state`] and [`IrqChip::set_state`].
    pub state: bool,
    /// [`IrqChip::nmi_setup`] and [`IrqChip::nmi_teardown`].
    pub nmi: bool,
    /// [`IrqChip::set_affinity`] is safe only just after an ack of the line, before its device can send again: the
    /// core then keeps a move until the line's next interrupt.
    pub moves_on_ack: bool,
    /// Its ack and its eoi, as far as it has them, call those of the next level that has them. The ack and eoi of every
    /// level of a [`Flow::Strict`] line must come to the root, where they end the interrupt: a chip between that keeps
    /// them to itself is refused at allocation.
    pub forwards: bool,
    /// An acknowledged line does not interrupt again before its eoi, although other lines do: the active state of a
    /// GIC with EOImode = 1, where ack is the priority drop and eoi the deactivation. No mask is needed meanwhile.
    /// Not so for LPIs, which have no active state: they need a chip of their own.
    pub automasks_flow: bool,
    /// Its ack and its eoi are the two halves of one end, as with EOImode = 1: a flow that calls only one of them would
    /// leave the line active for ever, and is refused.
    pub ends_in_halves: bool,
    /// [`IrqChip::eoi`] may be called later than the handler, by a thread, on another CPU. Needed, with
    /// [`ChipOps::automasks_flow`], to keep a line back until its thread is done without masking it.
    pub eoi_threaded: bool,
    /// A line needs no ONESHOT for a handler that runs in a thread alone: the device does not raise it again and again
    /// until it is served, as message-signalled devices do not.
    pub oneshot_safe: bool,
}

/// An interrupt controller, or one level of a hierarchy of them.
///
/// Called with the line's lock held and interrupts off, except [`IrqChip::ack`] and [`IrqChip::eoi`] of per-CPU
/// lines and of NMIs, which have no lock. `level` is this chip's level of the line; [`Level::parent`] is the next
/// towards the CPU.
///
/// The mask, unmask, ack and eoi of a [`Flow::PerCpu`] line concern the CPU that calls, and no other.
pub trait IrqChip: Send + Sync {
    /// The name that `/proc/interrupts` shows.
    fn name(&self) -> &'static str;
    /// What it does itself. Must not change over its life.
    fn provides(&self) -> ChipOps;
    /// The interrupt was taken. Edge and strict flow: before the handler. On a GIC with EOImode = 1 the priority drop
    /// (the acknowledge itself is the root handler's, which learns the line's number by it).
    fn ack(&self, _level: &Level<'_>) {}
    /// The interrupt is over. On a GIC with EOImode = 1 the deactivation, on the CPU that took the interrupt or, with
    /// [`ChipOps::eoi_threaded`], on any. Comes exactly once an ack.
    fn eoi(&self, _level: &Level<'_>) {}
    /// Lets the line deliver nothing more. Idempotent.
    fn mask(&self, _level: &Level<'_>) {}
    /// Lets it deliver again.
    fn unmask(&self, _level: &Level<'_>) {}
    /// Points the line at `target`, whose vector, if the root needs one, has been allocated. The core calls the level
    /// nearest the device that provides this; its chip has the levels towards the CPU follow. Where the level that
    /// writes messages is nearer the device still, the core has the message composed and written anew. May be called
    /// while the line is active: its eoi still comes once.
    ///
    /// # Errors
    /// When the hardware refuses; the line then stays where it was.
    fn set_affinity(&self, _level: &Level<'_>, _target: Target) -> Result<(), IrqError> {
        Err(IrqError::NotSupported("set_affinity"))
    }
    /// Makes the line fire once more; false when this chip cannot. A GIC sets it pending.
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
    /// Whether `target`'s vector waits somewhere between device and CPU: LAPIC IRR, or posted descriptor. Not asked of
    /// lines without vectors.
    fn is_pending(&self, _level: &Level<'_>, _target: Target) -> bool {
        false
    }
    /// Has the line interrupt by `trigger`, and says which flow it needs from now on, or none to keep its own. The
    /// line is masked meanwhile. The chip has the levels towards the CPU follow where they must.
    ///
    /// # Errors
    /// When this wire cannot be triggered so.
    fn set_type(&self, _level: &Level<'_>, _trigger: Trigger) -> Result<Option<Flow>, IrqError> {
        Err(IrqError::NotSupported("set_type"))
    }
    /// Reads a bit that the hardware keeps of the line; of a per-CPU line, on this CPU.
    ///
    /// # Errors
    /// When the hardware keeps no such bit.
    fn state(&self, _level: &Level<'_>, _which: IrqChipState) -> Result<bool, IrqError> {
        Err(IrqError::NotSupported("irqchip state"))
    }
    /// Writes such a bit.
    ///
    /// # Errors
    /// When the hardware keeps no such bit, or it cannot be written.
    fn set_state(&self, _level: &Level<'_>, _which: IrqChipState, _value: bool) -> Result<(), IrqError> {
        Err(IrqError::NotSupported("irqchip state"))
    }
    /// Makes the masked line interrupt even where interrupts are off: pseudo-NMI, a priority above that of all others.
    /// Of a per-CPU line, on this CPU.
    ///
    /// # Errors
    /// When this line cannot.
    fn nmi_setup(&self, _level: &Level<'_>) -> Result<(), IrqError> {
        Err(IrqError::NotSupported("pseudo-NMI"))
    }
    /// Undoes [`IrqChip::nmi_setup`]; the line is masked.
    fn nmi_teardown(&self, _level: &Level<'_>) {}
    /// The masked line's last CPU goes: lets nothing of `hwirq` reach a CPU before the next [`IrqChip::set_affinity`],
    /// not even what its device should not send. A chip that cannot has nothing to do.
    ///
    /// # Errors
    /// When the hardware refuses; the line then stays where it was.
    fn deactivate(&self, _hwirq: HardwareIrq) -> Result<(), IrqError> {
        Ok(())
    }
    /// Whether nothing is delivered any more by what the line of `hwirq` has left, or to where a move failed to point
    /// it: no cache of the hardware holds that. What failed to have it forgotten is tried again. Also asked after
    /// [`IrqChip::release`], until it is so: till then no vector of the line is another's.
    fn settles(&self, _hwirq: HardwareIrq) -> bool {
        true
    }
    /// The line goes: undo what the domain's allocation of `hwirq` did in hardware.
    fn release(&self, _hwirq: HardwareIrq) {}
}

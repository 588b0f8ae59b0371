//! Interrupt controllers as the core sees them: one chip per level of a hierarchy.

use crate::{Flow, IrqChipState, IrqError, Level, MsiMessage, Target, Trigger};
use alloc::sync::Arc;

/// An operation that only tells the hardware something.
pub(crate) type Signal = Arc<dyn Fn(&Level<'_>) + Send + Sync>;
pub(crate) type SetAffinity = Arc<dyn Fn(&Level<'_>, Target) -> Result<(), IrqError> + Send + Sync>;
pub(crate) type Retrigger = Arc<dyn Fn(&Level<'_>) -> bool + Send + Sync>;
pub(crate) type ComposeMessage = Arc<dyn Fn(&Level<'_>) -> Result<MsiMessage, IrqError> + Send + Sync>;
pub(crate) type WriteMessage = Arc<dyn Fn(&Level<'_>, MsiMessage) + Send + Sync>;
pub(crate) type IsPending = Arc<dyn Fn(&Level<'_>, Target) -> bool + Send + Sync>;
pub(crate) type SetType = Arc<dyn Fn(&Level<'_>, Trigger) -> Result<Option<Flow>, IrqError> + Send + Sync>;
type Setup = Arc<dyn Fn(&Level<'_>) -> Result<(), IrqError> + Send + Sync>;
type ReadState = Arc<dyn Fn(&Level<'_>, IrqChipState) -> Result<bool, IrqError> + Send + Sync>;
type WriteState = Arc<dyn Fn(&Level<'_>, IrqChipState, bool) -> Result<(), IrqError> + Send + Sync>;

/// Masking and unmasking a line: a chip has both operations or neither.
#[derive(Clone)]
pub(crate) struct Masking {
    pub(crate) mask: Signal,
    pub(crate) unmask: Signal,
}

/// Reading and writing the state bits that the hardware keeps for a line.
#[derive(Clone)]
pub(crate) struct StateBits {
    pub(crate) read: ReadState,
    pub(crate) write: WriteState,
}

/// Turning a line into a pseudo-NMI, and back into an ordinary line.
#[derive(Clone)]
pub(crate) struct PseudoNmi {
    pub(crate) setup: Setup,
    pub(crate) teardown: Signal,
}

/// Behaviour of a chip's hardware that its operations do not show.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ChipBehaviour {
    /// The line may only be moved just after its ack, before its device can send again: the core then keeps a move
    /// until the line's next interrupt.
    pub moves_on_ack: bool,
    /// The chip's ack calls the parent's ack, and its eoi calls the parent's eoi. Both must reach the root, which ends
    /// the interrupt. If a flow needs them and a chip in the middle does not forward them, the core refuses the line.
    pub forwards: bool,
    /// An acknowledged line does not interrupt again before its eoi, although other lines do. This is the active state
    /// of a GIC with EOImode = 1, where ack is the priority drop and eoi is the deactivation. The line needs no mask
    /// in between. This does not hold for LPIs, which have no active state: they need a chip of their own.
    pub automasks_flow: bool,
    /// The chip's ack and eoi are the two halves of one end of interrupt, as with EOImode = 1. A flow that calls only
    /// one of them would leave the line active for ever, so the core refuses that flow.
    pub ends_in_halves: bool,
    /// The chip's eoi may be called after the handler has returned, by a thread, on another CPU. Together with
    /// [`ChipBehaviour::automasks_flow`] this lets a line wait for its thread without a mask.
    pub eoi_threaded: bool,
    /// A line with only a threaded handler needs no ONESHOT: its device does not raise the interrupt repeatedly until
    /// it is served. Message-signalled devices behave so.
    pub oneshot_safe: bool,
    /// What comes while the line is masked is lost: nothing keeps it. The core then runs the handlers once when it
    /// unmasks a line that had handlers, and they look for themselves. Without effect on a ONESHOT line, which is
    /// masked at every interrupt.
    pub forgets_masked: bool,
}

/// An interrupt controller, or one level of a hierarchy of them: a table of the operations that it implements.
///
/// A driver names its functions while it builds the chip ([`IrqChip::of`]). An operation that the driver does not name
/// does not exist. There is no second list that could contradict the first, and the compiler reports a private
/// function that the table leaves out. For an operation that a chip lacks, the core uses the nearest level towards the
/// CPU.
///
/// The core finds the level of each operation once, when the line is allocated. An interrupt then costs one indirect
/// call per operation, however deep the hierarchy is. A hierarchy that cannot ack or eoi is refused at allocation; it
/// does not fail at its first interrupt.
///
/// The core calls operations with the line's lock held and interrupts off. The exceptions are ack and eoi of per-CPU
/// lines and of NMIs, which have no lock. Each operation gets this chip's level of the line; [`Level::parent`] is the
/// next level towards the CPU. For a [`Flow::PerCpu`] line, mask, unmask, ack and eoi concern only the calling CPU.
pub struct IrqChip {
    name: &'static str,
    behaviour: ChipBehaviour,
    pub(crate) ack: Option<Signal>,
    pub(crate) eoi: Option<Signal>,
    pub(crate) masking: Option<Masking>,
    pub(crate) set_affinity: Option<SetAffinity>,
    pub(crate) retrigger: Option<Retrigger>,
    pub(crate) compose_message: Option<ComposeMessage>,
    pub(crate) write_message: Option<WriteMessage>,
    pub(crate) is_pending: Option<IsPending>,
    pub(crate) set_type: Option<SetType>,
    pub(crate) state: Option<StateBits>,
    pub(crate) nmi: Option<PseudoNmi>,
}

impl IrqChip {
    /// Begins to build the chip for `driver`. `/proc/interrupts` shows `name`.
    pub fn of<C: Send + Sync + 'static>(name: &'static str, driver: &Arc<C>) -> IrqChipBuilder<C> {
        let chip = Self {
            name,
            behaviour: ChipBehaviour::default(),
            ack: None,
            eoi: None,
            masking: None,
            set_affinity: None,
            retrigger: None,
            compose_message: None,
            write_message: None,
            is_pending: None,
            set_type: None,
            state: None,
            nmi: None,
        };
        IrqChipBuilder { driver: driver.clone(), chip }
    }

    /// The name that `/proc/interrupts` shows.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// How the chip's hardware behaves.
    pub fn behaviour(&self) -> ChipBehaviour {
        self.behaviour
    }

    /// The names of the operations that the chip has.
    pub fn operations(&self) -> impl Iterator<Item = &'static str> {
        [
            (self.ack.is_some(), "ack"),
            (self.eoi.is_some(), "eoi"),
            (self.masking.is_some(), "mask"),
            (self.set_affinity.is_some(), "set_affinity"),
            (self.retrigger.is_some(), "retrigger"),
            (self.compose_message.is_some(), "compose_message"),
            (self.write_message.is_some(), "write_message"),
            (self.is_pending.is_some(), "is_pending"),
            (self.set_type.is_some(), "set_type"),
            (self.state.is_some(), "state"),
            (self.nmi.is_some(), "nmi"),
        ]
        .into_iter()
        .filter_map(|(has, name)| has.then_some(name))
    }
}

/// Calls for a chip in front of this one. A missing operation does nothing or returns an error.
impl IrqChip {
    /// [`IrqChipBuilder::ack`].
    pub fn ack(&self, level: &Level<'_>) {
        if let Some(ack) = &self.ack {
            ack(level);
        }
    }

    /// [`IrqChipBuilder::eoi`].
    pub fn eoi(&self, level: &Level<'_>) {
        if let Some(eoi) = &self.eoi {
            eoi(level);
        }
    }

    /// The `mask` function of [`IrqChipBuilder::mask`].
    pub fn mask(&self, level: &Level<'_>) {
        if let Some(masking) = &self.masking {
            (masking.mask)(level);
        }
    }

    /// The `unmask` function of [`IrqChipBuilder::mask`].
    pub fn unmask(&self, level: &Level<'_>) {
        if let Some(masking) = &self.masking {
            (masking.unmask)(level);
        }
    }

    /// [`IrqChipBuilder::set_affinity`].
    ///
    /// # Errors
    /// [`IrqError::NotSupported`] when the chip lacks the operation, or the error of the hardware.
    pub fn set_affinity(&self, level: &Level<'_>, target: Target) -> Result<(), IrqError> {
        let set_affinity = self.set_affinity.as_ref().ok_or(IrqError::NotSupported("set_affinity"))?;
        set_affinity(level, target)
    }

    /// [`IrqChipBuilder::retrigger`]; false when the chip lacks the operation.
    pub fn retrigger(&self, level: &Level<'_>) -> bool {
        self.retrigger.as_ref().is_some_and(|retrigger| retrigger(level))
    }

    /// [`IrqChipBuilder::compose_message`].
    ///
    /// # Errors
    /// [`IrqError::NotSupported`] when the chip lacks the operation; an error when the format cannot express the
    /// target.
    pub fn compose_message(&self, level: &Level<'_>) -> Result<MsiMessage, IrqError> {
        let compose_message = self.compose_message.as_ref().ok_or(IrqError::NotSupported("compose_message"))?;
        compose_message(level)
    }

    /// [`IrqChipBuilder::write_message`].
    pub fn write_message(&self, level: &Level<'_>, message: MsiMessage) {
        if let Some(write_message) = &self.write_message {
            write_message(level, message);
        }
    }

    /// [`IrqChipBuilder::is_pending`]; false when the chip lacks the operation.
    pub fn is_pending(&self, level: &Level<'_>, target: Target) -> bool {
        self.is_pending.as_ref().is_some_and(|is_pending| is_pending(level, target))
    }

    /// [`IrqChipBuilder::set_type`].
    ///
    /// # Errors
    /// [`IrqError::NotSupported`] when the chip lacks the operation; an error when this wire cannot use the trigger.
    pub fn set_type(&self, level: &Level<'_>, trigger: Trigger) -> Result<Option<Flow>, IrqError> {
        let set_type = self.set_type.as_ref().ok_or(IrqError::NotSupported("set_type"))?;
        set_type(level, trigger)
    }

    /// The read function of [`IrqChipBuilder::state`].
    ///
    /// # Errors
    /// [`IrqError::NotSupported`] when the hardware keeps no such bit.
    pub fn state(&self, level: &Level<'_>, which: IrqChipState) -> Result<bool, IrqError> {
        let bits = self.state.as_ref().ok_or(IrqError::NotSupported("irqchip state"))?;
        (bits.read)(level, which)
    }

    /// The write function of [`IrqChipBuilder::state`].
    ///
    /// # Errors
    /// [`IrqError::NotSupported`] when the hardware keeps no such bit.
    pub fn set_state(&self, level: &Level<'_>, which: IrqChipState, value: bool) -> Result<(), IrqError> {
        let bits = self.state.as_ref().ok_or(IrqError::NotSupported("irqchip state"))?;
        (bits.write)(level, which, value)
    }

    /// The `setup` function of [`IrqChipBuilder::nmi`].
    ///
    /// # Errors
    /// [`IrqError::NotSupported`] when the chip lacks the operation; an error when this line cannot be an NMI.
    pub fn nmi_setup(&self, level: &Level<'_>) -> Result<(), IrqError> {
        let nmi = self.nmi.as_ref().ok_or(IrqError::NotSupported("pseudo-NMI"))?;
        (nmi.setup)(level)
    }

    /// The `teardown` function of [`IrqChipBuilder::nmi`].
    pub fn nmi_teardown(&self, level: &Level<'_>) {
        if let Some(nmi) = &self.nmi {
            (nmi.teardown)(level);
        }
    }
}

/// Builds an [`IrqChip`]: names the functions of a driver `C` that implement its operations.
pub struct IrqChipBuilder<C> {
    driver: Arc<C>,
    chip: IrqChip,
}

impl<C: Send + Sync + 'static> IrqChipBuilder<C> {
    /// The chip.
    pub fn build(self) -> Arc<IrqChip> {
        Arc::new(self.chip)
    }

    /// How the hardware behaves.
    pub fn behaviour(mut self, behaviour: ChipBehaviour) -> Self {
        self.chip.behaviour = behaviour;
        self
    }

    fn signal(&self, function: impl Fn(&C, &Level<'_>) + Send + Sync + 'static) -> Signal {
        let driver = self.driver.clone();
        Arc::new(move |level| function(&driver, level))
    }

    /// The CPU has taken the interrupt. Edge and strict flow call this before the handler. On a GIC with EOImode = 1
    /// it is the priority drop. (The root handler itself acknowledges the interrupt, and so learns the line's number.)
    pub fn ack(mut self, ack: impl Fn(&C, &Level<'_>) + Send + Sync + 'static) -> Self {
        self.chip.ack = Some(self.signal(ack));
        self
    }

    /// The interrupt is over. On a GIC with EOImode = 1 this is the deactivation. The CPU that took the interrupt
    /// calls it, or, with [`ChipBehaviour::eoi_threaded`], any CPU. There is exactly one eoi per ack.
    pub fn eoi(mut self, eoi: impl Fn(&C, &Level<'_>) + Send + Sync + 'static) -> Self {
        self.chip.eoi = Some(self.signal(eoi));
        self
    }

    /// `mask` stops the line from delivering, and is idempotent; `unmask` lets the line deliver again.
    pub fn mask(
        mut self,
        mask: impl Fn(&C, &Level<'_>) + Send + Sync + 'static,
        unmask: impl Fn(&C, &Level<'_>) + Send + Sync + 'static,
    ) -> Self {
        self.chip.masking = Some(Masking { mask: self.signal(mask), unmask: self.signal(unmask) });
        self
    }

    /// Points the line at the target. The core has allocated the target's identity, if the root needs one. It calls the
    /// chip nearest the device that has this operation; that chip moves the levels towards the CPU too
    /// ([`Level::set_parent_affinity`]). If a level still nearer the device writes messages, the core then composes and
    /// writes the message again. The line may be active: its eoi still comes once. When the hardware refuses, the line
    /// stays where it was.
    pub fn set_affinity(
        mut self,
        set_affinity: impl Fn(&C, &Level<'_>, Target) -> Result<(), IrqError> + Send + Sync + 'static,
    ) -> Self {
        let driver = self.driver.clone();
        self.chip.set_affinity = Some(Arc::new(move |level, target| set_affinity(&driver, level, target)));
        self
    }

    /// Makes the line fire once more; false when it cannot at this moment. A GIC sets the line pending.
    pub fn retrigger(mut self, retrigger: impl Fn(&C, &Level<'_>) -> bool + Send + Sync + 'static) -> Self {
        let driver = self.driver.clone();
        self.chip.retrigger = Some(Arc::new(move |level| retrigger(&driver, level)));
        self
    }

    /// Returns the message that a device writes to raise this line. Fails when the format cannot express the target.
    pub fn compose_message(
        mut self,
        compose_message: impl Fn(&C, &Level<'_>) -> Result<MsiMessage, IrqError> + Send + Sync + 'static,
    ) -> Self {
        let driver = self.driver.clone();
        self.chip.compose_message = Some(Arc::new(move |level| compose_message(&driver, level)));
        self
    }

    /// Writes the message into the device.
    pub fn write_message(mut self, write_message: impl Fn(&C, &Level<'_>, MsiMessage) + Send + Sync + 'static) -> Self {
        let driver = self.driver.clone();
        self.chip.write_message = Some(Arc::new(move |level, message| write_message(&driver, level, message)));
        self
    }

    /// True while the target's identity is pending between device and CPU: in a LAPIC's IRR or in a posted descriptor.
    /// The core does not ask this for lines without identities.
    pub fn is_pending(mut self, is_pending: impl Fn(&C, &Level<'_>, Target) -> bool + Send + Sync + 'static) -> Self {
        let driver = self.driver.clone();
        self.chip.is_pending = Some(Arc::new(move |level, target| is_pending(&driver, level, target)));
        self
    }

    /// Sets the line's trigger. Returns the flow that the line needs from now on, or none to keep its flow. Fails when
    /// the wire cannot use this trigger. The line is masked during the call. Where the levels towards the CPU must use
    /// the same trigger, the chip sets them too.
    pub fn set_type(
        mut self,
        set_type: impl Fn(&C, &Level<'_>, Trigger) -> Result<Option<Flow>, IrqError> + Send + Sync + 'static,
    ) -> Self {
        let driver = self.driver.clone();
        self.chip.set_type = Some(Arc::new(move |level, trigger| set_type(&driver, level, trigger)));
        self
    }

    /// Reads and writes a state bit that the hardware keeps for the line. For a per-CPU line, it is this CPU's bit.
    /// Fails when the hardware keeps no such bit, or when the bit cannot be written.
    pub fn state(
        mut self,
        read: impl Fn(&C, &Level<'_>, IrqChipState) -> Result<bool, IrqError> + Send + Sync + 'static,
        write: impl Fn(&C, &Level<'_>, IrqChipState, bool) -> Result<(), IrqError> + Send + Sync + 'static,
    ) -> Self {
        let (reader, writer) = (self.driver.clone(), self.driver.clone());
        self.chip.state = Some(StateBits {
            read: Arc::new(move |level, which| read(&reader, level, which)),
            write: Arc::new(move |level, which, value| write(&writer, level, which, value)),
        });
        self
    }

    /// `setup` makes the masked line a pseudo-NMI: its priority is above all others, so it interrupts even while
    /// interrupts are off. It fails when the line cannot. `teardown` undoes it; the line is masked. Both act on this
    /// CPU for a per-CPU line.
    pub fn nmi(
        mut self,
        setup: impl Fn(&C, &Level<'_>) -> Result<(), IrqError> + Send + Sync + 'static,
        teardown: impl Fn(&C, &Level<'_>) + Send + Sync + 'static,
    ) -> Self {
        let driver = self.driver.clone();
        let setup: Setup = Arc::new(move |level| setup(&driver, level));
        self.chip.nmi = Some(PseudoNmi { setup, teardown: self.signal(teardown) });
        self
    }
}

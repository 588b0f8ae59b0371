//! The hardware of a line: the levels of its hierarchy, and which level does each operation.

use crate::chip::{
    ComposeMessage, IsPending, Masking, PseudoNmi, Retrigger, SetAffinity, SetType, Signal, StateBits, WriteMessage,
};
use crate::{
    AllocRequest, Flow, HardwareIrq, Irq, IrqChip, IrqChipState, IrqDomain, IrqError, Level, LevelData, Target, Trigger,
};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// An operation, and the level that implements it.
struct At<T> {
    level: u8,
    operation: T,
}

type Found<T> = Option<At<T>>;

/// The nearest level to the device that has an operation.
fn nearest<T: Clone>(levels: &[LevelData], operation: impl Fn(&IrqChip) -> &Option<T>) -> Found<T> {
    let mut having = levels.iter().zip(0..).filter_map(|(level, index)| Some((operation(&level.chip).clone()?, index)));
    having.next().map(|(operation, level)| At { level, operation })
}

/// Which level does each operation, found once, and how the whole hierarchy behaves.
pub(crate) struct Resolved {
    ack: Found<Signal>,
    eoi: Found<Signal>,
    masking: Found<Masking>,
    set_affinity: Found<SetAffinity>,
    retrigger: Found<Retrigger>,
    compose_message: Found<ComposeMessage>,
    write_message: Found<WriteMessage>,
    is_pending: Found<IsPending>,
    set_type: Found<SetType>,
    state: Found<StateBits>,
    nmi: Found<PseudoNmi>,
    pub(crate) moves_on_ack: bool,
    ends_in_halves: bool,
    /// The controller itself holds an acknowledged line back until its eoi, however late the eoi comes.
    pub(crate) flow_masks: bool,
    pub(crate) eoi_threaded: bool,
    pub(crate) oneshot_safe: bool,
    pub(crate) forgets_masked: bool,
}

impl Resolved {
    fn new(levels: &[LevelData]) -> Self {
        let behaviours = || levels.iter().map(|level| level.chip.behaviour());
        let mut ends = levels.iter().filter(|level| level.chip.eoi.is_some());
        let eoi_threaded = ends.all(|level| level.chip.behaviour().eoi_threaded);
        Self {
            ack: nearest(levels, |chip| &chip.ack),
            eoi: nearest(levels, |chip| &chip.eoi),
            masking: nearest(levels, |chip| &chip.masking),
            set_affinity: nearest(levels, |chip| &chip.set_affinity),
            retrigger: nearest(levels, |chip| &chip.retrigger),
            compose_message: nearest(levels, |chip| &chip.compose_message),
            write_message: nearest(levels, |chip| &chip.write_message),
            is_pending: nearest(levels, |chip| &chip.is_pending),
            set_type: nearest(levels, |chip| &chip.set_type),
            state: nearest(levels, |chip| &chip.state),
            nmi: nearest(levels, |chip| &chip.nmi),
            moves_on_ack: behaviours().any(|chip| chip.moves_on_ack),
            ends_in_halves: behaviours().any(|chip| chip.ends_in_halves),
            flow_masks: eoi_threaded && behaviours().any(|chip| chip.automasks_flow),
            eoi_threaded,
            oneshot_safe: behaviours().any(|chip| chip.oneshot_safe),
            forgets_masked: behaviours().any(|chip| chip.forgets_masked),
        }
    }

    /// The level that masks the line.
    pub(crate) fn masking_level(&self) -> Option<usize> {
        self.masking.as_ref().map(|found| found.level.into())
    }
}

/// The hardware of a line. It does not change over the line's life.
pub(crate) struct Hardware {
    pub(crate) irq: Irq,
    /// The levels, from the device to the CPU.
    pub(crate) levels: Vec<LevelData>,
    /// The domains that allocated the numbers of `levels`, in the same order. They take the numbers back.
    pub(crate) domains: Vec<Arc<dyn IrqDomain>>,
    pub(crate) ops: Resolved,
    pub(crate) managed: bool,
    pub(crate) needs_identity: bool,
}

impl Hardware {
    pub(crate) fn new(
        irq: Irq,
        levels: Vec<LevelData>,
        domains: Vec<Arc<dyn IrqDomain>>,
        flow: Flow,
        request: &AllocRequest,
    ) -> Self {
        let ops = Resolved::new(&levels);
        let needs_identity = domains.last().is_some_and(|root| root.needs_identity()) && flow != Flow::PerCpu;
        Self { irq, levels, domains, ops, managed: request.managed, needs_identity }
    }

    /// Checks that the hierarchy can do `flow`.
    pub(crate) fn check_flow(&self, flow: Flow) -> Result<(), IrqError> {
        let (ack, eoi) = ((self.ops.ack.is_some(), "ack"), (self.ops.eoi.is_some(), "eoi"));
        let needs: &[(bool, &'static str)] = match flow {
            // The hardware has lost an edge that came while the line was disabled. Only a retrigger brings it back.
            Flow::Edge => &[ack, (self.ops.retrigger.is_some(), "retrigger")],
            Flow::Level => &[(self.ops.masking.is_some(), "mask"), ack],
            Flow::FastEoi | Flow::PerCpu => &[eoi],
            Flow::Strict => &[ack, eoi],
        };
        if let Some((_, operation)) = needs.iter().find(|(has, _)| !has) {
            return Err(IrqError::Flow(flow, operation));
        }
        if self.ops.ends_in_halves && !matches!(flow, Flow::Strict | Flow::PerCpu) {
            return Err(IrqError::Flow(flow, "an ack or an eoi that ends the interrupt alone"));
        }
        self.check_forwarding(flow)
    }

    /// A level that takes over an operation which ends the interrupt at the root must forward it.
    fn check_forwarding(&self, flow: Flow) -> Result<(), IrqError> {
        let strict = flow == Flow::Strict;
        let ends_by_eoi = strict || matches!(flow, Flow::FastEoi | Flow::PerCpu);
        self.check_forwarded("ack", |chip| strict && chip.ack.is_some())?;
        self.check_forwarded("eoi", |chip| ends_by_eoi && chip.eoi.is_some())
    }

    /// Checks that the line can be held back until its threads are done.
    pub(crate) fn check_oneshot(&self, flow: Flow) -> Result<(), IrqError> {
        let holds = self.ops.masking.is_some() || flow == Flow::Edge || (flow == Flow::Strict && self.ops.flow_masks);
        if holds { Ok(()) } else { Err(IrqError::Flow(flow, "mask, for ONESHOT,")) }
    }

    fn check_forwarded(&self, operation: &'static str, has: impl Fn(&IrqChip) -> bool) -> Result<(), IrqError> {
        let mut chips = self.levels.iter().map(|level| &level.chip).filter(|chip| has(chip)).peekable();
        while let Some(chip) = chips.next() {
            if chips.peek().is_some() && !chip.behaviour().forwards {
                return Err(IrqError::KeepsToItself(chip.name(), operation));
            }
        }
        Ok(())
    }

    /// True if vectors are reserved for the line on every CPU of its affinity.
    pub(crate) fn is_reserved(&self) -> bool {
        self.managed && self.needs_identity
    }

    pub(crate) fn is_movable(&self) -> bool {
        self.needs_identity || self.ops.set_affinity.is_some()
    }

    /// A view of one level and of the levels towards the CPU.
    #[inline]
    pub(crate) fn level(&self, index: u8) -> Level<'_> {
        Level::new(self.irq, &self.levels[usize::from(index)..])
    }

    #[inline]
    fn at<T, R>(&self, found: &Found<T>, f: impl FnOnce(&T, &Level<'_>) -> R) -> Option<R> {
        found.as_ref().map(|At { level, operation }| f(operation, &self.level(*level)))
    }

    #[inline]
    pub(crate) fn ack(&self) {
        self.at(&self.ops.ack, |ack, level| ack(level));
    }

    #[inline]
    pub(crate) fn eoi(&self) {
        self.at(&self.ops.eoi, |eoi, level| eoi(level));
    }

    pub(crate) fn mask(&self) {
        self.at(&self.ops.masking, |masking, level| (masking.mask)(level));
    }

    pub(crate) fn unmask(&self) {
        self.at(&self.ops.masking, |masking, level| (masking.unmask)(level));
    }

    pub(crate) fn retrigger(&self) -> bool {
        self.at(&self.ops.retrigger, |retrigger, level| retrigger(level)).unwrap_or(false)
    }

    pub(crate) fn can_retrigger(&self) -> bool {
        self.ops.retrigger.is_some()
    }

    pub(crate) fn is_pending(&self, target: Target) -> bool {
        self.at(&self.ops.is_pending, |is_pending, level| is_pending(level, target)).unwrap_or(false)
    }

    /// Each level's domain, and the line's number in it, from the device to the CPU.
    fn numbers(&self) -> impl DoubleEndedIterator<Item = (&dyn IrqDomain, HardwareIrq)> {
        self.domains.iter().zip(&self.levels).map(|(domain, level)| (&**domain, level.hwirq))
    }

    /// Makes the hardware of every level deliver to `target`, from the CPU's level to the device's.
    pub(crate) fn activate(&self, target: Target) -> Result<(), IrqError> {
        let mut domains = self.domains.iter().enumerate().rev();
        domains.try_for_each(|(index, domain)| domain.activate(&self.level(index as u8), target))
    }

    pub(crate) fn deactivate(&self) -> Result<(), IrqError> {
        self.numbers().try_for_each(|(domain, hwirq)| domain.deactivate(hwirq))
    }

    /// True once no level's hardware holds a stale route of the line.
    pub(crate) fn settles(&self) -> bool {
        self.numbers().all(|(domain, hwirq)| domain.settles(hwirq))
    }

    /// Gives every level's number back, from the device to the CPU.
    pub(crate) fn release(&self) {
        self.numbers().for_each(|(domain, hwirq)| domain.release(hwirq));
    }

    pub(crate) fn set_type(&self, trigger: Trigger) -> Result<Option<Flow>, IrqError> {
        let set = self.at(&self.ops.set_type, |set_type, level| set_type(level, trigger));
        set.unwrap_or(Err(IrqError::NotSupported("set_type")))
    }

    pub(crate) fn state(&self, which: IrqChipState) -> Result<bool, IrqError> {
        let read = self.at(&self.ops.state, |bits, level| (bits.read)(level, which));
        read.unwrap_or(Err(IrqError::NotSupported("irqchip state")))
    }

    pub(crate) fn set_state(&self, which: IrqChipState, value: bool) -> Result<(), IrqError> {
        let written = self.at(&self.ops.state, |bits, level| (bits.write)(level, which, value));
        written.unwrap_or(Err(IrqError::NotSupported("irqchip state")))
    }

    pub(crate) fn check_nmi(&self) -> Result<(), IrqError> {
        self.check_flow(Flow::PerCpu)?;
        self.ops.nmi.as_ref().map(|_| ()).ok_or(IrqError::NotSupported("pseudo-NMI"))
    }

    pub(crate) fn nmi_setup(&self) -> Result<(), IrqError> {
        let set_up = self.at(&self.ops.nmi, |nmi, level| (nmi.setup)(level));
        set_up.unwrap_or(Err(IrqError::NotSupported("pseudo-NMI")))
    }

    pub(crate) fn nmi_teardown(&self) {
        self.at(&self.ops.nmi, |nmi, level| (nmi.teardown)(level));
    }

    /// Points the chips at `target`. Levels nearer the device than the moving chip get a new message.
    pub(crate) fn set_affinity(&self, target: Target) -> Result<(), IrqError> {
        let moved = self.at(&self.ops.set_affinity, |set_affinity, level| set_affinity(level, target));
        moved.unwrap_or(Err(IrqError::NotSupported("set_affinity")))?;
        match (&self.ops.write_message, &self.ops.set_affinity) {
            (Some(writer), Some(mover)) if writer.level < mover.level => self.write_message(),
            _ => Ok(()),
        }
    }

    fn write_message(&self) -> Result<(), IrqError> {
        let message = self.at(&self.ops.compose_message, |compose_message, level| compose_message(level));
        let message = message.unwrap_or(Err(IrqError::NotSupported("compose_message")))?;
        self.at(&self.ops.write_message, |write_message, level| write_message(level, message));
        Ok(())
    }
}

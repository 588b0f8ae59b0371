//! What a line is made of: the levels of its hierarchy, and which of them does each operation.

use crate::{AllocRequest, ChipOps, Flow, Irq, IrqChipState, IrqError, Level, LevelData, Target, Trigger};
use alloc::string::String;
use alloc::vec::Vec;

/// The level that does each operation, found once.
#[derive(Clone, Copy, Default)]
pub(crate) struct Resolved {
    ack: Option<u8>,
    eoi: Option<u8>,
    mask: Option<u8>,
    set_affinity: Option<u8>,
    retrigger: Option<u8>,
    compose_message: Option<u8>,
    write_message: Option<u8>,
    is_pending: Option<u8>,
    set_type: Option<u8>,
    state: Option<u8>,
    nmi: Option<u8>,
    pub(crate) moves_on_ack: bool,
    ends_in_halves: bool,
    /// The controller itself holds an acknowledged line back until its end, however late that comes.
    pub(crate) flow_masks: bool,
    pub(crate) eoi_threaded: bool,
    pub(crate) oneshot_safe: bool,
}

impl Resolved {
    fn new(levels: &[LevelData]) -> Self {
        let provides: Vec<ChipOps> = levels.iter().map(|level| level.chip.provides()).collect();
        let nearest = |has: fn(&ChipOps) -> bool| provides.iter().position(has).map(|index| index as u8);
        let eoi_threaded = provides.iter().filter(|ops| ops.eoi).all(|ops| ops.eoi_threaded);
        Self {
            ack: nearest(|ops| ops.ack),
            eoi: nearest(|ops| ops.eoi),
            mask: nearest(|ops| ops.mask),
            set_affinity: nearest(|ops| ops.set_affinity),
            retrigger: nearest(|ops| ops.retrigger),
            compose_message: nearest(|ops| ops.compose_message),
            write_message: nearest(|ops| ops.write_message),
            is_pending: nearest(|ops| ops.is_pending),
            set_type: nearest(|ops| ops.set_type),
            state: nearest(|ops| ops.state),
            nmi: nearest(|ops| ops.nmi),
            moves_on_ack: provides.iter().any(|ops| ops.moves_on_ack),
            ends_in_halves: provides.iter().any(|ops| ops.ends_in_halves),
            flow_masks: eoi_threaded && provides.iter().any(|ops| ops.automasks_flow),
            eoi_threaded,
            oneshot_safe: provides.iter().any(|ops| ops.oneshot_safe),
        }
    }
}

/// What a line is made of; it does not change over the line's life.
pub(crate) struct Hardware {
    pub(crate) irq: Irq,
    /// From the device to the CPU.
    pub(crate) levels: Vec<LevelData>,
    pub(crate) domains: Vec<String>,
    pub(crate) ops: Resolved,
    pub(crate) managed: bool,
    pub(crate) needs_vector: bool,
}

impl Hardware {
    pub(crate) fn new(
        irq: Irq,
        levels: Vec<LevelData>,
        domains: Vec<String>,
        flow: Flow,
        request: &AllocRequest,
        needs_vector: bool,
    ) -> Result<Self, IrqError> {
        let ops = Resolved::new(&levels);
        let hardware = Self { irq, levels, domains, ops, managed: request.managed, needs_vector };
        hardware.check_flow(flow)?;
        Ok(hardware)
    }

    /// Whether the hierarchy can do `flow`.
    pub(crate) fn check_flow(&self, flow: Flow) -> Result<(), IrqError> {
        let Resolved { ack, eoi, mask, retrigger, .. } = self.ops;
        let needs: &[(Option<u8>, &'static str)] = match flow {
            // A hardware edge that came while disabled is gone: only a retrigger brings it back.
            Flow::Edge => &[(ack, "ack"), (retrigger, "retrigger")],
            Flow::Level => &[(mask, "mask"), (ack, "ack")],
            Flow::FastEoi | Flow::PerCpu => &[(eoi, "eoi")],
            Flow::Strict => &[(ack, "ack"), (eoi, "eoi")],
        };
        if let Some((_, operation)) = needs.iter().find(|(level, _)| level.is_none()) {
            return Err(IrqError::Flow(flow, operation));
        }
        if self.ops.ends_in_halves && !matches!(flow, Flow::Strict | Flow::PerCpu) {
            return Err(IrqError::Flow(flow, "an ack or an eoi that ends the interrupt alone"));
        }
        self.check_forwarding(flow)
    }

    /// Every level that takes over an operation which ends the interrupt at the root must pass it on.
    fn check_forwarding(&self, flow: Flow) -> Result<(), IrqError> {
        let strict = flow == Flow::Strict;
        let ends_by_eoi = strict || matches!(flow, Flow::FastEoi | Flow::PerCpu);
        self.check_forwarded("ack", |ops| strict && ops.ack)?;
        self.check_forwarded("eoi", |ops| ends_by_eoi && ops.eoi)
    }

    /// Whether the line can be held back until its threads are done.
    pub(crate) fn check_oneshot(&self, flow: Flow) -> Result<(), IrqError> {
        let holds = self.ops.mask.is_some() || flow == Flow::Edge || (flow == Flow::Strict && self.ops.flow_masks);
        if holds { Ok(()) } else { Err(IrqError::Flow(flow, "mask, for ONESHOT,")) }
    }

    fn check_forwarded(&self, operation: &'static str, has: impl Fn(&ChipOps) -> bool) -> Result<(), IrqError> {
        let mut chips = self.levels.iter().map(|level| &level.chip).filter(|chip| has(&chip.provides())).peekable();
        while let Some(chip) = chips.next() {
            if chips.peek().is_some() && !chip.provides().forwards {
                return Err(IrqError::KeepsToItself(chip.name(), operation));
            }
        }
        Ok(())
    }

    /// Whether vectors are kept for it on every CPU of its affinity.
    pub(crate) fn is_reserved(&self) -> bool {
        self.managed && self.needs_vector
    }

    pub(crate) fn is_movable(&self) -> bool {
        self.needs_vector || self.ops.set_affinity.is_some()
    }

    /// The view of one level and the ones towards the CPU.
    #[inline]
    pub(crate) fn level(&self, index: u8) -> Level<'_> {
        Level::new(self.irq, &self.levels[usize::from(index)..])
    }

    #[inline]
    fn at<R>(&self, index: Option<u8>, f: impl FnOnce(&Level<'_>) -> R) -> Option<R> {
        index.map(|index| f(&self.level(index)))
    }

    #[inline]
    pub(crate) fn ack(&self) {
        self.at(self.ops.ack, |level| level.chip().ack(level));
    }

    #[inline]
    pub(crate) fn eoi(&self) {
        self.at(self.ops.eoi, |level| level.chip().eoi(level));
    }

    pub(crate) fn mask(&self) {
        self.at(self.ops.mask, |level| level.chip().mask(level));
    }

    pub(crate) fn unmask(&self) {
        self.at(self.ops.mask, |level| level.chip().unmask(level));
    }

    pub(crate) fn retrigger(&self) -> bool {
        self.at(self.ops.retrigger, |level| level.chip().retrigger(level)).unwrap_or(false)
    }

    pub(crate) fn is_pending(&self, target: Target) -> bool {
        self.at(self.ops.is_pending, |level| level.chip().is_pending(level, target)).unwrap_or(false)
    }

    pub(crate) fn deactivate(&self) -> Result<(), IrqError> {
        self.levels.iter().try_for_each(|level| level.chip.deactivate(level.hwirq))
    }

    /// Whether no level delivers by what the line has left.
    pub(crate) fn settles(&self) -> bool {
        self.levels.iter().all(|level| level.chip.settles(level.hwirq))
    }

    pub(crate) fn set_type(&self, trigger: Trigger) -> Result<Option<Flow>, IrqError> {
        let set = self.at(self.ops.set_type, |level| level.chip().set_type(level, trigger));
        set.unwrap_or(Err(IrqError::NotSupported("set_type")))
    }

    pub(crate) fn state(&self, which: IrqChipState) -> Result<bool, IrqError> {
        let read = self.at(self.ops.state, |level| level.chip().state(level, which));
        read.unwrap_or(Err(IrqError::NotSupported("irqchip state")))
    }

    pub(crate) fn set_state(&self, which: IrqChipState, value: bool) -> Result<(), IrqError> {
        let written = self.at(self.ops.state, |level| level.chip().set_state(level, which, value));
        written.unwrap_or(Err(IrqError::NotSupported("irqchip state")))
    }

    pub(crate) fn check_nmi(&self) -> Result<(), IrqError> {
        self.check_flow(Flow::PerCpu)?;
        self.ops.nmi.map(|_| ()).ok_or(IrqError::NotSupported("pseudo-NMI"))
    }

    pub(crate) fn nmi_setup(&self) -> Result<(), IrqError> {
        let set_up = self.at(self.ops.nmi, |level| level.chip().nmi_setup(level));
        set_up.unwrap_or(Err(IrqError::NotSupported("pseudo-NMI")))
    }

    pub(crate) fn nmi_teardown(&self) {
        self.at(self.ops.nmi, |level| level.chip().nmi_teardown(level));
    }

    /// Points the chips at `target`. Chips nearer the device than the one that moves have their message rewritten
    /// where the level that composes it is the one that moves, or nearer the CPU.
    pub(crate) fn set_affinity(&self, target: Target) -> Result<(), IrqError> {
        let moved = self.at(self.ops.set_affinity, |level| level.chip().set_affinity(level, target));
        moved.unwrap_or(Err(IrqError::NotSupported("set_affinity")))?;
        match (self.ops.write_message, self.ops.set_affinity) {
            (Some(writer), Some(mover)) if writer < mover => self.write_message(),
            _ => Ok(()),
        }
    }

    fn write_message(&self) -> Result<(), IrqError> {
        let message = self.at(self.ops.compose_message, |level| level.chip().compose_message(level));
        let message = message.unwrap_or(Err(IrqError::NotSupported("compose_message")))?;
        self.at(self.ops.write_message, |level| level.chip().write_message(level, message));
        Ok(())
    }
}

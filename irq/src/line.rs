//! A line: permanent storage with an interior state.

use crate::handover::Handover;
use crate::percpu::Unlocked;
use crate::thread::IrqThread;
use crate::{Action, AllocRequest, ChipOps, Flow, Irq, IrqChipState, IrqError, Level, LevelData, Target, Trigger};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use hal::{CpuSet, Hal, Lock, Published, Word};

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

/// Where a line is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    Free,
    Live,
    /// Freed; its vectors may still be pending somewhere.
    Dying,
}

/// A vector that the line left, and that may still be on its way.
#[derive(Clone, Copy)]
pub(crate) struct Retired {
    pub(crate) target: Target,
    pub(crate) due_ns: u64,
}

/// What an interrupt runs of a handler.
#[derive(Clone)]
pub(crate) struct Installed {
    pub(crate) primary: Arc<dyn Action>,
    pub(crate) thread: Option<IrqThread>,
}

/// A handler of the line.
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) shared: bool,
    pub(crate) oneshot: bool,
    /// What the driver calls it by: its handler, or its thread function if it has no handler of its own.
    pub(crate) action: Arc<dyn Action>,
    pub(crate) installed: Installed,
}

/// The handlers as an interrupt runs them.
pub(crate) type Actions = Arc<[Installed]>;

pub(crate) struct LineState {
    pub(crate) phase: Phase,
    pub(crate) hardware: Option<Arc<Hardware>>,
    pub(crate) flow: Flow,
    pub(crate) trigger: Option<Trigger>,
    pub(crate) entries: Vec<Entry>,
    /// The handlers of `entries`. The interrupt in progress takes it along and brings it back, unless another has
    /// taken its place meanwhile: so the hot path counts no references.
    pub(crate) ready: Option<Actions>,
    pub(crate) affinity: CpuSet,
    pub(crate) target: Option<Target>,
    pub(crate) retired: Vec<Retired>,
    pub(crate) depth: u32,
    pub(crate) masked: bool,
    pub(crate) pending: bool,
    pub(crate) in_progress: bool,
    /// Its handlers hold it back until their threads are done.
    pub(crate) oneshot: bool,
    /// Its flow keeps it back until its handler or its threads are done: it may not be unmasked.
    pub(crate) held: bool,
    /// Acknowledged, and its end not given yet. Apart from `masked`: masking is idempotent, ack and eoi are not.
    pub(crate) active: bool,
    /// Threads that exist, a bit each.
    pub(crate) thread_numbers: u32,
    /// A pseudo-NMI.
    pub(crate) nmi: bool,
    /// The CPUs that have enabled a per-CPU line.
    pub(crate) percpu_enabled: CpuSet,
    /// A managed line of which no CPU is online.
    pub(crate) shutdown: bool,
    /// The affinity has changed and is not applied yet.
    pub(crate) move_wanted: bool,
    pub(crate) unhandled: u64,
    /// Interrupts that came while nobody was there for them.
    pub(crate) unexpected: u64,
    pub(crate) storm: crate::storm::Storm,
}

impl LineState {
    pub(crate) fn free() -> Self {
        Self {
            phase: Phase::Free,
            hardware: None,
            flow: Flow::Edge,
            trigger: None,
            entries: Vec::new(),
            ready: None,
            affinity: CpuSet::new(),
            target: None,
            retired: Vec::new(),
            depth: 0,
            masked: true,
            pending: false,
            in_progress: false,
            oneshot: false,
            held: false,
            active: false,
            thread_numbers: 0,
            nmi: false,
            percpu_enabled: CpuSet::new(),
            shutdown: false,
            move_wanted: false,
            unhandled: 0,
            unexpected: 0,
            storm: crate::storm::Storm::default(),
        }
    }

    /// The hardware of a line that is not being freed.
    pub(crate) fn live(&self, irq: Irq) -> Result<Arc<Hardware>, IrqError> {
        match &self.hardware {
            Some(hardware) if self.phase == Phase::Live => Ok(hardware.clone()),
            _ => Err(IrqError::NoLine(irq)),
        }
    }

    pub(crate) fn is_mine(&self, target: Target) -> bool {
        self.target == Some(target) || self.retired.iter().any(|retired| retired.target == target)
    }

    /// Whether handlers may be called at all.
    #[inline]
    pub(crate) fn is_enabled(&self) -> bool {
        self.depth == 0 && self.phase == Phase::Live && !self.entries.is_empty() && !self.storm.is_throttled()
    }

    pub(crate) fn mask(&mut self) {
        if let Some(hardware) = self.hardware.as_ref().filter(|_| !self.masked) {
            hardware.mask();
            self.masked = true;
        }
    }

    /// Whether it is delivered without its lock.
    pub(crate) fn is_unlocked(&self) -> bool {
        self.flow == Flow::PerCpu || self.nmi
    }

    pub(crate) fn has_threads(&self) -> bool {
        self.thread_numbers != 0
    }

    /// Whether the controller holds an acknowledged line back by itself, until a thread ends it.
    pub(crate) fn flow_masks(&self) -> bool {
        self.hardware.as_ref().is_some_and(|hardware| hardware.ops.flow_masks)
    }

    /// Whether a thread may end it.
    pub(crate) fn takes_late_eoi(&self) -> bool {
        self.hardware.as_ref().is_some_and(|hardware| hardware.ops.eoi_threaded)
    }

    /// Nothing keeps the line back any more: gives the end that was left over, whether or not the line was disabled
    /// meanwhile (it would stay active for ever), and lets it deliver again if it may.
    pub(crate) fn release(&mut self) {
        self.held = false;
        if core::mem::take(&mut self.active)
            && let Some(hardware) = &self.hardware
        {
            hardware.eoi();
        }
        self.unmask();
    }

    /// Lets the line deliver again if it may, and brings back what came meanwhile.
    pub(crate) fn unmask(&mut self) {
        if self.is_enabled()
            && !self.shutdown
            && !self.held
            && let Some(hardware) = &self.hardware
        {
            if self.masked {
                hardware.unmask();
                self.masked = false;
            }
            // While its handler runs, that will see the mark itself. A level that is still raised comes back alone.
            if self.pending && !self.in_progress {
                self.pending = !self.comes_back_alone() && !hardware.retrigger();
            }
        }
    }

    /// Whether the wire itself raises the interrupt again as long as the device is not served.
    fn comes_back_alone(&self) -> bool {
        self.trigger.map_or(self.flow == Flow::Level, Trigger::is_level)
    }

    /// Makes `ready` what `entries` are now.
    pub(crate) fn refresh_actions(&mut self) {
        self.ready = Some(self.entries.iter().map(|entry| entry.installed.clone()).collect());
        self.oneshot = self.entries.first().is_some_and(|entry| entry.oneshot);
    }
}

/// One line and what interrupts write without its lock.
pub(crate) struct Line<H: Hal> {
    pub(crate) state: Lock<H, LineState>,
    /// 0, or 1 + the CPU whose handler runs.
    pub(crate) running: H::Word,
    pub(crate) handover: Handover<H::Word>,
    /// The handlers of a line that is delivered without a lock.
    pub(crate) unlocked: Published<H, Unlocked>,
    /// Interrupts a CPU; each CPU writes its own.
    pub(crate) counts: Box<[H::Word]>,
}

impl<H: Hal> Line<H> {
    pub(crate) fn new(hal: H, cpus: u32) -> Self {
        Self {
            state: Lock::new(hal, LineState::free()),
            running: H::Word::new(0),
            handover: Handover::new(),
            unlocked: Published::new(hal),
            counts: (0..cpus).map(|_| H::Word::new(0)).collect(),
        }
    }
}

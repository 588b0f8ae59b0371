//! A line: permanent storage with an interior state.

use crate::handover::Handover;
use crate::hardware::Hardware;
use crate::percpu::Unlocked;
use crate::thread::IrqThread;
use crate::{Action, Flow, Irq, IrqError, Target, Trigger};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use hal::{CpuId, CpuSet, Hal, Lock, Published, Word};

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
    /// It is shut down, and its hardware delivers nothing.
    pub(crate) inactive: bool,
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
            inactive: false,
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

    /// Whether it has a vector on `cpu` that it left.
    pub(crate) fn has_left(&self, cpu: CpuId) -> bool {
        self.retired.iter().any(|retired| retired.target.cpu == cpu)
    }

    /// Whether it was shut down because `cpu` goes.
    pub(crate) fn fell_asleep_with(&self, cpu: CpuId) -> bool {
        self.phase == Phase::Live && self.shutdown && self.has_left(cpu)
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
            // While its handler runs, that will see the mark itself.
            if self.pending && !self.in_progress {
                self.come_again();
            }
        }
    }

    /// Has what is pending come again, where the line points now; it stays pending if the hardware cannot. A level that
    /// is still raised comes back alone.
    pub(crate) fn come_again(&mut self) {
        if let Some(hardware) = &self.hardware {
            self.pending = !self.comes_back_alone() && !hardware.retrigger();
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

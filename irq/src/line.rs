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
use hal::{CpuId, CpuSet, Hal, Lock, Published, ThreadId, Word};

mod life;
mod progress;

pub(crate) use life::{Place, Shutdown};
pub(crate) use progress::{End, Hold};

use life::{Life, Stage};
use progress::Progress;

/// A vector that the line has left, but that may still arrive.
#[derive(Clone, Copy)]
pub(crate) struct Retired {
    pub(crate) target: Target,
    pub(crate) due_ns: u64,
}

/// The parts of a handler that an interrupt runs.
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
    /// The identity by which the driver names the entry: its handler, or its thread function if it has no handler of
    /// its own.
    pub(crate) action: Arc<dyn Action>,
    pub(crate) installed: Installed,
}

/// The handlers as an interrupt runs them.
pub(crate) type Actions = Arc<[Installed]>;

pub(crate) struct LineState {
    life: Life,
    progress: Progress,
    pub(crate) flow: Flow,
    pub(crate) trigger: Option<Trigger>,
    pub(crate) entries: Vec<Entry>,
    /// The handlers of `entries`. An interrupt in progress takes this value out and puts it back, unless it was
    /// replaced meanwhile. So the hot path counts no references.
    pub(crate) ready: Option<Actions>,
    pub(crate) affinity: CpuSet,
    pub(crate) retired: Vec<Retired>,
    pub(crate) depth: u32,
    pub(crate) masked: bool,
    /// It is masked, had a handler then, and its chip keeps nothing that comes meanwhile.
    pub(crate) is_deaf: bool,
    pub(crate) pending: bool,
    /// When a pending interrupt that the hardware could not bring back is tried again.
    pub(crate) resend: crate::resend::Resend,
    /// The handlers hold the line back until their threads are done.
    pub(crate) oneshot: bool,
    /// Thread numbers in use, one bit each.
    pub(crate) thread_numbers: u32,
    /// Threads of handlers, until they have ended: longer than the handlers are in `entries`.
    pub(crate) thread_ids: Vec<ThreadId>,
    /// The line is a pseudo-NMI.
    pub(crate) nmi: bool,
    /// The CPUs that have enabled a per-CPU line.
    pub(crate) percpu_enabled: CpuSet,
    pub(crate) unhandled: u64,
    /// Interrupts that came while the line had no handler.
    pub(crate) unexpected: u64,
    pub(crate) storm: crate::storm::Storm,
}

impl LineState {
    pub(crate) fn free() -> Self {
        Self {
            life: Life::Free,
            progress: Progress::Idle,
            flow: Flow::Edge,
            trigger: None,
            entries: Vec::new(),
            ready: None,
            affinity: CpuSet::new(),
            retired: Vec::new(),
            depth: 0,
            masked: true,
            is_deaf: false,
            pending: false,
            resend: crate::resend::Resend::default(),
            oneshot: false,
            thread_numbers: 0,
            thread_ids: Vec::new(),
            nmi: false,
            percpu_enabled: CpuSet::new(),
            unhandled: 0,
            unexpected: 0,
            storm: crate::storm::Storm::default(),
        }
    }

    /// Turns free storage into a line of this hardware, delivered at `place`.
    pub(crate) fn allocate(&mut self, hardware: Arc<Hardware>, place: Place) {
        self.life = Life::Allocated { hardware, stage: Stage::Live(place) };
    }

    /// Begins to free the line. Returns the target that it had.
    pub(crate) fn begin_freeing(&mut self) -> Option<Target> {
        self.life.end()
    }

    /// Forgets the line. Its storage is then free.
    pub(crate) fn forget(&mut self) {
        self.life = Life::Free;
    }

    pub(crate) fn is_free(&self) -> bool {
        self.life.is_free()
    }

    pub(crate) fn is_live(&self) -> bool {
        self.life.is_live()
    }

    pub(crate) fn is_being_freed(&self) -> bool {
        self.life.is_being_freed()
    }

    /// The hardware, until the line is forgotten.
    #[inline]
    pub(crate) fn hardware(&self) -> Option<&Arc<Hardware>> {
        self.life.hardware()
    }

    /// The hardware of a line that is not being freed.
    pub(crate) fn live(&self, irq: Irq) -> Result<Arc<Hardware>, IrqError> {
        self.life.live(irq)
    }

    /// Where the line is delivered, if it has a target of its own.
    #[inline]
    pub(crate) fn target(&self) -> Option<Target> {
        self.life.target()
    }

    /// Whether the affinity has changed and is not applied yet.
    #[inline]
    pub(crate) fn move_wanted(&self) -> bool {
        self.life.move_wanted()
    }

    pub(crate) fn want_move(&mut self, wanted: bool) {
        self.life.want_move(wanted);
    }

    /// Delivers the live line to `target` from now on. Returns the former target.
    pub(crate) fn move_to(&mut self, target: Target) -> Option<Target> {
        self.life.place(Place::At(target))
    }

    /// Stops all delivery of the managed line. Returns the former target.
    pub(crate) fn shut_down(&mut self, shutdown: Shutdown) -> Option<Target> {
        self.life.place(Place::ShutDown(shutdown))
    }

    /// True for a managed line without an online CPU.
    pub(crate) fn is_shut_down(&self) -> bool {
        self.life.is_shut_down()
    }

    /// True for a line that has had no CPU since it was allocated.
    pub(crate) fn is_new(&self) -> bool {
        self.life.shutdown() == Some(Shutdown::New)
    }

    /// True for a line that is shut down, and whose hardware lets nothing pass.
    pub(crate) fn is_deactivated(&self) -> bool {
        self.life.shutdown() == Some(Shutdown::Deactivated)
    }

    /// True while the line's handlers run.
    #[inline]
    pub(crate) fn is_running(&self) -> bool {
        self.progress.is_running()
    }

    /// True if an interrupt was acknowledged and its eoi is still owed.
    #[inline]
    pub(crate) fn owes_end(&self) -> bool {
        self.progress.owes_end()
    }

    /// The handlers begin to run.
    #[inline]
    pub(crate) fn start_handlers(&mut self, hold: Hold) {
        self.progress.start(hold);
    }

    /// The handlers have run. Returns true if the flow holds the line back.
    #[inline]
    pub(crate) fn stop_handlers(&mut self) -> bool {
        self.progress.stop()
    }

    /// Leaves the line to its threads. `end` says whether they owe the eoi.
    pub(crate) fn hold(&mut self, end: End) {
        self.progress = Progress::Held(end);
    }

    /// True while the line waits for its threads, or while an end that they left is not given yet.
    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        self.progress.holds_back()
    }

    /// True if interrupts that come by `target` belong to the line. None belong to a free line.
    #[inline]
    pub(crate) fn owns(&self, target: Target) -> bool {
        self.target() == Some(target) || self.retired.iter().any(|retired| retired.target == target)
    }

    /// True if the line has left a vector on `cpu` that may still arrive.
    pub(crate) fn has_left(&self, cpu: CpuId) -> bool {
        self.retired.iter().any(|retired| retired.target.cpu == cpu)
    }

    /// How the line was shut down, if that happened because `cpu` goes offline.
    pub(crate) fn was_shut_down_for(&self, cpu: CpuId) -> Option<Shutdown> {
        self.life.shutdown().filter(|_| self.has_left(cpu))
    }

    /// True if handlers may be called at all.
    #[inline]
    pub(crate) fn is_enabled(&self) -> bool {
        self.depth == 0 && self.is_live() && !self.entries.is_empty() && !self.storm.is_throttled()
    }

    /// Counts the interrupt if the line has no handler.
    #[inline]
    pub(crate) fn note_unexpected(&mut self) {
        if self.entries.is_empty() {
            self.unexpected += 1;
        }
    }

    pub(crate) fn mask(&mut self) {
        if let Some(hardware) = self.life.hardware().filter(|_| !self.masked) {
            hardware.mask();
            self.masked = true;
            self.is_deaf = hardware.ops.forgets_masked && !self.oneshot && !self.entries.is_empty();
        }
    }

    /// True if the line is delivered without its lock.
    pub(crate) fn is_unlocked(&self) -> bool {
        self.flow == Flow::PerCpu || self.nmi
    }

    pub(crate) fn has_threads(&self) -> bool {
        self.thread_numbers != 0
    }

    /// True if the controller itself holds an acknowledged line back until a thread ends it.
    pub(crate) fn flow_masks(&self) -> bool {
        self.hardware().is_some_and(|hardware| hardware.ops.flow_masks)
    }

    /// True if a thread may give the eoi.
    pub(crate) fn takes_late_eoi(&self) -> bool {
        self.hardware().is_some_and(|hardware| hardware.ops.eoi_threaded)
    }

    /// Releases the line from its hold. Gives an eoi that is still owed, even if the line was
    /// disabled meanwhile (it would stay active for ever). Then unmasks the line if it may deliver.
    pub(crate) fn release(&mut self) {
        if self.owes_end()
            && let Some(hardware) = self.hardware()
        {
            hardware.eoi();
        }
        self.progress = Progress::Idle;
        self.unmask();
    }

    /// Unmasks the line if it may deliver, and brings back an interrupt that came meanwhile.
    pub(crate) fn unmask(&mut self) {
        if self.is_enabled()
            && !self.is_shut_down()
            && !self.is_held()
            && let Some(hardware) = self.life.hardware()
        {
            if self.masked {
                hardware.unmask();
                self.masked = false;
                // Something may have come that nobody kept.
                self.pending |= core::mem::take(&mut self.is_deaf);
            }
            // If a handler runs, its flow will see the pending mark itself.
            if self.pending && !self.is_running() {
                self.retrigger_pending();
            }
        }
    }

    /// Makes a pending interrupt come again, at the line's present target. It stays marked as pending if the hardware
    /// cannot do that. A level that is still raised comes back by itself.
    pub(crate) fn retrigger_pending(&mut self) {
        if let Some(hardware) = self.life.hardware() {
            self.pending = !self.is_resent_by_wire() && !hardware.retrigger();
        }
    }

    /// True if the line may deliver, or may once its threads are done, and a pending interrupt waits until the hardware
    /// can bring it back.
    pub(crate) fn waits_for_resend(&self) -> bool {
        let can_deliver = self.is_enabled() && !self.is_shut_down() && (!self.masked || self.is_held());
        let waits = self.pending && can_deliver && !self.is_running() && !self.is_resent_by_wire();
        waits && self.hardware().is_some_and(|hardware| hardware.can_retrigger())
    }

    /// True if the wire itself raises the interrupt again until the device is served.
    fn is_resent_by_wire(&self) -> bool {
        self.trigger.map_or(self.flow == Flow::Level, Trigger::is_level)
    }

    /// Updates `ready` from `entries`.
    pub(crate) fn refresh_actions(&mut self) {
        self.ready = Some(self.entries.iter().map(|entry| entry.installed.clone()).collect());
        self.oneshot = self.entries.first().is_some_and(|entry| entry.oneshot);
    }
}

/// One line, and the words that interrupts write without its lock.
pub(crate) struct Line<H: Hal> {
    pub(crate) state: Lock<H, LineState>,
    /// 0, or 1 + the CPU on which the handlers run.
    pub(crate) running: H::Word,
    pub(crate) handover: Handover<H::Word>,
    /// The handlers of a line that is delivered without a lock.
    pub(crate) unlocked: Published<H, Unlocked>,
    /// Number of interrupts on each CPU. Each CPU writes its own word.
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

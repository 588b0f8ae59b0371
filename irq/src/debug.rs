//! A view of every line, for people.

use crate::delivery::IrqCore;
use crate::line::Line;
use crate::{Flow, HardwareIrq, IdentityUse, Irq, Target, Trigger};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use hal::{CpuId, CpuSet, Hal, Word};

/// One level of a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LevelView {
    /// The domain's name.
    pub domain: String,
    /// The chip's name.
    pub chip: &'static str,
    /// The line's number at this level.
    pub hwirq: HardwareIrq,
}

/// The state of a line at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LineView {
    /// The line.
    pub irq: Irq,
    /// The names of its handlers.
    pub handlers: Vec<String>,
    /// Its flow.
    pub flow: Flow,
    /// The levels, from the device to the CPU.
    pub levels: Vec<LevelView>,
    /// The handlers share the line.
    pub shared: bool,
    /// The line's affinity is managed.
    pub managed: bool,
    /// The line is managed, and none of its CPUs is online.
    pub shutdown: bool,
    /// Masked at its chip.
    pub masked: bool,
    /// An interrupt is waiting to be handled, as far as the core, or a chip of the asking CPU, knows.
    pub pending: bool,
    /// The line's handlers run.
    pub in_progress: bool,
    /// An interrupt was acknowledged and not ended: the handlers run, or the line's threads will end it.
    pub active: bool,
    /// The controller's active state holds the line back, not its mask.
    pub flow_masked: bool,
    /// The line is held back until its threads are done.
    pub oneshot: bool,
    /// Handlers that have a thread.
    pub threads: u32,
    /// Threads that run, or are woken.
    pub threads_working: u32,
    /// The line is a pseudo-NMI.
    pub nmi: bool,
    /// The trigger of the line's wire, if the core was told.
    pub trigger: Option<Trigger>,
    /// The CPUs on which a per-CPU line is enabled.
    pub percpu_enabled: CpuSet,
    /// Number of disables that no enable has undone.
    pub disabled_depth: u32,
    /// The CPUs on which the line may be delivered.
    pub affinity: CpuSet,
    /// The target at which the line is delivered.
    pub effective: Option<Target>,
    /// Vectors that the line has left and that may still be pending.
    pub retired: Vec<Target>,
    /// A change of affinity is not applied yet.
    pub move_wanted: bool,
    /// The line is masked as a storm until this time, in nanoseconds.
    pub throttled_until_ns: Option<u64>,
    /// Storms so far.
    pub storms: u32,
    /// Interrupts, on all CPUs.
    pub count: u64,
    /// Interrupts that no handler claimed.
    pub unhandled: u64,
    /// Interrupts that arrived while the line had no handler.
    pub unexpected: u64,
}

impl<H: Hal> IrqCore<H> {
    /// What lines have of the identities of `cpu`; none for a CPU that does not exist.
    pub fn identities_of(&self, cpu: CpuId) -> Option<IdentityUse> {
        self.matrix.lock().use_of(cpu)
    }

    /// Every allocated line.
    pub fn views(&self) -> Vec<LineView> {
        self.lines.iter().filter_map(|line| self.view_of(line)).collect()
    }

    /// The state of one line; none when the line is not allocated.
    pub fn view(&self, irq: Irq) -> Option<LineView> {
        self.view_of(self.lines.get(irq.0 as usize)?)
    }

    fn view_of(&self, line: &Line<H>) -> Option<LineView> {
        let state = line.state.lock();
        let hardware = state.hardware().filter(|_| state.is_live())?;
        let levels = hardware.levels.iter().zip(&hardware.domains).map(|(level, domain)| LevelView {
            domain: domain.name().into(),
            chip: level.chip.name(),
            hwirq: level.hwirq,
        });
        // This CPU cannot see another CPU's requests: only a target on this CPU is looked up.
        let here = state.target().filter(|target| target.cpu == self.hal.cpu());
        Some(LineView {
            irq: hardware.irq,
            handlers: state.entries.iter().map(|entry| entry.name.clone()).collect(),
            flow: state.flow,
            levels: levels.collect(),
            shared: state.entries.iter().any(|entry| entry.shared),
            managed: hardware.managed,
            shutdown: state.is_shut_down(),
            masked: state.masked,
            pending: state.pending || here.is_some_and(|target| hardware.is_pending(target)),
            in_progress: state.is_running(),
            active: state.owes_end(),
            flow_masked: state.owes_end() && state.flow_masks(),
            oneshot: state.oneshot,
            threads: state.entries.iter().filter(|entry| entry.installed.thread.is_some()).count() as u32,
            threads_working: line.handover.working().count_ones(),
            nmi: state.nmi,
            trigger: state.trigger,
            percpu_enabled: state.percpu_enabled.clone(),
            disabled_depth: state.depth,
            affinity: state.affinity.clone(),
            effective: state.target(),
            retired: state.retired.iter().map(|retired| retired.target).collect(),
            move_wanted: state.move_wanted(),
            throttled_until_ns: state.storm.is_throttled().then_some(state.storm.until_ns),
            storms: state.storm.storms,
            count: line.counts.iter().map(Word::get).sum(),
            unhandled: state.unhandled,
            unexpected: state.unexpected,
        })
    }
}

impl LineView {
    fn flags(&self) -> impl Iterator<Item = &'static str> {
        [
            (self.shared, "shared"),
            (self.managed, "managed"),
            (self.shutdown, "shut-down"),
            (self.masked, "masked"),
            (self.pending, "pending"),
            (self.in_progress, "in-progress"),
            (self.active, "active"),
            (self.flow_masked, "flow-masked"),
            (self.oneshot, "oneshot"),
            (self.nmi, "nmi"),
            (self.move_wanted, "move-wanted"),
            (self.throttled_until_ns.is_some(), "throttled"),
        ]
        .into_iter()
        .filter_map(|(set, name)| set.then_some(name))
    }
}

impl fmt::Display for LineView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "irq {}: {}", self.irq, self.flow)?;
        for name in &self.handlers {
            write!(f, " {name}")?;
        }
        if let Some(trigger) = self.trigger {
            write!(f, ", {trigger}")?;
        }
        writeln!(f)?;
        for level in &self.levels {
            writeln!(f, "  domain {} chip {} hwirq {:#x}", level.domain, level.chip, level.hwirq.0)?;
        }
        write!(f, "  flags")?;
        for flag in self.flags() {
            write!(f, " {flag}")?;
        }
        writeln!(f)?;
        write!(f, "  disabled depth {} affinity {}", self.disabled_depth, self.affinity)?;
        if let Some(target) = self.effective {
            write!(f, " effective {target}")?;
        }
        for target in &self.retired {
            write!(f, " leaving {target}")?;
        }
        writeln!(f)?;
        if self.threads != 0 {
            writeln!(f, "  threads {} of which {} at work", self.threads, self.threads_working)?;
        }
        if !self.percpu_enabled.is_empty() {
            writeln!(f, "  enabled on {}", self.percpu_enabled)?;
        }
        if let Some(until_ns) = self.throttled_until_ns {
            writeln!(f, "  storm: masked until {until_ns} ns")?;
        }
        let Self { count, unhandled, unexpected, storms, .. } = self;
        writeln!(f, "  count {count} unhandled {unhandled} unexpected {unexpected} storms {storms}")
    }
}

//! The machine from outside: built, run, read out, shut down.

use crate::core::Core;
use crate::cpu::{CpuTimes, Exception};
use crate::current;
use crate::event::Event;
use crate::fabric::port::Credits;
use crate::fault::FaultRecord;
use crate::gic::{self, Gic, GicWindows, IntState, Interrupts};
use crate::model::{Model, ModelId};
use crate::observe::{self, Fact, Observer};
use crate::simhal::{Regs, SimHal};
use crate::threads::Yield;
use crate::time::Ps;
use crate::trace::Span;
use crate::unrest::{self, Unrest};
use hal::{Affinity, CpuId, Hal as _, ThreadSpec, Work};
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

/// What the CPUs' own actions cost.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Costs {
    /// A unit of each kind of named work, by `Work as usize`, in ps.
    pub work_ps: [u64; Work::COUNT],
    /// From the interrupt's arrival at a halted CPU to its first instruction.
    pub wake_from_idle: Ps,
    /// A read of a device register: the CPU waits for the answer.
    pub register_read: Ps,
    /// A posted write to a device register: a doorbell.
    pub register_write: Ps,
    /// A write to the local APIC: an EOI.
    pub lapic_write: Ps,
    /// What a write that ends a level-triggered interrupt costs beside: on a virtual machine it exits.
    pub level_eoi: Ps,
    /// An atomic update by a CPU of a line that devices update too; it holds the line that long.
    pub line_update: Ps,
    /// From the sender's register write to the arrival at the other CPU's LAPIC.
    pub ipi: Ps,
    /// A tick of the LAPIC timer's clock, undivided.
    pub timer_tick: Ps,
    /// How long a thread runs while another waits for its CPU.
    pub time_slice: Ps,
}

impl Default for Costs {
    /// Free actions on a 1 GHz timer clock and 3 ms slices: for tests of order, not of time.
    fn default() -> Self {
        Self {
            work_ps: [0; Work::COUNT],
            wake_from_idle: Ps(0),
            register_read: Ps(1000),
            register_write: Ps(1000),
            lapic_write: Ps(0),
            level_eoi: Ps(0),
            line_update: Ps(1000),
            ipi: Ps(1000),
            timer_tick: Ps(1000),
            time_slice: Ps::from_ns(3_000_000),
        }
    }
}

/// What machine to build.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MachineConfig {
    /// CPUs, at least 1. Their APIC ids are their numbers.
    pub cpus: u32,
    /// Memory for DMA; the host commits what is touched.
    pub memory_bytes: usize,
    /// Of every random stream.
    pub seed: u64,
    /// Of every time that a model draws, uniform, ± this many percent.
    pub jitter_percent: u32,
    /// What CPUs' actions cost.
    pub costs: Costs,
    /// What delivers interrupts to the CPUs.
    pub interrupts: Interrupts,
    /// The vector of a reschedule IPI.
    pub reschedule_vector: u8,
    /// The vector of the local timer.
    pub timer_vector: u8,
    /// The watchdog: an interrupt that keeps its CPU for longer is recorded as a fault, once a CPU with a count.
    pub interrupt_limit: Option<Ps>,
    /// Spans kept for a trace; 0: none.
    pub trace_spans_max: usize,
    /// Whether the engine may return at once from a wait during which nothing is due. Off only to show that it
    /// makes no difference.
    pub short_cuts: bool,
    /// How many points of the seam, looks at the clock and events may follow each other at one instant, before the run
    /// ends as a [`RunEnd::Livelock`].
    pub still_steps_max: u32,
    /// A random schedule; none, and nothing is disturbed.
    pub unrest: Option<Unrest>,
}

impl Default for MachineConfig {
    fn default() -> Self {
        Self {
            cpus: 1,
            memory_bytes: 64 << 20,
            seed: 1,
            jitter_percent: 0,
            costs: Costs::default(),
            interrupts: Interrupts::X2Apic,
            reschedule_vector: 0xfd,
            timer_vector: 0xec,
            interrupt_limit: None,
            trace_spans_max: 0,
            short_cuts: true,
            still_steps_max: 10_000_000,
            unrest: None,
        }
    }
}

/// Why a run ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RunEnd {
    /// The time that was asked for is reached; something is still due.
    Time,
    /// Nothing is pending and no CPU waits for a word: every thread sleeps or has ended.
    Quiet,
    /// Nothing is pending, but these CPUs wait for a word that nobody will write.
    Deadlock(Vec<CpuId>),
    /// Something went round without time passing, [`MachineConfig::still_steps_max`] times: a poll without a delay, a
    /// model that sends itself events at the present. The machine can be read out, but goes on no more.
    Livelock {
        /// Whose code; `None`: it was models.
        cpu: Option<CpuId>,
    },
}

/// A boot that did not end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BootError {
    /// The time limit passed.
    TimeLimit(Ps),
    /// Everything sleeps.
    Stuck(RunEnd),
}

impl fmt::Display for BootError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimeLimit(limit) => write!(f, "the boot thread has not ended after {limit} of simulated time"),
            Self::Stuck(end) => write!(f, "the boot thread waits for ever: {end:?}"),
        }
    }
}

impl std::error::Error for BootError {}

/// What the engine did, for benchmarks and for comparing runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EngineCounters {
    /// Events that an agent could see.
    pub events: u64,
    /// Entries into a coroutine.
    pub switches: u64,
    /// Over every event's time, target and content: equal runs have equal digests.
    pub digest: u64,
}

/// A simulated machine. It belongs to the host thread that built it, and is the only one there while it lives.
///
/// Between runs it stands still, and [`SimHal`] may be used from outside as from a console: no time passes, register
/// writes arrive when the machine runs again, and only waiting for a word lets it run on a little.
pub struct Machine {
    core: Box<Core>,
    gic_credits: Credits,
}

impl Machine {
    /// A machine with CPUs and memory, at time 0, nothing else in it.
    ///
    /// # Panics
    /// When this host thread has a machine already, or `cpus` is 0.
    pub fn new(config: MachineConfig) -> Self {
        assert!(config.cpus > 0, "a machine needs a CPU");
        let gic_credits = Credits::default();
        let gic = Gic::new(&config, gic_credits.clone());
        let core = Box::new(Core::new(config));
        current::install(&core);
        if let Some(gic) = gic {
            core.add_model(|_| Box::new(gic));
        }
        Self { core, gic_credits }
    }

    /// The register windows of the machine's GIC, and the model to which wires and messages go.
    pub fn gic(&self) -> Option<GicWindows> {
        GicWindows::of(&self.core.config.interrupts)
    }

    /// The places of root ports in front of the GIC, to build [`crate::fabric::port::RootPort`]s with.
    pub fn gic_credits(&self) -> &Credits {
        &self.gic_credits
    }

    /// Adds a model, built knowing its number.
    ///
    /// # Panics
    /// When the machine has run already.
    pub fn add_model(&mut self, build: impl FnOnce(ModelId) -> Box<dyn Model>) -> ModelId {
        self.core.add_model(build)
    }

    /// The registers of `region` of a model.
    pub fn regs(&self, model: ModelId, region: u8) -> Regs {
        Regs::Model { model, region }
    }

    /// Sends a model an event, as a test or a fault plan does.
    pub fn poke(&mut self, model: ModelId, at: Ps, code: u32, arg: u64) {
        self.core.push(at.max(self.core.now()), Event::for_model(model, code, arg));
    }

    /// Looks at a model, or changes it between runs.
    pub fn with_model<M: 'static, R>(&mut self, model: ModelId, f: impl FnOnce(&mut M) -> R) -> Option<R> {
        self.core.model(model).borrow_mut().as_any().downcast_mut().map(f)
    }

    /// Looks at any model through its trait.
    pub fn with_any_model<R>(&mut self, model: ModelId, f: impl FnOnce(&mut dyn Model) -> R) -> R {
        f(&mut **self.core.model(model).borrow_mut())
    }

    /// What runs when a CPU takes a vector, interrupts off, on top of what it interrupted: the IDT.
    ///
    /// # Panics
    /// When there is one already.
    pub fn set_interrupt_entry(&mut self, entry: impl Fn(u8) + 'static) {
        self.set_exception_entry(move |exception| {
            if let Exception::Vector(vector) = exception {
                entry(vector);
            }
        });
    }

    /// What runs when a CPU takes an interrupt, on a machine of either architecture. With a GIC the exception names no
    /// interrupt: `entry` acknowledges at its CPU interface.
    ///
    /// # Panics
    /// When there is an entry already.
    pub fn set_exception_entry(&mut self, entry: impl Fn(Exception) + 'static) {
        assert!(self.core.entry.set(Box::new(entry)).is_ok(), "the interrupt entry is set once");
    }

    /// Who hears from now on what the hardware does ([`crate::observe`]). It must not call the machine.
    ///
    /// # Panics
    /// When there is an observer already.
    pub fn set_observer(&mut self, observer: impl FnMut(Ps, Fact) + 'static) {
        let observer: Observer = RefCell::new(Box::new(observer));
        assert!(self.core.observer.set(observer).is_ok(), "the observer is set once");
        self.core.watched.set(true);
    }

    /// The local APIC of a CPU: its IRR and its ISR, vector v in bit v % 64 of word v / 64. `None` of a CPU that does
    /// not exist.
    pub fn lapic_vectors(&self, cpu: CpuId) -> Option<[[u64; 4]; 2]> {
        self.core.real_cpus().get(cpu.index()).map(|cpu| cpu.lapic.borrow().vectors())
    }

    /// An SGI, PPI or SPI as `cpu` sees it, or an LPI pending there; `None` of what does not exist.
    pub fn gic_state(&self, cpu: CpuId, intid: u32) -> Option<IntState> {
        self.core.config.interrupts.gic()?;
        let mut model = self.core.model(gic::MODEL).borrow_mut();
        model.as_any().downcast_ref::<Gic>()?.state(cpu.0, intid)
    }

    /// 64 bits of memory as they are; `None` where no memory is, or for an address that is not a multiple of 8.
    pub fn peek64(&self, address: u64) -> Option<u64> {
        observe::peek64(address)
    }

    /// Whether a CPU stands halted, or never ran.
    pub fn is_halted(&self, cpu: CpuId) -> bool {
        self.core.real_cpus().get(cpu.index()).is_some_and(|cpu| cpu.idle.get())
    }

    /// Runs `body` as a thread on CPU 0 until it has ended, and returns what it returned. For set-up and take-down.
    ///
    /// # Errors
    /// When it has not ended after `limit` of simulated time, or never will.
    pub fn run_boot<R: Send + 'static>(
        &mut self,
        limit: Ps,
        body: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, BootError> {
        let result = Arc::new(Mutex::new(None));
        let slot = result.clone();
        let boot = move || {
            let value = body();
            *slot.lock().expect("the boot thread alone writes it") = Some(value);
            current::with(|core| core.stop_at(core.local_now()));
        };
        let spec = ThreadSpec { name: "boot", affinity: Affinity::Cpu(CpuId(0)), urgent: false };
        SimHal.spawn(spec, Box::new(boot)).expect("CPU 0 exists");
        let deadline = self.core.now() + limit;
        let end = self.run_until(deadline);
        let value = result.lock().expect("the boot thread has ended").take();
        match (value, end) {
            (Some(value), _) => Ok(value),
            (None, RunEnd::Time) => Err(BootError::TimeLimit(limit)),
            (None, end) => Err(BootError::Stuck(end)),
        }
    }

    /// Runs until `end`, or until nothing can happen any more.
    pub fn run_until(&mut self, end: Ps) -> RunEnd {
        self.core.models();
        self.core.runs.set(self.core.runs.get() + 1);
        self.core.stop_at(end);
        match self.core.run() {
            Yield::Livelock => RunEnd::Livelock { cpu: self.core.guard.found().and_then(|found| found.cpu) },
            Yield::Stop if self.core.is_anything_due() => RunEnd::Time,
            _ => self.quiet(),
        }
    }

    fn quiet(&self) -> RunEnd {
        let waits = |cpu: &&crate::cpu::Cpu| cpu.relaxes_on.get() != 0;
        let stuck: Vec<_> = self.core.cpus.iter().filter(waits).map(|cpu| cpu.id).collect();
        if stuck.is_empty() { RunEnd::Quiet } else { RunEnd::Deadlock(stuck) }
    }

    /// The present.
    pub fn now(&self) -> Ps {
        self.core.now()
    }

    /// Where each CPU's time went since the start.
    pub fn cpu_times(&self) -> Vec<CpuTimes> {
        self.core.real_cpus().iter().map(crate::cpu::Cpu::times).collect()
    }

    /// The longest that one interrupt has kept a CPU, from its acceptance to its return, since this was last asked. One that
    /// has not returned counts with what it took so far.
    pub fn take_longest_interrupt(&self) -> Ps {
        let longest = self.core.real_cpus().iter().map(|cpu| {
            let running =
                if cpu.depth.get() > 0 { self.now().saturating_sub(cpu.interrupt_since.get()) } else { Ps(0) };
            cpu.longest_interrupt.replace(Ps(0)).max(running)
        });
        longest.max().unwrap_or(Ps(0))
    }

    /// What the engine did since the start.
    pub fn engine_counters(&self) -> EngineCounters {
        EngineCounters {
            events: self.core.events.get(),
            switches: self.core.switches.get(),
            digest: self.core.digest(),
        }
    }

    /// Faults in the order in which each kind was first seen, and how many found no room.
    pub fn faults(&self) -> (Vec<FaultRecord>, u64) {
        self.core.faults()
    }

    /// How often the random schedule disturbed it, by [`unrest::Kind`]; zeros without one.
    pub fn unrest_counts(&self) -> [u64; unrest::Kind::COUNT] {
        self.core.unrest.as_ref().map_or([0; unrest::Kind::COUNT], |unrest| unrest.counts())
    }

    /// The spans traced so far; they are handed over.
    pub fn take_spans(&mut self) -> Vec<Span> {
        self.core.take_spans()
    }

    /// Turns tracing off or on again; how many spans are kept was set when the machine was built.
    pub fn set_tracing(&mut self, on: bool) {
        self.core.set_tracing(on);
    }

    /// The name of a model.
    pub fn model_name(&self, model: ModelId) -> Rc<str> {
        self.core.model(model).borrow().name().into()
    }
}

impl Drop for Machine {
    /// Marks the machine dead, so that nothing waits any more, unwinds every coroutine, and forgets the machine.
    fn drop(&mut self) {
        self.core.dead.set(true);
        self.core.threads.unwind();
        current::uninstall();
    }
}

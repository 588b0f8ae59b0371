//! The machine's public interface: build, run, read out, shut down.

use crate::board::Board;
use crate::board::model::{Model, ModelId};
use crate::config::{Interrupts, MachineConfig};
use crate::core::{Core, current, peek64};
use crate::cpu::{CpuTimes, Exception};
use crate::event::Event;
use crate::fabric::port::Credits;
use crate::fault::FaultRecord;
use crate::gic::{self, Gic, GicWindows, IntState};
use crate::memory::Memory;
use crate::observe::Fact;
use crate::regs::Regs;
use crate::simhal::SimHal;
use crate::threads::Yield;
use crate::time::Ps;
use crate::trace::Span;
use crate::unrest;
use crate::unrest::turns::{Turn, Turns};
use hal::{Affinity, CpuId, ThreadSpec, Threads as _};
use std::fmt;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

/// Why a run ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RunEnd {
    /// The requested time is reached, and something is still due.
    Time,
    /// No event is pending and no CPU waits for a word: every thread sleeps or has ended.
    Quiet,
    /// No event is pending, but these CPUs wait for a word that no agent will write.
    Deadlock(Vec<CpuId>),
    /// A loop made [`MachineConfig::still_steps_max`] steps without time passing: a poll without a delay, or a model
    /// that sends itself events at the present. The machine can be read out but cannot continue.
    Livelock {
        /// The CPU whose code looped; `None` for models.
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

/// The host has no address space for a machine's memory of so many bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoMemory(pub usize);

impl fmt::Display for NoMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the host has no address space for a machine's memory of {} bytes", self.0)
    }
}

impl std::error::Error for NoMemory {}

/// Counts of the engine's work, for benchmarks and for comparing runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EngineCounters {
    /// Events that an agent could see.
    pub events: u64,
    /// Entries into a coroutine.
    pub switches: u64,
    /// Over every event's time, target and content: equal runs have equal digests.
    pub digest: u64,
}

/// A simulated machine. It belongs to the host thread that built it, which can have only one machine at a time.
///
/// Between runs the machine is stopped, and [`SimHal`] may be used from outside as from a console. No time passes, and
/// register writes arrive when the machine runs again. Only waiting for a word lets the machine run a little.
pub struct Machine {
    core: Box<Core>,
    interrupts: Interrupts,
    gic_credits: Credits,
}

impl Machine {
    /// A machine with only CPUs and memory, at time 0.
    ///
    /// # Panics
    /// As [`Machine::try_new`], and when the host has no address space for the memory.
    pub fn new(config: MachineConfig) -> Self {
        Self::try_new(config).expect("the host has address space")
    }

    /// The same, for memory that may be too much.
    ///
    /// # Errors
    /// [`NoMemory`].
    ///
    /// # Panics
    /// When this host thread has a machine already, or `cpus` is 0.
    pub fn try_new(config: MachineConfig) -> Result<Self, NoMemory> {
        assert!(config.cpus > 0, "a machine needs a CPU");
        let memory = Memory::new(config.memory_bytes).ok_or(NoMemory(config.memory_bytes))?;
        let gic_credits = Credits::default();
        let interrupts = config.interrupts.clone();
        let built = config.controller(&gic_credits);
        let core = Box::new(Core::new(config, memory, built.controller));
        current::install(&core);
        if let Some(model) = built.model {
            core.board().add_model(|_| model);
        }
        Ok(Self { core, interrupts, gic_credits })
    }

    fn board(&self) -> &Board {
        self.core.board()
    }

    /// The register windows of the machine's GIC, and the model that receives wires and messages.
    pub fn gic(&self) -> Option<GicWindows> {
        self.interrupts.versioned_gic().map(|(version, config)| GicWindows::new(version, config))
    }

    /// The credits of the root ports in front of the GIC, for building [`crate::fabric::port::RootPort`]s.
    pub fn gic_credits(&self) -> &Credits {
        &self.gic_credits
    }

    /// Adds a model. `build` receives the model's number.
    ///
    /// # Panics
    /// When the machine has run already.
    pub fn add_model(&mut self, build: impl FnOnce(ModelId) -> Box<dyn Model>) -> ModelId {
        self.board().add_model(build)
    }

    /// The registers of `region` of a model.
    pub fn regs(&self, model: ModelId, region: u8) -> Regs {
        Regs::Model { model, region }
    }

    /// Sends an event to a model, for tests and fault plans.
    pub fn poke(&mut self, model: ModelId, at: Ps, code: u32, arg: u64) {
        self.board().clock.push(at.max(self.now()), Event::for_model(model, code, arg));
    }

    /// Reads a model, or changes it between runs.
    pub fn with_model<M: 'static, R>(&mut self, model: ModelId, f: impl FnOnce(&mut M) -> R) -> Option<R> {
        self.board().model(model).borrow_mut().as_any().downcast_mut().map(f)
    }

    /// Reads any model through its trait.
    pub fn with_any_model<R>(&mut self, model: ModelId, f: impl FnOnce(&mut dyn Model) -> R) -> R {
        f(&mut **self.board().model(model).borrow_mut())
    }

    /// From now on, plain stores to this memory are told ([`crate::observe::Fact::Stored`]). One place at a time.
    ///
    /// # Panics
    /// If no memory is there.
    pub fn watch_stores(&mut self, address: u64, bytes: u64) {
        self.board().memory.watch(address, bytes).expect("memory to watch");
    }

    /// While `exhausted`, no allocation of memory for devices succeeds ([`hal::DmaError::Exhausted`]).
    pub fn set_memory_exhausted(&mut self, exhausted: bool) {
        self.board().memory.is_exhausted.set(exhausted);
    }

    /// While `refuses`, the ITS takes each command for one in error and stalls at it, as the architecture allows (IHI
    /// 0069H, "Command errors"); the second that it finds in the same place is executed. Without an ITS nothing happens.
    pub fn set_its_refuses(&mut self, refuses: bool) {
        self.with_model(gic::MODEL, |gic: &mut Gic| gic.set_its_refuses(refuses));
    }

    /// The ITS does `last_words` more commands, and ends none behind them before `until`: GITS_CREADR stands still, and no bit
    /// says why. A command that it has begun is no more of them. The architecture gives commands no time (IHI 0069H, "GITS_CREADR"). Without an ITS nothing happens.
    pub fn set_its_silent(&mut self, until: Ps, last_words: u32) {
        self.with_model(gic::MODEL, |gic: &mut Gic| gic.set_its_silent(until, last_words));
    }

    /// Sets the code that runs when a CPU takes a vector (the IDT). It runs with interrupts off, on top of the
    /// interrupted code.
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

    /// Sets the code that runs when a CPU takes an interrupt, on a machine of either architecture. With a GIC the
    /// exception names no interrupt: `entry` acknowledges at its CPU interface.
    ///
    /// # Panics
    /// When there is an entry already.
    pub fn set_exception_entry(&mut self, entry: impl Fn(Exception) + 'static) {
        assert!(self.core.set_entry(entry), "the interrupt entry is set once");
    }

    /// Installs the hardware observer ([`crate::observe`]). It must not call the machine.
    ///
    /// # Panics
    /// When there is an observer already.
    pub fn set_observer(&mut self, observer: impl FnMut(Ps, Fact) + 'static) {
        assert!(self.board().witness.set_observer(observer), "the observer is set once");
    }

    /// The local APIC of a CPU: its IRR and its ISR, vector v in bit v % 64 of word v / 64. `None` if the CPU does not
    /// exist.
    pub fn lapic_vectors(&self, cpu: CpuId) -> Option<[[u64; 4]; 2]> {
        self.board().cpus.real().get(cpu.index())?;
        self.board().controller().vectors(cpu)
    }

    /// An SGI, PPI or SPI as `cpu` sees it, or an LPI pending there. `None` if the interrupt does not exist.
    pub fn gic_state(&self, cpu: CpuId, intid: u32) -> Option<IntState> {
        self.interrupts.gic()?;
        let mut model = self.board().model(gic::MODEL).borrow_mut();
        model.as_any().downcast_ref::<Gic>()?.state(cpu.0, intid)
    }

    /// 64 bits of memory as they are; `None` where no memory is, or for an address that is not a multiple of 8.
    pub fn peek64(&self, address: u64) -> Option<u64> {
        peek64(address)
    }

    /// True if a CPU is halted or never ran.
    pub fn is_halted(&self, cpu: CpuId) -> bool {
        self.board().cpus.real().get(cpu.index()).is_some_and(crate::cpu::Cpu::is_idle)
    }

    /// Runs `body` as a thread on CPU 0 until it has ended, and returns its result. For set-up and take-down.
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
            current::with(|core| core.board().clock.stop_at(core.board().local_now()));
        };
        let spec = ThreadSpec { name: "boot", affinity: Affinity::Cpu(CpuId(0)), urgent: false };
        SimHal.spawn(spec, Box::new(boot)).expect("CPU 0 exists");
        let deadline = self.now() + limit;
        let end = self.run_until(deadline);
        let value = result.lock().expect("the boot thread has ended").take();
        match (value, end) {
            (Some(value), _) => Ok(value),
            (None, RunEnd::Time) => Err(BootError::TimeLimit(limit)),
            (None, end) => Err(BootError::Stuck(end)),
        }
    }

    /// Runs until `end`, or until no event can happen any more.
    pub fn run_until(&mut self, end: Ps) -> RunEnd {
        let clock = &self.board().clock;
        self.board().models();
        clock.begin_run(end);
        match self.core.run() {
            Yield::Livelock => RunEnd::Livelock { cpu: clock.guard().found().and_then(|found| found.cpu) },
            Yield::Stop if clock.is_anything_due() => RunEnd::Time,
            _ => self.quiet(),
        }
    }

    fn quiet(&self) -> RunEnd {
        let stuck = self.board().cpus.stuck();
        if stuck.is_empty() { RunEnd::Quiet } else { RunEnd::Deadlock(stuck) }
    }

    /// The present.
    pub fn now(&self) -> Ps {
        self.board().now()
    }

    /// The use of each CPU's time since the start.
    pub fn cpu_times(&self) -> Vec<CpuTimes> {
        self.board().cpus.real().iter().map(crate::cpu::Cpu::times).collect()
    }

    /// The longest time from one interrupt's acceptance to its return, since the last call. An interrupt that has not
    /// returned yet counts with its time so far.
    pub fn take_longest_interrupt(&self) -> Ps {
        let now = self.now();
        let longest = self.board().cpus.real().iter().map(|cpu| cpu.take_longest_interrupt(now));
        longest.max().unwrap_or(Ps(0))
    }

    /// The engine's counters since the start.
    pub fn engine_counters(&self) -> EngineCounters {
        let witness = &self.board().witness;
        EngineCounters { events: witness.events(), switches: witness.switches(), digest: witness.digest() }
    }

    /// Faults in the order in which each kind was first seen, and how many found no room.
    pub fn faults(&self) -> (Vec<FaultRecord>, u64) {
        self.board().witness.faults()
    }

    /// Number of disturbances by the random schedule, by [`unrest::Kind`]; zeros without a random schedule.
    pub fn unrest_counts(&self) -> [u64; unrest::Kind::COUNT] {
        self.board().unrest().map_or([0; unrest::Kind::COUNT], |unrest| unrest.counts())
    }

    /// The turns of a directed schedule so far, and how many of its switches took place.
    pub fn turns(&self) -> (Vec<Turn>, usize) {
        let turns = self.board().unrest().and_then(|unrest| unrest.turns.as_ref());
        turns.map(Turns::report).unwrap_or_default()
    }

    /// Takes the spans traced so far.
    pub fn take_spans(&mut self) -> Vec<Span> {
        self.board().witness.take_spans()
    }

    /// Turns tracing on or off. The number of spans to keep was set when the machine was built.
    pub fn set_tracing(&mut self, on: bool) {
        self.board().witness.set_tracing(on);
    }

    /// The name of a model.
    pub fn model_name(&self, model: ModelId) -> Rc<str> {
        self.board().model(model).borrow().name().into()
    }
}

impl Drop for Machine {
    /// Marks the machine dead, so that no wait blocks any more. Unwinds every coroutine and uninstalls the machine.
    fn drop(&mut self) {
        self.core.shut_down();
        current::uninstall();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_of_too_much_memory_is_an_error() {
        let of = |memory_bytes| Machine::try_new(MachineConfig { memory_bytes, ..MachineConfig::default() });
        // More than the 47 bits of addresses that a process has.
        assert_eq!(of(1 << 50).err(), Some(NoMemory(1 << 50)));
        assert!(of(4096).is_ok(), "nothing is left of the first");
    }
}

//! The board: everything that models can reach through their [`World`]. The code that CPUs run is not part of it.
//!
//! [`Model`], [`World`] and [`Board`] refer to each other, so they share this folder: a model gets a world, a world
//! reads the board, and the board holds the models.

pub(crate) mod controller;
pub mod model;
pub mod world;

use crate::clock::Clock;
use crate::costs::Costs;
use crate::cpu::{Account, Cpu, Cpus, IrqInput};
use crate::event::{Event, INDEX_MASK, KIND_WRITE, cpu_event};
use crate::fault::FaultRecord;
use crate::memory::{BusError, Memory};
use crate::observe::Fact;
use crate::random::Stream;
use crate::setback;
use crate::time::Ps;
use crate::trace::{Span, Track};
use crate::unrest::{self, Kind, Unrest};
use crate::witness::Witness;
use crate::word::Word;
use controller::Controller;
use hal::CpuId;
use model::{Model, ModelId};
use std::cell::{OnceCell, RefCell};
use world::World;

/// A model and its place in the board.
pub(crate) type Slot = RefCell<Box<dyn Model>>;

/// The configuration of one board.
pub(crate) struct BoardConfig {
    pub(crate) cpus: u32,
    pub(crate) seed: u64,
    pub(crate) jitter_percent: u32,
    pub(crate) costs: Costs,
    pub(crate) spans_max: usize,
    pub(crate) still_steps_max: u32,
    pub(crate) unrest: Option<Unrest>,
}

impl Default for BoardConfig {
    /// One CPU, no memory, free actions, no tracing and no disturbance.
    fn default() -> Self {
        Self {
            cpus: 1,
            seed: 1,
            jitter_percent: 0,
            costs: Costs::default(),
            spans_max: 0,
            still_steps_max: 10_000_000,
            unrest: None,
        }
    }
}

/// Clock, CPUs, memory, witness and models. One host thread uses them, so they are cells. No borrow is held while a
/// coroutine is suspended or an interrupt is entered.
pub(crate) struct Board {
    pub(crate) clock: Clock,
    pub(crate) cpus: Cpus,
    pub(crate) memory: Memory,
    pub(crate) witness: Witness,
    pub(crate) costs: Costs,
    controller: Box<dyn Controller>,
    models: OnceCell<Box<[Slot]>>,
    /// Models before the machine starts.
    building: RefCell<Vec<Slot>>,
    streams: RefCell<Vec<Stream>>,
    seed: u64,
    jitter_percent: u32,
    unrest: Option<Box<unrest::State>>,
    pub(crate) setback: setback::State,
}

impl Board {
    pub(crate) fn new(config: BoardConfig, memory: Memory, controller: Box<dyn Controller>) -> Self {
        let is_disturbed = config.unrest.is_some();
        Self {
            clock: Clock::new(config.cpus as usize + 1, config.still_steps_max),
            cpus: Cpus::new(config.cpus),
            memory,
            witness: Witness::new(config.spans_max, is_disturbed),
            costs: config.costs,
            controller,
            models: OnceCell::new(),
            building: RefCell::default(),
            streams: RefCell::default(),
            seed: config.seed,
            jitter_percent: config.jitter_percent,
            unrest: config.unrest.map(|unrest| Box::new(unrest::State::new(unrest))),
            setback: setback::State::default(),
        }
    }

    /// The interrupt controller of the CPUs.
    #[inline]
    pub(crate) fn controller(&self) -> &dyn Controller {
        &*self.controller
    }

    #[inline]
    pub(crate) fn now(&self) -> Ps {
        self.clock.now()
    }

    /// The running CPU.
    #[inline]
    pub(crate) fn cpu(&self) -> &Cpu {
        self.cpus.running()
    }

    /// The present as the running CPU sees it, with its debt already passed.
    #[inline]
    pub(crate) fn local_now(&self) -> Ps {
        Ps(self.now().0 + self.cpu().debt())
    }

    /// Adds work that the running CPU does for its kernel to the CPU's debt.
    #[inline]
    pub(crate) fn owe(&self, cost: Ps) {
        let cpu = self.cpu();
        cpu.owe(cost.0, cpu.kernel_account());
    }

    /// Adds work of the running CPU to its debt, traces its span and informs the observer.
    #[cold]
    pub(crate) fn owe_watched(&self, work: hal::Work, count: u32, cost: u64, account: Account) {
        let cpu = self.cpu();
        if cost > 0 {
            self.trace_cpu(self.costs.work.of(work).name, self.local_now(), Ps(cost), count.into());
        }
        self.tell_of_cpu(|id| Fact::Worked { cpu: id, depth: cpu.depth(), work, count });
        cpu.owe(cost, account);
    }
}

/// Models.
impl Board {
    pub(crate) fn add_model(&self, build: impl FnOnce(ModelId) -> Box<dyn Model>) -> ModelId {
        assert!(self.models.get().is_none(), "models are added before the machine starts");
        let id = ModelId(self.building.borrow().len() as u32);
        self.streams.borrow_mut().push(Stream::new(self.seed, id.0.into()));
        let model = RefCell::new(build(id));
        self.building.borrow_mut().push(model);
        id
    }

    #[inline]
    pub(crate) fn models(&self) -> &[Slot] {
        self.models.get_or_init(|| self.building.take().into_boxed_slice())
    }

    #[inline]
    pub(crate) fn model(&self, id: ModelId) -> &Slot {
        &self.models()[id.0 as usize]
    }

    /// Handles a model's event that an agent can observe. Part of the event loop: a call would take 16 instructions an event.
    #[inline(always)]
    pub(crate) fn dispatch(&self, at: Ps, event: Event) {
        self.witness.note(at, event);
        let id = ModelId(event.target() & INDEX_MASK);
        if event.target() >> 30 == KIND_WRITE {
            let (region, offset, width_bytes) = event.write_target();
            return self.write_register(id, region, offset, width_bytes, event.arg);
        }
        if self.setback.is_stalled() {
            return self.setback.hold(event);
        }
        self.clock.set_handling(true);
        self.model_event(id, event.code(), event.arg);
        self.clock.set_handling(false);
    }

    /// Passes an event to its model.
    #[inline]
    pub(crate) fn model_event(&self, id: ModelId, code: u32, arg: u64) {
        self.model(id).borrow_mut().event(&mut World::new(self, id), code, arg);
    }

    /// The running CPU reads a register now.
    #[inline]
    pub(crate) fn read_register(&self, id: ModelId, region: u8, offset: u32, width_bytes: u8) -> u64 {
        self.model(id).borrow_mut().read(&mut World::new(self, id), region, offset, width_bytes)
    }

    /// A register write arrives.
    #[inline]
    pub(crate) fn write_register(&self, id: ModelId, region: u8, offset: u32, width_bytes: u8, value: u64) {
        self.model(id).borrow_mut().write(&mut World::new(self, id), region, offset, width_bytes, value);
    }

    /// Informs the I/O APICs that a level-triggered vector ended.
    pub(crate) fn broadcast_eoi(&self, vector: u8) {
        for (index, model) in self.models().iter().enumerate() {
            model.borrow_mut().eoi_broadcast(&mut World::new(self, ModelId(index as u32)), vector);
        }
    }

    /// `mean` ± the configured percentage, uniformly distributed.
    fn jitter(&self, of: ModelId, mean: Ps) -> Ps {
        let percent = self.jitter_percent;
        if percent == 0 || mean.0 == 0 {
            return mean;
        }
        let span = mean.0 * u64::from(percent) / 50;
        // The high word of the product: uniform in 0..=span up to an error of 2^-64.
        let drawn = ((u128::from(self.random(of)) * u128::from(span + 1)) >> 64) as u64;
        Ps(mean.0 - span / 2 + drawn)
    }

    fn random(&self, of: ModelId) -> u64 {
        self.streams.borrow_mut()[of.0 as usize].next()
    }
}

/// Memory.
impl Board {
    pub(crate) fn memory_word(&self, address: u64, bytes: u32) -> Result<&Word, BusError> {
        self.memory.word(address, bytes)
    }

    /// Reserves a cache line for an atomic update by `of`, which takes the line from its owner first.
    fn line_reserve(&self, of: ModelId, address: u64, earliest: Ps, cost: Ps) -> Ps {
        let moved = !self.memory.is_line_of(address, of);
        let transfer = if moved { self.jitter(of, self.costs.line_move) } else { Ps(0) };
        let late = self.late(Kind::SlowLine);
        self.memory.reserve_line(address, of, earliest.max(self.now()), cost + transfer + late)
    }

    /// A word was written: CPUs that wait on it continue.
    #[inline]
    pub(crate) fn word_written(&self, word: &Word) {
        if self.cpus.is_any_relaxing() {
            self.end_relaxing(word);
        }
    }

    #[cold]
    #[inline(never)]
    fn end_relaxing(&self, word: &Word) {
        self.cpus.for_each_relaxing(word.host_address(), |cpu| {
            self.clock.push(self.now(), Event::for_cpu(cpu.id, cpu_event::RESUME, cpu.generation()));
        });
    }
}

/// Delivery of interrupts to CPUs.
impl Board {
    /// Delivers an interrupt message to the CPU of this APIC id. False when no CPU accepts it.
    fn message(&self, apic_id: u32, vector: u8, level: bool) -> bool {
        self.controller.message(self, apic_id, vector, level)
    }

    /// Sets the request input of `cpu` to `input`.
    #[inline]
    pub(crate) fn drive(&self, cpu: &Cpu, input: IrqInput) {
        cpu.set_irq_input(input);
        self.request_accept(cpu);
    }

    fn set_irq_input(&self, cpu: u32, input: IrqInput) {
        let Some(cpu) = self.cpus.real().get(cpu as usize) else { return };
        self.drive(cpu, input);
    }

    fn unmask_exceptions(&self, cpu: u32) {
        let Some(cpu) = self.cpus.real().get(cpu as usize) else { return };
        cpu.set_exceptions_masked(false);
        self.request_accept(cpu);
    }

    /// Acceptance is an event too, so that it has a place in the order: after the event that brought the interrupt.
    fn request_accept(&self, cpu: &Cpu) {
        if cpu.is_acceptance_planned() || !cpu.is_interrupted() {
            return;
        }
        let accept = Event::for_cpu(cpu.id, cpu_event::ACCEPT, 0);
        let late = self.late(Kind::LateAcceptance);
        cpu.plan_acceptance(late > Ps(0));
        let at = cpu.irq_on_from().max(self.now()) + late;
        if at > self.now() {
            self.clock.push(at, accept);
        } else {
            self.clock.chain(accept);
        }
    }

    /// The running CPU sends an IPI. The controller defines `content`. An IPI to a CPU that does not exist is recorded
    /// as a fault.
    pub(crate) fn send_ipi(&self, to: CpuId, content: u64) {
        if to.0 >= self.cpus.count() {
            return self.cpu_fault("IPI to no CPU", format!("CPU {to}, {content:#04x}"));
        }
        self.tell_of_cpu(|from| Fact::IpiSent { from, to: to.0, vector: self.controller.ipi_vector(content) });
        let at = self.local_now() + self.costs.ipi + self.late(Kind::LateMessage);
        self.clock.push(at, Event::for_cpu(to, cpu_event::RAISE, content));
    }
}

/// Observer, trace and disturbed schedule.
impl Board {
    /// Informs the observer, if there is one, of a model's action.
    #[inline]
    pub(crate) fn tell(&self, fact: impl FnOnce() -> Fact) {
        self.witness.tell(self.now(), fact);
    }

    /// Informs the observer, if there is one, of the running CPU's action.
    #[inline]
    pub(crate) fn tell_of_cpu(&self, fact: impl FnOnce(u32) -> Fact) {
        if self.witness.is_watched() {
            let cpu = self.cpu().id.0;
            self.witness.tell(self.local_now(), || fact(cpu));
        }
    }

    /// Traces a span on the running CPU's track.
    #[inline]
    pub(crate) fn trace_cpu(&self, name: &'static str, start: Ps, duration: Ps, argument: u64) {
        self.witness.trace(Span { track: Track::Cpu(self.cpu().id.0), name, start, duration, argument });
    }

    pub(crate) fn record_fault(&self, fault: FaultRecord) {
        self.tell(|| Fact::Fault { source: fault.source, kind: fault.kind, requester: fault.requester });
        self.witness.record_fault(fault);
    }

    /// Records a fault of the running CPU.
    #[cold]
    pub(crate) fn cpu_fault(&self, kind: &'static str, text: String) {
        let requester = self.cpu().id.0.into();
        let source = ModelId(u32::MAX);
        self.record_fault(FaultRecord { at: self.now(), source, kind, requester, text, count: 1 });
    }

    /// The disturbed schedule, if there is one.
    #[inline]
    pub(crate) fn unrest(&self) -> Option<&unrest::State> {
        self.unrest.as_deref()
    }

    /// The extra delay that the disturbed schedule adds; zero without a disturbed schedule.
    #[inline]
    pub(crate) fn late(&self, kind: Kind) -> Ps {
        self.unrest().map_or(Ps(0), |unrest| self.lateness(unrest, kind))
    }

    #[cold]
    #[inline(never)]
    fn lateness(&self, unrest: &unrest::State, kind: Kind) -> Ps {
        let Some(by) = unrest.late(kind, self.now()) else { return Ps(0) };
        self.tell(|| Fact::Disturbed { cpu: None, kind, by });
        by
    }
}

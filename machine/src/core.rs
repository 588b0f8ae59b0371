//! The heart of the machine: the present, the events, the models, and what a point of the seam does.

use crate::cpu::{Account, Cpu, Exception, Wait};
use crate::engine::{Calendar, Resumes};
use crate::event::{Event, KIND_CPU, KIND_MODEL, KIND_WRITE, cpu_event};
use crate::fault::{FaultLog, FaultRecord};
use crate::lent::Host;
use crate::livelock::Guard;
use crate::machine::MachineConfig;
use crate::memory::{Arena, BusError, Lines, MEMORY_BASE};
use crate::model::{Model, ModelId};
use crate::observe::{Fact, Observer};
use crate::posted_writes::PostedWrites;
use crate::random::Stream;
use crate::threads::{Reason, Threads, Yield};
use crate::time::Ps;
use crate::trace::{NOT_YET, Span, Track};
use crate::unrest;
use crate::word::Word;
use crate::world::World;
use hal::{CpuId, Work};
use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Arc;

/// Why the event loop left its own stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// This CPU's own wait is over.
    Resume,
    /// This CPU has an interrupt to take.
    Accept,
    /// Another CPU is next.
    Other(CpuId, Reason),
    /// The run is over: the stop event came.
    Stop,
    /// Nothing is due before the limit.
    Limit,
    /// Nothing is pending at all.
    Drained,
    /// Events at one instant without end.
    Livelock,
}

/// Where a model stands.
type Slot = RefCell<Box<dyn Model>>;

/// Everything that a machine is. One host thread, so cells; no borrow is held while a coroutine is suspended or an
/// interrupt is entered.
pub(crate) struct Core {
    pub(crate) config: MachineConfig,
    now: Cell<u64>,
    pub(crate) queue: RefCell<Calendar<Event>>,
    /// When the CPUs go on that wait for a time and have left their stacks.
    pub(crate) resumes: RefCell<Resumes>,
    /// What happens next, before anything that is pending.
    chained: Cell<Option<Event>>,
    /// An event is being handled.
    handling: Cell<bool>,
    models: OnceCell<Box<[Slot]>>,
    /// Models before the machine starts.
    building: RefCell<Vec<Slot>>,
    pub(crate) streams: RefCell<Vec<Stream>>,
    pub(crate) arena: Arc<Arena>,
    /// Whose memory lies where the arena is not, when the model is lent.
    pub(crate) host: OnceCell<Box<dyn Host>>,
    pub(crate) lines: RefCell<Lines>,
    pub(crate) posted_writes: PostedWrites,
    /// The CPUs, and behind them the console: what the host's own stack is while the machine stands still. It has
    /// interrupts off, and no time passes for it.
    pub(crate) cpus: Box<[Cpu]>,
    pub(crate) running: Cell<u32>,
    pub(crate) threads: Threads,
    /// The IDT, or the IRQ entry of the vector table: what runs when a CPU takes an interrupt.
    pub(crate) entry: OnceCell<Box<dyn Fn(Exception)>>,
    /// How many CPUs relax on a word.
    pub(crate) relaxing: Cell<u32>,
    pub(crate) dead: Cell<bool>,
    /// Counts runs; a stop event names the run that it ends.
    pub(crate) runs: Cell<u64>,
    /// Stop events that are pending, the stale ones too.
    pub(crate) stops_pending: Cell<usize>,
    faults: RefCell<FaultLog>,
    pub(crate) observer: OnceCell<Observer>,
    /// Traced, observed or disturbed.
    pub(crate) watched: Cell<bool>,
    pub(crate) unrest: Option<Box<unrest::State>>,
    pub(crate) guard: Guard,
    pub(crate) spans: RefCell<Vec<Span>>,
    pub(crate) tracing: Cell<bool>,
    digest: Cell<u64>,
    pub(crate) events: Cell<u64>,
    pub(crate) switches: Cell<u64>,
    /// Cost of a unit of each kind of work, in ps.
    costs: [u64; Work::COUNT],
}

impl Core {
    pub(crate) fn new(config: MachineConfig) -> Self {
        let cpus: Box<[Cpu]> = (0..=config.cpus).map(|cpu| Cpu::new(CpuId(cpu))).collect();
        cpus[config.cpus as usize].irq_on.set(false);
        let costs = config.costs.work_ps;
        Self {
            arena: Arena::new(config.memory_bytes),
            host: OnceCell::new(),
            threads: Threads::new(config.cpus, config.costs.time_slice),
            now: Cell::new(0),
            queue: RefCell::new(Calendar::new()),
            resumes: RefCell::new(Resumes::new(config.cpus as usize + 1)),
            chained: Cell::new(None),
            handling: Cell::new(false),
            models: OnceCell::new(),
            building: RefCell::default(),
            streams: RefCell::default(),
            lines: RefCell::default(),
            posted_writes: PostedWrites::new(),
            cpus,
            running: Cell::new(config.cpus),
            entry: OnceCell::new(),
            relaxing: Cell::new(0),
            dead: Cell::new(false),
            runs: Cell::new(0),
            stops_pending: Cell::new(0),
            faults: RefCell::default(),
            observer: OnceCell::new(),
            guard: Guard::new(config.still_steps_max),
            watched: Cell::new(config.trace_spans_max > 0 || config.unrest.is_some()),
            unrest: config.unrest.clone().map(|config| Box::new(unrest::State::new(config))),
            spans: RefCell::default(),
            tracing: Cell::new(config.trace_spans_max > 0),
            digest: Cell::new(0xcbf2_9ce4_8422_2325),
            events: Cell::new(0),
            switches: Cell::new(0),
            costs,
            config,
        }
    }

    #[inline]
    pub(crate) fn now(&self) -> Ps {
        Ps(self.now.get())
    }

    /// The present as the running CPU sees it: its debt has passed.
    #[inline]
    pub(crate) fn local_now(&self) -> Ps {
        Ps(self.now.get() + self.cpu().debt.get())
    }

    #[inline]
    pub(crate) fn cpu(&self) -> &Cpu {
        &self.cpus[self.running.get() as usize]
    }

    /// The CPUs without the console.
    pub(crate) fn real_cpus(&self) -> &[Cpu] {
        &self.cpus[..self.config.cpus as usize]
    }

    /// Whether the host's own stack calls, and not a coroutine.
    pub(crate) fn on_console(&self) -> bool {
        self.running.get() == self.config.cpus
    }

    #[inline]
    pub(crate) fn push(&self, at: Ps, event: Event) {
        self.queue.borrow_mut().push(at, event);
    }

    pub(crate) fn add_model(&self, build: impl FnOnce(ModelId) -> Box<dyn Model>) -> ModelId {
        assert!(self.models.get().is_none(), "models are added before the machine starts");
        let id = ModelId(self.building.borrow().len() as u32);
        self.streams.borrow_mut().push(Stream::new(self.config.seed, id.0.into()));
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

    pub(crate) fn memory_word(&self, address: u64, bytes: u32) -> Result<&Word, BusError> {
        if !address.is_multiple_of(bytes.into()) {
            return Err(BusError { address, bytes });
        }
        self.arena.word(address, bytes)
    }

    pub(crate) fn line_reserve(&self, address: u64, earliest: Ps, cost: Ps) -> Ps {
        let line = (address.saturating_sub(MEMORY_BASE) / 64) as usize;
        let mut lines = self.lines.borrow_mut();
        let busy_until = lines.keep(line);
        *busy_until = (*busy_until).max(earliest).max(self.now()) + cost + self.late(unrest::Kind::SlowLine);
        *busy_until
    }

    /// `mean` ± the configured percentage, uniform.
    pub(crate) fn jitter(&self, of: ModelId, mean: Ps) -> Ps {
        let percent = self.config.jitter_percent;
        if percent == 0 || mean.0 == 0 {
            return mean;
        }
        let span = mean.0 * u64::from(percent) / 50;
        // The low half of the product's high word: uniform in 0..=span up to 2^-64.
        let drawn = ((u128::from(self.random(of)) * u128::from(span + 1)) >> 64) as u64;
        Ps(mean.0 - span / 2 + drawn)
    }

    pub(crate) fn random(&self, of: ModelId) -> u64 {
        self.streams.borrow_mut()[of.0 as usize].next()
    }

    pub(crate) fn record_fault(&self, fault: FaultRecord) {
        self.tell(|| Fact::Fault { source: fault.source, kind: fault.kind, requester: fault.requester });
        self.faults.borrow_mut().record(fault);
    }

    pub(crate) fn fault_kinds(&self) -> usize {
        self.faults.borrow().kinds()
    }

    pub(crate) fn faults(&self) -> (Vec<FaultRecord>, u64) {
        self.faults.borrow().take()
    }

    pub(crate) fn trace(&self, track: Track, name: &'static str, start: Ps, duration: Ps, argument: u64) {
        if self.tracing.get() {
            let mut spans = self.spans.borrow_mut();
            if spans.len() < self.config.trace_spans_max {
                spans.push(Span { track, name, start, duration, argument });
            }
        }
    }

    pub(crate) fn take_spans(&self) -> Vec<Span> {
        self.spans.take()
    }

    pub(crate) fn digest(&self) -> u64 {
        self.digest.get()
    }

    /// Work of the running CPU: owed.
    #[inline]
    pub(crate) fn work(&self, work: Work, count: u32) {
        let cost = self.costs[work as usize] * u64::from(count);
        let cpu = self.cpu();
        let account = match (cpu.depth.get(), work.is_user()) {
            (0, true) => Account::User,
            (0, false) => Account::System,
            _ => Account::Irq,
        };
        if self.watched.get() {
            return self.watched_work(work, count, cost, account);
        }
        cpu.owe(cost, account);
    }

    /// A point of the seam: settles the running CPU's debt.
    #[inline]
    pub(crate) fn settle(&self) {
        if let Some(unrest) = &self.unrest {
            self.disturb(unrest);
        }
        self.pass_debt();
    }

    /// Time passes by the running CPU's debt, and whatever is due until then happens.
    #[inline(always)]
    pub(crate) fn pass_debt(&self) {
        let cpu = self.cpu();
        let debt = cpu.debt.replace(0);
        if self.on_console() {
            return;
        }
        if debt > 0 {
            self.guard.passed();
        } else {
            self.still_point();
        }
        let end = self.now.get() + debt;
        if self.config.short_cuts && self.nothing_due(Ps(end)) {
            self.now.set(end);
        } else if !self.dead.get() {
            self.pass(Ps(end));
        }
    }

    /// Whether nothing happens up to and at `end`.
    #[inline]
    fn nothing_due(&self, end: Ps) -> bool {
        self.queue.borrow().next_key().is_none_or(|(at, _)| at > end) && self.resumes.borrow().first_time() > end
    }

    /// Whether anything but the ends of runs is pending.
    pub(crate) fn is_anything_due(&self) -> bool {
        self.queue.borrow().len() > self.stops_pending.get() || self.resumes.borrow().first().is_some()
    }

    /// Ends the current run at `at`.
    pub(crate) fn stop_at(&self, at: Ps) {
        self.stops_pending.set(self.stops_pending.get() + 1);
        self.push(at.max(self.now()), Event::stop(self.runs.get()));
    }

    pub(crate) fn set_now(&self, now: Ps) {
        if self.now.replace(now.0) != now.0 {
            self.guard.passed();
        }
    }

    /// Lets time pass up to `end` where events are due before. Interrupts that cut in lengthen it.
    #[inline(never)]
    fn pass(&self, mut end: Ps) {
        let mut sequence = self.queue.borrow_mut().reserve_sequence();
        let mut owed = self.spans_after(self.now());
        loop {
            match self.wait_once(Wait::Until(end, sequence)) {
                Next::Limit | Next::Resume => {
                    self.now.set(end.0);
                    return;
                }
                Next::Accept => {
                    let cut = self.now();
                    let left = end.saturating_sub(cut);
                    self.split_spans(&mut owed, cut, NOT_YET);
                    self.take_interrupts();
                    self.split_spans(&mut owed, NOT_YET, self.local_now());
                    end = self.now() + Ps(self.cpu().debt.replace(0)) + left;
                    sequence = self.queue.borrow_mut().reserve_sequence();
                }
                next => unreachable!("a charge ended by {next:?}"),
            }
        }
    }

    /// Waits on this coroutine's stack until something concerns its CPU: runs what is due, and leaves the stack only
    /// when another CPU is next.
    pub(crate) fn wait_once(&self, wait: Wait) -> Next {
        let me = self.cpu().id;
        let limit = match wait {
            Wait::Until(end, sequence) | Wait::Word(_, end, sequence) => (end, sequence),
            Wait::Interrupt => (Ps::MAX, u64::MAX),
        };
        if let Wait::Word(address, ..) = wait {
            self.cpu().relaxes_on.set(address);
        }
        let next = match self.run_events(me, limit) {
            Next::Limit | Next::Drained if !self.config.short_cuts && limit.0 != Ps::MAX => {
                self.leave(me, limit, Yield::Event)
            }
            Next::Other(cpu, reason) => self.leave(me, limit, Yield::Switch(cpu, reason)),
            Next::Stop => self.leave(me, limit, Yield::Stop),
            Next::Drained if limit.0 == Ps::MAX => self.leave(me, limit, Yield::Drained),
            Next::Drained => Next::Limit,
            Next::Livelock => self.leave(me, limit, Yield::Livelock),
            next => next,
        };
        let cpu = &self.cpus[me.index()];
        cpu.relaxes_on.set(0);
        cpu.generation.set(cpu.generation.get().wrapping_add(1));
        next
    }

    /// Leaves the stack of a CPU that waits. Only now must others know the end of its wait.
    fn leave(&self, me: CpuId, limit: (Ps, u64), why: Yield) -> Next {
        if limit.0 != Ps::MAX {
            self.resumes.borrow_mut().set(me.index(), limit);
        }
        let next = match self.threads.suspend(why) {
            Reason::Resume => Next::Resume,
            Reason::Accept => Next::Accept,
            Reason::Scheduled => unreachable!("a waiting thread was scheduled"),
        };
        self.resumes.borrow_mut().clear(me.index());
        next
    }

    /// Runs events up to `limit`, for as long as they are models' or concern nobody who runs; `me` is the CPU on whose
    /// stack this happens (the boot loop passes a CPU that does not exist).
    pub(crate) fn run_events(&self, me: CpuId, limit: (Ps, u64)) -> Next {
        loop {
            let resume = self.resumes.borrow().first().filter(|(key, _)| *key < limit);
            let popped = self.queue.borrow_mut().pop_before(resume.map_or(limit, |(key, _)| key));
            let Some((at, _, first)) = popped else {
                if let Some(((at, _), waiter)) = resume {
                    self.set_now(at);
                    return Next::Other(CpuId(waiter as u32), Reason::Resume);
                }
                let drained = self.queue.borrow().is_empty() && self.resumes.borrow().first().is_none();
                return if drained { Next::Drained } else { Next::Limit };
            };
            let mut is_still = self.now.replace(at.0) == at.0;
            if !is_still {
                self.guard.passed();
            }
            let mut event = Some(first);
            while let Some(due) = event {
                if std::mem::replace(&mut is_still, true)
                    && let Some(next) = self.still_event()
                {
                    return next;
                }
                if let Some(next) = self.handle(me, at, due) {
                    return next;
                }
                event = self.chained.take();
            }
        }
    }

    /// Handles one event. `Some` when a coroutine must run, or the run is over.
    #[inline]
    fn handle(&self, me: CpuId, at: Ps, event: Event) -> Option<Next> {
        let kind = event.target() >> 30;
        if kind < KIND_CPU || kind == KIND_CPU && event.code() == cpu_event::RAISE {
            self.note(at, event);
        }
        let index = event.target() & 0x3fff_ffff;
        match kind {
            KIND_MODEL => {
                let id = ModelId(index);
                self.handling.set(true);
                self.model(id).borrow_mut().event(&mut World::new(self, id), event.code(), event.arg);
                self.handling.set(false);
                None
            }
            KIND_WRITE => {
                self.deliver_write(ModelId(index), event);
                None
            }
            KIND_CPU => self.cpu_event(CpuId(index), event.code(), event.arg).map(|reason| match reason {
                Reason::Resume if CpuId(index) == me => Next::Resume,
                Reason::Accept if CpuId(index) == me => Next::Accept,
                reason => Next::Other(CpuId(index), reason),
            }),
            _ => {
                self.stops_pending.set(self.stops_pending.get() - 1);
                // A stop of an earlier run that ended otherwise is stale.
                (event.arg == self.runs.get()).then_some(Next::Stop)
            }
        }
    }

    /// `event` follows the one that is being handled, before anything that is pending. If another does already, it
    /// takes its place among what is pending.
    pub(crate) fn chain(&self, event: Event) {
        match self.chained.take() {
            None if self.handling.get() => self.chained.set(Some(event)),
            earlier => {
                self.chained.set(earlier);
                self.push(self.now(), event);
            }
        }
    }

    /// One more event that an agent can see: counted, and in the digest. How CPUs wait is the engine's own affair.
    pub(crate) fn note(&self, at: Ps, event: Event) {
        self.events.set(self.events.get() + 1);
        let mixed = at.0 ^ event.arg.rotate_left(17) ^ event.head;
        self.digest.set((self.digest.get() ^ mixed).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23));
    }

    fn deliver_write(&self, id: ModelId, event: Event) {
        let (region, offset, width_bytes) = event.write_target();
        let mut model = self.model(id).borrow_mut();
        model.write(&mut World::new(self, id), region, offset, width_bytes, event.arg);
    }
}

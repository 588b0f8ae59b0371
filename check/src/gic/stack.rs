//! State that the machine's threads share: the system and its sources.

use super::bells::BellPort;
use super::guards::Guards;
use super::harness::{self, ArmHarness};
use super::source::{DISABLED, ENABLED, Handler, Kind, Source, Style};
use super::wires::{BellMessages, Block, BlockDomain, MasklessDomain};
use crate::checkers::acks;
use crate::checkers::beliefs::Promises;
use crate::checkers::truth::marks;
use crate::coverage::Coverage;
use crate::deeds::Deeds;
use crate::mark::Mark;
use crate::rest;
use crate::verdict::violate;
use drivers::message::MessageDomain;
use hal::{Affinity, CpuId, CpuSet, Hal as _, ThreadId, ThreadSpec, Threads};
use irq::{Action, AllocRequest, Flow, Irq, IrqError, IrqReturn, RequestFlags, Trigger};
use machine::gic::Gic;
use machine::model::ModelId;
use machine::{Regs, SimHal, inspect};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// If messages may be lost, the driver's own clock looks for events older than this.
const TIMEOUT_NS: u64 = 400_000;
/// A wire without a line.
pub(super) const STRAY: u32 = 90;
/// The block's wire.
pub(super) const BLOCK: u32 = 60;

/// How sources are served. Bit n of a set stands for every fourth source from n on.
#[derive(Clone, Copy)]
pub(super) struct Habits {
    /// How long a handler goes on after it has served its device.
    pub(super) linger_ns: u64,
    /// Whose lines are held by guards.
    pub(super) guarded: u64,
    /// Whose lines are managed.
    pub(super) managed: u64,
    /// The seed of what handlers do to lines, and how many of a hundred do it.
    pub(super) deeds: (u64, u64),
}

/// Everything that runs on the machine.
pub struct GicStack {
    pub(super) system: Arc<ArmHarness>,
    pub(super) sources: Vec<Arc<Source>>,
    pub(super) deeds: Arc<Deeds>,
    /// By source.
    handlers: Mutex<Vec<Option<[Arc<Handler>; 2]>>>,
    pub(super) guards: Guards,
    pub(super) block: Arc<Block>,
    pub(super) block_line: OnceLock<Irq>,
    messages: BellMessages,
    pub(super) stray: BellPort,
    /// Numbers of handlers.
    pub(super) numbers: AtomicU64,
    /// One manager at a time takes CPUs offline.
    pub(super) hotplug: AtomicBool,
    /// One manager at a time has the line that drivers share.
    pub(super) lodging: AtomicBool,
    /// Woken by each tick.
    clock: OnceLock<ThreadId>,
    /// The driver's clock must not look any more.
    pub(super) proving: AtomicBool,
    /// Lines that were freed under load.
    pub(super) freed: AtomicU64,
    /// Wires that were raised without a line.
    pub(super) strays: AtomicU64,
    pub(super) seen: Mutex<Coverage>,
    /// Operations may fail.
    pub(super) faulty: bool,
}

/// A manager tries so often, so far apart, to bind a source while a fault lasts.
const BINDS_MAX: u32 = 10_000;
const BIND_GAP_NS: u64 = 2_000;
/// An interrupt that was acknowledged is counted within this time.
const REST_NS: u64 = 20_000;

impl GicStack {
    pub(super) fn new(
        system: Arc<ArmHarness>,
        regs: Regs,
        kinds: &[(Kind, Style)],
        Habits { linger_ns, guarded, managed, deeds: (seed, percent) }: Habits,
        faulty: bool,
    ) -> Self {
        let port = |index: usize| BellPort { regs, index: index as u32 };
        let deeds = Arc::new(Deeds::new(seed, percent));
        let source = |(index, &(kind, style)): (usize, &(Kind, Style))| {
            let managed = managed >> (index % 4) & 1 != 0;
            Arc::new(Source::new(index as u32, (kind, style), port(index), (linger_ns, deeds.clone()), managed))
        };
        let sources: Vec<_> = kinds.iter().enumerate().map(source).collect();
        Self {
            system,
            handlers: Mutex::new(sources.iter().map(|_| None).collect()),
            guards: Guards::new(guarded, sources.len()),
            messages: BellMessages((0..sources.len()).map(port).collect()),
            stray: port(sources.len()),
            sources,
            deeds,
            block: Arc::new(Block::new(regs)),
            block_line: OnceLock::new(),
            numbers: AtomicU64::new(1),
            hotplug: AtomicBool::new(false),
            lodging: AtomicBool::new(false),
            clock: OnceLock::new(),
            proving: AtomicBool::new(false),
            freed: AtomicU64::new(0),
            strays: AtomicU64::new(0),
            seen: Mutex::default(),
            faulty,
        }
    }

    /// What drivers can keep.
    pub(super) fn promises(&self) -> Promises {
        Promises::under_faults(self.faulty)
    }

    /// `transition` was seen.
    pub(super) fn saw(&self, transition: &'static str) {
        self.seen.lock().expect("one host thread").add(transition, 1);
    }

    pub(super) fn source(&self, index: u32) -> &Arc<Source> {
        &self.sources[index as usize % self.sources.len()]
    }

    /// The line for a manager's operation, and its source. Private lines are excluded.
    pub(super) fn shared(&self, index: u32) -> Option<(&Arc<Source>, Irq)> {
        let source = self.source(index);
        source.line().filter(|_| !source.is_private()).map(|line| (source, line))
    }

    /// Brings all lines up, on the boot thread.
    pub(super) fn bind_all(self: &Arc<Self>, clock: BellPort) {
        if self.sources.iter().any(|source| matches!(source.kind, Kind::Pin { .. })) {
            let line = self.system.spi(BLOCK);
            self.system.core.set_type(line, Trigger::LevelHigh).expect("an SPI can be");
            let block = self.block.clone();
            let demultiplexer = Arc::new(move |core: &irq::IrqCore<SimHal>| block.demultiplex(core));
            self.system.core.request_chained(line, "gpio", demultiplexer).expect("a new line");
            assert!(self.block_line.set(line).is_ok(), "once");
        }
        for (index, source) in self.sources.iter().enumerate() {
            match source.kind {
                Kind::Ppi { cpu: 0, intid } => self.bind_private(intid, |kind| matches!(kind, Kind::Ppi { .. })),
                Kind::Sgi { intid } => self.bind_private(intid, |kind| kind == source.kind),
                Kind::Ppi { .. } => {}
                _ => self.bind(index).unwrap_or_else(|error| panic!("source {index} comes up: {error}")),
            }
        }
        let tick = Arc::new(Tick { port: clock, stack: Arc::downgrade(self) });
        let line = self.system.private(27, tick);
        self.system.enable_everywhere(line);
    }

    fn bind_private(self: &Arc<Self>, intid: u32, is: impl Fn(Kind) -> bool) {
        let sources: Vec<_> = self.sources.iter().filter(|source| is(source.kind)).cloned().collect();
        let handler = Handler::whole(&self.system, sources.clone(), self.number(), false);
        handler.open();
        let line = self.system.private(intid, handler);
        sources.iter().for_each(|source| source.set_line(Some(line)));
        self.system.enable_everywhere(line);
    }

    /// Allocates the source's line and installs its handler, again while a fault keeps it from that.
    pub(super) fn bind_again(self: &Arc<Self>, index: usize) {
        for _ in 0..BINDS_MAX {
            let bound = self.bind(index);
            let again = self.faulty && bound.is_err();
            self.check("allocate", bound);
            if !again {
                return;
            }
            SimHal.delay_ns(BIND_GAP_NS);
        }
        violate("operations", format!("source {index} is not bound in {BINDS_MAX} tries"));
    }

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Relaxed)
    }

    /// Allocates the source's line, and installs its handler.
    ///
    /// # Errors
    /// The core's result.
    pub(super) fn bind(self: &Arc<Self>, index: usize) -> Result<(), IrqError> {
        let source = &self.sources[index];
        let line = self.alloc(source)?;
        self.begin(line);
        source.set_line(Some(line));
        self.install(index)
    }

    /// Marks that a line was allocated.
    pub(super) fn begin(&self, line: Irq) {
        marks::allocated(line);
        acks::begun(&self.system.core, line);
    }

    /// Allocates the source's line, without a handler.
    ///
    /// # Errors
    /// The core's result.
    pub(super) fn alloc(&self, source: &Source) -> Result<Irq, IrqError> {
        let (core, cpus) = (&self.system.core, self.system.cpus);
        // A managed line is one CPU's own.
        let own = CpuSet::of(CpuId(source.number % cpus));
        let affinity = if source.managed { own } else { CpuSet::first(cpus) };
        let request =
            |index| AllocRequest { affinity: affinity.clone(), managed: source.managed, ..harness::request(index) };
        let alloc = |domain, request: &_, flow| self.guards.alloc(source, core, domain, request, flow);
        match source.kind {
            Kind::Spi { intid, .. } | Kind::Nmi { intid } => {
                let line = alloc(self.system.arm.domain(), &request(intid), self.system.arm.flow())?;
                check_level(self.system.model, intid);
                core.set_type(line, trigger(source.level.load(Relaxed)))?;
                Ok(line)
            }
            Kind::Pin { pin, .. } => {
                let line = alloc(Arc::new(BlockDomain::new(&self.block)), &request(pin), Flow::Edge)?;
                core.set_type(line, trigger(source.level.load(Relaxed)))?;
                Ok(line)
            }
            Kind::Message { maskable } => {
                let way = self.system.arm.messages().expect("a machine with a way of messages");
                let (domain, flow) = (way.domain().clone(), way.flow());
                let request = request(source.number);
                if maskable {
                    let domain = MessageDomain::new(SimHal, self.messages.clone(), domain)?;
                    alloc(Arc::new(domain), &request, flow)
                } else {
                    alloc(Arc::new(MasklessDomain::new(self.messages.clone(), domain)), &request, flow)
                }
            }
            Kind::Ppi { .. } | Kind::Sgi { .. } => Err(IrqError::NotSupported("a line of all CPUs")),
        }
    }

    /// The answer to a request for a message that the board does not have. The levels behind it have given numbers by then.
    ///
    /// # Errors
    /// The core's result, which no machine without messages gives.
    pub(super) fn ask_too_much(&self) -> Result<(), IrqError> {
        let Some(way) = self.system.arm.messages() else { return Ok(()) };
        let domain = MessageDomain::new(SimHal, self.messages.clone(), way.domain().clone())?;
        let request = harness::request(self.sources.len() as u32);
        match self.system.core.alloc_line(Arc::new(domain), &request, way.flow()) {
            Err(IrqError::Exhausted(..)) => Ok(()),
            Err(error) => Err(error),
            Ok(line) => violate("refusals", format!("line {line} of a message that is not there")),
        }
    }

    /// Installs the source's handler on its line.
    ///
    /// # Errors
    /// The core's result.
    pub(super) fn install(self: &Arc<Self>, index: usize) -> Result<(), IrqError> {
        let source = &self.sources[index];
        let Some(line) = source.line() else { return Ok(()) };
        let (core, number) = (&self.system.core, self.number());
        marks::installing(line);
        let asks = self.guards.line(index).is_some();
        let handlers = match (source.kind, source.style) {
            (Kind::Nmi { .. }, _) | (_, Style::Plain) => {
                let asks = asks && !matches!(source.kind, Kind::Nmi { .. });
                let handler = Handler::whole(&self.system, vec![source.clone()], number, asks);
                [handler.clone(), handler]
            }
            (_, Style::Oneshot) => Handler::halves(&self.system, source, number, asks),
        };
        let [primary, thread] = &handlers;
        primary.open();
        let flags = RequestFlags::default();
        match (source.kind, source.style) {
            _ if self.guards.install(source, &handlers)? => {}
            (Kind::Nmi { .. }, _) => core.request_nmi(line, "nmi", primary.clone())?,
            (_, Style::Plain) => core.request(line, "plain", flags, primary.clone())?,
            (_, Style::Oneshot) => {
                let flags = RequestFlags { oneshot: true, ..flags };
                core.request_threaded(line, "oneshot", flags, Some(primary.clone()), thread.clone())?;
            }
        }
        self.handlers.lock().expect("one host thread")[index] = Some(handlers);
        Ok(())
    }

    /// Takes its handler off.
    ///
    /// # Errors
    /// The core's result.
    pub(super) fn remove(&self, index: usize) -> Result<(), IrqError> {
        let handlers = self.handlers.lock().expect("one host thread")[index].take();
        let (Some([primary, _]), Some(line)) = (handlers, self.sources[index].line()) else { return Ok(()) };
        self.sources[index].was_removed.store(true, Relaxed);
        if matches!(self.sources[index].kind, Kind::Nmi { .. }) {
            // One that is acknowledged now finds no handler, and takes no lock by which it could be waited for.
            self.freed.fetch_add(1, Relaxed);
        }
        let action: Arc<dyn Action> = primary.clone();
        if !self.guards.remove(index)? {
            self.system.core.free(line, &action)?;
        }
        primary.close();
        marks::removed(line);
        if self.sources[index].is_judged() {
            marks::claim(&self.system.core, line, false);
        }
        Ok(())
    }

    /// Takes its handler off, and frees its line.
    pub(super) fn give_back(&self, index: usize, line: Irq) {
        let primary = |slot: &Option<[Arc<Handler>; 2]>| slot.as_ref().map(|[primary, _]| primary.clone());
        let primary = primary(&self.handlers.lock().expect("one host thread")[index]);
        let first = self.guards.free_line_first(index);
        if matches!(first, Ok(true)) {
            self.handlers.lock().expect("one host thread")[index] = None;
            primary.into_iter().for_each(|primary| primary.close());
            self.saw("guard: of a line dropped before its handler's");
            return self.sources[index].set_line(None);
        }
        self.check("free", first.map(drop));
        self.check("free", self.remove(index));
        self.sources[index].set_line(None);
        let freed = self.guards.free_line(index).unwrap_or_else(|| self.system.core.free_line(line));
        self.check("free line", freed);
    }

    /// Marks that a disable of its line has returned, or that an enable is about to begin: no handler may run in
    /// between.
    pub(super) fn silence(&self, source: &Source, silent: bool) {
        if let Some([primary, _]) = &self.handlers.lock().expect("one host thread")[source.number as usize] {
            if silent { primary.close() } else { primary.open() }
        }
        let tag = if silent { DISABLED } else { ENABLED };
        source.wired().into_iter().for_each(|intid| machine::mark(tag, intid.into()));
    }

    /// The lines of all sources; one of several CPUs comes once.
    pub(super) fn lines(&self) -> BTreeSet<Irq> {
        self.sources.iter().filter_map(|source| source.line()).collect()
    }

    /// Those whose handlers' answers the core judges.
    pub(super) fn judged_lines(&self) -> impl Iterator<Item = Irq> {
        self.sources.iter().filter(|source| source.is_judged()).filter_map(|source| source.line())
    }

    /// All is at rest: marks what the core counts.
    pub(super) fn claim(&self) {
        SimHal.delay_ns(REST_NS);
        marks::movable();
        rest::check(&self.system.core);
        self.judged_lines().for_each(|line| marks::claim(&self.system.core, line, true));
        let counted = self.sources.iter().filter(|source| source.is_counted()).filter_map(|source| source.line());
        counted.collect::<BTreeSet<_>>().into_iter().for_each(|line| acks::claim(&self.system.core, line));
    }

    /// A thread that looks every few ticks for events whose message was lost.
    pub(super) fn start_clock(self: &Arc<Self>) {
        let stack = self.clone();
        let body = move || {
            while !stack.proving.load(Relaxed) {
                for source in &stack.sources {
                    if source.oldest_ns() > TIMEOUT_NS
                        && matches!(source.kind, Kind::Message { .. })
                        && source.serve(&stack.system)
                    {
                        Mark::TimedOut.of(1);
                        stack.saw("timeout: an event without a message");
                    }
                }
                SimHal.park();
            }
        };
        let spec = ThreadSpec { name: "timeouts", affinity: Affinity::Cpu(CpuId(0)), urgent: false };
        let thread = SimHal.spawn(spec, Box::new(body)).expect("CPU 0 exists");
        assert!(self.clock.set(thread).is_ok(), "one clock");
    }

    pub(super) fn is_done(&self) -> bool {
        self.sources.iter().all(|source| source.is_idle())
    }

    /// No fault explains it.
    pub(super) fn check(&self, what: &str, result: Result<(), IrqError>) {
        match result {
            Ok(()) => {}
            // An interrupt that the hardware did not repeat is not supported.
            Err(IrqError::Hardware(..) | IrqError::NotSupported("retrigger")) if self.faulty => {
                self.saw("operation: failed")
            }
            Err(error) => violate("operations", format!("{what}: {error}")),
        }
    }

    pub(super) fn describe(&self) -> String {
        let mut text = String::new();
        for source in &self.sources {
            let view = source.line().and_then(|line| self.system.core.view(line));
            text += &format!("{}\n", source.describe());
            text += &view.map(|view| format!("{view}\n")).unwrap_or_default();
        }
        let block = self.block_line.get().and_then(|&line| self.system.core.view(line));
        text += &block.map(|view| format!("the block of pins\n{view}\n")).unwrap_or_default();
        text
    }
}

/// The clock of CPU 0. It wakes the threads that look for lost messages. The core's own deadlines need no clock.
struct Tick {
    port: BellPort,
    stack: Weak<GicStack>,
}

impl Action for Tick {
    fn handle(&self, _: Irq) -> IrqReturn {
        self.port.serve();
        let clock = self.stack.upgrade().and_then(|stack| stack.clock.get().copied());
        clock.into_iter().for_each(|clock| SimHal.wake(clock));
        IrqReturn::Handled
    }
}

pub(super) fn trigger(level: bool) -> Trigger {
    if level { Trigger::LevelHigh } else { Trigger::EdgeRising }
}

/// A new line is a level, whatever the line of this INTID before was.
fn check_level(model: ModelId, intid: u32) {
    let held = inspect(model, |gic: &Gic, _| gic.int_config(0, intid)).flatten();
    if held.is_some_and(|held| held.is_edge) {
        violate("beliefs", format!("INTID {intid} comes up as an edge"));
    }
}

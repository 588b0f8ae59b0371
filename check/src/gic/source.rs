//! The driver's view of a bell: a line, handlers, and the number of events heard.

use super::bells::BellPort;
use super::harness::ArmHarness;
use super::misuse;
use crate::checkers::truth::marks;
use crate::deeds::Deeds;
use crate::mark::Mark;
use crate::verdict::violate;
use hal::{Affinity, CpuId, Hal as _, ThreadId, Threads as _};
use irq::{Action, Irq, IrqReturn};
use machine::SimHal;
use spec::gic::IntId;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

/// This subject's own marks for its checker, each with an INTID.
pub(crate) const HELD: u32 = 0x100;
/// The thread of a ONESHOT line is done.
pub(crate) const RELEASED: u32 = 0x101;
/// A disable of a wired line has returned.
pub(crate) const DISABLED: u32 = 0x102;
/// An enable of it is about to begin.
pub(crate) const ENABLED: u32 = 0x103;

/// A handler has looked: see [`answer`].
pub(crate) const ANSWERED: u32 = 0x104;

/// The value of [`ANSWERED`]: the handler, and whether it found something.
pub(crate) fn answer(handler: u64, handled: bool) -> u64 {
    handler << 1 | u64::from(handled)
}

/// The same, read.
pub(crate) fn answer_of(value: u64) -> (u64, bool) {
    (value >> 1, value & 1 == 1)
}

/// The kind of a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A wire, level-triggered or not.
    Spi { intid: u32, level: bool },
    /// A wire of one CPU's own.
    Ppi { intid: u32, cpu: u32 },
    /// Software on one CPU signals another CPU.
    Sgi { intid: u32 },
    /// A pin of the block.
    Pin { pin: u32, level: bool },
    /// A message, and whether its device can mask it.
    Message { maskable: bool },
    /// A pseudo-NMI: a wire whose handler runs even with interrupts off.
    Nmi { intid: u32 },
}

/// How a source is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Style {
    /// A handler.
    Plain,
    /// A handler that wakes a thread, which serves; the line waits for it.
    Oneshot,
}

/// One source of events.
pub(crate) struct Source {
    pub(super) number: u32,
    pub(super) kind: Kind,
    pub(super) style: Style,
    /// Its line is managed: it is shut down while its only CPU is offline.
    pub(super) managed: bool,
    pub(super) port: BellPort,
    /// How long its handler goes on after it has served the device.
    linger_ns: u64,
    deeds: Arc<Deeds>,
    /// 1 + the number of its line; 0 while it has none.
    line: AtomicU32,
    /// Level-triggered now.
    pub(super) level: AtomicBool,
    /// Events still to ask for.
    left: AtomicU64,
    asked: AtomicU64,
    heard: AtomicU64,
    /// When the oldest unheard ring was requested.
    since_ns: AtomicU64,
    /// A manager holds it for an operation that must run alone.
    claimed: AtomicBool,
    /// 1 + the thread that served it last, if a thread does; 0: none has.
    thread: AtomicU64,
    /// Handlers that found no event.
    pub(super) empty: AtomicU64,
    /// Its handler was taken off. A pseudo-NMI that came just then is nobody's: its line does not count it.
    pub(super) was_removed: AtomicBool,
}

impl Source {
    pub(super) fn new(
        number: u32,
        (kind, style): (Kind, Style),
        port: BellPort,
        (linger_ns, deeds): (u64, Arc<Deeds>),
        managed: bool,
    ) -> Self {
        let managed = managed && matches!(kind, Kind::Spi { .. } | Kind::Message { .. });
        let level = matches!(kind, Kind::Spi { level: true, .. } | Kind::Pin { level: true, .. } | Kind::Ppi { .. });
        Self {
            number,
            kind,
            style,
            managed,
            port,
            linger_ns,
            deeds,
            line: AtomicU32::new(0),
            level: AtomicBool::new(level),
            left: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            heard: AtomicU64::new(0),
            since_ns: AtomicU64::new(0),
            claimed: AtomicBool::new(false),
            thread: AtomicU64::new(0),
            empty: AtomicU64::new(0),
            was_removed: AtomicBool::new(false),
        }
    }

    pub(super) fn line(&self) -> Option<Irq> {
        self.line.load(Relaxed).checked_sub(1).map(Irq)
    }

    pub(super) fn set_line(&self, line: Option<Irq>) {
        self.line.store(line.map_or(0, |line| line.0 + 1), Relaxed);
    }

    /// All is at rest: the thread of its handler, if it has one, may run just where the line is delivered
    /// ([`irq::IrqCore::request_threaded`]).
    pub(super) fn check_thread(&self, system: &ArmHarness) {
        let Some(thread) = self.thread.load(Relaxed).checked_sub(1) else { return };
        let view =
            self.line().and_then(|line| system.core.view(line)).filter(|view| view.threads > 0 && !view.move_wanted);
        let Some(target) = view.and_then(|view| view.effective) else { return };
        let may_run = machine::affinity_of(ThreadId(thread as u32));
        if may_run.as_ref().is_some_and(|may_run| *may_run != Affinity::Cpu(target.cpu)) {
            let text = format!(
                "source {} is delivered to CPU {}, and its thread may run on {may_run:?}",
                self.number, target.cpu
            );
            violate("affinity", text);
        }
    }

    /// Private lines belong to all CPUs.
    pub(super) fn is_private(&self) -> bool {
        matches!(self.kind, Kind::Ppi { .. } | Kind::Sgi { .. })
    }

    /// The INTID of a private line.
    pub(super) fn private_intid(&self) -> Option<u32> {
        match self.kind {
            Kind::Ppi { intid, .. } | Kind::Sgi { intid } => Some(intid),
            _ => None,
        }
    }

    /// The INTID, where the wire goes to the GIC itself.
    pub(super) fn wired(&self) -> Option<u32> {
        match self.kind {
            Kind::Spi { intid, .. } | Kind::Nmi { intid } => Some(intid),
            _ => None,
        }
    }

    /// The core counts each of its interrupts.
    pub(super) fn is_counted(&self) -> bool {
        !matches!(self.kind, Kind::Nmi { .. }) || !self.was_removed.load(Relaxed)
    }

    /// The core judges the answers of its handlers: not those of private lines and pseudo-NMIs.
    pub(super) fn is_judged(&self) -> bool {
        !self.is_private() && !matches!(self.kind, Kind::Nmi { .. })
    }

    /// The exclusive right to a source, until this is dropped.
    pub(super) fn claim(&self) -> Option<Claim<'_>> {
        claim(&self.claimed)
    }

    /// Asks for `count` events, `depth` at a time: it asks for the next ones when some were heard.
    pub(super) fn carry(&self, system: &ArmHarness, count: u64, depth: u32) {
        self.left.fetch_add(count, Relaxed);
        (0..depth).for_each(|_| self.ask(system));
    }

    fn ask(&self, system: &ArmHarness) {
        let left = self.left.load(Relaxed);
        if left == 0 {
            return;
        }
        self.left.store(left - 1, Relaxed);
        let number = self.asked.fetch_add(1, Relaxed);
        if number == self.heard.load(Relaxed) {
            self.since_ns.store(SimHal.now_ns(), Relaxed);
        }
        Mark::Submitted.of(self.tag(number));
        let delay_ns = 200 + (number * 2_654_435_761 + u64::from(self.number)) % 1_500;
        match self.kind {
            Kind::Sgi { intid } => {
                let to = CpuId(number as u32 % system.cpus);
                let sent = system.arm.send(IntId(intid), to);
                sent.expect("a CPU that has started");
            }
            _ => self.port.ring(delay_ns),
        }
    }

    fn tag(&self, number: u64) -> u64 {
        u64::from(self.number) << 40 | number
    }

    /// Serves the device; true if there was a new event.
    pub(super) fn serve(&self, system: &ArmHarness) -> bool {
        let told = match self.kind {
            Kind::Sgi { .. } => self.asked.load(Relaxed),
            _ => self.port.serve(),
        };
        let from = self.heard.fetch_max(told, Relaxed);
        self.since_ns.store(SimHal.now_ns(), Relaxed);
        for number in from..told {
            Mark::Completed.of(self.tag(number));
        }
        (from..told).for_each(|_| self.ask(system));
        if from >= told {
            self.empty.fetch_add(1, Relaxed);
        }
        from < told
    }

    /// Everything that was asked for was heard.
    pub(super) fn is_idle(&self) -> bool {
        self.left.load(Relaxed) == 0 && self.asked.load(Relaxed) == self.heard.load(Relaxed)
    }

    /// How long the oldest event has waited, in ns.
    pub(super) fn oldest_ns(&self) -> u64 {
        match self.asked.load(Relaxed) == self.heard.load(Relaxed) {
            true => 0,
            false => SimHal.now_ns().saturating_sub(self.since_ns.load(Relaxed)),
        }
    }

    pub(super) fn describe(&self) -> String {
        let [left, asked, heard] = [&self.left, &self.asked, &self.heard].map(|count| count.load(Relaxed));
        format!("source {} ({:?}, {:?}): {left} left, {asked} asked, {heard} heard", self.number, self.kind, self.style)
    }
}

pub(crate) fn claim(flag: &AtomicBool) -> Option<Claim<'_>> {
    flag.compare_exchange(false, true, Relaxed, Relaxed).ok().map(|_| Claim(flag))
}

/// Given back when it goes.
pub(crate) struct Claim<'a>(&'a AtomicBool);

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.0.store(false, Relaxed);
    }
}

/// The handler of a line: it serves some sources; on a private line, those of the running CPU.
pub(super) struct Handler {
    /// The system owns the core, which owns this.
    system: Weak<ArmHarness>,
    sources: Vec<Arc<Source>>,
    /// The number of this installation, for the checkers.
    number: u64,
    part: Part,
    /// Interrupts handled, on a line whose core is asked for the impossible now and then.
    asks: Option<AtomicU32>,
}

/// Every so many interrupts.
const ASKS: u32 = 24;

/// Which half of a handler it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Whole,
    Primary,
    Thread,
}

impl Handler {
    /// A handler without a thread; its caller installs it.
    pub(super) fn whole(system: &Arc<ArmHarness>, sources: Vec<Arc<Source>>, number: u64, asks: bool) -> Arc<Self> {
        let asks = asks.then(AtomicU32::default);
        Arc::new(Self { system: Arc::downgrade(system), sources, number, part: Part::Whole, asks })
    }

    /// A handler and its thread.
    pub(super) fn halves(system: &Arc<ArmHarness>, source: &Arc<Source>, number: u64, asks: bool) -> [Arc<Self>; 2] {
        [Part::Primary, Part::Thread].map(|part| {
            let (sources, asks) = (vec![source.clone()], asks.then(AtomicU32::default));
            Arc::new(Self { system: Arc::downgrade(system), sources, number, part, asks })
        })
    }

    /// It is about to be installed.
    pub(super) fn open(&self) {
        Mark::LineOpened.of(self.number);
    }

    /// Its line's `free` has returned.
    pub(super) fn close(&self) {
        Mark::LineClosed.of(self.number);
    }

    fn served(&self) -> bool {
        let Some(system) = self.system.upgrade() else { return false };
        let here = SimHal.cpu().0;
        let mut any = false;
        for source in &self.sources {
            match source.kind {
                Kind::Ppi { cpu, .. } if cpu != here => {}
                _ => any |= source.serve(&system),
            }
        }
        any
    }
}

impl Action for Handler {
    fn handle(&self, irq: Irq) -> IrqReturn {
        Mark::HandlerEntered.of(self.number);
        if self.asks.as_ref().is_some_and(|asks| asks.fetch_add(1, Relaxed) % ASKS == ASKS - 1)
            && let (Some(system), Some(source)) = (self.system.upgrade(), self.sources.first())
        {
            misuse::in_handler(&system, source, irq);
        }
        let intid = u64::from(self.sources.first().and_then(|source| source.wired()).unwrap_or(0));
        let found = match self.part {
            Part::Primary => {
                machine::mark(HELD, intid);
                IrqReturn::WakeThread
            }
            _ if self.served() => IrqReturn::Handled,
            _ => IrqReturn::None,
        };
        if self.part == Part::Whole
            && let Some(source) = self.sources.first()
        {
            // Lines that each CPU has for itself, and pseudo-NMIs, are not throttled.
            if matches!(source.kind, Kind::Spi { .. } | Kind::Pin { .. } | Kind::Message { .. }) {
                machine::mark(ANSWERED, answer(self.number, found == IrqReturn::Handled));
            }
            // This look does not see events that come meanwhile.
            SimHal.delay_ns(source.linger_ns);
            // A pseudo-NMI may come while a lock is held that a deed takes.
            if !matches!(source.kind, Kind::Nmi { .. }) {
                source.deeds.act();
            }
        }
        if self.part == Part::Thread {
            let own = u64::from(SimHal.current_thread().0) + 1;
            self.sources.iter().for_each(|source| source.thread.store(own, Relaxed));
            machine::mark(RELEASED, intid);
        }
        Mark::HandlerLeft.of(self.number);
        if self.sources.first().is_some_and(|source| source.is_judged()) {
            marks::answered(irq, found, self.part == Part::Thread);
        }
        found
    }
}

//! State that the machine's threads share: the system, a disk and a network, their lines.

use super::bind_error::BindError;
use super::changes::check_size;
use super::load::{Load, QUEUES_MAX, Told};
use super::network::{self, Reflector};
use crate::checkers::acks;
use crate::checkers::truth::marks;
use crate::coverage::Coverage;
use crate::gic::bells::BellPort;
use crate::gic::harness::{self, ArmHarness};
use crate::gic::source::{Claim, claim};
use crate::mark::Mark;
use crate::setbacks::Setbacks;
use crate::verdict::violate;
use drivers::pci::{MsixCapability, MsixTable};
use drivers::virtio::block::{Block, BlockConfig};
use drivers::virtio::discovery::{self, MmioDevice};
use drivers::virtio::net::{Net, NetConfig};
use drivers::virtio::{Bar, Mmio, MmioConfig, Pci, RegisterWrites, Rung, Transport, VectorPolicy, VirtioError};
use hal::{Affinity, CpuId, CpuSet, Hal as _, ThreadSpec, Threads};
use irq::{Action, AllocRequest, Flow, Irq, IrqError, IrqReturn, RequestFlags, RequesterId, Trigger};
use machine::{Regs, SimHal};
use spec::gic::IntId;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};
use systems::{Handler, Line};

/// How a device is attached to the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bus {
    /// MMIO with so many wires, level-triggered or not.
    Mmio { wires: u16, level: bool },
    /// PCI with so many MSI-X entries.
    Pci { vectors: u16 },
}

/// Attachment and registers of a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) bus: Bus,
    pub(super) regs: [Regs; 3],
    /// Register writes on MMIO are posted.
    pub(super) is_posted: bool,
    /// Its messages' lines are managed, each on one CPU.
    pub(super) is_managed: bool,
    /// The driver is told that the lines on MMIO are other devices' too.
    pub(super) shares_lines: bool,
    /// The INTID of the first wire.
    pub(super) intid: u32,
    pub(super) requester: u16,
}

/// Managers that may give the network commands at once: a device has at least so many transmit queues.
pub(super) const ASKERS: usize = 2;

/// If the device breaks its queues, the driver's own clock looks for requests older than this.
const TIMEOUT_NS: u64 = 1_000_000;

/// The clock of CPU 0: it wakes the thread that looks for lost requests.
pub(super) struct Tick {
    pub(super) port: BellPort,
    pub(super) load: Arc<Load>,
}

impl Action for Tick {
    fn handle(&self, _: Irq) -> IrqReturn {
        self.port.serve();
        self.load.repairer.get().into_iter().for_each(|&thread| SimHal.wake(thread));
        IrqReturn::Handled
    }
}

/// A line with its handler.
struct Bound {
    handler: Handler<SimHal>,
    line: Line<SimHal>,
    number: u64,
}

/// A handler that reports its runs to the checkers.
struct Marked {
    inner: Arc<dyn Action>,
    number: u64,
    load: Arc<Load>,
    /// It has the lines, and they have this.
    system: Weak<ArmHarness>,
}

impl Action for Marked {
    fn handle(&self, irq: Irq) -> IrqReturn {
        Mark::HandlerEntered.of(self.number);
        let ended = self.load.ended_here().load(Relaxed);
        let answer = self.inner.handle(irq);
        // Nothing else runs on a CPU in an interrupt. A thread's handler may be interrupted.
        let takes = self.system.upgrade().is_some_and(|system| system.takes(SimHal.cpu()));
        let has_ended = takes && self.load.ended_here().load(Relaxed) != ended;
        if has_ended && answer == IrqReturn::None {
            violate(
                "truth",
                format!("a handler of line {} ended requests and said that the interrupt is not its own", irq.0),
            );
        }
        Mark::HandlerLeft.of(self.number);
        marks::answered(irq, answer, false);
        answer
    }
}

/// The devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Which {
    Disk,
    Network,
}

/// Everything that runs on the machine.
pub struct VirtioStack {
    pub(super) system: Arc<ArmHarness>,
    places: [Place; 2],
    /// What firmware said of those on MMIO.
    found: [Option<MmioDevice>; 2],
    lines: [Mutex<Vec<Bound>>; 2],
    pub(super) load: Arc<Load>,
    pub(super) reflector: Arc<Reflector>,
    pub(super) pairs: u16,
    numbers: AtomicU64,
    /// Managers that bind or unbind a device do so one at a time.
    busy: [AtomicBool; 2],
    /// Queues of the disk that are being reset: several at once, each by one manager.
    resetting: [AtomicBool; QUEUES_MAX],
    pub(super) hotplug: AtomicBool,
    /// Managers that give the network commands, each about a transmit queue of its own.
    asking: [AtomicBool; ASKERS],
    /// The driver's clock must not look any more.
    pub(super) proving: AtomicBool,
    /// The network was bound again: packets were lost with its rings.
    pub(super) net_rebound: AtomicBool,
    /// Lines that were freed. A CPU may have acknowledged the interrupt of each, and not looked for its line yet.
    pub(super) freed: AtomicU64,
    pub(super) seen: Mutex<Coverage>,
}

pub(super) fn policy(number: u32) -> VectorPolicy {
    [VectorPolicy::Ladder, VectorPolicy::Modulo, VectorPolicy::Pairs, VectorPolicy::Single][number as usize % 4]
}

/// A manager tries so often, so far apart, to bind a device while a fault lasts.
pub(super) const BINDS_MAX: u32 = 10_000;
pub(super) const BIND_GAP_NS: u64 = 2_000;

impl VirtioStack {
    pub(super) fn new(
        system: Arc<ArmHarness>,
        (places, found): ([Place; 2], [Option<MmioDevice>; 2]),
        load: Load,
        pairs: u16,
        budget: u32,
    ) -> Arc<Self> {
        let reflector = Reflector::new(system.cpus, pairs, budget);
        assert!(system.polls.set(reflector.poll()).is_ok(), "once");
        let stack = Self {
            system,
            places,
            found,
            lines: Default::default(),
            load: Arc::new(load),
            reflector,
            pairs,
            numbers: AtomicU64::new(1),
            busy: Default::default(),
            resetting: Default::default(),
            hotplug: AtomicBool::new(false),
            asking: Default::default(),
            proving: AtomicBool::new(false),
            net_rebound: AtomicBool::new(false),
            freed: AtomicU64::new(0),
            seen: Mutex::default(),
        };
        let stack = Arc::new(stack);
        stack.start_repairer();
        stack
    }

    /// `transition` was seen.
    pub(super) fn saw(&self, transition: &'static str) {
        self.seen.lock().expect("one host thread").add(transition, 1);
    }

    /// The present line of this number.
    pub(super) fn line(&self, index: u32) -> Option<Irq> {
        let all = self.all_lines();
        (!all.is_empty()).then(|| all[index as usize % all.len()])
    }

    /// All lines of the devices.
    pub(super) fn all_lines(&self) -> Vec<Irq> {
        let locked = self.lines.iter().map(|lines| lines.lock().expect("one host thread"));
        locked.flat_map(|lines| lines.iter().map(|bound| bound.line.irq()).collect::<Vec<_>>()).collect()
    }

    /// All is at rest: marks what the core counts.
    pub(super) fn claim(&self) {
        let core = &self.system.core;
        for line in self.all_lines() {
            marks::claim(core, line, true);
            acks::claim(core, line);
        }
    }

    /// A thread that resets the queues that its device broke.
    fn start_repairer(self: &Arc<Self>) {
        let stack = self.clone();
        let body = move || {
            loop {
                stack.look_for_lost();
                for queue in stack.load.take_broken() {
                    if !stack.recover(queue) {
                        // Another thread resets it, or the whole device, anyway.
                        SimHal.delay_ns(5_000);
                    }
                    stack.saw("disk: a broken queue was reset");
                }
                SimHal.park();
            }
        };
        let spec = ThreadSpec { name: "repairer", affinity: Affinity::Any, urgent: false };
        let thread = SimHal.spawn(spec, Box::new(body)).expect("a CPU");
        assert!(self.load.repairer.set(thread).is_ok(), "one");
    }

    /// A broken device may stay silent; then the driver's own clock finds the requests.
    fn look_for_lost(&self) {
        let Some(disk) = self.load.disk().filter(|_| self.load.hostile && !self.proving.load(Relaxed)) else { return };
        for queue in 0..disk.queues() {
            let waits = |limit_ns| disk.oldest_ns(queue).is_some_and(|since| since + limit_ns < SimHal.now_ns());
            if waits(TIMEOUT_NS) && disk.poll(queue) > 0 {
                Mark::TimedOut.of(1);
                self.saw("timeout: a poll found requests");
            } else if waits(2 * TIMEOUT_NS) && self.recover(queue) {
                self.saw("timeout: a queue was reset");
            }
        }
    }

    /// The right to bind or unbind a device, or to disable its lines. None while somebody has it, resets one of its queues, or
    /// gives it commands.
    pub(super) fn own(&self, which: Which) -> Option<Claim<'_>> {
        let claimed = claim(&self.busy[which as usize])?;
        let others = match which {
            Which::Disk => &self.resetting[..],
            Which::Network => &self.asking[..],
        };
        (!others.iter().any(|other| other.load(Relaxed))).then_some(claimed)
    }

    /// The right to give the network commands about one of its queues.
    pub(super) fn own_asker(&self, asker: usize) -> Option<Claim<'_>> {
        let is_owned = self.busy[Which::Network as usize].load(Relaxed);
        if is_owned { None } else { claim(&self.asking[asker]) }
    }

    fn own_queue(&self, queue: u16) -> Option<Claim<'_>> {
        let is_owned = self.busy[Which::Disk as usize].load(Relaxed);
        if is_owned { None } else { claim(&self.resetting[usize::from(queue)]) }
    }

    /// Resets a queue of the disk. False if its driver is unbound or busy with it.
    pub(super) fn recover(&self, queue: u16) -> bool {
        let Some(disk) = self.load.disk().filter(|disk| queue < disk.queues()) else { return false };
        let Some(_claim) = self.own_queue(queue) else { return false };
        self.load.disrupted.fetch_add(1, Relaxed);
        self.load.trust(queue, true);
        let mut recovered = disk.recover(queue);
        for _ in 1..BINDS_MAX {
            // The other queue's recovery is under way, or memory is short for a while.
            let passes = match recovered {
                Err(VirtioError::Busy) => true,
                Err(VirtioError::Dma(_)) => self.load.exhausted,
                _ => false,
            };
            if !passes {
                break;
            }
            SimHal.delay_ns(BIND_GAP_NS);
            recovered = disk.recover(queue);
        }
        self.load.disrupted.fetch_sub(1, Relaxed);
        if let Err(error) = recovered {
            violate("operations", format!("queue {queue} is not recovered: {error}"));
        }
        self.load.go_on(queue);
        true
    }

    fn transport(&self, which: Which, place: &Place) -> (Arc<dyn Transport>, Option<Arc<MsixTable<Regs>>>) {
        match place.bus {
            Bus::Mmio { .. } => {
                let found = self.found[which as usize].as_ref().expect("a device on MMIO was described");
                let writes = if place.is_posted { RegisterWrites::Posted } else { RegisterWrites::AtOnce };
                let platform = MmioConfig { writes, shared_lines: place.shares_lines, ..found.config() };
                (Arc::new(Mmio::new(SimHal, place.regs[0], platform).expect("a device")), None)
            }
            Bus::Pci { vectors } => {
                let [structures, table, config] = place.regs;
                let capability = MsixCapability::find(&config).expect("MSI-X");
                let table = MsixTable::enable(config, table, capability);
                let mut bars = [const { None }; 6];
                bars[4] = Some(Bar { regs: Arc::new(structures), len_bytes: 0x4000 });
                let pci = Pci::<SimHal>::new(SimHal, &config, &bars, vectors).expect("a function");
                (Arc::new(pci), Some(Arc::new(table)))
            }
        }
    }

    /// Brings a device up for the first time.
    pub(super) fn bring_up(self: &Arc<Self>, which: Which, policy: VectorPolicy, setbacks: &Setbacks) {
        let bind = || loop {
            match self.try_bind(which, policy) {
                // As in `bind`.
                Err(BindError::Virtio(VirtioError::ConfigUnstable(_))) => SimHal.delay_ns(BIND_GAP_NS),
                bound => return bound.map_err(|error| format!("{error:?}")),
            }
        };
        setbacks.meet("a virtio device", bind);
    }

    /// Brings a device up, again while a fault keeps it from that.
    pub(super) fn bind(self: &Arc<Self>, which: Which, policy: VectorPolicy) {
        for _ in 0..BINDS_MAX {
            match self.try_bind(which, policy) {
                Ok(()) => return,
                Err(error) if self.load.exhausted && error.is_of_memory() => SimHal.delay_ns(BIND_GAP_NS),
                // A CPU that is stopped again and again never reads a configuration that stands still.
                Err(BindError::Virtio(VirtioError::ConfigUnstable(_))) => SimHal.delay_ns(BIND_GAP_NS),
                Err(error) => violate("operations", format!("{error:?} at a binding, and no fault explains it")),
            }
        }
        violate("operations", format!("a device is not bound in {BINDS_MAX} tries"));
    }

    fn try_bind(self: &Arc<Self>, which: Which, policy: VectorPolicy) -> Result<(), BindError> {
        let place = self.places[which as usize];
        // With messages there is no single interrupt.
        let single = policy == VectorPolicy::Single && matches!(place.bus, Bus::Pci { .. });
        let policy = if single { VectorPolicy::Ladder } else { policy };
        let (transport, table) = self.transport(which, &place);
        match which {
            Which::Disk => {
                let config = BlockConfig { queues: QUEUES_MAX as u16, entries: super::load::ENTRIES as u16, policy };
                let told = Arc::new(Told(Arc::downgrade(&self.load)));
                let opened = Block::open(SimHal, transport.clone(), &config, told);
                let disk = opened.inspect_err(|_| check_given_up(&*transport))?;
                check_size(disk.info().sectors);
                if let Err(error) = self.install(which, &place, table, disk.handlers(), disk.vectors().rung) {
                    disk.shut_down()?;
                    self.remove_lines(which);
                    return Err(error.into());
                }
                disk.start();
                self.load.set_disk(Some(disk.clone()));
                (0..disk.queues()).for_each(|queue| self.load.go_on(queue));
            }
            Which::Network => {
                let config = NetConfig { pairs: self.pairs, reflect: true, entries: 32, buffer_bytes: 1_536, policy };
                let receiver = Arc::new(network::Told(Arc::downgrade(&self.reflector)));
                let opened = Net::open(SimHal, transport.clone(), &config, receiver);
                let net = opened.inspect_err(|_| check_given_up(&*transport))?;
                self.reflector.attach(Some(&net));
                let installed = self.install(which, &place, table, net.handlers(), net.vectors().rung);
                let started = installed.map_err(BindError::from).and_then(|()| Ok(net.start()?));
                if let Err(error) = started {
                    net.shut_down()?;
                    self.reflector.attach(None);
                    self.remove_lines(which);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn install(
        &self,
        which: Which,
        place: &Place,
        table: Option<Arc<MsixTable<Regs>>>,
        handlers: Vec<Arc<dyn Action>>,
        rung: Rung,
    ) -> Result<(), IrqError> {
        let messages = table.map(|table| {
            let table = Arc::into_inner(table).expect("nobody else has it");
            self.system.arm.message_domain(table)
        });
        let messages = messages.transpose()?;
        let arm = &self.system.arm;
        for (index, inner) in (0..).zip(handlers) {
            let managed = place.is_managed && messages.is_some();
            let own = CpuSet::of(CpuId(index % self.system.cpus));
            let affinity = if managed { own } else { CpuSet::first(self.system.cpus) };
            let requester = RequesterId(place.requester);
            let request = AllocRequest { affinity, managed, requester, ..harness::request(index) };
            let line = match (&messages, place.bus) {
                (Some(messages), _) => Line::alloc(arm.core(), messages.clone(), &request, Flow::FastEoi),
                (None, bus) => {
                    let found = self.found[which as usize].as_ref().expect("a device on MMIO was described");
                    let wire = found.lines[index as usize];
                    // A command line says nothing of triggers.
                    let is_level = matches!(bus, Bus::Mmio { level: true, .. });
                    let is_level = wire.trigger.map_or(is_level, |told| told == discovery::Trigger::Level);
                    let level = rung == Rung::Single || is_level;
                    let trigger = if level { Trigger::LevelHigh } else { Trigger::EdgeRising };
                    arm.wire(IntId(wire.number), trigger, request.affinity)
                }
            };
            let line = line?;
            marks::allocated(line.irq());
            acks::begun(line.core(), line.irq());
            marks::installing(line.irq());
            let number = self.numbers.fetch_add(1, Relaxed);
            Mark::LineOpened.of(number);
            let (load, system) = (self.load.clone(), Arc::downgrade(&self.system));
            let marked = Arc::new(Marked { inner, number, load, system });
            let handler = line.request("virtio", RequestFlags::default(), marked).expect("a new line");
            self.lines[which as usize].lock().expect("one host thread").push(Bound { handler, line, number });
        }
        Ok(())
    }

    /// Takes a device down with requests in flight.
    pub(super) fn unbind(&self, which: Which) {
        match which {
            Which::Disk => {
                let Some(disk) = self.load.disk() else { return };
                self.load.set_disk(None);
                self.load.disrupted.fetch_add(1, Relaxed);
                (0..disk.queues()).for_each(|queue| self.load.trust(queue, true));
                let down = disk.shut_down();
                self.load.disrupted.fetch_sub(1, Relaxed);
                if let Err(error) = down {
                    violate("operations", format!("the disk is not shut down: {error}"));
                }
            }
            Which::Network => {
                let Some(net) = self.reflector.net() else { return };
                if let Err(error) = net.shut_down() {
                    violate("operations", format!("the network is not shut down: {error}"));
                }
                self.reflector.attach(None);
            }
        }
        self.remove_lines(which);
    }

    fn remove_lines(&self, which: Which) {
        let lines = std::mem::take(&mut *self.lines[which as usize].lock().expect("one host thread"));
        for Bound { handler, line, number } in lines {
            handler.free().expect("it is there");
            Mark::LineClosed.of(number);
            marks::removed(line.irq());
            marks::claim(line.core(), line.irq(), false);
            line.free().expect("it lives");
            self.freed.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn describe(&self) -> String {
        let mut text = self.load.describe();
        if let Some(net) = self.reflector.net() {
            for pair in 0..self.pairs {
                text += &format!("pair {pair}: {:?}, {:?}\n", net.receive_counters(pair), net.receive_fault(pair));
            }
        }
        for line in self.all_lines() {
            text += &self.system.core.view(line).map(|view| format!("{view}\n")).unwrap_or_default();
        }
        text
    }
}

/// The machine has ended, and no code runs on it any more: its lines end with it.
impl Drop for VirtioStack {
    fn drop(&mut self) {
        for lines in &mut self.lines {
            for Bound { handler, line, .. } in lines.get_mut().into_iter().flat_map(std::mem::take) {
                handler.keep();
                line.keep();
            }
        }
    }
}

/// The device knows that its driver has given it up (VIRTIO 3.1.1).
fn check_given_up(transport: &dyn Transport) {
    let status = transport.status();
    if !status.failed() {
        violate("operations", format!("a device that did not open is not marked as failed: {status:?}"));
    }
}

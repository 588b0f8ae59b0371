//! The machine, and the host's operations on it.

use super::buffers::Buffers;
use super::changes::Changes;
use super::end::{self, Before, Built};
use super::load::{CPUS_MAX, Load, QUEUES_MAX};
use super::stack::{BIND_GAP_NS, BINDS_MAX, Bus, Place, Tick, VirtioStack, Which, policy};
use super::step::{VirtioFault, VirtioStep};
use super::{changes, manage, platform};
use crate::checkers::truth::marks::{self, Known};
use crate::checkers::{self, Checker, beliefs::Promises};
use crate::coverage::Coverage;
use crate::draw::Knobs;
use crate::fullness::check_lines;
use crate::gic::beliefs;
use crate::gic::bells::{BEGIN_TICKS, BellPort, Bells, Sound};
use crate::gic::harness::{self, Entry, Options, Version};
use crate::rest;
use crate::setbacks::Setbacks;
use crate::subject::{Build, Rig};
use crate::verdict::violate;
use drivers::gic::EoiMode;
use drivers::virtio::discovery::MmioDevice;
use hal::Hal as _;
use machine::gic::{GicConfig, ItsConfig, WIRE, wire_arg};
use machine::model::{Model, ModelId};
use machine::time::Ps;
use machine::virtio::block::{Block, BlockConfig};
use machine::virtio::net::{self, CoalescingSupport, FlowCounts, Flows, HostConfig, Net, NetConfig};
use machine::virtio::{
    self as model, Device, Exits, Irqfd, Line, MmioConfig, PciConfig, Trigger, VirtioMmio, VirtioPci, jump_arg,
};
use machine::{Machine, MachineConfig, SimHal};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Work on the boot thread ends within this time.
const LIMIT: Ps = Ps::from_ns(2_000_000_000);
/// The last load: requests of each queue, and how long the flows run.
const PROOF: u64 = 20;
const PROOF_FLOWS: Ps = Ps::from_ns(100_000);
/// PPI of the driver's clock.
const TICK_PPI: u32 = 27;
/// Looks, 100 µs apart, until the last packet is back.
const DRAIN_MAX: u32 = 200;
/// An interrupt that was acknowledged is counted within this time, and a freed line forgotten.
const REST_NS: u64 = 20_000;
const IRQFD: Irqfd = Irqfd { signal: Ps::from_ns(100), latency: Ps::from_ns(300) };

/// A machine with a disk and a network.
pub struct VirtioRig {
    machine: Machine,
    entry: Entry,
    options: Options,
    mode: EoiMode,
    models: [ModelId; 2],
    clock: ModelId,
    places: [Place; 2],
    found: [Option<MmioDevice>; 2],
    built: Built,
    before: Before,
    /// Requests of the last load, for each queue of the disk.
    proof: u64,
    policies: [u32; 2],
    budget: u32,
    load: u64,
    depth: u64,
    hostile: bool,
    exhausted: bool,
    faulty: bool,
    /// The last load begins with full queues.
    full: bool,
    changes: Changes,
    /// When the last change of the configuration is announced, which may be after the load.
    announced: Ps,
    comparable: bool,
    /// Packets lost with the rings of a driver that was unbound, by flow.
    lost: Vec<i64>,
    stack: Option<Arc<VirtioStack>>,
}

fn draw_bus(build: &mut Build<'_, VirtioFault>, bus: &'static str, count: &'static str) -> Bus {
    let kind = build.knobs.choice(bus, &["edge", "level", "pci"]);
    let count = build.knobs.number(count, 1..=4) as u16;
    match kind {
        2 => Bus::Pci { vectors: count.max(2) },
        kind => Bus::Mmio { wires: count, level: kind == 1 },
    }
}

/// The model of a device. On MMIO its register writes may be posted, as those of hardware are.
fn device<D: Device>(bus: Bus, is_posted: bool, gic: ModelId, place: (u32, u16), device: D) -> Box<dyn Model> {
    let (intid, requester) = place;
    let exits = Exits { register: Ps::from_ns(100), kick: Ps::from_ns(100) };
    match bus {
        Bus::Mmio { wires, level } => {
            let trigger = if level { Trigger::Level } else { Trigger::Edge };
            let line = |index: u16| {
                let intid = intid + u32::from(index);
                let [asserted, released] = [true, false].map(|asserted| wire_arg(intid, 0, asserted));
                Line { controller: gic, code: WIRE, asserted, released, trigger }
            };
            let lines = (0..wires).map(line).collect();
            let config = MmioConfig { name: "virtio".into(), lines, multi_irq: wires > 1, exits, irqfd: IRQFD };
            let device = VirtioMmio::new(config, device).expect("valid lines");
            Box::new(if is_posted { device.with_posted_writes() } else { device })
        }
        Bus::Pci { vectors } => {
            let config = PciConfig { name: "virtio".into(), requester, upstream: gic, vectors, exits, irqfd: IRQFD };
            Box::new(VirtioPci::new(config, device))
        }
    }
}

/// Between two packets of a flow.
fn draw_packet_gap(knobs: &mut Knobs) -> Ps {
    Ps::from_ns(100 * knobs.number_with("packet_gap", 10..=1_000, 1_000, |draw| draw.time_ns(10, 1_000)))
}

fn options((cpus, force_threads): (u32, bool), machine: MachineConfig, setbacks: Setbacks) -> Options {
    let gic = GicConfig { its: Some(ItsConfig::default()), ..GicConfig::default() };
    Options { cpus, force_threads, gic, machine, setbacks, ..Options::default() }
}

fn disk_config() -> BlockConfig {
    BlockConfig { sectors: end::SECTORS, queue_entries: 16, ..BlockConfig::default() }
}

/// A network whose host sends a packet of each flow so often.
fn network_config(pairs: u16, packet: Ps, packed: bool) -> NetConfig {
    let flows = Flows { count: pairs, sent: packet, dropped: packet };
    let host = HostConfig { receive: Ps::from_ns(200), transmit: Ps::from_ns(200), flows, ..HostConfig::default() };
    let coalescing = CoalescingSupport::UpTo { usecs: super::ask::USECS_MAX };
    NetConfig { pairs: 2 * pairs, queue_entries: 32, coalescing, host, packed, ..NetConfig::default() }
}

/// Knobs that are on or off, and on how many of a hundred machines they are on.
const CHANCES: [(&str, u64); 7] = [
    ("packed", 40),
    ("threads", 25),
    ("full", 30),
    ("read_only", 30),
    ("posted", 50),
    ("shared_lines", 40),
    ("managed", 30),
];

impl VirtioRig {
    pub(super) fn build(build: &mut Build<'_, VirtioFault>) -> Self {
        let cpus = build.knobs.number("cpus", 1..=CPUS_MAX as u64) as u32;
        let mode = [EoiMode::Together, EoiMode::Split][build.knobs.choice("eoimode", &["0", "1"])];
        let buses = [draw_bus(build, "disk_bus", "disk_vectors"), draw_bus(build, "net_bus", "net_vectors")];
        let knobs = &mut *build.knobs;
        let policies = ["disk_policy", "net_policy"].map(|name| knobs.number(name, 0..=3) as u32);
        let queues = knobs.number("queues", 1..=QUEUES_MAX as u64) as u16;
        let pairs = knobs.number("pairs", 1..=2) as u16;
        let depth = knobs.number("depth", 1..=12);
        let load = knobs.number_with("load", 0..=20_000, 20, |draw| draw.time_ns(100, 3_000));
        let latency = Ps::from_ns(1000 * knobs.number("latency_us", 1..=20));
        let packet = draw_packet_gap(knobs);
        let budget = knobs.number_with("budget", 4..=256, 256, |draw| draw.time_ns(4, 256)) as u32;
        let [packed, force_threads, full, read_only, is_posted, shares_lines, is_managed] =
            CHANCES.map(|(name, percent)| knobs.chance(name, percent));
        let changes = Changes::draw(knobs);
        let machine = MachineConfig { memory_bytes: 16 << 20, jitter_percent: 40, ..build.machine() };
        let options = options((cpus, force_threads), machine, Setbacks::draw(build.knobs, build.may_be_set_back));
        let entry = Entry::default();
        let mut machine = harness::build(Version::V3, &options, &entry);
        let gic = machine.gic().expect("it was asked for").model;
        let disk = BlockConfig { queues, read_only, latency, packed, ..disk_config() };
        let network = network_config(pairs, packet, packed);
        let models = [
            machine.add_model(|_| device(buses[0], is_posted, gic, (40, 0x0200), Block::new(disk))),
            machine.add_model(|_| device(buses[1], is_posted, gic, (48, 0x0300), Net::new(network))),
        ];
        let place = |index: usize| Place {
            bus: buses[index],
            regs: [0, 1, 2].map(|region| machine.regs(models[index], region)),
            is_posted,
            is_managed,
            shares_lines,
            intid: [40, 48][index],
            requester: [0x0200, 0x0300][index],
        };
        let places = [0, 1].map(place);
        let found = platform::discover(build, &places);
        let built = Built { queues, pairs, read_only, buses };
        let tick = (Sound::Wire { intid: TICK_PPI, cpu: 0 }, true);
        let clock = machine.add_model(|_| Box::new(Bells::new(gic, 60, [tick].into_iter())));
        let hostile = build.faults.iter().any(|fault| matches!(fault, VirtioFault::Jump { .. }));
        Self {
            machine,
            entry,
            options,
            mode,
            models,
            clock,
            places,
            found,
            built,
            before: Before::default(),
            proof: 0,
            policies,
            budget,
            load,
            depth,
            hostile,
            exhausted: build.faults.contains(&VirtioFault::NoMemory),
            faulty: !build.faults.is_empty(),
            full,
            changes,
            announced: Ps(0),
            comparable: build.comparable,
            lost: vec![0; pairs.into()],
            stack: None,
        }
    }

    fn up(&self) -> &Arc<VirtioStack> {
        self.stack.as_ref().expect("the stack is up")
    }

    /// Runs `body` on CPU 0 until it has ended.
    pub(super) fn boot<R: Send + 'static>(&mut self, body: impl FnOnce(&Arc<VirtioStack>) -> R + Send + 'static) -> R {
        let stack = self.up().clone();
        match self.machine.run_boot(LIMIT, move || body(&stack)) {
            Ok(value) => value,
            Err(why) => panic!("{why}\n{}", self.describe()),
        }
    }

    fn poke(&mut self, which: Which, code: u32, arg: u64) {
        self.poke_at(which, Ps(0), code, arg);
    }

    pub(super) fn poke_at(&mut self, which: Which, after: Ps, code: u32, arg: u64) {
        let at = self.machine.now() + after;
        self.machine.poke(self.models[which as usize], at, code, arg);
    }

    /// A device that held its level up without a reason made its line storm, rightly. What it announces now gives the
    /// driver something to acknowledge, and the line comes back before the last load is judged.
    fn calm(&mut self) {
        let throttled = |stack: &VirtioStack| -> Option<u64> {
            let core = &stack.system.core;
            let of = |line| core.view(line).and_then(|view| view.throttled_until_ns);
            stack.all_lines().into_iter().filter_map(of).max()
        };
        if self.boot(move |stack| throttled(stack).is_none()) {
            return;
        }
        changes::announce(self, Ps(0));
        self.boot(move |stack| {
            while let Some(until_ns) = throttled(stack) {
                SimHal.delay_ns(until_ns.saturating_sub(SimHal.now_ns()) + rest::THROTTLE_LATE_NS);
                if throttled(stack) == Some(until_ns) {
                    violate("rest", format!("a line is still throttled, which was to come back at {until_ns} ns"));
                }
            }
        });
    }

    /// Configurations change for so long from now on.
    pub(super) fn changes_until(&mut self, after: Ps) {
        self.announced = self.announced.max(self.machine.now() + after);
    }

    pub(super) fn with<D: Device, R>(&mut self, which: Which, look: impl Fn(&mut D) -> R) -> R {
        let model = self.models[which as usize];
        let on_mmio = self.machine.with_model(model, |mmio: &mut VirtioMmio<D>| look(mmio.device()));
        on_mmio.unwrap_or_else(|| {
            let on_pci = self.machine.with_model(model, |pci: &mut VirtioPci<D>| look(pci.device()));
            on_pci.expect("the device")
        })
    }

    /// Packets of each flow that have not come back.
    fn missing(&mut self) -> Vec<i64> {
        let flows = self.with(Which::Network, |net: &mut Net| net.flows());
        let missing = |counts: FlowCounts| (counts.sent - counts.dropped) as i64 - counts.returned as i64;
        flows.into_iter().map(missing).collect()
    }

    fn drops(&self) -> i64 {
        let Some(net) = self.up().reflector.net() else { return 0 };
        let counters = (0..self.built.pairs).filter_map(|pair| net.receive_counters(pair));
        counters.map(|counters| counters.reflect_drops as i64).sum()
    }
}

impl Rig for VirtioRig {
    type Step = VirtioStep;
    type Fault = VirtioFault;
    type Stack = VirtioStack;

    fn machine(&mut self) -> &mut Machine {
        &mut self.machine
    }

    fn bring_up(&mut self) {
        self.changes.resize(self);
        let windows = self.machine.gic().expect("it was asked for");
        let (options, entry, mode) = (self.options.clone(), self.entry.clone(), self.mode);
        let places = (self.places, self.found.clone());
        let (pairs, budget, depth, policies) = (self.built.pairs, self.budget, self.depth, self.policies);
        let (hostile, exhausted) = (self.hostile, self.exhausted);
        let clock = self.machine.regs(self.clock, 0);
        let boot = move || {
            let system = harness::bring_up(windows, Version::V3, mode, &options, &entry);
            let memory = [4096, Buffers::bytes()].map(|bytes| SimHal.dma_alloc(bytes, 4096).expect("memory"));
            let load = Load::new(depth, memory, (hostile, exhausted));
            let stack = VirtioStack::new(system, places, load, pairs, budget);
            let tick = Tick { port: BellPort { regs: clock, index: 0 }, load: stack.load.clone() };
            let line = stack.system.private(TICK_PPI, Arc::new(tick));
            stack.system.enable_everywhere(line);
            stack.bring_up(Which::Disk, policy(policies[0]), &options.setbacks);
            stack.bring_up(Which::Network, policy(policies[1]), &options.setbacks);
            stack
        };
        self.stack = Some(self.machine.run_boot(LIMIT, boot).expect("the stack comes up"));
        let now = self.machine.now();
        self.machine.poke(self.clock, now, BEGIN_TICKS, 0);
    }

    fn stack(&self) -> Arc<VirtioStack> {
        self.up().clone()
    }

    fn checkers(&mut self) -> Vec<Box<dyn Checker>> {
        let (core, lines) = (&self.up().system.core, self.up().all_lines());
        let known: Vec<_> = lines.iter().filter_map(|&line| Known::of(core, line)).collect();
        vec![
            Box::new(checkers::Gic::default()),
            Box::new(checkers::Truth::new(self.options.storm, (self.options.force_threads, self.faulty), known)),
            Box::new(checkers::Acks::new(core, lines)),
        ]
    }

    fn start_load(&mut self) {
        let load = self.load;
        self.boot(move |stack| {
            let queues = stack.load.disk().map_or(1, |disk| disk.queues());
            (0..queues).for_each(|queue| stack.load.add(queue, load / u64::from(queues)));
        });
        self.changes.announce(self);
        // The host sends packets for as long as the load lasts: no two histories have the same.
        if !self.comparable {
            self.poke(Which::Network, net::code::FLOWS, 1);
        }
    }

    fn apply(stack: &Arc<VirtioStack>, step: &VirtioStep) {
        manage::apply(stack, step);
        beliefs::check_step(&stack.system, Promises::Kept);
    }

    fn inject(&mut self, fault: &VirtioFault) {
        match *fault {
            VirtioFault::Jump { queue, by } => {
                let queues = self.up().load.disk().map_or(1, |disk| disk.queues());
                let queue = (queue % u32::from(queues)) as u16;
                self.up().load.trust(queue, false);
                self.poke(Which::Disk, model::code::JUMP_USED, jump_arg(queue, by));
            }
            VirtioFault::Raise { disk, vector } => {
                let which = if disk { Which::Disk } else { Which::Network };
                self.poke(which, model::code::RAISE, vector.into());
            }
            VirtioFault::Late { us } => {
                let late = Ps::from_ns(1000 * us);
                self.with(Which::Disk, |disk: &mut Block| disk.set_late(late));
            }
            VirtioFault::NoMemory => self.machine.set_memory_exhausted(true),
        }
    }

    fn heal(&mut self, fault: &VirtioFault) {
        match fault {
            VirtioFault::Jump { .. } | VirtioFault::Raise { .. } => {}
            VirtioFault::Late { .. } => self.with(Which::Disk, |disk: &mut Block| disk.set_late(Ps(0))),
            VirtioFault::NoMemory => self.machine.set_memory_exhausted(false),
        }
    }

    fn settle(&mut self) {
        self.poke(Which::Network, net::code::FLOWS, 0);
        // No later packet would release gathered packets, so the network stops gathering.
        self.boot(|stack| {
            if let Some(net) = stack.reflector.net() {
                let none = drivers::virtio::net::Coalescing { max_packets: 0, max_usecs: 0 };
                net.coalesce_receive(none).expect("it is bound");
            }
            if let Some(disk) = stack.load.disk().filter(|_| stack.load.hostile) {
                // A used index that jumped while the queue was idle. The repairer may still be at another queue.
                for queue in 0..disk.queues() {
                    let again = |_: &u32| !stack.recover(queue);
                    (0..BINDS_MAX).take_while(again).for_each(|_| SimHal.delay_ns(BIND_GAP_NS));
                }
            }
            if stack.net_rebound.load(Relaxed) {
                // Packets on their way come back; the rest is lost with the rings.
                SimHal.delay_ns(3_000_000);
            }
        });
        if self.up().net_rebound.load(Relaxed) {
            self.lost = self.missing();
        }
    }

    fn is_done(&self) -> bool {
        self.up().load.is_idle()
    }

    fn prove(&mut self) {
        self.calm();
        let full = self.full;
        (self.before, self.proof) = self.boot(move |stack| {
            stack.proving.store(true, Relaxed);
            let before = end::before(stack);
            marks::placed(&stack.system.core, stack.all_lines().into_iter());
            let filled = if full { stack.load.fill() } else { 0 };
            if filled > 0 {
                stack.saw("disk: every descriptor in use");
            }
            let queues = stack.load.disk().map_or(1, |disk| disk.queues());
            (0..queues).for_each(|queue| stack.load.add(queue, PROOF));
            (before, PROOF + filled)
        });
        changes::announce(self, Ps(0));
        self.poke(Which::Network, net::code::FLOWS, 1);
        self.poke_at(Which::Network, PROOF_FLOWS, net::code::FLOWS, 0);
        self.boot(|_| SimHal.delay_ns(PROOF_FLOWS.as_ns() + 400_000));
    }

    fn audit(&mut self) {
        let mut faults = self.machine.faults().0;
        // Messages of a function whose driver has just gone.
        faults.retain(|fault| fault.kind != "message without a translation");
        assert!(faults.is_empty() || self.hostile, "the machine recorded faults: {faults:?}");
        let lost: i64 = self.lost.iter().sum();
        let rebound = self.up().net_rebound.load(Relaxed);
        // A packet that found the ring for sending back full is counted as dropped.
        let (mut missing, mut dropped) = (self.missing().iter().sum::<i64>(), self.drops());
        for _ in 0..DRAIN_MAX {
            if missing - lost <= dropped {
                break;
            }
            self.boot(|_| SimHal.delay_ns(100_000));
            (missing, dropped) = (self.missing().iter().sum(), self.drops());
        }
        let flows = self.with(Which::Network, |net: &mut Net| net.flows());
        assert!(
            missing - lost <= dropped,
            "{missing} packets have not come back, {lost} lost, {dropped} dropped: {flows:?}"
        );
        assert!(rebound || missing == dropped, "{missing} packets have not come back, and {dropped} were dropped");
        let disordered: u64 =
            self.with(Which::Network, |net: &mut Net| net.flows()).iter().map(|flow| flow.disordered).sum();
        // A network that is bound again begins with one pair, and takes its other pairs later.
        assert!(rebound || disordered == 0, "{disordered} packets overtook others");
        let quiet_ns = REST_NS + self.announced.saturating_sub(self.machine.now()).as_ns();
        self.boot(move |stack| {
            let (strays, freed) = (stack.system.arm.strays(), stack.freed.load(Relaxed));
            assert!(strays <= freed, "{strays} interrupts without a line, and {freed} lines were freed");
            SimHal.delay_ns(quiet_ns);
            marks::movable();
            rest::check(&stack.system.core);
            beliefs::check(&stack.system, Promises::Kept, true);
            stack.claim();
            stack.load.buffers.check();
            check_lines(&stack.system.core, harness::LINES_MAX as usize);
        });
        let before = std::mem::take(&mut self.before);
        end::judge(self, self.built, before, self.proof);
    }

    fn cover(&mut self, coverage: &mut Coverage) {
        let stack = self.up();
        coverage.merge(&stack.seen.lock().expect("one host thread"));
        if let Some(net) = stack.reflector.net() {
            let of = |pair| net.receive_counters(pair).unwrap_or_default();
            coverage.add(
                "network: packets came before the re-arm",
                (0..self.built.pairs).map(|pair| of(pair).rearm_races).sum(),
            );
            coverage
                .add("network: an empty interrupt", (0..self.built.pairs).map(|pair| of(pair).empty_interrupts).sum());
        }
    }

    fn describe(&self) -> String {
        self.stack.as_ref().map(|stack| stack.describe()).unwrap_or_default()
    }
}

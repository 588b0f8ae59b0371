//! The fabric by itself: synthetic devices, and CPUs that only do the work of a notification handler.

use super::dispatch::Dispatch;
use super::port::{Credits, RootPort, RootPortConfig};
use super::vtd::{InvalidationFault, VtdConfig, VtdUnit};
use crate::model::{Model, ModelId, Traffic, Upstream};
use crate::time::Ps;
use crate::world::World;
use crate::{Costs, Machine, MachineConfig, Regs, SimHal};
use hal::{Affinity, CpuId, Dma as _, Hal as _, Regs as _, ThreadSpec, Threads, Word as _};
use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

mod link;
mod ordering;
mod pushback;

const REMAP: Ps = Ps::from_ns(53);
const DELIVER: Ps = Ps::from_ns(112);
const POST: Ps = Ps::from_ns(105);
const ORDER: Ps = Ps::from_ns(157);

/// Sends a message to each handle in turn, the next after `gap`; or to random ones after random times of that mean.
struct Source {
    to: ModelId,
    handles: std::ops::Range<u64>,
    gap: Ps,
    random: bool,
    next: u64,
}

impl Model for Source {
    fn name(&self) -> &str {
        "source"
    }
    fn event(&mut self, world: &mut World<'_>, _code: u32, _arg: u64) {
        self.next = if self.random { world.random() >> 1 } else { self.next + 1 };
        let handle = self.handles.start + self.next % (self.handles.end - self.handles.start);
        let message = Upstream::Message { requester: 0x100, address: 0xfee0_0010 | handle << 5, data: 0 };
        let gap = if self.random { Ps(world.random() % (2 * self.gap.0)) } else { self.gap };
        world.schedule(world.now() + gap, 0, 0);
        world.upstream(self.to, message);
    }
    fn read(&mut self, _: &mut World<'_>, _: u8, _: u32, _: u8) -> u64 {
        0
    }
    fn write(&mut self, _: &mut World<'_>, _: u8, _: u32, _: u8, _: u64) {}
    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

fn unit_config() -> VtdConfig {
    VtdConfig {
        name: "iommu".into(),
        posted_interrupts: true,
        extended_interrupt_mode: true,
        fault_records: 8,
        remap_time: REMAP,
        post_time: POST,
        command_time: Ps(0),
        invalidation_time: Ps(0),
        invalidation_fault: InvalidationFault::None,
    }
}

fn port_config(bytes_per_second: u64) -> RootPortConfig {
    RootPortConfig {
        name: "port".into(),
        link_bytes_per_second: bytes_per_second,
        message_order_time: ORDER,
        waiting_messages_max: 2,
        relaxed_ordering: false,
        id_based_ordering: false,
    }
}

/// What a [`Fabric`] is built from.
struct Shape {
    seed: u64,
    units: u64,
    shared: bool,
    gap: Ps,
    random: bool,
    jitter_percent: u32,
    remap: Ps,
    post: Ps,
    deliver: Ps,
    line_move: Ps,
}

impl Shape {
    fn new(units: u64, shared: bool, gap: Ps, random: bool, jitter_percent: u32) -> Self {
        let line_move = Ps(0);
        Self {
            seed: 1,
            units,
            shared,
            gap,
            random,
            jitter_percent,
            remap: REMAP,
            post: POST,
            deliver: DELIVER,
            line_move,
        }
    }
}

/// Units with one port each. With `shared`, each pair of units shares a dispatch unit.
struct Fabric {
    machine: Machine,
    units: Vec<ModelId>,
    ports: Vec<ModelId>,
    sources: Vec<ModelId>,
    table: crate::memory::Dma,
    descriptors: Arc<Vec<crate::memory::Dma>>,
    /// Requests that the CPUs took out of descriptors.
    taken: Arc<AtomicU64>,
}

const CPUS: u32 = 16;
/// Cost of a notification handler before it clears ON: entry, harvest, one handler.
const HANDLER_NS: u64 = 430;

impl Fabric {
    /// `gap` is the time between a source's messages. Each source of a unit uses its own handles, one per CPU.
    fn new(units: u64, shared: bool, gap: Ps, random: bool, jitter_percent: u32) -> Self {
        Self::of(&Shape::new(units, shared, gap, random, jitter_percent))
    }

    fn of(shape: &Shape) -> Self {
        let &Shape { seed, units, shared, gap, random, jitter_percent, .. } = shape;
        let costs = Costs { line_move: shape.line_move, ..Costs::default() };
        let defaults = MachineConfig { memory_bytes: 1 << 20, ..MachineConfig::default() };
        let mut machine = Machine::new(MachineConfig { cpus: CPUS, seed, jitter_percent, costs, ..defaults });
        let socket = Dispatch::new(shape.deliver);
        let (mut ids, mut ports, mut sources) = (vec![], vec![], vec![]);
        for unit in 0..units {
            let credits = Credits::default();
            let dispatch = if shared { socket.clone() } else { Dispatch::new(shape.deliver) };
            let config = VtdConfig { remap_time: shape.remap, post_time: shape.post, ..unit_config() };
            let iommu = machine.add_model(|_| Box::new(VtdUnit::new(config, dispatch, credits.clone())));
            let port = machine.add_model(|id| Box::new(RootPort::new(id, iommu, port_config(1 << 40), &credits)));
            let handles = unit * u64::from(CPUS)..(unit + 1) * u64::from(CPUS);
            sources.push(machine.add_model(|_| Box::new(Source { to: port, handles, gap, random, next: 0 })));
            ids.push(iommu);
            ports.push(port);
        }
        let page = |bytes, align| SimHal.dma_alloc(bytes, align).expect("memory");
        let descriptors = Arc::new((0..CPUS).map(|_| page(64, 64)).collect::<Vec<_>>());
        for (cpu, descriptor) in descriptors.iter().enumerate() {
            descriptor.words()[4].set((cpu as u64) << 32 | 0xeb << 16);
        }
        let (table, taken) = (page(4096, 4096), Arc::default());
        let mut fabric = Self { machine, units: ids, ports, sources, table, descriptors, taken };
        fabric.set_up();
        fabric
    }

    fn set_up(&mut self) {
        let (descriptors, taken) = (self.descriptors.clone(), self.taken.clone());
        self.machine.set_interrupt_entry(move |vector| {
            if vector == 0xeb {
                SimHal.delay_ns(HANDLER_NS);
                taken.fetch_add(harvest(&descriptors[SimHal.cpu().index()]), Relaxed);
            }
            Regs::Lapic.write64(0x80b, 0);
        });
        let table = self.table.device_address().0;
        let units: Vec<_> = self.units.iter().map(|&unit| self.machine.regs(unit, 0)).collect();
        let boot = move || {
            for unit in units {
                unit.write64(0xb8, table | 0x807);
                unit.write32(0x18, 1 << 24);
                unit.read32(0x1c);
                unit.write32(0x18, 1 << 25);
                assert_eq!(unit.read32(0x1c), 3 << 24);
            }
            for cpu in 0..CPUS {
                let spec = ThreadSpec { name: "lapic", affinity: Affinity::Cpu(CpuId(cpu)), urgent: true };
                SimHal.spawn(spec, Box::new(|| Regs::Lapic.write64(0x80f, 0x1ff))).expect("the CPU exists");
            }
        };
        self.machine.run_boot(Ps::from_ns(1_000_000), boot).expect("it ends");
        self.run(Ps::from_ns(100_000));
    }

    /// Every handle interrupts the CPU of its number (modulo the CPUs) with vector 0x31.
    fn remapped(mut self) -> Self {
        self.remap();
        self.start();
        self
    }

    fn remap(&mut self) {
        for handle in 0..self.units.len() * CPUS as usize {
            let cpu = handle as u64 % u64::from(CPUS);
            self.table.words()[handle * 2].set(cpu << 32 | 0x31 << 16 | 1);
        }
    }

    /// Every handle posts to the descriptor that `of` returns for its CPU.
    fn posted(mut self, of: impl Fn(usize) -> usize) -> Self {
        self.post_to(of);
        self.start();
        self
    }

    fn post_to(&mut self, of: impl Fn(usize) -> usize) {
        for handle in 0..self.units.len() * CPUS as usize {
            let address = self.descriptors[of(handle % CPUS as usize)].device_address().0;
            self.table.words()[handle * 2].set((address & 0xffff_ffc0) << 32 | 0x31 << 16 | 0x8001);
            self.table.words()[handle * 2 + 1].set(address & 0xffff_ffff_0000_0000);
        }
    }

    /// No source sends any more, so that messages in progress finish.
    fn silence(&mut self) {
        for source in self.sources.clone() {
            self.machine.with_model(source, |source: &mut Source| source.gap = Ps(1 << 50)).expect("a source");
            self.machine.with_model(source, |source: &mut Source| source.random = false).expect("a source");
        }
    }

    fn start(&mut self) {
        for (phase, &source) in self.sources.iter().enumerate() {
            let at = self.machine.now() + Ps(1 + phase as u64);
            self.machine.poke(source, at, 0, 0);
        }
    }

    fn run(&mut self, time: Ps) {
        let end = self.machine.now() + time;
        self.machine.run_until(end);
    }

    fn counter(&mut self, model: ModelId, name: &str) -> u64 {
        let counters = self.machine.with_any_model(model, |model| model.counters());
        counters.iter().find(|(found, _)| *found == name).expect("a counter").1
    }

    fn sum(&mut self, name: &str) -> u64 {
        (0..self.units.len()).map(|unit| self.counter(self.units[unit], name)).sum()
    }

    /// Looked-up requests per second, by unit, over 2 ms.
    fn rates(&mut self, name: &str) -> Vec<f64> {
        self.run(Ps::from_ns(100_000));
        let before: Vec<_> = (0..self.units.len()).map(|unit| self.counter(self.units[unit], name)).collect();
        self.run(Ps::from_ns(2_000_000));
        (0..self.units.len()).map(|unit| (self.counter(self.units[unit], name) - before[unit]) as f64 / 2e-3).collect()
    }
}

/// Takes the requests, clears ON, and checks once more. Returns the number of requests.
fn harvest(descriptor: &crate::memory::Dma) -> u64 {
    let words = descriptor.words();
    let sweep = || -> u64 {
        words[..4].iter().filter(|word| word.get() != 0).map(|word| u64::from(word.swap(0).count_ones())).sum()
    };
    let first = sweep();
    words[4].fetch_and(!1);
    first + sweep()
}

fn assert_near(found: f64, expected: f64) {
    assert!((found / expected - 1.0).abs() < 0.01, "found {found:.0}, expected {expected:.0}");
}

fn per_second(time: Ps) -> f64 {
    1e12 / time.0 as f64
}

#[test]
fn one_unit_remaps_at_most_one_message_per_remapping_and_delivery() {
    for jitter in [0, 40] {
        let mut fabric = Fabric::new(1, true, Ps::from_ns(100), false, jitter).remapped();
        assert_near(fabric.rates("remapped")[0], per_second(REMAP + DELIVER));
        // The port was blocked, and the server was never idle.
        assert!(fabric.counter(fabric.ports[0], "blocked_ps") > 0);
        let busy = fabric.sum("remap_ps") + fabric.sum("hold_ps");
        assert_near(busy as f64, 2.1e9);
    }
}

#[test]
fn two_units_of_a_socket_share_its_dispatch_unit_fairly() {
    for jitter in [0, 40] {
        let mut fabric = Fabric::new(2, true, Ps::from_ns(100), false, jitter).remapped();
        let rates = fabric.rates("remapped");
        assert_near(rates[0] + rates[1], per_second(DELIVER));
        assert_near(rates[0], rates[1]);
    }
}

#[test]
fn units_of_different_sockets_do_not_hinder_each_other() {
    let mut fabric = Fabric::new(2, false, Ps::from_ns(100), false, 40).remapped();
    for rate in fabric.rates("remapped") {
        assert_near(rate, per_second(REMAP + DELIVER));
    }
}

#[test]
fn posting_is_serial_per_unit_and_pushes_back() {
    let mut fabric = Fabric::new(1, true, Ps::from_ns(80), false, 40).posted(|cpu| cpu);
    assert_near(fabric.rates("posted")[0], per_second(POST));
    let blocked = fabric.counter(fabric.ports[0], "blocked_ps");
    assert!(blocked > 2_000_000_000, "{blocked} of 2.2 ms");
    assert!(fabric.sum("notifications") < fabric.sum("posted"));
}

/// Two units that post to one descriptor wait for each other and for the CPU that harvests it: together they post less
/// than one unit alone. Units with separate descriptors lose nothing.
#[test]
fn a_descriptor_is_one_cache_line() {
    let mut one = Fabric::new(2, true, Ps::from_ns(200), false, 0).posted(|_| 0);
    let together: f64 = one.rates("posted").iter().sum();
    assert!(together <= per_second(POST), "{together:.0}");
    drop(one);
    let mut own = Fabric::new(2, true, Ps::from_ns(200), false, 0).posted(|cpu| cpu);
    assert_near(own.rates("posted").iter().sum(), per_second(Ps::from_ns(100)));
}

/// The rate makes bursts, and a burst costs one notification.
#[test]
fn notifications_per_message_fall_with_the_rate() {
    // Two units with random arrivals: total messages per second.
    let at_rate = |rate: u64| {
        let gap = Ps(2_000_000_000_000 / rate);
        let mut fabric = Fabric::new(2, true, gap, true, 40).posted(|cpu| cpu);
        fabric.run(Ps::from_ns(4_000_000));
        fabric.sum("notifications") as f64 / fabric.sum("posted") as f64
    };
    let ratios = [80_000, 1_500_000, 3_000_000, 6_000_000].map(at_rate);
    assert!(ratios[0] > 0.99, "{ratios:?}");
    assert!(ratios.windows(2).all(|pair| pair[0] > pair[1]), "{ratios:?}");
    assert!(ratios[3] < 0.85, "{ratios:?}");
}

#[test]
fn no_post_is_lost_however_fast_they_come() {
    let mut fabric = Fabric::new(2, true, Ps::from_ns(150), true, 40).posted(|cpu| cpu);
    fabric.run(Ps::from_ns(1_000_000));
    fabric.silence();
    fabric.run(Ps::from_ns(100_000));
    for descriptor in fabric.descriptors.iter() {
        let words: Vec<_> = descriptor.words().iter().map(hal::Word::get).collect();
        assert_eq!((&words[..4], words[4] & 1), (&[0; 4][..], 0), "all requests taken, ON clear");
    }
}

#[test]
fn equal_seeds_make_equal_runs() {
    let digest = || {
        let mut fabric = Fabric::new(2, true, Ps::from_ns(200), true, 40).posted(|cpu| cpu);
        fabric.run(Ps::from_ns(300_000));
        fabric.machine.engine_counters()
    };
    assert_eq!(digest(), digest());
}

/// Events per message of all models: the port's, the unit's, one of the source. Actions of the CPUs are not events.
#[test]
fn events_per_message_are_few() {
    let cost = |fabric: &mut Fabric| {
        fabric.run(Ps::from_ns(10_000));
        let (events, requests) = (fabric.machine.engine_counters().events, fabric.sum("requests"));
        fabric.run(Ps::from_ns(1_000_000));
        let events = fabric.machine.engine_counters().events - events;
        events as f64 / (fabric.sum("requests") - requests) as f64
    };
    // One of the source, two of the unit, one acceptance by the CPU.
    let remapped = cost(&mut Fabric::new(1, true, Ps::from_ns(1000), false, 40).remapped());
    assert!(remapped < 4.1, "{remapped}");
    let saturated = cost(&mut Fabric::new(1, true, Ps::from_ns(170), false, 40).remapped());
    assert!(saturated < 5.1, "{saturated}");
}

/// The facts that posting and remapping add to the observer's stream.
#[test]
fn the_observer_hears_what_became_of_each_message() {
    use crate::observe::{Arrival, Fact, Post};
    for posted in [true, false] {
        let fabric = Fabric::new(1, false, Ps::from_ns(20_000), false, 0);
        let mut fabric = if posted { fabric.posted(|cpu| cpu) } else { fabric.remapped() };
        let facts = Rc::new(std::cell::RefCell::new(Vec::new()));
        let sink = facts.clone();
        fabric.machine.set_observer(move |_, fact| sink.borrow_mut().push(fact));
        fabric.run(Ps::from_ns(10_000));
        let (port, source, iommu) = (fabric.ports[0], fabric.sources[0], fabric.units[0]);
        let (requester, descriptor) = (0x100, fabric.descriptors[1].device_address().0);
        let message = |from, to| Fact::Message { from, to, requester, address: 0xfee0_0030, data: 0 };
        let outcome = Fact::Posted { requester, descriptor, vector: 0x31, again: false, post: Post::Notified };
        let remapped = Fact::Remapped { requester, index: 1, destination: 1, vector: 0x31 };
        let vector = if posted { 0xeb } else { 0x31 };
        let seen = facts.borrow();
        let expected = [
            message(source, port),
            message(port, iommu),
            if posted { outcome } else { remapped },
            Fact::Raised { cpu: 1, vector, level: false, arrival: Arrival::Pending },
            Fact::Woken { cpu: 1 },
            Fact::Accepted { cpu: 1, vector },
            Fact::Ended { cpu: 1, vector },
            Fact::Returned { cpu: 1, depth: 0, in_service: None },
            Fact::Halted { cpu: 1 },
        ];
        assert_eq!(seen[..], expected, "posted: {posted}");
    }
}

/// A level-triggered pin that sticks sends again at each end of interrupt, until the fault ends.
#[test]
fn a_pin_that_sticks_comes_again_and_again_until_it_is_free() {
    use super::ioapic::{IoApic, IoApicConfig, PIN, STICK, pin_arg};
    let mut machine = Machine::new(MachineConfig { memory_bytes: 4096, ..MachineConfig::default() });
    let unit = VtdUnit::new(unit_config(), Dispatch::new(DELIVER), Credits::default());
    let iommu = machine.add_model(|_| Box::new(unit));
    let config = IoApicConfig { name: "ioapic".into(), requester: 0xf0, pins: 8 };
    let ioapic = machine.add_model(|_| Box::new(IoApic::new(iommu, config)));
    let count = Rc::new(std::cell::Cell::new(0));
    let seen = count.clone();
    machine.set_interrupt_entry(move |vector| {
        assert_eq!(vector, 0x61);
        seen.set(seen.get() + 1);
        SimHal.delay_ns(100);
        Regs::Lapic.write64(0x80b, 0);
    });
    let pins = machine.regs(ioapic, 0);
    let end = machine.run_boot(Ps::from_ns(1_000), move || {
        Regs::Lapic.write64(0x80f, 0x1ff);
        // Pin 3, low half: level, vector 61h.
        pins.write32(0x00, 0x16);
        pins.write32(0x10, 1 << 15 | 0x61);
    });
    assert_eq!(end, Ok(()));
    machine.poke(ioapic, Ps::from_ns(2_000), STICK, pin_arg(3, true));
    machine.poke(ioapic, Ps::from_ns(3_000), PIN, pin_arg(3, true));
    machine.poke(ioapic, Ps::from_ns(3_500), PIN, pin_arg(3, false));
    machine.run_until(Ps::from_ns(6_000));
    let stuck = count.get();
    assert!((10..=20).contains(&stuck), "{stuck} times in 4 µs");
    machine.poke(ioapic, Ps::from_ns(6_000), STICK, pin_arg(3, false));
    machine.run_until(Ps::from_ns(50_000));
    assert!(count.get() <= stuck + 2, "{}", count.get());
}

/// 82093AA, "IOAPICVER": version 11h has no EOI register. Software makes a pin edge-triggered and level-triggered again.
#[test]
fn an_old_io_apic_ends_no_interrupt_by_its_register() {
    use super::ioapic::{IoApic, IoApicConfig, PIN, pin_arg};
    for (is_old, version) in [(false, 0x20), (true, 0x11)] {
        let mut machine = Machine::new(MachineConfig { memory_bytes: 4096, ..MachineConfig::default() });
        let unit = VtdUnit::new(unit_config(), Dispatch::new(DELIVER), Credits::default());
        let iommu = machine.add_model(|_| Box::new(unit));
        let config = IoApicConfig { name: "ioapic".into(), requester: 0xf0, pins: 8 };
        let new = IoApic::new(iommu, config);
        let model = if is_old { new.without_eoi_register() } else { new };
        let ioapic = machine.add_model(|_| Box::new(model));
        machine.poke(ioapic, Ps::from_ns(10), PIN, pin_arg(3, true));
        machine.run_until(Ps::from_ns(100));
        let pins = machine.regs(ioapic, 0);
        let end = machine.run_boot(Ps::from_ns(100_000), move || {
            let read = |register| {
                pins.write32(0x00, register);
                pins.read32(0x10)
            };
            let write = |value| {
                pins.write32(0x00, 0x16);
                pins.write32(0x10, value);
            };
            let waits = || read(0x16) >> 14 & 1;
            assert_eq!(read(0x01) & 0xff, version);
            write(1 << 15 | 0x61);
            assert_eq!(waits(), 1);
            // Masked, so that it does not send again.
            write(1 << 16 | 1 << 15 | 0x61);
            pins.write32(0x40, 0x61);
            assert_eq!(waits(), u32::from(is_old));
            write(1 << 16 | 0x61);
            write(1 << 16 | 1 << 15 | 0x61);
            assert_eq!(waits(), 0);
        });
        assert_eq!(end, Ok(()));
    }
}

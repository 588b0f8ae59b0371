//! The driver against the model: the model executes what the driver writes.

mod vtd_rig;

use drivers::apic::{ApicId, ApicMode, Lapic, VectorDomain};
use drivers::hpet::HpetTimers;
use drivers::ioapic::{IoApicDomain, IoApicRoute, PinWiring};
use drivers::message::MessageDomain;
use drivers::vtd::{Fault, FaultEvent, GuestPosting, RemapConfig, RemapDomain, RemapUnit, VtdError};
use hal::{CpuId, CpuSet, DeviceAddress, Dma as _, Word as _};
use irq::posted::{PostedConfig, PostedMsi};
use irq::{AllocRequest, Irq, IrqDomain, IrqError, Level, LevelData, MsiMessage, RequesterId, Target, Vector};
use machine::SimHal;
use machine::fabric::vtd::{InvalidationFault, InvalidationTrouble, VtdUnit};
use machine::time::Ps;
use spec::vtd::registers::FaultReason;
use std::sync::Arc;
use vtd_rig::{CPUS, Options, Rig};

const A: Target = Target::at(CpuId(1), Vector(0x41));
const B: Target = Target::at(CpuId(2), Vector(0x52));
const REQUESTER: u16 = 0x3a00;

/// The driver's objects, shared with the machine's CPUs.
#[derive(Clone)]
struct Drivers {
    unit: Arc<RemapUnit<SimHal>>,
    lapic: Arc<Lapic<SimHal>>,
    vectors: Arc<VectorDomain<SimHal>>,
    posted: Arc<PostedMsi<SimHal>>,
}

struct Setup {
    rig: Rig,
    drivers: Drivers,
}

type Line = Arc<Vec<LevelData>>;

impl Setup {
    fn new(options: Options) -> Self {
        let mut rig = Rig::new(options);
        let [registers, ..] = rig.windows();
        let drivers = rig.drive(move || {
            let config = RemapConfig { table_entries: 256, apic_mode: ApicMode::X2Apic };
            let unit = Arc::new(RemapUnit::new(SimHal, registers, config).expect("the unit remaps"));
            let ids = (0..CPUS).map(ApicId).collect();
            let lapic = Lapic::new(SimHal, machine::Regs::Lapic, ApicMode::X2Apic, ids).expect("ids");
            let lapic = Arc::new(lapic);
            let vectors = Arc::new(VectorDomain::new(SimHal, lapic.clone()));
            let ids: Vec<u32> = (0..CPUS).collect();
            let posted = Arc::new(PostedMsi::new(SimHal, PostedConfig::default(), &ids).expect("memory"));
            Drivers { unit, lapic, vectors, posted }
        });
        let (posted, lapic) = (drivers.posted.clone(), drivers.lapic.clone());
        rig.set_handler(move |vector, log| {
            let notification = vector == 0xeb;
            if notification {
                let cpu = hal::Hal::cpu(SimHal).0;
                posted.handle(|vector| log.borrow_mut().push((cpu, vector.0)), || lapic.eoi());
            }
            notification
        });
        Self { rig, drivers }
    }

    fn domain(&mut self, posted: bool) -> Arc<RemapDomain<SimHal>> {
        let Drivers { unit, lapic, vectors, posted: descriptors } = self.drivers.clone();
        Arc::new(if posted {
            RemapDomain::posted(unit, lapic, vectors, descriptors).expect("the unit posts")
        } else {
            RemapDomain::remapped(unit, lapic, vectors)
        })
    }

    /// A line of the requester on `domain`, delivered to `target`.
    fn line(&mut self, domain: &Arc<RemapDomain<SimHal>>, target: Target) -> Line {
        let (domain, vectors) = (domain.clone(), self.drivers.vectors.clone());
        self.rig.drive(move || {
            let vector = vectors.allocate(&request(0)).expect("a vector");
            let levels = Arc::new(vec![domain.allocate(&request(0)).expect("an entry"), vector]);
            domain.activate(&Level::new(Irq(0), &levels), target).expect("it is written");
            levels
        })
    }

    /// The message that the device of the line writes.
    fn message(&mut self, line: &Line) -> MsiMessage {
        let level = Level::new(Irq(0), line);
        level.chip().compose_message(&level).expect("remappable")
    }

    fn send(&mut self, line: &Line) {
        let MsiMessage { address, data } = self.message(line);
        self.rig.message(REQUESTER, address, data);
    }

    fn set_affinity(&mut self, line: &Line, target: Target) -> Result<(), IrqError> {
        let line = line.clone();
        self.rig.drive(move || {
            let level = Level::new(Irq(0), &line);
            level.chip().set_affinity(&level, target)
        })
    }

    fn faults(&mut self) -> Vec<Fault> {
        let unit = self.drivers.unit.clone();
        self.rig.drive(move || {
            let mut faults = Vec::new();
            unit.take_faults(|fault| faults.push(fault));
            faults
        })
    }
}

fn request(index: u32) -> AllocRequest {
    AllocRequest::fixed(RequesterId(REQUESTER), index, CpuSet::first(CPUS))
}

#[test]
fn the_driver_turns_remapping_on() {
    let mut setup = Setup::new(Options::default());
    // GSTS: QIES, IRES, IRTPS. IRTA: 256 entries, extended.
    assert_eq!(setup.rig.read32(0x1c), 0x0700_0000);
    assert_eq!(setup.rig.read64(0xb8) & 0xfff, 0x807);
    let (faults, _) = setup.rig.machine.faults();
    assert_eq!(faults, [], "one command at a time, each after the last one's status");
    // Compatibility format is blocked.
    setup.rig.message(REQUESTER, 0xfee0_1000, 0x33);
    assert_eq!(setup.rig.interrupts(), []);
    let fault =
        Fault { reason: FaultReason::COMPATIBILITY_BLOCKED, requester: RequesterId(REQUESTER), interrupt_index: 0 };
    assert_eq!(setup.faults(), [fault]);
}

#[test]
fn a_line_is_delivered_and_moves_in_both_formats() {
    for posted in [false, true] {
        let mut setup = Setup::new(Options::default());
        let domain = setup.domain(posted);
        let line = setup.line(&domain, A);
        setup.send(&line);
        assert_eq!(setup.rig.interrupts(), [(1, 0x41)], "posted: {posted}");
        // The device's message stays the same; once the call returns, no message goes the old way.
        let before = setup.message(&line);
        setup.set_affinity(&line, B).expect("it moves");
        assert_eq!(setup.message(&line), before);
        setup.send(&line);
        assert_eq!(setup.rig.interrupts(), [(2, 0x52)], "posted: {posted}");
        assert_eq!(setup.faults(), []);
        let expected = if posted { 2 } else { 0 };
        assert_eq!(setup.rig.counter("notifications"), expected);
    }
}

/// A line moves to and fro while its device sends without a pause. Once a move has returned and the arrived interrupts
/// have been taken, none arrives at the old CPU.
#[test]
fn a_line_moves_while_messages_arrive() {
    for posted in [false, true] {
        let mut setup = Setup::new(Options { invalidation_ns: 20, ..Options::default() });
        let domain = setup.domain(posted);
        let line = setup.line(&domain, A);
        let MsiMessage { address, .. } = setup.message(&line);
        setup.rig.stream(REQUESTER, address, 2000, 170);
        for round in 0..50 {
            let target = if round % 2 == 0 { B } else { A };
            setup.rig.run(round * 7);
            setup.set_affinity(&line, target).expect("it moves");
            setup.rig.run(10);
            setup.rig.interrupts();
            setup.rig.run(1_500);
            let seen = setup.rig.interrupts();
            // Posts of one vector merge while a notification is on its way.
            assert!(seen.len() > if posted { 2 } else { 5 }, "round {round}: {seen:?}");
            let stray = seen.iter().find(|&&seen| seen != (target.cpu.0, target.vector().unwrap().0));
            assert_eq!(stray, None, "round {round}, posted: {posted}");
        }
        setup.rig.run(400_000);
        assert_eq!(setup.rig.counter("requests"), 2000);
        assert_eq!(setup.faults(), []);
        let descriptors = [1, 2].map(|cpu| setup.drivers.posted.descriptor(CpuId(cpu)).expect("a CPU"));
        let pending = descriptors
            .map(|descriptor| descriptor.is_pending(A.vector().unwrap()) || descriptor.is_pending(B.vector().unwrap()));
        assert_eq!(pending, [false; 2], "nothing is left behind");
    }
}

#[test]
fn a_burst_on_one_cpu_is_one_notification() {
    let mut setup = Setup::new(Options::default());
    let domain = setup.domain(true);
    let lines = [0x41, 0x42, 0x93].map(|vector| setup.line(&domain, Target::at(A.cpu, Vector(vector))));
    for line in &lines {
        let MsiMessage { address, data } = setup.message(line);
        setup.rig.send(REQUESTER, address, data);
    }
    setup.rig.run(10_000);
    let interrupts = setup.rig.interrupts();
    assert_eq!(interrupts.len(), 3, "{interrupts:?}");
    let (posted, notifications) = (setup.rig.counter("posted"), setup.rig.counter("notifications"));
    assert_eq!(posted, 3);
    assert!(notifications < 3, "posted while the first notification was on its way: {notifications}");
}

#[test]
fn a_wrong_requester_is_refused_and_told() {
    let mut setup = Setup::new(Options::default());
    let domain = setup.domain(false);
    let line = setup.line(&domain, A);
    let MsiMessage { address, data } = setup.message(&line);
    setup.rig.message(0x3b00, address, data);
    assert_eq!(setup.rig.interrupts(), []);
    let fault = Fault { reason: FaultReason::SOURCE, requester: RequesterId(0x3b00), interrupt_index: 0 };
    assert_eq!(setup.faults(), [fault]);
    assert_eq!(setup.rig.read32(0x34) & 3, 0, "cleared");
}

#[test]
fn a_released_entry_delivers_nothing() {
    for posted in [false, true] {
        let mut setup = Setup::new(Options::default());
        let domain = setup.domain(posted);
        let line = setup.line(&domain, A);
        let MsiMessage { address, data } = setup.message(&line);
        setup.send(&line);
        assert_eq!(setup.rig.interrupts(), [(1, 0x41)]);
        setup.rig.drive(move || domain.release(line[0].hwirq));
        setup.rig.message(REQUESTER, address, data);
        assert_eq!(setup.rig.interrupts(), []);
        let fault = Fault { reason: FaultReason::NOT_PRESENT, requester: RequesterId(REQUESTER), interrupt_index: 0 };
        assert_eq!(setup.faults(), [fault]);
    }
}

#[test]
fn a_line_lent_to_a_guest_posts_there_and_comes_back_posted() {
    let mut setup = Setup::new(Options::default());
    let domain = setup.domain(true);
    let line = setup.line(&domain, A);
    // The guest's descriptor: NV 0xf2 to CPU 3, suppressed.
    setup.rig.memory.words()[4].set(0x0000_0003_00f2_0002);
    let descriptor = DeviceAddress(setup.rig.address(0));
    let hwirq = line[0].hwirq;
    let lender = domain.clone();
    let guest = GuestPosting { descriptor, vector: Vector(0x99), urgent: false };
    setup.rig.drive(move || lender.lend_to_guest(hwirq, guest)).expect("aligned");
    setup.send(&line);
    assert_eq!(setup.rig.interrupts(), [], "suppressed");
    assert_eq!(setup.rig.memory.words()[2].get(), 1 << (0x99 - 0x80));
    // The host moves the line meanwhile. The guest notices no change.
    setup.set_affinity(&line, B).expect("it is remembered");
    setup.rig.memory.words()[4].set(0x0000_0003_00f2_0000);
    setup.send(&line);
    assert_eq!(setup.rig.interrupts(), [(3, 0xf2)]);
    let taker = domain.clone();
    setup.rig.drive(move || taker.take_back(hwirq)).expect("it has the entry");
    setup.rig.memory.words()[2].set(0);
    setup.send(&line);
    assert_eq!(setup.rig.interrupts(), [(2, 0x52)], "where the host wanted it");
    assert_eq!(setup.rig.memory.words()[2].get(), 0, "no longer the guest's");
    assert_eq!(setup.rig.counter("remapped"), 0, "posted throughout");
}

#[test]
fn an_urgent_guest_is_notified_although_it_suppresses() {
    let mut setup = Setup::new(Options::default());
    let domain = setup.domain(true);
    let line = setup.line(&domain, A);
    setup.rig.memory.words()[4].set(0x0000_0003_00f2_0002);
    let guest = GuestPosting { descriptor: DeviceAddress(setup.rig.address(0)), vector: Vector(0x99), urgent: true };
    let hwirq = line[0].hwirq;
    setup.rig.drive(move || domain.lend_to_guest(hwirq, guest)).expect("aligned");
    setup.send(&line);
    assert_eq!(setup.rig.interrupts(), [(3, 0xf2)]);
}

#[test]
fn posting_needs_the_capability() {
    let mut setup = Setup::new(Options { posted_interrupts: false, ..Options::default() });
    let Drivers { unit, lapic, vectors, posted } = setup.drivers.clone();
    let refused = RemapDomain::posted(unit, lapic, vectors, posted).err();
    assert_eq!(refused, Some(VtdError::Missing("posted interrupts (CAP.PI, bit 59)")));
    // Remapping goes on.
    let domain = setup.domain(false);
    let line = setup.line(&domain, A);
    setup.send(&line);
    assert_eq!(setup.rig.interrupts(), [(1, 0x41)]);
}

/// The unit's own event is a line too: a plain message, while the compatibility format is blocked for everyone else.
#[test]
fn the_fault_event_reaches_its_cpu() {
    let mut setup = Setup::new(Options::default());
    let (unit, vectors) = (setup.drivers.unit.clone(), setup.drivers.vectors.clone());
    setup.rig.drive(move || {
        let domain = MessageDomain::new(SimHal, FaultEvent::new(unit), vectors.clone()).expect("not posted");
        let vector = vectors.allocate(&request(0)).expect("a vector");
        let levels = [domain.allocate(&request(0)).expect("the event"), vector];
        let level = Level::new(Irq(0), &levels);
        vectors.activate(&level.parent().expect("the vector"), B).expect("a target");
        domain.activate(&level, B).expect("it is written");
        level.chip().unmask(&level);
    });
    setup.rig.message(REQUESTER, 0xfee0_0010, 0);
    assert_eq!(setup.rig.interrupts(), [(2, 0x52)]);
    assert_eq!(setup.faults().len(), 1);
    setup.rig.message(REQUESTER, 0xfee0_0010, 0);
    assert_eq!(setup.rig.interrupts(), [(2, 0x52)], "again, since the driver cleared the record");
}

#[test]
fn a_late_queue_is_waited_for() {
    let fault = InvalidationFault::Late(Ps::from_ns(50_000));
    let mut setup = Setup::new(Options { invalidation_fault: fault, ..Options::default() });
    let domain = setup.domain(false);
    let line = setup.line(&domain, A);
    setup.send(&line);
    let before = setup.rig.machine.now();
    setup.set_affinity(&line, B).expect("it takes its time");
    assert!(setup.rig.machine.now() - before > Ps::from_ns(100_000), "two descriptors");
    setup.send(&line);
    assert_eq!(setup.rig.interrupts(), [(1, 0x41), (2, 0x52)]);
}

/// Set-up and activation take four descriptors; the fifth is the move's.
#[test]
fn a_failed_invalidation_is_told_and_the_next_works() {
    let fault = InvalidationFault::FetchFails(4);
    let mut setup = Setup::new(Options { invalidation_fault: fault, ..Options::default() });
    let domain = setup.domain(true);
    let line = setup.line(&domain, A);
    assert_eq!(setup.set_affinity(&line, B), Err(IrqError::Hardware("remapping unit", "an invalidation failed")));
    setup.send(&line);
    assert_eq!(setup.rig.interrupts(), [(1, 0x41)], "it stays where it was");
    setup.set_affinity(&line, B).expect("the queue runs again");
    setup.send(&line);
    assert_eq!(setup.rig.interrupts(), [(2, 0x52)]);
}

#[test]
fn a_dead_queue_is_an_error_not_a_hang() {
    let fault = InvalidationFault::Hangs(4);
    let mut setup = Setup::new(Options { invalidation_fault: fault, ..Options::default() });
    let domain = setup.domain(true);
    let line = setup.line(&domain, A);
    assert_eq!(setup.set_affinity(&line, B), Err(IrqError::Hardware("remapping unit", "an invalidation failed")));
}

/// The queue stands still for longer than the driver waits. Once it has gone on by itself, the next request is served.
#[test]
fn a_queue_that_was_too_late_serves_again_once_it_has_caught_up() {
    let mut setup = Setup::new(Options::default());
    let domain = setup.domain(true);
    let line = setup.line(&domain, A);
    let from = setup.rig.machine.now();
    let (until, trouble) = (from + Ps::from_ns(12_000_000), InvalidationTrouble::Stands);
    let fault = InvalidationFault::Within { from, until, trouble };
    let unit = setup.rig.unit;
    setup.rig.machine.with_model(unit, |unit: &mut VtdUnit| unit.set_invalidation_fault(fault)).expect("a unit");
    let failed = Err(IrqError::Hardware("remapping unit", "an invalidation failed"));
    assert_eq!(setup.set_affinity(&line, B), failed);
    assert_eq!(setup.set_affinity(&line, B), failed, "it still stands");
    setup.rig.run(3_000_000);
    setup.set_affinity(&line, B).expect("it runs again");
    setup.send(&line);
    assert_eq!(setup.rig.interrupts(), [(2, 0x52)]);
}

/// A level-triggered, remapped pin. The I/O APIC's own EOI register ends it.
#[test]
fn an_io_apic_pin_is_a_remapped_line() {
    let mut setup = Setup::new(Options::default());
    let [_, window, _] = setup.rig.windows();
    let (parent, vectors) = (setup.domain(false), setup.drivers.vectors.clone());
    let line = setup.rig.drive(move || {
        let wiring = [PinWiring { level: true, active_low: true }; 24];
        let domain = IoApicDomain::new(SimHal, window, &wiring, IoApicRoute::Remapped, parent.clone());
        let domain = domain.expect("version 0x20");
        let request = AllocRequest { requester: RequesterId(0xf0f8), ..request(3) };
        let vector = vectors.allocate(&request).expect("a vector");
        let entry = parent.allocate(&request).expect("an entry");
        let levels = Arc::new(vec![domain.allocate(&request).expect("the pin"), entry, vector]);
        let level = Level::new(Irq(0), &levels);
        parent.activate(&level.parent().expect("the entry"), A).expect("it is written");
        domain.activate(&level, A).expect("it is written");
        level.chip().unmask(&level);
        levels
    });
    setup.rig.pin(3, true);
    assert_eq!(setup.rig.interrupts(), [(1, 0x41)], "once: remote IRR holds it");
    let ended = line.clone();
    setup.rig.drive(move || {
        let level = Level::new(Irq(0), &ended);
        level.chip().eoi(&level);
    });
    setup.rig.run(10_000);
    assert_eq!(setup.rig.interrupts(), [(1, 0x41)], "still asserted");
    setup.rig.pin(3, false);
    setup.rig.drive(move || {
        let level = Level::new(Irq(0), &line);
        level.chip().eoi(&level);
        level.chip().set_affinity(&level, B).expect("it moves");
    });
    setup.rig.pin(3, true);
    assert_eq!(setup.rig.interrupts(), [(2, 0x52)]);
    assert_eq!(setup.faults(), []);
}

#[test]
fn an_hpet_timer_is_a_remapped_line() {
    let mut setup = Setup::new(Options::default());
    let [_, _, window] = setup.rig.windows();
    let (parent, vectors) = (setup.domain(false), setup.drivers.vectors.clone());
    setup.rig.drive(move || {
        let domain = MessageDomain::new(SimHal, HpetTimers::new(window), parent.clone()).expect("not posted");
        let request = AllocRequest { requester: RequesterId(0xf0f0), ..request(0) };
        let vector = vectors.allocate(&request).expect("a vector");
        let entry = parent.allocate(&request).expect("an entry");
        let levels = [domain.allocate(&request).expect("the timer"), entry, vector];
        let level = Level::new(Irq(0), &levels);
        parent.activate(&level.parent().expect("the entry"), A).expect("it is written");
        domain.activate(&level, A).expect("it is written");
        level.chip().unmask(&level);
    });
    setup.rig.hpet_write(0x108, 20);
    setup.rig.hpet_write(0x010, 1);
    setup.rig.run(10_000);
    assert_eq!(setup.rig.interrupts(), [(1, 0x41)]);
    assert_eq!(setup.faults(), []);
}

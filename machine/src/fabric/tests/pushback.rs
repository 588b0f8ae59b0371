//! Every queue between a device and a CPU is bounded, and no message is lost on the way.

use super::*;
use crate::observe::{Arrival, Fact};
use proptest::prelude::*;
use std::cell::RefCell;

/// The life of messages, as the observer hears it.
#[derive(Default)]
struct Ledger {
    sent: u64,
    merged: u64,
    /// Interrupts that CPUs took, with remapping. With posting the handlers count the requests that they take.
    accepted: u64,
    most_waiting: u64,
}

/// Random traffic for 300 µs. Returns the ledger, the requests that CPUs took, and what waits at the end by place.
fn run(mut fabric: Fabric, posted: bool) -> (Ledger, u64, u64) {
    let ledger = Rc::new(RefCell::new(Ledger::default()));
    let (sink, taken) = (ledger.clone(), fabric.taken.clone());
    let ports = fabric.ports.clone();
    fabric.machine.set_observer(move |_, fact| {
        let mut ledger = sink.borrow_mut();
        match fact {
            // Whether it merges with one that waits is the next fact: until then it is nowhere.
            Fact::Message { to, .. } if ports.contains(&to) => {
                ledger.sent += 1;
                return;
            }
            Fact::MessageMerged { .. } | Fact::Posted { again: true, .. } => ledger.merged += 1,
            Fact::Raised { vector: 0x31, arrival: Arrival::Merged, .. } => ledger.merged += 1,
            Fact::Accepted { vector: 0x31, .. } => ledger.accepted += 1,
            _ => {}
        }
        let handled = if posted { taken.load(Relaxed) } else { ledger.accepted };
        ledger.most_waiting = ledger.most_waiting.max(ledger.sent - ledger.merged - handled);
    });
    fabric.start();
    fabric.run(Ps::from_ns(300_000));
    let on_the_way: u64 = fabric.ports.clone().into_iter().map(|port| fabric.counter(port, "waiting")).sum();
    fabric.silence();
    fabric.run(Ps::from_ns(1_000_000));
    (ledger.take(), fabric.taken.load(Relaxed), on_the_way)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    /// Sent = handled + merged + waiting, and waiting is never more than the queues have room for: a request of each
    /// vector in the ports, the ports' places at the IOMMUs, and a bit of each vector at each CPU.
    #[test]
    fn what_is_sent_is_handled_merged_or_waiting(
        seed: u64,
        units in 1u64..=3,
        gap_ns in 10u64..400,
        remap_ns in 0u64..1000,
        post_ns in 1u64..2000,
        deliver_ns in 1u64..600,
        move_ns in 0u64..200,
        posted: bool,
    ) {
        let shape = Shape {
            seed,
            remap: Ps::from_ns(remap_ns),
            post: Ps::from_ns(post_ns),
            deliver: Ps::from_ns(deliver_ns),
            line_move: Ps::from_ns(move_ns),
            ..Shape::new(units, true, Ps::from_ns(gap_ns), true, 40)
        };
        let mut fabric = Fabric::of(&shape);
        if posted { fabric.post_to(|cpu| cpu) } else { fabric.remap() }
        let (ledger, taken, in_ports) = run(fabric, posted);
        let handled = if posted { taken } else { ledger.accepted };
        prop_assert!(ledger.sent > 0);
        prop_assert_eq!(ledger.sent, handled + ledger.merged, "nothing waits in the end");
        let vectors = units * u64::from(CPUS);
        let places = units * 2;
        prop_assert!(in_ports <= vectors);
        let bound = vectors + places + u64::from(CPUS);
        prop_assert!(ledger.most_waiting <= bound, "{} of {bound}", ledger.most_waiting);
    }
}

/// The IOMMU can take a million messages a second, and the device has four times as many: the port is blocked, and the
/// rest merges in the device.
#[test]
fn dear_posting_blocks_the_port() {
    let shape = Shape { post: Ps::from_ns(1_000), ..Shape::new(1, true, Ps::from_ns(250), false, 0) };
    let mut fabric = Fabric::of(&shape);
    fabric.post_to(|cpu| cpu);
    fabric.start();
    assert_near(fabric.rates("posted")[0], 1e6);
    let port = fabric.ports[0];
    assert!(fabric.counter(port, "blocked_ps") > 1_900_000_000);
    assert!(fabric.counter(port, "merged") > 5_000);
    assert!(fabric.counter(port, "waiting") <= CPUS.into());
}

/// A requester without places, such as an I/O APIC, has one request of each kind at the IOMMU.
#[test]
fn a_requester_without_a_port_is_bounded_too() {
    let mut fabric = Fabric::of(&Shape { remap: Ps::from_ns(1_000), ..Shape::new(1, true, Ps::from_ns(50), true, 0) });
    let unit = fabric.units[0];
    fabric.machine.with_model(fabric.sources[0], |source: &mut Source| source.to = unit).expect("a source");
    fabric.remap();
    fabric.start();
    fabric.run(Ps::from_ns(1_000_000));
    assert!(fabric.counter(unit, "merged") > 10_000);
    assert!(fabric.counter(unit, "waiting") <= CPUS.into());
}

/// The descriptor's line moves when another agent updates it, and only then.
#[test]
fn a_line_that_moves_costs_its_move() {
    // One message in 10 µs: a CPU has taken the descriptor each time.
    let time = |gap_ns, line_move, one: bool| {
        let shape = Shape { line_move, ..Shape::new(1, true, Ps::from_ns(gap_ns), false, 0) };
        let mut fabric = Fabric::of(&shape);
        fabric.post_to(|cpu| if one { 0 } else { cpu });
        if one {
            // SN: nobody is notified, so no CPU touches the line.
            let control = &fabric.descriptors[0].words()[4];
            control.set(control.get() | 2);
        }
        fabric.start();
        fabric.run(Ps::from_ns(1_000_000));
        let (posted, busy) = (fabric.sum("posted"), fabric.sum("post_ps"));
        busy / posted
    };
    let moved = Ps::from_ns(70);
    assert_eq!(time(10_000, moved, false), (POST + moved).0);
    assert_eq!(time(10_000, Ps(0), false), POST.0);
    let stayed = time(1_000, moved, true);
    assert!((POST.0..POST.0 + 1000).contains(&stayed), "{stayed} ps: the IOMMU takes the line once");
}

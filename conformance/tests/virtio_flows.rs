//! Flows through the driver and back, as XDP reflects them: no flow stops, no packet overtakes another, and a
//! controller gathers interrupts.

mod virtio_rig;

use drivers::virtio::VectorPolicy;
use drivers::virtio::net::{CoalescedQueue, NetConfig};
use hal::{Affinity, CpuId, Hal as _, ThreadSpec};
use irq::moderation::{Algorithm, LevelTable, Programmer, Setting, Tuning};
use machine::SimHal;
use machine::time::Ps;
use machine::virtio::Trigger;
use machine::virtio::net::{CoalescingSupport, FlowCounts, Flows, HostConfig, Net as Model, NetConfig as Device, code};
use std::sync::Arc;
use virtio_rig::net::{device, drive_tuned, driven};
use virtio_rig::{Bus, Rig, rig};

/// Flows of a packet every 2 µs each, for 4 pairs of which 2 reflect.
fn flowing(coalescing: CoalescingSupport) -> Device {
    let flows = Flows { count: 2, sent: Ps::from_ns(2_000), dropped: Ps::from_ns(1_000) };
    let host = HostConfig { receive: Ps::from_ns(300), transmit: Ps::from_ns(300), flows, ..HostConfig::default() };
    // The receiver of these tests sends back packets that begin with an odd byte.
    Device { coalescing, host, mac: [0x53, 0x54, 0, 0, 0, 1], ..device(4) }
}

const REFLECT: NetConfig =
    NetConfig { pairs: 2, reflect: true, entries: 64, buffer_bytes: 1_536, policy: VectorPolicy::Ladder };

/// Starts the flows, lets them run, stops them, and waits for the last packet.
fn run(rig: &mut Rig, ms: u64) -> Vec<FlowCounts> {
    rig.poke(code::FLOWS, 1);
    rig.boot(move |_| SimHal.delay_ns(ms * 1_000_000));
    rig.poke(code::FLOWS, 0);
    rig.settle();
    rig.flows()
}

/// Every packet comes back, once and in order, with any kind of interrupt. A lost notification on any of the eight
/// rings, or a re-arming that misses a packet, would leave packets behind.
#[test]
fn what_goes_in_comes_back() {
    let buses = [
        Bus::edges(3),
        Bus::edges(2),
        Bus::edges(1),
        Bus::Mmio(vec![Trigger::Level; 3], true),
        Bus::Mmio(vec![Trigger::Level], false),
        Bus::Pci(3),
    ];
    for bus in buses {
        let (mut rig, net, _keeper) = driven(bus.clone(), flowing(CoalescingSupport::Absent), REFLECT);
        for FlowCounts { sent, dropped, returned, disordered, timed, under_way } in run(&mut rig, 10) {
            assert!(sent > 4_000, "{bus:?}: {sent} packets in 10 ms");
            assert_eq!((returned, disordered), (sent - dropped, 0), "{bus:?}");
            assert!(timed == returned && under_way.0 > 0, "{bus:?}: {timed} of {returned} are timed");
        }
        let drops: u64 =
            (0..2).filter_map(|pair| net.receive_counters(pair)).map(|counters| counters.reflect_drops).sum();
        assert_eq!((drops, rig.faults()), (0, vec![]), "{bus:?}");
    }
}

/// Two equal flows; the queue of one is moderated. With a CPU to spare there is nothing to gain. The default
/// controller tries its levels, which costs interrupts but no packet; at the end the device has the level that the
/// controller shows.
#[test]
fn a_controller_programs_a_queue_through_its_coalescing() {
    let mut rig = rig(Bus::edges(3), Model::new(flowing(CoalescingSupport::Exact)));
    // A packet comes every 2 µs: each level gathers more of them.
    let table = LevelTable::new([Setting::OFF, Setting::new(16, 8), Setting::new(64, 32)]).expect("sorted");
    let tuning = Tuning { algorithm: Algorithm::Adaptive, table, nr_events: 64 };
    let (net, programmer) = rig.boot(move |host| {
        let tuner = tuning.tuner(SimHal).expect("a tuner");
        let (net, _) = drive_tuned(host, &REFLECT, Some(tuner.clone())).expect("a device");
        let queue = Arc::new(CoalescedQueue::new(net.clone(), 0));
        let spec = ThreadSpec { name: "moderation", affinity: Affinity::Cpu(CpuId(0)), urgent: false };
        (net, Programmer::start(SimHal, spec, vec![(tuner, queue)]).expect("a thread"))
    });
    for FlowCounts { sent, dropped, returned, disordered, .. } in run(&mut rig, 50) {
        assert_eq!((returned, disordered), (sent - dropped, 0));
    }
    let [moderated, plain] = [0, 1].map(|pair| net.receive_counters(pair).expect("a pair"));
    let view = programmer.views().remove(0);
    assert!(view.counts.changes >= 1 && view.counts.failed == 0, "{view:?}");
    assert!(moderated.interrupts < plain.interrupts, "{} and {}", moderated.interrupts, plain.interrupts);
    assert_eq!(rig.coalescing(0), view.actual.map(|actual| (actual.completions, actual.delay_us)));
    assert_eq!(rig.coalescing(2), Some((0, 0)), "the other queue was told nothing");
}

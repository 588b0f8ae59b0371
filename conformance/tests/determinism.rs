//! The same seed gives the same run, on machines of every kind: with the engine's short cuts and without, and on any
//! host thread.

mod gic_rig;
mod rdma_rig;
mod virtio_rig;

use drivers::gic::EoiMode;
use drivers::virtio::VectorPolicy;
use drivers::virtio::net::NetConfig;
use gic_rig::{Count, Options, PULSE, Rig, Version, WIRE, wire_arg};
use hal::{CpuId, CpuSet, Hal as _};
use irq::RequestFlags;
use machine::time::Ps;
use machine::unrest::Unrest;
use machine::virtio::Trigger;
use machine::virtio::net::{Flows, HostConfig, Net as Model, NetConfig as Device, code};
use machine::{Costs, MachineConfig, SimHal, rdma};
use std::fmt::Debug;
use std::sync::Arc;
use virtio_rig::Bus;
use virtio_rig::net::{device, drive};

/// The result of a run: its digest, and how much of its work was done.
type Ran = (u64, u64);

fn machine(seed: u64, short_cuts: bool) -> MachineConfig {
    let costs = Costs { register_read: Ps::from_ns(40), register_write: Ps::from_ns(25), ..Costs::default() };
    MachineConfig { seed, short_cuts, jitter_percent: 40, costs, ..MachineConfig::default() }
}

/// `run` gets the machine. Its result must depend only on the seed, and on that only if one of its models `draws`.
fn only_the_seed_counts(what: &dyn Debug, draws: bool, run: impl Fn(MachineConfig) -> Ran + Copy + Send + 'static) {
    let first = run(machine(7, true));
    assert!(first.1 > 0, "{what:?} did nothing");
    assert_eq!(run(machine(7, true)), first, "{what:?} again");
    assert_eq!(run(machine(7, false)), first, "{what:?} without the engine's short cuts");
    let there = std::thread::spawn(move || run(machine(7, true))).join().expect("it ran");
    assert_eq!(there, first, "{what:?} on another host thread");
    assert_eq!(run(machine(8, true)).0 != first.0, draws, "{what:?} with another seed");
    for seed in 0..3 {
        let disturbed = |short_cuts| MachineConfig { unrest: Some(Unrest::new(seed)), ..machine(7, short_cuts) };
        let first = run(disturbed(true));
        assert_eq!(run(disturbed(false)), first, "{what:?} disturbed by {seed}, without the engine's short cuts");
    }
}

/// Threaded handlers of two lines, one edge and one level; one of the lines moves between CPUs.
fn gic(version: Version, mode: EoiMode, machine: MachineConfig) -> Ran {
    let mut rig = Rig::new(version, mode, Options { cpus: 2, force_threads: true, machine, ..Options::default() });
    let count = Arc::new(Count::default());
    let handler = count.clone();
    let lines = rig.run(move |system| {
        [40, 41].map(|intid| {
            let line = system.spi(intid);
            system.core.request(line, "line", RequestFlags::default(), handler.clone()).expect("a new line");
            line
        })
    });
    for turn in 0..50 {
        rig.wire(turn * 3_100, PULSE, wire_arg(40, 0, true));
        rig.wire(turn * 4_700, WIRE, wire_arg(41, 0, turn % 2 == 0));
    }
    rig.run(move |system| {
        for turn in 0..40 {
            system.core.set_affinity(lines[0], &CpuSet::of(CpuId(turn % 2))).expect("both have started");
            SimHal.delay_ns(5_000);
        }
        // The level is still up if its last turn was up.
        system.core.disable(lines[1]).expect("it is enabled");
    });
    (rig.machine.engine_counters().digest, count.all())
}

#[test]
fn a_gic_with_threads() {
    for (version, mode) in gic_rig::ALL {
        only_the_seed_counts(&(version, mode), false, move |machine| gic(version, mode, machine));
    }
}

/// Two flows in and back.
fn virtio(bus: Bus, machine: MachineConfig) -> Ran {
    let flows = Flows { count: 2, sent: Ps::from_ns(2_000), dropped: Ps::from_ns(1_000) };
    let host = HostConfig { receive: Ps::from_ns(300), transmit: Ps::from_ns(300), flows, ..HostConfig::default() };
    let model = Device { host, mac: [0x53, 0x54, 0, 0, 0, 1], ..device(4) };
    let mut rig = virtio_rig::rig_on(machine, bus, Model::new(model));
    let config = NetConfig { pairs: 2, reflect: true, entries: 64, buffer_bytes: 1_536, policy: VectorPolicy::Ladder };
    let _net = rig.boot(move |host| drive(host, &config)).expect("a device");
    rig.poke(code::FLOWS, 1);
    rig.boot(|_| SimHal.delay_ns(1_000_000));
    rig.poke(code::FLOWS, 0);
    rig.settle();
    (rig.machine.engine_counters().digest, rig.flows().iter().map(|flow| flow.returned).sum())
}

#[test]
fn a_network_card_with_flows() {
    let edges: fn() -> Bus = || Bus::edges(3);
    let levels: fn() -> Bus = || Bus::Mmio(vec![Trigger::Level; 3], true);
    for bus in [edges, levels, || Bus::Pci(3)] {
        only_the_seed_counts(&bus(), true, move |machine| virtio(bus(), machine));
    }
}

/// Messages from one end to the other, polled at the end of interrupts.
fn messages(machine: MachineConfig) -> Ran {
    let after = rdma_rig::host_on(machine, rdma::Config::default(), |host| {
        let [a, b] = host.connected(None);
        let _soft = host.soft_poll(1, &b);
        b.receives(0, 400);
        for round in 0..4 {
            a.sends(round * 100, 100);
            host.wait_ns(40_000);
            a.queue.poll(1_000);
            a.pair.sends_ended(100);
        }
        host.wait_ns(100_000);
        b.seen.count() as u64
    });
    (after.digest, after.result)
}

#[test]
fn two_rdma_cards() {
    only_the_seed_counts(&"RDMA", true, messages);
}

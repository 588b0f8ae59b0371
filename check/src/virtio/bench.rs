//! The small machines of the systematic search: one of each bus.

use super::step::VirtioStep;
use crate::subject::Bench;

/// Sets of CPUs. The disk's first line begins on CPU 1, where the second agent works.
const CPU_1: u64 = 2;
const CPU_2: u64 = 4;

const BUSES: [(&str, &str); 3] = [
    ("wires", "eoimode=1,disk_bus=edge,net_bus=edge"),
    ("levels", "eoimode=0,disk_bus=level,net_bus=level"),
    ("pci", "eoimode=1,disk_bus=pci,net_bus=pci"),
];

/// Three CPUs, a disk of one queue and a network of one pair, with a few requests and packets.
pub(super) fn benches() -> Vec<Bench<VirtioStep>> {
    let queues = BUSES.iter().map(|(name, set)| queues(name, set));
    BUSES.iter().map(|(name, set)| bench(name, set)).chain(queues).chain([commands()]).collect()
}

/// Two managers give the network commands at once.
fn commands() -> Bench<VirtioStep> {
    let machine = [
        "cpus=3,disk_vectors=2,net_vectors=2,disk_policy=0,net_policy=0,queues=1,pairs=1,depth=2,load=20",
        "latency_us=2,packet_gap=100,budget=16,threads=0",
        BUSES[0].1,
    ];
    let ask = |queue| VirtioStep::Ask { queue, times: 1, ns: 50, both: false };
    let operations = vec![
        ("ask", ask(0)),
        ("ask-other", ask(1)),
        ("rebind-network", VirtioStep::Rebind { disk: false, policy: 1, ns: 100 }),
    ];
    let pairs = vec![["ask", "ask-other"], ["ask", "rebind-network"]];
    Bench { operations, pairs: Some(pairs), ..Bench::new("commands", &machine) }
}

/// Two queues of one disk, reset by two managers.
fn queues(bus: &'static str, set: &'static str) -> Bench<VirtioStep> {
    let machine = [
        "cpus=3,disk_vectors=2,net_vectors=2,disk_policy=0,net_policy=0,queues=2,pairs=1,depth=2,load=20",
        "latency_us=2,packet_gap=100,budget=16,threads=0",
        set,
    ];
    let operations = vec![
        ("recover", VirtioStep::Recover { queue: 0 }),
        ("recover-second", VirtioStep::Recover { queue: 1 }),
        ("burst", VirtioStep::Burst { queue: 1, count: 4 }),
    ];
    let before = vec![VirtioStep::Move { line: 0, cpus: CPU_1 }];
    let name = match bus {
        "wires" => "wires-queues",
        "levels" => "levels-queues",
        _ => "pci-queues",
    };
    let pairs = vec![["recover", "recover-second"], ["recover", "burst"], ["recover-second", "burst"]];
    Bench { before, operations, pairs: Some(pairs), ..Bench::new(name, &machine) }
}

fn bench(name: &'static str, set: &'static str) -> Bench<VirtioStep> {
    let machine = [
        "cpus=3,disk_vectors=2,net_vectors=2,disk_policy=0,net_policy=0,queues=1,pairs=1,depth=2,load=20",
        "latency_us=2,packet_gap=100,budget=16,threads=0",
        set,
    ];
    let line = 0;
    let operations = vec![
        ("move", VirtioStep::Move { line, cpus: CPU_2 }),
        ("disable", VirtioStep::Disable { line, ns: 300 }),
        ("move-second", VirtioStep::Move { line: 1, cpus: CPU_2 }),
        ("set-pending", VirtioStep::SetPending { line }),
        ("offline", VirtioStep::Offline { cpu: 1, ns: 500 }),
        ("recover", VirtioStep::Recover { queue: 0 }),
        ("rebind-disk", VirtioStep::Rebind { disk: true, policy: 1, ns: 100 }),
        ("rebind-network", VirtioStep::Rebind { disk: false, policy: 1, ns: 100 }),
        ("coalesce", VirtioStep::Coalesce { packets: 2, usecs: 10 }),
        ("poll", VirtioStep::Poll { queue: 0 }),
        ("burst", VirtioStep::Burst { queue: 0, count: 4 }),
    ];
    let before = [0, 1].map(|line| VirtioStep::Move { line, cpus: CPU_1 });
    Bench { before: before.into(), operations, ..Bench::new(name, &machine) }
}

//! The small machines of the systematic search: a polled device, and the completion queues of two NICs.

use super::step::ModerationStep;
use crate::subject::Bench;

/// Sets of CPUs. The first line begins on CPU 1, where the second agent works.
const CPU_1: u64 = 2;
const CPU_2: u64 = 4;

const DEVICES: [(&str, &str); 3] = [
    ("polled", "pairs=0,queues=1,untuned=1,algorithm=0,threaded=0"),
    ("tuned", "pairs=0,queues=1,untuned=0,algorithm=1,threaded=0"),
    ("rdma", "pairs=1,queues=0,untuned=0,algorithm=2,threaded=0"),
];

/// Three CPUs, and a few commands for each consumer.
pub(super) fn benches() -> Vec<Bench<ModerationStep>> {
    DEVICES.iter().map(|(name, set)| bench(name, set)).collect()
}

fn bench(name: &'static str, set: &'static str) -> Bench<ModerationStep> {
    let machine = [
        "cpus=3,eoimode=1,threads=0,rounds=1,budget=8,pass_us=100,depth=2,gap_ns=500,weight=4,crowded=0",
        "one_programmer=0,urgent=0,load=40,entry_ns=50,nr_events=1",
        set,
    ];
    let (line, consumer) = (0, 0);
    let operations = vec![
        ("move", ModerationStep::Move { line, cpus: CPU_2 }),
        ("disable", ModerationStep::Disable { line, ns: 300 }),
        ("offline", ModerationStep::Offline { cpu: 1, ns: 500 }),
        ("burst", ModerationStep::Burst { consumer, count: 8 }),
        ("stop", ModerationStep::Stop { consumer, ns: 1_000 }),
        ("depth", ModerationStep::Depth { consumer, depth: 4 }),
        ("poll", ModerationStep::Poll { consumer, most: 4, times: 2, gap_ns: 200 }),
        ("level", ModerationStep::Level { consumer, level: 2 }),
        ("algorithm", ModerationStep::Algorithm { consumer, number: 3 }),
    ];
    let before = vec![ModerationStep::Move { line, cpus: CPU_1 }];
    Bench { before, operations, ..Bench::new(name, &machine) }
}

//! The small machines of the systematic search: one source of each kind.

use super::harness::Version;
use super::step::GicStep;
use crate::subject::Bench;

/// Sets of CPUs. The line begins on CPU 1, where the second agent works.
const CPU_0: u64 = 1;
const CPU_1: u64 = 2;
const CPU_2: u64 = 4;

/// Machines of both versions.
const BOTH: [(&str, &str); 5] = [
    ("edge", "eoimode=1,messages_by=none,edges=1,levels=0,pins=0,oneshot=0"),
    ("level", "eoimode=0,messages_by=none,edges=0,levels=1,pins=0,oneshot=0"),
    ("oneshot", "eoimode=1,messages_by=none,edges=0,levels=1,pins=0,oneshot=1"),
    ("pin", "eoimode=1,messages_by=none,edges=0,levels=0,pins=1,oneshot=0"),
    ("v2m", "eoimode=0,messages_by=v2m,edges=0,levels=0,pins=0,messages=1,oneshot=0"),
];
/// Further machines of version 3.
const V3: [(&str, &str); 2] = [
    ("its", "eoimode=1,messages_by=its,edges=0,levels=0,pins=0,messages=1,oneshot=0"),
    ("its-oneshot", "eoimode=0,messages_by=its,edges=0,levels=0,pins=0,messages=1,oneshot=1"),
];

/// Three CPUs and a source with a few events.
pub(super) fn benches(version: Version) -> Vec<Bench<GicStep>> {
    let more: &[_] = if version == Version::V3 { &V3 } else { &[] };
    BOTH.iter().chain(more).map(|(name, set)| bench(version, name, set)).collect()
}

fn bench(version: Version, name: &'static str, set: &'static str) -> Bench<GicStep> {
    let nmis = if version == Version::V3 { "pseudo_nmi=0" } else { "" };
    let machine = ["cpus=3,sgis=0,ppis=0,strict_storms=0,threads=0,load=20,depth=1,linger_ns=300", set, nmis];
    let source = 0;
    let operations = vec![
        ("move", GicStep::Move { source, cpus: CPU_2 }),
        ("move-back", GicStep::Move { source, cpus: CPU_0 }),
        ("disable", GicStep::Disable { source, ns: 300, twice: false }),
        ("disable-twice", GicStep::Disable { source, ns: 100, twice: true }),
        ("replace", GicStep::Replace { source }),
        ("realloc", GicStep::Realloc { source }),
        ("set-pending", GicStep::SetPending { source }),
        ("retrigger", GicStep::Retrigger { source }),
        ("set-type", GicStep::SetType { source, level: !set.contains("levels=1") }),
        ("synchronize", GicStep::Synchronize { source }),
        ("offline", GicStep::Offline { cpu: 1, ns: 500 }),
        ("offline-target", GicStep::Offline { cpu: 2, ns: 500 }),
        ("burst", GicStep::Burst { source, count: 3, depth: 1 }),
        ("fire", GicStep::Fire { source }),
    ];
    let before = vec![GicStep::Move { source, cpus: CPU_1 }];
    let triples = vec![["move", "offline", "fire"], ["move", "disable", "fire"], ["disable", "retrigger", "fire"]];
    Bench { before, operations, triples, ..Bench::new(name, &machine) }
}

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
/// Further machines of version 3. The pseudo-NMI is a wire.
const V3: [(&str, &str); 3] = [
    ("nmi", "eoimode=1,messages_by=none,edges=0,levels=0,pins=0,oneshot=0,pseudo_nmi=1,nmis=1,nmis_beside=0"),
    ("its", "eoimode=1,messages_by=its,edges=0,levels=0,pins=0,messages=1,oneshot=0"),
    ("its-oneshot", "eoimode=0,messages_by=its,edges=0,levels=0,pins=0,messages=1,oneshot=1"),
];

/// Three CPUs and a source with a few events.
pub(super) fn benches(version: Version) -> Vec<Bench<GicStep>> {
    let more: &[_] = if version == Version::V3 { &V3 } else { &[] };
    let benches = BOTH.iter().chain(more).map(|(name, set)| bench(version, name, set, 0));
    // The first message has a mask of its own device; the ITS masks the second.
    let maskless = (version == Version::V3).then(|| bench(version, "its-maskless", MASKLESS, 1));
    let wrap = (version == Version::V3).then(|| wrap(version));
    let managed = (version == Version::V3).then(|| managed(version));
    let nmis = (version == Version::V3).then(|| nmi_neighbours(version));
    benches
        .chain(maskless)
        .chain(wrap)
        .chain(managed)
        .chain(nmis)
        .chain([neighbours(version), private(version)])
        .collect()
}

/// The operations meet the end of the ITS's queue, which has 128 commands: for faults alone, since the orders are those of the others.
fn wrap(version: Version) -> Bench<GicStep> {
    let bench = bench(version, "its-wrap", MASKLESS, 1);
    // MOVI and two SYNCs each, behind about 20 of the bring-up.
    let there_and_back = [CPU_2, CPU_1].map(|cpus| GicStep::Move { source: 1, cpus });
    let before = bench.before.into_iter().chain(there_and_back.into_iter().cycle().take(MOVES_TO_THE_END)).collect();
    Bench { before, pairs: Some(Vec::new()), triples: Vec::new(), ..bench }
}

/// A managed line of CPU 1, which goes offline several times while its device sends. Its event moves with the CPU by commands of
/// that alone, and back (`drivers/src/gic/its/mod.rs`). For faults of the ITS: what follows commands that it refused shows only when
/// the CPU goes once more.
fn managed(version: Version) -> Bench<GicStep> {
    let set = "eoimode=0,messages_by=its,edges=0,levels=0,pins=0,messages=2,oneshot=0,managed=2";
    let source = 1;
    let offline = |ns| GicStep::Offline { cpu: 1, ns };
    let operations = vec![
        ("burst", GicStep::Burst { source, count: 200, depth: 2 }),
        ("offline", offline(1_000)),
        ("offline-again", offline(5_000)),
        ("more", GicStep::Burst { source, count: 200, depth: 2 }),
        ("offline-long", offline(10_000)),
        ("offline-last", offline(2_000)),
    ];
    Bench {
        operations,
        pairs: Some(Vec::new()),
        faults: "stalled-its",
        ..Bench::new("its-managed", &knobs(version, set))
    }
}

const MOVES_TO_THE_END: usize = 32;

const MASKLESS: &str = "eoimode=0,messages_by=its,edges=0,levels=0,pins=0,messages=2,oneshot=0";

/// Knobs of a small machine.
fn knobs(version: Version, set: &'static str) -> [&'static str; 3] {
    let nmis = if version == Version::V3 { "pseudo_nmi=0" } else { "" };
    [
        "cpus=3,sgis=0,ppis=0,strict_storms=0,threads=0,load=20,depth=1,linger_ns=300,managed=0,its_silence=0,deeds=0",
        nmis,
        set,
    ]
}

/// Two wires whose fields share registers of the distributor: priority, target (GICv2) and trigger.
fn neighbours(version: Version) -> Bench<GicStep> {
    let set = "eoimode=0,messages_by=none,edges=2,levels=0,pins=0,oneshot=0";
    let operations = vec![
        ("move", GicStep::Move { source: 0, cpus: CPU_2 }),
        ("set-type", GicStep::SetType { source: 0, level: true }),
        ("realloc", GicStep::Realloc { source: 0 }),
        ("move-other", GicStep::Move { source: 1, cpus: CPU_0 }),
        ("set-type-other", GicStep::SetType { source: 1, level: true }),
        ("realloc-other", GicStep::Realloc { source: 1 }),
    ];
    let before = vec![GicStep::Move { source: 0, cpus: CPU_1 }, GicStep::Move { source: 1, cpus: CPU_1 }];
    // Two operations on one of them are what the other machines have.
    let others = ["move-other", "set-type-other", "realloc-other"];
    let pairs = ["set-type", "realloc", "move"].iter().flat_map(|&one| others.map(|other| [one, other])).collect();
    Bench { before, operations, pairs: Some(pairs), ..Bench::new("neighbours", &knobs(version, set)) }
}

/// Two pseudo-NMIs whose priorities share a register, which a driver reads and writes (IHI 0069H, "GICD_IPRIORITYR<n>"). A handler
/// that comes makes its line a pseudo-NMI, and one that goes makes it an ordinary line.
fn nmi_neighbours(version: Version) -> Bench<GicStep> {
    let set = "eoimode=1,messages_by=none,edges=0,levels=0,pins=0,oneshot=0,pseudo_nmi=1,nmis=1,nmis_beside=1";
    let operations = vec![
        ("replace", GicStep::Replace { source: 0 }),
        ("realloc", GicStep::Realloc { source: 0 }),
        ("replace-other", GicStep::Replace { source: 1 }),
        ("realloc-other", GicStep::Realloc { source: 1 }),
    ];
    let others = ["replace-other", "realloc-other"];
    let pairs = ["replace", "realloc"].iter().flat_map(|&one| others.map(|other| [one, other])).collect();
    Bench { operations, pairs: Some(pairs), ..Bench::new("nmi-neighbours", &knobs(version, set)) }
}

/// A private line of each CPU: CPU 1's rings, and CPUs disable their own.
fn private(version: Version) -> Bench<GicStep> {
    let set = "eoimode=1,messages_by=none,edges=0,levels=0,pins=0,oneshot=0,ppis=1";
    let source = 1;
    let operations = vec![
        ("disable-private", GicStep::DisablePrivate { source, cpu: 1, ns: 300 }),
        ("disable-another", GicStep::DisablePrivate { source, cpu: 2, ns: 300 }),
        ("offline", GicStep::Offline { cpu: 1, ns: 500 }),
        ("offline-another", GicStep::Offline { cpu: 2, ns: 500 }),
        ("burst", GicStep::Burst { source, count: 3, depth: 1 }),
        ("fire", GicStep::Fire { source }),
    ];
    let triples = vec![["disable-private", "offline", "fire"]];
    Bench { operations, triples, ..Bench::new("private", &knobs(version, set)) }
}

fn bench(version: Version, name: &'static str, set: &'static str, source: u32) -> Bench<GicStep> {
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
    Bench { before, operations, triples, ..Bench::new(name, &knobs(version, set)) }
}

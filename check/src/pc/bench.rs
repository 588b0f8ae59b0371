//! The small machine of the systematic search.

use super::accelerator::AcceleratorStep;
use super::poster::PosterStep;
use super::removal::Removal;
use super::step::PcStep;
use super::timers::TimerStep;
use crate::server::Path;
use crate::subject::Bench;

/// The ringing device's line, the level line, and the line of queue 0.
const RING: u32 = 0;
const PIN: u32 = 1;
const QUEUE: u32 = 2;
/// Sets of CPUs. The lines begin on CPU 1, where the second agent works.
const CPU_0: u64 = 1;
const CPU_1: u64 = 2;
const CPU_2: u64 = 4;

/// Faults of the remapping unit's queue.
const INVALIDATIONS: &str = "invalidation";

/// Vectors that lines have left are free again behind this time.
const SETTLED_NS: u64 = 100_000;

/// Three CPUs, a drive with a queue that has some commands under way, the ringing device and the level line.
pub(super) fn benches(delivery: Path) -> Vec<Bench<PcStep>> {
    let own = match delivery {
        Path::Plain => "poster=0",
        Path::Remapped => "",
        Path::Posted => "limit_ns=0",
    };
    let machine = [
        "cpus=3,drives=1,queues=1,entries=32,managed=0,strict_storms=0,threads=0,secret_us=0,secret_entries=0",
        "read_us=2,slice_us=3000,count_vectors=0,gone=0,users=1,load=20,carried=1,batch=2,depth=4,think_ns=500,roaming=0,polls=0",
        "accelerator=0,timers=0,deeds=0",
        own,
    ];
    let disable = |line| PcStep::Disable { line, depth: 1, ns: 300 };
    let mut operations = vec![
        ("move", PcStep::Move { line: RING, cpus: CPU_2 }),
        ("move-back", PcStep::Move { line: RING, cpus: CPU_0 }),
        ("disable", disable(RING)),
        ("retrigger", PcStep::Retrigger { line: RING, count: 1 }),
        ("synchronize", PcStep::Synchronize { line: RING }),
        ("move-queue", PcStep::Move { line: QUEUE, cpus: CPU_2 }),
        ("disable-queue", disable(QUEUE)),
        ("retrigger-queue", PcStep::Retrigger { line: QUEUE, count: 1 }),
        ("replace", PcStep::Replace { queue: 0 }),
        ("recreate", PcStep::Recreate { queue: 0, ns: 100 }),
        ("move-pin", PcStep::Move { line: PIN, cpus: CPU_2 }),
        ("disable-pin", disable(PIN)),
        ("raise", PcStep::Raise { function: 0 }),
        ("offline", PcStep::Offline { cpu: 1, ns: 500 }),
        ("offline-target", PcStep::Offline { cpu: 2, ns: 500 }),
        ("coalesce", PcStep::Coalesce { drive: 0, entries: 3, us: 100, excludes: false }),
        ("abort", PcStep::Abort { queue: 0, age_ns: 500 }),
        ("check", PcStep::Check { queue: 0, policy: 2 }),
        ("reset", PcStep::Reset { drive: 0 }),
        ("rebind", PcStep::Rebind { drive: 0, lines_first: true, ns: 100 }),
        ("burst", PcStep::Burst { queue: 0, count: 4, depth: 2 }),
    ];
    if delivery == Path::Posted {
        operations.push(("redeliver", PcStep::Redeliver { queue: 0 }));
    }
    if delivery != Path::Plain {
        operations.push(("lend", PcStep::Lend { queue: 0, ns: 2_000 }));
    }
    operations.push(("fire", PcStep::Fire));
    let removal = Removal { unnoticed_ns: 300, lines_first: false, ns: 100, other_vectors: false };
    operations.push(("remove", PcStep::Remove { drive: 0, removal }));
    let before = [RING, PIN, QUEUE].map(|line| PcStep::Move { line, cpus: CPU_1 });
    let triples = vec![
        ["move", "offline", "fire"],
        ["move", "disable", "fire"],
        ["move", "move-back", "fire"],
        ["move", "move-back", "offline"],
    ];
    let all = ["move", "move-back", "disable", "retrigger", "offline", "offline-target"];
    let ringing = ringing("ringing", &machine, &operations, &all);
    let mut others = vec![threads(own, &operations), aborts(&machine), narrow(&machine), ringing];
    let busy = |name, chosen: &[&str], faults| busy(name, (chosen, faults), &machine, &operations);
    if delivery == Path::Plain {
        // Only a message that was moved has an earlier one that may come in its place.
        others.push(busy("moving", &["move-queue", "burst"], "message"));
    } else {
        others.extend([leaving(&machine), wrap(&machine)]);
        others.push(busy("forgetting", &["move", "move-back", "move-queue"], INVALIDATIONS));
        others.push(busy("lending", &["lend"], INVALIDATIONS));
    }
    others.extend(devices(delivery, own));
    let pc = Bench { before: before.into(), operations, triples, ..Bench::new("pc", &machine) };
    [pc].into_iter().chain(others).collect()
}

/// Machines with a device beside the drive. A remapping unit would block the notifications of one that posts.
fn devices(delivery: Path, own: &'static str) -> impl Iterator<Item = Bench<PcStep>> {
    let posting = (delivery == Path::Plain).then(poster);
    posting.into_iter().chain([timers(own), accelerator(own), filling(own)])
}

/// The first line beside the drive's queue: a timer's, a posting source's or a work queue's.
const BESIDE: u32 = 3;

/// What is done to such a line, which begins on CPU 1.
fn beside() -> Vec<(&'static str, PcStep)> {
    vec![
        ("move", PcStep::Move { line: BESIDE, cpus: CPU_2 }),
        ("move-back", PcStep::Move { line: BESIDE, cpus: CPU_0 }),
        ("disable", PcStep::Disable { line: BESIDE, depth: 1, ns: 300 }),
        ("retrigger", PcStep::Retrigger { line: BESIDE, count: 1 }),
        ("offline", PcStep::Offline { cpu: 1, ns: 500 }),
        ("offline-target", PcStep::Offline { cpu: 2, ns: 500 }),
    ]
}

fn device(
    name: &'static str,
    own: &'static str,
    set: &'static str,
    operations: Vec<(&'static str, PcStep)>,
) -> Bench<PcStep> {
    let machine = [
        "cpus=3,drives=1,queues=1,entries=32,managed=0,strict_storms=0,threads=0,secret_us=0,secret_entries=0",
        "read_us=2,slice_us=3000,count_vectors=0,gone=0,users=1,load=2,carried=0,batch=1,depth=1,think_ns=500,roaming=0,polls=0",
        "deeds=0",
        own,
        set,
    ];
    let before = vec![PcStep::Move { line: BESIDE, cpus: CPU_1 }];
    let operations = beside().into_iter().chain(operations).collect();
    Bench { before, operations, ..Bench::new(name, &machine) }
}

/// A timer of the HPET.
fn timers(own: &'static str) -> Bench<PcStep> {
    let timer = 0;
    let operations = vec![
        ("arm", PcStep::Timer(TimerStep::Arm { timer, ns: 1_000, more: 2 })),
        ("fire", PcStep::Timer(TimerStep::Fire { timer, ns: 1_000 })),
        ("reline", PcStep::Timer(TimerStep::Reline { timer, ns: 100 })),
    ];
    device("timers", own, "accelerator=0,timers=1", operations)
}

/// A source of the function that posts by itself.
fn poster() -> Bench<PcStep> {
    let source = 0;
    let operations = vec![
        ("raise", PcStep::Poster(PosterStep::Raise { source, count: 3, period_ns: 700 })),
        ("fire", PcStep::Poster(PosterStep::Fire { source })),
        ("reline", PcStep::Poster(PosterStep::Reline { source, ns: 100 })),
    ];
    device("poster", "poster=1", "accelerator=0,timers=0", operations)
}

/// A work queue of the accelerator.
fn accelerator(own: &'static str) -> Bench<PcStep> {
    let (queue, ns) = (0, 100);
    let step = |name, step| (name, PcStep::Accelerator(step));
    let operations = vec![
        step("fill", AcceleratorStep::Fill { queue, count: 4, depth: 2 }),
        step("poll", AcceleratorStep::Poll { queue }),
        step("reopen", AcceleratorStep::Reopen { queue, lines_first: false, other_mode: false, ns }),
        step("reopen-line-first", AcceleratorStep::Reopen { queue, lines_first: true, other_mode: true, ns }),
        step("recover", AcceleratorStep::Recover { queue, age_ns: 300 }),
        step("restart", AcceleratorStep::Restart { lines_first: false, mistake: 0, ns }),
        step("provoke", AcceleratorStep::Provoke { portal: 0, opcode: 4, count: 3, gap_ns: 300 }),
    ];
    device("accelerator", own, "accelerator=1,fills=40,timers=0", operations)
}

/// The same with fills under way all the time: for the faults of its commands alone.
fn filling(own: &'static str) -> Bench<PcStep> {
    let accelerator = accelerator(own);
    let chosen = ["reopen", "reopen-line-first", "recover", "restart"];
    // Each that closes the queue drops what is left of the load.
    let fill = || accelerator.operations.iter().find(|(name, _)| *name == "fill").cloned();
    let chosen = chosen.into_iter().filter_map(|name| accelerator.operations.iter().find(|(own, _)| *own == name));
    let operations = chosen.flat_map(|operation| fill().into_iter().chain([operation.clone()])).collect();
    let pairs = Some(Vec::new());
    Bench { name: "filling", operations, pairs, faults: "accelerator", ..accelerator }
}

/// The same, with messages all the time: for faults alone. Between a change of hardware and what the driver then does about a
/// fault, a message comes.
fn ringing(
    name: &'static str,
    machine: &[&'static str],
    operations: &[(&'static str, PcStep)],
    chosen: &[&str],
) -> Bench<PcStep> {
    let operations = operations.iter().filter(|(name, _)| chosen.contains(name)).cloned().collect();
    let before = vec![PcStep::Move { line: RING, cpus: CPU_1 }, PcStep::Ring { count: 600, period_ns: 700 }];
    Bench { before, operations, pairs: Some(Vec::new()), ..Bench::new(name, machine) }
}

/// The same, with a message to a CPU that is just going offline, and none behind it that would cover its loss: for faults alone.
fn leaving(machine: &[&'static str]) -> Bench<PcStep> {
    // The second message comes while the CPU is at it.
    let ring = PcStep::Ring { count: 2, period_ns: 10_000 };
    let operations = vec![("ring", ring), ("offline", PcStep::Offline { cpu: 1, ns: 500 })];
    let before = [RING, PIN, QUEUE].map(|line| PcStep::Move { line, cpus: CPU_1 });
    let pairs = Some(Vec::new());
    Bench { before: before.into(), operations, pairs, faults: INVALIDATIONS, ..Bench::new("leaving", machine) }
}

/// The operations meet the end of the invalidation queue: for its faults alone.
fn wrap(machine: &[&'static str]) -> Bench<PcStep> {
    let lend = PcStep::Lend { queue: 0, ns: 0 };
    let operations = (0..LOANS_AT_THE_END).map(|_| ("lend", lend.clone())).collect();
    let before = vec![lend; LOANS_TO_THE_END];
    Bench { before, operations, pairs: Some(Vec::new()), faults: INVALIDATIONS, ..Bench::new("wrap", machine) }
}

/// A loan has two invalidations, of two descriptors each; the queue has 256, and bring-up takes some.
const LOANS_TO_THE_END: usize = 56;
const LOANS_AT_THE_END: usize = 8;

/// The same with commands all the time too. A remapping unit, if there is one, keeps a single entry: it may take a changed one
/// before the driver has had the old one invalidated, and while that fails.
fn busy(
    name: &'static str,
    (chosen, faults): (&[&str], &'static str),
    machine: &[&'static str],
    operations: &[(&'static str, PcStep)],
) -> Bench<PcStep> {
    let machine: Vec<_> = machine.iter().copied().chain(["cache_places=1"]).collect();
    let burst = PcStep::Burst { queue: 0, count: 200, depth: 2 };
    let bench = ringing(name, &machine, operations, chosen);
    let before = [PcStep::Move { line: QUEUE, cpus: CPU_1 }].into_iter().chain(bench.before).chain([burst]).collect();
    Bench { before, faults, ..bench }
}

/// The same, with commands under way when they are aborted, and a last load that needs every id: for faults alone.
fn aborts(machine: &[&'static str]) -> Bench<PcStep> {
    let machine: Vec<_> = machine.iter().copied().chain(["read_us=20,full=1"]).collect();
    let abort = |age_ns| PcStep::Abort { queue: 0, age_ns };
    // An even age is that of a timeout beside which others work.
    let operations = vec![("abort", abort(501)), ("abort-beside", abort(500)), ("abort-again", abort(301))];
    let before = vec![PcStep::Burst { queue: 0, count: 24, depth: 8 }];
    Bench { before, operations, pairs: Some(Vec::new()), ..Bench::new("aborts", &machine) }
}

/// A queue of two entries: a command is all that it takes, and nothing else comes that could cover what is forgotten behind it.
fn narrow(machine: &[&'static str]) -> Bench<PcStep> {
    let machine: Vec<_> = machine.iter().copied().chain(["entries=2,read_us=20,full=1,tuned=1"]).collect();
    let abort = |age_ns| PcStep::Abort { queue: 0, age_ns };
    let operations = vec![
        ("abort", abort(501)),
        ("abort-beside", abort(500)),
        ("burst", PcStep::Burst { queue: 0, count: 6, depth: 1 }),
        ("reset", PcStep::Reset { drive: 0 }),
        ("intrude", PcStep::Intrude { drive: 0 }),
        ("recreate", PcStep::Recreate { queue: 0, ns: 100 }),
        ("exclude", PcStep::Coalesce { drive: 0, entries: 5, us: 100, excludes: true }),
        // One entry is no coalescing, and a reset restores the level of the drive's tuning.
        ("switch-off", PcStep::Coalesce { drive: 0, entries: 1, us: 100, excludes: false }),
        ("disable-queue", PcStep::Disable { line: QUEUE, depth: 1, ns: 300 }),
    ];
    let before = vec![PcStep::Burst { queue: 0, count: 6, depth: 1 }];
    Bench { before, operations, ..Bench::new("narrow", &machine) }
}

/// The same with handlers in threads, which hold their lines back: what concerns the level line and the ringing device's.
fn threads(own: &'static str, operations: &[(&'static str, PcStep)]) -> Bench<PcStep> {
    let machine = [
        "cpus=3,drives=1,queues=1,entries=32,managed=0,strict_storms=0,threads=1,secret_us=0,secret_entries=0",
        "read_us=2,slice_us=3000,count_vectors=0,gone=0,users=1,load=4,carried=1,batch=2,depth=4,think_ns=500,roaming=0,polls=0",
        "accelerator=0,timers=0,deeds=0",
        own,
    ];
    let chosen = ["move", "disable", "retrigger", "move-pin", "disable-pin", "offline", "fire"];
    let chosen = operations.iter().filter(|(name, _)| chosen.contains(name)).cloned();
    let operations = chosen.chain([("fire-pin", PcStep::FirePin { function: 0 })]).collect();
    let to = |line, cpus| PcStep::Move { line, cpus };
    // The level line has been served on CPU 1 by a vector that another line has there now, so that vector keeps the mark of a
    // level (Intel SDM 3, "Interrupt Acceptance for Fixed Interrupts", TMR). The level line gets the same one on CPU 2.
    let served = PcStep::FirePin { function: 0 };
    let vectors_settle = || PcStep::Disable { line: RING, depth: 1, ns: SETTLED_NS };
    let before = vec![
        to(PIN, CPU_1),
        served,
        to(PIN, CPU_0),
        vectors_settle(),
        to(RING, CPU_1),
        to(PIN, CPU_1),
        to(QUEUE, CPU_1),
        vectors_settle(),
    ];
    Bench { before, operations, ..Bench::new("threads", &machine) }
}

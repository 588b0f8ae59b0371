//! An NVMe drive with one queue and one MSI-X vector for each CPU.

use super::pci::Bus;
use super::reads::{Reads, Transfer, Written, carry, fill};
use super::{Fixture, Options, count, expect, wait};
use crate::kernel::{Bare, threads};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};
use drivers::message::MessageDomain;
use drivers::nvme::{CompletionLook, Config, Controller, IoOp, QueueConfig, QueuePair};
use drivers::pci::{MsixCapability, MsixTable};
use hal::{Affinity, CpuId, CpuSet, Hal, Lock, ThreadSpec, Threads};
use irq::{AllocRequest, Irq, RequestFlags};

/// PCI class code: mass storage, non-volatile memory, NVMe I/O controller.
pub(super) const CLASS: u32 = 0x01_08_02;
/// Entries of a queue.
const ENTRIES: u16 = 64;
/// Interval between two disturbances: an affinity change, or a CPU that goes offline and comes back.
const PAUSE_NS: u64 = 5_000_000;
/// Minimum number of affinity changes, unless `moves` says otherwise. Every fourth is followed by a CPU's trip offline.
const MOVES_MIN: u64 = 8;
/// Minimum number of reads.
const ROUNDS_MIN: u64 = 100;

/// A queue, its reads, and its line.
struct Queue {
    pair: Arc<QueuePair<Bare>>,
    reads: Arc<Reads>,
    line: Irq,
}

/// Checked reads on every queue, in phases: first undisturbed; then while lines move from CPU to CPU and CPUs go
/// offline and come back; then from a thread, with a completion look after each submission; last on a polled queue.
/// Options: `rounds` (total reads; more when too few disturbances happened), `depth` (of each queue), `moves` (affinity
/// changes at least).
pub(super) fn nvme(system: &Arc<Fixture>, options: &Options) -> Result<(), String> {
    let (rounds, depth) = (options.number("rounds", 10_000)?, options.number("depth", 8)?);
    if !(1..u64::from(ENTRIES)).contains(&depth) {
        return Err(format!("depth={depth}; a queue takes 1 to {}", ENTRIES - 1));
    }
    if rounds < ROUNDS_MIN {
        return Err(format!("rounds={rounds}; at least {ROUNDS_MIN} can be disturbed"));
    }
    let bridge = system.platform.pcie.as_ref().ok_or("firmware tells of no PCIe configuration space")?;
    let mut bus = Bus::new(bridge);
    let function = bus.find(CLASS).ok_or("no NVMe drive on bus 0")?;
    let bar = bus.region(&function, 0)?;
    let controller = Controller::new(Bare, bar, Config::default()).map_err(|error| format!("the drive: {error}"))?;
    let capability = MsixCapability::find(&function.config).map_err(|error| error.to_string())?;
    let table = bus.region(&function, capability.table_bar)?;
    let table = MsixTable::enable(function.config, table, capability);
    let domain = system.messages(&mut bus, &function)?;
    let messages = Arc::new(MessageDomain::new(Bare, table, domain).map_err(|error| error.to_string())?);
    system.start_messages(messages.source())?;

    let written = Arc::new(Written::default());
    let polled = QueueConfig { entries: ENTRIES, vector: None, transfer_bytes_max: 4096 };
    let filler = controller.create_queue_pair(polled, written.clone()).map_err(|error| error.to_string())?;
    fill(&written, |transfer| submit(&filler, IoOp::Write, transfer), || _ = filler.poll(1))?;

    let make = |cpu: u32| {
        let reads = Arc::new(Reads::new(depth, cpu.into())?);
        let config = QueueConfig { vector: Some(cpu as u16 + 1), ..polled };
        let pair = controller.create_queue_pair(config, reads.clone()).map_err(|error| error.to_string())?;
        let reader = pair.clone();
        reads.attach(move |transfer| submit(&reader, IoOp::Read, transfer));
        let request = AllocRequest::fixed(function.requester, cpu + 1, CpuSet::of(CpuId(cpu)));
        let line = system
            .core
            .alloc_line(messages.clone(), &request, system.message_flow())
            .map_err(|error| error.to_string())?;
        let requested = system.core.request(line, format!("nvme0q{cpu}"), RequestFlags::default(), pair.clone());
        requested.map_err(|error| error.to_string())?;
        pair.set_completion_look(CompletionLook::Off);
        Ok(Queue { pair, reads, line })
    };
    let queues = (0..system.platform.cpus()).map(make).collect::<Result<Vec<_>, String>>()?;
    let moves_min = options.number("moves", MOVES_MIN)?;
    let (disturbances, total) = exercise(system, &queues, rounds, moves_min)?;
    crate::println!("end");
    count("moves", disturbances.moves);
    count("offline_trips", disturbances.trips);
    count("waited_offline", disturbances.waited);
    report(system, &queues, total)?;
    // A vector that was pending at a CPU that went offline becomes a stray when the CPU comes back.
    let strays = system.strays();
    if strays > disturbances.waited {
        return Err(format!("{strays} strays, but only {} vectors waited at CPUs that went", disturbances.waited));
    }
    polled_reads(&controller, polled, rounds / 10, depth)?;
    system.check()
}

/// The reads by interrupt: undisturbed, disturbed, and from a thread. Returns the disturbances and the number of
/// reads.
fn exercise(
    system: &Arc<Fixture>,
    queues: &[Queue],
    rounds: u64,
    moves_min: u64,
) -> Result<(Disturbances, u64), String> {
    let reads: Vec<_> = queues.iter().map(|queue| queue.reads.clone()).collect();
    crate::println!("begin");
    system.mark();
    carry(&reads, rounds / 4, || Ok(()))?;
    system.mark();
    for (queue, cpu) in queues.iter().zip(0..) {
        let elsewhere: u64 = others(system, cpu).map(|cpu| system.core.count(queue.line, cpu)).sum();
        expect("interrupts on another CPU than the line's", elsewhere, 0)?;
    }
    let mut disturbances = Disturbances::default();
    let mut total = rounds - rounds / 2;
    while disturbances.moves < moves_min {
        carry(&reads, rounds / 2, || disturb(system, queues, &mut disturbances))?;
        total += rounds / 2;
    }
    home(system, queues)?;
    queues.iter().for_each(|queue| queue.pair.set_completion_look(CompletionLook::On));
    queues.iter().for_each(|queue| queue.reads.submit_from_thread(true));
    carry(&reads, rounds - rounds / 4 - rounds / 2, || {
        queues.iter().for_each(|queue| queue.reads.submit_free());
        Ok(())
    })?;
    super::settle(system.platform.cpus())?;
    Ok((disturbances, total))
}

fn others(system: &Fixture, cpu: u32) -> impl Iterator<Item = CpuId> {
    (0..system.platform.cpus()).filter(move |&other| other != cpu).map(CpuId)
}

/// Submits a transfer to `pair`.
pub(super) fn submit(pair: &QueuePair<Bare>, op: IoOp, transfer: Transfer) -> Result<(), String> {
    let submitted = pair.submit(&[transfer.nvme(op)]);
    if submitted.accepted == 1 { Ok(()) } else { Err(format!("{:?}", submitted.refused)) }
}

/// The disturbances of lines under load.
#[derive(Default)]
struct Disturbances {
    /// Changes of affinity.
    moves: u64,
    /// CPUs that went offline and came back.
    trips: u64,
    /// Vectors that were pending at a CPU when it went offline.
    waited: u64,
}

/// Moves a line to the next CPU. Every fourth call also takes a CPU offline for a while.
fn disturb(system: &Arc<Fixture>, queues: &[Queue], done: &mut Disturbances) -> Result<(), String> {
    Bare.delay_ns(PAUSE_NS);
    let cpus = system.platform.cpus();
    let (index, lap) = (done.moves as usize % queues.len(), done.moves / queues.len() as u64);
    let to = CpuId((index as u32 + 1 + lap as u32) % cpus);
    let moved = system.core.set_affinity(queues[index].line, &CpuSet::of(to));
    moved.map_err(|error| format!("line {} to CPU {to}: {error}", queues[index].line))?;
    done.moves += 1;
    if done.moves.is_multiple_of(4) && cpus > 1 {
        done.waited += offline_trip(system, CpuId(1 + done.trips as u32 % (cpus - 1)))?;
        done.trips += 1;
    }
    Ok(())
}

/// Takes `cpu` offline and back online. Returns how many vectors were pending there when it went offline.
fn offline_trip(system: &Arc<Fixture>, cpu: CpuId) -> Result<u64, String> {
    let outcome = Arc::new(Lock::new(Bare, None));
    let (slot, system) = (outcome.clone(), system.clone());
    let body = move || {
        let off = Bare.irq_save();
        let result = stay_offline(&system, cpu);
        Bare.irq_restore(off);
        *slot.lock() = Some(result);
    };
    let spec = ThreadSpec { name: "offline", affinity: Affinity::Cpu(cpu), urgent: true };
    Bare.spawn(spec, Box::new(body)).map_err(|error| error.to_string())?;
    wait("a CPU's return", || outcome.lock().is_some())?;
    outcome.lock().take().expect("looked at")
}

/// Runs on `cpu` itself, with interrupts off. The core has sent pending interrupts of the moved lines to their new
/// CPUs. The pending bits stay here until interrupts are on again, and no new one may appear.
fn stay_offline(system: &Fixture, cpu: CpuId) -> Result<u64, String> {
    system.stop_cpu()?;
    threads::set_online(cpu, false);
    let before = system.requested_here();
    Bare.delay_ns(PAUSE_NS);
    let after = system.requested_here();
    threads::set_online(cpu, true);
    system.start_cpu()?;
    if before == after {
        return Ok(before.len() as u64);
    }
    Err(format!("CPU {cpu} is offline and was sent to: {before:x?} waited there, then {after:x?}"))
}

/// Moves every line back to the CPU of its queue.
fn home(system: &Fixture, queues: &[Queue]) -> Result<(), String> {
    queues.iter().zip(0..).try_for_each(|(queue, cpu)| {
        system.core.set_affinity(queue.line, &CpuSet::of(CpuId(cpu))).map_err(|error| error.to_string())
    })
}

/// Prints the counts, and checks that no read was lost, doubled or left in flight.
fn report(system: &Fixture, queues: &[Queue], rounds: u64) -> Result<(), String> {
    let cpus = (0..system.platform.cpus()).map(CpuId);
    for cpu in cpus.clone() {
        let taken: u64 = queues.iter().map(|queue| system.core.count(queue.line, cpu)).sum();
        count(&format!("interrupts_cpu{cpu}"), taken);
    }
    let snapshots: Vec<_> = queues.iter().map(|queue| queue.pair.snapshot()).collect();
    let sum = |value: fn(&drivers::nvme::QueueSnapshot) -> u64| snapshots.iter().map(value).sum::<u64>();
    let lines = |queue: &Queue| cpus.clone().map(|cpu| system.core.count(queue.line, cpu)).sum::<u64>();
    let interrupts: u64 = queues.iter().map(lines).sum();
    let completed: u64 = queues.iter().map(|queue| queue.reads.progress().0).sum();
    count("reads", completed);
    count("interrupts", interrupts);
    count("empty_interrupts", sum(|queue| queue.completion.empty_interrupts));
    count("looks", sum(|queue| queue.submission.looks));
    count("check_completions", sum(|queue| queue.completion.look_entries));
    count("strays", system.strays());
    expect("reads completed", completed, rounds)?;
    expect("commands accepted", sum(|queue| queue.submission.commands), rounds)?;
    expect("completions told", sum(|queue| queue.completion.completed), rounds)?;
    expect("commands in flight", sum(|queue| queue.in_flight.into()), 0)?;
    expect("faults of the drive", sum(|queue| queue.completion.device_faults), 0)
}

/// Reads on a polled queue without interrupts; a thread polls it.
fn polled_reads(controller: &Controller<Bare>, config: QueueConfig, rounds: u64, depth: u64) -> Result<(), String> {
    let reads = Arc::new(Reads::new(depth, 99)?);
    let pair = controller.create_queue_pair(config, reads.clone()).map_err(|error| error.to_string())?;
    let reader = pair.clone();
    reads.attach(move |transfer| submit(&reader, IoOp::Read, transfer));
    reads.start(rounds);
    let polls = AtomicU64::new(0);
    wait("the end of the polled reads", || {
        polls.fetch_add(1, SeqCst);
        pair.poll(usize::from(ENTRIES));
        reads.progress().1
    })?;
    reads.check()?;
    let snapshot = pair.snapshot();
    count("polled_reads", reads.progress().0);
    count("polled_interrupts", snapshot.completion.interrupts);
    expect("polled reads", reads.progress().0, rounds)?;
    expect("interrupts of a polled queue", snapshot.completion.interrupts, 0)
}

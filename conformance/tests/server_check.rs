//! The completion look after submissions, with several CPUs on one queue and drives that hold interrupts back without declaring it.

use campanile_conformance::server::{Config, Path, Server};
use drivers::nvme::{CompletionLook, QueueSnapshot};
use hal::{CpuId, Hal as _, Threads};
use machine::nvme::HiddenCoalescing;
use machine::time::Ps;
use machine::{SimHal, Stream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

const CPUS: u32 = 4;
const ROUNDS: u64 = 400;
/// Commands that a CPU submits in a round.
const BATCH: u32 = 3;
/// Commands that may be in flight before a round: four CPUs' batches more fit the 31 commands of a queue.
const IN_FLIGHT_MAX: u16 = 31 - (CPUS * BATCH) as u16;

/// Every CPU submits to the drive's only queue at random times, without polling. Returns the queue at the end.
fn shared_queue(config: &Config, check: CompletionLook) -> QueueSnapshot {
    let mut server = Server::new(&Config { cpus: CPUS, drives: 1, queues: 1, ..config.clone() });
    let seed = config.seed;
    let snapshot = server.run(move |host| {
        host.queues().next().expect("a queue").pair.set_completion_look(check);
        let ended = Arc::new(AtomicU32::new(0));
        for cpu in 0..CPUS {
            let (host, ended) = (host.clone(), ended.clone());
            let body = move || {
                let queue = host.queues().next().expect("a queue");
                let mut random = Stream::new(seed, u64::from(cpu) + 100);
                for _ in 0..ROUNDS {
                    while queue.pair.snapshot().in_flight > IN_FLIGHT_MAX {
                        SimHal.delay_ns(300 + random.next() % 900);
                    }
                    // Completions submit the commands beyond the batch.
                    queue.load.start(u64::from(BATCH) + random.next() % 4, BATCH);
                    SimHal.delay_ns(random.next() % 6_000);
                }
                ended.fetch_add(1, Relaxed);
            };
            let affinity = hal::Affinity::Cpu(CpuId(cpu));
            SimHal.spawn(hal::ThreadSpec { name: "user", affinity, urgent: false }, Box::new(body)).expect("a CPU");
        }
        let queue = host.queues().next().expect("a queue");
        while ended.load(Relaxed) < CPUS {
            SimHal.delay_ns(10_000);
        }
        host.wait_for_load();
        queue.pair.snapshot()
    });
    server.finish();
    assert_eq!(server.faults(), [], "{snapshot}");
    assert_eq!((snapshot.in_flight, snapshot.completion.device_faults), (0, 0), "{snapshot}");
    snapshot
}

fn hidden(entries: u32, us: u64) -> Option<HiddenCoalescing> {
    Some(HiddenCoalescing { entries, time: Ps::from_ns(us * 1000) })
}

/// No command is lost and none completes twice (the server's own checks), whichever CPU reaps; and the counters add
/// up.
#[test]
fn cpus_that_share_a_queue_reap_for_each_other() {
    let (mut hits, mut failures) = (0, 0);
    for delivery in [Path::Plain, Path::Remapped, Path::Posted] {
        for (seed, hidden_coalescing) in [(1, None), (2, hidden(0, 74)), (3, hidden(8, 40)), (4, hidden(3, 200))] {
            let config = Config { delivery, seed, hidden_coalescing, ..Config::default() };
            let queue = shared_queue(&config, CompletionLook::Auto);
            let (sent, ended) = (queue.submission, queue.completion);
            assert_eq!(ended.completed, sent.commands, "{queue}");
            assert_eq!(ended.entries, ended.interrupt_entries + ended.look_entries, "nobody polled: {queue}");
            assert!(sent.looks > sent.doorbells / 2 && sent.looks <= sent.doorbells, "a shared queue: {queue}");
            assert!(ended.overtaken_interrupts <= ended.empty_interrupts, "{queue}");
            assert!(ended.remote > 0 && ended.local() > 0, "{queue}");
            assert!(ended.look_entries > 0, "{queue}");
            hits += sent.look_hits;
            failures += queue.look_lock_failures();
        }
    }
    assert!(failures > 0 && failures < hits, "{failures} of {hits} hits found another CPU reaping");
}

/// With the look switched off, interrupts alone carry the load.
#[test]
fn a_check_that_is_off_takes_nothing() {
    let config = Config { hidden_coalescing: hidden(0, 74), ..Config::default() };
    let queue = shared_queue(&config, CompletionLook::Off);
    assert_eq!((queue.submission.looks, queue.completion.look_reaps, queue.completion.overtaken_interrupts), (0, 0, 0));
    assert_eq!(queue.completion.entries, queue.completion.interrupt_entries);
}

/// The time in which a load on a queue of its own ends.
fn alone(hidden_coalescing: Option<HiddenCoalescing>, check: CompletionLook) -> (u64, QueueSnapshot) {
    let mut server = Server::new(&Config { cpus: 1, drives: 1, queues: 1, hidden_coalescing, ..Config::default() });
    let result = server.run(move |host| {
        let queue = host.queues().next().expect("a queue");
        queue.pair.set_completion_look(check);
        let begin = SimHal.now_ns();
        for _ in 0..600 {
            // Each submission but the first few finds entries that earlier ones left.
            queue.load.start(8, 8);
            while queue.pair.snapshot().in_flight > 20 {
                SimHal.delay_ns(1_000);
            }
            SimHal.delay_ns(4_000);
        }
        host.wait_for_load();
        (SimHal.now_ns() - begin, queue.pair.snapshot())
    });
    server.finish();
    assert_eq!(server.faults(), []);
    result
}

/// One CPU, one queue. The look stays off for an honest drive. A drive that holds interrupts back is recognised from
/// its interrupts alone.
#[test]
fn a_drive_that_coalesces_undeclared_is_found_out() {
    let (_, honest) = alone(None, CompletionLook::Auto);
    assert_eq!(honest.submission.looks, 0, "{honest}");
    let (slow_ns, _) = alone(hidden(0, 326), CompletionLook::Off);
    let (quick_ns, found_out) = alone(hidden(0, 326), CompletionLook::Auto);
    assert!(found_out.submission.looks > 1_000 && found_out.completion.look_entries > 1_000, "{found_out}");
    assert!(quick_ns * 4 < slow_ns * 3, "{quick_ns} ns with the look, {slow_ns} ns without");
}

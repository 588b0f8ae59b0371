//! Lines that move while their interrupts arrive.

use campanile_conformance::server::{Config, Path, Server};
use hal::{CpuId, CpuSet, Hal as _, Threads};
use irq::Vector;
use machine::fabric::vtd::InvalidationFault;
use machine::time::Ps;
use machine::{SimHal, Stream};

const DELIVERIES: [Path; 3] = [Path::Plain, Path::Remapped, Path::Posted];

#[test]
fn a_load_without_management_leaves_nothing_behind() {
    for delivery in DELIVERIES {
        let mut server = Server::new(&Config { delivery, ..Config::default() });
        server.run(|host| host.start_load(300, 8));
        server.finish();
        server.run(|host| host.check_no_vector_leaked());
        assert_eq!(server.faults(), [], "{delivery:?}");
    }
}

#[test]
fn lines_move_at_random_and_nothing_is_lost() {
    for delivery in DELIVERIES {
        for seed in 1..=3 {
            let mut server = Server::new(&Config { delivery, seed, read_ns: 20_000, ..Config::default() });
            server.run(move |host| {
                host.start_load(3_000, 8);
                let mut random = Stream::new(seed, 77);
                while !host.queues().all(|queue| queue.load.is_done()) {
                    let queue = host.queues().nth((random.next() % 4) as usize).expect("four queues");
                    let cpu = CpuId((random.next() % 4) as u32);
                    host.core().set_affinity(queue.line, &CpuSet::of(cpu)).expect("an online CPU");
                    SimHal.delay_ns(random.next() % 40_000);
                }
            });
            server.finish();
            let taken: u64 = (0..4).map(|cpu| server.host.taken(CpuId(cpu), Vector(0xeb))).sum();
            let sent = server.counter(server.models.iommu, "notifications");
            assert_eq!(taken, sent, "one ON, one notification: none merges in a LAPIC");
            for queue in server.host.queues() {
                let homes = (0..4).filter(|&cpu| server.host.core().count(queue.line, CpuId(cpu)) > 0).count();
                assert!(homes >= 2, "line {} was served on {homes} CPU", queue.line);
            }
            server.run(|host| host.check_no_vector_leaked());
            assert_eq!(server.faults(), [], "{delivery:?}, seed {seed}");
        }
    }
}

/// Many CPUs submit to one queue and look at its completions themselves, while its interrupts come on another.
#[test]
fn all_cpus_share_one_queue() {
    for delivery in DELIVERIES {
        let mut server = Server::new(&Config { delivery, drives: 1, queues: 1, ..Config::default() });
        server.run(|host| {
            for cpu in 0..4 {
                let host = host.clone();
                let body = move || {
                    let queue = host.queues().next().expect("a queue");
                    for round in 0..200u64 {
                        queue.load.start(7, 7);
                        while queue.pair.snapshot().in_flight > 2 {
                            queue.pair.poll(usize::MAX);
                            SimHal.delay_ns(200 + (round * 37 + u64::from(cpu) * 11) % 700);
                        }
                    }
                };
                let affinity = hal::Affinity::Cpu(CpuId(cpu));
                SimHal.spawn(hal::ThreadSpec { name: "user", affinity, urgent: false }, Box::new(body)).expect("a CPU");
            }
            let queue = host.queues().next().expect("a queue");
            while queue.load.counts().1 < 4 * 200 * 7 {
                SimHal.delay_ns(10_000);
            }
        });
        server.finish();
        assert_eq!(server.faults(), [], "{delivery:?}");
    }
}

/// The invalidation queue stops once, in the middle, or is slow: a move fails or takes longer, and no interrupt is
/// lost.
#[test]
fn lines_move_while_the_invalidation_queue_misbehaves() {
    let faults =
        (3..40).step_by(6).map(InvalidationFault::FetchFails).chain([InvalidationFault::Late(Ps::from_ns(9_000))]);
    for (delivery, invalidation_fault) in faults.flat_map(|fault| [(Path::Remapped, fault), (Path::Posted, fault)]) {
        let mut server = Server::new(&Config { delivery, invalidation_fault, ..Config::default() });
        server.run(|host| {
            host.start_load(1_000, 12);
            let mut random = Stream::new(2, 77);
            while !host.queues().all(|queue| queue.load.is_done()) {
                let queue = host.queues().nth((random.next() % 4) as usize).expect("four queues");
                let before = host.core().view(queue.line).expect("a line").effective;
                if host.core().set_affinity(queue.line, &CpuSet::of(CpuId((random.next() % 4) as u32))).is_err() {
                    assert_eq!(host.core().view(queue.line).expect("a line").effective, before, "it stays");
                }
                SimHal.delay_ns(random.next() % 40_000);
            }
        });
        server.finish();
        server.run(|host| host.check_no_vector_leaked());
        let faults = server.faults();
        assert!(faults.iter().all(|fault| *fault == ("invalidation queue stopped", 1)), "{faults:?}");
    }
}

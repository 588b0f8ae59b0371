//! The drives' handlers in threads, while everything changes round them.

use campanile_conformance::server::{Config, Path, Server};
use hal::{CpuId, CpuSet, Hal as _};
use machine::{SimHal, Stream};

const DELIVERIES: [Path; 3] = [Path::Plain, Path::Remapped, Path::Posted];

#[test]
fn forced_threads_complete_every_command() {
    for delivery in DELIVERIES {
        let mut server = Server::new(&Config { delivery, force_threads: true, ..Config::default() });
        server.run(|host| {
            host.start_load(1_500, 12);
            let mut random = Stream::new(9, 77);
            while !host.queues().all(|queue| queue.load.is_done()) {
                let queue = host.queues().nth((random.next() % 4) as usize).expect("four queues");
                assert_eq!(host.core().view(queue.line).expect("a line").threads, 1);
                match random.next() % 3 {
                    0 => {
                        host.core().disable(queue.line).expect("from a thread");
                        let reaped = queue.pair.snapshot().completion.interrupts;
                        SimHal.delay_ns(random.next() % 10_000);
                        assert_eq!(queue.pair.snapshot().completion.interrupts, reaped, "its thread was waited for");
                        host.core().enable(queue.line).expect("disabled");
                    }
                    1 => {
                        let cpu = CpuId((random.next() % 4) as u32);
                        host.core().set_affinity(queue.line, &CpuSet::of(cpu)).expect("it is online");
                    }
                    _ => {
                        let cpu = CpuId((random.next() % 4) as u32);
                        host.offline_for(cpu, random.next() % 40_000).expect("three others are online");
                    }
                }
                SimHal.delay_ns(random.next() % 40_000);
            }
        });
        server.finish();
        server.run(|host| host.check_no_vector_leaked());
        assert_eq!(server.faults(), [], "{delivery:?}");
    }
}

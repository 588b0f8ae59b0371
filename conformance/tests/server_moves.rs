//! Lines that move while their interrupts arrive.

use campanile_conformance::server::{Config, Delivery, Server};
use hal::{CpuId, CpuSet, Hal as _};
use machine::{SimHal, Stream};

const DELIVERIES: [Delivery; 3] = [Delivery::Plain, Delivery::Remapped, Delivery::Posted];

#[test]
fn a_load_without_management_leaves_nothing_behind() {
    for delivery in DELIVERIES {
        let mut server = Server::new(&Config { delivery, ..Config::default() });
        server.run(|system| system.start_load(300, 8));
        server.finish();
        server.run(|system| system.check_no_vector_leaked());
        assert_eq!(server.faults(), [], "{delivery:?}");
    }
}

#[test]
fn lines_move_at_random_and_nothing_is_lost() {
    for delivery in DELIVERIES {
        for seed in 1..=3 {
            let mut server = Server::new(&Config { delivery, seed, ..Config::default() });
            server.run(move |system| {
                system.start_load(2_000, 12);
                let mut random = Stream::new(seed, 77);
                while !system.queues().all(|queue| queue.load.is_done()) {
                    let queue = system.queues().nth((random.next() % 4) as usize).expect("four queues");
                    let cpu = CpuId((random.next() % 4) as u32);
                    system.core.set_affinity(queue.line, &CpuSet::of(cpu)).expect("an online CPU");
                    SimHal.delay_ns(random.next() % 40_000);
                }
            });
            server.finish();
            server.run(|system| system.check_no_vector_leaked());
            assert_eq!(server.faults(), [], "{delivery:?}, seed {seed}");
        }
    }
}

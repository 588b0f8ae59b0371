//! CPUs that go and come while their interrupts arrive.

use campanile_conformance::server::{Config, Delivery, Server};
use hal::{CpuId, CpuSet, Hal as _};
use irq::{Action, Irq, IrqReturn, RequestFlags};
use machine::{SimHal, Stream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const DELIVERIES: [Delivery; 3] = [Delivery::Plain, Delivery::Remapped, Delivery::Posted];

#[derive(Default)]
struct Count(AtomicU64);

impl Action for Count {
    fn handle(&self, _: Irq) -> IrqReturn {
        self.0.fetch_add(1, Relaxed);
        IrqReturn::Handled
    }
}

#[test]
fn cpus_go_and_come_under_load() {
    for (delivery, managed) in DELIVERIES.into_iter().flat_map(|delivery| [(delivery, false), (delivery, true)]) {
        let mut server = Server::new(&Config { delivery, managed, ..Config::default() });
        server.run(|system| {
            system.start_load(3_000, 12);
            let mut random = Stream::new(5, 77);
            let mut gone = 0;
            while !system.queues().all(|queue| queue.load.is_done()) {
                let cpu = CpuId((random.next() % 4) as u32);
                system.offline_for(cpu, random.next() % 60_000).expect("three others are online");
                SimHal.delay_ns(random.next() % 60_000);
                gone += 1;
            }
            assert!(gone > 5, "only {gone} times");
        });
        server.finish();
        server.run(|system| system.check_no_vector_leaked());
        assert_eq!(server.faults(), [], "{delivery:?}, managed {managed}");
    }
}

/// Both CPUs of each queue's share go, one after the other: the line is shut down with the last and comes back with
/// either.
#[test]
fn a_managed_line_sleeps_without_its_cpus_and_wakes_with_them() {
    for delivery in DELIVERIES {
        let mut server = Server::new(&Config { delivery, managed: true, ..Config::default() });
        server.run(|system| {
            let line = system.queues().nth(1).expect("two queues a drive").line;
            assert_eq!(system.core.view(line).expect("a line").affinity.to_string(), "2-3");
            system.start_load(2_000, 12);
            let away = system.clone();
            let other = move || away.offline_for(CpuId(2), 400_000).expect("others are online");
            let spec = hal::ThreadSpec { name: "away", affinity: hal::Affinity::Cpu(CpuId(1)), urgent: false };
            SimHal.spawn(spec, Box::new(other)).expect("CPU 1 exists");
            SimHal.delay_ns(50_000);
            let asleep = system.clone();
            let watch = move || {
                SimHal.delay_ns(60_000);
                let view = asleep.core.view(line).expect("a line");
                assert!(view.shutdown && view.effective.is_none(), "{view}");
            };
            let spec = hal::ThreadSpec { name: "watch", affinity: hal::Affinity::Cpu(CpuId(1)), urgent: true };
            SimHal.spawn(spec, Box::new(watch)).expect("CPU 1 exists");
            system.offline_for(CpuId(3), 100_000).expect("others are online");
            let view = system.core.view(line).expect("a line");
            assert_eq!(view.effective.expect("it is back").cpu, CpuId(3), "{view}");
            SimHal.delay_ns(400_000);
        });
        server.finish();
        server.run(|system| system.check_no_vector_leaked());
        assert_eq!(server.faults(), [], "{delivery:?}");
    }
}

/// A vector waits in IRR or PIR at the moment its CPU goes: it fires at the next one.
#[test]
fn what_is_pending_at_a_cpu_that_goes_is_not_lost() {
    for delivery in DELIVERIES {
        let mut server = Server::new(&Config { delivery, cpus: 2, drives: 0, ..Config::default() });
        server.run(move |system| {
            let line = system.ringer_line();
            let count = Arc::new(Count::default());
            system.core.request(line, "ringer", RequestFlags::default(), count.clone()).expect("a new line");
            system.core.set_affinity(line, &CpuSet::of(CpuId(1))).expect("online");
            SimHal.delay_ns(300_000);
            let target = system.core.view(line).expect("a line").effective.expect("a vector");
            assert_eq!(target.cpu, CpuId(1));
            system.on_cpu(CpuId(1), move |system| {
                let off = SimHal.irq_save();
                system.ringer.ring(1, 1_000);
                SimHal.delay_ns(5_000);
                let posted = system.posted.as_ref().is_some_and(|posted| posted.is_pending(target));
                assert!(posted || system.lapic.is_requested(target.vector.unwrap()), "{delivery:?}: it waits here");
                system.core.cpu_offline().expect("CPU 0 is online");
                if let Some(posted) = &system.posted {
                    posted.cpu_offline();
                    let descriptor = posted.descriptor(CpuId(1)).expect("a descriptor");
                    assert!(!descriptor.is_pending(target.vector.unwrap()), "it was fired elsewhere");
                    assert!(!descriptor.is_outstanding(), "after an INIT nobody would be notified again");
                }
                system.core.cpu_online(CpuId(1)).expect("it was offline");
                SimHal.irq_restore(off);
            });
            SimHal.delay_ns(300_000);
            assert_eq!(count.0.load(Relaxed), 1, "{delivery:?}");
            assert_eq!(
                (system.core.count(line, CpuId(0)), system.core.count(line, CpuId(1))),
                (1, 0),
                "at the other CPU"
            );
            let action: Arc<dyn Action> = count;
            system.core.free(line, &action).expect("its handler");
            system.core.free_line(line).expect("without a handler");
        });
        server.finish();
    }
}

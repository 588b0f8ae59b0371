//! CPUs that go and come while their interrupts arrive.

use campanile_conformance::server::{Config, Path, Server};
use hal::{CpuId, CpuSet, Hal as _, Threads};
use irq::{Action, Irq, IrqReturn, RequestFlags};
use machine::{SimHal, Stream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const DELIVERIES: [Path; 3] = [Path::Plain, Path::Remapped, Path::Posted];

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
        server.run(|host| {
            host.start_load(3_000, 12);
            let mut random = Stream::new(5, 77);
            let mut gone = 0;
            while !host.queues().all(|queue| queue.load.is_done()) {
                let cpu = CpuId((random.next() % 4) as u32);
                host.offline_for(cpu, random.next() % 60_000).expect("three others are online");
                SimHal.delay_ns(random.next() % 60_000);
                gone += 1;
            }
            assert!(gone > 5, "only {gone} times");
        });
        server.finish();
        server.run(|host| host.check_no_vector_leaked());
        assert_eq!(server.faults(), [], "{delivery:?}, managed {managed}");
    }
}

/// Both CPUs of each queue's share go offline, one after the other: the line is shut down with the last CPU and comes
/// back with either.
#[test]
fn a_managed_line_sleeps_without_its_cpus_and_wakes_with_them() {
    for delivery in DELIVERIES {
        let mut server = Server::new(&Config { delivery, managed: true, ..Config::default() });
        server.run(|host| {
            let line = host.queues().nth(1).expect("two queues a drive").line;
            assert_eq!(host.core().view(line).expect("a line").affinity.to_string(), "2-3");
            host.start_load(2_000, 12);
            let away = host.clone();
            let other = move || away.offline_for(CpuId(2), 400_000).expect("others are online");
            let spec = hal::ThreadSpec { name: "away", affinity: hal::Affinity::Cpu(CpuId(1)), urgent: false };
            SimHal.spawn(spec, Box::new(other)).expect("CPU 1 exists");
            SimHal.delay_ns(50_000);
            let asleep = host.clone();
            let watch = move || {
                SimHal.delay_ns(60_000);
                let view = asleep.core().view(line).expect("a line");
                assert!(view.shutdown && view.effective.is_none(), "{view}");
            };
            let spec = hal::ThreadSpec { name: "watch", affinity: hal::Affinity::Cpu(CpuId(1)), urgent: true };
            SimHal.spawn(spec, Box::new(watch)).expect("CPU 1 exists");
            host.offline_for(CpuId(3), 100_000).expect("others are online");
            let view = host.core().view(line).expect("a line");
            assert_eq!(view.effective.expect("it is back").cpu, CpuId(3), "{view}");
            SimHal.delay_ns(400_000);
        });
        server.finish();
        server.run(|host| host.check_no_vector_leaked());
        assert_eq!(server.faults(), [], "{delivery:?}");
    }
}

/// A vector waits in IRR or PIR at the moment its CPU goes: it fires at the next one.
#[test]
fn what_is_pending_at_a_cpu_that_goes_is_not_lost() {
    for delivery in DELIVERIES {
        let mut server = Server::new(&Config { delivery, cpus: 2, drives: 0, ..Config::default() });
        server.run(move |host| {
            let line = host.ringer_line();
            let count = Arc::new(Count::default());
            host.core().request(line, "ringer", RequestFlags::default(), count.clone()).expect("a new line");
            host.core().set_affinity(line, &CpuSet::of(CpuId(1))).expect("online");
            SimHal.delay_ns(300_000);
            let target = host.core().view(line).expect("a line").effective.expect("a vector");
            assert_eq!(target.cpu, CpuId(1));
            host.on_cpu(CpuId(1), move |host| {
                let off = SimHal.irq_save();
                host.ringer.ring(1, 1_000);
                SimHal.delay_ns(5_000);
                let posted = host.pc.posted().is_some_and(|posted| posted.is_pending(target));
                assert!(
                    posted || host.pc.lapic().is_requested(target.vector().unwrap()),
                    "{delivery:?}: it waits here"
                );
                host.core().cpu_offline().expect("CPU 0 is online");
                if let Some(posted) = host.pc.posted() {
                    posted.cpu_offline();
                    let descriptor = posted.descriptor(CpuId(1)).expect("a descriptor");
                    assert!(!descriptor.is_pending(target.vector().unwrap()), "it was fired elsewhere");
                    assert!(!descriptor.is_outstanding(), "after an INIT nobody would be notified again");
                }
                host.core().cpu_online(CpuId(1)).expect("it was offline");
                SimHal.irq_restore(off);
            });
            SimHal.delay_ns(300_000);
            assert_eq!(count.0.load(Relaxed), 1, "{delivery:?}");
            assert_eq!(
                (host.core().count(line, CpuId(0)), host.core().count(line, CpuId(1))),
                (1, 0),
                "at the other CPU"
            );
            let action: Arc<dyn Action> = count;
            host.core().free(line, &action).expect("its handler");
            host.core().free_line(line).expect("without a handler");
        });
        server.finish();
    }
}

use crate::{Choice, Scheduler, State, Topology};
use hal::{Affinity, CpuId, ThreadId, ThreadSpec};
use proptest::prelude::*;
use std::vec::Vec;

const SLICE_NS: u64 = 3_000_000;

/// Two nodes of four CPUs, each with two cache domains of two.
fn eight() -> Scheduler {
    Scheduler::with_topology(8, SLICE_NS, Topology { node_cpus: 4, cache_cpus: 2 })
}

fn spawn(scheduler: &mut Scheduler, affinity: Affinity) -> ThreadId {
    scheduler.spawn(&ThreadSpec { name: "t", affinity, urgent: false }).expect("a CPU").0
}

fn home(scheduler: &Scheduler, thread: ThreadId) -> u32 {
    match scheduler.state(thread) {
        State::Ready(cpu) | State::Running(cpu) => cpu.0,
        state => panic!("{state:?}"),
    }
}

/// Runs `thread` on `cpu` and parks it; the CPU then idles and has given the stack back.
fn run_and_park(scheduler: &mut Scheduler, cpu: CpuId, thread: ThreadId) {
    assert_eq!(scheduler.pick(cpu, 0), Choice::Thread(thread));
    assert!(scheduler.park(cpu));
    assert_eq!(scheduler.pick(cpu, 0), Choice::Idle);
    scheduler.stack_returned(cpu);
}

#[test]
fn new_threads_spread_over_nodes_then_caches_then_cpus() {
    let mut scheduler = eight();
    let homes: Vec<u32> = (0..9)
        .map(|_| {
            let thread = spawn(&mut scheduler, Affinity::Any);
            home(&scheduler, thread)
        })
        .collect();
    assert_eq!(homes, [0, 4, 2, 6, 1, 5, 3, 7, 0]);
}

#[test]
fn a_new_thread_stays_within_its_affinity() {
    let mut scheduler = eight();
    let set = Affinity::Set([1, 5].into_iter().map(CpuId).collect());
    let homes: Vec<u32> = (0..4)
        .map(|_| {
            let thread = spawn(&mut scheduler, set.clone());
            home(&scheduler, thread)
        })
        .collect();
    assert_eq!(homes, [1, 5, 1, 5]);
}

#[test]
fn a_woken_thread_stays_at_home_while_that_is_idle() {
    let mut scheduler = eight();
    let thread = spawn(&mut scheduler, Affinity::Any);
    run_and_park(&mut scheduler, CpuId(0), thread);
    assert_eq!(scheduler.wake_by(thread, Some(CpuId(1)), None), Some(CpuId(0)));
}

#[test]
fn an_idle_waker_attracts_only_within_its_cache_domain() {
    for (waker, expected) in [(1, 1), (2, 1), (4, 1)] {
        let mut scheduler = eight();
        let thread = spawn(&mut scheduler, Affinity::Any);
        run_and_park(&mut scheduler, CpuId(0), thread);
        let other = spawn(&mut scheduler, Affinity::Cpu(CpuId(0)));
        assert_eq!(scheduler.pick(CpuId(0), 0), Choice::Thread(other));
        // Its home is busy. From the waker that shares the cache it goes there; else to the idle neighbour of its home:
        // an idle waker far away has fewer threads, so it attracts.
        let kicked = scheduler.wake_by(thread, Some(CpuId(waker)), None);
        let expected = if waker == 1 { expected } else { waker };
        assert_eq!(kicked, Some(CpuId(expected)), "woken from CPU {waker}");
    }
}

#[test]
fn without_an_idle_cpu_in_the_cache_domain_it_queues_although_another_domain_idles() {
    let mut scheduler = eight();
    let thread = spawn(&mut scheduler, Affinity::Any);
    run_and_park(&mut scheduler, CpuId(0), thread);
    for cpu in [0, 1] {
        let busy = spawn(&mut scheduler, Affinity::Cpu(CpuId(cpu)));
        assert_eq!(scheduler.pick(CpuId(cpu), 0), Choice::Thread(busy));
    }
    assert_eq!(scheduler.wake_by(thread, Some(CpuId(1)), None), None, "its CPU is not kicked: it is busy");
    assert_eq!(scheduler.state(thread), State::Ready(CpuId(0)));
    // The end of the slice finds the nearest idle CPU.
    assert_eq!(scheduler.offload(CpuId(0)), Some(CpuId(2)));
    assert_eq!(scheduler.state(thread), State::Ready(CpuId(2)));
    assert_eq!(scheduler.offload(CpuId(0)), None);
}

#[test]
fn an_idle_cpu_pulls_what_is_cold_and_nothing_else() {
    let mut scheduler = eight();
    let affinity = Affinity::Set([0, 1].into_iter().map(CpuId).collect());
    let first = spawn(&mut scheduler, affinity.clone());
    let second = spawn(&mut scheduler, affinity.clone());
    let third = spawn(&mut scheduler, affinity);
    assert_eq!([first, second, third].map(|thread| home(&scheduler, thread)), [0, 1, 0]);
    assert_eq!(scheduler.pick(CpuId(0), 0), Choice::Thread(first));
    assert_eq!(scheduler.pick(CpuId(1), 0), Choice::Thread(second));
    // The slice of the first ends: it ran until now and is hot.
    assert_eq!(scheduler.pick(CpuId(0), SLICE_NS), Choice::Thread(third));
    scheduler.exit(CpuId(1));
    assert_eq!(scheduler.pick(CpuId(1), SLICE_NS + 499_999), Choice::Idle);
    assert_eq!(scheduler.pick(CpuId(1), SLICE_NS + 500_000), Choice::Thread(first));
    assert_eq!(scheduler.pick(CpuId(2), 2 * SLICE_NS), Choice::Idle, "no thread is allowed there");
}

#[test]
fn a_thread_of_one_cpu_is_where_it_was_without_a_topology() {
    let mut with = eight();
    let mut without = Scheduler::new(8, SLICE_NS);
    for cpu in [3, 3, 0, 7] {
        let homes = [&mut with, &mut without].map(|scheduler| {
            let thread = spawn(scheduler, Affinity::Cpu(CpuId(cpu)));
            home(scheduler, thread)
        });
        assert_eq!(homes, [cpu, cpu]);
    }
}

/// CPUs with a normal thread in their queue, counted from the queues.
fn counted(scheduler: &Scheduler) -> Vec<u32> {
    (0..8).filter(|&cpu| !scheduler.cpus[cpu as usize].normal.is_empty()).collect()
}

proptest! {
    /// An idle CPU looks for threads only on CPUs of the mask.
    #[test]
    fn the_mask_of_crowded_cpus_is_what_the_queues_say(
        steps in proptest::collection::vec((0..8_u8, 0..8_u32, any::<u8>()), 1..300),
    ) {
        let mut scheduler = eight();
        let mut now_ns = 0;
        for (step, cpu, byte) in steps {
            let cpu = CpuId(cpu);
            let thread = (!scheduler.threads.is_empty()).then(|| ThreadId(u32::from(byte) % scheduler.threads.len() as u32));
            match step {
                0 => {
                    let affinity = if byte % 4 == 0 { Affinity::Cpu(cpu) } else { Affinity::Any };
                    let spec = ThreadSpec { name: "t", affinity, urgent: byte % 8 == 7 };
                    scheduler.spawn(&spec).expect("a CPU");
                }
                1 => _ = thread.map(|thread| scheduler.wake_by(thread, Some(cpu), None)),
                2 if scheduler.current(cpu).is_some() => _ = scheduler.park(cpu),
                3 if scheduler.current(cpu).is_some() => scheduler.yield_now(cpu),
                4 => _ = scheduler.offload(cpu),
                5 if byte % 4 == 0 => scheduler.offline(cpu, |_| {}),
                5 => _ = scheduler.online(cpu),
                _ => {
                    now_ns += u64::from(byte) * 10_000;
                    scheduler.pick(cpu, now_ns);
                    _ = scheduler.stack_returned(cpu);
                }
            }
            let mask: Vec<u32> = scheduler.crowded.within(0..8).map(|cpu| cpu.0).collect();
            prop_assert_eq!(mask, counted(&scheduler));
        }
    }
}

/// The longest queue used to be that of an offline CPU, whose threads may run nowhere else.
#[test]
fn an_idle_cpu_does_not_look_at_what_an_offline_cpu_holds() {
    let mut scheduler = eight();
    scheduler.offline(CpuId(1), |_| {});
    (0..3).for_each(|_| _ = spawn(&mut scheduler, Affinity::Cpu(CpuId(1))));
    let bound = [0, 2, 3].map(|cpu| spawn(&mut scheduler, Affinity::Cpu(CpuId(cpu))));
    let waits = spawn(&mut scheduler, Affinity::Set([0, 2].into_iter().map(CpuId).collect()));
    let from = home(&scheduler, waits);
    for (cpu, thread) in [0, 2, 3].into_iter().zip(bound) {
        assert_eq!(scheduler.pick(CpuId(cpu), 0), Choice::Thread(thread));
    }
    let other = CpuId(2 - from);
    assert!(scheduler.park(other));
    assert_eq!(scheduler.pick(other, 0), Choice::Thread(waits));
}

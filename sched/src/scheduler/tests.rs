use super::*;

mod random;

const SLICE_NS: u64 = 1000;

fn spec(affinity: Affinity, urgent: bool) -> ThreadSpec {
    ThreadSpec { name: "t", affinity, urgent }
}

fn spawn(scheduler: &mut Scheduler, affinity: Affinity, urgent: bool) -> ThreadId {
    scheduler.spawn(&spec(affinity, urgent)).expect("the affinity names a CPU").0
}

const C0: CpuId = CpuId(0);
const C1: CpuId = CpuId(1);

#[test]
fn a_wake_before_the_park_makes_it_return_at_once() {
    let mut scheduler = Scheduler::new(1, SLICE_NS);
    let thread = spawn(&mut scheduler, Affinity::Any, false);
    assert_eq!(scheduler.pick(C0, 0), Choice::Thread(thread));
    assert_eq!(scheduler.wake(thread), None);
    assert!(!scheduler.park(C0));
    assert!(scheduler.park(C0), "one wake ends one park");
    assert_eq!(scheduler.state(thread), State::Parked);
}

#[test]
fn a_lent_stack_keeps_its_thread_on_the_lending_cpu() {
    let mut scheduler = Scheduler::new(2, SLICE_NS);
    let thread = spawn(&mut scheduler, Affinity::Any, false);
    assert_eq!(scheduler.pick(C0, 0), Choice::Thread(thread));
    assert!(scheduler.park(C0));
    assert_eq!(scheduler.pick(C0, 10), Choice::Idle);
    assert_eq!(scheduler.lent_to_idle(C0), Some(thread));
    assert_eq!(scheduler.wake(thread), Some(C0), "only the CPU on its stack may run it");
    assert_eq!(scheduler.pick(C1, 10), Choice::Idle);
    assert_eq!(scheduler.pick(C0, 20), Choice::Thread(thread));
    assert_eq!(scheduler.lent_to_idle(C0), None);
}

#[test]
fn a_stack_comes_back_when_its_cpu_runs_another_thread() {
    let mut scheduler = Scheduler::new(2, SLICE_NS);
    let lender = spawn(&mut scheduler, Affinity::Any, false);
    assert_eq!(scheduler.pick(C0, 0), Choice::Thread(lender));
    assert!(scheduler.park(C0));
    assert_eq!(scheduler.pick(C0, 0), Choice::Idle);
    let other = spawn(&mut scheduler, Affinity::Cpu(C0), false);
    assert_eq!(scheduler.pick(C0, 0), Choice::Thread(other));
    assert_eq!(scheduler.wake(lender), Some(C1), "its home is busy, its stack is its own again");
    assert_eq!(scheduler.pick(C1, 0), Choice::Thread(lender));
}

/// A woken thread stays queued on an offline CPU that still uses its stack.
#[test]
fn a_lent_stack_outlives_its_cpu_going_offline() {
    let mut scheduler = Scheduler::new(2, SLICE_NS);
    let thread = spawn(&mut scheduler, Affinity::Any, false);
    assert_eq!(scheduler.pick(C0, 0), Choice::Thread(thread));
    scheduler.offline(C0, |_| unreachable!("nothing is queued"));
    assert!(scheduler.preempts(C0));
    assert_eq!(scheduler.pick(C0, 5), Choice::Idle);
    assert_eq!(scheduler.state(thread), State::Ready(C0));
    assert_eq!(scheduler.pick(C1, 5), Choice::Idle);
    assert_eq!(scheduler.stack_returned(C0), Some(C1));
    assert_eq!(scheduler.pick(C1, 6), Choice::Thread(thread));
}

#[test]
fn an_exited_thread_keeps_its_stack_while_its_cpu_idles_on_it() {
    let mut scheduler = Scheduler::new(1, SLICE_NS);
    let thread = spawn(&mut scheduler, Affinity::Any, false);
    assert_eq!(scheduler.pick(C0, 0), Choice::Thread(thread));
    scheduler.exit(C0);
    assert_eq!(scheduler.pick(C0, 0), Choice::Idle);
    assert_eq!(scheduler.lent_to_idle(C0), Some(thread));
    assert_eq!(scheduler.wake(thread), None);
    assert_eq!(scheduler.stack_returned(C0), None);
    assert_eq!(scheduler.lent_to_idle(C0), None);
}

#[test]
fn an_urgent_thread_preempts_and_the_preempted_one_keeps_the_rest_of_its_slice() {
    let mut scheduler = Scheduler::new(1, SLICE_NS);
    let first = spawn(&mut scheduler, Affinity::Any, false);
    let second = spawn(&mut scheduler, Affinity::Any, false);
    let urgent = spawn(&mut scheduler, Affinity::Any, true);
    assert_eq!(scheduler.pick(C0, 0), Choice::Thread(urgent));
    assert_eq!(scheduler.next_deadline_ns(C0), None);
    assert!(scheduler.park(C0));
    assert_eq!(scheduler.pick(C0, 0), Choice::Thread(first));
    assert_eq!(scheduler.wake(urgent), Some(C0));
    assert!(scheduler.preempts(C0));
    assert_eq!(scheduler.pick(C0, 300), Choice::Thread(urgent));
    assert!(scheduler.park(C0));
    assert_eq!(scheduler.pick(C0, 500), Choice::Thread(first));
    assert_eq!(scheduler.next_deadline_ns(C0), Some(1200));
    assert!(scheduler.tick(C0, 1200));
    assert_eq!(scheduler.pick(C0, 1200), Choice::Thread(second));
}

#[test]
fn a_thread_alone_gets_a_new_slice() {
    let mut scheduler = Scheduler::new(1, SLICE_NS);
    let thread = spawn(&mut scheduler, Affinity::Any, false);
    assert_eq!(scheduler.pick(C0, 0), Choice::Thread(thread));
    assert!(!scheduler.tick(C0, 1000));
    assert_eq!(scheduler.next_deadline_ns(C0), None, "nobody waits for it");
    spawn(&mut scheduler, Affinity::Any, false);
    assert_eq!(scheduler.next_deadline_ns(C0), Some(2000));
}

#[test]
fn a_thread_bound_to_an_offline_cpu_waits_for_it() {
    let mut scheduler = Scheduler::new(3, SLICE_NS);
    let bound = spawn(&mut scheduler, Affinity::Cpu(C1), false);
    let pair: CpuSet = [C0, C1].into_iter().collect();
    scheduler.offline(C0, |_| {});
    let either = spawn(&mut scheduler, Affinity::Set(pair), false);
    let mut kicked = Vec::new();
    scheduler.offline(C1, |cpu| kicked.push(cpu));
    assert_eq!(kicked, [], "CPU 2 may run neither");
    assert_eq!(scheduler.state(bound), State::Ready(C1));
    assert!(scheduler.online(C0), "the other comes to the first CPU of its set");
    assert_eq!(scheduler.pick(C0, 0), Choice::Thread(either));
    assert!(scheduler.online(C1));
    assert_eq!(scheduler.pick(C1, 0), Choice::Thread(bound));
}

#[test]
fn a_thread_whose_affinity_changes_goes_there_when_it_is_next_woken() {
    let mut scheduler = Scheduler::new(3, 1_000);
    let mover = spawn(&mut scheduler, Affinity::Cpu(CpuId(0)), true);
    assert_eq!(scheduler.pick(CpuId(0), 0), Choice::Thread(mover));
    scheduler.set_affinity(mover, &Affinity::Cpu(CpuId(2))).expect("CPU 2 exists");
    assert_eq!(scheduler.pick(CpuId(0), 0), Choice::Thread(mover), "it stays until it parks");
    assert!(scheduler.park(CpuId(0)));
    let other = spawn(&mut scheduler, Affinity::Cpu(CpuId(0)), false);
    assert_eq!(scheduler.pick(CpuId(0), 0), Choice::Thread(other), "its stack is free");
    scheduler.wake(mover);
    assert_eq!(scheduler.state(mover), State::Ready(CpuId(2)));
    let nowhere = scheduler.set_affinity(mover, &Affinity::Cpu(CpuId(3)));
    assert_eq!(nowhere, Err(SpawnError::NoCpu(CpuSet::of(CpuId(3)), 3)));
}

/// It runs once where it waits. Then it used to stay there for ever.
#[test]
fn a_ready_thread_whose_affinity_changes_goes_there_when_it_is_next_woken() {
    let mut scheduler = Scheduler::new(2, SLICE_NS);
    let mover = spawn(&mut scheduler, Affinity::Cpu(C0), true);
    scheduler.set_affinity(mover, &Affinity::Cpu(C1)).expect("CPU 1 exists");
    assert_eq!(scheduler.pick(C0, 0), Choice::Thread(mover), "it waits there");
    assert!(scheduler.park(C0));
    let other = spawn(&mut scheduler, Affinity::Cpu(C0), false);
    assert_eq!(scheduler.pick(C0, 0), Choice::Thread(other), "its stack is free");
    scheduler.wake(mover);
    assert_eq!(scheduler.state(mover), State::Ready(C1));
}

#[test]
fn an_affinity_without_a_cpu_is_refused() {
    let mut scheduler = Scheduler::new(4, SLICE_NS);
    let error = scheduler.spawn(&spec(Affinity::Cpu(CpuId(4)), false)).expect_err("CPUs are 0 to 3");
    assert_eq!(error, SpawnError::NoCpu(CpuSet::of(CpuId(4)), 4));
    assert!(scheduler.spawn(&spec(Affinity::Set(CpuSet::new()), false)).is_err());
}

/// Threads that never park share one CPU: at any moment no two differ by more than a slice.
#[test]
fn busy_threads_share_a_cpu_within_a_slice() {
    let mut scheduler = Scheduler::new(1, SLICE_NS);
    let threads: Vec<ThreadId> = (0..5).map(|_| spawn(&mut scheduler, Affinity::Any, false)).collect();
    let mut ran_ns = [0; 5];
    let mut now_ns = 0;
    for _ in 0..53 {
        let Choice::Thread(thread) = scheduler.pick(C0, now_ns) else { panic!("all are runnable") };
        let deadline_ns = scheduler.next_deadline_ns(C0).expect("a normal thread runs");
        ran_ns[thread.0 as usize] += deadline_ns - now_ns;
        now_ns = deadline_ns;
        assert!(scheduler.tick(C0, now_ns));
        let (least, most) = (ran_ns.iter().min(), ran_ns.iter().max());
        assert!(most.zip(least).is_some_and(|(most, least)| most - least <= SLICE_NS), "{ran_ns:?}");
    }
    assert!(threads.iter().all(|&thread| scheduler.state(thread) != State::Parked));
}

#[test]
fn a_thread_is_woken_where_the_caller_wants_if_it_may_run_there() {
    let mut scheduler = Scheduler::new(3, SLICE_NS);
    let thread = spawn(&mut scheduler, Affinity::Set([C0, C1].into_iter().collect()), false);
    let sleep = |scheduler: &mut Scheduler| {
        assert_eq!(scheduler.pick(C0, 0), Choice::Thread(thread));
        assert!(scheduler.park(C0));
        assert_eq!(scheduler.pick(C0, 0), Choice::Idle);
    };
    sleep(&mut scheduler);
    assert_eq!(scheduler.wake_on(thread, Some(C1)), Some(C0), "its stack is lent to CPU 0");
    sleep(&mut scheduler);
    scheduler.stack_returned(C0);
    assert_eq!(scheduler.wake_on(thread, Some(CpuId(2))), Some(C0), "its affinity forbids CPU 2");
    sleep(&mut scheduler);
    scheduler.stack_returned(C0);
    scheduler.offline(C1, |_| {});
    assert_eq!(scheduler.wake_on(thread, Some(C1)), Some(C0), "CPU 1 is offline");
    sleep(&mut scheduler);
    scheduler.stack_returned(C0);
    scheduler.online(C1);
    assert_eq!(scheduler.wake_on(thread, Some(C1)), Some(C1));
    assert_eq!(scheduler.pick(C1, 0), Choice::Thread(thread));
}

/// It used to go behind the others once a slice was over, although urgent threads have no slices.
#[test]
fn an_urgent_thread_keeps_its_place_when_its_cpu_goes_offline() {
    let mut scheduler = Scheduler::new(2, SLICE_NS);
    let [first, second] = [(); 2].map(|()| spawn(&mut scheduler, Affinity::Cpu(C0), true));
    assert_eq!(scheduler.pick(C0, 0), Choice::Thread(first));
    scheduler.offline(C0, |_| {});
    assert_eq!(scheduler.pick(C0, 10 * SLICE_NS), Choice::Idle);
    assert_eq!(scheduler.stack_returned(C0), None);
    assert!(scheduler.online(C0));
    assert_eq!(scheduler.pick(C0, 10 * SLICE_NS), Choice::Thread(first));
    assert!(scheduler.park(C0));
    assert_eq!(scheduler.pick(C0, 10 * SLICE_NS), Choice::Thread(second));
}

/// It used to stay there until any CPU came online, and the CPU that it went to then was not kicked.
#[test]
fn a_thread_that_an_offline_cpu_holds_follows_its_affinity() {
    let mut scheduler = Scheduler::new(2, SLICE_NS);
    scheduler.offline(C1, |_| {});
    let [stays, goes] = [(); 2].map(|()| spawn(&mut scheduler, Affinity::Cpu(C1), false));
    assert_eq!(scheduler.set_affinity(goes, &Affinity::Cpu(C0)), Ok(Some(C0)), "it idles");
    assert_eq!([scheduler.state(stays), scheduler.state(goes)], [State::Ready(C1), State::Ready(C0)]);
    assert_eq!(scheduler.pick(C0, 0), Choice::Thread(goes));
}

/// Its last CPU used to be where it ran once more, and it was woken there for ever.
#[test]
fn a_thread_that_runs_once_more_where_it_may_not_goes_away_at_its_next_wake() {
    let mut scheduler = Scheduler::new(2, SLICE_NS);
    let thread = spawn(&mut scheduler, Affinity::Any, false);
    assert_eq!(scheduler.pick(C0, 0), Choice::Thread(thread));
    assert_eq!(scheduler.set_affinity(thread, &Affinity::Cpu(C1)), Ok(None));
    scheduler.yield_now(C0);
    assert_eq!(scheduler.pick(C0, 10), Choice::Thread(thread), "it stays until it is woken");
    assert!(scheduler.park(C0));
    assert_eq!(scheduler.pick(C0, 20), Choice::Idle);
    assert_eq!(scheduler.stack_returned(C0), None);
    assert_eq!(scheduler.wake(thread), Some(C1));
}

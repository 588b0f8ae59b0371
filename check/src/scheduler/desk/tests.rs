use super::*;
use crate::draw::Draw;

const SHAPE: Shape = Shape { cpus: 8, slice_ns: 100_000, domains: Some((4, 2)), threads_max: 24 };

/// Random steps up to the first finding.
fn search(desk: &mut Desk, seed: u64) -> Finding {
    (0..400).try_for_each(|index| desk.apply(&SchedulerStep::draw(&mut Draw::new(seed, "test", index))))?;
    desk.drain()
}

#[test]
fn the_scheduler_follows_its_rules() {
    let shapes = [SHAPE, Shape { domains: None, ..SHAPE }, Shape { cpus: 130, threads_max: 200, ..SHAPE }];
    for shape in shapes {
        for seed in 0..50 {
            search(&mut Desk::new(&shape), seed).unwrap_or_else(|text| panic!("{shape:?} {seed}: {text}"));
        }
    }
}

/// What the oracle expects of another topology, slice or machine is not what this one does.
#[test]
fn other_rules_are_told_apart() {
    let others = [
        Shape { domains: None, ..SHAPE },
        Shape { domains: Some((8, 2)), ..SHAPE },
        Shape { domains: Some((4, 4)), ..SHAPE },
        Shape { slice_ns: 100_001, ..SHAPE },
    ];
    for other in others {
        let found = |seed| {
            let mut desk = Desk { oracle: Desk::new(&other).oracle, ..Desk::new(&SHAPE) };
            search(&mut desk, seed).is_err()
        };
        assert!((0..20).any(found), "{other:?}");
    }
}

/// A thread waits for an offline CPU, and may then run on another: it used to stay there, until any CPU came online; the idle
/// CPU that it went to then was not told.
#[test]
fn a_held_thread_goes_when_its_affinity_lets_it() {
    let mut desk = Desk::new(&Shape { cpus: 3, domains: None, ..SHAPE });
    let (thread, cpu) = (0, 1);
    let steps = [
        SchedulerStep::Rest,
        SchedulerStep::Offline(cpu),
        SchedulerStep::Spawn(Allowed::One(cpu), false),
        SchedulerStep::Allow { thread, allowed: Allowed::One(2) },
        SchedulerStep::Rest,
    ];
    steps.iter().try_for_each(|step| desk.apply(step)).expect("by the rules");
    assert_eq!(desk.scheduler.current(CpuId(2)), Some(ThreadId(0)));
}

/// A thread ran once more where it was, and then stayed there for ever.
#[test]
fn a_thread_leaves_a_cpu_that_its_affinity_no_longer_allows() {
    for domains in [None, Some((4, 2))] {
        let mut desk = Desk::new(&Shape { cpus: 4, domains, ..SHAPE });
        let (thread, cpu, picks) = (0, 0, true);
        let steps = [
            SchedulerStep::Spawn(Allowed::Any, false),
            SchedulerStep::Rest,
            SchedulerStep::Allow { thread, allowed: Allowed::One(2) },
            SchedulerStep::Yield { cpu, picks },
            SchedulerStep::Park { cpu, picks },
            SchedulerStep::Return(0),
            SchedulerStep::Wake { thread, waker: None, place: None },
            SchedulerStep::Rest,
        ];
        steps.iter().try_for_each(|step| desk.apply(step)).expect("by the rules");
        assert_eq!(desk.scheduler.current(CpuId(2)), Some(ThreadId(0)));
    }
}

/// A CPU comes back before it has stopped its thread, and an urgent thread that was held outranks that one: it must pick.
#[test]
fn a_cpu_that_comes_back_running_takes_an_urgent_thread() {
    let mut desk = Desk::new(&Shape { cpus: 2, domains: None, ..SHAPE });
    let steps = [
        SchedulerStep::Spawn(Allowed::One(1), false),
        SchedulerStep::Rest,
        SchedulerStep::Offline(1),
        SchedulerStep::Spawn(Allowed::One(1), true),
        SchedulerStep::Online(0),
        SchedulerStep::Rest,
    ];
    steps.iter().try_for_each(|step| desk.apply(step)).expect("by the rules");
    assert_eq!(desk.scheduler.current(CpuId(1)), Some(ThreadId(1)));
}

//! Wrong tables, and steps that fail, are rounded, come late or never come.

use super::plant::{Device, MS, Plant, RDMA, S};
use super::*;
use proptest::prelude::*;
use std::string::ToString;
use std::vec;

#[test]
fn a_table_is_checked() {
    assert_eq!(LevelTable::new([]), Err(LevelError::Empty));
    let unsorted = LevelTable::new([Setting::OFF, Setting::new(16, 8), Setting::new(8, 16)]).unwrap_err();
    assert_eq!(
        unsorted.to_string(),
        "level 2 (8 µs or 16) must exceed the one below it (16 µs or 8) in delay or count, and neither may fall"
    );
    let twice = LevelTable::new([Setting::OFF, Setting::OFF]).unwrap_err();
    assert!(matches!(twice, LevelError::Unsorted { index: 1, .. }));
    let many: vec::Vec<_> = (0..65).map(|us| Setting::new(us, 1)).collect();
    assert_eq!(LevelTable::new(many).unwrap_err().to_string(), "the table has 65 levels; 1 to 64 are possible");
    for algorithm in Algorithm::ALL {
        assert_eq!(algorithm.build(rdma_table(), 0).err(), Some(LevelError::Events));
    }
    assert!(LevelTable::new(LevelTable::NET_DIM_RX).is_ok());
}

/// Runs a deep load for four seconds. Returns the completions of the last two, in per cent of the best fixed level's.
fn run(device: Device) -> (plant::Run, TuningView, u64) {
    let table = rdma_table();
    let plant = Plant { table: &table, loads: &[(4 * S, RDMA)], device, seed: 11 };
    let mut controller = adaptive();
    let run = plant.with(&mut controller);
    let share_pct = run.completions(2 * S, 4 * S) * 100 / plant.best(2 * S, 4 * S);
    (run, controller.view(), share_pct)
}

#[test]
fn a_device_that_rounds_is_judged_by_what_it_does() {
    for us in [3, 16, 50] {
        let (run, view, share_pct) = run(Device::RoundsTo(us));
        assert!(share_pct >= 95, "{us} µs: {share_pct} %, {:?}", run.changes);
        assert!(view.counts.quantised > 0);
    }
}

#[test]
fn a_level_that_is_refused_is_gone_round() {
    for level in 1..9 {
        let (run, view, share_pct) = run(Device::Refuses(level));
        assert!(share_pct >= 90, "without level {level}: {share_pct} %, {:?}", run.changes);
        assert!(run.changes.iter().all(|&(_, to)| to != level));
        assert_eq!((view.counts.failed, view.level == level), (1, false));
    }
}

#[test]
fn work_that_never_runs_is_late_and_asked_for_less_and_less() {
    let (run, view, _) = run(Device::Forgets);
    assert!(run.changes.is_empty());
    assert_eq!(view.level, 0);
    assert!((2..=4).contains(&view.counts.late), "{view}");
}

#[test]
fn a_step_is_late_at_its_deadline() {
    let mut controller = adaptive();
    let mut now_ns = 0;
    while controller.view().counts.steps == 0 {
        now_ns += 4_300;
        let _ = controller.interrupt(now_ns, Found::completions(1));
    }
    let deadline_ns = controller.deadline_ns().expect("a step waits");
    assert_eq!(deadline_ns, now_ns + 100 * MS);
    for (at_ns, late) in [(deadline_ns - 1, 0), (deadline_ns, 1)] {
        let _ = controller.elapsed(at_ns);
        assert_eq!(controller.view().counts.late, late, "at {at_ns} ns");
    }
}

/// The last step of a search, back to the level that it chose, is answered late. The search has judged the load all the same.
#[test]
fn a_late_answer_after_a_search_begins_no_other() {
    let mut controller = adaptive();
    let mut now_ns = 0;
    let mut waits: Option<(u64, Step)> = None;
    while now_ns < 12 * S {
        now_ns += 20_000;
        let _ = controller.interrupt(now_ns, Found::completions(1));
        if let Some(step) = controller.step().filter(|step| waits.is_none_or(|(_, waits)| waits.id != step.id)) {
            let is_back = step.level < controller.level();
            waits = Some((now_ns + if is_back { 150 * MS } else { 0 }, step));
        }
        if let Some((_, step)) = waits.take_if(|(at_ns, _)| *at_ns <= now_ns) {
            let _ = controller.programmed(now_ns, step.id, Outcome::Done(step.setting));
        }
    }
    let counts = controller.view().counts;
    assert_eq!(
        (counts.late, counts.searches, counts.strays, controller.level()),
        (1, 1, 0, 0),
        "{}",
        controller.view()
    );
}

#[test]
fn work_that_runs_late_is_believed_when_it_answers() {
    let mut controller = adaptive();
    let mut now_ns = 0;
    let mut until_program = |controller: &mut Adaptive| loop {
        now_ns += 4_300;
        if controller.interrupt(now_ns, Found::completions(1)) == Next::Program {
            return (now_ns, controller.step().expect("said so"));
        }
    };
    let (at_ns, first) = until_program(&mut controller);
    assert_eq!(first.level, 1);
    let (again_ns, second) = until_program(&mut controller);
    assert!(again_ns - at_ns >= 1_100 * MS, "late after 100 ms, and a second's rest");
    assert_ne!(first.id, second.id);
    assert_eq!(controller.view().counts.late, 1);
    let _ = controller.programmed(again_ns, first.id, Outcome::Done(first.setting));
    assert_eq!((controller.level(), controller.step()), (1, Some(second)), "the device now has the first setting");
    let _ = controller.programmed(again_ns, second.id, Outcome::Done(second.setting));
    assert_eq!(controller.level(), second.level);
    let _ = controller.programmed(again_ns, first.id, Outcome::Done(first.setting));
    assert_eq!((controller.level(), controller.view().counts.strays), (second.level, 1));
}

#[test]
fn an_answer_is_believed_however_many_steps_nobody_could_take_meanwhile() {
    let mut controller = adaptive();
    let mut now_ns = 0;
    let mut until = |controller: &mut Adaptive, is_so: fn(&TuningView) -> bool| {
        while !is_so(&controller.view()) {
            now_ns += 4_300;
            let _ = controller.interrupt(now_ns, Found::completions(1));
        }
        now_ns
    };
    // The thread has taken the first step and is still busy with it.
    until(&mut controller, |view| view.counts.steps == 1);
    let first = controller.step().expect("it waits");
    let at_ns = until(&mut controller, |view| view.counts.late == 3);
    let _ = controller.programmed(at_ns, first.id, Outcome::Done(first.setting));
    assert_eq!((controller.level(), controller.view().counts.strays), (first.level, 0), "{}", controller.view());
}

/// A controller that holds a level, wants level 0 since the load has gone, and has given its step up: nobody took it in
/// time. Also the present.
fn overdue() -> (Adaptive, u64) {
    let table = rdma_table();
    // It has just settled, so it does not search anew at once.
    let held = (1..200).map(|windows| windows * 20 * MS).find_map(|now_ns| {
        let plant = Plant { table: &table, loads: &[(now_ns, RDMA)], device: Device::Obeys, seed: 11 };
        let mut controller = adaptive();
        let _ = plant.with(&mut controller);
        let is_held = controller.level() > 0 && controller.view().phase == "holding";
        is_held.then_some((controller, now_ns))
    });
    let (mut controller, mut now_ns) = held.expect("a deep load wants a level");
    while controller.view().counts.late == 0 {
        now_ns += 20_000;
        let _ = controller.interrupt(now_ns, Found::completions(1));
    }
    assert_eq!((controller.view().wanted, controller.view().counts.searches), (Some(0), 1), "{}", controller.view());
    (controller, now_ns)
}

#[test]
fn a_thread_that_comes_too_late_gets_the_level_that_is_wanted() {
    let (mut controller, now_ns) = overdue();
    let step = controller.step().expect("level 0 is wanted");
    assert_eq!((step.level, step.setting), (0, rdma_table().setting(0)));
    assert_eq!(controller.step(), Some(step), "it stays the same");
    let _ = controller.programmed(now_ns, step.id, Outcome::Done(step.setting));
    assert_eq!((controller.level(), controller.step(), controller.view().counts.strays), (0, None, 0));
    let _ = controller.programmed(now_ns, step.id, Outcome::Done(step.setting));
    assert_eq!(controller.view().counts.strays, 1, "a step has one answer");
}

#[test]
fn a_refusal_that_comes_late_counts() {
    let (mut controller, now_ns) = overdue();
    let step = controller.step().expect("level 0 is wanted");
    let level = controller.level();
    let _ = controller.programmed(now_ns, step.id, Outcome::Failed);
    let counts = controller.view().counts;
    assert_eq!((controller.level(), controller.step(), counts.failed, counts.strays), (level, None, 1, 0));
}

/// The thread takes each step at once and has its refusal only when the step has been given up.
#[test]
fn a_level_that_is_refused_late_is_gone_round() {
    let mut controller = adaptive();
    let (mut now_ns, mut levels) = (0, vec![]);
    while levels.len() < 4 {
        now_ns += 4_300;
        if controller.interrupt(now_ns, Found::completions(1)) == Next::Program {
            let (step, late) = (controller.step().expect("said so"), controller.view().counts.late);
            while controller.view().counts.late == late {
                now_ns += MS;
                let _ = controller.elapsed(now_ns);
            }
            let _ = controller.programmed(now_ns, step.id, Outcome::Failed);
            levels.push(step.level);
        }
    }
    assert_eq!((levels, controller.view().counts.strays), (vec![1, 1, 1, 2], 0));
}

#[test]
fn a_late_step_is_believed_though_another_was_asked_for_meanwhile() {
    let (mut controller, mut now_ns) = overdue();
    let late = controller.step().expect("level 0 is wanted");
    let asked = loop {
        now_ns += MS;
        if controller.interrupt(now_ns, Found::completions(1)) == Next::Program {
            break controller.step().expect("said so");
        }
    };
    assert_ne!(asked.id, late.id);
    let _ = controller.programmed(now_ns, late.id, Outcome::Done(late.setting));
    assert_eq!((controller.level(), controller.view().counts.strays), (late.level, 0));
    assert_eq!(controller.step(), Some(asked), "this one still waits for its answer");
}

#[test]
fn slow_work_neither_stops_it_nor_makes_it_flap() {
    // Within the bound, the controller is only slower. Beyond the bound it stays at the level that is known to be good.
    let (run_slow, _, share_pct) = run(Device::Slow(50 * MS));
    assert!(share_pct >= 95, "{share_pct} %, {:?}", run_slow.changes);
    let (run_late, view, _) = run(Device::Slow(150 * MS));
    assert!(run_late.changes.len() <= 4, "{:?}", run_late.changes);
    assert!(view.counts.late > 0);
}

#[test]
fn the_view_says_what_the_device_really_has() {
    let (_, view, _) = run(Device::RoundsTo(50));
    let text = view.to_string();
    assert!(text.starts_with("adaptive: holding at level "), "{text}");
    assert!(text.contains(", device has 50 µs or "), "{text}");
    assert!(text.contains(" completions/s, "), "{text}");
    assert!(text.contains("late 0 strays 0"), "{text}");
}

#[derive(Clone, Debug)]
enum Op {
    Interrupt(u64, u32),
    Polled(u64, u32),
    Elapsed(u64),
    /// Answer an earlier step: 0 is the waiting one, 1 the one before it.
    Answer(u32, Option<Setting>),
}

fn op() -> impl Strategy<Value = Op> {
    // Nanoseconds that pass. Sometimes very many, and sometimes time runs backwards.
    let pass = prop_oneof![8 => 0u64..100_000, 2 => 0..200 * MS, 1 => Just(u64::MAX / 4), 1 => Just(u64::MAX)];
    let found = prop_oneof![8 => 0u32..64, 1 => Just(u32::MAX)];
    let setting = (0u32..100, 0u32..100).prop_map(|(us, count)| Setting::new(us, count));
    prop_oneof![
        30 => (pass.clone(), found.clone()).prop_map(|(pass, found)| Op::Interrupt(pass, found)),
        4 => (pass.clone(), found).prop_map(|(pass, found)| Op::Polled(pass, found)),
        2 => pass.prop_map(Op::Elapsed),
        4 => (0u32..3, proptest::option::of(setting)).prop_map(|(ago, setting)| Op::Answer(ago, setting)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever time, devices and users do, a controller does not panic, leave its table, or forget its step.
    #[test]
    fn whatever_happens_a_controller_stays_in_its_table(
        ops in proptest::collection::vec(op(), 1..400),
        levels in 1usize..6,
        nr_events in 1u16..4,
    ) {
        for algorithm in Algorithm::ALL {
            let table = LevelTable::new(&LevelTable::NET_DIM_RX[..levels.min(5)]).expect("sorted");
            let mut controller = algorithm.build(table.clone(), nr_events).expect("a sample has events");
            let (mut now_ns, mut id) = (0u64, 0u32);
            for op in &ops {
                let next = match *op {
                    Op::Interrupt(pass, completions) => {
                        now_ns = now_ns.wrapping_add(pass);
                        controller.interrupt(now_ns, Found { completions, bytes: u64::from(completions) << 31, in_flight: Some(id) })
                    }
                    Op::Polled(pass, completions) => {
                        now_ns = now_ns.wrapping_add(pass);
                        controller.polled(now_ns, Found::completions(completions))
                    }
                    Op::Elapsed(pass) => {
                        now_ns = now_ns.wrapping_add(pass);
                        controller.elapsed(now_ns)
                    }
                    Op::Answer(ago, actual) => {
                        let outcome = actual.map_or(Outcome::Failed, Outcome::Done);
                        controller.programmed(now_ns, id.wrapping_sub(ago), outcome)
                    }
                };
                let step = controller.step();
                if next == Next::Program {
                    prop_assert!(step.is_some());
                    prop_assert_ne!(step.map(|step| step.id), Some(id));
                }
                if let Some(step) = step {
                    prop_assert!(step.level <= table.last());
                    prop_assert_eq!(step.setting, table.setting(step.level));
                    id = step.id;
                }
                prop_assert!(controller.level() <= table.last());
                prop_assert!(controller.view().to_string().starts_with(algorithm.name()));
            }
        }
    }

    /// With an obedient device, the default controller always comes to rest.
    #[test]
    fn after_anything_it_comes_to_rest(ops in proptest::collection::vec(op(), 1..200)) {
        let mut controller = adaptive();
        let mut now_ns = 0u64;
        for op in &ops {
            let _ = match *op {
                Op::Interrupt(pass, found) | Op::Polled(pass, found) => {
                    now_ns = now_ns.saturating_add(pass % S);
                    controller.interrupt(now_ns, Found::completions(found))
                }
                Op::Elapsed(pass) => {
                    now_ns = now_ns.saturating_add(pass % S);
                    controller.elapsed(now_ns)
                }
                Op::Answer(..) => Next::Measure,
            };
        }
        let until_ns = now_ns + 60 * S;
        let mut steps = 0;
        while now_ns < until_ns {
            now_ns = controller.deadline_ns().expect("it has one always").max(now_ns);
            let _ = controller.elapsed(now_ns);
            while let Some(step) = controller.step() {
                steps += 1;
                let _ = controller.programmed(now_ns, step.id, Outcome::Done(step.setting));
            }
        }
        prop_assert_eq!(controller.level(), 0, "nothing comes");
        prop_assert!(steps <= 40, "{} steps", steps);
    }
}

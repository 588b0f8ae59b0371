//! The systematic search: its promises, and a sample of it.

use campanile_check::run::Scenario;
use campanile_check::scenarios;
use campanile_check::systematic::{Search, Task, explore, run};

fn tasks(wanted: impl Fn(&str) -> bool) -> Vec<(&'static dyn Scenario, Task)> {
    let of = |&scenario: &&'static dyn Scenario| Task::all(scenario).into_iter().map(move |task| (scenario, task));
    scenarios::all().iter().flat_map(of).filter(|(_, task)| wanted(&task.to_string())).collect()
}

#[test]
fn the_result_does_not_depend_on_the_number_of_workers() {
    let result = |jobs| {
        let tasks = tasks(|name| name.contains("move+"));
        let search = Search { tasks, bound: 2, budget: 12, jobs };
        run(&search).into_iter().map(|verdict| (verdict.task.to_string(), verdict.explored)).collect::<Vec<_>>()
    };
    let one = result(1);
    assert!(one.len() > 100, "{} sets of operations", one.len());
    assert_eq!(one, result(3));
}

/// Each operation exists on its machine, and has points at which another can come in.
#[test]
fn all_sets_of_operations_pass_in_every_order() {
    let search = Search { tasks: tasks(|_| true), bound: 0, budget: 6, jobs: 2 };
    for verdict in run(&search) {
        let name = format!("{} {}", verdict.scenario.name(), verdict.task);
        if let Some((schedule, failure)) = &verdict.explored.failure {
            panic!("{name}, schedule {schedule}: {failure}");
        }
        let points = &verdict.explored.points;
        assert_eq!(points.len(), verdict.task.operations.len(), "{name}");
    }
}

/// A schedule is the same again, and a longer one agrees with its beginning.
#[test]
fn a_schedule_runs_again() {
    let (scenario, task) = tasks(|name| name == "edge/move+disable").remove(0);
    let mut schedules = Vec::new();
    explore(2, 2, 500, |schedule| {
        schedules.push(schedule.clone());
        scenario.direct(&task, schedule, 0).expect("valid knobs")
    });
    assert!(schedules.iter().any(|schedule| schedule.switches.len() == 2));
    for schedule in schedules {
        let [one, again] = [0, 1].map(|_| scenario.direct(&task, &schedule, 0).expect("valid knobs"));
        assert_eq!((one.digest, &one.turns), (again.digest, &again.turns), "{schedule}");
        assert_eq!(one.switched, schedule.switches.len(), "{schedule}: every switch takes place");
    }
}

/// What a drive's features are believed to be was wrong behind some of these.
#[test]
fn settings_of_a_drive_that_meet_a_reset_pass_in_many_orders() {
    let names = ["narrow/reset+exclude", "narrow/reset+switch-off"];
    let mut tasks = tasks(|name| names.contains(&name));
    tasks.retain(|(scenario, _)| scenario.name() == "pc-plain");
    assert_eq!(tasks.len(), names.len());
    for verdict in run(&Search { tasks, bound: 2, budget: 1_000, jobs: 2 }) {
        if let Some((schedule, failure)) = &verdict.explored.failure {
            panic!("{}, schedule {schedule}: {failure}", verdict.task);
        }
    }
}

/// The tasks of a scenario under faults, of operations whose name contains this.
fn under_faults(scenario: &'static dyn Scenario, name: &str) -> Vec<(&'static dyn Scenario, Task)> {
    let tasks = Task::under_faults(scenario).into_iter();
    tasks.filter(|task| task.to_string().contains(name)).map(|task| (scenario, task)).collect()
}

/// In each schedule the fault strikes once, at one thing after the other, and the same again.
#[test]
fn a_fault_strikes_once_in_an_order_of_operations() {
    let scenario = *scenarios::all().iter().find(|scenario| scenario.name() == "gicv3").expect("it is one");
    let tasks = under_faults(scenario, "its/move+disable under message-late");
    let verdicts = run(&Search { tasks, bound: 1, budget: 8, jobs: 2 });
    let struck: Vec<_> = verdicts.iter().take_while(|verdict| verdict.explored.struck > 0).collect();
    // Behind the last thing that the fault meets it is tried once more, in both orders alone.
    assert!((2..4).contains(&struck.len()) && verdicts.len() == struck.len() + 1, "{} verdicts", verdicts.len());
    assert_eq!(verdicts[struck.len()].explored.run, [2]);
    let mut calm = verdicts[0].task.clone();
    calm.strike = None;
    let first = |task: &Task| scenario.direct(task, &"ab".parse().expect("a schedule"), 0).expect("valid knobs");
    let calm = first(&calm).digest;
    let mut before = None;
    for (number, verdict) in (1..).zip(struck) {
        assert_eq!(verdict.task.to_string(), format!("its/move+disable under message-late:{number}"));
        assert_eq!((&verdict.explored.failure, verdict.explored.run.as_slice()), (&None, &[2, 6][..]));
        let [run, again] = [0, 1].map(|_| first(&verdict.task));
        assert_eq!(run.struck.len(), 1);
        assert!(before < run.struck.first().copied(), "{before:?} {:?}", run.struck);
        assert!(run.digest == again.digest && run.digest != calm);
        before = run.struck.first().copied();
    }
}

#[test]
fn orders_under_a_fault_pass() {
    let all = || scenarios::all().iter().flat_map(|&scenario| under_faults(scenario, ""));
    let result = |jobs| {
        let verdicts = run(&Search { tasks: all().step_by(401).collect(), bound: 0, budget: 2, jobs });
        verdicts.into_iter().map(|verdict| (verdict.task.to_string(), verdict.explored)).collect::<Vec<_>>()
    };
    let one = result(1);
    assert!(one.iter().all(|(_, explored)| explored.failure.is_none()), "{one:?}");
    assert!(one.iter().filter(|(_, explored)| explored.struck > 0).count() > 50, "{} verdicts", one.len());
    assert_eq!(one, result(3));
}

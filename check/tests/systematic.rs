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

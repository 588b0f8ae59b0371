//! The enumeration of single faults: its promises, and a sample of it.

use campanile_check::run::Scenario;
use campanile_check::scenarios;
use campanile_check::single::{Case, When, explore};
use machine::time::Ps;

fn cases() -> impl Iterator<Item = (&'static dyn Scenario, Case)> {
    scenarios::all().iter().flat_map(|&scenario| scenario.singles().into_iter().map(move |case| (scenario, case)))
}

/// Each fault acts on some machine, at a sample of its positions, and nothing breaks.
#[test]
fn every_fault_acts_and_passes_at_its_first_positions() {
    let mut idle: Vec<String> = Vec::new();
    let mut acting: Vec<String> = Vec::new();
    for (scenario, case) in cases() {
        let verdict = explore(scenario, &case, 4).expect("valid knobs");
        if let Some((position, failure)) = verdict.failure {
            panic!("{} {case}, position {position}: {failure}", scenario.name());
        }
        let (_, fault) = case.name.split_once('/').expect("machine and fault");
        let name = format!("{} {fault}", scenario.name());
        if verdict.acted > 0 { acting.push(name) } else { idle.push(name) }
    }
    idle.retain(|name| !acting.contains(name));
    let idle: std::collections::BTreeSet<_> = idle.iter().map(String::as_str).collect();
    let known = [
        // It has no ITS, and its driver no memory for devices.
        "gicv2 no-memory",
        "gicv2 set-up-refused",
        "gicv2 set-up-without-memory",
        "gicv2 stalled-its",
        "gicv2 stalled-its-twice",
        // The controllers of the small machine with NICs find no reason to change a level.
        "moderation nic-level-refused",
        "moderation nic-level-rounded",
        // A move changes the remapping entry, and leaves the message as it was.
        "pc-posted message-stale",
        "pc-remapped message-stale",
    ];
    assert_eq!(idle, known.into(), "they never act");
}

/// Up to its position the history is that without the fault, the fault strikes once, and the same again.
#[test]
fn a_fault_strikes_at_its_position() {
    let (scenario, case) = cases().find(|(_, case)| case.name == "its/message-late").expect("it is one");
    let single = |when| scenario.single(&case, when, 0).expect("valid knobs");
    let calm = single(When::Never);
    assert!(calm.failure.is_none() && calm.faults.is_empty() && calm.struck.is_empty());
    let first = single(When::From(Ps(1))).struck[0];
    let second = single(When::From(first + Ps(1))).struck[0];
    assert!(first < second);
    let [struck, again] = [(); 2].map(|()| single(When::During(first + Ps(1), second + Ps(1))));
    assert_eq!(struck.struck, [second]);
    assert_eq!(struck.digest, again.digest);
    assert_ne!(struck.digest, calm.digest, "the message came late");
}

/// A fault whose machine has nothing that it could meet has no position: a wire that sticks, on a machine of messages.
#[test]
fn a_fault_that_cannot_act_has_no_position() {
    let (scenario, case) = cases().find(|(_, case)| case.name == "its/level-stuck").expect("it is one");
    let verdict = explore(scenario, &case, 10).expect("valid knobs");
    assert_eq!((verdict.positions, verdict.acted, verdict.cut), (0, 0, false));
}

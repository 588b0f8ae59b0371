//! The enumeration of single faults: its promises, and a sample of it.

use campanile_check::run::Scenario;
use campanile_check::scenarios;
use campanile_check::single::{Case, explore};
use machine::time::Ps;

fn cases() -> impl Iterator<Item = (&'static dyn Scenario, Case)> {
    scenarios::all().iter().flat_map(|&scenario| scenario.singles().into_iter().map(move |case| (scenario, case)))
}

#[test]
fn every_fault_passes_at_a_sample_of_its_positions() {
    let mut positions = 0;
    for (scenario, case) in cases() {
        let verdict = explore(scenario, &case, 4).expect("valid knobs");
        if let Some((position, failure)) = verdict.failure {
            panic!("{} {case}, position {position}: {failure}", scenario.name());
        }
        assert_eq!(verdict.run, verdict.positions.min(4));
        positions += verdict.positions;
    }
    assert!(positions > 3_000, "{positions} positions");
}

/// Up to its position the history is that without the fault, the fault strikes once, and the same again.
#[test]
fn a_fault_strikes_at_its_position() {
    let (scenario, case) = cases().find(|(_, case)| case.name == "its/message-late").expect("it is one");
    let single = |lasts| scenario.single(&case, lasts, 0).expect("valid knobs");
    let calm = single(None);
    assert!(calm.failure.is_none() && calm.faults.is_empty());
    let at = calm.occasions[7];
    let window = Some((calm.occasions[6] + Ps(1), at + Ps(1)));
    let [struck, again] = [single(window), single(window)];
    assert_eq!(struck.occasions[..7], calm.occasions[..7]);
    assert_ne!(struck.occasions[7..], calm.occasions[7..], "the message came late");
    assert_eq!(struck.faults.values().copied().collect::<Vec<_>>(), [1]);
    assert_eq!(struck.digest, again.digest);
    assert_ne!(struck.digest, calm.digest);
}

//! A few histories of each scenario, and the promises that hold for any of them.

use campanile_check::history::Recipe;
use campanile_check::run::{Run, Scenario};
use campanile_check::scenarios;

fn run(scenario: &dyn Scenario, recipe: &Recipe) -> Run {
    scenario.run(recipe).expect("nothing is set wrongly")
}

#[test]
fn histories_pass() {
    for &scenario in scenarios::all() {
        for seed in 1..=40 {
            let run = run(scenario, &Recipe { faults: Some([].into()), ..Recipe::of(seed) });
            if let Some(failure) = run.failure {
                panic!("{} {seed:#x}\n{}{}{failure}", scenario.name(), run.history, run.state);
            }
        }
    }
}

/// A line storms on a CPU without a tick, and is let in again when its time is over.
#[test]
fn a_throttled_line_comes_back_without_a_tick() {
    let virtio = scenarios::all().iter().find(|scenario| scenario.name() == "virtio").expect("a scenario");
    let run = run(*virtio, &Recipe::of(0x6_60db_6c2a_c701));
    assert!(run.failure.is_none(), "{}{}{}", run.history, run.state, run.failure.expect("looked at"));
}

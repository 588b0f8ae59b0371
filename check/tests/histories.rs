//! A few histories of each scenario, and what is promised of any of them.

use campanile_check::history::Recipe;
use campanile_check::run::{Run, Scenario};
use campanile_check::scenarios;

fn run(scenario: &dyn Scenario, recipe: &Recipe) -> Run {
    scenario.run(recipe).expect("nothing is set wrongly")
}

/// A GIC's interrupt that was nobody's was disabled after its next line had enabled it, which was never heard again.
#[test]
fn what_ends_a_stray_leaves_the_next_line_enabled() {
    let gicv2 = scenarios::all().iter().find(|scenario| scenario.name() == "gicv2").expect("a scenario");
    assert!(run(*gicv2, &Recipe::of(0x254a_0e6f_bdc8)).failure.is_none());
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

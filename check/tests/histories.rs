//! A few histories of each scenario, and what is promised of any of them.

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

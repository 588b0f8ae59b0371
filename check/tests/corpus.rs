//! The histories of `check/corpus`: the least that reached all that a guided search reached.

use campanile_check::guided::parse;
use campanile_check::scenarios;
use std::path::Path;

#[test]
fn each_history_of_the_corpus_runs_and_passes() {
    for &scenario in scenarios::all() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("corpus/{}.txt", scenario.name()));
        let text = std::fs::read_to_string(&path).expect("each scenario has one");
        let recipes = parse(&text, scenario).expect("a line of options each");
        assert!(recipes.len() >= 20, "{}: {}", scenario.name(), recipes.len());
        for recipe in recipes {
            let run = scenario.run(&recipe).expect("nothing is set wrongly");
            if let Some(failure) = run.failure {
                panic!("{} {recipe}\n{}{}{failure}", scenario.name(), run.history, run.state);
            }
        }
    }
}

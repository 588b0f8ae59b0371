//! `campanile check --replay`: one history again.

use super::{CheckArgs, CheckError, show};
use crate::history::Recipe;
use crate::report;
use crate::run::{Run, Scenario};
use crate::shrink;
use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;

pub(super) fn replay(args: &CheckArgs, scenarios: &[&'static dyn Scenario], recipe: Recipe) -> Result<u8, CheckError> {
    let [scenario] = scenarios else {
        return Err(CheckError::Input("--replay: needs one --scenario".into()));
    };
    let run = scenario.run(&recipe).map_err(|error| CheckError::Input(error.to_string()))?;
    match run.failure {
        Some(failure) => {
            let shortest = if args.shrink {
                shrink::shrink(*scenario, &recipe, &failure, &AtomicBool::new(false))
            } else {
                recipe
            };
            show(args, *scenario, &shortest)?;
            Ok(failure.kind.exit_code())
        }
        None => {
            refuse_unknown_events(*scenario, &recipe, &run)?;
            report::say(format_args!("\n{}", report::history(*scenario, &recipe, &run)));
            report::say(format_args!(
                "passed: {} I/Os, {} interrupts, digest {:#018x}",
                run.ios, run.interrupts, run.digest
            ));
            Ok(0)
        }
    }
}

/// Refuses `--keep` with a number that names no event: such a history passes because it does less than was asked for.
fn refuse_unknown_events(scenario: &dyn Scenario, recipe: &Recipe, run: &Run) -> Result<(), CheckError> {
    let kept: BTreeSet<u32> = run.history.events.iter().map(|event| event.number).collect();
    let mut asked = recipe.keep.iter().flatten();
    let Some(unknown) = asked.find(|number| !kept.contains(number)) else { return Ok(()) };
    let whole = Recipe { keep: None, ..recipe.clone() };
    let whole = scenario.run(&whole).map_err(|error| CheckError::Input(error.to_string()))?;
    let numbers = || whole.history.events.iter().map(|event| event.number);
    let valid = match (numbers().min(), numbers().max()) {
        (Some(first), Some(last)) => format!("are events {first} to {last}, or none"),
        _ => "is none: it has no events".to_owned(),
    };
    Err(CheckError::Input(format!("--keep {unknown}: the history has no such event; valid {valid}")))
}

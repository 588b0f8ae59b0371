//! Every published row gets a figure from its scenario. A quantity or a variant with a wrong name would lose a row.

use lab::interrupt::StopFlag;
use lab::{published, reproduce};

#[test]
fn every_row_has_a_figure() {
    let rows = published::rows().expect("the carried rows");
    let mut plans = reproduce::plans(&rows).expect("the carried scenarios");
    for plan in plans.values_mut() {
        // Long enough for a first figure of each quantity. Other tests check the figures.
        plan.seeds.truncate(1);
        plan.spans.ramp_ns = plan.spans.ramp_ns.min(300_000);
        plan.spans.measured_ns = plan.spans.measured_ns.min(1_000_000);
    }
    let outcomes = reproduce::run_plans(&plans, &rows, &StopFlag::default()).complete().expect("every run ends");
    let compared = reproduce::compare(&rows, &outcomes);
    let answered: Vec<&str> = compared.iter().map(|row| row.id.as_str()).collect();
    let asked: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
    assert_eq!(answered, asked);
    assert!(compared.iter().all(|row| row.value.is_finite()));
}

//! The claim of README and docs/reproduction.md: with the current constants, every fitted row comes out within 2 %.

use lab::interrupt::StopFlag;
use lab::published::{self, Usage};
use lab::reproduce;

#[test]
fn every_fitted_row_is_within_two_per_cent() {
    let rows: Vec<_> =
        published::rows().expect("the carried file").into_iter().filter(|row| row.usage == Usage::Fit).collect();
    let plans = reproduce::plans(&rows).expect("the carried scenarios");
    let outcomes = reproduce::run_plans(&plans, &rows, &StopFlag::default()).complete().expect("every run ends");
    let compared = reproduce::compare(&rows, &outcomes);
    assert_eq!(compared.len(), rows.len(), "every row has a figure");
    for row in compared {
        let error = row.error_percent.expect("a fitted row has a published value");
        assert!(error.abs() < 2.0, "{}: {} against {:?}, {error:+.1} %", row.id, row.value, row.published);
    }
}

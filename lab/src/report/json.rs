//! The `--json` files.

use serde_json::Result;

use super::{Row, RunReport};

/// Everything of a run: the report's fields, its summaries and every outcome.
///
/// # Errors
/// None of a report that this crate made; serde's, otherwise.
pub fn run(report: &RunReport) -> Result<String> {
    serde_json::to_string_pretty(report).map(|text| text + "\n")
}

/// One array of rows, an element for each published id.
///
/// # Errors
/// None of rows that this crate made; serde's, otherwise.
pub fn reproduce(rows: &[Row]) -> Result<String> {
    serde_json::to_string_pretty(rows).map(|text| text + "\n")
}

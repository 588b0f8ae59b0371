//! The `--json` files.

use serde_json::Result;

use super::{Row, RunReport};

/// Everything of a run: the report's fields, its summaries and every outcome.
///
/// # Errors
/// serde's errors. A report of this crate causes none.
pub fn run(report: &RunReport) -> Result<String> {
    serde_json::to_string_pretty(report).map(|text| text + "\n")
}

/// One array of rows, an element for each published id.
///
/// # Errors
/// serde's errors. Rows of this crate cause none.
pub fn reproduce(rows: &[Row]) -> Result<String> {
    serde_json::to_string_pretty(rows).map(|text| text + "\n")
}

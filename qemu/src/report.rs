//! The counts as a table for people and as JSON for programs.

use comfy_table::{CellAlignment, LineStyle, Table, presets};
use serde::Serialize;
use std::fmt::Write;

/// A counted quantity.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Row {
    /// The case and its machine.
    pub case: String,
    /// The counted quantity.
    pub quantity: String,
    /// Its value.
    pub value: f64,
    /// Linux's value, measured in the same run. None if Linux has no such value.
    pub peer_value: Option<f64>,
    /// True if the value is the required one.
    pub pass: bool,
    /// How the system delivers messages, and the reason where it cannot deliver them as wished. The first row of a
    /// run has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// A note about a failure that needs words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The rows as a table. Each case is named once, and the policies and notes stand below the table.
pub fn table(rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none()));
    table.set_header(["case", "quantity", "counted", "Linux", ""]);
    let mut last = "";
    for row in rows {
        let case = if row.case == last { "" } else { &row.case };
        let verdict = if row.pass { "" } else { "FAIL" };
        table.add_row([
            case,
            &row.quantity,
            &figure(row.value),
            &row.peer_value.map_or_else(String::new, figure),
            verdict,
        ]);
        last = &row.case;
    }
    for index in [2, 3] {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut text: String = table.to_string().lines().map(|line| format!("{}\n", line.trim_end())).collect();
    for row in rows {
        for line in row.policy.iter().chain(&row.note) {
            let _ = writeln!(text, "{}: {line}", row.case);
        }
    }
    // Once more behind the long table: a log may keep its end alone.
    let failed: Vec<_> = rows.iter().filter(|row| !row.pass).collect();
    for Row { case, quantity, value, peer_value, .. } in &failed {
        let peer = peer_value.map_or_else(String::new, |peer| format!(", Linux's {}", figure(peer)));
        let _ = writeln!(text, "wrong: {case}: {quantity} {}{peer}", figure(*value));
    }
    let failed = failed.len();
    let _ =
        writeln!(text, "{} figures, {failed} of them wrong; all counted under QEMU, none of them times.", rows.len());
    text
}

/// Whole numbers are printed without decimals.
pub(crate) fn figure(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}

/// The rows as a JSON array.
///
/// # Panics
/// Never: rows are plain data.
pub fn json(rows: &[Row]) -> String {
    serde_json::to_string_pretty(rows).expect("rows are plain data") + "\n"
}

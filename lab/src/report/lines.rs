//! The output of `campanile irqs`: a block of rows for each line, with a row for each level from the device to the
//! CPU.

use irq::LineView;
use serde_json::{Value, json};

const HEADER: [&str; 12] = [
    "irq",
    "handlers",
    "flow",
    "domain",
    "chip",
    "hwirq",
    "masked",
    "pending",
    "flags",
    "affinity",
    "delivered to",
    "count",
];
/// Columns of numbers, aligned to the right.
const NUMBERS: [usize; 3] = [0, 5, 11];

/// Every line as a table. Facts about the whole line stand in its first row; `-` means nothing.
pub fn table(views: &[LineView]) -> String {
    let mut rows = vec![HEADER.map(String::from)];
    rows.extend(views.iter().flat_map(rows_of));
    let widths: Vec<usize> =
        (0..HEADER.len()).map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)).collect();
    let mut text: String = rows.iter().map(|row| aligned(row, &widths)).collect();
    let unhandled: u64 = views.iter().map(|view| view.unhandled).sum();
    let unexpected: u64 = views.iter().map(|view| view.unexpected).sum();
    let lines = views.len();
    text += &format!("{lines} lines; {unhandled} interrupts were unhandled, {unexpected} came without a handler.\n");
    text
}

fn aligned(row: &[String; 12], widths: &[usize]) -> String {
    let cell = |(column, text): (usize, &String)| {
        let width = widths[column];
        if NUMBERS.contains(&column) { format!("{text:>width$}") } else { format!("{text:width$}") }
    };
    let cells: Vec<String> = row.iter().enumerate().map(cell).collect();
    format!("{}\n", cells.join("  ").trim_end())
}

fn rows_of(view: &LineView) -> Vec<[String; 12]> {
    let yes = |set: bool| if set { "yes" } else { "no" }.to_owned();
    let or_none = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    let mut rows: Vec<[String; 12]> = Vec::new();
    for level in &view.levels {
        let mut row: [String; 12] = Default::default();
        row[3] = level.domain.clone();
        row[4] = level.chip.into();
        row[5] = format!("{:#x}", level.hwirq.0);
        rows.push(row);
    }
    if rows.is_empty() {
        rows.push(Default::default());
    }
    let first = &mut rows[0];
    first[0] = view.irq.to_string();
    first[1] = or_none(view.handlers.join(","));
    first[2] = view.flow.to_string();
    first[6] = yes(view.masked);
    first[7] = yes(view.pending);
    first[8] = or_none(flags(view).join(","));
    first[9] = view.affinity.to_string();
    first[10] = view.effective.map_or("-".into(), |to| to.to_string());
    first[11] = view.count.to_string();
    rows
}

/// Further properties of a line.
fn flags(view: &LineView) -> Vec<String> {
    let named = [
        (view.shared, "shared"),
        (view.managed, "managed"),
        (view.shutdown, "shut-down"),
        (view.in_progress, "in-progress"),
        (view.active, "active"),
        (view.flow_masked, "flow-masked"),
        (view.oneshot, "oneshot"),
        (view.nmi, "nmi"),
        (view.move_wanted, "move-wanted"),
        (view.throttled_until_ns.is_some(), "throttled"),
        (!view.retired.is_empty(), "leaving"),
    ];
    let mut flags: Vec<String> = named.into_iter().filter(|(set, _)| *set).map(|(_, name)| name.into()).collect();
    if view.threads > 0 {
        flags.push(format!("threads:{}/{}", view.threads_working, view.threads));
    }
    if view.disabled_depth > 0 {
        flags.push(format!("disabled:{}", view.disabled_depth));
    }
    flags
}

/// Every line, for scripts.
pub fn json(views: &[LineView]) -> String {
    let target = |to: &irq::Target| json!({"cpu": to.cpu.0, "vector": to.identity.map(|identity| identity.0)});
    let line = |view: &LineView| -> Value {
        let levels: Vec<Value> = view
            .levels
            .iter()
            .map(|level| json!({"domain": level.domain, "chip": level.chip, "hwirq": level.hwirq.0}))
            .collect();
        json!({
            "irq": view.irq.0,
            "handlers": view.handlers,
            "flow": view.flow.to_string(),
            "levels": levels,
            "masked": view.masked,
            "pending": view.pending,
            "flags": flags(view),
            "disabled_depth": view.disabled_depth,
            "affinity": view.affinity.iter().map(|cpu| cpu.0).collect::<Vec<_>>(),
            "effective": view.effective.as_ref().map(target),
            "retired": view.retired.iter().map(target).collect::<Vec<_>>(),
            "throttled_until_ns": view.throttled_until_ns,
            "storms": view.storms,
            "count": view.count,
            "unhandled": view.unhandled,
            "unexpected": view.unexpected,
        })
    };
    let lines: Vec<Value> = views.iter().map(line).collect();
    format!("{:#}\n", Value::Array(lines))
}

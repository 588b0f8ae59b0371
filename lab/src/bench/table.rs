//! The figures as a table, with the requested ratios and bounds.

use super::{Measurement, demux};
use comfy_table::{CellAlignment, LineStyle, Table, presets};
use std::fmt::Write;

/// A demand on one figure, or on its ratio to another.
struct Target {
    figure: String,
    over: Option<String>,
    /// At most this, or at least.
    bound: Bound,
}

#[derive(Clone, Copy)]
enum Bound {
    Most(f64),
    Least(f64),
}

impl Bound {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::Most(most) => value <= most,
            Self::Least(least) => value >= least,
        }
    }
}

fn targets() -> Vec<Target> {
    let target = |figure: &str, over: Option<&str>, bound| Target {
        figure: figure.into(),
        over: over.map(str::to_owned),
        bound,
    };
    let mut targets = vec![
        target("engine_64x64", Some("engine_baseline_64x64"), Bound::Most(0.65)),
        target("engine_1024x64", Some("engine_baseline_1024x64"), Bound::Most(0.4)),
        target("server_posted_4_drives", None, Bound::Least(700_000.0)),
        target("server_posted_switches_per_io", None, Bound::Most(8.0)),
    ];
    for pending in demux::PENDING {
        let minimal = format!("demux_minimal_{pending}");
        targets.push(target(&format!("demux_{pending}"), Some(&minimal), Bound::Most(1.3)));
    }
    targets
}

/// Every figure with its range, and the requested ratios and bounds.
pub fn table(figures: &[Measurement]) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none()));
    table.set_header(["measured on this machine", "unit", "median", "min", "max", "runs", "ratio", "asked for"]);
    let targets = targets();
    let find = |name: &str| figures.iter().find(|figure| figure.name == name);
    for figure in figures {
        let mut row = vec![
            figure.name.clone(),
            figure.unit.into(),
            number(figure.value),
            number(figure.min),
            number(figure.max),
            figure.runs.to_string(),
        ];
        if let Some(target) = targets.iter().find(|target| target.figure == figure.name) {
            let over = target.over.as_deref().map(find);
            let (value, ratio) = match over {
                Some(Some(other)) => (Some(figure.value / other.value), format!("{:.2}", figure.value / other.value)),
                Some(None) => (None, String::new()),
                None => (Some(figure.value), String::new()),
            };
            row.push(ratio);
            row.push(value.map_or(String::new(), |value| verdict(target.bound, value)));
        }
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut text = format!("{table}\n");
    text = text.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    writeln!(text, "Ratios: the engine to the baseline, the notification handler to the minimal loop, of medians.")
        .expect("a String takes all");
    text
}

fn verdict(bound: Bound, value: f64) -> String {
    let missed = if bound.holds(value) { "" } else { ", missed" };
    match bound {
        Bound::Most(most) => format!("≤ {}{missed}", number(most)),
        Bound::Least(least) => format!("≥ {}{missed}", number(least)),
    }
}

fn number(value: f64) -> String {
    if value >= 10_000.0 {
        format!("{:.0} k", value / 1000.0)
    } else if value >= 100.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(name: &str, value: f64) -> Measurement {
        Measurement { name: name.into(), value, unit: "ns", runs: 1, min: value, max: value }
    }

    #[test]
    fn a_ratio_stands_beside_what_was_asked_for() {
        let figures = [figure("demux_4", 14.0), figure("demux_minimal_4", 10.0), figure("server_posted_4_drives", 8e5)];
        let text = table(&figures);
        let line = |name: &str| text.lines().find(|line| line.contains(name)).expect("a row a figure").to_owned();
        assert!(line("demux_4").contains("1.40") && line("demux_4").ends_with("≤ 1.30, missed"), "{text}");
        assert!(line("server_posted").ends_with("≥ 700 k"), "{text}");
    }
}

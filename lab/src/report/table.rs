//! The terminal's tables, within [`WIDTH`] columns.

use std::fmt::Write;

use comfy_table::{
    Cell, CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, Table, TableStyle, Width, presets,
};

use super::study::Study;
use super::{Class, Interval, Row, RunReport, figure};
use crate::kinds::State;
use crate::outcome::{Fault, Summary};

/// Columns that every table keeps within, with up to three variants.
pub const WIDTH: u16 = 100;
/// The width of tables whose rows have the interval that the fitted rows leave.
const CARRIED_WIDTH: u16 = 120;
/// The first column of figures in a table of published rows.
const FIRST_FIGURE: usize = 4;
/// The width of a variant's column when there are more variants; their changes are then left out.
const VARIANT_WIDTH: u16 = 19;
/// Most variants for which the changes are shown.
const COMPARED_MAX: usize = 3;

/// Three lines across and no others: rows of a block belong together.
const LINES: TableStyle = presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none());

/// A platform, the number of its free constants, and the number of rows to fit them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreeConstants {
    /// The platform's name.
    pub platform: String,
    /// Its free constants.
    pub count: usize,
    /// Its rows to fit, including those that were not requested.
    pub fitted: usize,
}

/// The output of `campanile run`: the table, the faults, the published figures, and the origin of the figures.
pub fn run(report: &RunReport) -> String {
    let summary = |report: &RunReport| trimmed(&summary_table(report));
    run_with(report, summary, |rows| trimmed(&row_table(rows.iter().copied())))
}

/// The same, with tables of figures and of published rows in a form of their own.
pub(super) fn run_with(
    report: &RunReport,
    summary_table: impl Fn(&RunReport) -> String,
    row_table: impl Fn(&[&Row]) -> String,
) -> String {
    let mut text = format!("{}\n", report.scenario);
    if report.interrupted {
        text += "INTERRUPTED: the figures cover only the completed runs.\n";
    }
    for summary in report.summaries.iter().filter(|s| s.estimate("errors").is_some_and(|e| e.mean > 0.0)) {
        writeln!(text, "WARNING: {} I/Os completed with errors.", summary.delivery).expect("a String takes all");
    }
    let phases = report.phases();
    for phase in &phases {
        let span_ns = phase.summaries.iter().map(|summary| summary.span_ns).min().unwrap_or(0);
        writeln!(text, "{}, {}", phase.scenario, figure::duration(span_ns as f64)).expect("a String takes all");
        text += &summary_table(phase);
        text += &phase.unsteady();
        text += &bottlenecks(phase);
    }
    let is_uneven = report.summaries.iter().any(|summary| summary.is_uneven);
    if !phases.is_empty() {
        text += "All phases\n";
    }
    if is_uneven {
        text += UNEVEN;
    }
    text += &summary_table(report);
    text += &report.unsteady();
    if !is_uneven {
        text += &bottlenecks(report);
    }
    for summary in report.summaries.iter() {
        if let Some(policy) = report.policy(&summary.delivery) {
            writeln!(text, "Policy, {}: {policy}.", summary.delivery).expect("a String takes all");
        }
    }
    for note in &report.notes {
        writeln!(text, "{note}").expect("a String takes all");
    }
    let first = report.summaries.first().and_then(|summary| report.first_outcome(&summary.delivery));
    if let Some(columns) = first.and_then(|outcome| outcome.section.measured().columns()) {
        writeln!(text, "{columns}").expect("a String takes all");
    }
    if let Some(first) = first {
        text += &first.section.measured().tables(report);
    }
    let state = |summary: &Summary| report.first_outcome(&summary.delivery)?.section.measured().state();
    let states: Vec<State> = report.summaries.iter().filter_map(state).collect();
    if let Some(first) = states.first() {
        let texts: String = states.iter().map(|state| state.text.as_str()).collect();
        text += &format!("\n{}\n{texts}\n", first.heading);
    }
    if report.summaries.iter().any(|summary| !summary.faults.is_empty()) {
        text += "\nFaults, all seeds together\n";
        text += &trimmed(&fault_table(&report.summaries));
    }
    if !report.published.is_empty() {
        text += "\nBeside the published figures\n";
        text += &row_table(&report.published.iter().collect::<Vec<_>>());
    }
    text + &report.provenance() + "\n" + &report.shortened()
}

/// Above the table of all phases that are shortened by different factors.
const UNEVEN: &str = "Shortened by different factors: rates over the time that the phases stand for; other quantities are of each phase.\n";

/// A line for each variant.
fn bottlenecks(report: &RunReport) -> String {
    let line = |summary: &Summary| format!("Bottleneck, {}: {}.\n", summary.delivery, summary.bottleneck);
    report.summaries.iter().map(line).collect()
}

/// The output of `campanile reproduce`. Each study shows its fitted rows, with the number of free constants of each
/// platform, and its predictions. One line on all rows ends the output.
pub fn reproduce(rows: &[Row], free: &[FreeConstants]) -> String {
    let mut text = String::new();
    for study in Study::ALL {
        let own = study.rows(rows);
        if !own.is_empty() {
            writeln!(text, "{}\n", study.title().to_uppercase()).expect("a String takes all");
            text += &system_tables(&own, free);
        }
    }
    text + &closing_line(rows) + "\n"
}

fn system_tables(rows: &[&Row], free: &[FreeConstants]) -> String {
    let mut text = String::new();
    for (class, title) in Class::TITLES {
        let of_class: Vec<&Row> = rows.iter().copied().filter(|row| row.class == class).collect();
        if of_class.is_empty() {
            continue;
        }
        writeln!(text, "{title}").expect("a String takes all");
        text += &trimmed(&row_table(of_class.iter().copied()));
        if class == Class::Fitted {
            text += &free_constants(&of_class, free);
        }
        text.push('\n');
    }
    text
}

/// A line for each platform of the fitted rows.
pub(super) fn free_constants(fitted: &[&Row], free: &[FreeConstants]) -> String {
    let line = |FreeConstants { platform, count, fitted: rows }: &FreeConstants| {
        let shown = fitted.iter().any(|row| row.platform == *platform);
        shown.then(|| format!("{platform}: free constants {count}, fitted rows {rows}.\n"))
    };
    free.iter().filter_map(line).collect()
}

/// `Fitted rows: 12, greatest error +1.8 % (H3).`, and the same of predictions.
pub(super) fn closing_line(rows: &[Row]) -> String {
    let worst = |class| {
        let of_class = rows.iter().filter(move |row| row.class == class && row.error_percent.is_some());
        let of_class: Vec<&Row> = of_class.collect();
        let size = |row: &&&Row| row.error_percent.map_or(0.0, f64::abs);
        let text = match of_class.iter().max_by(|a, b| size(a).total_cmp(&size(b))) {
            Some(row) => format!("greatest error {} ({})", error(row), row.id),
            None => "no error to state".into(),
        };
        (of_class.len(), text)
    };
    let count = |class| rows.iter().filter(|row| row.class == class).count();
    let (_, fitted) = worst(Class::Fitted);
    let (compared, predicted) = worst(Class::Predicted);
    let others = [(Class::Informed, "Informed rows"), (Class::Derived, "Derived rows")];
    let others = others.into_iter().filter(|(class, _)| count(*class) > 0);
    let others: String = others.map(|(class, title)| format!("\n{title}: {}.", count(class))).collect();
    let yours = [(Class::YoursFitted, "Rows of yours, fitted"), (Class::Yours, "Other rows of yours")];
    let yours = yours.into_iter().filter(|(class, _)| count(*class) > 0);
    let yours: Vec<String> =
        yours.map(|(class, title)| format!("{title}: {}, {}.", count(class), worst(class).1)).collect();
    if !yours.is_empty() {
        return yours.join("\n");
    }
    format!(
        "Fitted rows: {}, {fitted}.\nPredictions: {}, of which {compared} with a published value, {predicted}.{others}",
        count(Class::Fitted),
        count(Class::Predicted),
    )
}

fn summary_table(report: &RunReport) -> Table {
    let Some((first, others)) = report.summaries.split_first() else { return table(&["nothing was run"]) };
    let is_compared = report.summaries.len() <= COMPARED_MAX;
    let others = if is_compared { others } else { &[] };
    let mut header = vec![String::new()];
    header.extend(report.summaries.iter().map(|s| s.delivery.clone()));
    header.extend(others.iter().map(|s| match others.len() {
        1 => format!("{} against {}", s.delivery, first.delivery),
        _ => format!("{} change", s.delivery),
    }));
    let mut table = table(&header);
    let mut heading = None;
    for (at, quantity) in report.quantities().iter().enumerate() {
        let estimates: Vec<_> = report.summaries.iter().map(|s| s.figures[at].estimate).collect();
        if estimates.iter().flatten().all(|e| e.mean == 0.0) {
            continue;
        }
        if heading.replace(quantity.heading) != Some(quantity.heading) {
            table.add_row([quantity.heading]);
        }
        let mut row = vec![Cell::new(format!("  {}", quantity.label))];
        row.extend(estimates.iter().map(|&e| right(figure::estimate(quantity.unit, e))));
        let change = |&now| right(figure::change(quantity.unit, estimates[0], now).unwrap_or("–".into()));
        row.extend(estimates[1..].iter().map(change).take(others.len()));
        table.add_row(row);
    }
    if !is_compared {
        table.set_width(WIDTH.max(34 + VARIANT_WIDTH * report.summaries.len() as u16));
    }
    table
}

fn fault_table(summaries: &[Summary]) -> Table {
    let mut table = table(&["delivery", "kind", "requester", "count", "what happened"]);
    for summary in summaries {
        for fault in &summary.faults {
            let Fault { kind, count, text, .. } = fault;
            let cells = [&summary.delivery, kind, &fault.requester_name()].map(Cell::new);
            table.add_row(cells.into_iter().chain([right(count), Cell::new(text)]));
        }
    }
    table
}

/// The formulas of derived rows take the place of their variants.
fn row_table<'a>(rows: impl Iterator<Item = &'a Row> + Clone) -> Table {
    let origin = if rows.clone().all(|row| row.from.is_some()) { "from" } else { "delivery" };
    let carried = rows.clone().any(|row| row.interval.is_some());
    let last = if carried { &["least", "greatest"][..] } else { &["class"] };
    let header = ["id", "platform", origin, "quantity, unit", "here", "±", "published", "error"];
    let mut table = table(&[&header, last].concat());
    for row in rows {
        let unit = row.unit.split(" (").next().unwrap_or(&row.unit);
        let class = Cell::new(row.class.name().trim_start_matches("simulated, "));
        let end = |of: fn(&Interval) -> f64| {
            right(row.interval.as_ref().map_or("–".into(), |interval| figure::plain_beside(row.value, of(interval))))
        };
        let last = if carried { vec![end(|range| range.low), end(|range| range.high)] } else { vec![class] };
        let cells = [
            Cell::new(&row.id),
            Cell::new(&row.platform),
            Cell::new(row.from.as_ref().unwrap_or(&row.delivery)),
            Cell::new(format!("{}, {unit}", row.quantity)),
            right(figure::plain(row.value)),
            right(row.ci95.map_or("–".into(), |half| figure::plain_beside(row.value, half))),
            right(row.published.map_or("–".into(), figure::plain)),
            right(error(row)),
        ];
        table.add_row(cells.into_iter().chain(last));
    }
    if carried {
        table.set_width(CARRIED_WIDTH);
    }
    // A figure is never cut in two: the words before it take what is left.
    for column in table.column_iter_mut().skip(FIRST_FIGURE) {
        column.set_constraint(ColumnConstraint::ContentWidth);
    }
    table
}

/// The error with its sign: `+1.2 %`, of a share `-0.4 pt`, `–` of none.
pub(super) fn error(row: &Row) -> String {
    let unit = if row.is_share() { "pt" } else { "%" };
    row.error_percent.map_or("–".into(), |error| format!("{} {unit}", figure::signed(error)))
}

/// A table of plain cells under a heading; the first `texts` columns are texts, the others figures.
pub(crate) fn plain(heading: &str, header: &[&str], texts: usize, rows: &[Vec<String>]) -> String {
    let mut table = table(header);
    for row in rows {
        let cell = |(at, text): (usize, &String)| if at < texts { Cell::new(text) } else { right(text) };
        table.add_row(row.iter().enumerate().map(cell));
    }
    format!("\n{heading}\n{}", trimmed(&table))
}

fn right(content: impl ToString) -> Cell {
    Cell::new(content).set_alignment(CellAlignment::Right)
}

fn table(header: &[impl ToString]) -> Table {
    let mut table = Table::new();
    table.load_style(LINES).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(WIDTH).set_header(header.iter().map(ToString::to_string));
    for column in table.column_iter_mut() {
        column.set_padding((0, 1));
    }
    if let Some(first) = table.column_mut(0) {
        first.set_constraint(ColumnConstraint::UpperBoundary(Width::Fixed(30)));
    }
    table
}

/// The table with no blanks at line ends, so that it can be committed.
fn trimmed(table: &Table) -> String {
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

//! The page of a sweep: small multiples of its main quantities, its errors, and its manifest.

use super::columns::{self, AxisColumn};
use super::results::Results;
use crate::outcome::Unit;
use crate::report::figure::{self, are, counted};
use crate::report::html;
use crate::report::plots::{self, Axes, Series, escape};
use std::collections::{BTreeMap, BTreeSet};

/// Most plots of one quantity. More settings than this are not read as pictures; the table has them.
const PLOTS_MAX: usize = 24;
/// Most data that the page holds; larger ones are only beside it.
const DATA_BYTES_MAX: usize = 4_000_000;
/// Most errors that are listed.
const ERRORS_MAX: usize = 20;

/// One plot: the values of the keys that are neither its axis nor its lines.
type Facet = String;
/// (sum, count) at each place of the horizontal axis, by line.
type Lines = BTreeMap<String, BTreeMap<u64, (f64, u32)>>;

/// The whole page.
pub(super) fn page(results: &Results) -> String {
    let grid = results.grid();
    let mut body = format!(
        "<header><h1>Sweep</h1>\n<p>{}</p>\n<p>{} of {}; {}.</p></header>\n",
        escape(&grid.definition.about),
        counted(grid.runs(), "run"),
        counted(grid.points(), "point"),
        figures_of(grid.definition.seeds.len())
    );
    let axes = columns::axes(grid);
    for (id, unit) in shown(results) {
        body += &html::section(&escape(&id), multiples(results, &axes, &id, unit));
    }
    body += &unsteady(results);
    body += &html::section("Settings that are not possible", errors(results));
    let page = html::document(&format!("Sweep of {}", grid.definition.scenarios.join(", ")), &body);
    let data = results.csv();
    let page =
        if data.len() > DATA_BYTES_MAX { page } else { html::with_data(&page, "results.csv", "text/csv", &data) };
    html::with_manifest(&page, results.manifest())
}

fn figures_of(seeds: usize) -> String {
    if seeds == 1 { "one seed".into() } else { format!("each place is the mean of {seeds} seeds") }
}

/// The quantities that are drawn: the first, the first 99th percentile, and the idle time.
fn shown(results: &Results) -> Vec<(String, Unit)> {
    let Some(record) = results.records.iter().find(|record| !record.values.is_empty()) else { return Vec::new() };
    let first = record.values.first();
    let tail = record.values.iter().find(|(id, ..)| id.ends_with("_p99"));
    let idle = record.values.iter().find(|(id, ..)| id == "cpu_idle");
    let mut ids: Vec<(String, Unit)> = Vec::new();
    for (id, unit, _) in [first, tail, idle].into_iter().flatten() {
        if !ids.iter().any(|(known, _)| known == id) {
            ids.push((id.clone(), unit_of(unit)));
        }
    }
    ids
}

fn unit_of(name: &str) -> Unit {
    match name {
        "1/s" => Unit::PerSecond,
        "B/s" => Unit::BytesPerSecond,
        "%" => Unit::Percent,
        "ns" => Unit::Nanoseconds,
        _ => Unit::Ratio,
    }
}

/// The plots of one quantity, on one vertical scale each: lines are deliveries, the axis is the key with most numbers.
fn multiples(results: &Results, axes: &[AxisColumn], id: &str, unit: Unit) -> String {
    let grid = results.grid();
    let varied =
        |at: usize| results.with_setups().filter_map(|(_, s)| s.values[at].clone()).collect::<BTreeSet<_>>().len();
    let counts: Vec<usize> = (0..axes.len()).map(varied).collect();
    let numeric = (0..axes.len()).filter(|&at| axes[at].is_numeric() && counts[at] > 1);
    let across = numeric.max_by_key(|&at| (counts[at], std::cmp::Reverse(at)));
    let mut facets: BTreeMap<Facet, Lines> = BTreeMap::new();
    let mut order: Vec<Facet> = Vec::new();
    for (record, setup) in results.with_setups() {
        let Some((.., value)) = record.values.iter().find(|(known, ..)| known == id) else { continue };
        let x = across.map_or(Some(0.0), |at| setup.values[at].as_deref().and_then(|text| axes[at].number(text)));
        let Some(x) = x else { continue };
        let mut facet: Vec<String> = Vec::new();
        if grid.definition.scenarios.len() > 1 {
            facet.push(setup.scenario.clone());
        }
        if grid.definition.platforms.len() > 1 {
            facet.extend(setup.platform.clone());
        }
        for at in (0..axes.len()).filter(|&at| Some(at) != across && counts[at] > 1) {
            facet.extend(setup.values[at].as_ref().map(|value| format!("{} = {value}", axes[at].key)));
        }
        let facet = facet.join(", ");
        if !facets.contains_key(&facet) {
            order.push(facet.clone());
        }
        let line = facets.entry(facet).or_default().entry(setup.delivery.clone()).or_default();
        // Positive numbers are in order as their bits are.
        let place = line.entry(x.max(0.0).to_bits()).or_default();
        *place = (place.0 + value, place.1 + 1);
    }
    let label = across.map_or("the only setting".to_owned(), |at| axes[at].label());
    let left_out = order.len().saturating_sub(PLOTS_MAX);
    let mut html: String = order
        .iter()
        .take(PLOTS_MAX)
        .map(|facet| plot(facet, &facets[facet], &grid.deliveries(), (&label, id), unit))
        .collect();
    html = if html.is_empty() { html } else { format!("<div class=\"plots\">\n{html}</div>\n") };
    if left_out > 0 {
        html += &format!("<p>In the table alone: {}.</p>\n", counted(left_out, "other combination"));
    }
    html
}

fn plot(facet: &str, lines: &Lines, deliveries: &[String], (x, y): (&str, &str), unit: Unit) -> String {
    let series: Vec<Series> = deliveries
        .iter()
        .enumerate()
        .filter_map(|(colour, name)| {
            let points = lines.get(name)?.iter().map(|(&x, &(sum, count))| (f64::from_bits(x), sum / f64::from(count)));
            Some(Series { name: name.clone(), points: points.collect(), dashed: false, colour })
        })
        .collect();
    let title = if facet.is_empty() { y } else { facet };
    plots::lines(&Axes { title, x, y, x_tick: |x| html::axis(Unit::PerSecond, x), y_tick: tick(unit) }, &series)
}

fn tick(unit: Unit) -> fn(f64) -> String {
    match unit {
        Unit::PerSecond => |value| figure::value(Unit::PerSecond, value),
        Unit::BytesPerSecond => |value| figure::value(Unit::BytesPerSecond, value),
        Unit::Percent => |value| figure::value(Unit::Percent, value),
        Unit::Nanoseconds => |value| figure::value(Unit::Nanoseconds, value),
        Unit::Ratio => |value| figure::value(Unit::Ratio, value),
    }
}

/// Below the plots: how many points are not steady.
fn unsteady(results: &Results) -> String {
    match results.unsteady() {
        [0, _] => String::new(),
        [unsteady, judged] => {
            let (of, are) = (counted(judged, "point"), are(unsteady));
            format!(
                "<p class=\"warn\">{unsteady} of {of} {are} not steady; the column <code>steadiness</code> of the \
                 table says which, and why.</p>\n"
            )
        }
    }
}

/// Each error once, with the first of its runs.
fn errors(results: &Results) -> String {
    let mut by_text: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for record in &results.records {
        if let Some(error) = &record.error {
            by_text.entry(error).or_insert((record.run, 0)).1 += 1;
        }
    }
    let header = [("runs", true), ("the first", true), ("why", false)].map(|(name, number)| (name.to_owned(), number));
    let row = |(text, (run, count)): (&&str, &(u64, u64))| {
        html::row([(count.to_string(), true), (run.to_string(), true), (escape(text), false)])
    };
    let rows: String = by_text.iter().take(ERRORS_MAX).map(row).collect();
    if rows.is_empty() { rows } else { html::html_table(&header, &rows) }
}

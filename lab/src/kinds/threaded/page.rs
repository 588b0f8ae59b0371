//! The sections that only the page of an experiment on a threaded interrupt has.

use crate::outcome::{Summary, Unit};
use crate::report::RunReport;
use crate::report::html::{axis, section};
use crate::report::plots::{self, Axes, Bar, Series};

/// The sections.
pub(super) fn sections(report: &RunReport) -> String {
    section("Accesses of one cycle to the interrupt controller", accesses(report))
        + &section("Cycles a second, iteration by iteration", iterations(report))
}

/// Each variant's accesses to the distributor, by kind.
fn accesses(report: &RunReport) -> String {
    const KINDS: [(&str, &str, &str); 4] = [
        ("raises", "raise", "drive2"),
        ("masks", "mask", "cpu1"),
        ("rwp_polls", "RWP poll", "cpu2"),
        ("unmasks", "unmask", "drive1"),
    ];
    let bar = |summary: &Summary| {
        let part = |&(id, name, class): &(&str, &str, &str)| {
            let mean = summary.estimate(id)?.mean;
            Some((class.to_owned(), mean, format!("{name}: {mean:.2}")))
        };
        let parts: Vec<_> = KINDS.iter().filter_map(part).collect();
        let total = parts.iter().map(|part| part.2.as_str()).collect::<Vec<_>>().join(", ");
        Bar { name: summary.delivery.clone(), parts, total }
    };
    let bars: Vec<Bar> = report.summaries.iter().map(bar).collect();
    if bars.is_empty() { String::new() } else { plots::bars("Distributor and redistributors", &bars) }
}

/// The rates of each variant's first seed.
fn iterations(report: &RunReport) -> String {
    let series = |(colour, summary): (usize, &Summary)| {
        let rates = &report.first_outcome(&summary.delivery)?.threaded()?.rates;
        let points = (1..).map(f64::from).zip(rates.iter().copied()).collect();
        Some(Series { name: summary.delivery.clone(), points, dashed: false, colour: colour % 4 })
    };
    let series: Vec<Series> = report.summaries.iter().enumerate().filter_map(series).collect();
    let axes = Axes {
        title: "Cycles a second",
        x: "iteration",
        y: "cycles a second",
        x_tick: |x| format!("{x:.0}"),
        y_tick: |y| axis(Unit::PerSecond, y),
    };
    if series.is_empty() {
        String::new()
    } else {
        format!("<div class=\"plots\">\n{}</div>\n", plots::lines(&axes, &series))
    }
}

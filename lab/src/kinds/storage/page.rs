//! The sections that only the page of a storage experiment has.

use super::jobs;
use super::outcome::{Stages, mean_stages};
use crate::outcome::{Summary, Unit};
use crate::report::html::{axis, html_table, row, section};
use crate::report::plots::{self, Axes, Bar, Series};
use crate::report::{RunReport, figure};

/// The sections.
pub(super) fn sections(report: &RunReport) -> String {
    section("Throughput and latency against load", load(report))
        + &section("Where the time of an I/O goes", stages(report))
        + &section("Jobs", jobs::page(report))
}

fn load(report: &RunReport) -> String {
    if report.load.is_empty() {
        return String::new();
    }
    let mut deliveries: Vec<&str> = Vec::new();
    for point in &report.load {
        if !deliveries.contains(&point.delivery.as_str()) {
            deliveries.push(&point.delivery);
        }
    }
    let series = |suffix: &str, dashed, point: fn(&crate::report::LoadPoint) -> (f64, f64)| -> Vec<Series> {
        let of = |(colour, delivery): (usize, &&str)| Series {
            name: format!("{delivery}{suffix}"),
            points: report.load.iter().filter(|p| p.delivery == **delivery).map(point).collect(),
            dashed,
            colour: colour % 4,
        };
        deliveries.iter().enumerate().map(of).collect()
    };
    let throughput = series("", false, |p| (p.in_flight as f64, p.iops));
    let mut latency = series(" mean", false, |p| (p.iops, p.mean_ns));
    latency.extend(series(" p99", true, |p| (p.iops, p.p99_ns)));
    let rate = |x| axis(Unit::PerSecond, x);
    let throughput_axes = Axes {
        title: "Throughput against load",
        x: "I/Os in flight",
        y: "IOPS, all drives together",
        x_tick: |x| x.round().to_string(),
        y_tick: rate,
    };
    let latency_axes = Axes {
        title: "Latency against throughput",
        x: "IOPS, all drives together",
        y: "completion latency",
        x_tick: rate,
        y_tick: |y| axis(Unit::Nanoseconds, y),
    };
    let plots = plots::lines(&throughput_axes, &throughput) + &plots::lines(&latency_axes, &latency);
    format!("<div class=\"plots\">\n{plots}</div>\n")
}

/// Class of each stage: one family of colours for CPU, drive and MSI path.
const STAGE_CLASSES: [&str; 8] = ["cpu1", "cpu2", "drive1", "drive2", "drive3", "msi1", "msi2", "cpu3"];

/// The stages of one variant, averaged over its seeds.
fn stages_of(report: &RunReport, summary: &Summary) -> Stages {
    mean_stages(&report.outcomes_of(&summary.delivery)).unwrap_or_default()
}

fn stages(report: &RunReport) -> String {
    let bar = |summary: &Summary| {
        let named = stages_of(report, summary).named();
        let part = |(class, (name, ns)): (&&str, &(&str, f64))| {
            ((*class).into(), *ns, format!("{name}: {}", figure::value(Unit::Nanoseconds, *ns)))
        };
        Bar {
            name: summary.delivery.clone(),
            parts: STAGE_CLASSES.iter().zip(&named).map(part).collect(),
            total: figure::value(Unit::Nanoseconds, named.iter().map(|stage| stage.1).sum()),
        }
    };
    let Some(first) = report.summaries.first() else { return String::new() };
    let bars: Vec<Bar> = report.summaries.iter().map(bar).collect();
    let mut header = vec![("stage".to_string(), false)];
    header.extend(report.summaries.iter().map(|s| (s.delivery.clone(), true)));
    let stage = |(at, class): (usize, &&str)| {
        let name = stages_of(report, first).named()[at].0;
        let figures =
            report.summaries.iter().map(|s| figure::value(Unit::Nanoseconds, stages_of(report, s).named()[at].1));
        let key = format!("<ul class=\"legend\"><li><i class=\"{class}\"></i>{name}</li></ul>");
        row(std::iter::once((key, false)).chain(figures.map(|f| (f, true))))
    };
    let rows: String = STAGE_CLASSES.iter().enumerate().map(stage).collect();
    plots::bars("Mean time of one I/O, stage after stage", &bars) + "<p></p>\n" + &html_table(&header, &rows)
}

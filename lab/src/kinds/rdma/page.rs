//! The sections that only the page of an experiment on moderation has: the level over time, the state of the tuning.

use crate::kinds::rdma::RdmaOutcome;
use crate::outcome::Unit;
use crate::report::RunReport;
use crate::report::html::{axis, section};
use crate::report::plots::{self, Axes, Series, escape};

/// The sections.
pub(super) fn sections(report: &RunReport) -> String {
    section("Level over time", levels(report)) + &section("State of the tuning", tuning(report))
}

/// A plot for each variant that has a level. It shows the first seed and the first queue.
fn levels(report: &RunReport) -> String {
    let plot = |(colour, (delivery, rdma)): (usize, (&str, &RdmaOutcome))| {
        let (points, top) = (course(rdma)?, f64::from(rdma.level_count.saturating_sub(1)));
        let begin = rdma.begin_ns as f64;
        let series = [
            Series { name: "level".into(), points, dashed: false, colour: colour % 4 },
            Series {
                name: "counting begins".into(),
                points: vec![(begin, 0.0), (begin, top)],
                dashed: true,
                colour: colour % 4,
            },
        ];
        let axes = Axes {
            title: delivery,
            x: "time since the start of the load",
            y: "level in effect",
            x_tick: |x| axis(Unit::Nanoseconds, x),
            y_tick: |y| format!("{y:.0}"),
        };
        Some(plots::lines(&axes, &series))
    };
    let plots: String = firsts(report).enumerate().filter_map(plot).collect();
    if plots.is_empty() { plots } else { format!("<div class=\"plots\">\n{plots}</div>\n") }
}

/// The level as a line of steps.
fn course(rdma: &RdmaOutcome) -> Option<Vec<(f64, f64)>> {
    let mut level = f64::from(rdma.levels.first()?.level);
    let mut points = vec![(0.0, level)];
    for change in rdma.levels.iter().skip(1) {
        let at = change.from_ns as f64;
        points.push((at, level));
        level = change.level.into();
        points.push((at, level));
    }
    points.push((rdma.end_ns as f64, level));
    Some(points)
}

fn tuning(report: &RunReport) -> String {
    let of = |(_, rdma): (&str, &RdmaOutcome)| Some(escape(rdma.tuning.as_ref()?));
    let views: String = firsts(report).filter_map(of).collect();
    if views.is_empty() { views } else { format!("<div class=\"scroll\" tabindex=\"0\"><pre>{views}</pre></div>\n") }
}

/// Each variant's first outcome.
fn firsts(report: &RunReport) -> impl Iterator<Item = (&str, &RdmaOutcome)> {
    report.summaries.iter().filter_map(|summary| {
        let outcome = report.first_outcome(&summary.delivery)?;
        Some((summary.delivery.as_str(), outcome.rdma()?))
    })
}

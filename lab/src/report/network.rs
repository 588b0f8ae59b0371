//! What the page of a network experiment shows beside the rest.

use super::html::section;
use super::plots::{self, Bar};
use super::{RunReport, figure};
use crate::outcome::{Summary, Unit};

/// The sections.
pub(super) fn sections(report: &RunReport) -> String {
    section("Receive rate and loss", rates(report))
}

/// What each variant brings back of a flow, and what it loses.
fn rates(report: &RunReport) -> String {
    let bars = |title: &str, id: &str, unit: Unit, class: &str| {
        let bar = |summary: &Summary| {
            let mean = summary.estimate(id)?.mean;
            let text = figure::value(unit, mean);
            Some(Bar { name: summary.delivery.clone(), parts: vec![(class.into(), mean, text.clone())], total: text })
        };
        let bars: Vec<Bar> = report.summaries.iter().filter_map(bar).collect();
        if bars.is_empty() { String::new() } else { plots::bars(title, &bars) }
    };
    bars("Received back, a flow", "rx_pps_per_flow", Unit::PerSecond, "drive2")
        + &bars("Lost", "loss", Unit::Percent, "cpu1")
        + &bars("Kicks", "kicks", Unit::PerSecond, "cpu2")
}

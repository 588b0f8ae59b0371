//! What the page of an accelerator experiment shows beside the rest.

use super::html::section;
use super::plots::{self, Bar};
use super::{RunReport, figure};
use crate::outcome::{Summary, Unit};

/// The sections.
pub(super) fn sections(report: &RunReport) -> String {
    section("Throughput against a timer's waiting", trade(report))
}

/// What each variant delivers, and what it lets a system vector wait.
fn trade(report: &RunReport) -> String {
    let bars = |title: &str, id: &str, unit: Unit, class: &str| {
        let bar = |summary: &Summary| {
            let mean = summary.estimate(id)?.mean;
            let text = figure::value(unit, mean);
            Some(Bar { name: summary.delivery.clone(), parts: vec![(class.into(), mean, text.clone())], total: text })
        };
        let bars: Vec<Bar> = report.summaries.iter().filter_map(bar).collect();
        if bars.is_empty() { String::new() } else { plots::bars(title, &bars) }
    };
    bars("Descriptors a second", "irqs", Unit::PerSecond, "drive2")
        + &bars("Waiting of the local timer, mean", "timer_wait", Unit::Nanoseconds, "cpu1")
        + &bars("Waiting of the local timer, longest", "timer_wait_max", Unit::Nanoseconds, "cpu2")
}

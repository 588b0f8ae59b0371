//! The sections that only the page of an accelerator experiment has.

use crate::outcome::Unit;
use crate::report::RunReport;
use crate::report::html::{section, variant_bars};

/// The sections.
pub(super) fn sections(report: &RunReport) -> String {
    section("Throughput against a timer's waiting", trade(report))
}

/// Each variant's throughput, and the delay that it causes to a system vector.
fn trade(report: &RunReport) -> String {
    let bars = |title, id, unit, class| variant_bars(report, title, id, unit, class);
    bars("Descriptors a second", "irqs", Unit::PerSecond, "drive2")
        + &bars("Waiting of the local timer, mean", "timer_wait", Unit::Nanoseconds, "cpu1")
        + &bars("Waiting of the local timer, longest", "timer_wait_max", Unit::Nanoseconds, "cpu2")
}

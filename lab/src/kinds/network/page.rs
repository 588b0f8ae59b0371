//! The sections that only the page of a network experiment has.

use crate::outcome::Unit;
use crate::report::RunReport;
use crate::report::html::{section, variant_bars};

/// The sections.
pub(super) fn sections(report: &RunReport) -> String {
    section("Receive rate and loss", rates(report))
}

/// Returned and lost packets of the flows with each variant.
fn rates(report: &RunReport) -> String {
    let bars = |title, id, unit, class| variant_bars(report, title, id, unit, class);
    bars("Received back, a flow", "rx_pps_per_flow", Unit::PerSecond, "drive2")
        + &bars("Lost", "loss", Unit::Percent, "cpu1")
        + &bars("Kicks", "kicks", Unit::PerSecond, "cpu2")
}

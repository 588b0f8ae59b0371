//! What limited a run, derived from measured utilisations alone.
//!
//! The rule: each of drive link, drive media, MSI path and CPU is as busy as its busiest member, averaged over the
//! seeds; the busiest of the four is the bottleneck if it is at least [`SATURATED`] busy. Of equals, the one nearer to
//! the drive counts, because it starves what lies behind it. A link is busy with data, and while it must stay free behind
//! the drive's own MSIs: both take from the same time. Under the threshold nothing is saturated: the load is
//! bounded by what is kept in flight.

use core::fmt;

use serde::Serialize;

use super::{CpuTime, Outcome, ServerKind};

/// The utilisation from which a server counts as saturated. Not 1: with random service times a server behind a finite
/// number of requests in flight is never quite always busy.
pub const SATURATED: f64 = 0.9;

/// What limits throughput.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bottleneck {
    /// The link of a drive is never free: it moves data, or stays free behind an MSI that data may not overtake.
    DriveLink,
    /// A drive's media slots are all in use.
    DriveMedia,
    /// The way of an MSI from the drive to a LAPIC, at this server.
    MsiPath(ServerKind),
    /// A CPU has no idle time.
    Cpu,
    /// Nothing is saturated.
    None,
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DriveLink => f.write_str("drive link"),
            Self::DriveMedia => f.write_str("drive media"),
            Self::MsiPath(server) => write!(f, "MSI path ({})", server.name()),
            Self::Cpu => f.write_str("CPU"),
            Self::None => f.write_str("none"),
        }
    }
}

/// A bottleneck and the utilisations that it was found from.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The verdict.
    pub bottleneck: Bottleneck,
    /// Utilisation of every candidate, as a fraction, nearest to the drive first; an MSI-path server each.
    pub utilisation: Vec<(Bottleneck, f64)>,
}

/// Nearest to the drive first.
const CANDIDATES: [Bottleneck; 7] = [
    Bottleneck::DriveMedia,
    Bottleneck::DriveLink,
    Bottleneck::MsiPath(ServerKind::RootPort),
    Bottleneck::MsiPath(ServerKind::Remapping),
    Bottleneck::MsiPath(ServerKind::Dispatch),
    Bottleneck::MsiPath(ServerKind::PostedLine),
    Bottleneck::Cpu,
];

impl Finding {
    /// Applies the rule to the runs of one delivery.
    pub fn of(outcomes: &[Outcome]) -> Self {
        let runs = outcomes.len().max(1) as f64;
        let utilisation = CANDIDATES.map(|c| (c, outcomes.iter().map(|o| busiest(o, c)).sum::<f64>() / runs));
        let found = Self { bottleneck: Bottleneck::None, utilisation: utilisation.to_vec() };
        let (candidate, busy) = found.highest();
        Self { bottleneck: if busy >= SATURATED { candidate } else { Bottleneck::None }, ..found }
    }

    /// The busiest candidate and its utilisation.
    pub fn highest(&self) -> (Bottleneck, f64) {
        // Strictly greater: of equals the first, nearest to the drive.
        self.utilisation.iter().copied().fold((Bottleneck::None, 0.0), |best, c| if c.1 > best.1 { c } else { best })
    }
}

impl fmt::Display for Finding {
    /// `CPU, 99 % busy`, or `none; busiest CPU, 71 %`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (highest, busy) = self.highest();
        match (self.bottleneck, highest) {
            (Bottleneck::None, Bottleneck::None) => f.write_str("none"),
            (Bottleneck::None, busiest) => write!(f, "none; busiest {busiest}, {:.0} %", busy * 100.0),
            (found, _) => write!(f, "{found}, {:.0} % busy", busy * 100.0),
        }
    }
}

fn busiest(outcome: &Outcome, candidate: Bottleneck) -> f64 {
    let greatest = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
    match candidate {
        Bottleneck::DriveLink => greatest(&mut outcome.drives.iter().map(|d| d.link_busy + d.link_held)),
        Bottleneck::DriveMedia => greatest(&mut outcome.drives.iter().map(|d| d.media_busy)),
        Bottleneck::MsiPath(kind) => greatest(&mut outcome.servers.iter().filter(|s| s.kind == kind).map(|s| s.busy)),
        Bottleneck::Cpu => greatest(&mut outcome.cpus.iter().map(CpuTime::busy)),
        Bottleneck::None => 0.0,
    }
}

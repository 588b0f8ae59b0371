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
    /// An accelerator's engine always serves.
    Engine,
    /// The link of another device than a drive is never free.
    DeviceLink,
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
            Self::Engine => f.write_str("engine"),
            Self::DeviceLink => f.write_str("device link"),
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

/// The servers of the MSI path, nearest to the device first.
const MSI_PATH: [ServerKind; 4] =
    [ServerKind::RootPort, ServerKind::Remapping, ServerKind::Dispatch, ServerKind::PostedLine];

impl Finding {
    /// Applies the rule to the runs of one variant.
    pub fn of(outcomes: &[Outcome]) -> Self {
        let mut utilisation: Vec<(Bottleneck, f64)> = Vec::new();
        for outcome in outcomes {
            for (at, (candidate, busy)) in candidates(outcome).into_iter().enumerate() {
                if utilisation.len() == at {
                    utilisation.push((candidate, 0.0));
                }
                utilisation[at].1 += busy / outcomes.len() as f64;
            }
        }
        let found = Self { bottleneck: Bottleneck::None, utilisation };
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

/// Every candidate of a run and how busy it was, nearest to the device first.
fn candidates(outcome: &Outcome) -> Vec<(Bottleneck, f64)> {
    let server = |kind| outcome.servers.iter().filter(move |server| server.kind == kind).map(|server| server.busy);
    let msi_path = MSI_PATH.map(|kind| (Bottleneck::MsiPath(kind), server(kind).fold(0.0, f64::max)));
    let cpu = outcome.cpus.iter().map(CpuTime::busy).fold(0.0, f64::max);
    outcome.section.devices().into_iter().chain(msi_path).chain([(Bottleneck::Cpu, cpu)]).collect()
}

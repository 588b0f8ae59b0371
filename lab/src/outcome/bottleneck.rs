//! The bottleneck of a run, derived from measured utilisations alone.
//!
//! There are four candidates: drive link, drive media, MSI path and CPU. Each is as busy as its busiest member,
//! averaged over the seeds. The busiest candidate is the bottleneck if it is at least [`SATURATED`] busy. Among
//! equals, the one nearer to the drive wins, because it starves those behind it. A link is busy while it moves data,
//! and while it must stay free behind the drive's own MSIs: both take from the same time. Below the threshold nothing
//! is saturated: the number of requests in flight limits the load.

use core::fmt;

use serde::{Serialize, Serializer};

use super::{CpuTime, Outcome, ServerKind};

/// The utilisation from which a server counts as saturated. It is below 1: with random service times and a finite
/// number of requests in flight, a server is never quite always busy.
pub const SATURATED: f64 = 0.9;

/// The limit of throughput.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bottleneck {
    /// This server on the way of an MSI from the drive to a LAPIC.
    MsiPath(ServerKind),
    /// A CPU has no idle time.
    Cpu,
    /// No resource is saturated.
    None,
    /// This part of the kind's devices is always in use. In files its id stands alone.
    #[serde(untagged)]
    Device(DevicePart),
}

/// A part of a kind's devices that can limit throughput.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DevicePart {
    /// Its name in files.
    pub id: &'static str,
    /// Its name in texts.
    pub name: &'static str,
}

impl Serialize for DevicePart {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.id)
    }
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(part) => f.write_str(part.name),
            Self::MsiPath(server) => write!(f, "MSI path ({})", server.name()),
            Self::Cpu => f.write_str("CPU"),
            Self::None => f.write_str("none"),
        }
    }
}

/// A bottleneck and the utilisations that led to it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The verdict.
    pub bottleneck: Bottleneck,
    /// Utilisation of every candidate, as a fraction, nearest to the drive first. Each server of the MSI path is a
    /// candidate.
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
        // Strictly greater, so that the first of equals wins: the one nearest to the drive.
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

/// Every candidate of a run and its utilisation, nearest to the device first.
fn candidates(outcome: &Outcome) -> Vec<(Bottleneck, f64)> {
    let server = |kind| outcome.servers.iter().filter(move |server| server.kind == kind).map(|server| server.busy);
    let msi_path = MSI_PATH.map(|kind| (Bottleneck::MsiPath(kind), server(kind).fold(0.0, f64::max)));
    let cpu = outcome.cpus.iter().map(CpuTime::busy).fold(0.0, f64::max);
    outcome.section.measured().devices().into_iter().chain(msi_path).chain([(Bottleneck::Cpu, cpu)]).collect()
}

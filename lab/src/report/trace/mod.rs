//! A run's trace: Perfetto's own protobuf, with named tracks, flows from an I/O to its message to its interrupt, and counters.
//!
//! Sources: "Perfetto TracePacket" and "Track events" of the Perfetto documentation. Times are in ns, cut to whole ones.
//! Slices of one track must nest. On a CPU they do: an interrupt lies on top of the work that it interrupted.
//! A drive has many requests open at once, so every other track is spread over as many lanes as requests overlap.

mod proto;
mod writer;

pub use writer::{manifest, share, shorten, write};

use std::borrow::Cow;

/// Most records of a file, all deliveries together: some milliseconds of a busy server, and still loadable in a viewer.
pub const RECORDS_MAX: usize = 400_000;
/// Most bytes that a record adds to a file. With [`RECORDS_MAX`] it bounds the file, apart from its manifest. A record with many
/// flows, such as the message that announces many I/Os, counts as several.
pub const RECORD_BYTES_MAX: usize = 160;
/// Flows that a record has room for, and that each further record would have: a flow's id has ten bytes.
const FLOWS_OF_RECORD: (usize, usize) = (4, 16);

/// The actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Track {
    /// The phases of the jobs.
    Phases,
    /// A CPU by its number.
    Cpu(u32),
    /// A drive by its place in the platform.
    Drive(u32),
    /// An IOMMU.
    Iommu(u32),
    /// A root port.
    Port(u32),
    /// A device that is no drive, by its place.
    Device(u32),
}

impl Track {
    /// Its group: the group's place in the display, the group's name, the track's name.
    fn group(self) -> (i32, &'static str, String) {
        match self {
            Self::Phases => (0, "phases", "phases".into()),
            Self::Cpu(n) => (1, "CPUs", format!("CPU {n}")),
            Self::Drive(n) => (2, "drives", format!("drive {n}")),
            Self::Iommu(n) => (3, "IOMMUs", format!("IOMMU {n}")),
            Self::Port(n) => (4, "root ports", format!("root port {n}")),
            Self::Device(n) => (5, "devices", format!("device {n}")),
        }
    }

    fn nests(self) -> bool {
        matches!(self, Self::Cpu(_))
    }
}

/// An event with a duration, or an instant if the duration is zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceRecord {
    /// When it began, in simulated ps since [`Trace::start_ps`]'s origin.
    pub start_ps: u64,
    /// How long it took, in ps.
    pub duration_ps: u64,
    /// The actor.
    pub track: Track,
    /// What.
    pub name: Cow<'static, str>,
    /// A number that distinguishes it from others of its name: a vector, a queue, a count.
    pub argument: u64,
    /// Flows that begin here or pass through.
    pub flows: Vec<u64>,
    /// Flows that end here.
    pub ends: Vec<u64>,
}

/// A number over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// What is counted.
    pub name: String,
    /// Of the values.
    pub unit: &'static str,
    /// From when on, in simulated ps, which value holds.
    pub points: Vec<(u64, i64)>,
}

/// The trace of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The delivery.
    pub delivery: String,
    /// The time that the file calls 0: counting begins. What began earlier is cut.
    pub start_ps: u64,
    /// Slices and instants.
    pub records: Vec<TraceRecord>,
    /// Counters.
    pub counters: Vec<Counter>,
    /// How many of both were left out already: the latest ones.
    pub left_out: usize,
}

#[cfg(test)]
mod tests;

//! Faults of the hardware around a GIC.

use super::harness::Version;
use crate::draw::Draw;
use crate::subject::{Single, Strikes, is_struck};
use machine::observe::Fact;
use std::fmt;

/// A fault, for as long as its window lasts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GicFault {
    /// A wire stays raised although its device was served.
    Stuck { source: u32 },
    /// A wire is raised for a moment without an event. The CPU may find no interrupt to acknowledge.
    Glitch { source: u32, ns: u32 },
    /// A device interrupts without end.
    Storm { source: u32, period_ns: u64 },
    /// A device's messages are lost.
    Dropped { source: u32, count: u32 },
    /// Its messages are sent twice.
    Doubled { source: u32, count: u32 },
    /// Its messages are late.
    Late { source: u32, ns: u64 },
    /// When it is served next, its wire stays raised for a while.
    Sticks { source: u32, ns: u64 },
    /// The ITS refuses each command and stalls.
    Stalls,
    /// No memory for devices is left.
    NoMemory,
}

/// All kinds.
const KINDS: &[&str] = &[
    "level-stuck",
    "spurious",
    "line-storm",
    "message-dropped",
    "message-doubled",
    "message-late",
    // Only with an ITS. One that stalls for long is not drawn: a mask that it refuses four times leaves a line as it was.
    "no-memory",
];

/// Those of this version.
pub(super) fn kinds(version: Version) -> &'static [&'static str] {
    match version {
        Version::V2 => &KINDS[..KINDS.len() - 1],
        Version::V3 => KINDS,
    }
}

/// Faults that strike once, at the only source of the small machine.
pub(super) fn singles() -> Vec<Single<GicFault>> {
    let (source, count) = (0, 1);
    let next = |kind, fault| Single { kind, fault, strikes: Strikes::Next };
    let is_taken = |fact: &Fact| matches!(fact, Fact::GicAcknowledged { .. });
    // A wire; or a message, which the board tells of.
    let is_raised = |fact: &Fact| matches!(fact, Fact::GicPending { .. }) || is_struck(fact);
    vec![
        next("message-dropped", GicFault::Dropped { source, count }),
        next("message-doubled", GicFault::Doubled { source, count }),
        next("message-late", GicFault::Late { source, ns: 3_000 }),
        next("level-stuck", GicFault::Sticks { source, ns: 2_000 }),
        next("stalled-its", GicFault::Stalls),
        // Not more often: what is tried twice and then undone, by commands that are refused too, stays as it was.
        Single { kind: "stalled-its-twice", fault: GicFault::Stalls, strikes: Strikes::Times(2) },
        next("no-memory", GicFault::NoMemory),
        Single {
            kind: "spurious",
            fault: GicFault::Glitch { source, ns: 200 },
            strikes: Strikes::Behind(is_taken, is_raised),
        },
    ]
}

impl GicFault {
    pub(super) fn draw(kind: &str, draw: &mut Draw) -> Self {
        let (source, count) = (draw.below(64) as u32, draw.time_ns(1, 8) as u32);
        match kind {
            "level-stuck" => Self::Stuck { source },
            "spurious" => Self::Glitch { source, ns: draw.time_ns(1, 1_000) as u32 },
            "line-storm" => Self::Storm { source, period_ns: draw.time_ns(1_000, 8_000) },
            "message-dropped" => Self::Dropped { source, count },
            "message-doubled" => Self::Doubled { source, count },
            "no-memory" => Self::NoMemory,
            "stalled-its" => Self::Stalls,
            _ => Self::Late { source, ns: draw.time_ns(100, 10_000) },
        }
    }

    pub(super) fn source(&self) -> u32 {
        match self {
            Self::Stuck { source }
            | Self::Glitch { source, .. }
            | Self::Storm { source, .. }
            | Self::Dropped { source, .. }
            | Self::Doubled { source, .. }
            | Self::Late { source, .. }
            | Self::Sticks { source, .. } => *source,
            Self::Stalls | Self::NoMemory => 0,
        }
    }

    /// Operations of the stack may fail because of it.
    pub(super) fn breaks_operations(&self) -> bool {
        matches!(self, Self::Stalls | Self::NoMemory)
    }
}

impl fmt::Display for GicFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stuck { source } => write!(f, "the wire of source {source} is stuck"),
            Self::Glitch { source, ns } => {
                write!(f, "the wire of source {source} is raised for {ns} ns without an event")
            }
            Self::Storm { source, period_ns } => write!(f, "source {source} storms, every {period_ns} ns"),
            Self::Dropped { source, count } => write!(f, "{count} messages of source {source} are lost"),
            Self::Doubled { source, count } => write!(f, "{count} messages of source {source} are sent twice"),
            Self::Late { source, ns } => write!(f, "messages of source {source} are {ns} ns late"),
            Self::Sticks { source, ns } => write!(f, "the wire of source {source} sticks for {ns} ns"),
            Self::Stalls => write!(f, "the ITS refuses its commands"),
            Self::NoMemory => write!(f, "there is no memory for devices"),
        }
    }
}

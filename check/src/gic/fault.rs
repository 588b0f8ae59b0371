//! Faults of the hardware around a GIC.

use crate::draw::Draw;
use crate::subject::Single;
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
}

/// All kinds.
pub(super) const KINDS: &[&str] =
    &["level-stuck", "spurious", "line-storm", "message-dropped", "message-doubled", "message-late"];

/// Faults that strike once, at the only source of the small machine.
pub(super) fn singles() -> Vec<Single<GicFault>> {
    let (source, count) = (0, 1);
    let message = |kind, fault| Single { kind, fault, strikes: |fact| matches!(fact, Fact::Message { .. }) };
    let wire = |kind, fault| Single { kind, fault, strikes: |fact| matches!(fact, Fact::GicPending { .. }) };
    vec![
        message("message-dropped", GicFault::Dropped { source, count }),
        message("message-doubled", GicFault::Doubled { source, count }),
        message("message-late", GicFault::Late { source, ns: 3_000 }),
        wire("level-stuck", GicFault::Stuck { source }),
        wire("spurious", GicFault::Glitch { source, ns: 200 }),
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
            | Self::Late { source, .. } => *source,
        }
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
        }
    }
}

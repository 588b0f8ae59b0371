//! Steps of managers on the accelerator.

use crate::draw::Draw;
use std::fmt;

/// A step. Queues count modulo their number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AcceleratorStep {
    /// Some more fills for a queue, in batches, the rest from its completions.
    Fill { queue: u32, count: u64, depth: u32 },
    /// The same, outside memory.
    Wrong { queue: u32, count: u64 },
    /// Requests that the driver must refuse.
    Refused { queue: u32, which: u32 },
    /// Looks for completions without an interrupt.
    Poll { queue: u32 },
    /// Closes a queue, opens it again with another line, perhaps with the other mode of delivery.
    Reopen { queue: u32, lines_first: bool, other_mode: bool, ns: u64 },
    /// Aborts the fills of a queue if one of them is older than this.
    Recover { queue: u32, age_ns: u64 },
    /// Shuts the device down, tries a wrong configuration, and brings it up again.
    Restart { lines_first: bool, mistake: u32, ns: u64 },
    /// Somebody writes this many descriptors to a portal of a queue that is not open, one so long behind the other.
    Provoke { portal: u32, opcode: u8, count: u32, gap_ns: u64 },
}

impl AcceleratorStep {
    pub(in crate::pc) fn draw(draw: &mut Draw) -> Self {
        let (queue, ns) = (draw.below(64) as u32, draw.time_ns(50, 30_000));
        match draw.below(100) {
            0..25 => Self::Fill { queue, count: draw.time_ns(1, 64), depth: draw.time_ns(1, 16) as u32 },
            25..35 => Self::Wrong { queue, count: draw.time_ns(1, 8) },
            35..40 => Self::Refused { queue, which: draw.below(64) as u32 },
            40..50 => Self::Poll { queue },
            50..68 => Self::Reopen { queue, lines_first: draw.percent(50), other_mode: draw.percent(30), ns },
            68..82 => Self::Recover { queue, age_ns: draw.time_ns(100, 16_000) },
            82..90 => Self::Restart { lines_first: draw.percent(50), mistake: draw.below(64) as u32, ns },
            _ => Self::Provoke {
                portal: draw.below(4) as u32,
                opcode: *draw.pick(&[0, 4]),
                count: draw.time_ns(1, 16) as u32,
                gap_ns: if draw.percent(50) { draw.time_ns(50, 5_000) } else { 0 },
            },
        }
    }
}

impl fmt::Display for AcceleratorStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fill { queue, count, depth } => write!(f, "{count} fills to work queue {queue}, {depth} at a time"),
            Self::Wrong { queue, count } => write!(f, "{count} fills of work queue {queue} go outside memory"),
            Self::Refused { queue, which } => write!(f, "wrong request {which} to work queue {queue}"),
            Self::Poll { queue } => write!(f, "poll work queue {queue}"),
            Self::Reopen { queue, lines_first, other_mode, ns } => {
                let order = if *lines_first { ", its line first" } else { "" };
                let mode = if *other_mode { " in the other mode" } else { "" };
                write!(f, "close work queue {queue}{order}, open it after {ns} ns{mode}")
            }
            Self::Recover { queue, age_ns } => write!(f, "abort work queue {queue} if a fill is {age_ns} ns old"),
            Self::Restart { lines_first, mistake, ns } => {
                let order = if *lines_first { ", its lines first" } else { "" };
                write!(f, "shut the accelerator down{order}, make mistake {mistake}, start it after {ns} ns")
            }
            Self::Provoke { portal, opcode, count, gap_ns } => {
                write!(
                    f,
                    "{count} descriptors of operation {opcode} to portal {portal} of a work queue that is not open, {gap_ns} ns apart"
                )
            }
        }
    }
}

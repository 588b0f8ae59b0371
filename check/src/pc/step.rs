//! Steps of managers.

use super::accelerator::AcceleratorStep;
use super::poster::PosterStep;
use super::removal::Removal;
use super::timers::TimerStep;
use crate::draw::Draw;
use std::fmt;

/// The number of the level line among those that steps name.
pub(super) const LEVEL_LINE: u32 = 1;
/// A step. Numbers of lines, queues, drives and CPUs count modulo their number, so a smaller machine has the same
/// history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PcStep {
    /// Lets a line be delivered on these CPUs, a bit each.
    Move { line: u32, cpus: u64 },
    /// Disables a line that many times, waits, enables it as often.
    Disable { line: u32, depth: u32, ns: u64 },
    /// Takes a CPU offline, and back.
    Offline { cpu: u32, ns: u64 },
    /// Makes a line fire that many times more.
    Retrigger { line: u32, count: u32 },
    /// Takes a queue's handler off its line and puts it back.
    Replace { queue: u32 },
    /// Waits for a line's handlers.
    Synchronize { line: u32 },
    /// Deletes a queue with all its commands in flight, and creates it again.
    Recreate { queue: u32, ns: u64 },
    /// Frees a queue's line and gives it one with the other mode of delivery.
    Redeliver { queue: u32 },
    /// Resets a controller.
    Reset { drive: u32 },
    /// Asks a controller for queues while another manager resets it. Not drawn.
    Intrude { drive: u32 },
    /// Unbinds the driver, lines first or controller first, and binds it again.
    Rebind { drive: u32, lines_first: bool, ns: u64 },
    /// Pulls a drive out, and puts it in again.
    Remove { drive: u32, removal: Removal },
    /// Changes a controller's declared coalescing.
    Coalesce { drive: u32, entries: u16, us: u32, excludes: bool },
    /// Makes a drive abort the commands of a queue that have been in flight for this long.
    Abort { queue: u32, age_ns: u64 },
    /// Changes a queue's check after submissions.
    Check { queue: u32, policy: u32 },
    /// Lends a queue's line to a guest, which serves it, and takes it back.
    Lend { queue: u32, ns: u64 },
    /// The ringing device sends this many messages.
    Ring { count: u64, period_ns: u64 },
    /// The ringing device sends one message; waits for its handler, for a while.
    Fire,
    /// A function on the level line wants service; waits for its handler, for a while.
    FirePin { function: u32 },
    /// A function on the level line wants service.
    Raise { function: u32 },
    /// A line moves from CPU to CPU that many times, a while behind each. The level line wants service each time; the others have
    /// what their devices do.
    Chase { line: u32, moves: u32, ns: u64 },
    /// A CPU goes without its tick.
    Quiet { cpu: u32, ns: u64 },
    /// A CPU is asked to look at its run queue.
    Kick { cpu: u32 },
    /// Some more commands for a queue, submitted from its completions.
    Burst { queue: u32, count: u64, depth: u32 },
    /// Something on the accelerator.
    Accelerator(AcceleratorStep),
    /// Something on a timer.
    Timer(TimerStep),
    /// Something on the function that posts by itself.
    Poster(PosterStep),
}

impl PcStep {
    pub(super) fn draw(draw: &mut Draw) -> Self {
        let (line, queue, drive) = (draw.below(64) as u32, draw.below(64) as u32, draw.below(64) as u32);
        match draw.below(100) {
            0..20 => Self::Move { line, cpus: draw.within(1..=255) },
            20..28 => Self::Disable { line, depth: draw.within(1..=3) as u32, ns: draw.time_ns(50, 30_000) },
            28..40 => Self::Offline { cpu: draw.below(64) as u32, ns: draw.time_ns(50, 100_000) },
            40..48 => Self::Retrigger { line, count: draw_count(draw) },
            48..53 => Self::Replace { queue },
            53..54 => Self::Synchronize { line },
            54..55 => Self::Quiet { cpu: line, ns: draw.time_ns(1_000, 60_000) },
            55..56 => Self::Kick { cpu: line },
            56..61 => Self::Recreate { queue, ns: draw.time_ns(50, 30_000) },
            61..66 => Self::Redeliver { queue },
            66..69 => Self::Reset { drive },
            69..71 => Self::Rebind { drive, lines_first: draw.percent(50), ns: draw.time_ns(50, 30_000) },
            71..74 => {
                let (entries, us) = (draw.below(9) as u16, 100 * draw.within(1..=3) as u32);
                // Not drawn, so that the draws behind it stay.
                Self::Coalesce { drive, entries, us, excludes: entries == 5 }
            }
            74..77 => Self::Check { queue, policy: draw.below(3) as u32 },
            77..83 => Self::Lend { queue, ns: draw.time_ns(200, 40_000) },
            83..90 => Self::Ring { count: draw.time_ns(1, 64), period_ns: draw.time_ns(300, 6_000) },
            90..94 => Self::Raise { function: draw.below(2) as u32 },
            94..97 => Self::Abort { queue, age_ns: draw.time_ns(500, 30_000) },
            _ => Self::Burst { queue, count: draw.time_ns(1, 128), depth: draw.within(1..=24) as u32 },
        }
    }
}

/// How often a line is retriggered: once, or so often that it may count as a storm.
fn draw_count(draw: &mut Draw) -> u32 {
    if draw.percent(85) { 1 } else { draw.within(2..=64) as u32 }
}

impl PcStep {
    /// A drive goes and comes back. It is drawn apart, so that the other steps stay as they were.
    pub(super) fn draw_removal(draw: &mut Draw) -> Self {
        let drive = draw.below(64) as u32;
        let (unnoticed_ns, ns) = (draw.time_ns(50, 60_000), draw.time_ns(50, 200_000));
        let (lines_first, other_vectors) = (draw.percent(50), draw.percent(50));
        Self::Remove { drive, removal: Removal { unnoticed_ns, lines_first, ns, other_vectors } }
    }
}

impl PcStep {
    /// A step on a device that not every PC has. Drawn apart too.
    pub(super) fn draw_beside(draw: &mut Draw) -> Self {
        match draw.below(100) {
            0..60 => Self::Accelerator(AcceleratorStep::draw(draw)),
            60..85 => Self::Timer(TimerStep::draw(draw)),
            85..95 => Self::Poster(PosterStep::draw(draw)),
            _ => {
                let (moves, ns) = (draw.time_ns(2, 24) as u32, draw.time_ns(20, 20_000));
                Self::Chase { line: if draw.percent(50) { LEVEL_LINE } else { draw.below(64) as u32 }, moves, ns }
            }
        }
    }
}

impl fmt::Display for PcStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Move { line, cpus } => write!(f, "move line {line} to CPUs of mask {cpus:#x}"),
            Self::Disable { line, depth, ns } => write!(f, "disable line {line} {depth} times for {ns} ns"),
            Self::Offline { cpu, ns } => write!(f, "take CPU {cpu} offline for {ns} ns"),
            Self::Retrigger { line, count: 1 } => write!(f, "retrigger line {line}"),
            Self::Retrigger { line, count } => write!(f, "retrigger line {line} {count} times"),
            Self::Replace { queue } => write!(f, "take queue {queue}'s handler off and put it back"),
            Self::Synchronize { line } => write!(f, "synchronize line {line}"),
            Self::Recreate { queue, ns } => write!(f, "delete queue {queue}, make it again after {ns} ns"),
            Self::Redeliver { queue } => write!(f, "give queue {queue} a line of the other mode"),
            Self::Reset { drive } => write!(f, "reset drive {drive}"),
            Self::Intrude { drive } => write!(f, "ask for queues of drive {drive} while it is reset"),
            Self::Rebind { drive, lines_first: true, ns } => {
                write!(f, "unbind drive {drive}, its lines first, and bind it after {ns} ns")
            }
            Self::Rebind { drive, lines_first: false, ns } => {
                write!(f, "unbind drive {drive} and bind it after {ns} ns")
            }
            Self::Remove { drive, removal: Removal { unnoticed_ns, lines_first, ns, other_vectors } } => {
                let order = if *lines_first { ", its lines are freed first" } else { "" };
                let vectors = if *other_vectors { " with other vectors" } else { "" };
                write!(
                    f,
                    "pull drive {drive} out; noticed after {unnoticed_ns} ns{order}; put in after {ns} ns{vectors}"
                )
            }
            Self::Coalesce { drive, entries: 0, .. } => write!(f, "switch coalescing of drive {drive} off"),
            Self::Coalesce { drive, entries, us, excludes } => {
                let but = if *excludes { ", and a vector is excluded or taken back" } else { "" };
                write!(f, "drive {drive} coalesces {entries} entries or {us} µs{but}")
            }
            Self::Abort { queue, age_ns } => write!(f, "abort commands of queue {queue} in flight for {age_ns} ns"),
            Self::Check { queue, policy } => write!(f, "set the check of queue {queue} to policy {policy}"),
            Self::Lend { queue, ns } => write!(f, "lend queue {queue}'s line to a guest for {ns} ns"),
            Self::Ring { count, period_ns } => write!(f, "ring {count} times, every {period_ns} ns"),
            Self::FirePin { function } => {
                write!(f, "function {function} raises the level line, and waits for the handler")
            }
            Self::Fire => write!(f, "ring once, and wait for the handler"),
            Self::Chase { line: LEVEL_LINE, moves, ns } => {
                write!(f, "raise the level line and move it on {ns} ns later, {moves} times")
            }
            Self::Chase { line, moves, ns } => write!(f, "move line {line} on every {ns} ns, {moves} times"),
            Self::Raise { function } => write!(f, "function {function} raises the level line"),
            Self::Accelerator(step) => step.fmt(f),
            Self::Timer(step) => step.fmt(f),
            Self::Poster(step) => step.fmt(f),
            Self::Quiet { cpu, ns } => write!(f, "CPU {cpu} goes without its tick for {ns} ns"),
            Self::Kick { cpu } => write!(f, "kick CPU {cpu}"),
            Self::Burst { queue, count, depth } => write!(f, "{count} commands to queue {queue}, {depth} at a time"),
        }
    }
}

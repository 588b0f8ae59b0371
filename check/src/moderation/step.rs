//! Steps of managers on moderated consumers, and faults of their devices.

use super::watch::Hang;
use crate::draw::Draw;
use crate::subject::{Single, Strikes};
use machine::observe::Fact;
use machine::rdma::ModerationAnswer;
use std::fmt;

/// A step. Numbers of consumers, lines, levels and CPUs count modulo their number, so a smaller machine has the same
/// history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ModerationStep {
    /// Lets a line be delivered on these CPUs, a bit each.
    Move { line: u32, cpus: u64 },
    /// Disables a line, waits, enables it.
    Disable { line: u32, ns: u64 },
    /// Takes a CPU offline, and back.
    Offline { cpu: u32, ns: u64 },
    /// A critical section on a CPU.
    InterruptsOff { cpu: u32, ns: u64 },
    /// More commands for a consumer.
    Burst { consumer: u32, count: u64 },
    /// A consumer's load stops for a while.
    Stop { consumer: u32, ns: u64 },
    /// Sets the number of commands under way; 1 is a ping-pong.
    Depth { consumer: u32, depth: u64 },
    /// Looks for completions without an interrupt, some times.
    Poll { consumer: u32, most: u32, times: u32, gap_ns: u64 },
    /// Sets a level by hand, for a consumer that no controller tunes.
    Level { consumer: u32, level: u32 },
    /// Another controller tunes from now on.
    Algorithm { consumer: u32, number: u32 },
}

impl ModerationStep {
    pub(super) fn draw(draw: &mut Draw) -> Self {
        let (line, cpu, consumer) = (draw.below(64) as u32, draw.below(64) as u32, draw.below(64) as u32);
        match draw.below(100) {
            0..12 => Self::Move { line, cpus: draw.within(1..=255) },
            12..22 => Self::Disable { line, ns: draw.time_ns(20, 20_000) },
            22..30 => Self::Offline { cpu, ns: draw.time_ns(50, 40_000) },
            30..35 => Self::InterruptsOff { cpu, ns: draw.time_ns(50, 20_000) },
            35..50 => Self::Burst { consumer, count: draw.time_ns(1, 256) },
            50..56 => Self::Stop { consumer, ns: draw.time_ns(1_000, 200_000) },
            56..68 => Self::Depth { consumer, depth: draw.time_ns(1, 64) },
            68..82 => {
                let (most, times) = (draw.time_ns(1, 64) as u32, draw.within(1..=12) as u32);
                Self::Poll { consumer, most, times, gap_ns: draw.time_ns(100, 10_000) }
            }
            82..92 => Self::Level { consumer, level: draw.below(64) as u32 },
            _ => Self::Algorithm { consumer, number: draw.below(8) as u32 },
        }
    }
}

impl fmt::Display for ModerationStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Move { line, cpus } => write!(f, "move line {line} to CPUs of mask {cpus:#x}"),
            Self::Disable { line, ns } => write!(f, "disable line {line} for {ns} ns"),
            Self::Offline { cpu, ns } => write!(f, "take CPU {cpu} offline for {ns} ns"),
            Self::InterruptsOff { cpu, ns } => write!(f, "CPU {cpu} has interrupts off for {ns} ns"),
            Self::Burst { consumer, count } => write!(f, "{count} more commands for consumer {consumer}"),
            Self::Stop { consumer, ns } => write!(f, "the load of consumer {consumer} stops for {ns} ns"),
            Self::Depth { consumer, depth } => write!(f, "consumer {consumer} has {depth} commands under way"),
            Self::Poll { consumer, most, times, gap_ns } => {
                write!(f, "poll consumer {consumer} {times} times for {most}, {gap_ns} ns apart")
            }
            Self::Level { consumer, level } => write!(f, "set consumer {consumer} to level {level}"),
            Self::Algorithm { consumer, number } => write!(f, "controller {number} tunes consumer {consumer}"),
        }
    }
}

/// A fault, for as long as its window lasts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ModerationFault {
    /// A device rounds the levels that it is given, or refuses them.
    Answers { device: u32, answer: ModerationAnswer },
    /// Commands that program a consumer's level hang.
    Hangs { consumer: u32, hang: Hang },
    /// A wire of the board interrupts without a reason.
    Spurious { queue: u32 },
}

/// All kinds.
pub(super) const KINDS: &[&str] = &["level-rounded", "level-refused", "command-hangs", "spurious"];

/// Faults that strike once: what is asked between one interrupt and the next is answered so.
pub(super) fn singles() -> Vec<Single<ModerationFault>> {
    let (board, nic, consumer) = (0, 1, 0);
    let next = |kind, fault| Single { kind, fault, strikes: Strikes::Next };
    let answers = |device, answer| ModerationFault::Answers { device, answer };
    let rounds = ModerationAnswer::Rounds { count: 3, period_us: 5 };
    let is_taken = |fact: &Fact| matches!(fact, Fact::GicAcknowledged { .. });
    let is_pending = |fact: &Fact| matches!(fact, Fact::GicPending { .. });
    vec![
        next("level-rounded", answers(board, rounds)),
        next("level-refused", answers(board, ModerationAnswer::Refuses)),
        next("nic-level-rounded", answers(nic, rounds)),
        next("nic-level-refused", answers(nic, ModerationAnswer::Refuses)),
        next("command-lost", ModerationFault::Hangs { consumer, hang: Hang::Lost }),
        next("command-late", ModerationFault::Hangs { consumer, hang: Hang::Late }),
        Single {
            kind: "spurious",
            fault: ModerationFault::Spurious { queue: 0 },
            strikes: Strikes::Behind(is_taken, is_pending),
        },
    ]
}

impl ModerationFault {
    pub(super) fn draw(kind: &str, draw: &mut Draw) -> Self {
        let (device, consumer) = (draw.below(3) as u32, draw.below(64) as u32);
        let rounds =
            ModerationAnswer::Rounds { count: draw.within(1..=16) as u16, period_us: draw.within(1..=16) as u16 };
        match kind {
            "level-rounded" => Self::Answers { device, answer: rounds },
            "level-refused" => Self::Answers { device, answer: ModerationAnswer::Refuses },
            "command-hangs" => Self::Hangs { consumer, hang: if draw.percent(50) { Hang::Lost } else { Hang::Late } },
            _ => Self::Spurious { queue: draw.below(64) as u32 },
        }
    }
}

impl fmt::Display for ModerationFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answers { device, answer: ModerationAnswer::Rounds { count, period_us } } => {
                write!(f, "device {device} rounds moderation up to {count} items and {period_us} µs")
            }
            Self::Answers { device, .. } => write!(f, "device {device} refuses moderation"),
            Self::Hangs { consumer, hang: Hang::Late } => write!(f, "levels of consumer {consumer} are taken late"),
            Self::Hangs { consumer, .. } => write!(f, "commands for levels of consumer {consumer} are lost"),
            Self::Spurious { queue } => write!(f, "queue {queue} interrupts without a reason"),
        }
    }
}

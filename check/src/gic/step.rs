//! Steps of managers on the lines of a GIC.

use crate::draw::Draw;
use std::fmt;

/// A step. Numbers of sources and CPUs count modulo their number, so a smaller machine has the same history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GicStep {
    /// Lets a source's line be delivered on these CPUs, a bit each.
    Move { source: u32, cpus: u64 },
    /// Moves a line to the next CPU this many times under load, with this time in between.
    Chase { source: u32, moves: u32, ns: u64 },
    /// Disables its line, waits, enables it. Two nested disables; the outer one lasts as long again.
    Disable { source: u32, ns: u64, twice: bool },
    /// Takes its handler off and puts it back.
    Replace { source: u32 },
    /// Frees its line and gives it one again.
    Realloc { source: u32 },
    /// Sets its line pending by software.
    SetPending { source: u32 },
    /// Retriggers its line.
    Retrigger { source: u32 },
    /// Its wire changes between edge and level, and with a pin the flow.
    SetType { source: u32, level: bool },
    /// Waits for its handlers.
    Synchronize { source: u32 },
    /// Takes a CPU offline, and back.
    Offline { cpu: u32, ns: u64 },
    /// A CPU disables its own private lines for a while.
    DisablePrivate { source: u32, cpu: u32, ns: u64 },
    /// A wire without a line is enabled and raised.
    Stray { ns: u64 },
    /// A critical section on a CPU.
    InterruptsOff { cpu: u32, ns: u64 },
    /// A CPU asks for the kernel's tick so much later.
    Tick { cpu: u32, ns: u64 },
    /// A CPU is asked to look at its run queue.
    Kick { cpu: u32 },
    /// Operations on a source's line that the core must refuse.
    Misuse { source: u32 },
    /// Two drivers with threads come to a line that they share, and leave it, so often, while the other does the same.
    Lodge { turns: u32, cpu: u32, ns: u64 },
    /// One event of a source; waits for its handler, for a while.
    Fire { source: u32 },
    /// More events of a source.
    Burst { source: u32, count: u64, depth: u32 },
}

impl GicStep {
    pub(super) fn draw(draw: &mut Draw) -> Self {
        let (source, cpu) = (draw.below(64) as u32, draw.below(64) as u32);
        match draw.below(100) {
            0..16 => Self::Move { source, cpus: draw.within(1..=255) },
            16..22 => Self::Chase { source, moves: draw.time_ns(4, 32) as u32, ns: draw.time_ns(50, 3_000) },
            22..38 => Self::Disable { source, ns: draw.time_ns(20, 20_000), twice: draw.percent(30) },
            38..46 => Self::Replace { source },
            46..52 => Self::Realloc { source },
            52..59 => Self::SetPending { source },
            59..63 => Self::Retrigger { source },
            63..70 => Self::SetType { source, level: draw.percent(50) },
            70..71 => Self::Synchronize { source },
            71..72 => Self::Kick { cpu },
            72..73 => Self::Tick { cpu, ns: draw.time_ns(500, 50_000) },
            73..83 => Self::Offline { cpu, ns: draw.time_ns(50, 60_000) },
            83..87 => Self::DisablePrivate { source, cpu, ns: draw.time_ns(50, 10_000) },
            87..89 => Self::Stray { ns: draw.time_ns(50, 5_000) },
            89..93 => Self::InterruptsOff { cpu, ns: draw.time_ns(50, 20_000) },
            93..94 => Self::Misuse { source },
            94..95 => Self::Lodge { turns: draw.within(1..=6) as u32, cpu, ns: draw.time_ns(20, 5_000) },
            _ => Self::Burst { source, count: draw.time_ns(1, 64), depth: draw.within(1..=4) as u32 },
        }
    }
}

impl fmt::Display for GicStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Move { source, cpus } => write!(f, "move source {source} to CPUs of mask {cpus:#x}"),
            Self::Chase { source, moves, ns } => {
                write!(f, "chase source {source}, or a message, over the CPUs {moves} times, every {ns} ns")
            }
            Self::Disable { source, ns, twice } => {
                write!(f, "disable source {source} for {ns} ns{}", if *twice { ", and within for as long" } else { "" })
            }
            Self::Replace { source } => write!(f, "take source {source}'s handler off and put it back"),
            Self::Realloc { source } => write!(f, "free source {source}'s line and allocate it again"),
            Self::SetPending { source } => write!(f, "set source {source} pending"),
            Self::Retrigger { source } => write!(f, "retrigger source {source}"),
            Self::SetType { source, level: true } => write!(f, "source {source} becomes level-triggered"),
            Self::SetType { source, level: false } => write!(f, "source {source} becomes edge-triggered"),
            Self::Synchronize { source } => write!(f, "synchronize source {source}"),
            Self::Offline { cpu, ns } => write!(f, "take CPU {cpu} offline for {ns} ns"),
            Self::DisablePrivate { source, cpu, ns } => {
                write!(f, "CPU {cpu} disables private source {source} for {ns} ns")
            }
            Self::Stray { ns } => write!(f, "a wire that has no line is raised for {ns} ns"),
            Self::InterruptsOff { cpu, ns } => write!(f, "CPU {cpu} has interrupts off for {ns} ns"),
            Self::Tick { cpu, ns } => write!(f, "CPU {cpu} wants a tick in {ns} ns"),
            Self::Kick { cpu } => write!(f, "kick CPU {cpu}"),
            Self::Misuse { source } => write!(f, "wrong operations on the line of source {source}"),
            Self::Lodge { turns, cpu, ns } => {
                write!(f, "two drivers from CPU {cpu} on share a line {turns} times each, for up to {ns} ns")
            }
            Self::Fire { source } => write!(f, "an event of source {source}, and wait for the handler"),
            Self::Burst { source, count, depth } => write!(f, "{count} events of source {source}, {depth} at a time"),
        }
    }
}

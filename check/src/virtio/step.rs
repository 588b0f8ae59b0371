//! Steps of managers on virtio devices and their lines, and faults of the devices.

use crate::draw::Draw;
use crate::subject::{Single, Strikes, is_struck};
use machine::observe::Fact;
use std::fmt;

/// A step. Numbers of lines, queues and CPUs count modulo their number, so a smaller machine has the same history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum VirtioStep {
    /// Lets a line be delivered on these CPUs, a bit each.
    Move { line: u32, cpus: u64 },
    /// Disables a line, waits, enables it.
    Disable { line: u32, ns: u64 },
    /// Sets a line pending by software.
    SetPending { line: u32 },
    /// Takes a CPU offline, and back.
    Offline { cpu: u32, ns: u64 },
    /// A critical section on a CPU.
    InterruptsOff { cpu: u32, ns: u64 },
    /// Resets one queue of the block device under load.
    Recover { queue: u32 },
    /// Unbinds the driver of the disk, or the network, in flight, and binds it again with another mapping.
    Rebind { disk: bool, policy: u32, ns: u64 },
    /// The network device gathers packets.
    Coalesce { packets: u32, usecs: u32 },
    /// Sets when one of two transmit queues notifies, and reads it back, so often; a helper may do so for the other meanwhile.
    Ask { queue: u32, times: u32, ns: u64, both: bool },
    /// Looks for completions without an interrupt.
    Poll { queue: u32 },
    /// More requests for the disk.
    Burst { queue: u32, count: u64 },
}

impl VirtioStep {
    pub(super) fn draw(draw: &mut Draw) -> Self {
        let (line, cpu, queue) = (draw.below(64) as u32, draw.below(64) as u32, draw.below(64) as u32);
        match draw.below(100) {
            0..22 => Self::Move { line, cpus: draw.within(1..=255) },
            22..36 => Self::Disable { line, ns: draw.time_ns(20, 20_000) },
            36..42 => Self::SetPending { line },
            42..52 => Self::Offline { cpu, ns: draw.time_ns(50, 60_000) },
            52..57 => Self::InterruptsOff { cpu, ns: draw.time_ns(50, 20_000) },
            57..65 => Self::Recover { queue },
            65..71 => {
                Self::Rebind { disk: draw.percent(70), policy: draw.below(4) as u32, ns: draw.time_ns(50, 20_000) }
            }
            71..78 => Self::Coalesce { packets: draw.within(0..=16) as u32, usecs: draw.within(0..=60) as u32 },
            78..83 => Self::Poll { queue },
            _ => Self::Burst { queue, count: draw.time_ns(1, 128) },
        }
    }

    /// Drawn apart, so the others are what they were.
    pub(super) fn draw_beside(draw: &mut Draw) -> Self {
        let (queue, times) = (draw.below(64) as u32, draw.within(1..=12) as u32);
        Self::Ask { queue, times, ns: draw.time_ns(20, 5_000), both: draw.percent(80) }
    }
}

impl fmt::Display for VirtioStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Move { line, cpus } => write!(f, "move line {line} to CPUs of mask {cpus:#x}"),
            Self::Disable { line, ns } => write!(f, "disable line {line} for {ns} ns"),
            Self::SetPending { line } => write!(f, "set line {line} pending"),
            Self::Offline { cpu, ns } => write!(f, "take CPU {cpu} offline for {ns} ns"),
            Self::InterruptsOff { cpu, ns } => write!(f, "CPU {cpu} has interrupts off for {ns} ns"),
            Self::Recover { queue } => write!(f, "reset the disk's queue {queue}"),
            Self::Rebind { disk, policy, ns } => {
                let what = if *disk { "disk" } else { "network" };
                write!(f, "unbind the {what}, bind it after {ns} ns with mapping {policy}")
            }
            Self::Coalesce { packets, usecs } => write!(f, "the network gathers {packets} packets or {usecs} µs"),
            Self::Ask { queue, times, ns, both } => {
                let both = if *both { ", and another's meanwhile" } else { "" };
                write!(f, "set and read a transmit queue's coalescing ({queue}) {times} times, every {ns} ns{both}")
            }
            Self::Poll { queue } => write!(f, "poll the disk's queue {queue}"),
            Self::Burst { queue, count } => write!(f, "{count} more requests for the disk's queue {queue}"),
        }
    }
}

/// A fault, for as long as its window lasts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum VirtioFault {
    /// The disk's used index jumps ahead over entries that were never filled.
    Jump { queue: u32, by: u16 },
    /// A device raises a vector without a reason.
    Raise { disk: bool, vector: u32 },
    /// The disk takes long.
    Late { us: u64 },
    /// No memory for devices is left.
    NoMemory,
}

/// All kinds.
pub(super) const KINDS: &[&str] = &["used-index-jumps", "spurious", "back-end-late", "no-memory"];

/// Faults that strike once.
pub(super) fn singles() -> Vec<Single<VirtioFault>> {
    let next = |kind, fault| Single { kind, fault, strikes: Strikes::Next };
    let is_kick = |fact: &Fact| matches!(fact, Fact::Doorbell { .. });
    let is_taken = |fact: &Fact| matches!(fact, Fact::GicAcknowledged { .. });
    let kick = |kind, fault| Single { kind, fault, strikes: Strikes::Behind(is_kick, is_struck) };
    let taken = |kind, fault| Single { kind, fault, strikes: Strikes::Behind(is_taken, is_struck) };
    vec![
        kick("used-index-jumps", VirtioFault::Jump { queue: 0, by: 1 }),
        next("back-end-late", VirtioFault::Late { us: 100 }),
        next("no-memory", VirtioFault::NoMemory),
        taken("spurious", VirtioFault::Raise { disk: true, vector: 0 }),
        taken("spurious-network", VirtioFault::Raise { disk: false, vector: 0 }),
    ]
}

impl VirtioFault {
    pub(super) fn draw(kind: &str, draw: &mut Draw) -> Self {
        match kind {
            "used-index-jumps" => Self::Jump { queue: draw.below(64) as u32, by: draw.within(1..=65_535) as u16 },
            "no-memory" => Self::NoMemory,
            "spurious" => Self::Raise { disk: draw.percent(50), vector: draw.below(8) as u32 },
            _ => Self::Late { us: draw.time_ns(20, 400) },
        }
    }
}

impl fmt::Display for VirtioFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Jump { queue, by } => write!(f, "the used index of the disk's queue {queue} jumps by {by}"),
            Self::Raise { disk: true, vector } => write!(f, "the disk raises vector {vector} without a reason"),
            Self::Raise { disk: false, vector } => write!(f, "the network raises vector {vector} without a reason"),
            Self::NoMemory => write!(f, "there is no memory for devices"),
            Self::Late { us } => write!(f, "the disk takes {us} µs a request"),
        }
    }
}

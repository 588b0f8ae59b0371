//! What is done to the scheduler.

use crate::draw::Draw;
use hal::{Affinity, CpuId, CpuSet};
use std::fmt;

/// CPUs of a thread; their numbers count modulo those of the scheduler, unless they are beyond.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allowed {
    /// Any CPU.
    Any,
    /// One.
    One(u32),
    /// A CPU, and those whose distance to it modulo 64 is a bit of the mask.
    Mask(u32, u64),
    /// This many further CPUs from a CPU on.
    Range(u32, u32),
    /// Only CPUs that do not exist: this far beyond the last, as a set or as one.
    Beyond(u32, bool),
}

impl Allowed {
    fn draw(draw: &mut Draw) -> Self {
        let cpu = draw.below(1 << 16) as u32;
        match draw.below(100) {
            0..34 => Self::Any,
            34..58 => Self::One(cpu),
            58..80 => Self::Mask(cpu, draw.below(u64::MAX) & draw.below(u64::MAX)),
            80..97 => Self::Range(cpu, draw.time_ns(1, 64) as u32),
            _ => Self::Beyond(draw.below(3) as u32, draw.percent(50)),
        }
    }

    /// As the scheduler takes it, on a machine of so many CPUs.
    pub(super) fn affinity(self, count: u32) -> Affinity {
        match self {
            Self::Any => Affinity::Any,
            Self::One(cpu) => Affinity::Cpu(CpuId(cpu % count)),
            Self::Mask(cpu, mask) => {
                let is_in = |other: &u32| mask >> ((other + count - cpu % count) % 64) & 1 != 0;
                let set: CpuSet = (0..count).filter(is_in).chain([cpu % count]).map(CpuId).collect();
                Affinity::Set(set)
            }
            Self::Range(cpu, more) => {
                Affinity::Set((0..=more.min(count - 1)).map(|step| CpuId((cpu % count + step) % count)).collect())
            }
            Self::Beyond(far, true) => {
                Affinity::Set([far, far + 1].map(|far| CpuId(count + far)).into_iter().collect())
            }
            Self::Beyond(far, false) => Affinity::Cpu(CpuId(count + far)),
        }
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => write!(f, "any CPU"),
            Self::One(cpu) => write!(f, "CPU {cpu}"),
            Self::Mask(cpu, mask) => write!(f, "CPU {cpu} and those behind it of mask {mask:#x}"),
            Self::Range(cpu, more) => write!(f, "CPU {cpu} and {more} behind it"),
            Self::Beyond(far, _) => write!(f, "no CPU, {far} beyond the last"),
        }
    }
}

/// A moment to which time may pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// So much later, in ns.
    Later(u64),
    /// So many ns before the end of a slice.
    Slice(u32, u64),
    /// So many ns before a thread's data are no longer taken to be in a cache.
    Cold(u32, u64),
}

/// A step. A CPU is one of those that can do it; it does nothing if there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SchedulerStep {
    /// A new thread.
    Spawn(Allowed, bool),
    /// Wakes a thread: from a CPU or from none, and perhaps for a CPU.
    Wake { thread: u32, waker: Option<u32>, place: Option<u32> },
    /// A CPU picks.
    Pick(u32),
    /// A running thread sleeps, ends, or lets others run; the CPU picks at once, or later.
    Park { cpu: u32, picks: bool },
    /// See [`Self::Park`].
    Exit { cpu: u32, picks: bool },
    /// See [`Self::Park`].
    Yield { cpu: u32, picks: bool },
    /// The slice timer of a CPU fires, which may first send a waiting thread away.
    Tick { cpu: u32, offloads: bool },
    /// Time passes.
    Pass(Moment),
    /// Another affinity for a thread.
    Allow { thread: u32, allowed: Allowed },
    /// A CPU goes offline.
    Offline(u32),
    /// One comes back.
    Online(u32),
    /// An idle CPU gives a lent stack back.
    Return(u32),
    /// Every CPU that was kicked picks. None may idle then while a thread waits for it.
    Rest,
}

impl SchedulerStep {
    pub(super) fn draw(draw: &mut Draw) -> Self {
        let (cpu, thread) = (draw.below(1 << 16) as u32, draw.below(1 << 16) as u32);
        let picks = draw.percent(75);
        match draw.below(100) {
            0..7 => Self::Spawn(Allowed::draw(draw), draw.percent(25)),
            7..31 => {
                let waker = draw.percent(70).then_some(cpu);
                Self::Wake { thread, waker, place: draw.percent(8).then_some(draw.below(1 << 16) as u32) }
            }
            31..45 => Self::Pick(cpu),
            45..58 => Self::Park { cpu, picks },
            58..60 => Self::Exit { cpu, picks },
            60..64 => Self::Yield { cpu, picks },
            64..72 => Self::Tick { cpu, offloads: draw.percent(70) },
            72..83 => Self::Pass(match draw.below(10) {
                0..4 => Moment::Later(draw.time_ns(1, 2_000_000)),
                4..8 => Moment::Slice(cpu, draw.below(2)),
                _ => Moment::Cold(thread, draw.below(2)),
            }),
            83..87 => Self::Allow { thread, allowed: Allowed::draw(draw) },
            87..90 => Self::Offline(cpu),
            90..94 => Self::Online(cpu),
            94..96 => Self::Return(cpu),
            _ => Self::Rest,
        }
    }
}

impl fmt::Display for SchedulerStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let later = |picks: bool| if picks { "" } else { ", and its CPU picks later" };
        match *self {
            Self::Spawn(allowed, urgent) => write!(f, "spawn a thread for {allowed}, urgent: {urgent}"),
            Self::Wake { thread, waker: Some(waker), place: None } => write!(f, "CPU {waker} wakes thread {thread}"),
            Self::Wake { thread, place: None, .. } => write!(f, "wake thread {thread}"),
            Self::Wake { thread, place: Some(place), .. } => write!(f, "wake thread {thread} on CPU {place}"),
            Self::Pick(cpu) => write!(f, "CPU {cpu} picks"),
            Self::Park { cpu, picks } => write!(f, "the thread of CPU {cpu} sleeps{}", later(picks)),
            Self::Exit { cpu, picks } => write!(f, "the thread of CPU {cpu} ends{}", later(picks)),
            Self::Yield { cpu, picks } => write!(f, "the thread of CPU {cpu} yields{}", later(picks)),
            Self::Tick { cpu, offloads } => write!(f, "the slice timer of CPU {cpu} fires, offloads: {offloads}"),
            Self::Pass(Moment::Later(ns)) => write!(f, "{ns} ns pass"),
            Self::Pass(Moment::Slice(cpu, ns)) => {
                write!(f, "time passes to {ns} ns before the slice of CPU {cpu} ends")
            }
            Self::Pass(Moment::Cold(thread, ns)) => write!(f, "time passes to {ns} ns before thread {thread} is cold"),
            Self::Allow { thread, allowed } => write!(f, "let thread {thread} run on {allowed}"),
            Self::Offline(cpu) => write!(f, "CPU {cpu} goes offline"),
            Self::Online(cpu) => write!(f, "CPU {cpu} comes online"),
            Self::Return(cpu) => write!(f, "CPU {cpu} gives a lent stack back"),
            Self::Rest => write!(f, "every CPU that was kicked picks"),
        }
    }
}

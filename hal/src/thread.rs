use crate::{CpuId, CpuSet};
use alloc::boxed::Box;
use core::fmt;

/// A thread's number; never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ThreadId(pub u32);

/// What a thread runs.
pub type ThreadBody = Box<dyn FnOnce() + Send>;

/// Where a thread may run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Affinity {
    /// On any CPU.
    Any,
    /// On this CPU only.
    Cpu(CpuId),
    /// On these.
    Set(CpuSet),
}

/// What kind of thread to start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThreadSpec {
    /// Shown in traces.
    pub name: &'static str,
    /// Where it may run.
    pub affinity: Affinity,
    /// Runs before every thread that is not urgent, as interrupt threads do (SCHED_FIFO).
    pub urgent: bool,
}

/// Why a thread could not be started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SpawnError {
    /// The affinity names no CPU of this world, which has this many.
    NoCpu(CpuSet, u32),
    /// No room for another thread; this many exist.
    Exhausted(u32),
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCpu(set, count) => {
                write!(f, "thread affinity {set} has no CPU of 0 to {}", count.saturating_sub(1))
            }
            Self::Exhausted(count) => write!(f, "no room for another thread beside {count}"),
        }
    }
}

impl core::error::Error for SpawnError {}

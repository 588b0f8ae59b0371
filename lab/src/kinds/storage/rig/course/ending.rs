//! Why a job ended.

use std::fmt;

/// EIO and ETIMEDOUT of Linux.
const INPUT_OUTPUT_ERROR: u64 = 5;
const TIMED_OUT: u64 = 110;

/// The reason of a job's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// All its bytes, I/Os or passes are done.
    Done,
    /// Its `runtime` is over.
    Runtime,
    /// The simulated span is over, which stands for its runtime.
    Span,
    /// It was slower than `rate_min` or `rate_iops_min`.
    RateMin,
    /// An I/O took longer than `max_latency`.
    MaxLatency,
    /// The depth for its `latency_target` is found.
    Target,
    /// Not even one I/O at a time keeps to its `latency_target`.
    TargetMissed,
    /// Its rate is steady.
    Steady,
    /// Its file system is full.
    Full,
    /// Another job's `exitall`, or the limit of the run.
    Stopped,
}

impl End {
    /// True if the job has failed in what it was asked for.
    pub(super) fn is_error(self) -> bool {
        matches!(self, Self::RateMin | Self::MaxLatency | Self::TargetMissed)
    }

    /// The number of the error (`errno`), as fio reports it; 0: none.
    pub(crate) fn error_number(self) -> u64 {
        match self {
            Self::RateMin => INPUT_OUTPUT_ERROR,
            Self::MaxLatency | Self::TargetMissed => TIMED_OUT,
            _ => 0,
        }
    }

    /// As results name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Runtime => "runtime",
            Self::Span => "span",
            Self::RateMin => "rate_min",
            Self::MaxLatency => "max_latency",
            Self::Target => "latency_target",
            Self::TargetMissed => "latency_target_missed",
            Self::Steady => "steadystate",
            Self::Full => "full",
            Self::Stopped => "stopped",
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

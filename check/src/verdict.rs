//! Failures of a history.

use machine::time::Ps;
use std::fmt;

/// The three ways to fail. Each has its exit code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Something that must come did not, within its bound: a completion, an interrupt, the end of a wait.
    Liveness,
    /// Something happened that must not.
    Correctness,
    /// Code under test panicked, or an assertion of the machine's did.
    Crash,
}

impl Kind {
    /// 3 for correctness, 4 for liveness, 5 for a crash.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Correctness => 3,
            Self::Liveness => 4,
            Self::Crash => 5,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Liveness => "liveness",
            Self::Correctness => "correctness",
            Self::Crash => "crash",
        })
    }
}

/// A finding: which checker found it, and when.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The kind of failure.
    pub kind: Kind,
    /// The checker that found it.
    pub checker: &'static str,
    /// Simulated time since the machine was built.
    pub at: Ps,
    /// The description.
    pub text: String,
}

impl Failure {
    /// A failure found by `checker`.
    pub fn new(kind: Kind, checker: &'static str, at: Ps, text: impl Into<String>) -> Self {
        Self { kind, checker, at, text: text.into() }
    }

    /// True if the other is the same defect, as far as one can tell. A smaller history must show the same defect.
    pub fn is_like(&self, other: &Self) -> bool {
        self.kind == other.kind && self.checker == other.checker
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}) at {}: {}", self.kind, self.checker, self.at, self.text)
    }
}

/// Ends the history from code on a CPU of the machine, with a finding of the subject's own audit.
///
/// # Panics
/// Always; the runner catches and recognises the panic.
pub fn violate(checker: &'static str, text: impl Into<String>) -> ! {
    let at = Ps::from_ns(hal::Hal::now_ns(machine::SimHal));
    std::panic::panic_any(Failure::new(Kind::Correctness, checker, at, text));
}

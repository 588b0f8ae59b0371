//! Faults of a PC's hardware.

use super::accelerator::COMMAND_TIMEOUT_NS;
use crate::draw::Draw;
use crate::server::Path;
use crate::subject::{Single, Strikes, is_struck};
use machine::dsa::CommandTrouble;
use machine::fabric::tamper::Rates;
use machine::observe::Fact;
use machine::time::Ps;
use std::fmt;

/// A fault, for as long as its window lasts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PcFault {
    /// A drive's next entries are wrong in this way, after `after` right ones.
    Entry { drive: u32, wrong: WrongEntry, after: u64 },
    /// This many of a thousand messages of a drive meet this fate on their way.
    Tampered { drive: u32, act: Tampering, per_mille: u32 },
    /// A drive does nothing for this long. Its registers still read; afterwards it handles everything that came
    /// meanwhile.
    Silent { drive: u32, ns: u64 },
    /// A drive reports a fatal error.
    Fatal { drive: u32 },
    /// The ringing device storms, and no handler takes its interrupt.
    Storm { period_ns: u64 },
    /// A requester imitates a drive's messages.
    Stranger { drive: u32, vector: u32, interval_ns: u64 },
    /// Every invalidation takes this much longer.
    LateInvalidation { ns: u64 },
    /// The invalidation queue stops with an error at every descriptor: `again` each time that its driver clears the error, or once.
    FailedInvalidation { again: bool },
    /// A device completes an invalidation that nobody asked of it, once.
    WrongAnswer { requester: u32 },
    /// A function on the level-triggered pin does not release it.
    Stuck { function: u32 },
    /// A drive's controller registers read all ones, and writes to them are lost.
    Refused { drive: u32 },
    /// A drive's admin commands fail, or `once` the next one alone.
    AdminFails { drive: u32, once: bool },
    /// A drive's Abort commands get no answer, and are done only so much later.
    AbortsUnanswered { drive: u32, late_ns: u64 },
    /// No memory for devices is left.
    NoMemory,
    /// Something happens to the accelerator's commands.
    Command { trouble: CommandTrouble },
}

/// The fate of messages on their way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tampering {
    /// Its messages are lost.
    Drop,
    /// Its messages are late.
    Delay,
    /// Its messages arrive twice.
    Double,
    /// The next one overtakes them.
    Reorder,
    /// An earlier one arrives in their place.
    Stale,
    /// Its messages are repeated without end.
    Storm,
}

impl Tampering {
    /// How many messages of a thousand meet it.
    pub(super) fn rate(self, rates: &mut Rates) -> &mut u32 {
        match self {
            Self::Drop => &mut rates.drop,
            Self::Delay => &mut rates.delay,
            Self::Double => &mut rates.double,
            Self::Reorder => &mut rates.swap,
            Self::Stale => &mut rates.redirect,
            Self::Storm => &mut rates.storm,
        }
    }
}

/// A defect of a completion entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WrongEntry {
    /// A command id that the driver did not use.
    UnknownCommand,
    /// It is posted twice.
    Twice,
    /// The phase of the previous pass.
    WrongPhase,
    /// A submission queue that does not exist.
    UnknownQueue,
}

/// The kinds of fault that a machine with this delivery can have.
pub(super) fn kinds(delivery: Path) -> &'static [&'static str] {
    match delivery {
        Path::Plain => &KINDS[..KINDS.len() - 4],
        _ => KINDS,
    }
}

const KINDS: &[&str] = &[
    "unknown-command",
    "completed-twice",
    "wrong-phase",
    "unknown-queue",
    "message-dropped",
    "message-delayed",
    "message-doubled",
    "message-reordered",
    "message-stale",
    "message-storm",
    "device-silent",
    "device-fatal",
    "storm",
    "level-stuck",
    "register-refused",
    "admin-fails",
    "abort-unanswered",
    "no-memory",
    "accelerator-fails",
    "accelerator-late",
    // Only with remapping.
    "stranger",
    "invalidation-late",
    "invalidation-fails",
    "answer-wrong",
];

/// Faults that strike once. The drive is the only one of the small machine.
pub(super) fn singles(delivery: Path) -> Vec<Single<PcFault>> {
    let drive = 0;
    let next = |kind, fault| Single { kind, fault, strikes: Strikes::Next };
    let twice = |kind, fault| Single { kind, fault, strikes: Strikes::Times(2) };
    let message = |kind, act| next(kind, PcFault::Tampered { drive, act, per_mille: 1_000 });
    let entry = |kind, wrong| next(kind, PcFault::Entry { drive, wrong, after: 1 });
    let silent = |ns| PcFault::Silent { drive, ns };
    let mut all = vec![
        entry("unknown-command", WrongEntry::UnknownCommand),
        entry("completed-twice", WrongEntry::Twice),
        entry("wrong-phase", WrongEntry::WrongPhase),
        entry("unknown-queue", WrongEntry::UnknownQueue),
        message("message-dropped", Tampering::Drop),
        message("message-delayed", Tampering::Delay),
        message("message-doubled", Tampering::Double),
        message("message-reordered", Tampering::Reorder),
        message("message-stale", Tampering::Stale),
        Single { kind: "device-silent", fault: silent(20_000), strikes: Strikes::NextOf(silent(ENDLESS_NS)) },
        next("device-fatal", PcFault::Fatal { drive }),
        next("register-refused", PcFault::Refused { drive }),
        twice("register-refused-twice", PcFault::Refused { drive }),
        next("admin-fails", PcFault::AdminFails { drive, once: true }),
        twice("admin-fails-twice", PcFault::AdminFails { drive, once: false }),
        next("abort-unanswered", PcFault::AbortsUnanswered { drive, late_ns: 200_000 }),
        next("no-memory", PcFault::NoMemory),
        next("accelerator-fails", PcFault::Command { trouble: CommandTrouble::Fails }),
        twice("accelerator-fails-twice", PcFault::Command { trouble: CommandTrouble::Fails }),
        next("accelerator-late", PcFault::Command { trouble: CommandTrouble::Late(COMMAND_LATE) }),
    ];
    if delivery != Path::Plain {
        let is_forgotten: fn(&Fact) -> bool = |fact| matches!(fact, Fact::Invalidated { .. });
        let fault = PcFault::WrongAnswer { requester: 1 };
        all.push(Single { kind: "answer-wrong", fault, strikes: Strikes::Behind(is_forgotten, is_struck) });
        all.push(next("invalidation-late", PcFault::LateInvalidation { ns: 5_000 }));
        let fails = |again| PcFault::FailedInvalidation { again };
        all.push(next("invalidation-fails", fails(true)));
        all.push(twice("invalidation-fails-again", fails(true)));
        // An invalidation has two descriptors, the second of which waits for the first.
        let times = |kind, times| Single { kind, fault: fails(false), strikes: Strikes::Times(times) };
        all.push(times("invalidation-and-undo-fail", 3));
        all.push(times("invalidation-and-next-fail", 5));
    }
    all
}

/// Longer than any history.
const ENDLESS_NS: u64 = 60_000_000_000;
/// A command takes longer than its driver waits, and the next one waits too.
const COMMAND_LATE: Ps = Ps::from_ns(COMMAND_TIMEOUT_NS + COMMAND_TIMEOUT_NS / 4);

impl PcFault {
    pub(super) fn draw(kind: &str, draw: &mut Draw) -> Self {
        let (drive, after) = (draw.below(64) as u32, draw.time_ns(1, 64));
        let entry = |wrong| Self::Entry { drive, wrong, after };
        let per_mille = draw.time_ns(20, 1000) as u32;
        let tampered = |act| Self::Tampered { drive, act, per_mille };
        match kind {
            "unknown-command" => entry(WrongEntry::UnknownCommand),
            "completed-twice" => entry(WrongEntry::Twice),
            "wrong-phase" => entry(WrongEntry::WrongPhase),
            "unknown-queue" => entry(WrongEntry::UnknownQueue),
            "message-dropped" => tampered(Tampering::Drop),
            "message-delayed" => tampered(Tampering::Delay),
            "message-doubled" => tampered(Tampering::Double),
            "message-reordered" => tampered(Tampering::Reorder),
            "message-stale" => tampered(Tampering::Stale),
            "message-storm" => tampered(Tampering::Storm),
            "device-silent" => Self::Silent { drive, ns: draw.time_ns(1_000, 500_000) },
            "device-fatal" => Self::Fatal { drive },
            "storm" => Self::Storm { period_ns: draw.time_ns(400, 1_500) },
            "invalidation-late" => Self::LateInvalidation { ns: draw.time_ns(200, 5_000) },
            "invalidation-fails" => Self::FailedInvalidation { again: true },
            "answer-wrong" => Self::WrongAnswer { requester: draw.below(0x1_0000) as u32 },
            "level-stuck" => Self::Stuck { function: draw.below(2) as u32 },
            "register-refused" => Self::Refused { drive },
            "admin-fails" => Self::AdminFails { drive, once: false },
            "abort-unanswered" => Self::AbortsUnanswered { drive, late_ns: draw.time_ns(20_000, 500_000) },
            "no-memory" => Self::NoMemory,
            "accelerator-fails" => Self::Command { trouble: CommandTrouble::Fails },
            "accelerator-late" => Self::Command { trouble: CommandTrouble::Late(COMMAND_LATE) },
            _ => Self::Stranger { drive, vector: draw.below(64) as u32, interval_ns: draw.time_ns(500, 20_000) },
        }
    }

    /// It may lose interrupts or commands; then only a driver's own clock finds them.
    pub(super) fn is_lossy(&self) -> bool {
        match self {
            Self::Entry { wrong, .. } => *wrong != WrongEntry::Twice,
            Self::Tampered { act, .. } => matches!(act, Tampering::Drop | Tampering::Stale),
            Self::Silent { .. } | Self::Fatal { .. } | Self::Refused { .. } => true,
            Self::Storm { .. } | Self::Stranger { .. } | Self::Stuck { .. } | Self::WrongAnswer { .. } => false,
            Self::LateInvalidation { .. } | Self::FailedInvalidation { .. } => false,
            Self::AdminFails { .. } | Self::AbortsUnanswered { .. } | Self::NoMemory | Self::Command { .. } => false,
        }
    }

    /// Messages go where they were sent, when they were sent, once.
    pub(super) fn keeps_messages(&self) -> bool {
        match self {
            Self::LateInvalidation { .. } | Self::FailedInvalidation { .. } | Self::NoMemory => true,
            Self::Command { .. } | Self::WrongAnswer { .. } => true,
            Self::Entry { .. } | Self::AdminFails { .. } | Self::AbortsUnanswered { .. } | Self::Stuck { .. } => true,
            Self::Tampered { .. } | Self::Silent { .. } | Self::Fatal { .. } | Self::Refused { .. } => false,
            Self::Storm { .. } | Self::Stranger { .. } => false,
        }
    }

    /// An Abort without an answer, or one that is refused, may keep an id for ever: only a queue that is full shows it.
    pub(super) fn may_keep_ids(&self) -> bool {
        matches!(self, Self::AbortsUnanswered { .. } | Self::AdminFails { .. })
    }

    /// Old messages may come: a silent drive takes up the new message of its vector only later.
    pub(super) fn is_stale(&self) -> bool {
        matches!(self, Self::Tampered { act: Tampering::Stale, .. } | Self::Silent { .. })
    }

    /// Register writes may take effect only later.
    pub(super) fn is_mute(&self) -> bool {
        matches!(self, Self::Silent { .. })
    }

    /// Operations of the stack may fail because of it.
    pub(super) fn breaks_operations(&self) -> bool {
        self.lies()
            || matches!(
                self,
                Self::FailedInvalidation { .. }
                    | Self::AdminFails { .. }
                    | Self::AbortsUnanswered { .. }
                    | Self::NoMemory
                    | Self::Command { .. }
                    | Self::WrongAnswer { .. }
            )
    }

    /// It strikes the accelerator's commands.
    pub(super) fn is_command(&self) -> bool {
        matches!(self, Self::Command { .. })
    }

    /// It matters only to commands that are in flight for longer than their driver waits for an Abort.
    pub(super) fn outlasts_patience(&self) -> bool {
        matches!(self, Self::AbortsUnanswered { .. })
    }

    /// It may strike what a driver does to undo what it had begun. Then only a reset of the drive helps.
    pub(super) fn keeps_from_undoing(&self) -> bool {
        self.lies() || matches!(self, Self::AdminFails { once: false, .. } | Self::AbortsUnanswered { .. })
    }

    /// A drive's reports on commands cannot be trusted.
    pub(super) fn lies(&self) -> bool {
        self.liar().is_some()
    }

    /// The drive whose reports cannot be trusted.
    pub(super) fn liar(&self) -> Option<u32> {
        match self {
            Self::Entry { drive, .. }
            | Self::Silent { drive, .. }
            | Self::Fatal { drive }
            | Self::Refused { drive } => Some(*drive),
            _ => None,
        }
    }
}

impl fmt::Display for PcFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entry { drive, wrong, after } => {
                let what = match wrong {
                    WrongEntry::UnknownCommand => "names a command that was never submitted",
                    WrongEntry::Twice => "is posted twice",
                    WrongEntry::WrongPhase => "has the wrong phase",
                    WrongEntry::UnknownQueue => "names a queue that does not exist",
                };
                write!(f, "the {after}th next entry of drive {drive} {what}")
            }
            Self::Tampered { drive, act, per_mille } => {
                let what = match act {
                    Tampering::Drop => "are lost",
                    Tampering::Delay => "are late",
                    Tampering::Double => "arrive twice",
                    Tampering::Reorder => "are overtaken",
                    Tampering::Stale => "are replaced by an earlier one",
                    Tampering::Storm => "are repeated",
                };
                write!(f, "{per_mille} of 1000 messages of drive {drive} {what}")
            }
            Self::Silent { drive, ns } => write!(f, "drive {drive} is silent for {ns} ns"),
            Self::LateInvalidation { ns } => write!(f, "every invalidation takes {ns} ns longer"),
            Self::FailedInvalidation { again: true } => write!(f, "the invalidation queue stops with an error"),
            Self::FailedInvalidation { again: false } => {
                write!(f, "the invalidation queue refuses each descriptor once")
            }
            Self::Fatal { drive } => write!(f, "drive {drive} fails"),
            Self::Storm { period_ns } => write!(f, "the ringing device storms, a message every {period_ns} ns"),
            Self::Stranger { drive, vector, interval_ns } => {
                write!(f, "a stranger sends vector {vector} of drive {drive}, every {interval_ns} ns")
            }
            Self::Refused { drive } => write!(f, "drive {drive} refuses accesses to its registers"),
            Self::AdminFails { drive, once: true } => write!(f, "the next admin command of drive {drive} fails"),
            Self::AdminFails { drive, once: false } => write!(f, "admin commands of drive {drive} fail"),
            Self::AbortsUnanswered { drive, late_ns } => {
                write!(f, "drive {drive} answers no Abort, and does it {late_ns} ns later")
            }
            Self::NoMemory => write!(f, "there is no memory for devices"),
            Self::Command { trouble: CommandTrouble::Late(late) } => {
                write!(f, "the accelerator's commands take {late} longer")
            }
            Self::Command { .. } => write!(f, "the accelerator's commands fail"),
            Self::WrongAnswer { requester } => {
                write!(f, "requester {requester:#06x} completes an invalidation that nobody asked of it")
            }
            Self::Stuck { function } => write!(f, "function {function} does not let go of the level line"),
        }
    }
}

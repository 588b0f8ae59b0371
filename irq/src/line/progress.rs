//! The progress of a line: its handlers run, or threads hold it back.

/// Why a line cannot take its next interrupt yet.
#[derive(Clone, Copy)]
pub(crate) enum Progress {
    /// The line is idle.
    Idle,
    /// Its handlers run.
    Running(Hold),
    /// Its handlers have run; the line is held back until its threads are done.
    Held(End),
}

/// The operations that remain once a line's handlers have run.
#[derive(Clone, Copy)]
pub(crate) struct Hold {
    /// The flow holds the line back until its handlers and threads are done: the line may not be unmasked.
    pub(crate) back: bool,
    pub(crate) end: End,
}

/// Whether the controller still waits for the eoi of an acknowledged interrupt. Kept apart from the mask: masking is
/// idempotent, ack and eoi are not.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Given,
    Owed,
}

impl Progress {
    #[inline]
    pub(crate) fn is_running(self) -> bool {
        matches!(self, Self::Running(_))
    }

    /// True while the line may not be unmasked.
    #[inline]
    pub(crate) fn holds_back(self) -> bool {
        matches!(self, Self::Held(_) | Self::Running(Hold { back: true, .. }))
    }

    /// True while the eoi of an interrupt is owed.
    #[inline]
    pub(crate) fn owes_end(self) -> bool {
        matches!(self, Self::Held(End::Owed) | Self::Running(Hold { end: End::Owed, .. }))
    }

    /// The handlers begin to run. Whatever an earlier interrupt left to its threads is added to `hold`.
    #[inline]
    pub(crate) fn start(&mut self, hold: Hold) {
        if let Self::Idle = self {
            *self = Self::Running(hold);
        } else {
            self.start_on_top(hold);
        }
    }

    #[cold]
    fn start_on_top(&mut self, hold: Hold) {
        let end = if self.owes_end() { End::Owed } else { hold.end };
        *self = Self::Running(Hold { back: hold.back || self.holds_back(), end });
    }

    /// The handlers have run. The line stays held until the flow decides otherwise. Returns true if the line is held
    /// back.
    #[inline]
    pub(crate) fn stop(&mut self) -> bool {
        if let Self::Running(Hold { back: false, .. }) = self {
            *self = Self::Idle;
            return false;
        }
        let back = self.holds_back();
        *self = match *self {
            Self::Running(Hold { end, .. }) => Self::Held(end),
            Self::Idle | Self::Held(_) => Self::Idle,
        };
        back
    }
}

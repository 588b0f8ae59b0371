//! Marks that harness code adds to the observer's stream, beside the facts of the hardware: the language between a
//! subject and the checkers. On a host thread without a machine they do nothing.

/// The meaning of a [`Fact::Mark`](machine::observe::Fact::Mark).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Mark {
    /// A command was given to the code under test.
    Submitted,
    /// It came back with success.
    Completed,
    /// It came back with an error, and a disruption of this command explains the error.
    Failed,
    /// It was refused and will not complete.
    Refused,
    /// A line has a handler from now on.
    LineOpened,
    /// The last handler of a line was removed: none may run.
    LineClosed,
    /// A handler of the line begins.
    HandlerEntered,
    /// It returns.
    HandlerLeft,
    /// The driver's own clock found a completion or event that no interrupt had announced.
    TimedOut,
    /// The line with this entry of the remapping table is about to be freed.
    EntryFreed,
    /// A fault of the harness's own devices did something.
    Struck,
}

impl Mark {
    const ALL: [Self; 11] = [
        Self::Submitted,
        Self::Completed,
        Self::Failed,
        Self::Refused,
        Self::LineOpened,
        Self::LineClosed,
        Self::HandlerEntered,
        Self::HandlerLeft,
        Self::TimedOut,
        Self::EntryFreed,
        Self::Struck,
    ];

    /// The mark with this number, if it is one of ours.
    pub fn from_tag(tag: u32) -> Option<Self> {
        Self::ALL.get(tag as usize).copied()
    }

    /// Records the mark for the command or line with this number.
    pub fn of(self, number: u64) {
        machine::mark(self as u32, number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mark_is_found_by_its_number() {
        for mark in Mark::ALL {
            assert_eq!(Mark::from_tag(mark as u32), Some(mark));
        }
        assert_eq!(Mark::from_tag(99), None);
    }
}

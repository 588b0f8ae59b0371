//! What harness code says into the observer's stream, beside what the hardware does: the words between a subject and
//! the checkers. On a host thread without a machine they say nothing.

use machine::observe;

/// What a [`Fact::Mark`](machine::observe::Fact::Mark) says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Mark {
    /// A command was given to the code under test.
    Submitted,
    /// It came back with success.
    Completed,
    /// It came back with an error that something which happened to it explains.
    Failed,
    /// It was refused: nothing will come back.
    Refused,
    /// A line has a handler from now on.
    LineOpened,
    /// The last handler of a line was removed: none may run.
    LineClosed,
    /// A handler of the line begins.
    HandlerEntered,
    /// It returns.
    HandlerLeft,
    /// The driver found by its own clock what no interrupt had told it.
    TimedOut,
    /// The line with this entry of the remapping table is about to be freed.
    EntryFreed,
}

impl Mark {
    const ALL: [Self; 10] = [
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
    ];

    /// The mark with this number, if it is one of ours.
    pub fn from_tag(tag: u32) -> Option<Self> {
        Self::ALL.get(tag as usize).copied()
    }

    /// Says it, of a command or line with this number.
    pub fn of(self, number: u64) {
        observe::mark(self as u32, number);
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

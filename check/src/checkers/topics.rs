//! What facts are about: each goes only to the checkers that hear it. Most checkers hear few, and there are twenty of them.

use machine::observe::Fact;

/// What a fact is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Topic {
    /// An entry that the harness adds.
    Mark,
    /// Named work of a CPU.
    Work,
    /// A CPU takes an interrupt.
    Taken,
    /// It ends at the CPU's interrupt controller.
    Ended,
    /// Its entry returns.
    Returned,
    /// A vector is on its way to a CPU, or arrives.
    Raised,
    /// A CPU halts, or is woken.
    Halt,
    /// A message on its way.
    Message,
    /// An IOMMU's answer to a message.
    Remapping,
    /// An entry of a table of interrupts is changed, or forgotten.
    Entry,
    /// An interrupt of a GIC.
    Gic,
    /// A device and its queues.
    Device,
    /// A CPU is declared offline or online.
    Declared,
    /// Memory is given back.
    Memory,
    /// Anything else: what the harness did to the machine.
    Rest,
}

impl Topic {
    /// All of them, in order.
    pub const ALL: [Self; 15] = [
        Self::Mark,
        Self::Work,
        Self::Taken,
        Self::Ended,
        Self::Returned,
        Self::Raised,
        Self::Halt,
        Self::Message,
        Self::Remapping,
        Self::Entry,
        Self::Gic,
        Self::Device,
        Self::Declared,
        Self::Memory,
        Self::Rest,
    ];

    /// The topic of a fact.
    pub fn of(fact: &Fact) -> Self {
        match fact {
            Fact::Mark { .. } => Self::Mark,
            Fact::Worked { .. } => Self::Work,
            Fact::Accepted { .. } | Fact::Exception { .. } => Self::Taken,
            Fact::Ended { .. } | Fact::IdleEoi { .. } => Self::Ended,
            Fact::Returned { .. } => Self::Returned,
            Fact::Raised { .. } | Fact::IpiSent { .. } => Self::Raised,
            Fact::Halted { .. } | Fact::Woken { .. } => Self::Halt,
            Fact::Signalled { .. } | Fact::Message { .. } | Fact::MessageMerged { .. } => Self::Message,
            Fact::Remapped { .. } | Fact::Plain { .. } | Fact::Posted { .. } | Fact::Blocked { .. } => Self::Remapping,
            Fact::Redirected { .. } | Fact::Invalidated { .. } | Fact::Stored { .. } => Self::Entry,
            Fact::GicPending { .. }
            | Fact::GicAcknowledged { .. }
            | Fact::GicDropped { .. }
            | Fact::GicDeactivated { .. } => Self::Gic,
            Fact::Doorbell { .. }
            | Fact::Fetched { .. }
            | Fact::EntryPosted { .. }
            | Fact::EntryCorrected { .. }
            | Fact::EntryLost { .. } => Self::Device,
            Fact::Declared { .. } => Self::Declared,
            Fact::GivenBack { .. } => Self::Memory,
            _ => Self::Rest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_numbered_in_order() {
        assert!(Topic::ALL.iter().enumerate().all(|(number, topic)| *topic as usize == number));
    }
}

//! Without faults, a message is refused only if its line was just freed.
//!
//! A message that its device sent before it was masked may wait at the IOMMU when the entry is removed. It then meets
//! the present entry (VT-d, "Interrupt-Remapping Hardware Operation") and is recorded. The line is gone, so nobody
//! misses the message.

use super::{Checker, Findings, Topic};
use crate::mark::Mark;
use machine::observe::Fact;
use machine::time::Ps;
use std::collections::BTreeMap;

const NAME: &str = "refusals";
/// VT-d, "Interrupt Remapping Fault Conditions": the entry is not present.
const NOT_PRESENT: u8 = 0x22;

/// Entries whose lines were freed.
pub struct Refusals {
    bound: Ps,
    freed: BTreeMap<u64, Ps>,
}

impl Refusals {
    /// Messages of a freed line arrive within `bound` after it was freed.
    pub fn new(bound: Ps) -> Self {
        Self { bound, freed: BTreeMap::new() }
    }
}

impl Checker for Refusals {
    fn topics(&self) -> &'static [Topic] {
        &[Topic::Mark, Topic::Remapping]
    }

    fn hear(&mut self, at: Ps, fact: &Fact, findings: &mut Findings) {
        match *fact {
            Fact::Mark { tag, value, .. } if Mark::from_tag(tag) == Some(Mark::EntryFreed) => {
                self.freed.insert(value, at);
            }
            Fact::Blocked { requester, index, reason, .. } => {
                let freed = self.freed.get(&index.into());
                if reason != NOT_PRESENT || freed.is_none_or(|&freed| at.saturating_sub(freed) > self.bound) {
                    let text = format!("a message of requester {requester:#06x} by entry {index} was refused");
                    findings.wrong(NAME, at, format!("{text} (reason {reason:#x}), and no fault explains it"));
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{mark, says};
    use super::*;

    #[test]
    fn only_what_a_freed_line_sent_last_is_refused() {
        let checker = || Refusals::new(Ps::from_ns(1_500));
        let refused = |reason| Fact::Blocked { requester: 0x200, index: 4, reason, recorded: true };
        let freed = mark(Mark::EntryFreed, 4);
        assert!(says(checker(), &[freed, refused(NOT_PRESENT)]).is_empty());
        for wrong in [
            vec![refused(NOT_PRESENT)],
            vec![freed, refused(0x26)],
            vec![freed, freed, mark(Mark::EntryFreed, 5), refused(0x22)],
        ] {
            assert_eq!(says(checker(), &wrong).len(), 1);
        }
    }
}

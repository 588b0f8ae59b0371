//! An entry of an I/O APIC is open only while it is whole.
//!
//! Its two halves are written one after the other (82093AA, "I/O Redirection Table Registers"; Intel SDM 3 leaves the order to software),
//! and its pin may rise between the writes. An entry that is open then sends the old vector to the new CPU, or the new one to
//! the old CPU.

use super::{Checker, Findings, Topic};
use machine::observe::Fact;
use machine::time::Ps;

const NAME: &str = "redirections";
/// Bits that do not say what is sent where: delivery status, remote IRR, mask.
const STATE: u64 = 1 << 12 | 1 << 14 | 1 << 16;
const MASKED: u64 = 1 << 16;

/// Every write to an entry.
pub struct Redirections;

impl Checker for Redirections {
    fn topics(&self) -> &'static [Topic] {
        &[Topic::Entry]
    }

    fn hear(&mut self, at: Ps, fact: &Fact, findings: &mut Findings) {
        let Fact::Redirected { pin, old, new } = *fact else { return };
        if (old | new) & MASKED == 0 && (old ^ new) & !STATE != 0 {
            findings.wrong(
                NAME,
                at,
                format!("the entry of pin {pin} is open and changes: {old:#018x}, now {new:#018x}"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::says;
    use super::*;

    #[test]
    fn an_open_entry_changes_its_state_alone() {
        let write = |old, new| Fact::Redirected { pin: 3, old, new };
        let (open, other) = (1 << 56 | 0x31_u64, 2 << 56 | 0x31_u64);
        let right = [write(open, open | MASKED), write(open | MASKED, other | MASKED), write(other | MASKED, other)];
        assert!(says(Redirections, &right).is_empty());
        assert!(says(Redirections, &[write(open, open | 1 << 14)]).is_empty());
        let found = says(Redirections, &[write(open, other)]);
        assert!(found[0].starts_with("the entry of pin 3 is open and changes"), "{found:?}");
    }
}

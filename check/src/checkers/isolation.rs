//! Messages of a hostile requester reach no CPU, and are recorded.

use super::{Checker, Findings, Topic};
use core::fmt::Display;
use machine::observe::Fact;
use machine::time::Ps;

const NAME: &str = "isolation";

/// Requesters that may not interrupt: software made no entry for them.
pub struct Isolation {
    hostile: Vec<u16>,
}

impl Isolation {
    /// Checks these requesters.
    pub fn new(hostile: &[u16]) -> Self {
        Self { hostile: hostile.to_vec() }
    }

    fn let_in(&self, at: Ps, requester: u16, text: impl Display, findings: &mut Findings) {
        if self.hostile.contains(&requester) {
            findings.wrong(NAME, at, format!("a message of requester {requester:#06x} was {text}"));
        }
    }
}

impl Checker for Isolation {
    fn topics(&self) -> &'static [Topic] {
        &[Topic::Remapping]
    }

    fn hear(&mut self, at: Ps, fact: &Fact, findings: &mut Findings) {
        match *fact {
            Fact::Remapped { requester, vector, destination, .. } => {
                self.let_in(at, requester, format_args!("remapped to vector {vector:#04x} of {destination}"), findings);
            }
            Fact::Plain { requester, vector, destination } => {
                self.let_in(
                    at,
                    requester,
                    format_args!("passed on to vector {vector:#04x} of {destination}"),
                    findings,
                );
            }
            Fact::Posted { requester, vector, .. } => {
                self.let_in(at, requester, format_args!("posted as vector {vector:#04x}"), findings);
            }
            Fact::Blocked { requester, reason, recorded, .. } => {
                findings.coverage.add(reason_name(reason), 1);
                if !recorded && self.hostile.contains(&requester) {
                    findings.wrong(NAME, at, format!("requester {requester:#06x} was refused without a record"));
                }
            }
            _ => {}
        }
    }
}

/// VT-d, "Interrupt Remapping Fault Conditions".
fn reason_name(reason: u8) -> &'static str {
    match reason {
        0x21 => "refused: index beyond the table",
        0x22 => "refused: entry not present",
        0x25 => "refused: compatibility format",
        0x26 => "refused: wrong requester",
        _ => "refused: another reason",
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::says;
    use super::*;

    #[test]
    fn a_stranger_is_refused_with_a_record_or_it_is_found() {
        let strangers = || Isolation::new(&[0x4300]);
        let refused = |recorded| Fact::Blocked { requester: 0x4300, index: 3, reason: 0x26, recorded };
        assert!(says(strangers(), &[refused(true)]).is_empty());
        assert_eq!(says(strangers(), &[refused(false)]), ["requester 0x4300 was refused without a record"]);
        let through = |requester| Fact::Remapped { requester, index: 3, destination: 1, vector: 0x31 };
        assert!(says(strangers(), &[through(0x100)]).is_empty());
        assert_eq!(
            says(strangers(), &[through(0x4300)]),
            ["a message of requester 0x4300 was remapped to vector 0x31 of 1"]
        );
    }
}

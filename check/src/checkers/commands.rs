//! Every command completes exactly once.

use super::{Checker, Findings, Topic};
use crate::mark::Mark;
use machine::observe::Fact;
use machine::time::Ps;
use std::collections::BTreeMap;

const NAME: &str = "commands";

/// The subject numbers its commands, and uses each number once.
#[derive(Default)]
pub struct Commands {
    /// Commands in flight, with the time of their submission.
    in_flight: BTreeMap<u64, Ps>,
}

impl Commands {
    fn complete(&mut self, at: Ps, number: u64, findings: &mut Findings) {
        if self.in_flight.remove(&number).is_none() {
            findings.wrong(NAME, at, format!("command {number:#x} completed, and was not in flight"));
        }
    }
}

impl Checker for Commands {
    fn topics(&self) -> &'static [Topic] {
        &[Topic::Mark]
    }

    fn hear(&mut self, at: Ps, fact: &Fact, findings: &mut Findings) {
        let Fact::Mark { tag, value, .. } = *fact else { return };
        match Mark::from_tag(tag) {
            Some(Mark::Submitted) if self.in_flight.insert(value, at).is_some() => {
                findings.wrong(NAME, at, format!("command {value:#x} was given twice"));
            }
            Some(Mark::Refused) => _ = self.in_flight.remove(&value),
            Some(Mark::Completed) => self.complete(at, value, findings),
            Some(Mark::Failed) => {
                findings.coverage.add("command: ended with an error", 1);
                self.complete(at, value, findings);
            }
            _ => {}
        }
    }

    fn end(&mut self, at: Ps, findings: &mut Findings) {
        if let Some((number, since)) = self.in_flight.first_key_value() {
            let count = self.in_flight.len();
            let text = format!("{count} commands never completed, the first {number:#x}, given at {since}");
            findings.late(NAME, at, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{mark, says};
    use super::*;

    #[test]
    fn once_is_right_and_twice_or_never_is_not() {
        let (given, done) = (|number| mark(Mark::Submitted, number), |number| mark(Mark::Completed, number));
        assert!(says(Commands::default(), &[given(1), given(2), done(2), mark(Mark::Failed, 1)]).is_empty());
        assert_eq!(
            says(Commands::default(), &[given(1), done(1), done(1)]),
            ["command 0x1 completed, and was not in flight"]
        );
        let lost = says(Commands::default(), &[given(1), given(2), done(1)]);
        assert!(lost[0].starts_with("1 commands never completed, the first 0x2"), "{lost:?}");
    }
}

//! An unhandled storm is contained: the line is masked for a while.
//!
//! A core looks at a line once per burst. It throttles the line if more interrupts of the burst than allowed found
//! nothing ([`StormConfig`]). The checker does not know where bursts begin. But as many interrupts as two bursts have
//! always contain one whole burst and the interrupt after it. If too few of them were handled, there must be a pause
//! among them; otherwise nobody stops the storm.

use super::{Checker, Findings, Topic};
use crate::gic::source::{ANSWERED, answer_of};
use irq::StormConfig;
use machine::observe::Fact;
use machine::time::Ps;
use std::collections::{BTreeMap, VecDeque};

const NAME: &str = "containment";

/// Checks the lines of a core with these bounds. Their handlers report whether they found work.
pub struct Containment {
    storm: StormConfig,
    /// By handler: since the last pause, when each interrupt was answered, and whether it was handled.
    lines: BTreeMap<u64, VecDeque<(Ps, bool)>>,
}

impl Containment {
    /// No interrupt has come yet.
    pub fn new(storm: StormConfig) -> Self {
        Self { storm, lines: BTreeMap::new() }
    }
}

impl Checker for Containment {
    fn topics(&self) -> &'static [Topic] {
        &[Topic::Mark]
    }

    fn hear(&mut self, at: Ps, fact: &Fact, findings: &mut Findings) {
        let Fact::Mark { tag: ANSWERED, value, .. } = *fact else { return };
        let (handler, handled) = answer_of(value);
        let recent = self.lines.entry(handler).or_default();
        let pause = Ps::from_ns(self.storm.throttle_ns);
        if recent.back().is_some_and(|&(last, _)| last + pause <= at) {
            recent.clear();
        }
        recent.push_back((at, handled));
        let most = 2 * self.storm.burst as usize;
        if recent.len() > most {
            recent.pop_front();
        }
        let found = recent.iter().filter(|(_, handled)| *handled).count();
        if recent.len() == most && found + (self.storm.unhandled_max as usize) < self.storm.burst as usize {
            let since = recent[0].0;
            let text = format!("{found} of {most} interrupts of handler {handler} since {since} found something");
            findings.wrong(NAME, at, format!("{text}, and its line was never masked for {pause}"));
            recent.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::says;
    use super::*;
    use crate::gic::source::answer;

    fn said(answers: impl Iterator<Item = bool>, throttle_ns: u64) -> Vec<String> {
        let storm = StormConfig { burst: 4, burst_ns_min: 0, unhandled_max: 2, throttle_ns };
        let mark = |handled| Fact::Mark { cpu: 0, tag: ANSWERED, value: answer(5, handled) };
        says(Containment::new(storm), &answers.map(mark).collect::<Vec<_>>())
    }

    #[test]
    fn a_storm_pauses() {
        let wrong = "1 of 8 interrupts of handler 5 since 1000.000 ns found something, and its line was never masked for \
                     1500.000 ns";
        assert_eq!(said((0..8).map(|number| number == 3), 1_500), [wrong]);
        assert!(said((0..7).map(|_| false), 1_500).is_empty(), "the pause may be yet to come");
        assert!(said((0..40).map(|number| number % 3 == 0), 1_500).is_empty(), "half of each burst is handled");
        assert!(said((0..40).map(|_| false), 1_000).is_empty(), "each pauses");
    }
}

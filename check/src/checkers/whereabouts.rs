//! A line that has moved is served where it is.
//!
//! A CPU whose handler of a line runs when the next interrupt of it comes, on whatever CPU, runs that handler once more. If the line
//! has moved meanwhile, its new CPU has to do that ([`irq::IrqCore::set_affinity`]): else a device that is faster than its handler keeps
//! the old CPU for as long as it likes.
//!
//! A repetition that was decided before the move may follow it, and so may interrupts that were under way to the old CPU. So what is
//! wrong is a run on another CPU than the line's which no interrupt of that CPU began, behind another such run.

use super::truth::marks;
use super::{Checker, Findings, Topic};
use machine::observe::Fact;
use machine::time::Ps;
use std::collections::BTreeMap;

/// Runs in a row, none of them begun by an interrupt, that are wrong.
const REPEATED: u32 = 2;

/// Where a line was moved.
struct Place {
    cpu: u32,
    /// Runs on another CPU since one that an interrupt may have begun.
    repeated: u32,
    /// The CPU of the last run, and the interrupts that it had taken by then.
    seen: Option<(u32, u64)>,
}

/// Lines that were moved, until the core moves lines by itself.
#[derive(Default)]
pub struct Whereabouts {
    lines: BTreeMap<u16, Place>,
    /// Interrupts that each CPU took.
    taken: Vec<u64>,
}

impl Whereabouts {
    fn taken(&mut self, cpu: u32) -> &mut u64 {
        let index = cpu as usize;
        if self.taken.len() <= index {
            self.taken.resize(index + 1, 0);
        }
        &mut self.taken[index]
    }

    fn answered(&mut self, at: Ps, cpu: u32, line: u16, findings: &mut Findings) {
        let now = Some((cpu, *self.taken(cpu)));
        let Some(place) = self.lines.get_mut(&line) else { return };
        let is_repetition = place.cpu != cpu && place.seen == now;
        place.repeated = if is_repetition { place.repeated + 1 } else { 0 };
        place.seen = now;
        if place.repeated >= REPEATED {
            let text = format!(
                "line {line} has moved to CPU {}, and its handler runs again and again on CPU {cpu}",
                place.cpu
            );
            findings.wrong("whereabouts", at, text);
        }
    }
}

impl Checker for Whereabouts {
    fn topics(&self) -> &'static [Topic] {
        &[Topic::Taken, Topic::Declared, Topic::Mark]
    }

    fn hear(&mut self, at: Ps, fact: &Fact, findings: &mut Findings) {
        match *fact {
            Fact::Accepted { cpu, .. } | Fact::Exception { cpu, .. } => *self.taken(cpu) += 1,
            Fact::Declared { .. } => self.lines.clear(),
            Fact::Mark { cpu, tag, value } => match marks::whereabouts(tag, value) {
                Some(Some((line, cpu))) => {
                    self.lines.insert(line, Place { cpu, repeated: 0, seen: None });
                }
                Some(None) => self.lines.clear(),
                None => {
                    if let Some(line) = marks::answered_line(tag, value) {
                        self.answered(at, cpu, line, findings);
                    }
                }
            },
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::says;
    use super::*;

    fn mark(cpu: u32, tag: u32, value: u64) -> Fact {
        Fact::Mark { cpu, tag, value }
    }

    #[test]
    fn a_line_that_has_moved_is_not_served_for_ever_where_it_was() {
        let (moved, answers) = (mark(0, 0x310, 5 << 48 | 2), |cpu| mark(cpu, 0x300, 5 << 48 | 1));
        let taken = |cpu| Fact::Accepted { cpu, vector: 0x41 };
        // The run that was under way, and one that was decided before.
        assert!(says(Whereabouts::default(), &[taken(1), moved, answers(1), answers(1)]).is_empty());
        let late = [taken(1), moved, answers(1), taken(1), answers(1), taken(1), answers(1)];
        assert!(says(Whereabouts::default(), &late).is_empty(), "interrupts under way");
        let there = [taken(1), moved, answers(1), taken(2), answers(2), answers(2), answers(2)];
        assert!(says(Whereabouts::default(), &there).is_empty(), "where it is");
        let stays = [taken(1), moved, answers(1), answers(1), answers(1)];
        let found = says(Whereabouts::default(), &stays);
        assert_eq!(found, ["line 5 has moved to CPU 2, and its handler runs again and again on CPU 1"]);
        let astir = mark(0, 0x311, 0);
        assert!(says(Whereabouts::default(), &[taken(1), moved, astir, answers(1), answers(1), answers(1)]).is_empty());
    }
}

//! No handler of a freed line runs.

use super::{Checker, Findings, Topic};
use crate::mark::Mark;
use hal::Work;
use machine::observe::Fact;
use machine::time::Ps;
use std::collections::BTreeMap;

const NAME: &str = "handlers";

/// The subject numbers its lines. A line that was never opened is unknown, and its handlers may not run.
#[derive(Default)]
pub struct Handlers {
    lines: BTreeMap<u64, Line>,
}

#[derive(Default)]
struct Line {
    open: bool,
    running: u32,
}

impl Checker for Handlers {
    fn topics(&self) -> &'static [Topic] {
        &[Topic::Work, Topic::Mark]
    }

    fn hear(&mut self, at: Ps, fact: &Fact, findings: &mut Findings) {
        if let Fact::Worked { work: Work::ThreadWake, count, .. } = *fact {
            findings.coverage.add("line: thread woken", count.into());
        }
        let Fact::Mark { tag, value, cpu } = *fact else { return };
        let Some(mark) = Mark::from_tag(tag) else { return };
        match mark {
            Mark::LineOpened => self.lines.entry(value).or_default().open = true,
            Mark::LineClosed => {
                let line = self.lines.entry(value).or_default();
                line.open = false;
                if line.running > 0 {
                    findings.wrong(NAME, at, format!("line {value} was freed while its handler runs"));
                }
            }
            Mark::HandlerEntered => {
                let line = self.lines.entry(value).or_default();
                line.running += 1;
                if !line.open {
                    findings.wrong(NAME, at, format!("a handler of line {value} ran on CPU {cpu}, and it has none"));
                }
            }
            Mark::HandlerLeft => {
                let line = self.lines.entry(value).or_default();
                line.running = line.running.saturating_sub(1);
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
    fn a_handler_runs_only_while_its_line_is_open() {
        let [open, close, enter, leave] =
            [Mark::LineOpened, Mark::LineClosed, Mark::HandlerEntered, Mark::HandlerLeft].map(|kind| mark(kind, 5));
        assert!(says(Handlers::default(), &[open, enter, leave, close, open, enter, leave]).is_empty());
        assert_eq!(
            says(Handlers::default(), &[open, close, enter]),
            ["a handler of line 5 ran on CPU 0, and it has none"]
        );
        assert_eq!(says(Handlers::default(), &[open, enter, close]), ["line 5 was freed while its handler runs"]);
    }
}

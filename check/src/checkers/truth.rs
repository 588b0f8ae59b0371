//! The core's verdicts on a line are true: what it counts as unhandled was, what it throttled did storm, what stormed was
//! throttled, and each interrupt that it counts ran a handler or could not.
//!
//! Where it says that a line is delivered, there its handlers run in the last load.
//!
//! The harness marks the answer of every run of its handlers. From these the checker counts for itself, and compares when
//! the harness marks what the core claims: at rest, and when a line has lost its handler.
//!
//! The core looks at a line once per burst, and the time that it reads lies between the mark of the last answer and the next
//! thing that this CPU does for the core. So each burst lasts between two bounds. It must be a storm, or must not be, or, if
//! the limit lies between the bounds, may be. What must be one is not answered for as long as a throttle lasts.

mod line;
pub(crate) mod marks;

use super::{Checker, Findings, Topic};
use hal::Work;
use irq::StormConfig;
use line::Line;
use machine::observe::Fact;
use machine::time::Ps;
use marks::{Answer, Claim, Known, Told};

const NAME: &str = "truth";

/// The verdicts on all lines whose handlers are the harness's.
pub struct Truth {
    storm: StormConfig,
    /// Handlers run in threads, so their answers do not show how many interrupts there were.
    forced: bool,
    /// Messages of a line that was freed may arrive long after.
    faulty: bool,
    /// Faults may send messages where nobody expects them.
    may_stray: bool,
    /// By number.
    lines: Vec<Option<Line>>,
    /// Lines whose burst has ended, and where the core has yet to read the time: on which CPU, this deep in interrupts.
    closing: Vec<(u16, u32, u32)>,
    /// How deep each CPU is in interrupts.
    depths: Vec<u32>,
    /// CPUs went offline so often: each may have left a line pending without an interrupt of its own.
    offline: u64,
    /// Managers moved, disabled or resent lines, so an interrupt may have found its line unable to run.
    disturbed: bool,
    /// Lines were freed: what they sent last may find nobody.
    freed: bool,
}

impl Truth {
    /// Checks these lines, and all that are allocated from now on.
    pub(crate) fn new(
        storm: StormConfig,
        (forced, faulty): (bool, bool),
        known: impl IntoIterator<Item = Known>,
    ) -> Self {
        let (lines, closing, depths) = (Vec::new(), Vec::new(), Vec::new());
        let mut this = Self {
            storm,
            forced,
            faulty,
            may_stray: faulty,
            lines,
            closing,
            depths,
            offline: 0,
            disturbed: false,
            freed: false,
        };
        known.into_iter().for_each(|known| this.insert(known.line, Line::new(known.handlers)));
        this
    }

    /// If `keep`, the faults change no message: one that finds no line is wrong nevertheless.
    pub(crate) fn messages_keep(self, keep: bool) -> Self {
        Self { may_stray: self.may_stray && !keep, ..self }
    }

    fn insert(&mut self, number: u16, line: Line) {
        let index = usize::from(number);
        if self.lines.len() <= index {
            self.lines.resize_with(index + 1, || None);
        }
        self.lines[index] = Some(line);
    }

    fn line(&mut self, number: u16) -> Option<&mut Line> {
        self.lines.get_mut(usize::from(number))?.as_mut()
    }

    fn answered(&mut self, at: Ps, cpu: u32, number: u16, answer: Answer, findings: &mut Findings) {
        let Some(line) = self.lines.get_mut(usize::from(number)).and_then(Option::as_mut) else { return };
        let in_thread = answer.in_thread || self.forced;
        // A thread that has moved may run where it was, as long as nothing else runs there.
        if let Some(place) = line.astray(cpu).filter(|_| !in_thread) {
            let text = format!("line {number} is delivered at CPU {place}, and its handler ran on CPU {cpu}");
            findings.wrong(NAME, at, text);
        }
        if in_thread {
            return line.thread_answered(answer.handled);
        }
        line.close(at, &self.storm);
        if let Some(text) = line.answered(at, answer.handled, &self.storm) {
            findings.wrong(NAME, at, format!("line {number} {text}"));
        }
        self.closing.retain(|&(other, ..)| other != number);
        if line.is_closing() {
            let depth = self.depths.get(cpu as usize).copied().unwrap_or(0);
            self.closing.push((number, cpu, depth));
        }
    }

    fn is_at(&mut self, cpu: u32, depth: u32) {
        let cpu = cpu as usize;
        if self.depths.len() <= cpu {
            self.depths.resize(cpu + 1, 0);
        }
        self.depths[cpu] = depth;
    }

    /// The core has left an interrupt on `cpu`, which was this deep: an interrupt of its handlers says nothing about them.
    fn left(&mut self, at: Ps, cpu: u32, depth: u32) {
        let (lines, storm) = (&mut self.lines, &self.storm);
        self.closing.retain(|&(number, of, deep)| {
            let is_done = of == cpu && depth <= deep;
            if is_done && let Some(Some(line)) = lines.get_mut(usize::from(number)) {
                line.close(at, storm);
            }
            !is_done
        });
    }

    fn claimed(&mut self, at: Ps, number: u16, claim: Claim, value: u64, findings: &mut Findings) {
        let Some(line) = self.lines.get_mut(usize::from(number)).and_then(Option::as_mut) else { return };
        line.close(at, &self.storm);
        let is_judged = match claim {
            Claim::Unhandled => true,
            Claim::Unexpected => !self.faulty,
            Claim::Storms | Claim::Count => !self.forced,
        };
        if !is_judged {
            return;
        }
        let exact = !self.disturbed && !self.faulty && self.offline == 0;
        if let Some(text) = line.contradicts(claim, value, self.offline, exact) {
            findings.wrong(NAME, at, format!("line {number}: {text}"));
        } else if claim == Claim::Count && exact {
            findings.coverage.add("account: each interrupt is known", 1);
        }
        if claim == Claim::Storms && value > 0 {
            findings.coverage.add("account: storms of a line are known", value);
        }
    }
}

impl Checker for Truth {
    fn topics(&self) -> &'static [Topic] {
        &[Topic::Work, Topic::Returned, Topic::Declared, Topic::Mark]
    }

    fn hear(&mut self, at: Ps, fact: &Fact, findings: &mut Findings) {
        match *fact {
            Fact::Worked { cpu, depth, work, .. } => {
                self.is_at(cpu, depth);
                if work == Work::IrqExit {
                    self.left(at, cpu, depth);
                }
            }
            Fact::Returned { cpu, depth, .. } => self.is_at(cpu, depth),
            Fact::Declared { online: false, .. } => self.offline += 1,
            Fact::Mark { cpu, tag, value } => match Told::read(tag, value) {
                Some(Told::Answered(line, answer)) => self.answered(at, cpu, line, answer, findings),
                Some(Told::Allocated(line)) => {
                    self.freed = true;
                    self.insert(line, Line::new(0));
                }
                // A CPU that comes back takes what had been sent to it; its line has long been served elsewhere.
                Some(Told::Strays(strays)) if strays > 0 && !self.may_stray && !self.freed && self.offline == 0 => {
                    findings.wrong(
                        NAME,
                        at,
                        format!("{strays} interrupts had no line, and every line has lived all the time"),
                    );
                }
                Some(Told::Strays(_)) => {}
                Some(Told::Deaf(line)) => self.line(line).into_iter().for_each(Line::forgets_masked),
                Some(Told::Installing(line)) => {
                    if self.line(line).is_none() {
                        self.insert(line, Line::new(0));
                    }
                    self.line(line).into_iter().for_each(|line| line.install(at));
                }
                Some(Told::Removed(line)) => _ = self.line(line).map(Line::remove),
                Some(Told::Disturbed) => self.disturbed = true,
                Some(Told::Placed(line, cpu)) => {
                    self.line(line).into_iter().for_each(|line| line.place(Some(cpu)));
                }
                Some(Told::Movable) => self.lines.iter_mut().flatten().for_each(|line| line.place(None)),
                Some(Told::Claimed(line, claim, value)) => self.claimed(at, line, claim, value, findings),
                None => {}
            },
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;

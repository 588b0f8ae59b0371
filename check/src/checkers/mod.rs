//! The checkers: state machines over facts of the hardware. They trust neither the code under test nor its counts.
//!
//! | checker | demands | table |
//! |---|---|---|
//! | `commands` | every command completes exactly once | commands in flight |
//! | `ends` | per activation one ack and one EOI, in order | interrupts in service, a CPU |
//! | `handlers` | no handler of a freed line runs | lines, and handlers that run |
//! | `posted` | no vector posted with ON clear and nobody looking; no halt while suppressed or with a notification lost | a descriptor a CPU |
//! | `fairness` | a posted vector is served within a bound of notifications | vectors that were left, a CPU |
//! | `memory` | no memory is given back that a device still uses | none |
//! | `isolation` | what a hostile requester sends goes nowhere, and is recorded | hostile requesters |
//! | `offline` | nothing of a device reaches an offline CPU | CPUs that are offline |
//! | `entries` | a changed entry is not used from the cache for longer than an invalidation takes | entries used in an old form |
//! | `refusals` | where nothing is faulty, only what a freed line sent last is refused | entries whose lines were freed |
//! | `gic` | one priority drop and one deactivation an acknowledged interrupt; none of a held, disabled or offline one | interrupts active |
//! | `truth` | what the core counts of a line, and when it throttles it, is what happened | rounds, bursts and acknowledgements, a line |
//! | `queues` | what an NVMe driver counts of a queue, and what its handler says, is what happened | entries, commands and runs, a queue |
//! | `polls` | a pass ends with its budget, a turn with its weight; instances take turns; none is left with its interrupt off | polled instances |
//! | `programs` | a thread that programs the levels of several consumers serves them in turn | levels that wait |
//! | `containment` | a line that nobody handles is masked for a while | the last answers, a handler |
//! | [`beliefs`] | what software believes is what the hardware holds | differences of the last look |
//! | `whereabouts` | a line that has moved is served where it is | lines that were moved |
//! | `waits` | a system vector is taken within its bound | waits, a CPU |

pub(crate) mod acks;
pub mod beliefs;
mod commands;
mod containment;
mod ends;
mod entries;
mod fairness;
mod gic;
mod handlers;
mod isolation;
mod memory;
mod offline;
mod polls;
mod posted;
pub(crate) mod programs;
pub(crate) mod queues;
mod redirections;
mod refusals;
mod topics;
pub(crate) mod truth;
mod waits;
mod whereabouts;

pub use acks::Acks;
pub use commands::Commands;
pub use containment::Containment;
pub use ends::Ends;
pub use entries::Entries;
pub use fairness::Fairness;
pub use gic::Gic;
pub use handlers::Handlers;
pub use isolation::Isolation;
pub use memory::Memory;
pub use offline::Offline;
pub use polls::Polls;
pub use posted::Posted;
pub use programs::Programs;
pub use queues::Queues;
pub use redirections::Redirections;
pub use refusals::Refusals;
pub use topics::Topic;
pub use truth::Truth;
pub use waits::Waits;
pub use whereabouts::Whereabouts;

use crate::coverage::Coverage;
use crate::mark::Mark;
use crate::reach::Reach;
use crate::verdict::{Failure, Kind};
use machine::observe::Fact;
use machine::time::Ps;

/// Failures kept of one history. Only the first counts.
const FAILURES_MAX: usize = 8;

/// Collects the findings of checkers.
#[derive(Default)]
pub struct Findings {
    /// Failures, in the order in which they were found.
    pub failures: Vec<Failure>,
    /// Transitions that were seen.
    pub coverage: Coverage,
}

impl Findings {
    /// Reports an event that must not happen.
    pub fn wrong(&mut self, checker: &'static str, at: Ps, text: impl Into<String>) {
        self.fail(Failure::new(Kind::Correctness, checker, at, text));
    }

    /// Reports that an event that must happen did not.
    pub fn late(&mut self, checker: &'static str, at: Ps, text: impl Into<String>) {
        self.fail(Failure::new(Kind::Liveness, checker, at, text));
    }

    fn fail(&mut self, failure: Failure) {
        if self.failures.len() < FAILURES_MAX {
            self.failures.push(failure);
        }
    }
}

/// One checker.
pub trait Checker {
    /// What it hears of: no other facts reach it.
    fn topics(&self) -> &'static [Topic];

    /// The hardware did something.
    fn hear(&mut self, at: Ps, fact: &Fact, findings: &mut Findings);

    /// The history is over: everything is healed, the load has ended, no device sends.
    fn end(&mut self, _at: Ps, _findings: &mut Findings) {}
}

/// A number for another, so that a sum tells which ones were added (the finaliser of MurmurHash3).
pub(crate) fn scatter(number: u64) -> u64 {
    let mixed = (number ^ number >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let mixed = (mixed ^ mixed >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    mixed ^ mixed >> 33
}

/// All checkers of one history, and their findings.
#[derive(Default)]
pub struct Ledger {
    checkers: Vec<Box<dyn Checker>>,
    /// The numbers of those that hear of each topic.
    hearers: [Vec<usize>; Topic::ALL.len()],
    /// Their findings.
    pub findings: Findings,
    /// Interrupts that CPUs took.
    pub interrupts: u64,
    /// Of these, interrupts that still run.
    pub running: u64,
    /// Commands that the code under test accepted.
    pub commands: u64,
    /// Commands that completed.
    pub completed: u64,
    /// Commands that ended with an error.
    pub failed: u64,
    /// Over the numbers of those that completed, in whatever order.
    pub completed_digest: u64,
    /// A setback struck while the stack came up.
    pub set_back: bool,
    /// What the history reaches, if anybody wants to know.
    pub reach: Option<Reach>,
}

impl Ledger {
    /// A ledger of these.
    pub fn new(checkers: Vec<Box<dyn Checker>>) -> Self {
        let mut this = Self::default();
        this.extend(checkers);
        this
    }

    /// Adds checkers that hear facts from now on, because they need values known only after bring-up. No interrupt may
    /// be running: they would hear its end without its begin.
    pub fn extend(&mut self, checkers: Vec<Box<dyn Checker>>) {
        for checker in checkers {
            let number = self.checkers.len();
            checker.topics().iter().for_each(|&topic| self.hearers[topic as usize].push(number));
            self.checkers.push(checker);
        }
    }

    /// The observer.
    pub fn hear(&mut self, at: Ps, fact: &Fact) {
        self.count(fact);
        if let Some(reach) = &mut self.reach {
            reach.hear(fact);
        }
        self.pass_on(at, fact);
    }

    fn pass_on(&mut self, at: Ps, fact: &Fact) {
        for &number in &self.hearers[Topic::of(fact) as usize] {
            self.checkers[number].hear(at, fact, &mut self.findings);
        }
    }

    /// The history is over.
    pub fn end(&mut self, at: Ps) {
        for checker in &mut self.checkers {
            checker.end(at, &mut self.findings);
        }
    }

    fn count(&mut self, fact: &Fact) {
        match *fact {
            Fact::Accepted { .. } | Fact::Exception { .. } => {
                self.interrupts += 1;
                self.running += 1;
            }
            Fact::Returned { .. } => self.running -= 1,
            Fact::Struck { fault: machine::setback::STRUCK, .. } => self.set_back = true,
            Fact::Mark { tag, value, .. } => match Mark::from_tag(tag) {
                Some(Mark::Submitted) => self.commands += 1,
                Some(Mark::Refused) => self.commands -= 1,
                Some(Mark::Completed) => {
                    self.completed += 1;
                    self.completed_digest = self.completed_digest.wrapping_add(scatter(value));
                }
                Some(Mark::Failed) => self.failed += 1,
                _ => {}
            },
            _ => {}
        }
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::{Checker, Ledger};
    use crate::mark::Mark;
    use machine::observe::Fact;
    use machine::time::Ps;

    /// A mark on CPU 0.
    pub(crate) fn mark(mark: Mark, value: u64) -> Fact {
        Fact::Mark { cpu: 0, tag: mark as u32, value }
    }

    /// Feeds a checker these facts, one per microsecond, and the end of the history; returns its verdict.
    pub(crate) fn says(checker: impl Checker + 'static, facts: &[Fact]) -> Vec<String> {
        let mut ledger = Ledger::new(vec![Box::new(checker)]);
        for (us, fact) in (1..).zip(facts) {
            ledger.pass_on(Ps::from_ns(us * 1000), fact);
        }
        ledger.end(Ps::from_ns(1_000_000));
        ledger.findings.failures.into_iter().map(|failure| failure.text).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A checker that began inside an interrupt used to count that interrupt's end as one too many.
    #[test]
    fn an_interrupt_runs_until_it_returns_to_what_none_interrupted() {
        let mut ledger = Ledger::default();
        let taken = Fact::Exception { cpu: 1, pseudo_nmi: false };
        let returned = |depth| Fact::Returned { cpu: 1, depth, in_service: None };
        let runs = [taken, taken, returned(1), returned(0)].map(|fact| {
            ledger.hear(Ps(1), &fact);
            ledger.running
        });
        assert_eq!((runs, ledger.interrupts), ([1, 2, 1, 0], 2));
    }
}

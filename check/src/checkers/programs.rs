//! One thread programs the levels of several consumers, in turn.
//!
//! It goes through its consumers again and again, and programs for each what it wants. A consumer that wants a level when its
//! place has just passed waits for the rest of this round and for its place in the next. So each other one has one turn
//! meanwhile. The thread hears of a wish only when whoever found it asks for it, behind the controller's lock; that one may stand
//! still in between. So turns count once that context has gone on: it has left its interrupt, or has come to a controller again.

use super::{Checker, Findings, Topic};
use hal::Threads;
use machine::SimHal;
use machine::observe::Fact;
use machine::time::Ps;
use std::collections::BTreeMap;

const NAME: &str = "programs";
/// Turns of another one while one waits.
const TURNS_MAX: u32 = 1;

/// A consumer's controller wants a level programmed.
const WANTED: u32 = 0x210;
/// The thread takes what it wants.
const TAKEN: u32 = 0x211;
/// Somebody comes to a controller.
const CALLED: u32 = 0x212;

/// The thread in the bits from here on, the consumer below.
const THREAD_BIT: u32 = 32;

fn mark(tag: u32, consumer: u32) {
    machine::mark(tag, u64::from(SimHal.current_thread().0) << THREAD_BIT | u64::from(consumer));
}

pub(crate) fn wanted(consumer: u32) {
    mark(WANTED, consumer);
}

pub(crate) fn taken(consumer: u32) {
    mark(TAKEN, consumer);
}

pub(crate) fn called() {
    mark(CALLED, 0);
}

/// Who runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Context {
    Thread(u64),
    Interrupt { cpu: u32, depth: u32 },
}

/// A wish that the thread has not taken.
#[derive(Debug)]
struct Wish {
    /// Who has found it, until he must have asked the thread.
    finder: Option<Context>,
    /// Turns of each other one since.
    turns: BTreeMap<u64, u32>,
}

/// The wishes by consumer, and how deep each CPU is in interrupts.
#[derive(Default)]
pub struct Programs {
    wishes: BTreeMap<u64, Wish>,
    depths: BTreeMap<u32, u32>,
}

impl Programs {
    fn context(&self, cpu: u32, thread: u64) -> Context {
        match self.depths.get(&cpu) {
            None | Some(0) => Context::Thread(thread),
            Some(&depth) => Context::Interrupt { cpu, depth },
        }
    }

    /// The contexts that `gone_on` names have asked for what they found.
    fn asked(&mut self, gone_on: impl Fn(Context) -> bool) {
        self.wishes.values_mut().for_each(|wish| wish.finder = wish.finder.filter(|&finder| !gone_on(finder)));
    }

    fn taken(&mut self, at: Ps, consumer: u64, findings: &mut Findings) {
        self.wishes.remove(&consumer);
        for (waits, wish) in self.wishes.iter_mut().filter(|(_, wish)| wish.finder.is_none()) {
            let turns = wish.turns.entry(consumer).or_default();
            *turns += 1;
            findings.coverage.add("tuning: a level waits for another's", 1);
            if *turns > TURNS_MAX {
                let text = format!("consumer {consumer} has its turn number {turns} while {waits} waits for one");
                findings.wrong(NAME, at, text);
            }
        }
    }
}

impl Checker for Programs {
    fn topics(&self) -> &'static [Topic] {
        &[Topic::Work, Topic::Returned, Topic::Mark]
    }

    fn hear(&mut self, at: Ps, fact: &Fact, findings: &mut Findings) {
        match *fact {
            Fact::Worked { cpu, depth, .. } => _ = self.depths.insert(cpu, depth),
            Fact::Returned { cpu: at_cpu, depth: now, .. } => {
                self.depths.insert(at_cpu, now);
                self.asked(
                    |finder| matches!(finder, Context::Interrupt { cpu, depth } if cpu == at_cpu && depth > now),
                );
            }
            Fact::Mark { cpu, tag: tag @ (WANTED | TAKEN | CALLED), value } => {
                let (thread, consumer) = (value >> THREAD_BIT, value & u64::from(u32::MAX));
                let context = self.context(cpu, thread);
                match tag {
                    WANTED => {
                        let wish = || Wish { finder: Some(context), turns: BTreeMap::new() };
                        self.wishes.entry(consumer).or_insert_with(wish);
                    }
                    TAKEN => self.taken(at, consumer, findings),
                    _ => self.asked(|finder| finder == context),
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::says;
    use super::*;
    use hal::Work;

    fn mark(cpu: u32, tag: u32, thread: u64, consumer: u64) -> Fact {
        Fact::Mark { cpu, tag, value: thread << THREAD_BIT | consumer }
    }

    fn turns(count: usize) -> Vec<Fact> {
        vec![mark(0, TAKEN, 9, 2); count]
    }

    const STARVED: &str = "consumer 2 has its turn number 2 while 1 waits for one";

    #[test]
    fn who_waits_sees_each_other_once() {
        let (wanted, called) = (vec![mark(1, WANTED, 5, 1)], vec![mark(1, CALLED, 5, 0)]);
        // The thread need not know of the wish yet, whatever others do.
        let others = vec![mark(1, CALLED, 6, 0)];
        assert!(says(Programs::default(), &[wanted.clone(), others, turns(4)].concat()).is_empty());
        let asked = |count| [wanted.clone(), called.clone(), turns(count)].concat();
        assert!(says(Programs::default(), &[asked(1), vec![mark(0, TAKEN, 9, 1)], asked(1)].concat()).is_empty());
        assert_eq!(says(Programs::default(), &asked(2)), [STARVED]);
    }

    #[test]
    fn an_interrupt_has_asked_when_it_is_left() {
        let enter = Fact::Worked { cpu: 1, depth: 1, work: Work::IrqEntry, count: 1 };
        let leave = Fact::Returned { cpu: 1, depth: 0, in_service: None };
        let found = vec![enter, mark(1, WANTED, 5, 1)];
        assert!(says(Programs::default(), &[found.clone(), turns(4)].concat()).is_empty());
        assert_eq!(says(Programs::default(), &[found, vec![leave], turns(2)].concat()), [STARVED]);
        // An interrupt of the same CPU says nothing about the thread below it.
        let below = vec![mark(1, WANTED, 5, 1), enter, mark(1, CALLED, 5, 0), leave];
        assert!(says(Programs::default(), &[below, turns(4)].concat()).is_empty());
    }
}

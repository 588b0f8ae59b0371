//! One thread programs the levels of several consumers, in turn.
//!
//! It goes through its consumers again and again, and programs for each what it wants. A consumer that wants a level when its
//! place has just passed waits for the rest of this round and for its place in the next. So each other one has one turn
//! meanwhile. The thread hears of a wish only when whoever found it asks for it, behind the controller's lock; that one may stand
//! still in between, so turns count only once the wish is older than that takes.

use super::{Checker, Findings};
use machine::observe::Fact;
use machine::time::Ps;
use std::collections::BTreeMap;

const NAME: &str = "programs";
/// Turns of another one while one waits.
const TURNS_MAX: u32 = 1;

/// Who has found a wish has asked the thread by then: three of the longest stalls of a CPU (50 µs).
/// A thread that polls could be behind another one for a slice (3 ms); histories are too short to wait for that, and none did.
const ASKED: Ps = Ps::from_ns(150_000);

/// A consumer's controller wants a level programmed.
const WANTED: u32 = 0x210;
/// The thread takes what it wants.
const TAKEN: u32 = 0x211;

pub(crate) fn wanted(consumer: u32) {
    machine::mark(WANTED, consumer.into());
}

pub(crate) fn taken(consumer: u32) {
    machine::mark(TAKEN, consumer.into());
}

/// Who waits since when, and how many turns each other one has had since it must have asked.
#[derive(Default)]
pub struct Programs(BTreeMap<u64, (Ps, BTreeMap<u64, u32>)>);

impl Checker for Programs {
    fn hear(&mut self, at: Ps, fact: &Fact, findings: &mut Findings) {
        match *fact {
            Fact::Mark { tag: WANTED, value, .. } => _ = self.0.entry(value).or_insert_with(|| (at, BTreeMap::new())),
            Fact::Mark { tag: TAKEN, value, .. } => {
                self.0.remove(&value);
                for (waits, (since, turns)) in &mut self.0 {
                    if at < *since + ASKED {
                        continue;
                    }
                    let turns = turns.entry(value).or_default();
                    *turns += 1;
                    findings.coverage.add("tuning: a level waits for another's", 1);
                    if *turns > TURNS_MAX {
                        let text = format!("consumer {value} has its turn number {turns} while {waits} waits for one");
                        findings.wrong(NAME, at, text);
                    }
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

    #[test]
    fn who_waits_sees_each_other_once() {
        let mark = |tag, value| Fact::Mark { cpu: 0, tag, value };
        let turns = |count| std::iter::repeat_n(mark(TAKEN, 2), count);
        // A fact a microsecond: so many are nothing but time.
        let time = |us| std::iter::repeat_n(mark(0, 0), us);
        let after =
            |us, count| std::iter::once(mark(WANTED, 1)).chain(time(us)).chain(turns(count)).collect::<Vec<_>>();
        let facts = |count| after(3_200, count);
        // The thread need not know of the wish yet.
        assert!(says(Programs::default(), &after(50, 4)).is_empty());
        assert!(says(Programs::default(), &[facts(1), vec![mark(TAKEN, 1)], facts(1)].concat()).is_empty());
        let starved = says(Programs::default(), &facts(2));
        assert_eq!(starved, ["consumer 2 has its turn number 2 while 1 waits for one"]);
    }
}

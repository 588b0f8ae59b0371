//! Checks the turns of budgeted polling.
//!
//! - A turn completes at most its weight, and begins only while its pass has some of its budget left.
//! - Instances of a CPU take turns: a waiting instance sees each other instance at most once.
//! - At the end of an interrupt, passes follow each other ten times at most; a thread takes over then.
//! - After a turn with less than its weight, the instance re-arms its interrupt; if something had come before that, another
//!   turn follows. No instance is left with its interrupt off.

use super::{Checker, Findings, Topic};
use crate::moderation::turns::{BEGUN, ENDED, LISTED, REARMED, WANTED};
use hal::Work;
use machine::observe::Fact;
use machine::time::Ps;
use std::collections::BTreeMap;

const NAME: &str = "polls";
/// Passes at the end of one interrupt (Linux `MAX_SOFTIRQ_RESTART`).
const PASSES_MAX: u32 = 10;

/// The state of an instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum At {
    /// Its interrupt is armed, or it has not begun.
    #[default]
    Armed,
    /// In a turn of this weight.
    Turn { weight: u32 },
    /// The instance must get a turn.
    Owed,
}

#[derive(Default)]
struct Instance {
    at: At,
    /// Its interrupt schedules it.
    wanted: bool,
    /// It was scheduled in its turn.
    again: bool,
    /// On a list: turns of the others since then.
    waits: Option<BTreeMap<u32, u32>>,
    home: Option<u32>,
}

/// The turns of all instances.
pub struct Polls {
    budget: u32,
    instances: BTreeMap<u32, Instance>,
    /// Completions of the present pass, by CPU.
    passes: BTreeMap<u32, u32>,
    /// By CPU, passes since the present interrupt began, and how deep it is.
    at_end: BTreeMap<u32, (u32, u32)>,
}

impl Polls {
    /// Checks passes that end after `budget` completions; the last turn of a pass may go beyond it.
    pub fn new(budget: u32) -> Self {
        Self { budget, instances: BTreeMap::new(), passes: BTreeMap::new(), at_end: BTreeMap::new() }
    }

    fn instance(&mut self, number: u32) -> &mut Instance {
        self.instances.entry(number).or_default()
    }

    /// A pass begins: in a thread at depth 0.
    fn passed(&mut self, at: Ps, cpu: u32, depth: u32, findings: &mut Findings) {
        if depth == 0 {
            return;
        }
        let (count, of) = self.at_end.entry(cpu).or_insert((0, depth));
        (*count, *of) = (*count + 1, depth);
        if *count == PASSES_MAX {
            findings.coverage.add("poll: a thread must take over", 1);
        }
        if *count > PASSES_MAX {
            findings.wrong(NAME, at, format!("pass {count} on CPU {cpu} at the end of one interrupt"));
        }
    }

    fn begun(&mut self, at: Ps, cpu: u32, number: u32, weight: u32, findings: &mut Findings) {
        let (budget, done) = (self.budget, self.passes.get(&cpu).copied().unwrap_or(0));
        if done >= budget {
            let text = format!("instance {number} has a turn in a pass of CPU {cpu} that has done {done} of {budget}");
            findings.wrong(NAME, at, text);
        }
        let instance = self.instance(number);
        (instance.at, instance.home) = (At::Turn { weight }, Some(cpu));
        (instance.wanted, instance.again, instance.waits) = (false, false, None);
        for (other, waits) in &mut self.instances {
            let Some(turns) = waits.waits.as_mut().filter(|_| waits.home == Some(cpu)) else { continue };
            let turns = turns.entry(number).or_default();
            *turns += 1;
            if *turns > 1 {
                let text =
                    format!("instance {number} has its turn number {turns} while instance {other} waits for one");
                findings.wrong(NAME, at, text);
            }
        }
    }

    fn ended(&mut self, at: Ps, cpu: u32, number: u32, work: u32, findings: &mut Findings) {
        let done = self.passes.entry(cpu).or_default();
        *done += work;
        if *done >= self.budget {
            findings.coverage.add("poll: a pass spent its budget", 1);
        }
        let instance = self.instance(number);
        let At::Turn { weight } = instance.at else { return };
        if work > weight {
            findings.wrong(NAME, at, format!("instance {number} completed {work} in a turn of {weight}"));
        }
        if work == 0 {
            findings.coverage.add("poll: an empty turn", 1);
        }
        instance.at = At::Owed;
        if work >= weight || instance.again {
            findings.coverage.add("poll: another turn at the tail", 1);
            instance.waits = Some(BTreeMap::new());
        }
    }

    fn rearmed(&mut self, number: u32, found: bool, findings: &mut Findings) {
        let instance = self.instance(number);
        instance.at = if found { At::Owed } else { At::Armed };
        if found {
            findings.coverage.add("poll: something came before the re-arm", 1);
            instance.waits = Some(BTreeMap::new());
        }
    }

    fn listed(&mut self, number: u32) {
        let instance = self.instance(number);
        if !std::mem::take(&mut instance.wanted) {
            // It has had its turn already.
        } else if matches!(instance.at, At::Turn { .. }) {
            instance.again = true;
        } else {
            instance.at = At::Owed;
            instance.waits.get_or_insert_default();
        }
    }
}

impl Checker for Polls {
    fn topics(&self) -> &'static [Topic] {
        &[Topic::Work, Topic::Returned, Topic::Mark]
    }

    fn hear(&mut self, at: Ps, fact: &Fact, findings: &mut Findings) {
        match *fact {
            Fact::Worked { cpu, work: Work::SoftPass, depth, .. } => {
                self.passes.insert(cpu, 0);
                self.passed(at, cpu, depth, findings);
            }
            Fact::Returned { cpu, depth, .. } if self.at_end.get(&cpu).is_some_and(|&(_, of)| of > depth) => {
                self.at_end.remove(&cpu);
            }
            Fact::Mark { cpu, tag, value } => {
                let (instance, number) = ((value >> 32) as u32, value as u32);
                match tag {
                    BEGUN => self.begun(at, cpu, instance, number, findings),
                    ENDED => self.ended(at, cpu, instance, number, findings),
                    REARMED => self.rearmed(instance, number == 1, findings),
                    WANTED => self.instance(instance).wanted = true,
                    LISTED => self.listed(instance),
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn end(&mut self, at: Ps, findings: &mut Findings) {
        for (number, instance) in self.instances.iter().filter(|(_, instance)| instance.at != At::Armed) {
            findings.late(NAME, at, format!("instance {number} is left with its interrupt off: {:?}", instance.at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::says;
    use super::*;

    fn pass() -> Fact {
        Fact::Worked { cpu: 0, depth: 1, work: Work::SoftPass, count: 1 }
    }

    fn mark(tag: u32, instance: u64, number: u64) -> Fact {
        Fact::Mark { cpu: 0, tag, value: instance << 32 | number }
    }

    /// A turn of weight 4.
    fn turn(instance: u64, work: u64) -> [Fact; 2] {
        [mark(BEGUN, instance, 4), mark(ENDED, instance, work)]
    }

    fn rearm(instance: u64, found: u64) -> Fact {
        mark(REARMED, instance, found)
    }

    fn of(facts: &[&[Fact]]) -> Vec<String> {
        says(Polls::new(8), &facts.concat())
    }

    #[test]
    fn turns_in_order_are_right() {
        let (full, last) = ([turn(1, 4), turn(2, 4)].concat(), [turn(1, 3), turn(2, 0)]);
        let armed = [rearm(1, 0), rearm(2, 0)];
        let all = of(&[&[pass()], &full, &[pass()], &last[0], &armed[..1], &last[1], &armed[1..]]);
        assert!(all.is_empty(), "{all:?}");
    }

    #[test]
    fn a_spent_pass_ends_and_a_turn_has_its_weight() {
        let spent = of(&[&[pass()], &turn(1, 4), &turn(1, 4), &turn(1, 0), &[rearm(1, 0)]]);
        assert_eq!(spent, ["instance 1 has a turn in a pass of CPU 0 that has done 8 of 8"]);
        let much = of(&[&[pass()], &turn(1, 5), &turn(1, 0), &[rearm(1, 0)]]);
        assert_eq!(much, ["instance 1 completed 5 in a turn of 4"]);
    }

    #[test]
    fn an_interrupt_ends_after_ten_passes() {
        let returned = [Fact::Returned { cpu: 0, depth: 0, in_service: None }];
        let passes = |count| vec![pass(); count];
        assert!(of(&[&passes(10), &returned, &passes(10)]).is_empty());
        assert_eq!(of(&[&passes(11)]), ["pass 11 on CPU 0 at the end of one interrupt"]);
    }

    #[test]
    fn who_waits_sees_each_other_once() {
        let wanted = [mark(WANTED, 2, 0), mark(LISTED, 2, 0)];
        let idle = [turn(2, 0).to_vec(), vec![rearm(2, 0)]].concat();
        let begin = [&[pass()], &idle[..], &wanted[..]].concat();
        let fair = [&turn(1, 4)[..], &idle, &turn(1, 0), &[rearm(1, 0)]].concat();
        assert!(of(&[&begin, &fair]).is_empty());
        let greedy = [&turn(1, 4)[..], &turn(1, 0), &[rearm(1, 0)], &idle].concat();
        assert_eq!(of(&[&begin, &greedy]), ["instance 1 has its turn number 2 while instance 2 waits for one"]);
    }

    #[test]
    fn nobody_is_left_with_its_interrupt_off() {
        assert!(of(&[&[pass()], &turn(1, 3)])[0].contains("interrupt off"));
        assert!(of(&[&[pass()], &turn(1, 3), &[rearm(1, 1)]])[0].contains("interrupt off"));
    }
}

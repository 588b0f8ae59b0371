//! A CPU takes a system vector within its bound: no interrupt and no lock keeps the CPU for longer. A CPU takes a vector
//! of higher priority first (Intel SDM vol. 3, "Interrupt, Task, and Processor Priority"), so the bound begins anew with
//! each of those, for as many as there are parties that send them.

use super::{Checker, Findings, Topic};
use crate::run::MANAGERS_MAX;
use machine::observe::{Arrival, Fact};
use machine::time::Ps;
use std::collections::BTreeMap;

const NAME: &str = "waits";

/// Waiting vectors of each CPU. An offline CPU takes none, and the checker demands none of it.
pub struct Waits {
    vectors: Vec<u8>,
    bound: Ps,
    /// Most vectors of higher priority that go first.
    passes_max: u32,
    waiting: BTreeMap<(u32, u8), Wait>,
    /// The longest so far.
    pub longest: Ps,
}

/// A vector that waits.
struct Wait {
    /// Since the CPU last could have taken it.
    since: Ps,
    /// Vectors of higher priority that went first.
    passes: u32,
}

impl Waits {
    /// None of `vectors` waits for longer than `bound`; each manager of a history can call for the CPU meanwhile, by a
    /// vector of higher priority. With `is_called` any completion can, so fast that there is no most number of vectors that go first; each
    /// of them has its bound all the same.
    pub fn new(vectors: &[u8], bound: Ps, is_called: bool) -> Self {
        let passes_max = if is_called { u32::MAX } else { MANAGERS_MAX };
        Self { vectors: vectors.to_vec(), bound, passes_max, waiting: BTreeMap::new(), longest: Ps(0) }
    }

    /// The CPU takes `vector` before those that wait with lower priority.
    fn pass(&mut self, at: Ps, cpu: u32, vector: u8) {
        let most = self.passes_max;
        let is_passed = |of: &(u32, u8), wait: &Wait| of.0 == cpu && of.1 < vector && wait.passes < most;
        for (_, wait) in self.waiting.iter_mut().filter(|(of, wait)| is_passed(of, wait)) {
            wait.passes += 1;
            wait.since = wait.since.max(at);
        }
    }

    fn judge(&mut self, at: Ps, cpu: u32, vector: u8, since: Ps, findings: &mut Findings) {
        let waited = at.saturating_sub(since);
        self.longest = self.longest.max(waited);
        if waited > self.bound {
            let (bound, text) = (self.bound, format!("vector {vector:#04x} of CPU {cpu} waited for {waited}"));
            findings.late(NAME, at, format!("{text}; the bound is {bound}"));
        }
    }
}

impl Checker for Waits {
    fn topics(&self) -> &'static [Topic] {
        &[Topic::Raised, Topic::Taken, Topic::Declared]
    }

    fn hear(&mut self, at: Ps, fact: &Fact, findings: &mut Findings) {
        match *fact {
            Fact::Raised { cpu, vector, arrival: Arrival::Pending, .. } if self.vectors.contains(&vector) => {
                self.waiting.insert((cpu, vector), Wait { since: at, passes: 0 });
            }
            Fact::Accepted { cpu, vector } => {
                if let Some(wait) = self.waiting.remove(&(cpu, vector)) {
                    self.judge(at, cpu, vector, wait.since, findings);
                }
                // The handler before it may have kept the CPU for too long.
                let lower = |(of, lower): &(u32, u8)| *of == cpu && *lower < vector;
                let late: Vec<((u32, u8), Ps)> =
                    self.waiting.iter().filter(|(of, _)| lower(of)).map(|(of, wait)| (*of, wait.since)).collect();
                late.into_iter().for_each(|((cpu, lower), since)| self.judge(at, cpu, lower, since, findings));
                self.pass(at, cpu, vector);
            }
            // The time counts anew from the return of the handler.
            Fact::Declared { cpu, .. } => {
                self.waiting
                    .iter_mut()
                    .filter(|((of, _), _)| *of == cpu)
                    .for_each(|(_, wait)| wait.since = Ps(u64::MAX));
            }
            _ => {}
        }
    }

    fn end(&mut self, at: Ps, findings: &mut Findings) {
        for ((cpu, vector), wait) in std::mem::take(&mut self.waiting) {
            self.judge(at, cpu, vector, wait.since, findings);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::says;
    use super::*;

    const RAISED: Fact = Fact::Raised { cpu: 2, vector: 0xec, level: false, arrival: Arrival::Pending };
    const TAKEN: Fact = Fact::Accepted { cpu: 2, vector: 0xec };

    #[test]
    fn a_wait_beyond_the_bound_is_found_when_it_ends_or_at_the_end() {
        let checker = |ns| Waits { passes_max: 0, ..Waits::new(&[0xec], Ps::from_ns(ns), false) };
        assert!(says(checker(1_000), &[RAISED, TAKEN]).is_empty());
        assert_eq!(says(checker(999), &[RAISED, TAKEN]).len(), 1);
        assert_eq!(says(checker(1_000), &[RAISED]).len(), 1, "it still waits");
        let offline = [RAISED, Fact::Declared { cpu: 2, online: false }];
        assert!(says(checker(1_000), &offline).is_empty(), "an offline CPU need not handle anything");
    }

    /// Completions on another CPU called a slow one again and again, with priority over its timer.
    #[test]
    fn calls_of_completions_have_no_most_number() {
        let calls = [[RAISED].as_slice(), &[Fact::Accepted { cpu: 2, vector: 0xfb }; 20], &[TAKEN]].concat();
        let bound = Ps::from_ns(1_500);
        assert!(says(Waits::new(&[0xec], bound, true), &calls).is_empty());
        assert_eq!(says(Waits::new(&[0xec], bound, false), &calls).len(), 8, "as many findings as are kept");
        assert!(!says(Waits::new(&[0xec], Ps::from_ns(900), true), &calls).is_empty(), "each has its bound");
    }

    #[test]
    fn what_has_priority_goes_first_so_often_and_within_the_bound() {
        let higher = Fact::Accepted { cpu: 2, vector: 0xfd };
        let lower = Fact::Accepted { cpu: 2, vector: 0x30 };
        let checker = |ns, passes| Waits { passes_max: passes, ..Waits::new(&[0xec], Ps::from_ns(ns), false) };
        assert!(says(checker(1_000, 1), &[RAISED, higher, TAKEN]).is_empty());
        assert!(!says(checker(1_000, 0), &[RAISED, higher, TAKEN]).is_empty(), "no pass is allowed");
        assert!(!says(checker(1_000, 1), &[RAISED, lower, TAKEN]).is_empty(), "a lower vector has to wait itself");
        assert!(!says(checker(999, 1), &[RAISED, higher]).is_empty(), "the handler before it was too long");
        assert!(!says(checker(1_000, 1), &[RAISED, higher, higher, TAKEN]).is_empty(), "once too often");
    }
}

//! A CPU takes a system vector within its bound: no interrupt and no lock keeps the CPU for longer.

use super::{Checker, Findings};
use machine::observe::{Arrival, Fact};
use machine::time::Ps;
use std::collections::BTreeMap;

const NAME: &str = "waits";

/// Waiting vectors of each CPU. An offline CPU takes none, and the checker demands none of it.
pub struct Waits {
    vectors: Vec<u8>,
    bound: Ps,
    waiting: BTreeMap<(u32, u8), Ps>,
    /// The longest so far.
    pub longest: Ps,
}

impl Waits {
    /// None of `vectors` waits for longer than `bound`.
    pub fn new(vectors: &[u8], bound: Ps) -> Self {
        Self { vectors: vectors.to_vec(), bound, waiting: BTreeMap::new(), longest: Ps(0) }
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
    fn hear(&mut self, at: Ps, fact: &Fact, findings: &mut Findings) {
        match *fact {
            Fact::Raised { cpu, vector, arrival: Arrival::Pending, .. } if self.vectors.contains(&vector) => {
                self.waiting.insert((cpu, vector), at);
            }
            Fact::Accepted { cpu, vector } => {
                if let Some(since) = self.waiting.remove(&(cpu, vector)) {
                    self.judge(at, cpu, vector, since, findings);
                }
            }
            // The time counts anew from the return of the handler.
            Fact::Declared { cpu, .. } => {
                self.waiting.iter_mut().filter(|((of, _), _)| *of == cpu).for_each(|(_, since)| *since = Ps(u64::MAX));
            }
            _ => {}
        }
    }

    fn end(&mut self, at: Ps, findings: &mut Findings) {
        for ((cpu, vector), since) in std::mem::take(&mut self.waiting) {
            self.judge(at, cpu, vector, since, findings);
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
        let checker = |ns| Waits::new(&[0xec], Ps::from_ns(ns));
        assert!(says(checker(1_000), &[RAISED, TAKEN]).is_empty());
        assert_eq!(says(checker(999), &[RAISED, TAKEN]).len(), 1);
        assert_eq!(says(checker(1_000), &[RAISED]).len(), 1, "it still waits");
        let offline = [RAISED, Fact::Declared { cpu: 2, online: false }];
        assert!(says(checker(1_000), &offline).is_empty(), "an offline CPU need not handle anything");
    }
}

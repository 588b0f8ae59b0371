//! A vector that is posted is served within a bound of notifications, however busy the others are.
//!
//! A notification with a time limit leaves requests in the descriptor (VT-d, "Posted Interrupt Descriptor (PID)": PIR in
//! bits 255:0). Each serves at least one vector, and the next begins where it stopped. So a request waits for no more
//! notifications than its CPU has vectors. A finite load would hide a starved vector: it is served once the others end.

use super::{Checker, Findings, Topic};
use machine::observe::Fact;
use machine::peek64;
use machine::time::Ps;

const NAME: &str = "fairness";

/// The requests that each CPU's notifications have left.
pub struct Fairness {
    vector: u8,
    bound: u32,
    cpus: Vec<Waiting>,
    peek: fn(u64) -> Option<u64>,
}

struct Waiting {
    descriptor: u64,
    /// Vectors that notifications left, and how many.
    left: Vec<(u8, u32)>,
}

impl Fairness {
    /// Checks one descriptor per CPU, in order. Notifications have `vector`; a request may wait for `bound` of them.
    pub fn new(vector: u8, addresses: &[u64], bound: u32) -> Self {
        let cpus = addresses.iter().map(|&descriptor| Waiting { descriptor, left: Vec::new() }).collect();
        Self { vector, bound, cpus, peek: peek64 }
    }

    fn notification_ends(&mut self, at: Ps, cpu: u32, findings: &mut Findings) {
        let (peek, bound) = (self.peek, self.bound);
        let Some(Waiting { descriptor, left }) = self.cpus.get_mut(cpu as usize) else { return };
        let words = [0, 1, 2, 3].map(|word| peek(*descriptor + 8 * word).unwrap_or(0));
        if words == [0; 4] {
            return left.clear();
        }
        let is_set = |vector: u8| words[usize::from(vector / 64)] >> (vector % 64) & 1 != 0;
        left.retain(|&(vector, _)| is_set(vector));
        for vector in (0..=u8::MAX).filter(|&vector| is_set(vector)) {
            let index = left.iter().position(|&(other, _)| other == vector).unwrap_or_else(|| {
                left.push((vector, 0));
                left.len() - 1
            });
            left[index].1 += 1;
            if left[index].1 > bound {
                let text = format!("CPU {cpu}: vector {vector:#04x} is posted, and {bound} notifications left it");
                findings.late(NAME, at, text);
            }
        }
    }
}

impl Checker for Fairness {
    fn topics(&self) -> &'static [Topic] {
        &[Topic::Remapping, Topic::Ended]
    }

    fn hear(&mut self, at: Ps, fact: &Fact, findings: &mut Findings) {
        match *fact {
            // Its bit was clear: the earlier request has been taken.
            Fact::Posted { descriptor, vector, again: false, .. } => {
                if let Some(own) = self.cpus.iter_mut().find(|own| own.descriptor == descriptor) {
                    own.left.retain(|&(other, _)| other != vector);
                }
            }
            Fact::Ended { cpu, vector } if vector == self.vector => self.notification_ends(at, cpu, findings),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::testing::says;
    use machine::observe::Post;

    const ENDED: Fact = Fact::Ended { cpu: 0, vector: 0xeb };

    fn posted(vector: u8) -> Fact {
        Fact::Posted { requester: 1, descriptor: 0x40, vector, again: false, post: Post::Outstanding }
    }

    /// The descriptor at 0x40 has vector 0x41.
    fn checker() -> Fairness {
        let peek = |address| Some(if address == 0x48 { 2 } else { 0 });
        Fairness { peek, ..Fairness::new(0xeb, &[0x40], 2) }
    }

    #[test]
    fn a_request_that_every_notification_leaves_is_starved() {
        assert_eq!(says(checker(), &[posted(0x41), ENDED, ENDED]), [] as [&str; 0]);
        let starved = says(checker(), &[posted(0x41), ENDED, ENDED, ENDED]);
        assert_eq!(starved, ["CPU 0: vector 0x41 is posted, and 2 notifications left it"]);
    }

    #[test]
    fn a_request_that_was_taken_may_come_again() {
        assert_eq!(says(checker(), &[posted(0x41), ENDED, ENDED, posted(0x41), ENDED, ENDED]), [] as [&str; 0]);
    }
}

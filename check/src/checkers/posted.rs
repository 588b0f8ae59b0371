//! No vector stays in a posted descriptor with ON clear and no CPU looking; no CPU halts while notifications are
//! suppressed.
//!
//! Layout of the descriptor (VT-d, "Posted Interrupt Descriptor"): PIR in bits 255:0, ON in bit 256, SN in bit 257.

use super::{Checker, Findings, Topic};
use hal::Work;
use machine::observe::{Arrival, Fact, Post};
use machine::peek64;
use machine::time::Ps;

const NAME: &str = "posted";
const ON: u64 = 1 << 0;
const SN: u64 = 1 << 1;

/// The descriptors of the CPUs, as hardware knows them: by their addresses.
pub struct Posted {
    vector: u8,
    descriptors: Vec<Descriptor>,
    peek: fn(u64) -> Option<u64>,
}

struct Descriptor {
    address: u64,
    /// Notifications that were promised and have not arrived.
    under_way: u32,
    /// ON was cleared in the interrupt that runs.
    cleared: bool,
}

/// The content of a descriptor.
struct Content {
    any_vector: bool,
    control: u64,
}

impl Posted {
    /// Checks one descriptor per CPU, in order; their notifications have `vector`.
    pub fn new(vector: u8, addresses: &[u64]) -> Self {
        let descriptors =
            addresses.iter().map(|&address| Descriptor { address, under_way: 0, cleared: false }).collect();
        Self { vector, descriptors, peek: peek64 }
    }

    fn content(&self, cpu: u32) -> Option<Content> {
        let address = self.descriptors.get(cpu as usize)?.address;
        let word = |index: u64| (self.peek)(address + 8 * index);
        let mut any_vector = false;
        for index in 0..4 {
            any_vector |= word(index)? != 0;
        }
        Some(Content { any_vector, control: word(4)? })
    }

    /// The CPU does not look again: a notification must have announced every posted vector.
    fn looks_away(&self, at: Ps, cpu: u32, findings: &mut Findings) {
        let Some(Content { any_vector, control }) = self.content(cpu) else { return };
        if any_vector && control & (ON | SN) == 0 {
            let text = format!("CPU {cpu} returned, and a vector is posted to it with ON clear");
            findings.wrong(NAME, at, text);
        }
    }

    fn clears(&mut self, cpu: u32, cleared: bool) {
        if let Some(own) = self.descriptors.get_mut(cpu as usize) {
            own.cleared = cleared;
        }
    }

    fn halts(&self, at: Ps, cpu: u32, findings: &mut Findings) {
        let Some(Content { any_vector, control }) = self.content(cpu) else { return };
        let text = match (control & ON != 0, control & SN != 0) {
            (_, true) => format!("CPU {cpu} halts with notifications suppressed"),
            (false, _) if any_vector => format!("CPU {cpu} halts, and a vector is posted to it with ON clear"),
            (true, _) if self.descriptors[cpu as usize].under_way == 0 => {
                format!("CPU {cpu} halts with ON set, and no notification is under way")
            }
            _ => return,
        };
        findings.wrong(NAME, at, text);
    }
}

impl Checker for Posted {
    fn topics(&self) -> &'static [Topic] {
        &[Topic::Remapping, Topic::Raised, Topic::Work, Topic::Returned, Topic::Halt]
    }

    fn hear(&mut self, at: Ps, fact: &Fact, findings: &mut Findings) {
        match *fact {
            Fact::Posted { descriptor, again, post, .. } => {
                let seen = match post {
                    Post::Notified => "post: notified",
                    Post::Outstanding if again => "post: merged with the same vector",
                    Post::Outstanding => "post: silent",
                    Post::Suppressed => "post: suppressed",
                };
                findings.coverage.add(seen, 1);
                let own = self.descriptors.iter_mut().find(|own| own.address == descriptor);
                if let (Some(own), Post::Notified) = (own, post) {
                    own.under_way += 1;
                }
            }
            // A handler that stopped at its time limit notifies its own CPU of the rest.
            Fact::IpiSent { to, vector, .. } if vector == self.vector => {
                findings.coverage.add("notification: by the CPU itself", 1);
                if let Some(own) = self.descriptors.get_mut(to as usize) {
                    own.under_way += 1;
                }
            }
            Fact::Raised { cpu, vector, arrival, .. } if vector == self.vector => {
                if let Some(own) = self.descriptors.get_mut(cpu as usize) {
                    own.under_way = own.under_way.saturating_sub(1);
                }
                if arrival == Arrival::Merged {
                    findings.coverage.add("notification: merged in the LAPIC", 1);
                }
            }
            Fact::Worked { cpu, work: Work::PidClearOn, .. } => self.clears(cpu, true),
            Fact::Worked { cpu, work: Work::PirHarvest, .. } => {
                let last = self.descriptors.get(cpu as usize).is_some_and(|own| own.cleared);
                findings.coverage.add(if last { "harvest: final pass found" } else { "harvest: found" }, 1);
            }
            Fact::Returned { cpu, depth: 0, .. } => {
                self.clears(cpu, false);
                self.looks_away(at, cpu, findings);
            }
            Fact::Halted { cpu } => self.halts(at, cpu, findings),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::says;
    use super::*;

    const BACK: Fact = Fact::Returned { cpu: 0, depth: 0, in_service: None };
    const HALT: Fact = Fact::Halted { cpu: 0 };

    /// A descriptor at 0 whose PIR holds `pir` in its second word, and whose control word is `control`.
    fn checker(peek: fn(u64) -> Option<u64>) -> Posted {
        Posted { peek, ..Posted::new(0xeb, &[0]) }
    }

    #[test]
    fn a_vector_with_on_clear_is_found_at_the_return_and_at_the_halt() {
        let forgotten = |address| Some(if address == 8 { 2 } else { 0 });
        assert_eq!(says(checker(forgotten), &[BACK]), ["CPU 0 returned, and a vector is posted to it with ON clear"]);
        assert_eq!(says(checker(forgotten), &[HALT]), ["CPU 0 halts, and a vector is posted to it with ON clear"]);
        assert!(says(checker(|_| Some(0)), &[BACK, HALT]).is_empty());
    }

    #[test]
    fn a_cpu_may_halt_only_while_its_notification_is_under_way() {
        let announced = |address| Some(u64::from(address == 32));
        let post = Fact::Posted { requester: 1, descriptor: 0, vector: 0x30, again: false, post: Post::Notified };
        let raised = Fact::Raised { cpu: 0, vector: 0xeb, level: false, arrival: Arrival::Pending };
        assert!(says(checker(announced), &[post, HALT]).is_empty());
        assert_eq!(
            says(checker(announced), &[post, raised, HALT]),
            ["CPU 0 halts with ON set, and no notification is under way"]
        );
        assert_eq!(says(checker(|_| Some(3)), &[HALT]), ["CPU 0 halts with notifications suppressed"]);
    }
}

//! Per activation one ack and one EOI, in order.
//!
//! A local APIC moves a vector from IRR to ISR when it is accepted, and an EOI ends the highest in service (Intel SDM,
//! volume 3, "Signaling Interrupt Servicing Completion"). What stays in service blocks every vector of its priority
//! class and below on that CPU, for ever.

use super::{Checker, Findings, Topic};
use machine::observe::Fact;
use machine::time::Ps;

const NAME: &str = "ends";

/// Vectors that a CPU has accepted and not returned from, innermost last, each with whether it was ended.
#[derive(Default)]
pub struct Ends {
    cpus: Vec<Vec<(u8, bool)>>,
}

impl Ends {
    fn cpu(&mut self, cpu: u32) -> &mut Vec<(u8, bool)> {
        let index = cpu as usize;
        if self.cpus.len() <= index {
            self.cpus.resize_with(index + 1, Vec::new);
        }
        &mut self.cpus[index]
    }
}

impl Checker for Ends {
    fn topics(&self) -> &'static [Topic] {
        &[Topic::Taken, Topic::Ended, Topic::Returned]
    }

    fn hear(&mut self, at: Ps, fact: &Fact, findings: &mut Findings) {
        match *fact {
            Fact::Accepted { cpu, vector } => self.cpu(cpu).push((vector, false)),
            Fact::Ended { cpu, vector } => match self.cpu(cpu).last_mut() {
                Some((innermost, ended @ false)) if *innermost == vector => *ended = true,
                innermost => {
                    let text = match innermost {
                        Some((own, _)) => format!("handling {own:#04x}, CPU {cpu} ended {vector:#04x}"),
                        None => format!("CPU {cpu} ended {vector:#04x} outside every interrupt"),
                    };
                    findings.wrong(NAME, at, text);
                }
            },
            Fact::IdleEoi { cpu } => {
                findings.wrong(NAME, at, format!("CPU {cpu} wrote EOI without an interrupt in service"));
            }
            Fact::Returned { cpu, .. } => {
                if let Some((vector, false)) = self.cpu(cpu).pop() {
                    findings.wrong(NAME, at, format!("CPU {cpu} returned from vector {vector:#04x} without an EOI"));
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

    const TAKEN: Fact = Fact::Accepted { cpu: 1, vector: 0x41 };
    const ENDED: Fact = Fact::Ended { cpu: 1, vector: 0x41 };
    const BACK: Fact = Fact::Returned { cpu: 1, depth: 0, in_service: None };

    #[test]
    fn an_interrupt_is_ended_once_before_its_return() {
        assert!(says(Ends::default(), &[TAKEN, ENDED, BACK, TAKEN, ENDED, BACK]).is_empty());
        assert_eq!(says(Ends::default(), &[TAKEN, BACK]), ["CPU 1 returned from vector 0x41 without an EOI"]);
        assert_eq!(says(Ends::default(), &[TAKEN, ENDED, ENDED, BACK]), ["handling 0x41, CPU 1 ended 0x41"]);
        assert_eq!(
            says(Ends::default(), &[Fact::IdleEoi { cpu: 3 }]),
            ["CPU 3 wrote EOI without an interrupt in service"]
        );
    }

    #[test]
    fn a_nested_interrupt_ends_itself_and_not_the_one_below() {
        let inner = Fact::Accepted { cpu: 1, vector: 0x52 };
        assert_eq!(says(Ends::default(), &[TAKEN, inner, ENDED])[0], "handling 0x52, CPU 1 ended 0x41");
        assert_eq!(says(Ends::default(), &[ENDED]), ["CPU 1 ended 0x41 outside every interrupt"]);
    }
}

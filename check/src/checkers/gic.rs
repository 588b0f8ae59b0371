//! The rules of a GIC, checked from the registers that CPUs read and write.
//!
//! - Every acknowledged interrupt has its priority dropped once, by the CPU that acknowledged it, the latest first, before
//!   that CPU returns (IHI 0069H, "Priority drop and interrupt deactivation"; IHI 0048B.b, 3.2).
//! - An interrupt below 8192 is deactivated once, an SGI or PPI by the CPU that acknowledged it. An LPI has no active state
//!   and is never deactivated (IHI 0069H, "LPIs").
//! - A ONESHOT line is not acknowledged again before its thread is done; a wired line is not acknowledged while disabled.
//! - When a disable returns, the line is not active for a thread that is done: the disable waits for the thread's end of it.
//! - No CPU that was declared offline acknowledges an interrupt of a device.

use super::{Checker, Findings, Topic};
use crate::gic::source;
use machine::observe::Fact;
use machine::time::Ps;
use std::collections::{BTreeMap, BTreeSet};

const NAME: &str = "gic";
/// Private interrupts have INTIDs below this.
const SPI_FIRST: u32 = 32;
const SPECIAL_FIRST: u32 = 1020;
const LPI_FIRST: u32 = 8192;
/// At the end of a history no interrupt has been active for this long.
const ACTIVE_MAX: Ps = Ps::from_ns(200_000);

/// Facts of one GIC.
#[derive(Default)]
pub struct Gic {
    /// Interrupts acknowledged and not dropped, by CPU, the latest last.
    running: Vec<Vec<u32>>,
    /// Interrupts acknowledged and not deactivated. Key: INTID, and the CPU of a private one.
    active: BTreeMap<(u32, u32), Active>,
    /// Threads that hold a line, by INTID.
    held: BTreeMap<u32, u32>,
    /// Disables of a wired line that have returned, by INTID, and by the CPU of a private one.
    disabled: BTreeMap<(u32, u32), u32>,
    offline: BTreeSet<u32>,
}

/// An interrupt that was acknowledged.
struct Active {
    by: u32,
    since: Ps,
    /// The thread that it woke has done its work.
    thread_done: bool,
}

/// The INTID in a value that a CPU reads or writes; on a GICv2 the sender of an SGI stands above it.
fn intid(word: u32) -> u32 {
    if word & 0x3ff < 16 && word < 0x2000 { word & 0x3ff } else { word }
}

fn key(cpu: u32, intid: u32) -> (u32, u32) {
    (intid, if intid < SPI_FIRST { cpu } else { u32::MAX })
}

impl Gic {
    fn cpu(&mut self, cpu: u32) -> &mut Vec<u32> {
        let index = cpu as usize;
        if self.running.len() <= index {
            self.running.resize_with(index + 1, Vec::new);
        }
        &mut self.running[index]
    }

    fn acknowledged(&mut self, at: Ps, cpu: u32, word: u32, findings: &mut Findings) {
        let intid = intid(word);
        let seen = match intid {
            0..16 => "gic: SGI acknowledged",
            16..SPI_FIRST => "gic: PPI acknowledged",
            SPI_FIRST..SPECIAL_FIRST => "gic: SPI acknowledged",
            SPECIAL_FIRST..LPI_FIRST => "gic: no interrupt to acknowledge",
            LPI_FIRST.. => "gic: LPI acknowledged",
        };
        findings.coverage.add(seen, 1);
        if (SPECIAL_FIRST..LPI_FIRST).contains(&intid) {
            return;
        }
        if intid >= SPI_FIRST && self.offline.contains(&cpu) {
            findings.wrong(NAME, at, format!("CPU {cpu} is offline and acknowledged INTID {intid}"));
        }
        if self.held.get(&intid).is_some_and(|held| *held > 0) {
            findings.wrong(NAME, at, format!("INTID {intid} was acknowledged on CPU {cpu} while its thread works"));
        }
        if self.disabled.get(&key(cpu, intid)).is_some_and(|depth| *depth > 0) {
            findings.wrong(NAME, at, format!("INTID {intid} was acknowledged on CPU {cpu} although it is disabled"));
        }
        if !self.cpu(cpu).is_empty() {
            findings.coverage.add("gic: acknowledged inside another", 1);
        }
        self.cpu(cpu).push(word);
        let active = Active { by: cpu, since: at, thread_done: false };
        if intid < LPI_FIRST && self.active.insert(key(cpu, intid), active).is_some() {
            findings.wrong(NAME, at, format!("INTID {intid} was acknowledged on CPU {cpu} while it is active"));
        }
    }

    fn dropped(&mut self, at: Ps, cpu: u32, word: u32, findings: &mut Findings) {
        match self.cpu(cpu).pop() {
            Some(latest) if latest == word => {}
            Some(latest) => {
                let text =
                    format!("CPU {cpu} dropped the priority of {word:#x}, and had acknowledged {latest:#x} last");
                findings.wrong(NAME, at, text);
            }
            None => {
                let text = format!("CPU {cpu} dropped the priority of {word:#x}, but had acknowledged no interrupt");
                findings.wrong(NAME, at, text);
            }
        }
    }

    fn deactivated(&mut self, at: Ps, cpu: u32, word: u32, was_active: bool, findings: &mut Findings) {
        let intid = intid(word);
        if intid >= LPI_FIRST {
            findings.wrong(NAME, at, format!("CPU {cpu} deactivated LPI {intid}, which has no active state"));
        } else if !was_active {
            findings.wrong(NAME, at, format!("CPU {cpu} deactivated {word:#x}, which is not active there"));
        }
        if self.active.remove(&key(cpu, intid)).is_some_and(|active| active.by != cpu) {
            findings.coverage.add("gic: deactivated by another CPU", 1);
        }
    }

    fn mark(&mut self, at: Ps, cpu: u32, (tag, intid): (u32, u32), findings: &mut Findings) {
        match tag {
            source::HELD if intid != 0 => *self.held.entry(intid).or_default() += 1,
            source::RELEASED if intid != 0 => {
                findings.coverage.add("gic: ONESHOT thread done", 1);
                self.held.insert(intid, 0);
                if let Some(active) = self.active.get_mut(&key(cpu, intid)) {
                    active.thread_done = true;
                }
            }
            source::DISABLED => {
                *self.disabled.entry(key(cpu, intid)).or_default() += 1;
                if self.active.get(&key(cpu, intid)).is_some_and(|active| active.thread_done) {
                    findings.wrong(NAME, at, format!("INTID {intid} is disabled, and its thread has not ended it"));
                }
            }
            source::ENABLED => {
                let depth = self.disabled.entry(key(cpu, intid)).or_default();
                if *depth == 0 {
                    findings.wrong(NAME, at, format!("INTID {intid} was enabled more often than disabled"));
                }
                *depth = depth.saturating_sub(1);
            }
            _ => {}
        }
    }
}

impl Checker for Gic {
    fn topics(&self) -> &'static [Topic] {
        &[Topic::Gic, Topic::Returned, Topic::Taken, Topic::Declared, Topic::Mark]
    }

    fn hear(&mut self, at: Ps, fact: &Fact, findings: &mut Findings) {
        match *fact {
            Fact::GicAcknowledged { cpu, word } => self.acknowledged(at, cpu, word, findings),
            Fact::GicDropped { cpu, word, .. } => self.dropped(at, cpu, word, findings),
            Fact::GicDeactivated { cpu, word, was_active } => self.deactivated(at, cpu, word, was_active, findings),
            Fact::Returned { cpu, depth: 0, .. } => {
                if let Some(word) = self.cpu(cpu).pop() {
                    findings.wrong(NAME, at, format!("CPU {cpu} returned without a priority drop of {word:#x}"));
                }
            }
            Fact::Exception { pseudo_nmi: true, .. } => findings.coverage.add("gic: pseudo-NMI", 1),
            Fact::Declared { cpu, online: false } => {
                findings.coverage.add("CPU: went offline", 1);
                self.offline.insert(cpu);
            }
            Fact::Declared { cpu, online: true } => _ = self.offline.remove(&cpu),
            Fact::Mark { cpu, tag, value } => self.mark(at, cpu, (tag, value as u32), findings),
            _ => {}
        }
    }

    fn end(&mut self, at: Ps, findings: &mut Findings) {
        for ((intid, _), Active { by, since, .. }) in &self.active {
            if *since + ACTIVE_MAX < at {
                findings.late(NAME, at, format!("INTID {intid} is active since {since}, when CPU {by} took it"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::says;
    use super::*;

    const fn ack(cpu: u32, word: u32) -> Fact {
        Fact::GicAcknowledged { cpu, word }
    }
    const fn end(cpu: u32, word: u32) -> [Fact; 2] {
        let dropped = Fact::GicDropped { cpu, word, in_order: true };
        [dropped, Fact::GicDeactivated { cpu, word, was_active: true }]
    }
    const BACK: Fact = Fact::Returned { cpu: 0, depth: 0, in_service: None };

    fn said(facts: &[Fact]) -> Vec<String> {
        says(Gic::default(), facts)
    }

    #[test]
    fn each_is_dropped_once_and_deactivated_once() {
        let [dropped, ended] = end(0, 40);
        assert!(said(&[ack(0, 40), dropped, ended, BACK, ack(0, 1023), BACK]).is_empty());
        assert_eq!(said(&[ack(0, 40), ended, BACK]), ["CPU 0 returned without a priority drop of 0x28"]);
        assert_eq!(
            said(&[ack(0, 40), dropped, dropped, ended]),
            ["CPU 0 dropped the priority of 0x28, but had acknowledged no interrupt"]
        );
        let never = said(&[ack(0, 40), dropped, BACK]);
        assert!(never[0].starts_with("INTID 40 is active since"), "{never:?}");
        let inactive = Fact::GicDeactivated { cpu: 1, word: 27, was_active: false };
        assert_eq!(said(&[inactive]), ["CPU 1 deactivated 0x1b, which is not active there"]);
    }

    #[test]
    fn a_message_interrupt_is_never_deactivated() {
        let [dropped, ended] = end(0, 8200);
        assert!(said(&[ack(0, 8200), dropped, BACK]).is_empty());
        assert_eq!(said(&[ack(0, 8200), dropped, ended]), ["CPU 0 deactivated LPI 8200, which has no active state"]);
    }

    #[test]
    fn neither_held_nor_disabled_lines_are_taken() {
        let mark = |tag| Fact::Mark { cpu: 0, tag, value: 40 };
        let [dropped, ended] = end(0, 40);
        let again = |tag| said(&[ack(0, 40), dropped, ended, mark(tag), ack(0, 40), dropped, ended]);
        assert_eq!(again(source::HELD), ["INTID 40 was acknowledged on CPU 0 while its thread works"]);
        assert_eq!(again(source::DISABLED), ["INTID 40 was acknowledged on CPU 0 although it is disabled"]);
        assert!(again(source::RELEASED).is_empty());
    }

    #[test]
    fn a_disable_waits_for_the_end_that_a_thread_gives() {
        let mark = |tag| Fact::Mark { cpu: 1, tag, value: 40 };
        let [dropped, ended] = end(0, 40);
        let [held, released, disabled] = [source::HELD, source::RELEASED, source::DISABLED].map(mark);
        let early = [ack(0, 40), held, dropped, BACK, released, disabled, ended];
        assert_eq!(said(&early), ["INTID 40 is disabled, and its thread has not ended it"]);
        assert!(said(&[ack(0, 40), held, dropped, BACK, released, ended, disabled]).is_empty());
        // Another's: the interrupt came just before.
        assert!(said(&[ack(0, 40), disabled, dropped, ended, BACK]).is_empty());
    }
}

//! On a machine with a GIC, the core counts for each line as many interrupts as CPUs have acknowledged of its INTID.

use super::{Checker, Findings, Topic};
use irq::{Irq, IrqCore};
use machine::SimHal;
use machine::observe::Fact;
use machine::time::Ps;
use std::collections::BTreeMap;

const NAME: &str = "truth";

/// The core is asked for the count of a new line with this INTID.
const ASKED: u32 = 0x342;
/// The core has counted so many interrupts of the new line.
const BEGUN: u32 = 0x340;
/// The core counts so many interrupts of the line with this INTID.
const CLAIMED: u32 = 0x341;

/// The INTID in the bits from here on, a number below.
const INTID_BIT: u32 = 40;
/// Special INTIDs: there was nothing to acknowledge.
const SPECIAL: core::ops::Range<u32> = 1020..8192;

/// The root's number of a line, and its interrupts.
fn count(core: &IrqCore<SimHal>, line: Irq) -> Option<(u32, u64)> {
    let view = core.view(line)?;
    let root = view.levels.last().filter(|level| ["GICv2", "GICv3", "LPI"].contains(&level.chip))?;
    Some((root.hwirq.0 as u32, view.count))
}

fn mark(tag: u32, core: &IrqCore<SimHal>, line: Irq) {
    if let Some((intid, count)) = count(core, line) {
        machine::mark(tag, u64::from(intid) << INTID_BIT | count);
    }
}

/// A line was allocated, and its handler is not installed yet. An interrupt may come while the core is asked.
pub(crate) fn begun(core: &IrqCore<SimHal>, line: Irq) {
    mark(ASKED, core, line);
    mark(BEGUN, core, line);
}

/// Marks what the core counts of a line at rest.
pub(crate) fn claim(core: &IrqCore<SimHal>, line: Irq) {
    mark(CLAIMED, core, line);
}

/// The interrupts of an INTID.
#[derive(Clone, Copy, Default)]
struct Known {
    /// The count that the core began with, and acknowledgements since.
    least: u64,
    /// Acknowledgements of which nobody can tell whether the count that the core began with holds them.
    unsure: u64,
    /// Acknowledged and not yet at their priority drop: the core may still have to count them.
    under_way: u64,
    is_new: bool,
    is_judged: bool,
}

/// Interrupts by INTID.
#[derive(Default)]
pub struct Acks(BTreeMap<u32, Known>);

impl Acks {
    /// Counts those of these lines, and of all that are allocated from now on. No interrupt of them is under way.
    pub(crate) fn new(core: &IrqCore<SimHal>, lines: impl IntoIterator<Item = Irq>) -> Self {
        let known = |(intid, least)| (intid, Known { least, is_judged: true, ..Known::default() });
        Self(lines.into_iter().filter_map(|line| count(core, line)).map(known).collect())
    }

    /// Counts an acknowledgement.
    fn add(&mut self, intid: u32) {
        let known = self.0.entry(intid).or_default();
        known.under_way += 1;
        match known.is_new {
            true => known.unsure += 1,
            false => known.least += 1,
        }
    }

    fn marked(&mut self, at: Ps, (tag, intid, count): (u32, u32, u64), findings: &mut Findings) {
        let known = self.0.entry(intid).or_default();
        match tag {
            // What its predecessor's device sent last may be under way.
            ASKED => *known = Known { unsure: known.under_way, is_new: true, is_judged: true, ..*known },
            BEGUN => *known = Known { least: count, is_new: false, ..*known },
            CLAIMED if known.is_judged => {
                findings.coverage.add("account: acknowledgements of a line are known", 1);
                let Known { least, unsure, .. } = *known;
                if !(least..=least + unsure).contains(&count) {
                    let text =
                        format!("the core counts {count} interrupts of INTID {intid}, and CPUs acknowledged {least}");
                    findings.wrong(NAME, at, text);
                }
            }
            _ => {}
        }
    }
}

/// The INTID that a CPU has read or writes; none for the special ones.
fn intid_of(word: u32) -> Option<u32> {
    // On a GICv2 the sender of an SGI stands above it.
    let intid = if word & 0x3ff < 16 && word < 0x2000 { word & 0x3ff } else { word };
    (!SPECIAL.contains(&intid)).then_some(intid)
}

impl Checker for Acks {
    fn topics(&self) -> &'static [Topic] {
        &[Topic::Gic, Topic::Mark]
    }

    fn hear(&mut self, at: Ps, fact: &Fact, findings: &mut Findings) {
        match *fact {
            Fact::GicAcknowledged { word, .. } => intid_of(word).into_iter().for_each(|intid| self.add(intid)),
            Fact::GicDropped { word, .. } => {
                if let Some(known) = intid_of(word).and_then(|intid| self.0.get_mut(&intid)) {
                    known.under_way = known.under_way.saturating_sub(1);
                }
            }
            Fact::Mark { tag: tag @ (ASKED | BEGUN | CLAIMED), value, .. } => {
                let (intid, count) = ((value >> INTID_BIT) as u32, value & ((1 << INTID_BIT) - 1));
                self.marked(at, (tag, intid, count), findings);
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
    fn each_acknowledgement_is_counted_once() {
        let ack = Fact::GicAcknowledged { cpu: 1, word: 40 };
        let end = Fact::GicDropped { cpu: 1, word: 40, in_order: true };
        let none = Fact::GicAcknowledged { cpu: 1, word: 1023 };
        let mark = |tag, count| Fact::Mark { cpu: 0, tag, value: 40u64 << INTID_BIT | count };
        let facts = |count| [ack, end, mark(ASKED, 0), mark(BEGUN, 0), ack, none, ack, mark(CLAIMED, count)];
        assert!(says(Acks::default(), &facts(2)).is_empty());
        let text = "the core counts 3 interrupts of INTID 40, and CPUs acknowledged 2";
        assert_eq!(says(Acks::default(), &facts(3)), [text]);
    }

    /// `gicv3 --replay 0xb43f223d749e50e`: an interrupt came while the core was asked what it had counted of a new line.
    #[test]
    fn what_comes_while_the_core_is_asked_may_be_counted_or_not() {
        let ack = Fact::GicAcknowledged { cpu: 1, word: 8192 };
        let end = Fact::GicDropped { cpu: 1, word: 8192, in_order: true };
        let mark = |tag, count| Fact::Mark { cpu: 0, tag, value: 8192u64 << INTID_BIT | count };
        let wrong = |facts: &[Fact]| says(Acks::default(), facts).len();
        for (count, found) in [(0, 1), (1, 0), (2, 0), (3, 1)] {
            let while_asked = [ack, end, mark(ASKED, 0), ack, end, mark(BEGUN, 0), ack, end, mark(CLAIMED, count)];
            assert_eq!(wrong(&while_asked), found, "{count}");
            let before = [ack, mark(ASKED, 0), mark(BEGUN, 0), end, ack, end, mark(CLAIMED, count)];
            assert_eq!(wrong(&before), found, "{count}");
        }
    }
}

//! On a machine with a GIC, the core counts for each line as many interrupts as CPUs have acknowledged of its INTID.

use super::{Checker, Findings};
use irq::{Irq, IrqCore};
use machine::SimHal;
use machine::observe::Fact;
use machine::time::Ps;
use std::collections::BTreeMap;

const NAME: &str = "truth";

/// A new line has this INTID.
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

/// A line was allocated, and its handler is not installed yet.
pub(crate) fn begun(core: &IrqCore<SimHal>, line: Irq) {
    mark(BEGUN, core, line);
}

/// Marks what the core counts of a line at rest.
pub(crate) fn claim(core: &IrqCore<SimHal>, line: Irq) {
    mark(CLAIMED, core, line);
}

/// Interrupts by INTID.
#[derive(Default)]
pub struct Acks(BTreeMap<u32, u64>);

impl Acks {
    /// Counts those of these lines, and of all that are allocated from now on. No interrupt of them is under way.
    pub(crate) fn new(core: &IrqCore<SimHal>, lines: impl IntoIterator<Item = Irq>) -> Self {
        Self(lines.into_iter().filter_map(|line| count(core, line)).collect())
    }

    fn claimed(&self, at: Ps, intid: u32, claimed: u64, findings: &mut Findings) {
        let Some(&known) = self.0.get(&intid) else { return };
        findings.coverage.add("account: acknowledgements of a line are known", 1);
        if claimed != known {
            let text = format!("the core counts {claimed} interrupts of INTID {intid}, and CPUs acknowledged {known}");
            findings.wrong(NAME, at, text);
        }
    }
}

impl Checker for Acks {
    fn hear(&mut self, at: Ps, fact: &Fact, findings: &mut Findings) {
        match *fact {
            Fact::GicAcknowledged { word, .. } => {
                // On a GICv2 the sender of an SGI stands above it.
                let intid = if word & 0x3ff < 16 && word < 0x2000 { word & 0x3ff } else { word };
                if !SPECIAL.contains(&intid)
                    && let Some(count) = self.0.get_mut(&intid)
                {
                    *count += 1;
                }
            }
            Fact::Mark { tag: BEGUN, value, .. } => {
                let (intid, count) = ((value >> INTID_BIT) as u32, value & ((1 << INTID_BIT) - 1));
                // What its predecessor's device sent last may have come already.
                self.0.insert(intid, count);
            }
            Fact::Mark { tag: CLAIMED, value, .. } => {
                self.claimed(at, (value >> INTID_BIT) as u32, value & ((1 << INTID_BIT) - 1), findings);
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
        let none = Fact::GicAcknowledged { cpu: 1, word: 1023 };
        let mark = |tag, count| Fact::Mark { cpu: 0, tag, value: 40u64 << INTID_BIT | count };
        let facts = |count| [ack, mark(BEGUN, 0), ack, none, ack, mark(CLAIMED, count)];
        assert!(says(Acks::default(), &facts(2)).is_empty());
        let text = "the core counts 3 interrupts of INTID 40, and CPUs acknowledged 2";
        assert_eq!(says(Acks::default(), &facts(3)), [text]);
    }
}

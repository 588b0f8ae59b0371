//! A changed entry of the remapping table is not used from the cache for longer than an invalidation takes.
//!
//! The IOMMU may answer from its cache until software invalidates the entry (VT-d, "Interrupt Entry Cache"). So an
//! answer may differ from the table for a moment. If it still differs later, that is wrong: a device then still
//! reaches its old target.
//!
//! Not every fact contains the index of a request. Requests are served in the order in which they arrive, so the
//! checker pairs the messages' handles with the outcomes in that order.

use super::{Checker, Findings, Topic};
use machine::model::ModelId;
use machine::observe::Fact;
use machine::peek64;
use machine::time::Ps;
use std::collections::{BTreeMap, VecDeque};

const NAME: &str = "entries";
/// Bits 63:0 of an entry that decide where a request goes (VT-d, "Interrupt Remapping Table Entry (IRTE)"): present,
/// mode (bit 15), vector (23:16), and the destination (63:32).
const PRESENT: u64 = 1;
const POSTED: u64 = 1 << 15;
/// Of bits 127:64.
const VALIDATION: u64 = 3 << 18;

/// The table, and the answers from the cache.
pub struct Entries {
    iommu: ModelId,
    table: u64,
    /// Where in the field of 32 bits the APIC id is: bits 15:8 in xAPIC mode.
    id_shift: u32,
    bound: Ps,
    /// Requests that wait for their outcome: requester, index.
    requests: VecDeque<(u16, u16)>,
    /// Entries whose use differs from the table, and since when.
    stale: BTreeMap<u16, Ps>,
    peek: fn(u64) -> Option<u64>,
}

impl Entries {
    /// The table of `iommu` lies at bus address `table`, with APIC ids shifted by `id_shift` (8 in xAPIC mode, else 0); an
    /// invalidation takes `bound` at most.
    pub fn new(iommu: ModelId, table: u64, id_shift: u32, bound: Ps) -> Self {
        Self { iommu, table, id_shift, bound, requests: VecDeque::new(), stale: BTreeMap::new(), peek: peek64 }
    }

    /// The index of the request with this outcome; none if the request was not seen.
    fn outcome(&mut self, requester: u16) -> Option<u16> {
        match self.requests.front() {
            Some((of, index)) if *of == requester => {
                let index = *index;
                self.requests.pop_front();
                Some(index)
            }
            _ => None,
        }
    }

    /// The unit may look an entry up between any two stores to it. So one that is present is whole behind each store, and checks who
    /// asks (VT-d, "Interrupt Remapping Table Entry (IRTE)": SVT, bits 83:82); and since a posted one needs both halves, only an
    /// exchange of both changes it while it is present ("Programming the Interrupt Remapping Table").
    fn stored(&self, at: Ps, address: u64, (old, value): (u64, u64), findings: &mut Findings) {
        let index = (address - self.table) / 16;
        let is_low = address.is_multiple_of(16);
        let low = if is_low { Some(value) } else { (self.peek)(address - 8) };
        if old == value || low.is_none_or(|low| low & PRESENT == 0) {
            return;
        }
        let high = if is_low { (self.peek)(address + 8) } else { Some(value) };
        let wrong = if high.is_some_and(|high| high & VALIDATION == 0) {
            "is present, and checks no requester"
        } else if !is_low {
            "is present, and its upper half is changed alone"
        } else if old & PRESENT != 0 && (old | value) & POSTED != 0 {
            "is present and posted, and its lower half is changed alone"
        } else {
            return;
        };
        findings.wrong(NAME, at, format!("entry {index} {wrong}: {old:#018x}, now {value:#018x}"));
    }

    /// True if the table agrees with the outcome.
    fn holds(&self, index: u16, is_posted: bool, vector: u8, destination: u64) -> bool {
        let address = self.table + 16 * u64::from(index);
        let (Some(low), Some(high)) = ((self.peek)(address), (self.peek)(address + 8)) else { return true };
        let target = match low & POSTED != 0 {
            // The descriptor's address: bits 31:6 at 63:38, bits 63:32 at 127:96.
            true => (low >> 38 << 6) | high >> 32 << 32,
            false => low >> 32 >> self.id_shift,
        };
        low & PRESENT != 0 && (low & POSTED != 0) == is_posted && (low >> 16) as u8 == vector && target == destination
    }

    fn used(&mut self, at: Ps, requester: u16, is_posted: bool, vector: u8, destination: u64, findings: &mut Findings) {
        let Some(index) = self.outcome(requester) else { return };
        if self.holds(index, is_posted, vector, destination) {
            self.stale.remove(&index);
            return;
        }
        findings.coverage.add("entry: used from the cache while it changed", 1);
        let since = *self.stale.entry(index).or_insert(at);
        if at.saturating_sub(since) > self.bound {
            let text = format!("entry {index} still delivers vector {vector:#04x} to {destination:#x}, its old target");
            findings.wrong(NAME, at, text);
        }
    }
}

impl Checker for Entries {
    fn topics(&self) -> &'static [Topic] {
        &[Topic::Message, Topic::Remapping, Topic::Entry]
    }

    fn hear(&mut self, at: Ps, fact: &Fact, findings: &mut Findings) {
        match *fact {
            Fact::Message { to, requester, address, data, .. } if to == self.iommu && address >> 20 == 0xfee => {
                self.requests.push_back((requester, index_of(address, data)));
            }
            // It arrived just now, and has no outcome of its own.
            Fact::MessageMerged { at, .. } if at == self.iommu => _ = self.requests.pop_back(),
            Fact::Remapped { requester, destination, vector, .. } => {
                self.used(at, requester, false, vector, destination.into(), findings);
            }
            Fact::Posted { requester, descriptor, vector, .. } => {
                self.used(at, requester, true, vector, descriptor, findings);
            }
            Fact::Blocked { requester, .. } | Fact::Plain { requester, .. } => _ = self.outcome(requester),
            Fact::Stored { address, old, value, .. } => self.stored(at, address, (old, value), findings),
            Fact::Invalidated { first, count } => {
                findings.coverage.add("entry: invalidated", 1);
                let last = u32::from(first) + count;
                self.stale.retain(|&index, _| index < first || u32::from(index) >= last);
            }
            _ => {}
        }
    }

    fn end(&mut self, at: Ps, findings: &mut Findings) {
        if let Some((index, since)) = self.stale.first_key_value() {
            findings.wrong(
                NAME,
                at,
                format!("entry {index} was changed and, at {since}, used in its old form; the entry's cache was not invalidated"),
            );
        }
    }
}

/// VT-d, "Interrupt Requests in Remappable Format": handle 14:0 in bits 19:5, bit 15 in bit 2; with SHV (bit 3) the low
/// half of the data is added.
fn index_of(address: u64, data: u32) -> u16 {
    let handle = (address >> 5 & 0x7fff) as u16 | ((address >> 2 & 1) as u16) << 15;
    if address & 1 << 3 != 0 { handle.wrapping_add(data as u16) } else { handle }
}

#[cfg(test)]
mod tests {
    use super::super::testing::says;
    use super::*;

    const IOMMU: ModelId = ModelId(4);

    /// Entry 2 is remapped: present, vector 0x31, to CPU 1.
    fn checker() -> Entries {
        let peek = |address| Some(if address == 0x1020 { LOW } else { CHECKED });
        Entries { peek, ..Entries::new(IOMMU, 0x1000, 0, Ps::from_ns(3_000)) }
    }

    const LOW: u64 = 1 << 32 | 0x31 << 16 | 1;
    const CHECKED: u64 = 1 << 18;

    #[test]
    fn an_entry_that_is_present_is_whole_behind_each_store() {
        let stored = |half: u64, old, value| Fact::Stored { cpu: 0, address: 0x1020 + 8 * half, old, value };
        let to_cpu_2 = 2 << 32 | 0x41 << 16 | 1;
        let right = [stored(0, LOW, to_cpu_2), stored(0, LOW, 0), stored(0, 0, LOW), stored(1, CHECKED, CHECKED)];
        assert!(says(checker(), &right).is_empty());
        let found = says(checker(), &[stored(1, CHECKED, 0)]);
        assert!(found[0].contains("entry 2 is present, and checks no requester"), "{found:?}");
        let found = says(checker(), &[stored(1, CHECKED, CHECKED | 1)]);
        assert!(found[0].contains("its upper half is changed alone"), "{found:?}");
        let found = says(checker(), &[stored(0, LOW, LOW | POSTED)]);
        assert!(found[0].contains("posted, and its lower half is changed alone"), "{found:?}");
    }

    fn message() -> Fact {
        Fact::Message { from: ModelId(3), to: IOMMU, requester: 0x100, address: 0xfee0_0010 | 2 << 5, data: 0 }
    }

    fn to(destination: u32) -> Fact {
        Fact::Remapped { requester: 0x100, index: 2, destination, vector: 0x31 }
    }

    #[test]
    fn an_old_target_may_be_used_for_a_moment_only() {
        assert!(says(checker(), &[message(), to(1)]).is_empty());
        let forgotten = Fact::Invalidated { first: 0, count: 65_536 };
        assert!(says(checker(), &[message(), to(0), forgotten, message(), to(1)]).is_empty());
        let found = says(checker(), &[message(), to(0), message(), to(0), message(), to(0)]);
        assert!(found[0].contains("entry 2 still delivers vector 0x31 to 0x0"), "{found:?}");
        let found = says(checker(), &[message(), to(0)]);
        assert!(found[0].contains("the entry's cache was not invalidated"), "{found:?}");
    }

    #[test]
    fn a_merged_message_has_no_outcome() {
        let (requester, address, data) = (0x100, 0xfee0_0010 | 2 << 5, 0);
        let merged = Fact::MessageMerged { at: IOMMU, requester, address, data };
        let other = Fact::Message { from: ModelId(3), to: IOMMU, requester, address: 0xfee0_0010 | 5 << 5, data };
        let blocked = Fact::Blocked { requester, index: 5, reason: 0x22, recorded: true };
        let history = [message(), message(), merged, to(1), other, blocked, message(), to(1)];
        assert!(says(checker(), &history).is_empty());
    }

    #[test]
    fn a_handle_is_found_in_its_message() {
        assert_eq!(index_of(0xfee0_0010 | 0x3f0 << 5, 7), 0x3f0);
        assert_eq!(index_of(0xfee0_0018 | 0x10 << 5, 7), 0x17);
        assert_eq!(index_of(0xfee0_0014, 0), 0x8000);
    }
}

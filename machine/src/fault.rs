//! Recorded faults, for the report.

use crate::event::ModelId;
use crate::time::Ps;

/// One kind of fault of one requester, with its count.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FaultRecord {
    /// When it was first seen.
    pub at: Ps,
    /// The model that saw it.
    pub source: ModelId,
    /// The kind.
    pub kind: &'static str,
    /// The cause: a PCI requester id, a CPU or a model, depending on the kind.
    pub requester: u64,
    /// Details of the first fault.
    pub text: String,
    /// Number of faults.
    pub count: u64,
}

/// Maximum number of distinct (kind, requester) pairs, so that a hostile device cannot fill the host's memory.
const KINDS_MAX: usize = 1024;

/// Faults by kind and requester, in the order in which they were first seen.
#[derive(Default)]
pub(crate) struct FaultLog {
    records: Vec<FaultRecord>,
    /// Faults that were not recorded because the table was full.
    dropped: u64,
}

impl FaultLog {
    pub(crate) fn record(&mut self, fault: FaultRecord) {
        let same = |seen: &FaultRecord| {
            seen.kind == fault.kind && seen.requester == fault.requester && seen.source == fault.source
        };
        match self.records.iter().position(same) {
            Some(seen) => self.records[seen].count += 1,
            None if self.records.len() < KINDS_MAX => self.records.push(fault),
            None => self.dropped += 1,
        }
    }

    pub(crate) fn kinds(&self) -> usize {
        self.records.len()
    }

    /// The records, and the number of faults that were not recorded.
    pub(crate) fn take(&self) -> (Vec<FaultRecord>, u64) {
        (self.records.clone(), self.dropped)
    }
}

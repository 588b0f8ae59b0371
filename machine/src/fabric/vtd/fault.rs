//! Fault recording: the status register and the records.

use super::request::Refusal;
use spec::vtd::registers::{FaultRecord, FaultStatus, QueueError, QueueErrorInfo};

/// FSTS and the FRCD registers.
pub(super) struct Faults {
    status: FaultStatus,
    records: Vec<FaultRecord>,
    /// Index of the record for the next fault.
    next: usize,
    /// IQERCD.IQEI.
    queue_error: QueueErrorInfo,
    /// IQERCD.ICESID.
    answered: u16,
    /// Faults that were lost because no record was free.
    pub(super) dropped: u64,
    /// Faults that were recorded.
    pub(super) recorded: u64,
}

/// Whether the fault event is due.
#[must_use]
pub(super) struct EventDue(pub(super) bool);

impl Faults {
    pub(super) fn new(records: usize) -> Self {
        Self {
            status: FaultStatus::new(),
            records: vec![FaultRecord::new(); records],
            next: 0,
            queue_error: QueueErrorInfo::NONE,
            answered: 0,
            dropped: 0,
            recorded: 0,
        }
    }

    /// Primary fault logging (VT-d, "Primary Fault Logging"). After an overflow no fault is recorded until software
    /// clears it. The records are used in turn; an overflow occurs when the next record is still in use.
    pub(super) fn record(&mut self, requester: u16, refusal: Refusal) -> EventDue {
        let quiet = !self.any();
        if self.status.overflow() || self.records[self.next].fault() {
            self.status.set_overflow(true);
            self.dropped += 1;
            return EventDue(quiet);
        }
        if !self.status.pending() {
            self.status.set_record_index(self.next as u8);
            self.status.set_pending(true);
        }
        self.records[self.next] = FaultRecord::new()
            .with_fault(true)
            .with_reason(refusal.reason.0)
            .with_source(requester)
            .with_interrupt_index(refusal.index);
        self.next = (self.next + 1) % self.records.len();
        self.recorded += 1;
        EventDue(quiet)
    }

    /// The invalidation queue stops, because of `info`.
    pub(super) fn stop_queue(&mut self, info: QueueErrorInfo) -> EventDue {
        let quiet = !self.any();
        self.status.set_queue_error(true);
        self.queue_error = info;
        EventDue(quiet)
    }

    /// `requester` completes a device-TLB invalidation that nobody asked of it (VT-d, "Invalidation Completion Error").
    pub(super) fn answer(&mut self, requester: u16) -> EventDue {
        let quiet = !self.any();
        self.status.set_completion_error(true);
        self.answered = requester;
        EventDue(quiet)
    }

    /// True while a fault waits for software. One event announces all faults until software has cleared everything
    /// (VT-d, "Fault Events").
    pub(super) fn any(&self) -> bool {
        let status = self.status;
        status.overflow() || status.pending() || status.queue_error() || status.completion_error()
    }

    /// FSTS.IQE.
    pub(super) fn queue_stands(&self) -> bool {
        self.status.queue_error()
    }

    pub(super) fn status(&self) -> u32 {
        self.status.into_bits()
    }

    /// A write of FSTS: writing 1 clears a bit.
    pub(super) fn clear_status(&mut self, value: u32) {
        let cleared = FaultStatus::from_bits(value);
        self.status.set_overflow(self.status.overflow() && !cleared.overflow());
        self.status.set_queue_error(self.status.queue_error() && !cleared.queue_error());
        self.status.set_completion_error(self.status.completion_error() && !cleared.completion_error());
    }

    /// Reads IQERCD. Each part of it is valid while its error is set.
    pub(super) fn queue_error(&self) -> u64 {
        let info = if self.status.queue_error() { self.queue_error.0 } else { 0 };
        let source = if self.status.completion_error() { self.answered } else { 0 };
        QueueError::new().with_info(info).with_completion_source(source).into_bits()
    }

    /// 32-bit part `part` of the records.
    pub(super) fn read_part(&self, part: usize) -> u32 {
        self.records.get(part / 4).map_or(0, |record| (record.into_bits() >> (part % 4 * 32)) as u32)
    }

    /// Writes 32-bit part `part` of the records. 1 clears F in the last part; all other bits are read-only.
    pub(super) fn write_part(&mut self, part: usize, value: u32) {
        if part % 4 == 3
            && value >> 31 != 0
            && let Some(record) = self.records.get_mut(part / 4)
        {
            record.set_fault(false);
            self.status.set_pending(self.records.iter().any(|record| record.fault()));
        }
    }
}

//! Faults: the unit's own interrupt, and the fault records.

use super::RemapUnit;
use crate::message::MessageSource;
use crate::register::Typed as _;
use alloc::sync::Arc;
use core::fmt;
use hal::{DmaExchange128, Hal};
use irq::{MsiMessage, RequesterId};
use spec::vtd::registers::{
    EventControl, FAULT_RECORD, FAULT_RECORD_CLEAR, FAULT_RECORD_SIZE, FEADDR, FECTL, FEDATA, FEUADDR, FSTS,
    FaultReason, FaultRecord, FaultStatus,
};

/// A request that the unit blocked (VT-d, "Fault Recording Registers").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Why.
    pub reason: FaultReason,
    /// Source of the request.
    pub requester: RequesterId,
    /// The entry it asked for; meaningless for reasons that are not of interrupts.
    pub interrupt_index: u16,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = match self.reason {
            FaultReason::REQUEST_RESERVED => "reserved bits in the request",
            FaultReason::INDEX => "index outside the table",
            FaultReason::NOT_PRESENT => "entry not present",
            FaultReason::TABLE_ACCESS => "table not readable",
            FaultReason::IRTE_RESERVED => "reserved bits in the entry",
            FaultReason::COMPATIBILITY_BLOCKED => "compatibility format is blocked",
            FaultReason::SOURCE => "wrong requester",
            FaultReason::DESCRIPTOR_ACCESS => "posted descriptor not accessible",
            FaultReason::DESCRIPTOR_RESERVED => "reserved bits in the posted descriptor",
            FaultReason(code) => return write!(f, "fault {code:#04x} by {}", self.requester),
        };
        write!(f, "interrupt of {} to entry {} blocked: {reason}", self.requester, self.interrupt_index)
    }
}

/// How reading the faults ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FaultsTaken {
    /// More faults came than there were records for.
    pub lost: bool,
    /// No event will tell of the rest: look again later. They come faster than they are read, or the invalidation queue has an
    /// error that who waits for it has not cleared yet.
    pub pending: bool,
}

/// How often the handler reads all records before it gives up on a device that faults without end.
const FAULT_ROUNDS: u32 = 4;

impl<H: Hal> RemapUnit<H> {
    /// No fault interrupt is sent after this.
    pub(super) fn mask_fault_event(&self) {
        self.regs.write(FECTL, EventControl::new().with_masked(true).into_bits());
        // The read waits for the write.
        self.regs.read(FECTL);
    }
}

impl<H: Hal> RemapUnit<H>
where
    H::Dma: DmaExchange128,
{
    /// Masks the fault event, and clears what earlier software left in the fault status. An old error of the queue would fail
    /// the first invalidation, and a field that is set already is no new reason for an event (VT-d, "Fault Status
    /// Register"; "Fault Event Control Register", IP). Records stay for [`RemapUnit::take_faults`].
    pub(super) fn clear_old_status(&self) {
        self.mask_fault_event();
        let all = FaultStatus::new()
            .with_overflow(true)
            .with_advanced_overflow(true)
            .with_advanced_pending(true)
            .with_queue_error(true)
            .with_completion_error(true)
            .with_time_out_error(true)
            .with_deprecated(true);
        self.regs.strobe(FSTS, all.into_bits());
    }

    /// Calls `report` for each fault recorded, oldest first, and clears the records. For the handler of the fault
    /// event: the unit sends no further event before all records are clear. Call it once before the event is unmasked,
    /// because earlier software may have left records.
    pub fn take_faults(&self, mut report: impl FnMut(Fault)) -> FaultsTaken {
        let records = u32::from(self.capability.fault_records_less_one()) + 1;
        let base = u32::from(self.capability.fault_record_offset_16_bytes()) * 16;
        let mut status = FaultStatus::from_bits(self.regs.read(FSTS));
        let lost = status.overflow();
        for _ in 0..FAULT_ROUNDS {
            if !status.pending() && !status.overflow() {
                break;
            }
            // Records fill round robin, from the one that was first when the pending bit was last set.
            let first = u32::from(status.record_index());
            for record in (0..records).map(|step| (first + step) % records) {
                self.take_record(base + record * FAULT_RECORD_SIZE, &mut report);
            }
            self.regs.strobe(FSTS, FaultStatus::new().with_overflow(true).into_bits());
            status = FaultStatus::from_bits(self.regs.read(FSTS));
        }
        // Else they would stand until somebody waits: a device may complete what nobody asked of it at any time.
        if holds_back(status) && self.clear_unawaited_errors() {
            status = FaultStatus::from_bits(self.regs.read(FSTS));
        }
        FaultsTaken { lost: lost || status.overflow(), pending: status.pending() || holds_back(status) }
    }

    fn take_record(&self, offset: u32, report: &mut impl FnMut(Fault)) {
        let half = |index: u32| u128::from(self.regs.read(FAULT_RECORD.get(index).behind(offset)));
        let high = half(1) << 64;
        let record = FaultRecord::from_bits(high | half(0));
        if record.fault() {
            report(Fault {
                reason: FaultReason(record.reason()),
                requester: RequesterId(record.source()),
                interrupt_index: record.interrupt_index(),
            });
            let clear = FaultRecord::new().with_fault(true).into_bits() >> 96;
            self.regs.strobe(FAULT_RECORD_CLEAR.behind(offset), clear as u32);
        }
    }
}

/// While one of these errors stands, a fault that is recorded is no new reason for an event (VT-d, "Fault Event Control
/// Register", IP).
fn holds_back(status: FaultStatus) -> bool {
    status.queue_error() || status.time_out_error() || status.completion_error()
}

/// The unit's fault event as a line: a plain message, since a remapping fault must not depend on remapping (VT-d,
/// "Fault Event Control Register").
pub struct FaultEvent<H: Hal>(Arc<RemapUnit<H>>);

impl<H: Hal> FaultEvent<H> {
    /// The fault event of `unit`.
    pub fn new(unit: Arc<RemapUnit<H>>) -> Self {
        Self(unit)
    }
}

impl<H: Hal> MessageSource for FaultEvent<H> {
    fn chip_name(&self) -> &'static str {
        "DMAR-MSI"
    }

    fn entries(&self) -> u32 {
        1
    }

    fn has_wide_address(&self) -> bool {
        true
    }

    fn mask(&self, _entry: u32) {
        self.0.mask_fault_event();
    }

    fn unmask(&self, _entry: u32) {
        self.0.regs.write(FECTL, EventControl::new().into_bits());
    }

    /// Masks the event during the change, because the unit could otherwise send the new vector to the old CPU. Nobody would
    /// take that message, and the unit sends no other before all records are clear.
    fn write(&self, entry: u32, message: MsiMessage) {
        let was_masked = EventControl::from_bits(self.0.regs.read(FECTL)).masked();
        if !was_masked {
            self.mask(entry);
        }
        self.0.regs.write(FEDATA, message.data);
        self.0.regs.write(FEADDR, message.address as u32);
        self.0.regs.write(FEUADDR, (message.address >> 32) as u32);
        // The read waits for the writes.
        self.0.regs.read(FEUADDR);
        if !was_masked {
            self.unmask(entry);
        }
    }
}

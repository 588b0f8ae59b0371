//! Queued invalidation: one request and one wait descriptor at a time (VT-d, "Queued Invalidation Interface").

use super::QueueFault;
use crate::register::Typed as _;
use hal::{Dma, DmaError, Hal, Word};
use irq::RequesterId;
use spec::vtd::invalidation::{DescriptorType, InterruptEntryCache, SIZE, Wait};
use spec::vtd::registers::{
    FSTS, FaultStatus, IQA, IQERCD, IQH, IQT, QueueAddress, QueueError, QueueErrorInfo, QueuePointer,
};

/// The smallest queue there is, one page: never are more than two descriptors under way.
const DESCRIPTORS: u16 = 256;
/// Kinds of errors, each of which has a bit.
const ERRORS: u32 = 3;
/// How long the unit may take. It answers within microseconds.
const TIMEOUT_NS: u64 = 10_000_000;
/// How often a wait that does not end looks for errors.
const ERROR_LOOK_NS: u64 = 10_000;
/// Interval between two looks at a queue that drains.
const DRAIN_POLL_NS: u64 = 1_000;
/// How often an invalidation is tried when devices do not answer it.
const ATTEMPTS: u32 = 3;

pub(super) struct InvalidationQueue<H: Hal> {
    hal: H,
    descriptors: H::Dma,
    /// The memory into which wait descriptors write their sequence number.
    status: H::Dma,
    tail: u16,
    sequence: u32,
    /// A wait ran out: descriptors may still be under way.
    late: bool,
}

impl<H: Hal> InvalidationQueue<H> {
    pub(super) fn new(hal: H) -> Result<Self, DmaError> {
        let descriptors = hal.dma_alloc(usize::from(DESCRIPTORS) * SIZE, 4096)?;
        let status = hal.dma_alloc(8, 8)?;
        Ok(Self { hal, descriptors, status, tail: 0, sequence: 0, late: false })
    }

    /// Gives the unit the queue's address. Allowed only while queued invalidation is off.
    pub(super) fn announce(&self, regs: &H::Regs) {
        regs.write(IQT, 0);
        let address = QueueAddress::new().with_page(self.descriptors.device_address().0 >> 12);
        regs.write(IQA, address.into_bits());
    }

    /// Makes the unit forget the entry `index`, or all entries, and waits until it has.
    pub(super) fn invalidate_entries(&mut self, regs: &H::Regs, index: Option<u16>) -> Result<(), QueueFault> {
        let descriptor = InterruptEntryCache::new()
            .with_kind(DescriptorType::INTERRUPT_ENTRY_CACHE.0)
            .with_selective(index.is_some())
            .with_index(index.unwrap_or(0));
        self.submit(regs, descriptor.into_bits())
    }

    fn submit(&mut self, regs: &H::Regs, request: u128) -> Result<(), QueueFault> {
        if self.late && self.head(regs) != self.tail {
            return Err(QueueFault::Timeout(TIMEOUT_NS));
        }
        self.late = false;
        let mut outcome = Ok(());
        for _ in 0..ATTEMPTS {
            self.sequence = self.sequence.wrapping_add(1);
            self.push(request);
            self.push(self.wait_descriptor());
            regs.write(IQT, QueuePointer::new().with_index(self.tail).into_bits());
            outcome = self.wait(regs);
            if !matches!(outcome, Err(QueueFault::DeviceTimeout(_))) {
                break;
            }
        }
        outcome
    }

    /// Waits until the unit has done all that it was told. Errors that stop it are cleared.
    pub(super) fn drain(&mut self, regs: &H::Regs) -> Result<(), QueueFault> {
        let deadline_ns = self.hal.now_ns().saturating_add(TIMEOUT_NS);
        while self.head(regs) != self.tail {
            if self.hal.now_ns() >= deadline_ns {
                return Err(QueueFault::Timeout(TIMEOUT_NS));
            }
            self.take_error(regs);
            self.hal.delay_ns(DRAIN_POLL_NS);
        }
        Ok(())
    }

    fn wait_descriptor(&self) -> u128 {
        Wait::new()
            .with_kind(DescriptorType::WAIT.0)
            .with_status_write(true)
            .with_fence(true)
            .with_status_data(self.sequence)
            .with_status_address_dwords(self.status.device_address().0 >> 2)
            .into_bits()
    }

    fn push(&mut self, descriptor: u128) {
        self.place(self.tail, descriptor);
        self.tail = (self.tail + 1) % DESCRIPTORS;
    }

    fn place(&self, index: u16, descriptor: u128) {
        let first = usize::from(index) * 2;
        let words = self.descriptors.words();
        words[first].set(descriptor as u64);
        words[first + 1].set((descriptor >> 64) as u64);
    }

    fn head(&self, regs: &H::Regs) -> u16 {
        QueuePointer::from_bits(regs.read(IQH)).index()
    }

    /// Waits for the newest wait descriptor; looks for errors only when it does not come at once.
    fn wait(&mut self, regs: &H::Regs) -> Result<(), QueueFault> {
        let deadline_ns = self.hal.now_ns().saturating_add(TIMEOUT_NS);
        let mut outcome = Ok(());
        loop {
            let look_ns = deadline_ns.min(self.hal.now_ns().saturating_add(ERROR_LOOK_NS));
            if self.completed_by(look_ns) {
                return outcome;
            }
            if let Some(fault) = self.take_error(regs) {
                outcome = Err(fault);
                if let QueueFault::DeviceTimeout(_) = fault {
                    // The unit has aborted the wait descriptor as well.
                    return outcome;
                }
            }
            if self.hal.now_ns() >= deadline_ns {
                self.late = true;
                return outcome.and(Err(QueueFault::Timeout(TIMEOUT_NS)));
            }
        }
    }

    fn completed_by(&self, deadline_ns: u64) -> bool {
        let status = &self.status.words()[0];
        loop {
            let seen = status.load();
            if seen as u32 == self.sequence {
                return true;
            }
            if self.hal.now_ns() >= deadline_ns {
                return false;
            }
            self.hal.relax_on(status, seen, deadline_ns);
        }
    }

    /// Clears all errors, for which nobody waits.
    pub(super) fn clear_errors(&mut self, regs: &H::Regs) {
        for _ in 0..ERRORS {
            self.take_error(regs);
        }
    }

    /// Reads and clears an error of the queue, so that it runs on (VT-d, "Fault Status Register").
    fn take_error(&self, regs: &H::Regs) -> Option<QueueFault> {
        let status = FaultStatus::from_bits(regs.read(FSTS));
        let record = QueueError::from_bits(regs.read(IQERCD));
        if status.queue_error() {
            // The queue has stopped at a descriptor that it refused, and would refuse it again, so a wait descriptor
            // replaces it. If it was a wait descriptor, the request before it is done, and only the fetch failed.
            let head = self.head(regs) % DESCRIPTORS;
            self.place(head, self.wait_descriptor());
            regs.strobe(FSTS, FaultStatus::new().with_queue_error(true).into_bits());
            let request_done = (head + 1) % DESCRIPTORS == self.tail;
            return (!request_done).then_some(QueueFault::Refused(QueueErrorInfo(record.info())));
        }
        if status.time_out_error() {
            regs.strobe(FSTS, FaultStatus::new().with_time_out_error(true).into_bits());
            return Some(QueueFault::DeviceTimeout(RequesterId(record.time_out_source())));
        }
        if status.completion_error() {
            regs.strobe(FSTS, FaultStatus::new().with_completion_error(true).into_bits());
            return Some(QueueFault::WrongAnswer(RequesterId(record.completion_source())));
        }
        None
    }
}

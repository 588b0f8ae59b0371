//! The device: bring-up, work queues, errors, shutdown.

use super::port::Port;
use super::{BatchDone, Config, DsaError, TransferError, WorkQueue};
use crate::control::Control;
use crate::register::Typed as _;
use alloc::sync::Arc;
use alloc::vec::Vec;
use hal::{Hal, Lock, Word};
use irq::{Action, Irq, IrqReturn};
use spec::dsa::registers::{self as reg, Command, CommandError, GenCtrl, IntCause, SwError};

/// Limits that the device reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// Work queues.
    pub queues: u8,
    /// Entries, summed over all queues.
    pub entries: u16,
    /// Groups.
    pub groups: u8,
    /// Engines.
    pub engines: u8,
    /// A transfer may have up to `2^n` bytes.
    pub transfer_shift_max: u8,
}

/// An error that the device could not report in a completion record (DSA, "SWERROR").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SoftwareError {
    /// A completion status, or one of [`spec::dsa::registers::SwErrorCode`].
    pub error: u8,
    /// The queue, if the device reports it.
    pub queue: Option<u8>,
    /// The descriptor's operation, if the device reports it.
    pub opcode: Option<u8>,
}

/// Errors that the device has reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceErrors {
    /// Software errors seen.
    pub software_errors: u64,
    /// How often the device had more errors than it could record.
    pub overflows: u64,
    /// How often the device halted.
    pub halts: u64,
    /// The last software error.
    pub last: Option<SoftwareError>,
}

/// A Data Streaming Accelerator.
///
/// Threads may share it. Only one opening, closing, recovery or shutdown runs at a time ([`DsaError::Busy`]). Call
/// [`Device::shutdown`] before dropping it: until then the device may write to completion records. As an [`Action`] it
/// serves MSI-X entry 0.
pub struct Device<H: Hal> {
    hal: H,
    port: Port<H>,
    portals: Arc<H::Regs>,
    config: Config,
    /// Open queues, and closed queues whose memory the device may still write.
    queues: Lock<H, Vec<Arc<WorkQueue<H>>>>,
    errors: Lock<H, DeviceErrors>,
    /// 1 while a command runs.
    busy: H::Word,
}

/// SWERROR's Valid and Overflow bits. Writing 1 clears them.
const SEEN: u32 = SwError::new().with_valid(true).with_overflow(true).into_bits() as u32;

impl<H: Hal> Device<H> {
    /// Resets the device behind `bar0`, writes the configuration and enables it; `bar2` is the region of its portals
    /// (DSA, "Initialization": reset, tables, Enable Device). No queue is open yet.
    ///
    /// # Errors
    /// Any [`DsaError`]. Once the device was reset it has no queue then. Behind a [`DsaError::Timeout`] it may still reset or enable
    /// itself; the next `new` waits for that, and resets it.
    pub fn new(hal: H, bar0: H::Regs, bar2: H::Regs, config: Config) -> Result<Self, DsaError> {
        let port = Port::new(hal, bar0, config.command_timeout_ns)?;
        config.validate(&port.capabilities)?;
        port.command(Command::RESET_DEVICE)?;
        port.configure(&config);
        let control = GenCtrl::new().with_software_error_interrupt(true).with_halt_interrupt(true);
        port.regs.write(reg::GENCTRL, control.into_bits());
        port.command(Command::ENABLE_DEVICE)?;
        Ok(Self {
            hal,
            port,
            portals: Arc::new(bar2),
            config,
            queues: Lock::new(hal, Vec::new()),
            errors: Lock::new(hal, DeviceErrors::default()),
            busy: H::Word::new(0),
        })
    }

    /// The limits that the device reports.
    pub fn capabilities(&self) -> Capabilities {
        self.port.capabilities
    }

    /// Opens a queue of the configuration; its completions go to `done`.
    ///
    /// # Errors
    /// [`DsaError::NoQueue`], [`DsaError::Open`], no memory, or an error that the device reports.
    pub fn open_queue(&self, index: u8, done: Arc<dyn BatchDone>) -> Result<Arc<WorkQueue<H>>, DsaError> {
        let _control = self.control()?;
        let config = self.config.queues().find(|queue| queue.index == index).ok_or(DsaError::NoQueue(index))?;
        if self.find(index).is_some() {
            return Err(DsaError::Open(index));
        }
        let queue = Arc::new(WorkQueue::new(self.hal, self.portals.clone(), config, done)?);
        self.port.queue_command(Command::ENABLE_WQ, index)?;
        self.queues.lock().push(queue.clone());
        queue.set_open(true);
        Ok(queue)
    }

    /// Closes a queue. The device finishes the descriptors in flight; those that it does not finish end as
    /// [`TransferError::Closed`].
    ///
    /// # Errors
    /// [`DsaError::NotOpen`], or an error that the device reports. In the second case the queue is stopped and its
    /// descriptors have ended, but the device may still work on them: the queue's memory stays allocated until a shutdown
    /// succeeds, and their destinations must not be used before that either.
    pub fn close_queue(&self, index: u8) -> Result<(), DsaError> {
        let _control = self.control()?;
        let queue = self.find(index).ok_or(DsaError::NotOpen(index))?;
        queue.set_open(false);
        let result = self.port.queue_command(Command::DISABLE_WQ, index);
        queue.fail_all(TransferError::Closed);
        match result {
            // An earlier close did it, later than anybody waited for it.
            Err(DsaError::Command(_, CommandError::QUEUE_NOT_ENABLED)) if queue.is_leaving() => {}
            Err(error) => {
                queue.set_leaving(matches!(error, DsaError::Timeout(..)));
                return Err(error);
            }
            Ok(()) => {}
        }
        self.queues.lock().retain(|other| other.index() != index);
        Ok(())
    }

    /// Aborts a queue if any of its descriptors has been in flight for `timeout_ns`. All descriptors in flight on that
    /// queue then end with the device's status or as [`TransferError::Aborted`]. Returns true when a descriptor was
    /// overdue.
    ///
    /// # Errors
    /// [`DsaError::NotOpen`], or an error that the device reports. In the second case the queue is stopped and its
    /// descriptors have ended, but the device may still work on them: the queue's memory stays allocated until a shutdown
    /// succeeds, and their destinations must not be used before that either.
    pub fn recover_queue(&self, index: u8, timeout_ns: u64) -> Result<bool, DsaError> {
        let _control = self.control()?;
        let queue = self.find(index).ok_or(DsaError::NotOpen(index))?;
        let now_ns = self.hal.now_ns();
        let oldest_ns = queue.snapshot().oldest_ns;
        if oldest_ns.is_none_or(|oldest_ns| now_ns.saturating_sub(oldest_ns) < timeout_ns) {
            return Ok(false);
        }
        queue.set_open(false);
        let result = self.port.queue_command(Command::ABORT_WQ, index);
        queue.fail_all(TransferError::Aborted);
        result?;
        queue.set_open(true);
        Ok(true)
    }

    /// Stops the device. Every descriptor in flight ends.
    ///
    /// # Errors
    /// The reason why the device did not stop. The queues are stopped, and their descriptors have ended. This value still owns
    /// the queues' memory, so it must not be dropped, and the descriptors' destinations may still be written.
    pub fn shutdown(&self) -> Result<(), DsaError> {
        let _control = self.control()?;
        let queues = self.queues.lock().clone();
        queues.iter().for_each(|queue| queue.set_open(false));
        let result = self.port.command(Command::RESET_DEVICE);
        queues.iter().for_each(|queue| queue.fail_all(TransferError::Closed));
        result?;
        self.queues.lock().clear();
        Ok(())
    }

    /// All errors so far. Reads the device's error registers first.
    pub fn errors(&self) -> DeviceErrors {
        self.look_for_errors();
        *self.errors.lock()
    }

    fn find(&self, index: u8) -> Option<Arc<WorkQueue<H>>> {
        self.queues.lock().iter().find(|queue| queue.index() == index).cloned()
    }

    fn control(&self) -> Result<Control<'_, H::Word>, DsaError> {
        Control::begin(&self.busy).map_err(|_| DsaError::Busy)
    }

    /// Reads and clears the causes and the error record, so that the device can report the next error. True if any was
    /// set.
    fn look_for_errors(&self) -> bool {
        let mut errors = self.errors.lock();
        let regs = &self.port.regs;
        let cause = regs.read(reg::INTCAUSE);
        if cause == u32::MAX {
            return false;
        }
        // Clears the causes before reading the record, so that a later error sets its cause again.
        regs.strobe(reg::INTCAUSE, cause);
        let error = SwError::from_bits(regs.read(reg::SWERROR.get(0)));
        // Clears only the bits that were read. An overflow in between is counted the next time.
        regs.strobe(reg::SWERROR_CLEAR, error.into_bits() as u32 & SEEN);
        errors.overflows += u64::from(error.overflow());
        if error.valid() {
            errors.software_errors += 1;
            errors.last = Some(SoftwareError {
                error: error.error(),
                queue: error.queue_valid().then_some(error.queue()),
                opcode: error.descriptor_valid().then_some(error.opcode()),
            });
        }
        errors.halts += u64::from(IntCause::from_bits(cause).halt());
        cause != 0 || error.valid() || error.overflow()
    }
}

/// The handler of MSI-X entry 0: errors.
impl<H: Hal> Action for Device<H> {
    fn handle(&self, _irq: Irq) -> IrqReturn {
        if self.look_for_errors() { IrqReturn::Handled } else { IrqReturn::None }
    }
}

//! The NVMe driver with its completion check, in a kernel that keeps its own interrupts and its own block layer.
//!
//! One controller, one queue pair, and every CPU submits to it. After each batch the driver looks once at the
//! completion queue, and reaps only if something is there: a drive that holds its interrupts back, or a CPU that is
//! busy elsewhere, no longer decides when I/Os end. The kernel has two duties: its interrupt handler calls
//! [`Disk::interrupt`], and it takes completions in [`Requests::ended`] wherever they come from, in an interrupt or
//! under its own submission.
#![no_std]
extern crate alloc;

use alloc::sync::Arc;
use drivers::nvme::{
    BatchDone, CompletionCheck, Config, Controller, IoRequest, NvmeError, QueueConfig, QueuePair, QueueSnapshot,
    Submitted,
};
use hal::Hal;
use irq::{Action, Irq, IrqReturn};

/// Where the kernel's block layer learns that requests have ended.
pub trait Requests: Send + Sync {
    /// The request `tag` is over; `ok` when its data have moved. Interrupts are off.
    fn ended(&self, tag: u64, ok: bool);
}

/// MSI-X entry of the I/O queue; entry 0 is the admin queue's, which this kernel polls.
pub const VECTOR: u16 = 1;

/// A drive.
pub struct Disk<H: Hal> {
    controller: Controller<H>,
    queue: Arc<QueuePair<H>>,
}

/// Passes on what the driver reaped.
struct Ends<R>(Arc<R>);

impl<R: Requests> BatchDone for Ends<R> {
    fn batch_done(&self, batch: &[drivers::nvme::Completed]) {
        for completed in batch {
            self.0.ended(completed.tag, completed.result.is_ok());
        }
    }
}

impl<H: Hal> Disk<H> {
    /// Brings up the drive whose registers are `bar0`. `check` is [`CompletionCheck::Auto`] unless one must know
    /// better.
    ///
    /// # Errors
    /// [`NvmeError`] when the drive does not answer, or refuses.
    pub fn new<R: Requests + 'static>(
        hal: H,
        bar0: H::Regs,
        requests: Arc<R>,
        check: CompletionCheck,
    ) -> Result<Self, NvmeError> {
        let controller = Controller::new(hal, bar0, Config { queue_pairs: 1, ..Config::default() })?;
        let config = QueueConfig { entries: 64, vector: Some(VECTOR), transfer_bytes_max: 128 << 10 };
        let queue = controller.create_queue_pair(config, Arc::new(Ends(requests)))?;
        queue.set_completion_check(check);
        Ok(Self { controller, queue })
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> u32 {
        self.controller.namespace().block_bytes()
    }

    /// Sends a batch on its way, with one doorbell, and takes what has ended meanwhile. Any CPU, any context but the
    /// end of a request of this disk under its own lock.
    pub fn submit(&self, batch: &[IoRequest]) -> Submitted {
        self.queue.submit(batch)
    }

    /// The drive's interrupt, from the kernel's own handler, with interrupts off. False when it found nothing: the
    /// check had it all.
    pub fn interrupt(&self) -> bool {
        self.queue.handle(Irq(VECTOR.into())) == IrqReturn::Handled
    }

    /// What the queue did.
    pub fn snapshot(&self) -> QueueSnapshot {
        self.queue.snapshot()
    }
}

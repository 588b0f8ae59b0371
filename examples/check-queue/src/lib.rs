//! The NVMe driver with its completion look, in a kernel that keeps its own interrupts and its own block layer.
//!
//! The example has one controller and one queue pair, and every CPU submits to it. After each batch the driver looks
//! once at the completion queue, and reaps only if it finds a completion. A drive that holds its interrupts back, or a
//! busy CPU, then no longer delays the end of I/Os. The kernel has two duties: its interrupt handler calls
//! [`Disk::interrupt`], and it accepts completions in [`Requests::ended`] in any context, in an interrupt or under its
//! own submission.
#![no_std]
extern crate alloc;

use alloc::sync::Arc;
use drivers::nvme::{
    BatchDone, CompletionLook, Config, Controller, IoRequest, NvmeError, QueueConfig, QueuePair, QueueSnapshot,
    Submitted,
};
use hal::Hal;
use irq::{Action, Irq, IrqReturn};

/// Reports ended requests to the kernel's block layer.
pub trait Requests: Send + Sync {
    /// The request `tag` has ended; `ok` means that its data have moved. Interrupts are off.
    fn ended(&self, tag: u64, ok: bool);
}

/// MSI-X entry of the I/O queue. Entry 0 belongs to the admin queue, which this kernel polls.
pub const VECTOR: u16 = 1;

/// A drive.
pub struct Disk<H: Hal> {
    controller: Controller<H>,
    queue: Arc<QueuePair<H>>,
}

/// Passes reaped completions to the kernel.
struct Ends<R>(Arc<R>);

impl<R: Requests> BatchDone for Ends<R> {
    fn batch_done(&self, batch: &[drivers::nvme::Completed]) {
        for completed in batch {
            self.0.ended(completed.tag, completed.result.is_ok());
        }
    }
}

impl<H: Hal> Disk<H> {
    /// Brings up the drive whose registers are `bar0`. Use [`CompletionLook::Auto`] for `check` unless you know
    /// better.
    ///
    /// # Errors
    /// [`NvmeError`] when the drive does not answer, or refuses.
    pub fn new<R: Requests + 'static>(
        hal: H,
        bar0: H::Regs,
        requests: Arc<R>,
        check: CompletionLook,
    ) -> Result<Self, NvmeError> {
        let controller = Controller::new(hal, bar0, Config { queue_pairs: 1, ..Config::default() })?;
        let config = QueueConfig { entries: 64, vector: Some(VECTOR), transfer_bytes_max: 128 << 10 };
        let queue = controller.create_queue_pair(config, Arc::new(Ends(requests)))?;
        queue.set_completion_look(check);
        Ok(Self { controller, queue })
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> u32 {
        self.controller.namespace().block_bytes()
    }

    /// Submits a batch with one doorbell, and takes the completions that have arrived. Callable on any CPU and in any
    /// context, except at the end of a request of this disk under its own lock.
    pub fn submit(&self, batch: &[IoRequest]) -> Submitted {
        self.queue.submit(batch)
    }

    /// Call this from the kernel's own handler of the drive's interrupt, with interrupts off. Returns false when it
    /// finds no completion, because the look has taken them all.
    pub fn interrupt(&self) -> bool {
        self.queue.handle(Irq(VECTOR.into())) == IrqReturn::Handled
    }

    /// A snapshot of the queue with its counters.
    pub fn snapshot(&self) -> QueueSnapshot {
        self.queue.snapshot()
    }
}

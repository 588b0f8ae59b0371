//! The handler of a queue whose entries a thread takes.

use super::QueuePair;
use alloc::sync::Arc;
use hal::{Hal, Work};
use irq::{Action, Irq, IrqReturn};

/// One look at the head of the completion queue: a new entry wakes the thread. Linux's `nvme_irq_check`, which has the
/// interrupt under `nvme.use_threaded_interrupts=1`.
///
/// Request it as the primary handler, and the queue pair itself as the thread function
/// (`IrqCore::request_threaded(irq, name, flags, Some(EntryCheck::new(pair.clone())), pair)`). No ONESHOT is needed: an
/// interrupt that comes while the thread runs only looks again.
pub struct EntryCheck<H: Hal>(Arc<QueuePair<H>>);

impl<H: Hal> EntryCheck<H> {
    /// The primary handler of this queue.
    pub fn new(pair: Arc<QueuePair<H>>) -> Arc<Self> {
        Arc::new(Self(pair))
    }
}

impl<H: Hal> Action for EntryCheck<H> {
    fn handle(&self, _irq: Irq) -> IrqReturn {
        self.0.hal.work(Work::CompletionLook, 1);
        if self.0.completion_pending() { IrqReturn::WakeThread } else { IrqReturn::None }
    }
}

//! Completions that were taken without an interrupt. Their interrupt may still come, and is the queue's own then.

use crate::verdict::violate;
use drivers::dsa::{Completed, TransferError};
use irq::IrqReturn;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How often that happened, and how often before and after the handler's last run.
#[derive(Default)]
pub(super) struct Early {
    times: AtomicU64,
    before: AtomicU64,
    after: AtomicU64,
}

impl Early {
    /// These are taken outside of the handler. What the driver ends by itself never interrupts.
    pub(super) fn taken(&self, done: &[Completed]) {
        if done.iter().any(|done| matches!(done.result, Ok(_) | Err(TransferError::Device { .. }))) {
            self.times.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn times(&self) -> u64 {
        self.times.load(Relaxed)
    }

    /// A run of the handler, which began when there had been so many `times`, has found so many completions. A poll beside a run may
    /// have come before it or behind it.
    pub(super) fn judge(&self, before: u64, found: u32, answer: IrqReturn) {
        let after = self.times();
        let (last_before, last_after) = (self.before.swap(before, Relaxed), self.after.swap(after, Relaxed));
        let (must, may) = (found > 0 || before > last_after, found > 0 || after > last_before);
        let is_handled = answer == IrqReturn::Handled;
        if must && !is_handled || is_handled && !may {
            let polls = if may { "may have taken some" } else { "took none" };
            let text =
                format!("a work queue's handler found {found} completions, polls {polls}, and it answers {answer:?}");
            violate("commands", text);
        }
    }
}

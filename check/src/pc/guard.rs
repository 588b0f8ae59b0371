//! A handler that reports its runs to the checkers.

use crate::checkers::queues;
use crate::checkers::truth::marks;
use crate::mark::Mark;
use irq::{Action, Irq, IrqReturn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Wraps the handler of a line. Every installation has its own number.
pub(super) struct Guard {
    inner: Arc<dyn Action>,
    number: u64,
    /// The load of its queue, if it is a drive's.
    load: Option<u64>,
}

impl Guard {
    /// `inner`, about to be installed.
    pub(super) fn open(numbers: &AtomicU64, inner: Arc<dyn Action>, load: Option<u64>) -> Arc<Self> {
        let number = numbers.fetch_add(1, Relaxed);
        Mark::LineOpened.of(number);
        if let Some(load) = load {
            queues::installed(load, number);
        }
        Arc::new(Self { inner, number, load })
    }

    /// The number of this installation.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The line's `free` has returned: none of its handlers may run.
    pub(super) fn close(&self) {
        Mark::LineClosed.of(self.number);
    }
}

impl Action for Guard {
    fn handle(&self, irq: Irq) -> IrqReturn {
        Mark::HandlerEntered.of(self.number);
        let answer = self.inner.handle(irq);
        match self.load {
            Some(load) => marks::queue_answered(irq, answer, load),
            None => marks::answered(irq, answer, false),
        }
        Mark::HandlerLeft.of(self.number);
        answer
    }
}

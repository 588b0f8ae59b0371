//! A guard for the host: simulated software that goes round without time passing would go round for ever.

use crate::core::{Core, Next};
use crate::threads::Yield;
use crate::time::Ps;
use hal::CpuId;
use std::cell::Cell;

#[cfg(test)]
mod tests;

/// Counts steps that take no simulated time.
pub(crate) struct Guard {
    max: u32,
    instant: Cell<u64>,
    count: Cell<u32>,
    found: Cell<Option<Found>>,
}

/// What went round.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    /// Code on this CPU; otherwise models' events.
    pub(crate) cpu: Option<CpuId>,
}

impl Guard {
    pub(crate) fn new(max: u32) -> Self {
        Self { max, instant: Cell::new(0), count: Cell::new(0), found: Cell::new(None) }
    }

    pub(crate) fn found(&self) -> Option<Found> {
        self.found.get()
    }

    /// One more step at `at`. True when there were too many.
    #[inline]
    fn is_over(&self, at: Ps) -> bool {
        if self.instant.replace(at.0) != at.0 {
            self.count.set(0);
        }
        self.count.set(self.count.get() + 1);
        self.count.get() > self.max
    }
}

impl Core {
    /// The running CPU came by without time passing since it did so last.
    #[inline]
    pub(crate) fn still_point(&self) {
        if self.guard.is_over(self.local_now()) {
            self.stand_still();
        }
    }

    /// Code that goes round is left where it is, and the run ends.
    #[cold]
    fn stand_still(&self) {
        if self.dead.get() {
            return;
        }
        self.guard.found.set(Some(Found { cpu: Some(self.cpu().id) }));
        loop {
            self.threads.suspend(Yield::Livelock);
        }
    }

    /// One more event at `at`. `Some` when there were too many.
    #[inline]
    pub(crate) fn still_event(&self, at: Ps) -> Option<Next> {
        self.guard.is_over(at).then(|| {
            self.guard.found.set(Some(Found { cpu: None }));
            Next::Livelock
        })
    }
}

//! A guard for the host: simulated software that goes round without time passing would go round for ever.

use crate::core::{Core, Next};
use crate::threads::Yield;
use hal::CpuId;
use std::cell::Cell;

#[cfg(test)]
mod tests;

/// Counts steps that take no simulated time.
pub(crate) struct Guard {
    max: u32,
    /// Since time has passed last.
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
        Self { max, count: Cell::new(0), found: Cell::new(None) }
    }

    pub(crate) fn found(&self) -> Option<Found> {
        self.found.get()
    }

    /// Time passes.
    #[inline]
    pub(crate) fn passed(&self) {
        self.count.set(0);
    }

    /// One more step. True when there were too many.
    #[inline]
    fn is_over(&self) -> bool {
        let count = self.count.get().wrapping_add(1);
        self.count.set(count);
        count > self.max
    }
}

impl Core {
    /// The running CPU came by without time passing since it did so last.
    #[inline]
    pub(crate) fn still_point(&self) {
        if self.guard.is_over() {
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

    /// One more event without time passing. `Some` when there were too many.
    #[inline]
    pub(crate) fn still_event(&self) -> Option<Next> {
        if self.guard.is_over() { Some(self.still_events()) } else { None }
    }

    #[cold]
    fn still_events(&self) -> Next {
        self.guard.found.set(Some(Found { cpu: None }));
        Next::Livelock
    }
}

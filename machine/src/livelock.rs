//! A guard for the host: simulated software that loops without time passing would never end.

use hal::CpuId;
use std::cell::Cell;

#[cfg(test)]
mod tests;

/// Counts steps that take no simulated time.
pub(crate) struct Guard {
    max: u32,
    /// Steps since time last passed.
    count: Cell<u32>,
    found: Cell<Option<Found>>,
}

/// The source of a livelock.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    /// Code on this CPU; with `None`, events of models.
    pub(crate) cpu: Option<CpuId>,
}

impl Guard {
    pub(crate) fn new(max: u32) -> Self {
        Self { max, count: Cell::new(0), found: Cell::new(None) }
    }

    pub(crate) fn found(&self) -> Option<Found> {
        self.found.get()
    }

    /// Records the source of the livelock.
    pub(crate) fn find(&self, found: Found) {
        self.found.set(Some(found));
    }

    /// Time passes.
    #[inline]
    pub(crate) fn passed(&self) {
        self.count.set(0);
    }

    /// Counts one more step. True when there were too many.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        let count = self.count.get().wrapping_add(1);
        self.count.set(count);
        count > self.max
    }
}

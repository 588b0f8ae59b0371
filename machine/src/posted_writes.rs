//! The order in which CPUs' posted register writes arrive.

use crate::event::ModelId;
use crate::time::Ps;
use std::cell::Cell;

/// Slots of the table; more than the registers that are written often on any machine here.
const SLOTS: usize = 4096;

/// Arrival time of the last write to each group of registers.
///
/// A CPU with interrupts off runs ahead of its debt. It may release a lock, and another CPU may take the lock, before
/// the time of the first CPU's last register write has come. The other CPU's write must not overtake it, as on a real
/// bus.
///
/// Groups share slots by a hash. If two groups share a slot, one may wait for the other; nothing else happens.
pub(crate) struct PostedWrites(Box<[Cell<u64>]>);

impl PostedWrites {
    pub(crate) fn new() -> Self {
        Self(vec![Cell::new(0); SLOTS].into())
    }

    /// Arrival time of a write made at `at`.
    pub(crate) fn arrival(&self, model: ModelId, order: u32, at: Ps) -> Ps {
        // Odd, so that the doorbells of one model do not share slots.
        let slot = &self.0[(model.0.wrapping_mul(1031).wrapping_add(order / 4)) as usize % SLOTS];
        let arrival = at.0.max(slot.get());
        slot.set(arrival);
        Ps(arrival)
    }
}

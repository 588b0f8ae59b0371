//! The order in which CPUs' posted register writes arrive.

use crate::model::ModelId;
use crate::time::Ps;
use std::cell::Cell;

/// Slots of the table; more than the registers that are written often on any machine here.
const SLOTS: usize = 4096;

/// When the last write of each group of registers arrives.
///
/// A CPU with interrupts off runs ahead of its debt: it may release a lock, and another CPU take it, before the time of
/// its last register write has come. The other CPU's write must not overtake it, as it cannot on a bus.
///
/// Groups share slots by a hash: then one of them may have to wait for the other, and that is all.
pub(crate) struct PostedWrites(Box<[Cell<u64>]>);

impl PostedWrites {
    pub(crate) fn new() -> Self {
        Self(vec![Cell::new(0); SLOTS].into())
    }

    /// When a write arrives that is made at `at`.
    pub(crate) fn arrival(&self, model: ModelId, order: u32, at: Ps) -> Ps {
        // Odd, so that the doorbells of one model do not meet each other.
        let slot = &self.0[(model.0.wrapping_mul(1031).wrapping_add(order / 4)) as usize % SLOTS];
        let arrival = at.0.max(slot.get());
        slot.set(arrival);
        Ps(arrival)
    }
}

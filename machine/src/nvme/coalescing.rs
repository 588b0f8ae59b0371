//! Interrupt coalescing: features 08h and 09h (Base 5.27.1.6, 5.27.1.7), and hidden coalescing that the drive does not
//! report.
//!
//! Entries are counted per vector. The first held entry starts the timer; the threshold or the end of the time opens
//! the message's window. Entries of the admin queue are never held. When the host acknowledges all entries in between,
//! the count restarts.

use super::{Nvme, code};
use crate::time::Ps;
use crate::world::World;

/// The unit of the aggregation time.
const TIME_UNIT: Ps = Ps::from_ns(100_000);

/// Limits of coalescing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Aggregation {
    /// This many entries make a message; 0: only the time limit applies.
    entries: u32,
    time: Ps,
}

impl Nvme {
    /// The limits for `vector`. The declared feature is off when its time or its (0's based) threshold is 0: if one
    /// entry makes a message, there is nothing to wait for.
    fn aggregation(&self, vector: u16) -> Option<Aggregation> {
        let feature = self.features.coalescing;
        if feature.time() == 0 || feature.thr() == 0 {
            return self
                .config
                .hidden_coalescing
                .map(|hidden| Aggregation { entries: hidden.entries, time: hidden.time });
        }
        (!self.features.coalescing_disabled[usize::from(vector)]).then(|| Aggregation {
            entries: u32::from(feature.thr()) + 1,
            time: Ps(TIME_UNIT.0 * u64::from(feature.time())),
        })
    }

    /// Holds an entry back. False when the entry is to be signalled now.
    pub(super) fn hold_back(&mut self, world: &mut World<'_>, vector: u16) -> bool {
        let Some(aggregation) = self.aggregation(vector) else { return false };
        let state = &mut self.vectors[usize::from(vector)];
        if state.held + 1 == aggregation.entries {
            return false;
        }
        state.held += 1;
        self.counters.coalesced += 1;
        if state.held == 1 {
            let arg = u64::from(state.generation) << 32 | u64::from(vector);
            world.schedule(world.now() + aggregation.time, code::COALESCED, arg);
        }
        true
    }

    /// All held entries are signalled or gone, so their timer is stale.
    pub(super) fn release_held(&mut self, vector: u16) {
        let state = &mut self.vectors[usize::from(vector)];
        if state.held > 0 {
            state.held = 0;
            state.generation = state.generation.wrapping_add(1);
        }
    }

    pub(super) fn coalescing_ends(&mut self, world: &mut World<'_>, arg: u64) {
        let vector = arg as u16;
        let state = &self.vectors[usize::from(vector)];
        if u64::from(state.generation) == arg >> 32 && state.held > 0 {
            self.arm(world, vector);
        }
    }
}

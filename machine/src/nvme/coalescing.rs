//! Interrupt coalescing: features 08h and 09h (Base 5.27.1.6, 5.27.1.7), and the kind that a drive does not own up to.
//!
//! Entries are counted per vector: the first that is held back starts the time, the threshold or the time's end opens
//! the message's window. Entries of the admin queue are never held back. When the host acknowledges everything in the
//! meantime, counting starts anew.

use super::{Nvme, code};
use crate::time::Ps;
use crate::world::World;

/// The unit of the aggregation time.
const TIME_UNIT: Ps = Ps::from_ns(100_000);

/// What holds entries back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Aggregation {
    /// That many make a message; 0: only the time counts.
    entries: u32,
    time: Ps,
}

impl Nvme {
    /// What applies to `vector`. The declared feature is off when its time or its (0's based) threshold is 0: with one
    /// entry a message there is nothing to wait for.
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

    /// Holds an entry back; false when it is to be signalled now.
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

    /// Whatever was held back is signalled or gone; its time no longer counts.
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

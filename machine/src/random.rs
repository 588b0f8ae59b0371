//! One stream of random numbers an entity, all from one seed.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

/// xoshiro256++, a named algorithm whose sequence is part of its definition: the same on any host, for ever.
pub struct Stream(Xoshiro256PlusPlus);

impl Stream {
    /// The stream of entity `index` of a machine with this seed. A new entity does not change the streams of others.
    pub fn new(seed: u64, index: u64) -> Self {
        // Odd multiplier (the 64-bit golden ratio), so that distinct indices give distinct seeds.
        Self(Xoshiro256PlusPlus::seed_from_u64(seed ^ (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// The next 64 bits.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }
}

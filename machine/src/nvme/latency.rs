//! Drawing one latency; integers only, so that the same seed gives the same picoseconds everywhere.

use super::config::{Latency, Spread};
use crate::time::Ps;
use crate::world::World;

/// One latency.
pub(super) fn draw(world: &mut World<'_>, latency: Latency) -> Ps {
    let mean = latency.mean;
    let mut time = match latency.spread {
        Spread::Fixed => mean,
        Spread::Platform => world.jitter(mean),
        Spread::Uniform { percent } => {
            let half = (u128::from(mean.0) * u128::from(percent) / 100) as u64;
            let width = u128::from(half) * 2 + 1;
            Ps(mean.0 - half + ((u128::from(world.random()) * width) >> 64) as u64)
        }
        Spread::AboveFloor { floor } => {
            let excess = mean.saturating_sub(floor);
            floor + Ps(((u128::from(excess.0) * u128::from(exponential_q16(world.random()))) >> 16) as u64)
        }
    };
    if let Some(tail) = latency.tail
        && world.random().is_multiple_of(tail.one_in.into())
    {
        time = Ps(time.0.saturating_mul(tail.factor.into()));
    }
    time
}

/// ln 2, times 2^16.
const LN_2_Q16: u64 = 45_426;

/// `-log2(1 - i/512)` for i from 0 to 256, times 2^16: the logarithm of the upper half of (0, 1].
static LOG2_Q16: [u32; 257] = {
    let mut table = [0; 257];
    let mut i = 0;
    while i < table.len() {
        table[i] = minus_log2_q16((512 - i as u64) << 22);
        i += 1;
    }
    table
};

/// `-log2(x / 2^31)` times 2^16 for x from 2^30 to 2^31, bit by bit: squaring doubles the logarithm.
const fn minus_log2_q16(x: u64) -> u32 {
    let mut x = x;
    let mut log = 0;
    let mut bit = 0;
    if x == 1 << 31 {
        return 0;
    }
    if x == 1 << 30 {
        return 1 << 16;
    }
    while bit < 16 {
        x = (x * x) >> 31;
        log <<= 1;
        if x < 1 << 30 {
            x <<= 1;
            log |= 1;
        }
        bit += 1;
    }
    log
}

/// A number with exponential distribution and mean 1, times 2^16, from 64 random bits: `-ln` of them as a fraction.
fn exponential_q16(random: u64) -> u64 {
    let random = random | 1;
    let halvings = u64::from(random.leading_zeros());
    // The fraction is now in [1/2, 1): 8 bits choose the piece, 16 more lie on its chord.
    let below_one = u64::MAX - (random << halvings);
    let piece = (below_one >> 55) as usize;
    let along = below_one >> 39 & 0xffff;
    let (from, to) = (u64::from(LOG2_Q16[piece]), u64::from(LOG2_Q16[piece + 1]));
    let log2 = (halvings << 16) + from + (((to - from) * along) >> 16);
    (log2 * LN_2_Q16) >> 16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Stream;

    #[test]
    fn logarithms_of_known_fractions() {
        // -ln(1/2), -ln(3/4), -ln(1/1024), and nearly -ln(1).
        for (random, expected) in
            [(1 << 63, core::f64::consts::LN_2), (3 << 62, 0.287_682), (1 << 54, 6.931_472), (u64::MAX, 0.0)]
        {
            let value = exponential_q16(random) as f64 / 65_536.0;
            assert!((value - expected).abs() < 2e-4, "{random:#x}: {value}");
        }
    }

    #[test]
    fn the_mean_is_one_and_a_third_lies_above_it() {
        let mut stream = Stream::new(1, 1);
        let draws: Vec<_> = (0..100_000).map(|_| exponential_q16(stream.next())).collect();
        let mean = draws.iter().sum::<u64>() as f64 / 65_536.0 / 1e5;
        let above = draws.iter().filter(|&&value| value > 65_536).count();
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
        // 1/e of them.
        assert!((36_000..37_600).contains(&above), "{above}");
    }
}

//! fio's random numbers: its generators, and the seed of each use. With them a job's offsets, sizes and directions are
//! those that fio draws for the same file.
//!
//! The generators are the combined Tausworthe generators of P. L'Ecuyer ("Maximally equidistributed combined Tausworthe
//! generators", Math. Comp. 65, 1996, for three registers; "Tables of maximally equidistributed combined LFSR
//! generators", Math. Comp. 68, 1999, for five).

/// One stream.
#[derive(Clone)]
pub(super) enum Random {
    /// Three registers of 32 bits.
    Narrow([u32; 3]),
    /// Five registers of 64 bits.
    Wide([u64; 5]),
}

/// The state before seeding.
const START: u64 = 53;
/// Numbers that are drawn and dropped after seeding.
const WARM_UP: usize = 6;

/// Shift, shift back, mask and feed of each register of 32 bits.
const NARROW: [(u32, u32, u32, u32); 3] =
    [(13, 19, 0xffff_fffe, 12), (2, 25, 0xffff_fff8, 4), (3, 11, 0xffff_fff0, 17)];
/// The same of 64 bits.
const WIDE: [(u32, u32, u64, u32); 5] = [
    (1, 53, 0xffff_ffff_ffff_fffe, 10),
    (24, 50, 0xffff_ffff_ffff_fe00, 5),
    (3, 23, 0xffff_ffff_ffff_f000, 29),
    (5, 24, 0xffff_ffff_fffe_0000, 23),
    (3, 33, 0xffff_ffff_ff80_0000, 8),
];
/// The least value of each register.
const LEAST: [u64; 5] = [1, 7, 15, 33, 49];

impl Random {
    pub(super) fn new(seed: u64, wide: bool) -> Self {
        let mut random = if wide {
            let mut last = START;
            Self::Wide(LEAST.map(|least| {
                let next = last.wrapping_mul(6_906_969_069) ^ seed;
                last = if next < least { next + least } else { next };
                last
            }))
        } else {
            let mut last = START as u32;
            Self::Narrow([0, 1, 2].map(|register| {
                let (next, least) = (last.wrapping_mul(69_069) ^ seed as u32, LEAST[register] as u32);
                last = if next < least { next + least } else { next };
                last
            }))
        };
        (0..WARM_UP).for_each(|_| _ = random.next());
        random
    }

    /// The next number: 32 or 64 bits.
    pub(super) fn next(&mut self) -> u64 {
        match self {
            Self::Narrow(registers) => {
                for (register, (shift, back, mask, feed)) in registers.iter_mut().zip(NARROW) {
                    *register = ((*register & mask) << feed) ^ (((*register << shift) ^ *register) >> back);
                }
                registers.iter().fold(0, |all, register| all ^ register).into()
            }
            Self::Wide(registers) => {
                for (register, (shift, back, mask, feed)) in registers.iter_mut().zip(WIDE) {
                    *register = ((*register & mask) << feed) ^ (((*register << shift) ^ *register) >> back);
                }
                registers.iter().fold(0, |all, register| all ^ register)
            }
        }
    }

    /// The next number as a fraction from 0 up to, not including, 1.
    pub(super) fn fraction(&mut self) -> f64 {
        let scale = match self {
            Self::Narrow(_) => 4_294_967_296.0,
            Self::Wide(_) => 18_446_744_073_709_551_616.0,
        };
        self.next() as f64 / scale
    }

    /// The greatest number.
    pub(super) fn max(&self) -> u64 {
        match self {
            Self::Narrow(_) => u32::MAX.into(),
            Self::Wide(_) => u64::MAX,
        }
    }

    /// From 1 to 100.
    pub(super) fn percent(&mut self) -> u64 {
        1 + (100.0 * self.fraction()) as u64
    }
}

/// The uses of random numbers, in the order of their seeds in fio 3.33 (`fio.h`).
#[derive(Clone, Copy)]
pub(super) enum Use {
    SizeOfRead = 0,
    SizeOfWrite = 1,
    SizeOfTrim = 2,
    Mix = 4,
    File = 5,
    Offset = 6,
    FileSize = 7,
    Order = 10,
    Delay = 13,
    PoissonRead = 15,
    Zone = 16,
    PoissonWrite = 17,
    PoissonTrim = 18,
    /// Ours: which buffered reads hit the page cache.
    PageCache = 23,
}

/// The seeds of a job.
pub(super) struct Seeds([u64; 24]);

/// The factor from one seed to the next.
const FACTOR: u64 = 0x9e37_0001;

/// The seed of repeated offsets (`FIO_RANDSEED` of fio 3.33, init.c).
const OFFSETS_SEED: u64 = 0xb189_9bed;

impl Seeds {
    /// `number`: the job's number in its file, from 1.
    pub(super) fn of(seed: u64, number: u64) -> Self {
        let mut seed = (0..4).fold(seed, |seed, _| seed.wrapping_mul(FACTOR));
        Self(std::array::from_fn(|index| {
            let own = seed.wrapping_mul(number).wrapping_add(index as u64);
            seed = seed.wrapping_mul(FACTOR);
            own
        }))
    }

    /// The seeds of a job with `randrepeat`: its random offsets depend on its number alone, whatever `randseed` says. `run`
    /// tells further runs apart; 0 draws what fio draws.
    pub(super) fn repeated(mut self, number: u64, run: u64) -> Self {
        self.0[Use::Offset as usize] = OFFSETS_SEED.wrapping_mul(number).wrapping_add(run);
        self
    }

    pub(super) fn of_use(&self, of: Use) -> u64 {
        self.0[of as usize]
    }

    pub(super) fn stream(&self, of: Use, wide: bool) -> Random {
        Random::new(self.of_use(of), wide)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_even_and_streams_differ() {
        for wide in [false, true] {
            let seeds = Seeds::of(0x89, 1);
            let mut mean = 0.0;
            let (mut one, mut other) = (seeds.stream(Use::Mix, wide), seeds.stream(Use::Offset, wide));
            for _ in 0..10_000 {
                let fraction = one.fraction();
                assert!((0.0..1.0).contains(&fraction));
                mean += fraction / 10_000.0;
            }
            assert!((0.48..0.52).contains(&mean), "{mean}");
            assert_ne!(one.next(), other.next());
            assert!((1..=100).contains(&other.percent()));
        }
    }
}

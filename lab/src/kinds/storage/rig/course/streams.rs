//! The random streams of a walk.

use super::random::{Random, Seeds, Use};
use crate::kinds::storage::load::{DIRECTIONS, Generator, Load};
use crate::kinds::storage::{JobPlan, Trims};

/// One stream for each use, so that an option of one use does not move the draws of another.
pub(super) struct Streams {
    pub(super) offsets: Random,
    pub(super) sizes: [Random; DIRECTIONS],
    /// Reads or writes.
    pub(super) mix: Random,
    /// Random or sequential, of `percentage_random`.
    pub(super) order: [Random; DIRECTIONS],
    pub(super) zones: Random,
    pub(super) file: Random,
}

impl Streams {
    pub(super) fn new(plan: &JobPlan, load: &Load, seeds: &Seeds) -> Self {
        let wide = load.order.generator == Generator::Tausworthe64;
        // What is verified has the same sizes when it is read, and so have a trim and the write of its block.
        let is_verified = load.verify.after || load.verify.checks;
        let of_write = if is_verified { Use::SizeOfRead } else { Use::SizeOfWrite };
        let of_trim = if plan.pattern.trims == Trims::ThenWrite { of_write } else { Use::SizeOfTrim };
        Self {
            offsets: seeds.stream(Use::Offset, wide),
            sizes: [Use::SizeOfRead, of_write, of_trim].map(|of| seeds.stream(of, wide)),
            mix: seeds.stream(Use::Mix, false),
            order: [(); DIRECTIONS].map(|()| seeds.stream(Use::Order, false)),
            zones: seeds.stream(Use::Zone, false),
            file: seeds.stream(Use::File, wide),
        }
    }
}

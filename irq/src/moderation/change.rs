//! Whether two samples are of the same load.

use super::Sample;
use super::sample::scale;

/// Width of the band round the settled values, in per cent. A larger difference is outside the band.
const BAND_PCT: u64 = 25;
/// The same band for completions per interrupt. They scatter little. When the CPU is the limit, they may be the only
/// sign of a deeper load: on the simulated machine 1.36 become 1.19.
const GATHERED_BAND_PCT: u64 = 8;
/// With this many interrupts, a window measures completions per interrupt to 2 %.
const GATHERED_EVENTS_MIN: u64 = 1_000;

/// How much one load differs from another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Change {
    /// Within the band.
    None,
    /// Outside the band.
    Some,
    /// At least twice or at most half of the other.
    Twofold,
}

impl Change {
    /// The largest difference of the sample's rates and depth from those of `reference`.
    pub(super) fn between(reference: &Sample, sample: &Sample) -> Self {
        let depths = reference.in_flight_x100.zip(sample.in_flight_x100);
        let rates = (reference.completions_per_s, sample.completions_per_s);
        let mut change = Self::None;
        for (before, now) in [Some(rates), depths].into_iter().flatten() {
            if now / 2 >= before && now > before || now <= before / 2 && now < before {
                return Self::Twofold;
            }
            if !is_within(now, before, BAND_PCT) {
                change = Self::Some;
            }
        }
        let gathered = [reference, sample].map(|sample| sample.completions_per_event_x100);
        let is_told = [reference, sample].iter().all(|sample| sample.events() >= GATHERED_EVENTS_MIN);
        if is_told && !is_within(gathered[1], gathered[0], GATHERED_BAND_PCT) { change.max(Self::Some) } else { change }
    }
}

/// True if `rate` differs from `reference` by at most `pct` per cent.
pub(super) fn is_within(rate: u64, reference: u64, pct: u64) -> bool {
    rate.abs_diff(reference) <= scale(reference, pct, 100)
}

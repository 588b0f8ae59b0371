//! The I/Os of a phase over time. How long a phase lasts is known at its end only, so the buckets grow with it.

use crate::outcome::Timeline;

/// The first width of a bucket.
const FIRST_NS: u64 = 2_000;
/// With so many buckets, two and two become one.
const MOST: usize = 100;

/// Counts in equal buckets from the phase's beginning.
pub(super) struct Buckets {
    begun_ns: u64,
    bucket_ns: u64,
    counts: Vec<u64>,
    /// The total at the last look.
    seen: u64,
}

impl Buckets {
    /// `total`: what was counted before.
    pub(super) fn new(begun_ns: u64, total: u64) -> Self {
        Self { begun_ns, bucket_ns: FIRST_NS, counts: Vec::new(), seen: total }
    }

    /// When the bucket ends that is being filled.
    pub(super) fn next_ns(&self) -> u64 {
        self.begun_ns + self.bucket_ns * (self.counts.len() as u64 + 1)
    }

    /// Ends all buckets that are over at `now_ns`; the first of them has everything since the last look.
    pub(super) fn look(&mut self, now_ns: u64, total: u64) {
        while self.next_ns() <= now_ns {
            // A job that begins to count anew has less than before.
            self.counts.push(total.saturating_sub(self.seen));
            self.seen = total;
            if self.counts.len() == MOST {
                self.counts = self.counts.chunks(2).map(|pair| pair.iter().sum()).collect();
                self.bucket_ns *= 2;
            }
        }
    }

    /// The timeline of a phase whose ramp was so long.
    pub(super) fn timeline(self, ramp_ns: u64, ends_itself: bool) -> Timeline {
        let counts = [("ios".to_owned(), self.counts)].into();
        Timeline { bucket_ns: self.bucket_ns, ramp_ns, ends_itself, counts, ..Timeline::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_grow_with_the_phase_and_lose_nothing() {
        let mut buckets = Buckets::new(1_000, 7);
        assert_eq!(buckets.next_ns(), 3_000);
        for step in 1..=1_000u64 {
            buckets.look(1_000 + step * FIRST_NS, 7 + step);
        }
        let timeline = buckets.timeline(5, false);
        let ios = &timeline.counts["ios"];
        assert_eq!((timeline.bucket_ns, timeline.ramp_ns), (16 * FIRST_NS, 5));
        assert!(ios.len() >= MOST / 2 && ios.iter().all(|&count| count == 16), "{ios:?}");
    }

    #[test]
    fn a_pause_is_empty_buckets_and_a_new_count_is_none_below_zero() {
        let mut buckets = Buckets::new(0, 0);
        buckets.look(4 * FIRST_NS, 10);
        buckets.look(5 * FIRST_NS, 3);
        assert_eq!(buckets.counts, [10, 0, 0, 0, 0]);
    }
}

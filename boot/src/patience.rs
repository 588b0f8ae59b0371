//! A time limit on a machine whose host may be starved.

/// The most that the time between two looks counts, in nanoseconds. A CPU that runs looks many times in it.
const STEP_NS: u64 = 1_000_000;

/// A limit on the time in which the waiting CPU itself ran.
///
/// A virtual machine's clock goes on while its host runs other things. By the clock alone a CPU would be given up for
/// dead although the host has let neither it nor the waiting one run. A long time between two looks means just that, so no more
/// than a millisecond of it counts.
pub(crate) struct Patience {
    limit_ns: u64,
    left_ns: u64,
    seen_ns: u64,
}

impl Patience {
    /// `limit_ns` of patience, from `now_ns` on.
    pub(crate) fn new(limit_ns: u64, now_ns: u64) -> Self {
        Self { limit_ns, left_ns: limit_ns, seen_ns: now_ns }
    }

    /// Looks at the clock; true once the limit is used up. To be called again and again.
    pub(crate) fn is_over(&mut self, now_ns: u64) -> bool {
        self.left_ns = self.left_ns.saturating_sub(now_ns.saturating_sub(self.seen_ns).min(STEP_NS));
        self.seen_ns = now_ns;
        self.left_ns == 0
    }

    /// What was waited for has come nearer: the limit begins anew.
    pub(crate) fn renew(&mut self, now_ns: u64) {
        *self = Self::new(self.limit_ns, now_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_that_runs_waits_as_long_as_the_limit() {
        let mut patience = Patience::new(5_000_000, 7);
        let looks = (1_u64..).map(|look| 7 + look * 10_000).find(|&now_ns| patience.is_over(now_ns));
        assert_eq!(looks, Some(5_000_007));
    }

    #[test]
    fn time_in_which_the_cpu_did_not_run_does_not_count() {
        let mut patience = Patience::new(5_000_000, 0);
        assert!(!patience.is_over(60_000_000_000), "one gap");
        assert!((1..4).all(|gap| !patience.is_over(60_000_000_000 + gap * 100_000_000)));
        assert!(patience.is_over(60_400_000_000), "but it ends: five gaps are five milliseconds");
    }

    #[test]
    fn progress_begins_it_anew() {
        let mut patience = Patience::new(1_000_000, 0);
        assert!(!patience.is_over(999_999));
        patience.renew(999_999);
        assert!(!patience.is_over(1_500_000) && patience.is_over(1_999_999));
    }
}

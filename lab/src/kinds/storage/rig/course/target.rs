//! `latency_target`: searches the deepest queue whose latencies keep to a limit. By the rules of fio 3.33.

use crate::kinds::storage::load::LatencyTarget;

/// The state of the search.
pub(super) struct Search {
    target: LatencyTarget,
    deepest: u32,
    /// The depth in use.
    pub(super) depth: u32,
    low: u32,
    high: u32,
    stable: u32,
    failed: u64,
    /// The window's beginning: time and I/Os done.
    since: (u64, u64),
    is_last: bool,
}

/// What a look at the window means for the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// It goes on.
    On,
    /// It goes on when nothing is in flight any more.
    Quiesce,
    /// The depth is found: the last window begins, and only it is measured.
    Last,
    /// The job is done.
    Done,
    /// Not even one I/O at a time keeps to the limit.
    Missed,
}

impl Search {
    pub(super) fn new(target: LatencyTarget, deepest: u32, now_ns: u64) -> Self {
        Self {
            target,
            deepest,
            depth: 1,
            low: 1,
            high: deepest,
            stable: 0,
            failed: 0,
            since: (now_ns, 0),
            is_last: false,
        }
    }

    /// An I/O took so long.
    pub(super) fn took(&mut self, latency_ns: u64, now_ns: u64, ios: u64) -> Verdict {
        if latency_ns <= self.target.latency_ns {
            return Verdict::On;
        }
        if self.target.percent >= 100.0 {
            return if self.depth == 1 { Verdict::Missed } else { self.fail(now_ns, ios) };
        }
        self.failed += 1;
        Verdict::On
    }

    /// Looks whether the window is over.
    pub(super) fn look(&mut self, now_ns: u64, ios: u64) -> Verdict {
        if now_ns - self.since.0 < self.target.window_ns {
            return Verdict::On;
        }
        let window = (ios - self.since.1) as f64;
        let kept = (window - self.failed as f64) / window * 100.0;
        if kept >= self.target.percent { self.succeed(now_ns, ios) } else { self.fail(now_ns, ios) }
    }

    fn succeed(&mut self, now_ns: u64, ios: u64) -> Verdict {
        let before = self.depth;
        self.low = before;
        if before + 1 == self.high {
            self.stable += 1;
            if self.stable >= 3 {
                self.high += 1;
                self.stable = 0;
            }
        }
        self.depth = if self.high == self.deepest { before * 2 } else { (before + self.high) / 2 };
        self.depth = self.depth.min(self.deepest);
        self.begin(now_ns, ios);
        if self.target.goes_on || self.depth != before {
            return Verdict::On;
        }
        if std::mem::replace(&mut self.is_last, true) {
            return Verdict::Done;
        }
        // Counting begins anew.
        self.since.1 = 0;
        Verdict::Last
    }

    fn fail(&mut self, now_ns: u64, ios: u64) -> Verdict {
        if self.depth == 1 {
            // fio goes on as it is: the next I/O is judged with the same window.
            return Verdict::On;
        }
        self.high = self.depth;
        if self.depth == self.low {
            self.low -= 1;
        }
        self.depth = ((self.depth + self.low) / 2).max(1);
        self.stable = 0;
        self.begin(now_ns, ios);
        Verdict::Quiesce
    }

    fn begin(&mut self, now_ns: u64, ios: u64) {
        self.since = (now_ns, ios);
        self.failed = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_finds_the_deepest_queue_that_keeps_to_the_limit() {
        let target = LatencyTarget { latency_ns: 100, window_ns: 10, percent: 99.0, goes_on: false };
        let mut search = Search::new(target, 64, 0);
        let (mut now_ns, mut ios) = (0, 0);
        // A latency of 4 ns an I/O in flight: 25 of them keep to 100 ns.
        let verdict = loop {
            for _ in 0..10 {
                ios += 1;
                search.took(u64::from(search.depth) * 4, now_ns, ios);
            }
            now_ns += 10;
            match search.look(now_ns, ios) {
                Verdict::On | Verdict::Quiesce if now_ns < 10_000 => {}
                verdict => break verdict,
            }
        };
        assert_eq!(verdict, Verdict::Last);
        assert!((20..=25).contains(&search.depth), "{}", search.depth);
    }

    #[test]
    fn a_target_that_one_io_misses_is_an_error_without_a_share_and_goes_on_with_one() {
        let target = LatencyTarget { latency_ns: 100, window_ns: 10, percent: 100.0, goes_on: true };
        assert_eq!(Search::new(target, 8, 0).took(101, 5, 1), Verdict::Missed);
        let mut search = Search::new(LatencyTarget { percent: 90.0, ..target }, 8, 0);
        assert_eq!((search.took(101, 5, 1), search.look(20, 1)), (Verdict::On, Verdict::On));
        assert_eq!(search.depth, 1);
    }
}

//! A line that interrupts without end: found by counting, masked for a while, reported.

use crate::StormConfig;

/// A storm in a row that nobody handles doubles the time for which its line is masked, so many times at most. Several lines that
/// are stuck would otherwise keep a CPU for themselves: while one is masked, the burst of another is under way.
const DOUBLINGS_MAX: u32 = 6;

/// The watch over one line. The clock is read once a burst, not once an interrupt.
#[derive(Clone, Copy, Default)]
pub(crate) struct Storm {
    count: u32,
    unhandled: u32,
    since_ns: u64,
    /// Masked until then; 0 when it is not.
    pub(crate) until_ns: u64,
    /// Storms so far.
    pub(crate) storms: u32,
    /// Of these, storms in a row that nobody handled: each came as soon as the line was let go from the one before.
    row: u32,
}

impl Storm {
    #[inline]
    pub(crate) fn is_throttled(&self) -> bool {
        self.until_ns != 0
    }

    /// Counts one interrupt; true when the line must be masked until `until_ns` from now on.
    #[inline]
    pub(crate) fn note(&mut self, config: &StormConfig, handled: bool, now_ns: impl FnOnce() -> u64) -> bool {
        self.count += 1;
        if !handled {
            self.unhandled += 1;
        }
        self.count >= config.burst && self.end_burst(config, now_ns())
    }

    /// A thread says of an interrupt counted earlier that it was not its own.
    pub(crate) fn note_unhandled(&mut self) {
        self.unhandled += 1;
    }

    #[cold]
    fn end_burst(&mut self, config: &StormConfig, now_ns: u64) -> bool {
        let took_ns = now_ns - self.since_ns;
        let is_nobodys = self.unhandled > config.unhandled_max;
        let storms = took_ns < config.burst_ns_min || is_nobodys;
        // Behind a calm time as long as the longest mask, a storm is another matter.
        let follows = is_nobodys && took_ns < config.throttle_ns.saturating_mul(1 << DOUBLINGS_MAX);
        let doublings = if follows { self.row.min(DOUBLINGS_MAX) } else { 0 };
        self.row = if is_nobodys { doublings + 1 } else { 0 };
        if storms {
            self.storms += 1;
            self.until_ns = now_ns.saturating_add(config.throttle_ns.saturating_mul(1 << doublings)).max(1);
        }
        (self.count, self.unhandled, self.since_ns) = (0, 0, now_ns);
        storms
    }

    /// The line is let go again.
    pub(crate) fn let_go(&mut self, now_ns: u64) {
        *self = Self { row: self.row, ..self.restarted(now_ns) };
    }

    /// Starts the watch anew.
    pub(crate) fn restart(&mut self, now_ns: u64) {
        *self = self.restarted(now_ns);
    }

    fn restarted(self, now_ns: u64) -> Self {
        Self { since_ns: now_ns, storms: self.storms, ..Self::default() }
    }
}

//! A line that interrupts without end: found by counting, masked for a while, reported.

use crate::StormConfig;

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
        let storms = now_ns - self.since_ns < config.burst_ns_min || self.unhandled > config.unhandled_max;
        if storms {
            self.storms += 1;
            self.until_ns = now_ns.saturating_add(config.throttle_ns).max(1);
        }
        (self.count, self.unhandled, self.since_ns) = (0, 0, now_ns);
        storms
    }

    /// Starts the watch anew.
    pub(crate) fn restart(&mut self, now_ns: u64) {
        *self = Self { since_ns: now_ns, storms: self.storms, ..Self::default() };
    }
}

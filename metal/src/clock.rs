//! The CPU's counter as a clock.

use crate::ticks;
use core::sync::atomic::{AtomicU64, Ordering};

/// Monotonic nanoseconds from the CPU's counter of constant rate: the time stamp counter, or the generic timer's
/// virtual count. All CPUs share the clock; a kernel keeps it in a static.
#[derive(Debug)]
pub struct Clock {
    /// Nanoseconds per tick, times 2^32. 0: the rate is unknown.
    tick: AtomicU64,
}

impl Clock {
    /// A clock that stands at 0 until its rate is known.
    pub const fn new() -> Self {
        Self { tick: AtomicU64::new(0) }
    }

    /// Sets the rate: `ticks` of the counter pass in `duration_ns`. The time may jump here, so call this once, at the
    /// start.
    ///
    /// # Panics
    /// When `ticks` is 0, or `duration_ns` is 2^32 (4.3 s) or more.
    pub fn set_rate(&self, ticks: u64, duration_ns: u64) {
        assert!(duration_ns < 1 << 32, "a rate over {duration_ns} ns; below 2^32 ns are valid");
        assert!(ticks > 0, "a counter without a tick in {duration_ns} ns is no clock");
        self.tick.store((duration_ns << 32) / ticks, Ordering::Relaxed);
    }

    /// Nanoseconds since the counter was 0.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        ((u128::from(ticks()) * u128::from(self.tick.load(Ordering::Relaxed))) >> 32) as u64
    }

    /// Waits for `duration_ns` without sleeping: [`hal::Hal::delay_ns`].
    ///
    /// # Panics
    /// When the rate is unknown: the wait would not end.
    pub fn delay_ns(&self, duration_ns: u64) {
        assert!(self.tick.load(Ordering::Relaxed) != 0, "a wait on a clock whose rate is unknown");
        let end_ns = self.now_ns().saturating_add(duration_ns);
        while self.now_ns() < end_ns {
            core::hint::spin_loop();
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

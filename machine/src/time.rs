//! Simulated time: integer picoseconds.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A time or a duration in picoseconds. 2^64 ps are 213 days.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Ps(pub u64);

impl Ps {
    /// Beyond every event.
    pub const MAX: Self = Self(u64::MAX);

    /// From nanoseconds; saturates.
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns.saturating_mul(1000))
    }

    /// Whole nanoseconds, rounded down.
    pub const fn as_ns(self) -> u64 {
        self.0 / 1000
    }

    /// Seconds, for reports.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 * 1e-12
    }

    /// The difference, or zero.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for Ps {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Ps {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Ps {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl fmt::Display for Ps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03} ns", self.0 / 1000, self.0 % 1000)
    }
}

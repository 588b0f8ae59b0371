//! A serialisable digest of a latency histogram.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The percentiles that a digest keeps, in percent.
pub const PERCENTILES: [f64; 5] = [50.0, 90.0, 99.0, 99.9, 99.99];

/// Count, mean, extremes and percentiles of a latency, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Samples.
    pub count: u64,
    /// Arithmetic mean; zero without samples.
    pub mean_ns: f64,
    /// Smallest.
    pub min_ns: u64,
    /// Largest.
    pub max_ns: u64,
    /// At [`PERCENTILES`], within the histogram's resolution.
    pub percentiles_ns: [u64; PERCENTILES.len()],
}

/// The longest latency that is told apart: 1000 s. The longest span is ten.
const MAX_NS: u64 = 1_000_000_000_000;

/// A histogram of latencies in ns. Three digits: more than the published figures have.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, MAX_NS, 3).expect("the bounds are valid")
}

impl From<&Histogram<u64>> for Latency {
    /// Reduces a histogram whose values are ns.
    fn from(histogram: &Histogram<u64>) -> Self {
        if histogram.is_empty() {
            return Self::default();
        }
        Self {
            count: histogram.len(),
            mean_ns: histogram.mean(),
            min_ns: histogram.min(),
            max_ns: histogram.max(),
            percentiles_ns: PERCENTILES.map(|p| histogram.value_at_percentile(p)),
        }
    }
}

//! fio's way of keeping a latency: count, extremes, mean, deviation, and a histogram with fio's own buckets.
//!
//! A bucket is exact up to 127 ns; above, 64 buckets share each power of two. Percentiles and the bins of `json+` are
//! the middle of a bucket. (fio 3.33: `plat_val_to_idx`, `calc_clat_percentiles`, `sum_stat`.)

/// Bits of a value that tell its bucket within a power of two.
const BITS: u32 = 6;
/// Buckets: 29 groups of 64.
const BUCKETS: usize = 29 << BITS;

/// The percentiles of fio without `percentile_list`.
pub const PERCENTILES: [f64; 17] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];

/// Values with their mean and deviation, without a histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moments {
    /// Values.
    pub count: u64,
    /// Smallest; 0 without values.
    pub min: u64,
    /// Largest.
    pub max: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Squared deviations from the mean, summed.
    squares: f64,
}

impl Moments {
    /// Counts a value.
    pub fn add(&mut self, value: u64) {
        self.min = if self.count == 0 { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.count += 1;
        let delta = value as f64 - self.mean;
        self.mean += delta / self.count as f64;
        self.squares += delta * (value as f64 - self.mean);
    }

    /// Adds values that were counted elsewhere.
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = *other;
            return;
        }
        let (ours, theirs) = (self.count as f64, other.count as f64);
        let delta = other.mean - self.mean;
        self.squares += other.squares + delta * delta * ours * theirs / (ours + theirs);
        self.mean += delta * theirs / (ours + theirs);
        self.count += other.count;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Adds the rates of another thread of a group: everything is summed, as fio does it.
    pub fn sum(&mut self, other: &Self) {
        self.count += other.count;
        self.min += other.min;
        self.max += other.max;
        self.mean += other.mean;
        self.squares += other.squares;
    }

    /// The standard deviation of the sample; 0 for fewer than two values.
    pub fn deviation(&self) -> f64 {
        if self.count > 1 { (self.squares / (self.count - 1) as f64).sqrt() } else { 0.0 }
    }
}

/// A latency in ns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stat {
    /// Mean, extremes and deviation.
    pub moments: Moments,
    /// Values in each bucket, up to the last one that has any.
    buckets: Vec<u32>,
}

impl Stat {
    /// Counts a value.
    pub fn add(&mut self, ns: u64) {
        self.moments.add(ns);
        let index = bucket_of(ns);
        if index >= self.buckets.len() {
            self.buckets.resize(index + 1, 0);
        }
        self.buckets[index] += 1;
    }

    /// Adds values that were counted elsewhere.
    pub fn merge(&mut self, other: &Self) {
        self.moments.merge(&other.moments);
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(ours, theirs)| *ours += theirs);
    }

    /// Counts every value so many times, rounded.
    pub fn scale(&mut self, ratio: f64) {
        let Moments { count, squares, .. } = &mut self.moments;
        (*count, *squares) = ((*count as f64 * ratio).round() as u64, *squares * ratio);
        self.buckets.iter_mut().for_each(|bucket| *bucket = (f64::from(*bucket) * ratio).round() as u32);
    }

    /// The values at `percentiles`, which ascend; none without values.
    pub fn percentiles(&self, percentiles: &[f64]) -> Option<Vec<u64>> {
        let count = self.moments.count;
        if count == 0 {
            return None;
        }
        let mut values = Vec::with_capacity(percentiles.len());
        let mut below = 0;
        for (index, &here) in self.buckets.iter().enumerate() {
            below += u64::from(here);
            while let Some(&percent) = percentiles.get(values.len())
                && below as f64 >= percent / 100.0 * count as f64
            {
                values.push(value_of(index));
            }
        }
        // A percentage above 100 has no value of its own.
        values.resize(percentiles.len(), values.last().copied().unwrap_or(0));
        Some(values)
    }

    /// The middle of each bucket that has values, and how many.
    pub fn bins(&self) -> impl Iterator<Item = (u64, u32)> {
        let filled = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        filled.map(|(index, &count)| (value_of(index), count))
    }

    /// Values in each of fio's buckets, `stride` of them taken together.
    pub fn coarse(&self, stride: usize) -> Vec<u64> {
        let at = |index: usize| u64::from(self.buckets.get(index).copied().unwrap_or(0));
        (0..BUCKETS).step_by(stride).map(|first| (first..first + stride).map(at).sum()).collect()
    }
}

/// The bucket of a value.
fn bucket_of(value: u64) -> usize {
    let msb = 63 - value.max(1).leading_zeros();
    if msb <= BITS {
        return value as usize;
    }
    let dropped = msb - BITS;
    let base = (dropped as usize + 1) << BITS;
    let offset = (value >> dropped) as usize & ((1 << BITS) - 1);
    (base + offset).min(BUCKETS - 1)
}

/// The middle of a bucket.
fn value_of(index: usize) -> u64 {
    if index < 2 << BITS {
        return index as u64;
    }
    let dropped = (index >> BITS) as u32 - 1;
    let base = 1u64 << (dropped + BITS);
    let within = (index & ((1 << BITS) - 1)) as u64;
    // (within + 0.5) << dropped
    base + (within << dropped) + (1u64 << dropped) / 2
}

/// Upper bounds of the classes of `latency_ns`, `latency_us` and `latency_ms`, in the unit of each.
pub const CLASSES: [u64; 10] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000];
/// Classes of all three units; those of ms have two more.
pub const CLASS_COUNT: usize = 32;

/// The class of a latency: 0 to 9 in ns, 10 to 19 in µs, 20 to 31 in ms.
pub fn class_of(ns: u64) -> usize {
    let (first, value) = match ns {
        0..1_000 => (0, ns),
        1_000..1_000_000 => (10, ns / 1_000),
        _ => (20, ns / 1_000_000),
    };
    let class = CLASSES.iter().position(|&bound| value < bound);
    first + class.unwrap_or(if value < 2000 { 10 } else { 11 })
}

/// The bound of each class in ns, which is not in it; the last one has none.
pub fn class_bounds() -> impl Iterator<Item = Option<u64>> {
    let units = [1, 1_000, 1_000_000].into_iter().flat_map(|unit| CLASSES.map(|bound| Some(bound * unit)));
    units.chain([Some(2_000_000_000), None])
}

/// The class of a depth in `iodepth_level`: 1, 2, 4, 8, 16, 32, 64 and more.
pub fn depth_class(depth: u64) -> usize {
    depth.max(1).ilog2().min(6) as usize
}

/// The class of a batch in `iodepth_submit` and `iodepth_complete`: 0, up to 4, 8, 16, 32, 64, and more.
pub fn batch_class(count: u64) -> usize {
    match count {
        0 => 0,
        1..=4 => 1,
        5..=8 => 2,
        9..=16 => 3,
        17..=32 => 4,
        33..=64 => 5,
        _ => 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bins that fio 3.33 printed for runs of its null engine, and of a disk.
    #[test]
    fn buckets_are_those_of_fio() {
        for middle in [80, 120, 131, 141, 151, 161, 171, 350, 668, 708, 43_776, 108_032, 3_915_776, 43_778_048] {
            assert_eq!(value_of(bucket_of(middle)), middle);
        }
        assert_eq!((bucket_of(127), bucket_of(128), bucket_of(130)), (127, 128, 129));
        assert_eq!((value_of(bucket_of(128)), value_of(bucket_of(129))), (129, 129));
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_the_middle_of_the_bucket_that_reaches_them() {
        let mut stat = Stat::default();
        (1..=100).for_each(|ns| stat.add(ns));
        assert_eq!(stat.percentiles(&[1.0, 50.0, 99.0, 100.0]), Some(vec![1, 50, 99, 100]));
        assert_eq!((stat.moments.min, stat.moments.max, stat.moments.mean), (1, 100, 50.5));
        assert!((stat.moments.deviation() - 29.011).abs() < 0.001);
        assert_eq!(Stat::default().percentiles(&[50.0]), None);
    }

    #[test]
    fn parts_that_are_merged_are_the_whole() {
        let (mut whole, mut first, mut second) = (Stat::default(), Stat::default(), Stat::default());
        for value in 0..1000u64 {
            let ns = value * value;
            whole.add(ns);
            if value % 3 == 0 { &mut first } else { &mut second }.add(ns);
        }
        first.merge(&second);
        assert_eq!(first.buckets, whole.buckets);
        assert!((first.moments.mean / whole.moments.mean - 1.0).abs() < 1e-12);
        assert!((first.moments.deviation() / whole.moments.deviation() - 1.0).abs() < 1e-9);
        assert_eq!(whole.bins().map(|(_, count)| u64::from(count)).sum::<u64>(), 1000);
        assert_eq!((whole.coarse(1).len(), whole.coarse(64).iter().sum::<u64>()), (1856, 1000));
    }

    #[test]
    fn classes_are_those_of_fio() {
        assert_eq!([0, 1, 2, 3, 9, 999].map(class_of), [0, 0, 1, 1, 2, 9]);
        assert_eq!([1_000, 2_000, 99_999, 999_999].map(class_of), [10, 11, 15, 19]);
        assert_eq!([1_000_000, 999_999_999, 1_000_000_000, 2_000_000_000].map(class_of), [20, 29, 30, 31]);
        let bounds: Vec<_> = class_bounds().collect();
        assert_eq!((bounds.len(), bounds[9], bounds[10], bounds[31]), (CLASS_COUNT, Some(1_000), Some(2_000), None));
        for ns in [0, 2, 999, 1_000, 80_000, 2_000_000, 1_999_999_999] {
            assert!(bounds[class_of(ns)].is_some_and(|bound| ns < bound), "{ns}");
        }
        assert_eq!([1, 2, 3, 4, 63, 64, 1000].map(depth_class), [0, 1, 1, 2, 5, 6, 6]);
        assert_eq!([0, 1, 4, 5, 64, 65].map(batch_class), [0, 1, 1, 2, 5, 6]);
    }
}

//! How many I/Os a job makes until it ends by itself, as far as its options tell.

use super::{Amount, DIRECTIONS, Load};

impl Load {
    /// The mean size of an I/O in the directions that the job has.
    pub fn mean_bytes(&self, directions: [bool; DIRECTIONS]) -> u64 {
        let own = || self.sizes.iter().zip(directions).filter(|(_, has)| *has).map(|(sizes, _)| sizes.mean());
        (own().sum::<u64>() / own().count().max(1) as u64).max(1)
    }

    /// True if the job ends after a share of a drive or file, whose bytes are known only when it runs.
    pub fn ends_by_share(&self) -> bool {
        let is_share = |amount: Option<Amount>| matches!(amount, Some(Amount::Percent(percent)) if percent < 100);
        !self.ends.time_based && (is_share(self.ends.io_size) || is_share(self.files.size))
    }

    /// At most so many I/Os until the job ends by its own options; none if they set no end that counts I/Os.
    pub fn own_ios(&self, directions: [bool; DIRECTIONS]) -> Option<u64> {
        let ends = &self.ends;
        let mut bounds = vec![self.paced_ios(directions)];
        if let Some(entries) = &self.replay {
            bounds.push(Some(entries.len() as u64));
        }
        if !ends.time_based && self.replay.is_none() {
            let share = |bytes: u64, percent: u8| (u128::from(bytes) * u128::from(percent) / 100) as u64;
            let of_files =
                self.files.file_size.map(|(_, most)| most.saturating_mul(self.files.list.len().max(1) as u64));
            let whole = match self.files.size {
                Some(Amount::Bytes(bytes)) => Some(bytes),
                Some(Amount::Percent(percent)) => of_files.map(|bytes| share(bytes, percent)),
                None => of_files,
            };
            let bytes = match ends.io_size {
                Some(Amount::Bytes(bytes)) => Some(bytes),
                Some(Amount::Percent(percent)) => of_files.or(whole).map(|bytes| share(bytes, percent)),
                None => whole,
            };
            let twice = if directions == [false, true, true] || self.verify.after { 2 } else { 1 };
            let loops = ends.loops.max(1);
            bounds.push(bytes.map(|bytes| (bytes / self.mean_bytes(directions)).saturating_mul(loops) * twice));
            bounds.push((ends.number_ios > 0).then(|| ends.number_ios.saturating_mul(loops) * twice));
        }
        bounds.into_iter().flatten().min()
    }

    /// True if nothing but its runtime ends the job, at its pace.
    pub fn ends_by_pace(&self, directions: [bool; DIRECTIONS]) -> bool {
        self.paced_ios(directions).is_some_and(|ios| self.own_ios(directions) == Some(ios))
    }

    /// True if what it measures may end it: a limit of its latency, a least rate, a steady rate, full files.
    pub fn ends_by_check(&self) -> bool {
        let (ends, pace) = (&self.ends, &self.pace);
        let has_least_rate = pace.bytes_min != [0; DIRECTIONS] || pace.ios_min != [0; DIRECTIONS];
        let has_limit = ends.latency_ns_max != [0; DIRECTIONS] || pace.target.is_some();
        has_limit || has_least_rate || ends.steady.is_some() || ends.fill
    }

    /// The I/Os of its runtime, if something paces it.
    fn paced_ios(&self, directions: [bool; DIRECTIONS]) -> Option<u64> {
        let seconds = self.ends.runtime_ns?.saturating_add(self.ends.ramp_ns) as f64 / 1e9;
        let rate = self.ios_per_second(directions)?;
        Some((rate * seconds).ceil() as u64)
    }

    /// The most I/Os a second that its pace allows; none without a pace.
    pub fn ios_per_second(&self, directions: [bool; DIRECTIONS]) -> Option<f64> {
        let pace = &self.pace;
        let of = |direction: usize| match (pace.bytes[direction], pace.ios[direction]) {
            (0, 0) => None,
            (0, ios) => Some(ios as f64),
            (bytes, _) => Some(bytes as f64 / self.sizes[direction].mean() as f64),
        };
        let own = || (0..DIRECTIONS).filter(|&direction| directions[direction]);
        let rated: Option<f64> = own().map(of).sum();
        let thinking = match pace.think_blocks {
            Some(blocks) if pace.think_ns > 0 && pace.think_every_ns == 0 => {
                Some(f64::from(blocks.max(1)) * 1e9 / pace.think_ns as f64)
            }
            _ => None,
        };
        match (rated, thinking) {
            (Some(rated), Some(thinking)) => Some(rated.min(thinking)),
            (rated, thinking) => rated.or(thinking),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READS: [bool; DIRECTIONS] = [true, false, false];

    #[test]
    fn sizes_counts_and_rates_bound_a_job() {
        let mut load = Load::of_block(4096);
        assert_eq!(load.own_ios(READS), None);
        load.files.size = Some(Amount::Bytes(1 << 20));
        assert_eq!(load.own_ios(READS), Some(256));
        load.ends.number_ios = 10;
        load.ends.loops = 3;
        assert_eq!(load.own_ios(READS), Some(30));
        load.ends.time_based = true;
        assert_eq!(load.own_ios(READS), None, "it begins again");
        let mut shares = Load::of_block(4096);
        shares.files.size = Some(Amount::Percent(50));
        assert_eq!((shares.own_ios(READS), shares.ends_by_share()), (None, true), "half of a drive");
        shares.files.file_size = Some((1 << 20, 1 << 20));
        assert_eq!(shares.own_ios(READS), Some(128));
        shares.ends.io_size = Some(Amount::Percent(25));
        assert_eq!(shares.own_ios(READS), Some(64), "of the files, as fio counts it");
        load.ends.runtime_ns = Some(2_000_000_000);
        load.pace.ios[0] = 100;
        assert_eq!((load.own_ios(READS), load.ends_by_pace(READS)), (Some(200), true));
        load.pace.think_ns = 100_000_000;
        assert_eq!(load.own_ios(READS), Some(20), "the slower of both");
        load.ends.time_based = false;
        load.ends.number_ios = 3;
        assert_eq!((load.own_ios(READS), load.ends_by_pace(READS)), (Some(9), false), "by its I/Os, of three loops");
    }
}

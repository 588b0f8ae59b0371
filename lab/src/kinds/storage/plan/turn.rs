//! How long a drive needs for all I/Os that its jobs keep in flight. Shorter spans would measure a queue that is filling.

use crate::kinds::storage::Storage;
use crate::platform::Platform;

/// The longest turn of a drive, in ns: the bytes in flight at the rate of its link.
pub(super) fn turn_ns(storage: &Storage, platform: &Platform) -> u64 {
    let of_drive = |(index, drive): (usize, &crate::kinds::storage::DrivePlan)| {
        let jobs = storage.jobs.iter().filter(|job| job.drive == index);
        let bytes: u64 = jobs.map(|job| u64::from(job.iodepth) * u64::from(job.block_bytes)).sum();
        let rate = platform.drive(&drive.model)?.link.value;
        Some((bytes as f64 / rate * 1e9) as u64)
    };
    storage.drives.iter().enumerate().filter_map(of_drive).max().unwrap_or(0)
}

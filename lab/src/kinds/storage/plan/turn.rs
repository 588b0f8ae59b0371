//! How long a drive needs for all I/Os that its jobs keep in flight. Shorter spans would measure a queue that is filling.

use crate::kinds::storage::rig::split;
use crate::kinds::storage::{JobPlan, Storage, Trims};
use crate::platform::{Drive, Platform};
use machine::Costs;
use std::collections::BTreeMap;

/// I/Os in flight whose turn is simulated, of all jobs together: a ramp and a span of four turns take half a million I/Os.
const TURN_IOS_MAX: u64 = 100_000;
/// Commands of those I/Os, if they are split. Until a turn is over none of them may have ended, so it is a long one at most:
/// some seconds of host time for each run.
const TURN_COMMANDS_MAX: u64 = 1_000_000;

/// What a turn is simulated of: all I/Os in flight, or the first so many.
pub(super) fn share_simulated(storage: &Storage, platform: &Platform) -> f64 {
    let share = |most: u64, of: u64| most as f64 / of.max(1) as f64;
    share(TURN_IOS_MAX, ios_in_flight(storage))
        .min(share(TURN_COMMANDS_MAX, commands_in_flight(storage, platform)))
        .min(1.0)
}

/// The I/Os that all jobs keep in flight together.
pub(super) fn ios_in_flight(storage: &Storage) -> u64 {
    storage.jobs.iter().map(|job| u64::from(job.iodepth)).sum()
}

/// The commands that all jobs keep in flight together.
pub(super) fn commands_in_flight(storage: &Storage, platform: &Platform) -> u64 {
    storage.jobs.iter().map(|job| u64::from(job.iodepth) * commands(job, storage, platform)).sum()
}

/// The commands of one I/O of a job.
pub(super) fn commands(job: &JobPlan, storage: &Storage, platform: &Platform) -> u64 {
    let Some(kind) = platform.drive(&storage.drives[job.drive].model) else { return 1 };
    let transfer = kind.transfer.whole().min(u32::MAX.into()) as u32;
    let most = split::command_bytes_max(transfer, storage.max_sectors_bytes, storage.max_segments);
    split::commands(job.block_bytes, most.max(1)).into()
}

/// The longest turn of a drive, in ns: the bytes in flight at the rate of its link, or what is to be written, its cache
/// included, at the rate of its media. Of more than is simulated for a turn it is that share.
pub(super) fn turn_ns(storage: &Storage, platform: &Platform) -> u64 {
    let share = share_simulated(storage, platform);
    let of_drive = |index: usize| {
        let kind = platform.drive(&storage.drives[index].model)?;
        let jobs = || storage.jobs.iter().filter(|job| job.drive == index);
        let bytes: u64 = jobs().map(|job| u64::from(job.iodepth) * u64::from(job.block_bytes)).sum();
        let writes_ns: f64 = jobs().map(|job| writes_ns(job, kind)).sum();
        let cache_ns = if writes_ns > 0.0 { kind.write_cache.value / slower_rate(kind) * 1e9 } else { 0.0 };
        Some((share * bytes as f64 / kind.link.value * 1e9).max(share * writes_ns + cache_ns) as u64)
    };
    (0..storage.drives.len()).filter_map(of_drive).max().unwrap_or(0).max(slices_ns(storage))
}

/// Time slices that a turn waits for at most.
const SLICES_MAX: f64 = 100.0;

/// The time slices of all jobs of the busiest CPU that poll or spin by their own option: none of them sleeps, so each runs its
/// slice out. 0 if each has a CPU for itself.
fn slices_ns(storage: &Storage) -> u64 {
    let mut sharers: BTreeMap<u32, f64> = BTreeMap::new();
    for job in storage.jobs.iter().filter(|job| job.engine.polls() || job.spins()) {
        let share = 1.0 / f64::from(job.cpus.len().max(1));
        job.cpus.iter().for_each(|cpu| *sharers.entry(cpu.0).or_default() += share);
    }
    let most = sharers.into_values().fold(0.0, f64::max);
    let slice_ns = Costs::default().time_slice.as_ns();
    if most > 1.0 { most.ceil().min(SLICES_MAX) as u64 * slice_ns } else { 0 }
}

fn slower_rate(kind: &Drive) -> f64 {
    kind.write_random.value.min(kind.write_sequential.value)
}

/// The media's time for the writes that a job keeps in flight.
fn writes_ns(job: &JobPlan, kind: &Drive) -> f64 {
    let share = match job.pattern.trims {
        Trims::None => 1.0 - f64::from(job.pattern.read_percent) / 100.0,
        Trims::Alone => 0.0,
        Trims::ThenWrite => 0.5,
    };
    let block = f64::from(job.block_bytes);
    let (bytes, rate) = match job.pattern.random {
        true => (block.max(kind.write_unit.value), kind.write_random.value),
        false => (block, kind.write_sequential.value),
    };
    f64::from(job.iodepth) * share * bytes / rate * 1e9
}

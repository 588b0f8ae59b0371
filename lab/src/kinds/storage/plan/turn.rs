//! How long a drive needs for all I/Os that its jobs keep in flight. Shorter spans would measure a queue that is filling.

use crate::kinds::storage::rig::job::WRITE_BACK_SLOTS;
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

/// A turn of jobs that run together: those between two `stonewall`s.
pub(super) struct Turn<'a> {
    /// The job that keeps the most I/Os in flight.
    pub(super) deepest: &'a JobPlan,
    /// What the jobs keep in flight together.
    pub(super) ios: u64,
    pub(super) commands: u64,
    /// What is simulated of it: all, or the first so many.
    pub(super) share: f64,
    /// How long that takes.
    pub(super) ns: u64,
}

impl<'a> Turn<'a> {
    /// The turns of all jobs of `storage`, in their order.
    pub(super) fn all(storage: &'a Storage, platform: &Platform) -> Vec<Self> {
        let begins = |job: &JobPlan| job.load.as_ref().is_some_and(|load| load.start.stonewall);
        let together = storage.jobs.chunk_by(|_, next| !begins(next));
        together.filter_map(|jobs| Self::of(jobs, storage, platform)).collect()
    }

    fn of(jobs: &'a [JobPlan], storage: &Storage, platform: &Platform) -> Option<Self> {
        let ios = jobs.iter().map(in_flight).sum();
        let commands = jobs.iter().map(|job| in_flight(job) * commands(job, storage, platform)).sum();
        let share_of = |most: u64, of: u64| most as f64 / of.max(1) as f64;
        let share = share_of(TURN_IOS_MAX, ios).min(share_of(TURN_COMMANDS_MAX, commands)).min(1.0);
        let deepest = jobs.iter().max_by_key(|job| in_flight(job))?;
        Some(Self { deepest, ios, commands, share, ns: turn_ns(jobs, share, storage, platform) })
    }

    /// How long all of it would take.
    pub(super) fn whole_ns(&self) -> f64 {
        self.ns as f64 / self.share
    }
}

/// What a job keeps in flight: its I/Os, or what the page cache writes back behind it.
fn in_flight(job: &JobPlan) -> u64 {
    let writes_back = job.load.as_ref().is_some_and(|load| load.syncs.buffered) && job.pattern.writes();
    u64::from(if writes_back { job.iodepth + WRITE_BACK_SLOTS } else { job.iodepth })
}

/// The commands of one I/O of a job.
pub(super) fn commands(job: &JobPlan, storage: &Storage, platform: &Platform) -> u64 {
    let Some(kind) = platform.drive(&storage.drives[job.drive].model) else { return 1 };
    let transfer = kind.transfer.whole().min(u32::MAX.into()) as u32;
    let most = split::command_bytes_max(transfer, storage.max_sectors_bytes, storage.max_segments);
    split::commands(job.block_bytes, most.max(1)).into()
}

/// The longest turn of a drive, in ns: the bytes in flight at the rate of its link, or what is to be written, its cache
/// included, at the rate of its media; of all that, `share`.
fn turn_ns(jobs: &[JobPlan], share: f64, storage: &Storage, platform: &Platform) -> u64 {
    let of_drive = |index: usize| {
        let kind = platform.drive(&storage.drives[index].model)?;
        let own = || jobs.iter().filter(|job| job.drive == index);
        let bytes: u64 = own().map(|job| in_flight(job) * u64::from(job.block_bytes)).sum();
        let writes_ns: f64 = own().map(|job| writes_ns(job, kind)).sum();
        let cache_ns = if writes_ns > 0.0 { kind.write_cache.value / slower_rate(kind) * 1e9 } else { 0.0 };
        Some((share * bytes as f64 / kind.link.value * 1e9).max(share * writes_ns + cache_ns) as u64)
    };
    (0..storage.drives.len()).filter_map(of_drive).max().unwrap_or(0).max(slices_ns(jobs))
}

/// Time slices that a turn waits for at most.
const SLICES_MAX: f64 = 100.0;

/// The time slices of all jobs of the busiest CPU that poll or spin by their own option: none of them sleeps, so each runs its
/// slice out. 0 if each has a CPU for itself.
fn slices_ns(jobs: &[JobPlan]) -> u64 {
    let mut sharers: BTreeMap<u32, f64> = BTreeMap::new();
    for job in jobs.iter().filter(|job| job.engine.polls() || job.spins()) {
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
    in_flight(job) as f64 * share * bytes / rate * 1e9
}

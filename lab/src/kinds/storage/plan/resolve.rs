//! Resolves a storage experiment completely: jobs become threads on CPUs, filenames become drives.

use super::names::Names;
use super::turn::Turn;
use super::{IoEngine, JobPlan, offsets, stages};
use crate::fio::{FioJob, Reporting};
use crate::input::{InputError, Warning};
use crate::kinds::storage::detail;
use crate::kinds::storage::keys::{Detail, StorageDraft};
use crate::kinds::storage::load::{Amount, FilePlan};
use crate::kinds::storage::{DrivePlan, Storage, StorageVariant};
use crate::plan::{Spans, Work};
use crate::scenario::common::Common;
use crate::scenario::draft::{Asked, Resolved};
use hal::{CpuId, CpuSet};
use std::sync::Arc;

/// The most threads of one experiment: 1,024 CPUs with 16 each.
const THREADS_MAX: u64 = 16_384;
/// Files of all threads.
const FILES_MAX: u64 = 1 << 20;
/// The units of sizes in a job file, which are not those that their names say elsewhere.
const OF_KIB: &str = "; to fio `4KiB` is 4000 bytes and `4k` is 4096, unless kb_base=1000";
/// Buffers of a replay are whole pages.
const PAGE_BYTES: u64 = 4096;

/// The inputs of a plan's storage part.
struct Resolve<'a> {
    common: &'a Common,
    draft: &'a StorageDraft,
    jobs: Vec<FioJob>,
    warnings: Vec<Warning>,
    asked: Option<Asked>,
}

/// Resolves `jobs` with the settings.
///
/// # Errors
/// They do not fit the platform, each other, or the requested variants.
pub(in crate::kinds::storage) fn resolve(
    draft: &StorageDraft,
    common: &Common,
    jobs: Vec<FioJob>,
    warnings: Vec<Warning>,
    asked: Option<Asked>,
) -> Result<Resolved, InputError> {
    Resolve { common, draft, jobs, warnings, asked }.finish()
}

impl Resolve<'_> {
    fn finish(mut self) -> Result<Resolved, InputError> {
        let cpus = self.cpus()?;
        let mut variants = self.variants()?;
        self.check_files()?;
        let names = Names::of(&self.jobs, &mut self.warnings);
        let drives = self.draft.drives(&self.common.platform, &names.drives(), cpus)?;
        // Where CPUs share queues, the completion check makes a difference.
        let shared = drives.iter().any(|drive| drive.queues < cpus);
        if self.asked.is_none() && shared && variants.contains(&StorageVariant::Posted) {
            variants.push(StorageVariant::PostedOurs);
        }
        self.fit_blocks(&names, &drives)?;
        let jobs = self.threads(cpus, &names)?;
        let (reporting, detail) = self.reporting();
        let mut storage = Storage { drives, jobs, reporting, detail, ..self.draft.storage().clone() };
        self.warn_of_syncs(&storage);
        offsets::warn(&storage, &self.common.platform, &mut self.warnings);
        let turns = Turn::all(&storage, &self.common.platform);
        let spans = self.spans(turns.iter().map(|turn| turn.ns).max().unwrap_or(0))?;
        self.warn_of_turns(&turns, &spans);
        stages::settle(&mut storage, &self.common.platform, &spans, &mut self.warnings)?;
        let duration = self.common.duration();
        self.warnings.extend(duration.and_then(|setting| stages::other_duration(&storage, &spans, setting)));
        Ok(Resolved { cpus, work: Work::new(storage, variants), spans, warnings: self.warnings })
    }

    /// The CPUs of the machine: as many as requested, else as the jobs name, else as the platform has.
    fn cpus(&self) -> Result<u32, InputError> {
        let last = |job: &FioJob| job.cpus.as_ref().map(|(set, _)| set.iter().last().map_or(0, |cpu| cpu.0 + 1));
        let named: Option<Vec<u32>> = self.jobs.iter().map(last).collect();
        self.common.cpus_or(named.map(|named| named.into_iter().max().unwrap_or(1).max(1)))
    }

    /// The variants to compare: the requested ones, else polling if every job asks for it, else both kinds of
    /// interrupt.
    fn variants(&mut self) -> Result<Vec<StorageVariant>, InputError> {
        let all_polled = self.jobs.iter().all(|job| job.polled_by.is_some());
        let Some(asked) = &self.asked else {
            return Ok(if all_polled {
                vec![StorageVariant::Polled]
            } else {
                vec![StorageVariant::Remapped, StorageVariant::Posted]
            });
        };
        let (place, variants) = (&asked.place, asked.variants()?);
        if variants.contains(&StorageVariant::Polled)
            && let Some(job) = self.jobs.iter().find(|job| job.engine == IoEngine::Libaio)
        {
            let why = format!("cannot serve job [{}] ({}): libaio has no polled queues", job.name, job.place);
            return Err(InputError::value(
                place,
                "",
                StorageVariant::Polled,
                why,
                "ioengine=io_uring, or remapped, posted",
            ));
        }
        if all_polled && variants.iter().any(|&variant| variant != StorageVariant::Polled) {
            for job in &mut self.jobs {
                job.engine.stop_polling();
                let Some(setting) = job.polled_by.take() else { continue };
                let meaning =
                    format!("the deliveries asked for ({place}) stand over it: polled only where they say so");
                self.warnings.push(Warning { place: setting.place, key: "hipri".into(), meaning });
            }
        }
        Ok(variants)
    }

    /// One entry per thread. Under `split`, thread n gets CPU n of its set (modulo the size of the set). As in fio, n
    /// counts the threads of all jobs in the file.
    fn threads(&self, cpus: u32, names: &Names) -> Result<Vec<JobPlan>, InputError> {
        let mut threads: Vec<JobPlan> = Vec::new();
        let mut group = 0;
        for job in &self.jobs {
            if threads.len() as u64 + u64::from(job.numjobs) > THREADS_MAX {
                let valid = format!("{THREADS_MAX} threads over all jobs");
                return Err(InputError::value(&job.place, "numjobs", job.numjobs, "makes too many threads", valid));
            }
            let allowed = allowed(job, cpus, self.common.platform.fabric.cpus.whole() as u32)?;
            if job.begins_group && !threads.is_empty() {
                group += 1;
            }
            for number in 0..job.numjobs {
                let files = names.files(job, number);
                let cpus = if job.split {
                    let nth = threads.len() % allowed.len() as usize;
                    CpuSet::of(allowed.iter().nth(nth).expect("below its length"))
                } else {
                    allowed.clone()
                };
                let name = if job.numjobs == 1 { job.name.clone() } else { format!("{}.{number}", job.name) };
                threads.push(thread(job, (name, number, group), files, cpus));
            }
        }
        Ok(threads)
    }

    /// Each thread has a description of each of its files.
    fn check_files(&self) -> Result<(), InputError> {
        let mut files = 0u64;
        for job in &self.jobs {
            let own = job.replay.as_ref().map_or(job.nrfiles, |_| 1);
            files = files.saturating_add(u64::from(job.numjobs) * u64::from(own));
            if files > FILES_MAX {
                let valid = format!("{FILES_MAX} files of all threads together");
                return Err(InputError::value(&job.place, "nrfiles", job.nrfiles, "makes too many files", valid));
            }
        }
        Ok(())
    }

    /// Sizes that are no whole blocks: the page cache takes them, and with `direct=1` the kernel refuses them.
    fn fit_blocks(&mut self, names: &Names, drives: &[DrivePlan]) -> Result<(), InputError> {
        for job in self.jobs.iter_mut().filter(|job| job.replay.is_none() && job.engine != IoEngine::Null) {
            let Some(file) = names.files(job, 0).into_iter().next() else { continue };
            let kind = self.common.platform.drive(&drives[file.drive].model);
            let block = kind.map_or(512, |kind| kind.block.whole());
            let is_whole = |bytes: u64| bytes.is_multiple_of(block);
            let are_whole = job.load.sizes.iter().all(|sizes| {
                let split = sizes.split.iter().all(|&(bytes, _)| is_whole(bytes));
                is_whole(sizes.min) && is_whole(sizes.max) && is_whole(sizes.align) && split
            });
            let has_parts = !are_whole || !is_whole(job.block_bytes.into());
            if !has_parts && !job.load.order.unaligned {
                continue;
            }
            if has_parts && !job.load.syncs.buffered && job.says_direct {
                let why = format!(
                    "bytes are no whole blocks of {block} bytes: with direct=1 the kernel refuses each I/O (EINVAL)"
                );
                let hint = if job.block_bytes.is_multiple_of(1000) { OF_KIB } else { "" };
                let valid = format!("a multiple of {block}, or direct=0{hint}");
                return Err(InputError::value(&job.place, format!("[{}] bs", job.name), job.block_bytes, why, valid));
            }
            if has_parts && !job.load.syncs.buffered {
                job.load.syncs.buffered = true;
                let meaning = format!(
                    "not given, and {} bytes are no whole blocks of {block} bytes: the job goes through the page cache, \
                     as fio does without it",
                    job.block_bytes
                );
                // It contradicts what was said of a job without the option.
                self.warnings.retain(|told| told.key != "direct" || told.place != job.place);
                self.warnings.push(Warning { place: job.place.clone(), key: "direct".into(), meaning });
            }
            // Such an I/O may touch one block more at either end.
            job.block_bytes = (u64::from(job.block_bytes) + 2 * block).next_multiple_of(PAGE_BYTES) as u32;
        }
        Ok(())
    }

    /// A span that is shorter than the time in which the drives do all I/Os in flight measures queues that are filling.
    fn warn_of_turns(&mut self, turns: &[Turn], spans: &Spans) {
        let cut = turns.iter().filter(|turn| turn.share < 1.0 && (spans.ramp_ns as f64) < turn.whole_ns());
        if let Some(turn) = cut.max_by(|one, other| one.whole_ns().total_cmp(&other.whole_ns())) {
            let counted = if turn.commands == turn.ios { "I/Os" } else { "commands of I/Os" };
            let meaning = format!(
                "{} {counted} are in flight together, more than are simulated: queues are still filling when the span \
                 ends, and latencies are too small; --set ramp=TIME --set duration=TIME simulate more",
                turn.commands
            );
            self.warnings.push(Warning { place: turn.deepest.source.clone(), key: "iodepth".into(), meaning });
        }
    }

    /// A sync of a drive without a volatile cache sends nothing, which a reader who looks for flushes must know.
    fn warn_of_syncs(&mut self, storage: &Storage) {
        for job in &storage.jobs {
            let key = match (job.fsync, job.fdatasync) {
                (0, 0) => continue,
                (0, _) => "fdatasync",
                _ => "fsync",
            };
            let drive = &storage.drives[job.drive];
            let kind = self.common.platform.drive(&drive.model);
            if kind.is_some_and(|kind| kind.volatile_cache.is_set()) {
                continue;
            }
            let model = &drive.model;
            let meaning = format!(
                "{} has no volatile cache, so there is nothing to flush: a sync sends no command and takes no time in \
                 the drive; with drive.{model}.volatile_cache=true it would",
                drive.name
            );
            self.warnings.push(Warning { place: job.source.clone(), key: key.into(), meaning });
        }
    }

    /// What each thread says about its report, and what the tables need of it: threads that report apart, and
    /// percentiles of a job's own, need figures of each thread.
    fn reporting(&self) -> (Vec<Arc<Reporting>>, Detail) {
        // The option `name` names the first thread alone, as in fio.
        let clones = |job: &FioJob| {
            let first = job.reporting.clone();
            let others = if first.name == job.name {
                first.clone()
            } else {
                Arc::new(Reporting { name: job.name.clone(), begins_group: false, ..(*first).clone() })
            };
            std::iter::once(first).chain(std::iter::repeat_n(others, job.numjobs as usize - 1))
        };
        let reporting: Vec<_> = self.jobs.iter().flat_map(clones).collect();
        let own =
            |job: &FioJob| job.reporting.percentiles.is_some() || job.reporting.has_percentiles != [false, true, false];
        let apart = detail::groups(&reporting).len() > 1 || self.jobs.iter().any(own);
        (reporting, if apart { Detail::Figures } else { Detail::None })
    }

    /// The spans. `turn_ns`: the time in which a drive does all I/Os in flight.
    fn spans(&self, turn_ns: u64) -> Result<Spans, InputError> {
        let runtime_ns = self.jobs.iter().filter_map(|job| job.load.ends.runtime_ns).max();
        let ramp_ns = self.jobs.iter().map(|job| job.load.ends.ramp_ns).max().unwrap_or(0);
        self.common.spans_of_jobs(runtime_ns, ramp_ns, turn_ns)
    }
}

/// The CPUs that a job may run on: those that it names, else all. The platform has `most`.
fn allowed(job: &FioJob, cpus: u32, most: u32) -> Result<CpuSet, InputError> {
    let Some((set, setting)) = &job.cpus else { return Ok(CpuSet::first(cpus)) };
    match set.iter().find(|cpu| cpu.0 >= cpus) {
        Some(CpuId(cpu)) => {
            let last = set.iter().last().map_or(cpu, |last| last.0);
            // Else the scenario or an option limits them.
            let more = if cpus == most {
                format!(", or those of a larger platform: --set fabric.cpus={}", last + 1)
            } else {
                String::new()
            };
            Err(setting.wrong(format!("names CPU {cpu}, which does not exist"), format!("CPUs 0-{}{more}", cpus - 1)))
        }
        None => Ok(set.clone()),
    }
}

fn thread(job: &FioJob, (name, clone, group): (String, u32, u32), list: Vec<FilePlan>, cpus: CpuSet) -> JobPlan {
    let mut load = job.load.clone();
    let drive = list.first().map_or(0, |file| file.drive);
    // fio counts the clones of a section from its last one down, after the first.
    load.files.clone = if clone == 0 { 0 } else { job.numjobs - clone };
    load.files.list = list;
    load.start.group = group;
    if clone > 0 {
        load.start.stonewall = false;
    }
    let (mut pattern, mut block_bytes) = (job.pattern, job.block_bytes);
    if let Some(log) = job.replay.as_ref().and_then(|replay| replay.log(clone)) {
        // An I/O that is no whole blocks takes a part of a block more on either side.
        let longest = (log.longest + 2 * PAGE_BYTES).next_multiple_of(PAGE_BYTES);
        (pattern, block_bytes) = (log.pattern(), longest as u32);
        // Each file is as long as the furthest end, and its I/Os are the log's.
        load.files.file_size = Some((log.end, log.end));
        (load.files.size, load.files.offset, load.files.increment) = (None, Amount::Bytes(0), Amount::Bytes(0));
        load.replay = Some(log.entries.clone());
        load.ends.time_based = false;
    }
    JobPlan {
        name,
        source: job.place.clone(),
        drive,
        cpus,
        engine: job.engine,
        pattern,
        block_bytes,
        fsync: job.fsync,
        fdatasync: job.fdatasync,
        iodepth: job.iodepth,
        batch_submit: job.batch_submit,
        batch_complete_min: job.batch_complete_min,
        batch_complete_max: job.batch_complete_max,
        load: Some(Box::new(load)),
    }
}

//! What each thread of a storage run measured, and its sums over the threads that report together.

use crate::fio::Reporting;
use crate::fio::stat::{self, CLASS_COUNT, Moments, Stat};
use crate::kinds::storage::load::{LatencyTarget, Steady};
use crate::outcome::{Latency, UNEVEN};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The names of the directions, as fio has them.
pub const DIRECTIONS: [&str; 3] = ["read", "write", "trim"];

/// One I/O that a thread saw end, for the logs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Io {
    /// Time since counting began, in ns.
    pub at_ns: u64,
    /// Index into [`DIRECTIONS`].
    pub direction: u8,
    /// Submission, completion and total latency, in ns.
    pub latency_ns: [u64; 3],
    /// Place on the drive or in the file, in bytes.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
}

/// One operation that a thread issued, for `write_iolog`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Issue {
    /// Time since counting began, in ns.
    pub at_ns: u64,
    /// Index into [`DIRECTIONS`]; 3 is a sync.
    pub direction: u8,
    /// As of [`Io`].
    pub offset: u64,
    /// As of [`Io`].
    pub bytes: u64,
    /// Index of the drive.
    pub drive: u32,
}

/// A thread's I/Os on one drive.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DriveSums {
    /// I/Os of each direction.
    pub ios: [u64; 3],
    /// Their completion latencies, summed.
    pub ns: [u64; 3],
}

/// A steady state that a job, or a group, waits for, as it was at the job's end.
#[derive(Clone, Debug, PartialEq)]
pub struct SteadyDetail {
    /// What it waits for.
    pub steady: Steady,
    /// Whether it came.
    pub attained: bool,
    /// The greatest deviation or the slope, in per cent of the mean if the limit is; 0 before the window is full.
    pub criterion: f64,
    /// The greatest deviation from the mean, in I/Os or bytes a second.
    pub deviation: f64,
    /// The slope, in I/Os or bytes a second and sample.
    pub slope: f64,
    /// The samples of the window; 0 where it is not full.
    pub iops: Vec<u64>,
    /// Likewise, in bytes a second.
    pub bandwidth: Vec<u64>,
}

/// Everything that a thread, or a group of threads, measured in the span. Arrays have an entry for each direction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ThreadDetail {
    /// The span, in ns.
    pub span_ns: u64,
    /// How many times this span it stands for, in a file with phases; 0 as 1.
    pub weight: f64,
    /// Operations that ended; the last entry counts syncs.
    pub ios: [u64; 4],
    /// Bytes of the I/Os.
    pub bytes: [u64; 3],
    /// I/Os that ended with an error.
    pub errors: u64,
    /// The error (`errno`) that ended the thread; 0: none.
    pub error_number: u64,
    /// The steady state that it waited for.
    pub steady: Option<SteadyDetail>,
    /// Its latency target.
    pub target: Option<LatencyTarget>,
    /// I/Os that it keeps in flight at most; of a latency target, the depth that it found.
    pub depth: u32,
    /// Time inside the submitting call.
    pub slat: [Stat; 3],
    /// Time from the driver's submission until the thread saw the end.
    pub clat: [Stat; 3],
    /// Time from before the submitting call until then.
    pub lat: [Stat; 3],
    /// Completion latency of syncs.
    pub sync: Stat,
    /// I/Os submitted at each class of depth.
    pub depths: [u64; 7],
    /// Calls that submitted, by class of their batch.
    pub submits: [u64; 7],
    /// Calls that took completions, likewise.
    pub completes: [u64; 7],
    /// I/Os by class of their completion latency.
    pub classes: [u64; CLASS_COUNT],
    /// Times that the thread slept for completions.
    pub waits: u64,
    /// Bandwidth in KiB/s and I/Os a second, over windows.
    pub rates: [[Moments; 3]; 2],
    /// By drive.
    pub drives: BTreeMap<u32, DriveSums>,
    /// Every I/O that ended, if a log wants them.
    pub log: Vec<Io>,
    /// Every operation that was issued, if a log wants them.
    pub issues: Vec<Issue>,
    /// I/Os and operations that found a log full.
    pub left_out: u64,
    /// Time of CPUs in the application, and in the kernel with interrupts, in ns.
    pub cpu_ns: [u64; 2],
}

impl ThreadDetail {
    /// Adds another thread of the group.
    pub fn merge(&mut self, other: &Self) {
        fn add(ours: &mut [u64], theirs: &[u64]) {
            ours.iter_mut().zip(theirs).for_each(|(ours, theirs)| *ours += theirs);
        }
        self.span_ns = self.span_ns.max(other.span_ns);
        self.errors += other.errors;
        self.error_number = if self.error_number > 0 { self.error_number } else { other.error_number };
        self.steady = other.steady.clone().or(self.steady.take());
        self.target = other.target.or(self.target);
        self.depth = other.depth;
        self.waits += other.waits;
        self.left_out += other.left_out;
        add(&mut self.ios, &other.ios);
        add(&mut self.bytes, &other.bytes);
        add(&mut self.depths, &other.depths);
        add(&mut self.submits, &other.submits);
        add(&mut self.completes, &other.completes);
        add(&mut self.classes, &other.classes);
        add(&mut self.cpu_ns, &other.cpu_ns);
        self.sync.merge(&other.sync);
        for direction in 0..DIRECTIONS.len() {
            self.slat[direction].merge(&other.slat[direction]);
            self.clat[direction].merge(&other.clat[direction]);
            self.lat[direction].merge(&other.lat[direction]);
            (0..2).for_each(|which| self.rates[which][direction].sum(&other.rates[which][direction]));
        }
        for (drive, theirs) in &other.drives {
            let ours = self.drives.entry(*drive).or_default();
            add(&mut ours.ios, &theirs.ios);
            add(&mut ours.ns, &theirs.ns);
        }
    }

    /// All directions as the first one.
    pub fn mixed(&self) -> Self {
        let mut mixed = self.clone();
        for direction in 1..DIRECTIONS.len() {
            mixed.ios[0] += self.ios[direction];
            mixed.bytes[0] += self.bytes[direction];
            mixed.slat[0].merge(&self.slat[direction]);
            mixed.clat[0].merge(&self.clat[direction]);
            mixed.lat[0].merge(&self.lat[direction]);
            (0..2).for_each(|which| mixed.rates[which][0].sum(&self.rates[which][direction]));
        }
        mixed
    }

    /// As if its span had been `ratio` times as long.
    fn scaled(&self, ratio: f64) -> Self {
        let mut scaled = self.clone();
        let times =
            |counts: &mut [u64]| counts.iter_mut().for_each(|count| *count = (*count as f64 * ratio).round() as u64);
        times(std::slice::from_mut(&mut scaled.span_ns));
        times(std::slice::from_mut(&mut scaled.waits));
        times(&mut scaled.ios);
        times(&mut scaled.bytes);
        times(&mut scaled.depths);
        times(&mut scaled.submits);
        times(&mut scaled.completes);
        times(&mut scaled.classes);
        times(&mut scaled.cpu_ns);
        for drive in scaled.drives.values_mut() {
            times(&mut drive.ios);
            times(&mut drive.ns);
        }
        let latencies = [&mut scaled.slat, &mut scaled.clat, &mut scaled.lat];
        latencies.into_iter().flatten().chain([&mut scaled.sync]).for_each(|stat| stat.scale(ratio));
        scaled
    }

    /// Sets its CPU time, of which a thread has at most as much as its span.
    pub fn set_cpu(&mut self, cpu_ns: [u64; 2]) {
        let all: u64 = cpu_ns.iter().sum();
        let fits = (self.span_ns as f64 / all.max(1) as f64).min(1.0);
        self.cpu_ns = cpu_ns.map(|ns| (ns as f64 * fits) as u64);
    }

    /// I/Os of all directions.
    pub fn total_ios(&self) -> u64 {
        self.ios[..3].iter().sum()
    }
}

/// The threads that report together.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportGroup {
    /// The options of the first of them.
    pub reporting: Arc<Reporting>,
    /// fio's number of the group.
    pub group: u32,
    /// Indices of the threads.
    pub threads: std::ops::Range<usize>,
}

/// The report groups of threads: with `group_reporting` those of a group that follow each other, else each thread.
pub fn groups(threads: &[Arc<Reporting>]) -> Vec<ReportGroup> {
    let mut groups: Vec<ReportGroup> = Vec::new();
    let mut number = 0;
    for (index, reporting) in threads.iter().enumerate() {
        // The clones of a section share its options; only the first of them begins a group.
        let is_clone = index > 0 && Arc::ptr_eq(reporting, &threads[index - 1]);
        if reporting.begins_group && index > 0 && !is_clone {
            number += 1;
        }
        match groups.last_mut() {
            Some(last) if reporting.is_grouped && last.group == number => last.threads.end = index + 1,
            _ => {
                groups.push(ReportGroup { reporting: reporting.clone(), group: number, threads: index..index + 1 });
            }
        }
    }
    groups
}

/// The measurements of a run that has them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Details {
    /// One entry a thread.
    pub threads: Vec<ThreadDetail>,
    /// The threads that report together.
    pub groups: Vec<ReportGroup>,
}

impl Details {
    /// The sum of a group.
    pub fn of(&self, group: &ReportGroup) -> ThreadDetail {
        let threads = &self.threads[group.threads.clone()];
        let least = threads.iter().map(|thread| thread.weight.max(1.0)).fold(f64::MAX, f64::min);
        let mut sum = ThreadDetail::default();
        for thread in threads {
            // Phases that are shortened unequally: what a thread counted is brought to the scale of the least.
            match thread.weight / least {
                ratio if ratio > UNEVEN => sum.merge(&thread.scaled(ratio)),
                _ => sum.merge(thread),
            }
        }
        sum
    }

    /// The figures of every group.
    pub fn figures(&self) -> Vec<JobFigures> {
        self.groups.iter().map(|group| JobFigures::of(group, &self.of(group))).collect()
    }
}

/// A group's figures, for tables and files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobFigures {
    /// The name of the (first) job's section.
    pub name: String,
    /// fio's number of its group.
    pub group: u32,
    /// Threads that report together.
    pub threads: usize,
    /// Their directions that had I/Os.
    pub directions: Vec<DirectionFigures>,
    /// Completion latency of syncs; its count is theirs.
    pub sync: Latency,
    /// I/Os submitted at a depth of 1, 2 to 3, 4 to 7, 8 to 15, 16 to 31, 32 to 63, and more.
    pub depths: Vec<u64>,
    /// Calls that submitted none, up to 4, 8, 16, 32, 64 I/Os, and more; and likewise those that took completions.
    pub submits: Vec<u64>,
    /// See `submits`.
    pub completes: Vec<u64>,
    /// I/Os whose completion latency is below each bound, and not below the one before; bounds in ns, the last one open.
    pub latency_classes: Vec<(Option<u64>, u64)>,
}

/// One direction of a group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DirectionFigures {
    /// One of [`DIRECTIONS`].
    pub direction: String,
    /// I/Os.
    pub ios: u64,
    /// Their bytes.
    pub bytes: u64,
    /// I/Os a second.
    pub iops: f64,
    /// Bytes a second.
    pub bandwidth: f64,
    /// Time inside the submitting call.
    pub slat: Latency,
    /// Completion latency.
    pub clat: Latency,
    /// Total latency, from before the submitting call.
    pub lat: Latency,
    /// The job's percentiles in percent, with the values of each latency that has them, in ns.
    pub percentiles: Vec<PercentileRow>,
}

/// One percentile of the latencies that have percentiles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PercentileRow {
    /// In percent.
    pub percent: f64,
    /// Of submission latency.
    pub slat_ns: Option<u64>,
    /// Of completion latency.
    pub clat_ns: Option<u64>,
    /// Of total latency.
    pub lat_ns: Option<u64>,
}

impl JobFigures {
    fn of(group: &ReportGroup, sum: &ThreadDetail) -> Self {
        let directions = (0..DIRECTIONS.len()).filter(|&direction| sum.ios[direction] > 0);
        Self {
            name: group.reporting.name.clone(),
            group: group.group,
            threads: group.threads.len(),
            directions: directions.map(|direction| DirectionFigures::of(group, sum, direction)).collect(),
            sync: latency(&sum.sync),
            depths: sum.depths.to_vec(),
            submits: sum.submits.to_vec(),
            completes: sum.completes.to_vec(),
            latency_classes: stat::class_bounds().zip(sum.classes).filter(|(_, count)| *count > 0).collect(),
        }
    }
}

impl DirectionFigures {
    fn of(group: &ReportGroup, sum: &ThreadDetail, direction: usize) -> Self {
        let per_second = |count: u64| count as f64 / sum.span_ns.max(1) as f64 * 1e9;
        let stats = [&sum.slat[direction], &sum.clat[direction], &sum.lat[direction]];
        let list = group.reporting.percentiles();
        let has = group.reporting.has_percentiles;
        let values: Vec<_> = (0..3).map(|kind| stats[kind].percentiles(list).filter(|_| has[kind])).collect();
        let value = |kind: usize, at: usize| values[kind].as_ref().map(|values| values[at]);
        let row = |(at, &percent): (usize, &f64)| PercentileRow {
            percent,
            slat_ns: value(0, at),
            clat_ns: value(1, at),
            lat_ns: value(2, at),
        };
        Self {
            direction: DIRECTIONS[direction].into(),
            ios: sum.ios[direction],
            bytes: sum.bytes[direction],
            iops: per_second(sum.ios[direction]),
            bandwidth: per_second(sum.bytes[direction]),
            slat: latency(stats[0]),
            clat: latency(stats[1]),
            lat: latency(stats[2]),
            percentiles: list.iter().enumerate().map(row).collect(),
        }
    }
}

fn latency(stat: &Stat) -> Latency {
    let values = stat.percentiles(&crate::outcome::PERCENTILES).unwrap_or_default();
    let mut percentiles_ns = [0; crate::outcome::PERCENTILES.len()];
    percentiles_ns.iter_mut().zip(values).for_each(|(slot, value)| *slot = value);
    let moments = &stat.moments;
    Latency { count: moments.count, mean_ns: moments.mean, min_ns: moments.min, max_ns: moments.max, percentiles_ns }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(is_grouped: bool, begins_group: bool) -> Arc<Reporting> {
        Arc::new(Reporting { is_grouped, begins_group, ..Reporting::default() })
    }

    fn ranges(threads: &[Arc<Reporting>]) -> Vec<(u32, std::ops::Range<usize>)> {
        groups(threads).into_iter().map(|group| (group.group, group.threads)).collect()
    }

    #[test]
    fn threads_report_alone_or_with_their_group() {
        let (alone, grouped, later) = (job(false, false), job(true, false), job(true, true));
        assert_eq!(ranges(&[alone.clone(), alone.clone()]), [(0, 0..1), (0, 1..2)]);
        assert_eq!(ranges(&[grouped.clone(), grouped.clone(), later.clone(), later]), [(0, 0..2), (1, 2..4)]);
        let first = job(true, true);
        assert_eq!(ranges(&[first.clone(), first]), [(0, 0..2)], "the first section begins group 0");
        assert_eq!(ranges(&[job(true, true), job(true, true)]), [(0, 0..1), (1, 1..2)], "two sections");
    }
}

//! What a job's options say about its report: groups, percentiles, logs.

use super::number::float;
use super::{Entry, options};
use crate::input::InputError;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most percentiles of a `percentile_list`, as in fio.
const PERCENTILES_MAX: usize = 20;

/// The largest number of an option: fio keeps 32 bits.
const NUMBER_MAX: u64 = u32::MAX as u64;

/// The options of a job that only its report depends on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reporting {
    /// What reports call it: its option `name` if it is the first thread of its section, or the section's name.
    pub name: String,
    /// The options before its section that hold for all jobs: main names, and values as given. Without values that a
    /// bare key implies.
    pub globals: Arc<Vec<(String, String)>>,
    /// Its own options, likewise.
    pub own: Vec<(String, String)>,
    /// `description`.
    pub description: Option<String>,
    /// Its threads report together with those of its group.
    pub is_grouped: bool,
    /// It begins a group (`new_group`, `stonewall`).
    pub begins_group: bool,
    /// `percentile_list`, ascending; none if not given.
    pub percentiles: Option<Vec<f64>>,
    /// Which latencies have percentiles: submission, completion, total.
    pub has_percentiles: [bool; 3],
    /// Latencies that are not kept: `disable_slat`, `disable_clat`, `disable_lat`, `gtod_reduce`.
    pub is_disabled: [bool; 3],
    /// Reads, writes and trims apart, or together.
    pub unified: Unified,
    /// Time over which bandwidth and IOPS are averaged, in ms: `bwavgtime`, `iopsavgtime`.
    pub average_ms: [u64; 2],
    /// Its logs.
    pub logs: Logs,
}

/// `unified_rw_reporting`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unified {
    /// Each direction by itself.
    #[default]
    Apart,
    /// All of them as `mixed`.
    Mixed,
    /// Both.
    Both,
}

/// The logs that a job asks for. An empty prefix stands for the job's name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Logs {
    /// `write_bw_log`, and likewise the others.
    pub bw: Option<String>,
    /// Of submission, completion and total latency.
    pub lat: Option<String>,
    /// I/Os a second.
    pub iops: Option<String>,
    /// Histograms of completion latency.
    pub hist: Option<String>,
    /// Name of the file with each I/O (`write_iolog`).
    pub iolog: Option<String>,
    /// Values of so many ms make one line; 0: a line for each I/O.
    pub average_ms: u64,
    /// The largest of them counts, not their mean.
    pub keeps_max: bool,
    /// Lines end with the I/O's offset.
    pub has_offset: bool,
    /// Lines end with the I/O's priority in hexadecimal.
    pub has_priority: bool,
    /// Each thread has a file of its own.
    pub is_per_job: bool,
    /// Time between two histograms, in ms, and the power of two of buckets that each number takes together.
    pub hist_ms: u64,
    /// See `hist_ms`.
    pub hist_coarseness: u32,
}

impl Logs {
    /// True if the job asks for any.
    pub fn any(&self) -> bool {
        [&self.bw, &self.lat, &self.iops, &self.hist, &self.iolog].iter().any(|log| log.is_some())
    }
}

impl Reporting {
    /// Reads the options of the section `name`: those of all jobs, its own, and those that replace them.
    ///
    /// # Errors
    /// A value is not of its option's form.
    pub fn read(name: &str, globals: &[&Entry], own: &[Entry], overrides: &[Entry]) -> Result<Self, InputError> {
        let all = globals.iter().copied().chain(own).chain(overrides);
        let by_name: BTreeMap<&str, &Entry> = all.map(|entry| (main_name(entry), entry)).collect();
        let get = |name: &str| by_name.get(name).copied();
        let flag = |name: &str, default: bool| get(name).map_or(Ok(default), Entry::flag);
        let number = |name: &str, default: u64| get(name).map_or(Ok(default), |e| e.number(0..=NUMBER_MAX, 1024));
        let log = |name: &str| get(name).map(|entry| entry.setting.text.clone());
        let reduced = flag("gtod_reduce", false)?;
        let all_off = flag("disable_lat", false)?;
        let disabled = |name: &str| Ok::<_, InputError>(reduced || flag(name, false)?);
        let given = |entries: &mut dyn Iterator<Item = &Entry>| {
            let given = |entry: &Entry| (main_name(entry).to_owned(), entry.setting.text.clone());
            entries.filter(|entry| !entry.bare).map(given).collect::<Vec<_>>()
        };
        Ok(Self {
            name: name.to_owned(),
            globals: Arc::new(given(&mut globals.iter().copied())),
            own: given(&mut own.iter().chain(overrides)),
            description: get("description").map(|entry| entry.setting.text.clone()),
            is_grouped: flag("group_reporting", false)?,
            begins_group: flag("stonewall", false)? || flag("new_group", false)?,
            percentiles: get("percentile_list").map(percentiles),
            has_percentiles: [
                flag("slat_percentiles", false)?,
                flag("clat_percentiles", true)?,
                flag("lat_percentiles", false)?,
            ],
            is_disabled: [disabled("disable_slat")?, disabled("disable_clat")?, reduced || all_off],
            unified: match get("unified_rw_reporting").map(Entry::word) {
                Some("mixed" | "1") => Unified::Mixed,
                Some("both" | "2") => Unified::Both,
                _ => Unified::Apart,
            },
            average_ms: [number("bwavgtime", 500)?, number("iopsavgtime", 500)?],
            logs: Logs {
                bw: log("write_bw_log"),
                lat: log("write_lat_log"),
                iops: log("write_iops_log"),
                hist: log("write_hist_log"),
                iolog: log("write_iolog"),
                average_ms: number("log_avg_msec", 0)?,
                keeps_max: flag("log_max_value", false)?,
                has_offset: flag("log_offset", false)?,
                has_priority: flag("log_prio", false)?,
                is_per_job: flag("per_job_logs", true)?,
                hist_ms: number("log_hist_msec", 0)?,
                hist_coarseness: number("log_hist_coarseness", 0)?.min(6) as u32,
            },
        })
    }

    /// The percentiles of its report, ascending.
    pub fn percentiles(&self) -> &[f64] {
        self.percentiles.as_deref().unwrap_or(&super::stat::PERCENTILES)
    }
}

/// The option's main name.
fn main_name(entry: &Entry) -> &str {
    let key = entry.setting.key.as_str();
    options::canonical(key.strip_prefix("job.").unwrap_or(key))
}

/// `50:99:99.9`, sorted.
fn percentiles(entry: &Entry) -> Vec<f64> {
    let read = |part: &str| float(part).filter(|percent| (0.0..=100.0).contains(percent));
    // fio's list ends at a zero, which also stands for what is no number.
    let parts = entry.setting.text.split(':').take(PERCENTILES_MAX).map(|part| read(part).unwrap_or(0.0));
    let mut list: Vec<f64> = parts.take_while(|percent| *percent > 0.0).collect();
    list.sort_by(f64::total_cmp);
    list
}

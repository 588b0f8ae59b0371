//! fio's JSON output, of version 2 or 3, from a single process or from clients.
//!
//! fio prints lines of its own before and behind the JSON (warnings, `fio: …`), several documents with
//! `--status-interval`, and `nan` for the statistics of nothing. Version 3 states latencies in nanoseconds under
//! `clat_ns` and sizes in bytes; version 2 states microseconds under `clat` and KiB. Source: fio's HOWTO, "JSON output";
//! `show_thread_status_json` and `show_ddir_status_json` in its `stat.c`.

use crate::Note;
use crate::disks::Disk;
use crate::encoding::{self, plain};
use crate::json;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fmt;

/// Most bytes of a text.
pub const BYTES_MAX: usize = 64 << 20;

/// A mean latency may be so many times the time of the run. An I/O that began before a ramp's end may end behind it.
const LATENCY_SLACK: f64 = 2.0;

/// The sum of all clients, which stands beside them.
pub(crate) const ALL_CLIENTS: &str = "All clients";

/// Least I/Os that tell whether disks did them.
const OF_CACHE_MIN: f64 = 100.0;

/// The time at a run's end that the disks' counters may lack.
const UNSEEN_MS: f64 = 1200.0;

/// What one run of fio printed.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FioOutput {
    /// `fio-3.33`; empty if the text does not say.
    pub version: String,
    /// Options of `[global]`, where they are printed.
    pub global_options: Vec<(String, String)>,
    /// Jobs; groups with `group_reporting`.
    pub jobs: Vec<FioJob>,
    /// The disks of its statistics.
    pub disks: Vec<Disk>,
    /// What could not be read.
    pub notes: Vec<Note>,
}

/// A job, or a group of them.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FioJob {
    /// Its name.
    pub name: String,
    /// The host that it ran on, where a client of fio's started it there.
    pub host: String,
    /// Its group. Groups run one after another, except for those that `new_group` began.
    pub group: i64,
    /// fio's number of its error; 0 without one.
    pub error: i64,
    /// Its options as fio prints them.
    pub options: Vec<(String, String)>,
    /// Reads, writes, trims.
    pub directions: [Direction; 3],
    /// Share of its threads' time in user mode and in the kernel, in per cent.
    pub user_percent: Option<f64>,
    /// See `user_percent`.
    pub system_percent: Option<f64>,
    /// Threads that it stands for, where the output tells. A ramp before the measured time makes the number of JSON too
    /// great.
    pub threads: Option<f64>,
}

/// Reads, writes or trims of a job.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Direction {
    /// Number of I/Os.
    pub ios: u64,
    /// A second.
    pub iops: f64,
    /// Bytes a second.
    pub bandwidth_bps: f64,
    /// Length of the measured time.
    pub runtime_ms: f64,
    /// Mean submission latency.
    pub slat_ns: Option<f64>,
    /// Mean completion latency.
    pub clat_ns: Option<f64>,
    /// Mean of both.
    pub lat_ns: Option<f64>,
    /// Percentiles of the completion latency: percent and nanoseconds, ascending.
    pub percentiles_ns: Vec<(f64, f64)>,
}

/// Why a text is not read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FioJsonError {
    /// It has no JSON object.
    NoJson,
    /// It has no results, but a message of fio's.
    Said(String),
    /// The JSON ends or breaks: the parser's words.
    Broken(String),
    /// The JSON has no jobs.
    NoJobs,
    /// It has more than [`BYTES_MAX`] bytes.
    TooLong,
}

impl fmt::Display for FioJsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoJson => {
                f.write_str("holds no JSON; valid: what `fio --output-format=json` prints, or fio's whole text")
            }
            Self::Said(what) => write!(f, "has no results; fio says {what:?}"),
            Self::Broken(why) => write!(f, "holds broken JSON ({why}); it may be cut off"),
            Self::NoJobs => f.write_str("holds JSON without `jobs` or `client_stats`; valid: what fio prints"),
            Self::TooLong => write!(f, "has more than {BYTES_MAX} bytes"),
        }
    }
}

impl std::error::Error for FioJsonError {}

impl FioOutput {
    /// Reads the last run in a text; see [`Self::parse_all`].
    ///
    /// # Errors
    /// There is no output of fio's in it.
    pub fn parse(text: &[u8]) -> Result<Self, FioJsonError> {
        Self::parse_all(text).and_then(|mut runs| runs.pop().ok_or(FioJsonError::NoJobs))
    }

    /// Reads all runs of different jobs in a text. The last one has the notes on the whole text.
    ///
    /// Without JSON, what fio prints for people or as `terse` is read ([`crate::fio_text`]).
    ///
    /// # Errors
    /// There is no output of fio's in it.
    pub fn parse_all(text: &[u8]) -> Result<Vec<Self>, FioJsonError> {
        if text.len() > BYTES_MAX {
            return Err(FioJsonError::TooLong);
        }
        let text = plain(text);
        let of_bare = || encoding::bare(&text).and_then(|bare| Self::runs(&bare).ok());
        let mut runs = Self::runs(&text).or_else(|error| of_bare().ok_or(error))?;
        runs.iter_mut().for_each(Self::leave_out_impossible);
        Ok(runs)
    }

    /// Leaves out mean latencies that are longer than the run: with `gtod_reduce` or `disable_lat`, old versions print times
    /// since the start of the system.
    fn leave_out_impossible(&mut self) {
        let mut count = 0;
        for direction in self.jobs.iter_mut().flat_map(|job| &mut job.directions) {
            let longest_ns = direction.runtime_ms.max(1.0) * 1e6 * LATENCY_SLACK;
            let is_impossible = |latency: &Option<f64>| latency.is_some_and(|latency| latency > longest_ns);
            if direction.runtime_ms > 0.0 && (is_impossible(&direction.clat_ns) || is_impossible(&direction.lat_ns)) {
                (direction.clat_ns, direction.lat_ns) = (None, None);
                direction.percentiles_ns.clear();
                count += 1;
            }
        }
        if count > 0 {
            self.notes.push(format!("{count} latencies are longer than the run, and left out: nothing measured them"));
        }
    }

    fn runs(text: &[u8]) -> Result<Vec<Self>, FioJsonError> {
        let (documents, mut notes) = match json::documents(text) {
            Ok(found) => found,
            Err(error) => return crate::fio_text::parse(text).ok_or_else(|| said(text).unwrap_or(error)),
        };
        let mut runs: Vec<Self> = documents.iter().map(Self::of_document).collect::<Result<_, _>>()?;
        if let Some(last) = runs.last_mut() {
            notes.append(&mut last.notes);
            last.notes = notes;
        }
        Ok(runs)
    }

    fn of_document(root: &Map<String, Value>) -> Result<Self, FioJsonError> {
        let string = |key: &str| root.get(key).map(text_of).unwrap_or_default();
        let list = json::jobs(root).ok_or(FioJsonError::NoJobs)?;
        let mut output = Self {
            version: string("fio version"),
            global_options: options(root.get("global options")),
            disks: root
                .get("disk_util")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(Disk::of_json)
                .collect(),
            ..Self::default()
        };
        for (index, job) in list.iter().enumerate() {
            match job.as_object() {
                Some(job) if list.len() > 1 && job.get("jobname").map(text_of).as_deref() == Some(ALL_CLIENTS) => {}
                Some(job) => output.jobs.push(read_job(job)),
                None => output.notes.push(format!("job {index} is no object")),
            }
        }
        Ok(output)
    }

    /// I/Os a second of all jobs, in all directions.
    pub fn iops(&self) -> f64 {
        self.all().map(|direction| direction.iops).sum()
    }

    /// Bytes a second of all jobs, in all directions.
    pub fn bandwidth_bps(&self) -> f64 {
        self.all().map(|direction| direction.bandwidth_bps).sum()
    }

    /// I/Os that were in flight on average: rate times completion latency, of all jobs in all directions.
    pub fn in_flight(&self) -> f64 {
        self.all().map(|direction| direction.iops * direction.clat_ns.unwrap_or(0.0) / 1e9).sum()
    }

    /// Mean completion latency over all I/Os that have one.
    pub fn clat_ns(&self) -> Option<f64> {
        mean_clat_ns(self.all())
    }

    /// The same of reads (0), writes (1) or trims (2) alone. What fio printed as mixed counts as reads.
    pub fn clat_ns_of(&self, direction: usize) -> Option<f64> {
        mean_clat_ns(self.jobs.iter().filter_map(|job| job.directions.get(direction)))
    }

    /// The I/Os of a direction, and how many of them the disks did, if those are far fewer: the page cache answered.
    pub fn of_cache(&self) -> Option<(u64, u64)> {
        // fio reads the disks' counters four times a second, and not always at the end.
        let seen = |one: &Direction| (one.runtime_ms - UNSEEN_MS).max(0.0) / one.runtime_ms.max(1.0);
        let of = |at: usize| {
            let all = || self.jobs.iter().map(|job| &job.directions[at]);
            // Arrays and their members count the same I/Os.
            let [drives, arrays] = [false, true].map(|arrays| -> u64 {
                let disks = self.disks.iter().filter(|disk| disk.is_array == arrays);
                disks.map(|disk| disk.ios[at]).fold(0, u64::saturating_add)
            });
            let reached = drives.max(arrays);
            let expected: f64 = all().map(|one| one.ios as f64 * seen(one)).sum();
            let did = all().map(|one| one.ios).fold(0, u64::saturating_add);
            (expected >= OF_CACHE_MIN && (reached as f64) < expected / 2.0).then_some((did, reached))
        };
        of(0).or(of(1)).filter(|_| !self.disks.is_empty())
    }

    /// The hosts that the jobs ran on, where clients of fio's say so.
    pub fn hosts(&self) -> BTreeSet<&str> {
        self.jobs.iter().map(|job| job.host.as_str()).filter(|host| !host.is_empty()).collect()
    }

    /// Leaves out what ran on other hosts.
    pub fn keep_host(&mut self, host: &str) {
        self.jobs.retain(|job| job.host == host || job.host.is_empty());
        self.disks.retain(|disk| disk.host == host || disk.host.is_empty());
    }

    /// Threads that ran, where all jobs tell theirs.
    pub fn threads(&self) -> Option<f64> {
        self.jobs.iter().map(|job| job.threads).sum()
    }

    fn all(&self) -> impl Iterator<Item = &Direction> {
        self.jobs.iter().flat_map(|job| &job.directions)
    }
}

/// What fio says where it prints no results: `fio: pid=7, err=2/file:filesetup.c:174, func=open(x), error=No such file`.
fn said(text: &[u8]) -> Option<FioJsonError> {
    let text = String::from_utf8_lossy(&text[..text.len().min(1 << 20)]);
    let message = text.lines().map(str::trim).find(|line| line.starts_with("fio: ") && !line.contains('{'))?;
    Some(FioJsonError::Said(message.chars().take(200).collect()))
}

fn mean_clat_ns<'a>(directions: impl Iterator<Item = &'a Direction>) -> Option<f64> {
    let (mut sum, mut ios) = (0.0, 0.0);
    for direction in directions {
        if let Some(clat) = direction.clat_ns {
            sum += clat * direction.ios as f64;
            ios += direction.ios as f64;
        }
    }
    (ios > 0.0).then(|| sum / ios)
}

fn read_job(job: &Map<String, Value>) -> FioJob {
    let direction = |key: &str| job.get(key).and_then(Value::as_object).map(read_direction).unwrap_or_default();
    // `unified_rw_reporting` sums all directions under this name.
    let mut directions = [direction("read"), direction("write"), direction("trim")];
    if directions.iter().all(|direction| direction.ios == 0) {
        directions[0] = direction("mixed");
    }
    // `job_runtime` is the sum over all threads of a group.
    let longest_ms = directions.iter().map(|direction| direction.runtime_ms).fold(0.0, f64::max);
    FioJob {
        name: job.get("jobname").map(text_of).unwrap_or_default(),
        host: job.get("hostname").map(text_of).unwrap_or_default(),
        group: job.get("groupid").and_then(Value::as_i64).unwrap_or(0),
        error: job.get("error").and_then(Value::as_i64).unwrap_or(0),
        options: options(job.get("job options")),
        directions,
        user_percent: number(job, "usr_cpu"),
        system_percent: number(job, "sys_cpu"),
        threads: number(job, "job_runtime").filter(|_| longest_ms > 0.0).map(|all_ms| all_ms / longest_ms),
    }
}

fn read_direction(direction: &Map<String, Value>) -> Direction {
    let kib = number(direction, "bw").map(|kib| kib * 1024.0);
    let latency = |name: &str| -> (Option<f64>, Vec<(f64, f64)>) {
        let nanoseconds = direction.get(&format!("{name}_ns")).map(|value| (value, 1.0));
        let Some((value, scale)) = nanoseconds.or_else(|| direction.get(name).map(|value| (value, 1000.0))) else {
            return (None, Vec::new());
        };
        let Some(statistics) = value.as_object() else { return (None, Vec::new()) };
        // Of nothing: fio prints zeros, and no number of samples before version 3.13.
        let is_empty = number(statistics, "N") == Some(0.0) || number(statistics, "max") == Some(0.0);
        let mean = number(statistics, "mean").filter(|_| !is_empty).map(|mean| mean * scale);
        let percentiles = statistics.get("percentile").and_then(Value::as_object);
        let mut percentiles: Vec<(f64, f64)> = percentiles
            .into_iter()
            .flatten()
            .filter_map(|(percent, value)| Some((percent.parse().ok()?, value.as_f64()? * scale)))
            .filter(|(percent, _): &(f64, f64)| !is_empty && (0.0..=100.0).contains(percent) && *percent > 0.0)
            .collect();
        percentiles.sort_by(|a, b| a.0.total_cmp(&b.0));
        (mean, percentiles)
    };
    let ((slat_ns, _), (clat_ns, clat), (lat_ns, lat)) = (latency("slat"), latency("clat"), latency("lat"));
    let runtime_ms = number(direction, "runtime").unwrap_or(0.0);
    let ios = number(direction, "total_ios");
    let counted = || ios.filter(|_| runtime_ms > 0.0).map(|ios| ios / runtime_ms * 1000.0);
    let iops = number(direction, "iops").or_else(counted).unwrap_or(0.0);
    Direction {
        // Older versions print no number of I/Os.
        ios: ios.unwrap_or(iops * runtime_ms / 1000.0).round() as u64,
        iops,
        bandwidth_bps: number(direction, "bw_bytes").or(kib).unwrap_or(0.0),
        runtime_ms,
        slat_ns,
        // Synchronous engines have a completion latency alone, some versions the total alone.
        clat_ns: clat_ns.or(lat_ns),
        lat_ns,
        percentiles_ns: if clat.is_empty() { lat } else { clat },
    }
}

/// A number that is neither negative nor beyond all that a drive does; some versions print numbers as strings.
fn number(object: &Map<String, Value>, key: &str) -> Option<f64> {
    let value = object.get(key)?;
    let number = value.as_f64().or_else(|| value.as_str()?.trim().trim_end_matches('%').parse().ok())?;
    (0.0..1e18).contains(&number).then_some(number)
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn options(value: Option<&Value>) -> Vec<(String, String)> {
    let object = value.and_then(Value::as_object);
    object.into_iter().flatten().map(|(name, value)| (name.clone(), text_of(value))).collect()
}

#[cfg(test)]
mod tests;

//! fio's JSON output, of version 2 or 3, from a single process or from clients.
//!
//! fio prints lines of its own before and behind the JSON (warnings, `fio: …`), several documents with
//! `--status-interval`, and `nan` for the statistics of nothing. Version 3 states latencies in nanoseconds under
//! `clat_ns` and sizes in bytes; version 2 states microseconds under `clat` and KiB. Source: fio's HOWTO, "JSON output";
//! `show_thread_status_json` and `show_ddir_status_json` in its `stat.c`.

use crate::Note;
use crate::disks::Disk;
use crate::encoding::{self, plain};
use crate::fio_job::{options, read_job, text_of};
use crate::hosts;
use crate::json;
use crate::text_options;
pub use crate::{fio_error::FioJsonError, fio_job::Syncs};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Most bytes of a text.
pub const BYTES_MAX: usize = 64 << 20;

/// Most values of a text, each of which takes some hundred bytes of memory; a histogram of every latency (`json+`) has some
/// thousand for a job.
const VALUES_MAX: usize = 4 << 20;

/// Most jobs of a run; fio itself has 4,096 at most, and a client of fio's may have some hundred hosts.
const JOBS_MAX: usize = 65_536;

/// A mean latency may be so many times the time of the run. An I/O that began before a ramp's end may end behind it.
const LATENCY_SLACK: f64 = 2.0;

/// The sum of all clients, which stands beside them.
pub(crate) const ALL_CLIENTS: &str = "All clients";

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
    /// The text had several documents: counters around it may be of several runs.
    pub is_one_of_several: bool,
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
    /// When it began, by a clock of its host, where the output tells (since 3.36).
    pub start_ms: Option<f64>,
    /// fio's number of its error; 0 without one.
    pub error: i64,
    /// Its options as fio prints them.
    pub options: Vec<(String, String)>,
    /// Reads, writes, trims.
    pub directions: [Direction; 3],
    /// Its syncs, which are no I/Os.
    pub syncs: Syncs,
    /// The first of these is the sum of all (`unified_rw_reporting`).
    pub is_sum: bool,
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
        if text.iter().filter(|byte| **byte == b',').count() > VALUES_MAX {
            return Err(FioJsonError::TooMany("values", VALUES_MAX));
        }
        let of_hosts = hosts::runs(&text, |text| Self::with_prefixes(text).ok());
        let mut runs = of_hosts.map_or_else(|| Self::with_prefixes(&text), Ok)?;
        runs.iter_mut().for_each(Self::leave_out_impossible);
        Ok(runs)
    }

    /// The runs of a text, whose lines may all have something before them.
    fn with_prefixes(text: &[u8]) -> Result<Vec<Self>, FioJsonError> {
        let of_bare = || encoding::bare(text).and_then(|bare| Self::runs(&bare).ok());
        Self::runs(text).or_else(|error| of_bare().ok_or(error))
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
            self.notes
                .push(format!("latencies longer than the run are left out, since nothing measured them: {count}"));
        }
    }

    fn runs(text: &[u8]) -> Result<Vec<Self>, FioJsonError> {
        let json::Found { documents, mut notes, printed } = match json::documents(text) {
            Ok(found) => found,
            Err(error) => return crate::fio_text::parse(text).ok_or_else(|| said(text).unwrap_or(error)),
        };
        let mut runs: Vec<Self> = documents.iter().map(Self::of_document).collect::<Result<_, _>>()?;
        runs.iter_mut().for_each(|run| run.is_one_of_several = printed > 1);
        text_options::add_command(&mut runs, text);
        if let Some(last) = runs.last_mut() {
            notes.append(&mut last.notes);
            last.notes = notes;
        }
        Ok(runs)
    }

    fn of_document(root: &Map<String, Value>) -> Result<Self, FioJsonError> {
        let string = |key: &str| root.get(key).map(text_of).unwrap_or_default();
        let list = json::jobs(root).ok_or(FioJsonError::NoJobs)?;
        if list.len() > JOBS_MAX {
            return Err(FioJsonError::TooMany("jobs", JOBS_MAX));
        }
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

    /// Number of reads (0), writes (1) or trims (2).
    pub fn ios_of(&self, direction: usize) -> u64 {
        let counts = self.jobs.iter().filter_map(|job| job.directions.get(direction)).map(|one| one.ios);
        counts.fold(0, u64::saturating_add)
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const V3: &str = r#"fio: warning: 'x' {
{
  "fio version" : "fio-3.33",
  "global options" : { "ioengine" : "libaio", "direct" : "1" },
  "jobs" : [
    { "jobname" : "a", "error" : 0, "job options" : { "rw" : "randread" },
      "read" : { "io_bytes" : 4096000, "bw_bytes" : 4096000, "bw" : 4000, "iops" : 1000.5, "runtime" : 1000, "total_ios" : 1000,
        "slat_ns" : { "min" : 1, "max" : 9, "mean" : 2000.0, "stddev" : nan, "N" : 1000 },
        "clat_ns" : { "min" : 1, "max" : 99, "mean" : 80000.0, "N" : 1000, "percentile" : { "99.000000" : 90000, "50.000000" : 79000, "0.00" : 0 } },
        "lat_ns" : { "mean" : 82000.0, "max" : 5, "N" : 1000 } },
      "write" : { "iops" : 0.0, "total_ios" : 0, "clat_ns" : { "max" : 0, "mean" : 0.0, "N" : 0 } },
      "usr_cpu" : 5.5, "sys_cpu" : 10.25 }
  ],
  "disk_util" : [ ]
}
Run status group 0 (all jobs):
"#;
    const V2: &str = r#"{
  "fio version" : "fio-2.1.11",
  "jobs" : [ { "jobname" : "b", "error" : 5, "read" : { "io_bytes" : 4000, "bw" : 4000, "iops" : 1000.00, "runtime" : 2000,
    "clat" : { "min" : 50, "max" : 99, "mean" : 80.0, "percentile" : { "50.000000" : 79, "0.00" : 0 } } } } ]
}"#;

    #[test]
    fn both_versions_are_read() {
        let found = FioOutput::parse(V3.as_bytes()).unwrap();
        assert_eq!((found.version.as_str(), found.jobs.len(), found.jobs[0].options.len()), ("fio-3.33", 1, 1));
        let read = &found.jobs[0].directions[0];
        assert_eq!((read.ios, read.iops, read.bandwidth_bps), (1000, 1000.5, 4_096_000.0));
        assert_eq!((read.slat_ns, read.clat_ns, read.lat_ns), (Some(2000.0), Some(80_000.0), Some(82_000.0)));
        assert_eq!(read.percentiles_ns, [(50.0, 79_000.0), (99.0, 90_000.0)]);
        assert_eq!(found.jobs[0].directions[1].clat_ns, None, "of nothing");
        assert_eq!((found.jobs[0].user_percent, found.jobs[0].system_percent), (Some(5.5), Some(10.25)));
        assert_eq!((found.jobs[0].threads, found.threads()), (None, None));
        let group =
            FioOutput::parse(V3.replace("\"usr_cpu\"", "\"job_runtime\" : 5990, \"usr_cpu\"").as_bytes()).unwrap();
        assert_eq!(group.threads(), Some(5.99));
        assert!((group.in_flight() - 1000.5 * 80e-6).abs() < 1e-9);
        let old = FioOutput::parse(V2.as_bytes()).unwrap();
        let read = &old.jobs[0].directions[0];
        assert_eq!((read.ios, read.bandwidth_bps, read.clat_ns), (2000, 4_096_000.0, Some(80_000.0)));
        assert_eq!((read.percentiles_ns.as_slice(), old.jobs[0].error), (&[(50.0, 79_000.0)][..], 5));
    }

    /// The first job of a text.
    fn first(text: &str) -> FioJob {
        FioOutput::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text}")).jobs.remove(0)
    }

    #[test]
    fn counters_that_overflowed_are_not_numbers() {
        let job = first(
            r#"{"fio version": "fio-2.2.10", "jobs": [{"jobname": "a", "read": {"io_bytes": -2147483648, "bw": -5, "iops": 1000.5,
            "total_ios": -1294967296, "runtime": 10000, "clat": {"min": 1, "max": 90, "mean": 50.5, "stddev": -nan}},
            "usr_cpu": -1.0, "sys_cpu": 12.5}]}"#,
        );
        let read = &job.directions[0];
        assert_eq!((read.iops, read.ios, read.bandwidth_bps, read.clat_ns), (1000.5, 10_005, 0.0, Some(50_500.0)));
        assert_eq!((job.user_percent, job.system_percent), (None, Some(12.5)));
    }

    #[test]
    fn what_newer_versions_add_changes_nothing() {
        let job = first(
            r#"{"fio version": "fio-3.41", "timestamp": 1, "global options": {"rw": "randtrim"}, "jobs": [{"jobname": "a", "elapsed": 3,
            "read": {"iops": 0.0, "total_ios": 0, "clat_ns": {"min": 0, "max": 0, "mean": 0.0, "N": 0}},
            "trim": {"iops": 500.0, "total_ios": 5000, "runtime": 10000, "bw_bytes": 2048000, "short_ios": 0, "drop_ios": 0,
              "clat_ns": {"min": 900, "max": 9000, "mean": 2000.0, "stddev": 1.0, "N": 5000, "bins": {"900": 4000, "9000": 1000}},
              "lat_prio": [{"prioclass": "BE", "prio": 4, "iops": 500.0}]},
            "sync": {"total_ios": 7, "lat_ns": {"min": 1, "max": 2, "mean": 1.5, "N": 7}}, "latency_depth": 1, "latency_window": 0}],
            "disk_util": [{"name": "nvme0n1", "read_ios": 5}]}"#,
        );
        assert_eq!((job.directions[0].ios, job.directions[2].ios, job.directions[2].clat_ns), (0, 5000, Some(2000.0)));
        assert!(job.directions[2].percentiles_ns.is_empty() && job.syncs == Syncs { count: 7, lat_ns: Some(1.5) });
    }

    #[test]
    fn a_text_for_people_before_the_json_is_no_run_of_its_own() {
        let text = "a: (g=0): rw=randread, bs=(R) 4096B-4096B, ioengine=libaio, iodepth=1\nfio-3.33\nStarting 1 process\n\n\
                    a: (groupid=0, jobs=1): err= 0: pid=7: Tue Nov 24 2026\n  read: IOPS=1, BW=1KiB/s (1kB/s)(4KiB/1000msec)\n\
                    {\"fio version\": \"fio-3.33\", \"jobs\": [{\"jobname\": \"a\", \"read\": {\"iops\": 1.5, \"total_ios\": 3}}]}\n\n\
                    Run status group 0 (all jobs):\n   READ: bw=1KiB/s\n";
        let runs = FioOutput::parse_all(text.as_bytes()).unwrap();
        assert_eq!((runs.len(), runs[0].iops()), (1, 1.5));
    }

    #[test]
    fn the_last_document_of_the_same_jobs_counts() {
        let two = format!("{V3}\n{}", V3.replace("1000.5", "7"));
        let found = FioOutput::parse(two.as_bytes()).unwrap();
        assert_eq!((found.iops(), found.notes.len(), found.is_one_of_several), (7.0, 1, true));
        let other = V3.replace("randread", "read").replace("1000.5", "7");
        let both = FioOutput::parse_all(format!("{V3}\n{other}").as_bytes()).unwrap();
        assert_eq!(both.iter().map(FioOutput::iops).collect::<Vec<_>>(), [1000.5, 7.0]);
        assert!(both.iter().all(|run| run.is_one_of_several));
        let cut = format!("{V3}\n{}", &V3[..300]);
        let found = FioOutput::parse(cut.as_bytes()).unwrap();
        assert!((found.iops() - 1000.5).abs() < 1e-9 && found.notes[0].contains("broken"), "{:?}", found.notes);
    }

    #[test]
    fn latencies_that_are_longer_than_the_run_are_left_out() {
        // 1,000 ms.
        let of = |mean: &str| FioOutput::parse(V3.replace("\"mean\" : 80000.0", mean).as_bytes()).unwrap();
        let found = of("\"mean\" : 756537530850000.0");
        assert_eq!((found.clat_ns(), found.iops(), found.in_flight()), (None, 1000.5, 0.0));
        assert!(found.notes.iter().any(|note| note.contains("longer than the run")), "{:?}", found.notes);
        assert_eq!(of("\"mean\" : 1500000000.0").clat_ns(), Some(1.5e9));
    }

    #[test]
    fn clients_are_jobs_and_their_sum_is_not() {
        let text = V2.replace("\"jobs\"", "\"client_stats\"");
        assert_eq!(FioOutput::parse(text.as_bytes()).unwrap().jobs.len(), 1);
        let all = r#"{ "jobname" : "All clients", "mixed" : { "iops" : 5.0, "total_ios" : 10 } }"#;
        let both = text.replace("} } } ]", &format!("}} }} }}, {all} ]"));
        let found = FioOutput::parse(both.as_bytes()).unwrap();
        assert_eq!((found.jobs.len(), found.iops()), (1, 1000.0));
        // A file that someone cut down to the sum.
        let alone = format!("{{\"client_stats\": [{all}]}}");
        assert_eq!(FioOutput::parse(alone.as_bytes()).unwrap().iops(), 5.0);
    }

    #[test]
    fn hosts_are_told_apart() {
        let on =
            |host: &str| format!(r#"{{"jobname": "a", "hostname": "{host}", "read": {{"iops": 5, "total_ios": 9}}}}"#);
        let disk = |host: &str| format!(r#"{{"name": "sda", "hostname": "{host}"}}"#);
        let [x, y] = ["x", "y"];
        let text =
            format!(r#"{{"client_stats": [{},{},{}], "disk_util": [{},{}]}}"#, on(x), on(y), on(""), disk(x), disk(y));
        let mut found = FioOutput::parse(text.as_bytes()).unwrap();
        assert_eq!(found.hosts().into_iter().collect::<Vec<_>>(), [x, y]);
        found.keep_host(y);
        assert_eq!((found.jobs.len(), found.disks.len(), found.jobs[0].host.as_str()), (2, 1, y));
    }

    #[test]
    fn what_is_no_fio_output_is_refused_with_its_reason() {
        assert_eq!(FioOutput::parse(b"terse;3;fio"), Err(FioJsonError::NoJson));
        assert_eq!(FioOutput::parse(b"{\"a\": 1}"), Err(FioJsonError::NoJobs));
        let failed =
            "fio-3.33\nfio: pid=7, err=2/file:x, func=open(y), error=No such file\n\nRun status group 0 (all jobs):\n";
        let error = FioOutput::parse(failed.as_bytes()).unwrap_err();
        assert!(error.to_string().contains("error=No such file"), "{error}");
        assert!(matches!(FioOutput::parse(&V3.as_bytes()[..600]), Err(FioJsonError::Broken(_))));
        let deep = "{\"jobs\":".to_owned() + &"[".repeat(100_000);
        assert!(matches!(FioOutput::parse(deep.as_bytes()), Err(FioJsonError::Broken(_))));
    }

    #[test]
    fn bombs_are_errors() {
        let error = |text: String| FioOutput::parse(text.as_bytes()).unwrap_err();
        let values = format!("{{\"jobs\": [{}0]}}", "0,".repeat(VALUES_MAX + 1));
        assert_eq!(error(values), FioJsonError::TooMany("values", VALUES_MAX));
        let jobs = format!("{{\"jobs\": [{}{{}}]}}", "{},".repeat(JOBS_MAX));
        assert_eq!(error(jobs).to_string(), "holds more than 65536 jobs");
    }

    #[test]
    fn a_cut_at_any_byte_is_an_error_or_a_value() {
        for length in 0..V3.len() {
            let _ = FioOutput::parse(&V3.as_bytes()[..length]);
        }
    }

    #[test]
    fn quotations_and_logs_are_read() {
        let (_, json) = V3.split_once('\n').unwrap();
        for prefix in ["> ", "fio_1  | ", "2026-11-23T13:02:56Z stdout F ", "Nov 23 13:02:56 host fio[7]: "] {
            let text: String = json.lines().map(|line| format!("{prefix}{line}\n")).collect();
            assert_eq!(first(&text).directions[0].iops, 1000.5, "{text}");
        }
        for before in ["Jobs: 1 (f=1): [r(1)][eta 00m:00s]", "fio: pid 7 ", "\x1b[1mroot#\x1b[0m "] {
            assert_eq!(first(&format!("{before}{json}root@host:~# ")).directions[0].iops, 1000.5, "{before}");
        }
    }

    #[test]
    fn texts_that_windows_saved_are_read() {
        let (_, json) = V3.split_once('\n').unwrap();
        let marked = format!("\u{feff}{json}");
        assert_eq!(FioOutput::parse(marked.as_bytes()).unwrap().jobs.len(), 1);
        let wide: Vec<u8> = format!("\u{feff}{V2}").encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert_eq!(FioOutput::parse(&wide).unwrap().version, "fio-2.1.11");
        assert_eq!(FioOutput::parse(&wide[2..]).unwrap().version, "fio-2.1.11");
        let other: Vec<u8> = V2.encode_utf16().flat_map(u16::to_be_bytes).collect();
        assert_eq!(FioOutput::parse(&other).unwrap().version, "fio-2.1.11");
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = FioOutput::parse(&text);
        }

        #[test]
        fn any_damage_is_read_without_a_panic(at in 0..V3.len(), byte in any::<u8>()) {
            let mut text = V3.as_bytes().to_vec();
            text[at] = byte;
            let _ = FioOutput::parse(&text);
        }
    }
}

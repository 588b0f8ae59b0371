//! A run in the form of fio's JSON (`--output-format=json+` of fio 3.33), for the programs that read it.
//!
//! Every key that fio writes for these jobs is there, with fio's type. What has no meaning on a simulated machine is
//! zero: merges of requests, page faults. One key more, `campanile`, says what was simulated.

use super::reporting::{Reporting, Unified};
use super::stat::{CLASSES, Moments, Stat};
use crate::kinds::storage::detail::{DIRECTIONS, Details, ReportGroup, SteadyDetail, ThreadDetail};
use crate::manifest::Manifest;
use crate::outcome::Outcome;
use crate::plan::Plan;
use serde::{Serialize, Serializer};

/// The version whose form this is.
const VERSION: &str = "fio-3.33";
/// fio's `eta` when nothing is left to do.
const NOTHING_LEFT: u64 = i32::MAX as u64;
/// EIO.
const INPUT_OUTPUT_ERROR: u64 = 5;

/// The document of one run; none if the run has no details.
pub fn document(plan: &Plan, outcome: &Outcome, manifest: Option<&Manifest>) -> Option<String> {
    let storage = outcome.storage()?;
    let details = storage.details.as_deref()?;
    // Simulated time, as if the ramp had begun at the epoch.
    let ended_ms = (plan.spans.ramp_ns + outcome.span_ns) / 1_000_000;
    let document = Document {
        version: VERSION,
        timestamp: ended_ms / 1000,
        timestamp_ms: ended_ms,
        time: calendar(ended_ms / 1000),
        global_options: details
            .groups
            .first()
            .map_or_else(Pairs::default, |first| Pairs(first.reporting.globals.iter().cloned().collect())),
        jobs: details.groups.iter().map(|group| job(details, group)).collect(),
        disk_util: disks(plan, details, outcome),
        campanile: Origin {
            version: env!("CARGO_PKG_VERSION"),
            experiment: &plan.name,
            platform: &plan.platform.name,
            delivery: &outcome.delivery,
            seed: outcome.seed,
            ramp_ns: plan.spans.ramp_ns,
            span_ns: outcome.span_ns,
            asked_runtime_ns: plan.spans.asked_runtime_ns,
            manifest,
        },
    };
    Some(serde_json::to_string_pretty(&document).expect("the document is plain data") + "\n")
}

#[derive(Serialize)]
struct Document<'a> {
    #[serde(rename = "fio version")]
    version: &'static str,
    timestamp: u64,
    timestamp_ms: u64,
    time: String,
    #[serde(rename = "global options")]
    global_options: Pairs<String>,
    jobs: Vec<Job>,
    disk_util: Vec<Disk>,
    campanile: Origin<'a>,
}

/// What was simulated.
#[derive(Serialize)]
struct Origin<'a> {
    version: &'static str,
    experiment: &'a str,
    platform: &'a str,
    delivery: &'a str,
    seed: u64,
    ramp_ns: u64,
    span_ns: u64,
    asked_runtime_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    manifest: Option<&'a Manifest>,
}

#[derive(Serialize)]
struct Job {
    jobname: String,
    groupid: u32,
    error: u64,
    eta: u64,
    elapsed: u64,
    #[serde(rename = "job options")]
    options: Pairs<String>,
    #[serde(flatten)]
    directions: Pairs<Direction>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sync: Option<Syncs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mixed: Option<Direction>,
    job_runtime: u64,
    usr_cpu: f64,
    sys_cpu: f64,
    ctx: u64,
    majf: u64,
    minf: u64,
    iodepth_level: Pairs<f64>,
    iodepth_submit: Pairs<f64>,
    iodepth_complete: Pairs<f64>,
    latency_ns: Pairs<f64>,
    latency_us: Pairs<f64>,
    latency_ms: Pairs<f64>,
    latency_depth: u64,
    latency_target: u64,
    latency_percentile: f64,
    latency_window: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    steadystate: Option<SteadyState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    desc: Option<String>,
}

#[derive(Serialize)]
struct Direction {
    io_bytes: u64,
    io_kbytes: u64,
    bw_bytes: u64,
    bw: u64,
    iops: f64,
    runtime: u64,
    total_ios: u64,
    short_ios: u64,
    drop_ios: u64,
    slat_ns: Latency,
    clat_ns: Latency,
    lat_ns: Latency,
    bw_min: u64,
    bw_max: u64,
    bw_agg: f64,
    bw_mean: f64,
    bw_dev: f64,
    bw_samples: u64,
    iops_min: u64,
    iops_max: u64,
    iops_mean: f64,
    iops_stddev: f64,
    iops_samples: u64,
}

/// `steadystate`; rates in bytes and I/Os a second.
#[derive(Serialize)]
struct SteadyState {
    ss: String,
    duration: u64,
    attained: u8,
    criterion: String,
    max_deviation: f64,
    slope: f64,
    data: SteadyData,
}

#[derive(Serialize)]
struct SteadyData {
    bw_mean: u64,
    iops_mean: u64,
    iops: Vec<u64>,
    bw: Vec<u64>,
}

#[derive(Serialize)]
struct Syncs {
    total_ios: u64,
    lat_ns: Latency,
}

#[derive(Default, Serialize)]
struct Latency {
    min: u64,
    max: u64,
    mean: f64,
    stddev: f64,
    #[serde(rename = "N")]
    count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    percentile: Option<Pairs<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bins: Option<Pairs<u32>>,
}

#[derive(Serialize)]
struct Disk {
    name: String,
    read_ios: u64,
    write_ios: u64,
    read_merges: u64,
    write_merges: u64,
    read_ticks: u64,
    write_ticks: u64,
    in_queue: u64,
    util: f64,
}

/// An object whose keys keep their order.
#[derive(Default)]
struct Pairs<T>(Vec<(String, T)>);

impl<T: Serialize> Serialize for Pairs<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

fn job(details: &Details, group: &ReportGroup) -> Job {
    let sum = details.of(group);
    let report = &group.reporting;
    let threads = group.threads.len() as u64;
    let unified = report.unified;
    let mixed = || direction(details, group, &sum.mixed(), 0);
    let apart = || {
        let of = |(number, name): (usize, &&str)| (name.to_string(), direction(details, group, &sum, number));
        DIRECTIONS.iter().enumerate().map(of).collect()
    };
    let runtime_ns = (sum.span_ns * threads).max(1) as f64;
    let total = sum.total_ios();
    let target = sum.target;
    let none = Stat::default();
    let (syncs, sync) = if counts_syncs(report) { (sum.ios[3], &sum.sync) } else { (0, &none) };
    Job {
        jobname: report.name.clone(),
        groupid: group.group,
        error: if sum.errors > 0 { INPUT_OUTPUT_ERROR } else { sum.error_number },
        eta: NOTHING_LEFT,
        elapsed: sum.span_ns / 1_000_000_000 + 1,
        options: Pairs(report.own.clone()),
        directions: Pairs(match unified {
            Unified::Mixed => vec![("mixed".into(), mixed())],
            Unified::Apart | Unified::Both => apart(),
        }),
        // fio leaves syncs out beside mixed directions.
        sync: (unified != Unified::Mixed).then(|| Syncs {
            total_ios: syncs,
            lat_ns: latency(sync, report.has_percentiles[1] || report.has_percentiles[2], group),
        }),
        mixed: (unified == Unified::Both).then(mixed),
        job_runtime: sum.span_ns * threads / 1_000_000,
        usr_cpu: six(sum.cpu_ns[0] as f64 * 100.0 / runtime_ns),
        sys_cpu: six(sum.cpu_ns[1] as f64 * 100.0 / runtime_ns),
        ctx: sum.waits,
        majf: 0,
        minf: 0,
        iodepth_level: shares(["1", "2", "4", "8", "16", "32", ">=64"], &sum.depths, total, 0.1),
        iodepth_submit: batches(&sum.submits),
        iodepth_complete: batches(&sum.completes),
        latency_ns: shares(CLASSES, &sum.classes[..10], total, 0.01),
        latency_us: shares(CLASSES, &sum.classes[10..20], total, 0.01),
        latency_ms: shares(
            CLASSES.map(|bound| bound.to_string()).into_iter().chain(["2000".into(), ">=2000".into()]),
            &sum.classes[20..],
            total,
            0.01,
        ),
        latency_depth: sum.depth.into(),
        latency_target: target.map_or(0, |target| target.latency_ns),
        latency_percentile: target.map_or(100.0, |target| target.percent),
        latency_window: target.map_or(0, |target| target.window_ns / 1_000),
        steadystate: sum.steady.as_ref().map(steady_state),
        desc: report.description.clone(),
    }
}

/// fio counts the syncs of `fsync` and of logs, and neither those of `fdatasync` nor of a job's end.
fn counts_syncs(report: &Reporting) -> bool {
    let mut options = report.globals.iter().chain(&report.own);
    options.any(|(name, value)| name == "read_iolog" || name == "fsync" && value != "0")
}

fn steady_state(detail: &SteadyDetail) -> SteadyState {
    let steady = &detail.steady;
    let (unit, limit) = if steady.is_share { ("%", steady.limit as f64 / 1e4) } else { ("", steady.limit as f64) };
    let what = if steady.bandwidth { "bw" } else { "iops" };
    let how = if steady.slope { "_slope" } else { "" };
    let mean = |values: &[u64]| values.iter().sum::<u64>() / values.len().max(1) as u64;
    SteadyState {
        ss: format!("{what}{how}:{limit:.6}{unit}"),
        duration: steady.window_ns / 1_000_000_000,
        attained: detail.attained.into(),
        criterion: format!("{:.6}{unit}", detail.criterion),
        max_deviation: six(detail.deviation),
        slope: six(detail.slope),
        data: SteadyData {
            bw_mean: mean(&detail.bandwidth),
            iops_mean: mean(&detail.iops),
            iops: detail.iops.clone(),
            bw: detail.bandwidth.clone(),
        },
    }
}

fn direction(details: &Details, group: &ReportGroup, sum: &ThreadDetail, number: usize) -> Direction {
    let (ios, bytes) = (sum.ios[number], sum.bytes[number]);
    let per_second = |count: u64| count as f64 * 1e9 / sum.span_ns.max(1) as f64;
    let bw_bytes = per_second(bytes) as u64;
    let [bw, iops] = [0, 1].map(|which| &sum.rates[which][number]);
    let has = group.reporting.has_percentiles;
    let off = group.reporting.is_disabled;
    let kept = |kind: usize, stat: &Stat| if off[kind] { Latency::default() } else { latency(stat, has[kind], group) };
    Direction {
        io_bytes: bytes,
        io_kbytes: bytes >> 10,
        bw_bytes,
        bw: bw_bytes / 1024,
        iops: six(per_second(ios)),
        runtime: if ios > 0 { sum.span_ns.div_ceil(1_000_000) } else { 0 },
        total_ios: ios,
        short_ios: 0,
        drop_ios: 0,
        slat_ns: kept(0, &sum.slat[number]),
        clat_ns: kept(1, &sum.clat[number]),
        lat_ns: kept(2, &sum.lat[number]),
        bw_min: bw.min,
        bw_max: bw.max,
        bw_agg: six(share_of_group(details, group, number, bw)),
        bw_mean: six(bw.mean),
        bw_dev: six(bw.deviation()),
        bw_samples: bw.count,
        iops_min: iops.min,
        iops_max: iops.max,
        iops_mean: six(iops.mean),
        iops_stddev: six(iops.deviation()),
        iops_samples: iops.count,
    }
}

/// The mean bandwidth in percent of that of all jobs with the same group number, at most 100.
fn share_of_group(details: &Details, group: &ReportGroup, number: usize, bw: &Moments) -> f64 {
    if bw.count == 0 {
        return 0.0;
    }
    let same = details.groups.iter().filter(|other| other.group == group.group);
    let threads = same.flat_map(|other| &details.threads[other.threads.clone()]);
    let (bytes, span_ns) =
        threads.fold((0, 1), |(bytes, span_ns), thread| (bytes + thread.bytes[number], span_ns.max(thread.span_ns)));
    let all = bytes as f64 * 1e9 / span_ns as f64 / 1024.0;
    if all > 1.0 { (bw.mean * 100.0 / all).min(100.0) } else { 100.0 }
}

fn latency(stat: &Stat, has_percentiles: bool, group: &ReportGroup) -> Latency {
    let moments = &stat.moments;
    let list = group.reporting.percentiles();
    let values = stat.percentiles(list).filter(|_| has_percentiles);
    let bins = values.is_some().then(|| Pairs(stat.bins().map(|(ns, count)| (ns.to_string(), count)).collect()));
    let row = |values: Vec<u64>| list.iter().map(|percent| format!("{percent:.6}")).zip(values).collect();
    Latency {
        min: moments.min,
        max: moments.max,
        mean: six(moments.mean),
        stddev: six(moments.deviation()),
        count: moments.count,
        percentile: values.map(|values| Pairs(row(values))),
        bins,
    }
}

/// Counts in percent of `total`. What is there at all is at least `least` percent.
fn shares<N: ToString>(names: impl IntoIterator<Item = N>, counts: &[u64], total: u64, least: f64) -> Pairs<f64> {
    let share = |count: u64| match count {
        0 => 0.0,
        _ => six((count as f64 / total.max(1) as f64 * 100.0).max(least)),
    };
    Pairs(names.into_iter().map(|name| name.to_string()).zip(counts.iter().map(|&count| share(count))).collect())
}

fn batches(counts: &[u64; 7]) -> Pairs<f64> {
    shares(["0", "4", "8", "16", "32", "64", ">=64"], counts, counts.iter().sum(), 0.1)
}

/// The drives, from what their jobs saw: ticks are latencies summed, in ms; a drive is in use while it has I/Os.
fn disks(plan: &Plan, details: &Details, outcome: &Outcome) -> Vec<Disk> {
    let Some(storage) = plan.storage() else { return Vec::new() };
    let disk = |(index, drive): (usize, &crate::kinds::storage::DrivePlan)| {
        let sums: Vec<_> = details.threads.iter().filter_map(|thread| thread.drives.get(&(index as u32))).collect();
        let ios = |direction: usize| sums.iter().map(|sum| sum.ios[direction]).sum::<u64>();
        let ticks = |direction: usize| sums.iter().map(|sum| sum.ns[direction]).sum::<u64>() / 1_000_000;
        let in_queue_ns: u64 = sums.iter().flat_map(|sum| sum.ns).sum();
        Disk {
            name: drive.name.rsplit('/').next().unwrap_or(&drive.name).to_owned(),
            read_ios: ios(0),
            write_ios: ios(1),
            read_merges: 0,
            write_merges: 0,
            read_ticks: ticks(0),
            write_ticks: ticks(1),
            in_queue: in_queue_ns / 1_000_000,
            util: six((in_queue_ns as f64 * 100.0 / outcome.span_ns.max(1) as f64).min(100.0)),
        }
    };
    storage.drives.iter().enumerate().map(disk).collect()
}

/// Six decimals, as `%f` has.
fn six(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

/// `Thu Jan  1 00:00:10 1970`: the simulated time as a date. Simulated runs end on the first day.
fn calendar(seconds: u64) -> String {
    let (day, second) = (1 + seconds / 86_400, seconds % 86_400);
    let weekday = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"][(seconds / 86_400 % 7) as usize];
    format!("{weekday} Jan {day:>2} {:02}:{:02}:{:02} 1970", second / 3600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_is_that_of_ctime() {
        assert_eq!(calendar(10), "Thu Jan  1 00:00:10 1970");
        assert_eq!(calendar(86_400 + 3_661), "Fri Jan  2 01:01:01 1970");
    }

    #[test]
    fn shares_are_rounded_up_to_what_fio_shows() {
        let pairs = shares(["a", "b", "c"], &[1, 0, 99_999], 100_000, 0.01);
        assert_eq!(pairs.0, [("a".into(), 0.01), ("b".into(), 0.0), ("c".into(), 99.999)]);
    }
}

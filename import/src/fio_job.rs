//! A job of fio's JSON, in the names and units of each version.

use crate::fio_json::{Direction, FioJob};
use serde_json::{Map, Value};

/// Calls of fsync, fdatasync or sync_file_range. fio counts and times them apart from the I/Os.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Syncs {
    /// Their number.
    pub count: u64,
    /// Mean time of one.
    pub lat_ns: Option<f64>,
}

pub(crate) fn read_job(job: &Map<String, Value>) -> FioJob {
    let direction = |key: &str| job.get(key).and_then(Value::as_object).map(read_direction).unwrap_or_default();
    // `unified_rw_reporting` sums all directions under this name.
    let mut directions = [direction("read"), direction("write"), direction("trim")];
    let is_sum = directions.iter().all(|direction| direction.ios == 0);
    if is_sum {
        directions[0] = direction("mixed");
    }
    // `job_runtime` is the sum over all threads of a group.
    let longest_ms = directions.iter().map(|direction| direction.runtime_ms).fold(0.0, f64::max);
    FioJob {
        name: job.get("jobname").map(text_of).unwrap_or_default(),
        host: job.get("hostname").map(text_of).unwrap_or_default(),
        group: job.get("groupid").and_then(Value::as_i64).unwrap_or(0),
        start_ms: number(job, "job_start").filter(|start_ms| *start_ms > 0.0),
        error: job.get("error").and_then(Value::as_i64).unwrap_or(0),
        options: options(job.get("job options")),
        directions,
        syncs: job.get("sync").and_then(Value::as_object).map(read_syncs).unwrap_or_default(),
        is_sum,
        user_percent: number(job, "usr_cpu"),
        system_percent: number(job, "sys_cpu"),
        threads: number(job, "job_runtime").filter(|_| longest_ms > 0.0).map(|all_ms| all_ms / longest_ms),
    }
}

fn read_syncs(syncs: &Map<String, Value>) -> Syncs {
    // Those of a job have the form of a direction, of which most is missing.
    let Direction { ios: count, lat_ns, .. } = read_direction(syncs);
    Syncs { count, lat_ns: lat_ns.filter(|_| count > 0) }
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
        clat_ns: clat_ns.or(rest_of(lat_ns, slat_ns)),
        lat_ns,
        percentiles_ns: if clat.is_empty() { lat } else { clat },
    }
}

/// The completion latency of a total, where `disable_clat` left it out. Synchronous engines, and some versions, have the total
/// alone.
pub(crate) fn rest_of(lat_ns: Option<f64>, slat_ns: Option<f64>) -> Option<f64> {
    lat_ns.map(|lat_ns| slat_ns.map(|slat_ns| lat_ns - slat_ns).filter(|rest| *rest > 0.0).unwrap_or(lat_ns))
}

/// A number that is neither negative nor beyond all that a drive does; some versions print numbers as strings.
fn number(object: &Map<String, Value>, key: &str) -> Option<f64> {
    let value = object.get(key)?;
    let number = value.as_f64().or_else(|| value.as_str()?.trim().trim_end_matches('%').parse().ok())?;
    (0.0..1e18).contains(&number).then_some(number)
}

pub(crate) fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

pub(crate) fn options(value: Option<&Value>) -> Vec<(String, String)> {
    let object = value.and_then(Value::as_object);
    object.into_iter().flatten().map(|(name, value)| (name.clone(), text_of(value))).collect()
}

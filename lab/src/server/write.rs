//! The files of an imported server: a platform, its rows, and a scenario with a job file for each measurement.
//!
//! ```text
//! NAME/NAME.toml          the platform
//! NAME/rows.csv           the measured values, in the form of scenarios/published.csv
//! NAME/one-drive-full.toml, jobs/one-drive-full.fio
//! ```

use super::DRIVE;
use super::cpu::has_other_work;
use super::facts::Fact;
use super::gather::Measurement;
use crate::platform::{Constant, Platform, SCHEMA, Spec, Unit};
use std::fmt::Write as _;
use std::path::Path;

/// A value for a constant of the platform file.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Own {
    /// In the base of its unit.
    pub value: f64,
    /// Why.
    pub reason: String,
    /// A fit may vary it.
    pub fit: bool,
    /// The standard error of the fit, as a share of the value.
    pub uncertainty: Option<f64>,
    /// Factors on the value at points that the measurements leave open.
    pub region: Vec<f64>,
}

/// The value for a constant of the platform file, by its key.
pub type Given<'a> = &'a dyn Fn(&str) -> Option<Own>;

/// The platform file. `given` has the constants that the server states or decides; all others are `base`'s. `misses` are
/// the measurements that it does not give back.
pub fn platform(name: &str, base: &Platform, misses: &[String], given: Given<'_>) -> String {
    let mut text = format!("# A server that was measured. What it does not tell is borrowed from {}.\n", base.name);
    let _ = writeln!(text, "schema = {SCHEMA}\nabout = \"{name}, measured\"");
    if !misses.is_empty() {
        // Ids of rows are letters, digits, `-` and `/`: nothing in them needs an escape.
        let _ = writeln!(text, "misses = [\"{}\"]", misses.join("\", \""));
    }
    group(&mut text, "cpu", base, base.cpu.iter(), given);
    group(&mut text, "fabric", base, base.fabric.iter(), given);
    if let Some((_, drive)) = base.drives.first() {
        group(&mut text, &format!("drive.{DRIVE}"), base, drive.iter(), given);
    }
    text
}

/// The platform's name: its folder's, without what ends a field of `rows.csv` or a string of TOML.
pub(super) fn name_of(folder: &Path) -> String {
    // `.` and `..` have no name of their own.
    let whole = if folder.file_name().is_none() { folder.canonicalize().ok() } else { None };
    let whole = whole.as_deref().unwrap_or(folder);
    let name = whole.file_name().map_or("server".into(), |name| name.to_string_lossy().into_owned());
    let is_hostile = |c: char| matches!(c, '"' | '\'' | '\\' | ',' | ';') || c.is_control();
    name.chars().map(|c| if is_hostile(c) { '-' } else { c }).collect()
}

/// A constant with the base's value.
pub(super) fn borrowed(base: &Platform, value: f64) -> Own {
    Own { value, reason: format!("borrowed from {}", base.name), ..Own::default() }
}

fn group<'a>(
    text: &mut String,
    name: &str,
    base: &Platform,
    constants: impl Iterator<Item = (&'static Spec, &'a Constant)>,
    given: Given<'_>,
) {
    let _ = writeln!(text, "\n[{name}]");
    for (spec, constant) in constants {
        let own = given(&format!("{name}.{}", spec.name));
        let mut own = own.unwrap_or_else(|| borrowed(base, constant.value));
        own.value = own.value.clamp(spec.min, spec.max);
        if spec.unit == Unit::Count {
            own.value = own.value.round();
        }
        let _ = writeln!(text, "{} = {}", spec.name, constant_text(spec.unit, &own));
    }
}

/// `{ value = 53.6, unit = "ns", fit = true, reason = "…" }`
fn constant_text(unit: Unit, own: &Own) -> String {
    let shown = unit.format(own.value);
    let is_hostile = |c: char| matches!(c, '"' | '\\') || c.is_control();
    let reason: String = own.reason.chars().map(|c| if is_hostile(c) { '\'' } else { c }).collect();
    let value = match shown.split_once(' ') {
        Some((number, unit)) => format!("value = {number}, unit = \"{unit}\""),
        None if unit == Unit::Resend => format!("value = \"{shown}\""),
        None => format!("value = {shown}"),
    };
    let fit = if own.fit { "fit = true, " } else { "" };
    let uncertainty = own.uncertainty.filter(|share| share.is_finite());
    let uncertainty =
        uncertainty.map(|share| format!("uncertainty = {:.4}, ", share.clamp(0.0, 1.0))).unwrap_or_default();
    let factors: Vec<String> = own.region.iter().map(|factor| format!("{factor:.4}")).collect();
    let region = if factors.is_empty() { String::new() } else { format!("region = [{}], ", factors.join(", ")) };
    format!("{{ {value}, {fit}{uncertainty}{region}reason = \"{reason}\" }}")
}

/// A thread's turn on a CPU that several share, in us.
const TURN_US: f64 = 4_000.0;
/// Turns of the I/Os in flight until rates and CPU times no longer drift: CPUs that begin in step sleep more often.
const SETTLED_TURNS: f64 = 20.0;

/// Rounds of such turns before each thread has I/Os that waited for its turn.
const ROUNDS_FIRST: f64 = 1.5;

/// The ramp and the span in which a measurement is simulated: long enough for some thousand I/Os and for a turn of each
/// thread on a CPU, short enough for a fit.
pub fn spans_us(measurement: &Measurement) -> (u64, u64) {
    let iops = measurement.fio.iops().max(1.0);
    let crowd = measurement.threads_per_cpu();
    let round = if crowd > 1 { f64::from(crowd) * TURN_US } else { 0.0 };
    let measured = (4_000.0 / iops * 1e6).clamp(2_000.0, MEASURED_MAX_US);
    // Few I/Os have few events, and a rate of a handful is known to a handful.
    let measured = measured.max((IOS_MIN / iops * 1e6).min(SLOW_MAX_US));
    let clat_us = measurement.fio.clat_ns().unwrap_or(0.0) / 1000.0;
    let settled = (clat_us * 4.0).max((clat_us * SETTLED_TURNS).min(SETTLED_MAX_US));
    let ramp = settled.max(ROUNDS_FIRST * round).clamp(1_000.0, RAMP_MAX_US);
    (ramp as u64, measured.max(round.min(MEASURED_MAX_US)) as u64)
}

/// The longest mean latency of I/Os that are simulated, in ns: half of the longest time of a drive's media.
pub(super) const LATENCY_MAX_NS: f64 = 500e6;

/// The longest ramp: four such latencies. A slow drive has few events in it.
const RAMP_MAX_US: f64 = 4.0 * LATENCY_MAX_NS / 1000.0;

/// The longest span behind it.
const MEASURED_MAX_US: f64 = 4e6;

/// Least I/Os of a span, and the longest span that they may take.
const IOS_MIN: f64 = 50.0;
/// See [`IOS_MIN`]. A scenario has no longer one.
const SLOW_MAX_US: f64 = 10e6;
/// Most seeds of a span with fewer I/Os.
const SEEDS_MAX: f64 = 8.0;

/// The seeds with which a measurement is simulated: several where the span has few I/Os.
fn seeds(measurement: &Measurement) -> u64 {
    let ios = measurement.fio.iops().max(1.0) * spans_us(measurement).1 as f64 / 1e6;
    if ios < IOS_MIN { (2.0 * IOS_MIN / ios).ceil().min(SEEDS_MAX) as u64 } else { 1 }
}

/// Most of a ramp that is for CPU times to settle, in us.
const SETTLED_MAX_US: f64 = 8_000.0;

/// The scenario of a measurement.
pub fn scenario(platform: &str, measurement: &Measurement, cpus: Option<u32>) -> String {
    let (ramp, duration) = spans_us(measurement);
    let cpus = cpus.map(|cpus| format!("cpus = {cpus}\n")).unwrap_or_default();
    format!(
        "about = \"measured: {name}\"\nplatform = \"{platform}.toml\"\nworkload = \"jobs/{name}.fio\"\n\
         deliveries = [\"{delivery}\"]\nseeds = {seeds}\n{cpus}ramp = \"{ramp} us\"\nduration = \"{duration} us\"\n\n\
         [drives]\nmodel = \"{DRIVE}\"\n",
        name = measurement.name,
        seeds = seeds(measurement),
        delivery = measurement.delivery(),
    )
}

/// A measured value: quantity as published tables name it, value, unit.
pub type Value = (&'static str, f64, &'static str);

/// The values of a measurement that a scenario has too.
pub fn values(measurement: &Measurement, cpus: Option<u32>) -> Vec<Value> {
    let mut values = vec![("iops", measurement.fio.iops(), "1/s")];
    // The mean latency of threads that take turns on a CPU needs many turns to settle, more than a fit can run. Their rate
    // tells as much: as many I/Os as fit are always in flight.
    let takes_turns = measurement.threads_per_cpu() > 1;
    let clats = if takes_turns { Vec::new() } else { clats(measurement) };
    values.extend(clats.into_iter().map(|(name, clat_ns)| (name, clat_ns / 1000.0, "us")));
    // A kernel counts the interrupts that it handles.
    let interrupts = measurement.interrupts.as_ref().filter(|_| measurement.delivery() != "polled");
    values.extend(interrupts.and_then(|found| found.per_second).map(|rate| ("msi", rate, "1/s")));
    // As the published tables count CPU time: seconds of all CPUs in 33 s. A kernel that samples at its tick cannot tell
    // small shares.
    if let (Some([user, system, irq, _]), Some(cpus)) = (measurement.cpu, measurement.cpus_of_shares(cpus))
        && !has_other_work(measurement, cpus)
    {
        let seconds = |percent: f64| percent / 100.0 * f64::from(cpus) * 33.0;
        for (quantity, percent) in [("user_time", user), ("system_time", system + irq)] {
            if percent >= SHARE_MIN {
                values.push((quantity, seconds(percent), "s"));
            }
        }
    }
    values
}

/// The mean latencies, in ns. Where reads, writes and trims are mixed, each tells of its own part of the drive.
fn clats(measurement: &Measurement) -> Vec<(&'static str, f64)> {
    let scarce = scarce(measurement);
    let apart = ["read_clat", "write_clat", "trim_clat"].into_iter().enumerate();
    let apart: Vec<_> =
        apart.filter_map(|(direction, name)| Some((direction, name, measurement.fio.clat_ns_of(direction)?))).collect();
    if apart.len() < 2 || measurement.is_merged() {
        return measurement.fio.clat_ns().map(|clat| ("clat", clat)).into_iter().collect();
    }
    let is_kept = |at: usize| scarce.iter().all(|(direction, _)| *direction != at);
    apart.into_iter().filter(|(at, ..)| is_kept(*at)).map(|(_, name, clat)| (name, clat)).collect()
}

/// Least I/Os whose mean latency is a row: with fewer, chance moves it by more than the noise.
const MEAN_OF_MIN: u64 = 100;

/// Reads (0), writes (1) or trims (2), and their number, where they are so few beside the others that their mean latency
/// tells nothing.
pub(super) fn scarce(measurement: &Measurement) -> Vec<(usize, u64)> {
    let ios = [0, 1, 2].map(|direction| measurement.fio.ios_of(direction));
    let most = ios.into_iter().max().unwrap_or(0);
    let is_scarce = |(_, ios): &(usize, u64)| *ios < most && (1..MEAN_OF_MIN).contains(ios);
    ios.into_iter().enumerate().filter(is_scarce).collect()
}

/// Least share of all CPUs' time that is a row, in per cent.
const SHARE_MIN: f64 = 0.5;

/// The rows file: its header, and a line for each value. `is_fitted` tells of each measurement whether a fit uses it.
pub fn rows(name: &str, measurements: &[Measurement], is_fitted: &[bool], cpus: Option<u32>) -> String {
    let mut text = "id,platform,scenario,delivery,quantity,value,unit,use,files,source\n".to_owned();
    for (measurement, is_fitted) in measurements.iter().zip(is_fitted) {
        for (quantity, value, unit) in values(measurement, cpus) {
            // Rates and CPU times have the syncs in them; a write's own latency has not.
            let is_told = quantity.ends_with("clat") || !measurement.syncs.contradict();
            let usage = if *is_fitted && is_told { "fit" } else { "report" };
            let id = format!("{}/{quantity}", measurement.name);
            let delivery = measurement.delivery();
            let file = format!("{}.toml", measurement.name);
            let _ = writeln!(
                text,
                "{id},{name},{0},{delivery},{quantity},{value:.4},{unit},{usage},{file},measured",
                measurement.name
            );
        }
    }
    text
}

/// The rows file `table` without the row `id`.
pub(super) fn without(table: &str, id: &str) -> String {
    let is_kept = |line: &&str| line.split(',').next() != Some(id);
    table.lines().filter(is_kept).map(|line| format!("{line}\n")).collect()
}

/// A fact's value under the key that the platform file uses.
pub fn fact_key(fact: &Fact) -> String {
    match fact.key.strip_prefix("drive.") {
        Some(name) => format!("drive.{DRIVE}.{name}"),
        None => fact.key.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::gather::Parts;
    use super::*;
    use crate::input::Place;
    use crate::setting::Setting;

    #[test]
    fn a_platform_that_is_written_is_read_again() {
        for name in ["emr", "spr", "optane", "azure"] {
            let base = Platform::load(&Setting::new(Place::option("test"), "", name)).unwrap();
            let given = |key: &str| {
                let reason = "a \"quote\"".to_owned();
                let own = Own { value: 1.2345e9, reason, fit: true, uncertainty: Some(0.03), region: vec![0.9, 1.125] };
                (key == "drive.measured.link").then_some(own)
            };
            let misses = ["a/iops -75.6 %".to_owned(), "and 2 more".to_owned()];
            let text = platform("mine", &base, &misses, &given);
            let read = Platform::read("mine", "mine.toml", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            assert_eq!(read.misses, misses);
            let drive = read.drive(DRIVE).unwrap();
            assert!(
                (drive.link.value / 1.2345e9 - 1.0).abs() < 1e-6
                    && drive.link.reason == "a 'quote'"
                    && drive.link.fit
                    && drive.link.uncertainty == Some(0.03)
                    && drive.link.region == [0.9, 1.125]
            );
            assert!((read.cpu.irq_entry.value - base.cpu.irq_entry.value).abs() < 1e-6);
            assert_eq!(read.cpu.irq_entry.reason, format!("borrowed from {name}"));
            assert_eq!(drive.resend.value, base.drives[0].1.resend.value);
        }
    }

    #[test]
    fn a_platforms_name_ends_no_field_and_no_string() {
        for (folder, expected) in [("a,b", "a-b"), ("q\"x", "q-x"), ("a b", "a b"), ("x/.", "x"), ("a\\b;c", "a-b-c")] {
            assert_eq!(name_of(Path::new(folder)), expected);
        }
        assert!(!name_of(Path::new(".")).is_empty());
    }

    #[test]
    fn a_slow_drive_is_simulated_for_longer() {
        let of = |iops: u32, clat_ns: u64| {
            let fio = format!(
                r#"{{"jobs": [{{"jobname": "a", "read": {{"iops": {iops}, "total_ios": 900, "runtime": 9000000, "clat_ns": {{"mean": {clat_ns}, "max": 9}}}}}}]}}"#
            );
            let parts = Parts {
                fio: fio.as_bytes(),
                job: Some(b"[a]\nioengine=libaio\nfilename=/dev/sda\niodepth=1024\n"),
                ..Parts::default()
            };
            let measurement = Measurement::read("x", &parts).unwrap().0;
            assert!(scenario("mine", &measurement, None).contains(&format!("seeds = {}\n", seeds(&measurement))));
            (spans_us(&measurement), seeds(&measurement))
        };
        assert_eq!(of(200, 300_000_000), ((1_200_000, 4_000_000), 1));
        assert_eq!(of(200, 5_000_000), ((20_000, 4_000_000), 1));
        assert_eq!(of(2, 400_000_000), ((1_600_000, 10_000_000), 5));
        assert_eq!(of(100_000, 90_000), ((1_800, 40_000), 1));
    }

    #[test]
    fn a_row_that_is_left_out_is_in_no_file() {
        let table = "id,platform\na/iops,x\na/clat,x\n";
        assert_eq!(without(table, "a/iops"), "id,platform\na/clat,x\n");
    }

    #[test]
    fn a_mean_of_few_ios_beside_others_is_no_row() {
        let of = |reads: u64, writes: u64| {
            let direction = |ios: u64| {
                format!(
                    r#"{{"iops": {ios}, "total_ios": {ios}, "bw_bytes": {}, "clat_ns": {{"mean": 5000, "max": 9}}}}"#,
                    ios * 4096
                )
            };
            let (read, write) = (direction(reads), direction(writes));
            let fio = format!(r#"{{"jobs": [{{"jobname": "a", "read": {read}, "write": {write}}}]}}"#);
            let job = b"[a]\nfilename=/dev/nvme0n1\nrw=randrw\ncpus_allowed=0\n";
            let parts = Parts { fio: fio.as_bytes(), job: Some(job), ..Parts::default() };
            let (measurement, _) = Measurement::read("x", &parts).unwrap();
            let quantities =
                values(&measurement, Some(4)).into_iter().map(|(quantity, ..)| quantity).collect::<Vec<_>>();
            (quantities, scarce(&measurement))
        };
        assert_eq!(of(150_000, 9), (vec!["iops", "read_clat"], vec![(1, 9)]));
        assert_eq!(of(99, 100), (vec!["iops", "write_clat"], vec![(0, 99)]));
        assert_eq!(of(50, 9), (vec!["iops", "read_clat"], vec![(1, 9)]), "the larger number stays: nothing else tells");
        assert_eq!(of(100, 9000), (vec!["iops", "read_clat", "write_clat"], vec![]));
        assert_eq!(of(9, 9), (vec!["iops", "read_clat", "write_clat"], vec![]));
        assert_eq!(of(9, 0), (vec!["iops", "clat"], vec![]), "none beside them");
    }

    #[test]
    fn each_direction_has_a_latency_of_its_own() {
        let of = |job: &str, directions: &[&str]| {
            let direction = |name: &&str| {
                format!(
                    r#""{name}": {{"iops": 900, "total_ios": 900, "bw_bytes": 3686400, "clat_ns": {{"mean": 5000, "max": 9}}}}"#
                )
            };
            let directions: Vec<String> = directions.iter().map(direction).collect();
            let fio = format!(r#"{{"jobs": [{{"jobname": "a", {}}}]}}"#, directions.join(", "));
            let job = format!("[global]\nfilename=/dev/nvme0n1\ncpus_allowed=0-1\n{job}");
            let parts = Parts { fio: fio.as_bytes(), job: Some(job.as_bytes()), ..Parts::default() };
            let (measurement, _) = Measurement::read("x", &parts).unwrap();
            values(&measurement, Some(4)).into_iter().map(|(quantity, ..)| quantity).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of("[a]\nrw=trimwrite\n", &["write", "trim"]), "iops write_clat trim_clat");
        assert_eq!(of("[a]\nrw=randread\n[b]\nrw=randtrim\n", &["read", "trim"]), "iops read_clat trim_clat");
        assert_eq!(of("[a]\nrw=randtrim\n", &["trim"]), "iops clat");
        assert_eq!(of("[a]\nrw=randrw\n", &["mixed"]), "iops clat");
    }

    #[test]
    fn latencies_of_threads_that_take_turns_are_no_rows() {
        let fio = br#"{"jobs": [{"jobname": "a", "read": {"iops": 1000, "total_ios": 9000, "clat_ns": {"mean": 5000, "max": 9}}}]}"#;
        let quantities = |cpus: &str| {
            let job = format!("[a]\nfilename=/dev/nvme0n1\nnumjobs=2\ngroup_reporting\ncpus_allowed={cpus}\n");
            let parts = Parts { fio, job: Some(job.as_bytes()), ..Parts::default() };
            let (measurement, _) = Measurement::read("x", &parts).unwrap();
            values(&measurement, Some(4)).into_iter().map(|(quantity, ..)| quantity).collect::<Vec<_>>()
        };
        assert_eq!((quantities("0"), quantities("0-1")), (vec!["iops"], vec!["iops", "clat"]));
    }
}

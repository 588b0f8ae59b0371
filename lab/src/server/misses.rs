//! What a fitted platform does not give back of the measurements that it was fitted to, and what may be the reason.

use super::fit::NOISE;
use super::gather::Measurement;
use crate::fio::{FioJob, drive_of};
use crate::published::Row;

/// A row that the platform misses by more than the data's noise.
#[derive(Clone, PartialEq, Debug)]
pub struct Miss {
    /// Its id: `one-drive-full/iops`.
    pub row: String,
    /// The relative error.
    pub error: f64,
    /// What may be why: what the measurement has that the model lacks, or what such an error comes of.
    pub reasons: Vec<&'static str>,
}

/// Most rows that a platform's file names.
const NAMED_MAX: usize = 8;

/// The rows that are missed, the worst first.
pub(super) fn of(rows: &[Row], errors: &[f64], measurements: &[Measurement]) -> Vec<Miss> {
    let missed = || rows.iter().zip(errors).filter(|(_, error)| error.is_nan() || error.abs() > NOISE);
    let of = |row: &Row, error: f64| {
        let (name, quantity) = row.id.rsplit_once('/').unwrap_or((&row.id, ""));
        match quantity {
            "msi" if error > 0.0 => vec!["perhaps the drive or its controller coalesces its interrupts"],
            "msi" => vec!["perhaps others use the interrupts of the drives too"],
            "user_time" | "system_time" if error > 0.0 => vec!["perhaps faster CPUs than the base's"],
            "user_time" | "system_time" => vec!["perhaps other work on the CPUs"],
            _ => {
                let of_model = measurements.iter().find(|one| one.name == name).map(reasons).unwrap_or_default();
                if !of_model.is_empty() {
                    return of_model;
                }
                // A limit makes the rate less than the latencies say, which may then be missed on their other side.
                let rate =
                    missed().find(|(row, _)| row.id.strip_suffix("/iops") == Some(name)).map(|(_, error)| *error);
                let is_faster = rate.map_or(error > 0.0, |error| error < 0.0);
                vec![if is_faster { FASTER } else { LIMITED }]
            }
        }
    };
    let mut found: Vec<Miss> =
        missed().map(|(row, &error)| Miss { row: row.id.clone(), error, reasons: of(row, error) }).collect();
    found.sort_by(|a, b| b.error.abs().total_cmp(&a.error.abs()));
    found
}

/// Why a server may be slower than the platform, if its jobs' options do not tell.
const LIMITED: &str = "perhaps a limit that is not modelled: a virtual disk, a throttle, other work on the CPUs";
/// Why it may be faster.
const FASTER: &str = "the server was faster than the other rows allow: perhaps a cache, or a drive in another state";

/// The rows as a platform's file names them: `one-drive-full/iops -75.6 %`.
pub(super) fn named(misses: &[Miss]) -> Vec<String> {
    let text = |miss: &Miss| format!("{} {:+.1} %", miss.row, miss.error * 100.0);
    let mut named: Vec<String> = misses.iter().take(NAMED_MAX).map(text).collect();
    if misses.len() > NAMED_MAX {
        named.push(format!("and {} more", misses.len() - NAMED_MAX));
    }
    named
}

/// What a measurement has that the model lacks.
pub(super) fn reasons(measurement: &Measurement) -> Vec<&'static str> {
    let sections = &measurement.sections;
    let files = || sections.iter().flat_map(|section| section.file_names(0));
    let is_buffered = |section: &FioJob| !section.says_direct || section.load.syncs.buffered;
    let [read, write, trim] =
        [0, 1, 2].map(|at| measurement.fio.jobs.iter().map(|job| job.directions[at].iops).sum::<f64>());
    let found = [
        (files().any(|file| drive_of(&file).is_none()), "it used files: a file system and its cache are not modelled"),
        (sections.iter().any(is_buffered), "without direct=1 the page cache answers"),
        (
            files().filter_map(|file| drive_of(&file)).any(|drive| !drive.starts_with("/dev/nvme")),
            "a device that is not /dev/nvme…: a bus, a RAID or a virtual disk is not modelled",
        ),
        (read > 0.0 && write > 0.0, "it mixed reads and writes: reads that wait behind writes are not modelled"),
        (
            measurement.is_merged(),
            "fio printed several directions as one (unified_rw_reporting=1): the share and the latency of each are unknown",
        ),
        (trim > 0.0, "it trimmed: one time for every trim is modelled, whatever its size and what it frees"),
        (
            measurement.syncs.contradict(),
            "its syncs took time, and those of a drive without a volatile cache take none here",
        ),
    ];
    found.into_iter().filter(|(holds, _)| *holds).map(|(_, reason)| reason).collect()
}

#[cfg(test)]
mod tests {
    use super::super::gather::Parts;
    use super::*;
    use crate::published;

    fn measurement(options: &str, write: u32) -> Measurement {
        let fio = format!(
            r#"{{"jobs": [{{"jobname": "a", "read": {{"iops": 100, "total_ios": 100, "clat_ns": {{"mean": 5000, "max": 9}}}}, "write": {{"iops": {write}}}}}]}}"#
        );
        let job = format!("[a]\niodepth=4\n{options}");
        let parts = Parts { fio: fio.as_bytes(), job: Some(job.as_bytes()), ..Parts::default() };
        Measurement::read("x", &parts).unwrap().0
    }

    /// The third words of the reasons.
    fn words(measurement: &Measurement) -> Vec<&'static str> {
        let word = |reason: &'static str| reason.split([' ', ':']).filter(|word| !word.is_empty()).nth(2);
        reasons(measurement).into_iter().filter_map(word).collect()
    }

    /// Of a run whose I/Os fio printed under this name.
    fn reasons_of_one(options: &str, direction: &str) -> Vec<&'static str> {
        let fio = format!(
            r#"{{"jobs": [{{"jobname": "a", "{direction}": {{"iops": 100, "total_ios": 100, "clat_ns": {{"mean": 5000, "max": 9}}}}}}]}}"#
        );
        let job = format!("[a]\ndirect=1\nfilename=/dev/nvme0n1\n{options}\n");
        let parts = Parts { fio: fio.as_bytes(), job: Some(job.as_bytes()), ..Parts::default() };
        words(&Measurement::read("x", &parts).unwrap().0)
    }

    #[test]
    fn what_the_options_tell_is_named() {
        let of = |options: &str, write: u32| words(&measurement(options, write));
        assert_eq!(of("direct=1\nrw=randread\nfilename=/dev/nvme0n1\n", 0), Vec::<&str>::new());
        assert_eq!(of("direct=1\nrw=randrw\nfilename=/dev/nvme0n1\n", 5), ["reads"]);
        assert_eq!(reasons_of_one("rw=randrw", "mixed"), ["several"]);
        assert_eq!(reasons_of_one("rw=randread", "mixed"), [""; 0], "of one direction, fio has no sum");
        assert_eq!(reasons_of_one("rw=randtrim", "trim"), ["one"]);
        assert_eq!(of("rw=randread\ndirectory=/mnt\nsize=1g\n", 0), ["files", "the"]);
        assert_eq!(of("direct=1\nrw=randread\nfilename=/dev/sda\n", 0), ["that"]);
    }

    #[test]
    fn rows_beyond_the_noise_are_misses() {
        let header = "id,platform,scenario,delivery,quantity,value,unit,use,files,source\n";
        let line = |quantity: &str, unit: &str| {
            format!("x/{quantity},m,x,remapped,{quantity},100,{unit},fit,x.toml,measured\n")
        };
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(
            file.path(),
            [header, &line("iops", "1/s"), &line("clat", "us"), &line("user_time", "s")].concat(),
        )
        .unwrap();
        let rows = published::read(&file.path().to_string_lossy()).unwrap();
        let found = of(&rows, &[0.031, -0.029, -0.5], &[measurement("direct=1\nrw=read\nfilename=/dev/sda\n", 0)]);
        let said: Vec<(&str, usize)> = found.iter().map(|miss| (miss.row.as_str(), miss.reasons.len())).collect();
        assert_eq!(said, [("x/user_time", 1), ("x/iops", 1)]);
        assert_eq!(named(&found), ["x/user_time -50.0 %", "x/iops +3.1 %"]);
        assert_eq!(of(&rows, &[f64::NAN, 0.0, 0.0], &[]).len(), 1);
        let why = |errors: [f64; 3]| -> Vec<&str> {
            of(&rows, &errors, &[]).iter().map(|miss| miss.reasons[0].split(' ').nth(1).unwrap()).collect()
        };
        assert_eq!(why([0.1, 0.0, 0.0]), ["a"], "slower than the model: a limit");
        assert_eq!(why([-0.1, 0.0, 0.0]), ["server"], "no limit makes it faster");
        assert_eq!(why([0.2, 0.1, 0.0]), ["a", "a"], "one limit has both");
        assert_eq!(why([0.0, -0.1, 0.0]), ["a"], "its I/Os took longer");
        assert_eq!(why([0.0, 0.0, -0.1]), ["other"], "CPU time is not of the drive");
        let many: Vec<Miss> = (0..10).map(|_| found[0].clone()).collect();
        assert_eq!(named(&many).last().unwrap(), "and 2 more");
    }
}

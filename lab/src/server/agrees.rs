//! Whether a job's options can have made what fio measured: people mix up job files, and fio prints the options of one
//! section for several.

use crate::fio::judge::ENGINE_DEFAULT;
use crate::fio::{FioJob, drive_of};
use crate::kinds::storage::{IoEngine, Trims};
use crate::report::figure::counted;
use import::disks;
use import::fio_json::{self, FioOutput};

/// I/Os in flight may be so many times what the options allow: rates and latencies are means over unlike times.
const IN_FLIGHT_SLACK: f64 = 1.25;
/// Threads, likewise. Two sections in place of one are twice as many.
const THREADS_SLACK: f64 = 1.5;

/// Whether the sections can have done what fio measured.
///
/// With `group_reporting` fio prints one job for a group, and of its sections the options of the first alone. A fit of such
/// a measurement would be far off, and not say why. `is_given`: a job file was given.
///
/// # Errors
/// More was in flight than the sections allow, or more threads ran.
pub(super) fn explains(sections: &[FioJob], fio: &FioOutput, is_given: bool) -> Result<(), String> {
    if sections.iter().any(|section| section.engine == IoEngine::Null) {
        return Err(
            "ioengine=null does no I/O, and tells nothing of drives; valid: an engine that does, such as libaio"
                .to_owned(),
        );
    }
    in_memory(sections)?;
    let most: f64 = sections.iter().map(|section| f64::from(section.numjobs) * f64::from(section.iodepth)).sum();
    let threads: f64 = sections.iter().map(|section| f64::from(section.numjobs)).sum();
    let in_flight = fio.in_flight();
    let options = || fio.global_options.iter().chain(fio.jobs.iter().flat_map(|job| &job.options));
    // A ramp counts as time of the threads, but not as measured time.
    let has_ramp = options().any(|(name, _)| name == "ramp_time");
    let ran = fio.threads().filter(|ran| !has_ramp && *ran > threads * THREADS_SLACK);
    let is_posix = options().any(|(name, value)| name == "ioengine" && value == "posixaio");
    let waits = sections.iter().all(|section| matches!(section.engine, IoEngine::Sync { .. }));
    let names_no_engine = waits && options().next().is_some() && options().all(|(name, _)| name != "ioengine");
    if ran.is_none() && is_posix && in_flight > most * IN_FLIGHT_SLACK {
        return Err(
            "requests of posixaio wait for each other, and their latency has that time, which is not modelled; valid: \
                    iodepth=1, or libaio"
                .to_owned(),
        );
    }
    let found = match ran {
        Some(ran) => format!("about {ran:.0} threads ran, and the job's options make {threads:.0}"),
        None if in_flight > most * IN_FLIGHT_SLACK && names_no_engine => {
            return Err(format!(
                "{in_flight:.1} I/Os were in flight, and the job's options allow {most:.0}: they name no ioengine, and \
                 {ENGINE_DEFAULT}, fio's default on Linux, does one I/O at a time; valid: the job file behind --job, with the \
                 ioengine that ran"
            ));
        }
        None if in_flight > most * IN_FLIGHT_SLACK => {
            format!("{in_flight:.1} I/Os were in flight, and the job's options allow {most:.0}")
        }
        None => match other_ios(sections, fio) {
            Some(found) => found,
            None => return Ok(()),
        },
    };
    if !is_given {
        return Err(format!(
            "{found}: these are not the options of all that ran (with group_reporting, fio prints those of a group's first \
             job alone); valid: the whole job file behind --job"
        ));
    }
    let has = |name: &str| sections.iter().any(|section| section.name == name || section.title == name);
    Err(match fio.jobs.iter().find(|job| !has(&job.name)) {
        Some(job) => {
            format!("{found}: the job file has no section [{}]; valid: the file that ran behind --job", job.name)
        }
        None => format!("{found}: this is not the job file that ran; valid: the file that ran behind --job"),
    })
}

/// Devices without a drive behind them, and where files in memory are.
const IN_MEMORY: [&str; 7] = ["/dev/shm", "/dev/null", "/dev/zero", "/dev/full", "/dev/ram", "/dev/zram", "/run/shm"];

/// # Errors
/// The I/Os went to memory, or to a driver without a drive.
fn in_memory(sections: &[FioJob]) -> Result<(), String> {
    let names = || sections.iter().flat_map(|section| section.file_names(0));
    match names().find(|name| IN_MEMORY.iter().any(|start| name.starts_with(start))) {
        Some(name) => Err(format!(
            "{name} lies in memory or has no drive behind it, and tells nothing of drives; valid: a drive or a file on one"
        )),
        None => Ok(()),
    }
}

/// The mean size of I/Os may be so many times what the options say: a file's last I/O is short.
const SIZE_SLACK: f64 = 1.25;
/// Least bytes a second that tell a size: old versions print whole KiB.
const BANDWIDTH_MIN: f64 = 100.0 * 1024.0;

/// I/Os that none of the sections does, by their direction or their size.
fn other_ios(sections: &[FioJob], fio: &FioOutput) -> Option<String> {
    if sections.iter().any(|section| section.replay.is_some()) || fio.jobs.iter().any(|job| job.is_sum) {
        return None;
    }
    let does: [fn(&FioJob) -> bool; 3] = [
        |section| section.pattern.reads(),
        |section| section.pattern.writes(),
        |section| section.pattern.trims != Trims::None,
    ];
    ["reads", "writes", "trims"].into_iter().zip(does).enumerate().find_map(|(at, (name, does))| {
        let done = || fio.jobs.iter().map(|job| &job.directions[at]);
        let count = done().map(|one| one.ios).fold(0, u64::saturating_add);
        let sizes: Vec<_> = sections.iter().filter(|section| does(section)).map(|one| &one.load.sizes[at]).collect();
        if count == 0 {
            return None;
        }
        let (Some(least), Some(most)) =
            (sizes.iter().map(|size| size.min).min(), sizes.iter().map(|size| size.max).max())
        else {
            return Some(format!("fio did {count} {name}, and the job's options have none"));
        };
        let sum = |of: fn(&fio_json::Direction) -> f64| done().map(of).sum::<f64>();
        let (bandwidth, iops) = (sum(|one| one.bandwidth_bps), sum(|one| one.iops));
        let mean = bandwidth / iops;
        let is_told = bandwidth > BANDWIDTH_MIN && iops > 0.0;
        let is_other = mean > most as f64 * SIZE_SLACK || mean * SIZE_SLACK < least as f64;
        (is_told && is_other).then(|| {
            let said = if least == most { least.to_string() } else { format!("{least} to {most}") };
            format!("the {name} had {mean:.0} bytes on average, and the job's options say {said}")
        })
    })
}

/// The directions that the jobs had, where fio printed several as one.
fn merged_directions(sections: &[FioJob], fio: &FioOutput) -> Option<Vec<&'static str>> {
    let does = |does: fn(&FioJob) -> bool, name: &'static str| sections.iter().any(does).then_some(name);
    let done = [
        does(|section| section.pattern.reads(), "reads"),
        does(|section| section.pattern.writes(), "writes"),
        does(|section| section.pattern.trims != Trims::None, "trims"),
    ];
    let done: Vec<&str> = done.into_iter().flatten().collect();
    let is_sum = fio.jobs.iter().any(|job| job.is_sum && job.directions[0].iops > 0.0);
    Some(done).filter(|done| is_sum && done.len() > 1)
}

/// Whether fio printed several directions as one, whose share and latency nothing tells.
pub(super) fn is_merged(sections: &[FioJob], fio: &FioOutput) -> bool {
    merged_directions(sections, fio).is_some()
}

/// A note on such directions.
pub(super) fn merged(sections: &[FioJob], fio: &FioOutput) -> Option<String> {
    merged_directions(sections, fio).map(|done| {
        format!(
            "fio printed {} as one (unified_rw_reporting=1): the share and the latency of each are unknown; valid: a run \
             with unified_rw_reporting=none or both",
            done.join(" and ")
        )
    })
}

/// Leaves out the reads of jobs that only write: they verified the data, after the writes.
pub(super) fn leave_out_verification(sections: &[FioJob], fio: &mut FioOutput) -> Option<String> {
    let count = |at: usize| fio.jobs.iter().map(|job| job.directions[at].ios).fold(0, u64::saturating_add);
    let verifies = sections.iter().all(|section| section.load.verify.after && !section.pattern.reads());
    let reads = count(0);
    if !verifies || reads == 0 || count(1) == 0 {
        return None;
    }
    fio.jobs.iter_mut().for_each(|job| job.directions[0] = fio_json::Direction::default());
    Some(format!("reads that verified what was written are left out: {reads}"))
}

/// Whether the I/Os came from the drives, where the jobs do not say so by `direct=1`.
///
/// # Errors
/// The drives did far fewer of them.
pub(super) fn bypasses(sections: &[FioJob], fio: &FioOutput) -> Result<(), String> {
    let is_direct = sections.iter().all(|section| section.says_direct && !section.load.syncs.buffered);
    match fio.of_cache() {
        Some((did, reached)) if !is_direct => Err(format!(
            "fio did {}, and its drives {reached}: the page cache answered, which is not modelled; valid: a run with \
             direct=1 (if it was one, and the driver does not count: its job file behind --job)",
            counted(did, "I/O")
        )),
        _ => Ok(()),
    }
}

/// A note on files that lay on several drives, as fio's statistics say: they are simulated on one.
pub(super) fn files_on_several(sections: &[FioJob], fio: &FioOutput) -> Option<String> {
    let drives: Vec<&str> = disks::reached(&fio.disks).into_iter().map(|disk| disk.name.as_str()).collect();
    let has_files = sections.iter().flat_map(|section| section.file_names(0)).any(|name| drive_of(&name).is_none());
    (has_files && drives.len() > 1).then(|| {
        format!(
            "the files lie on {}, and are taken as files of one drive; valid for a platform of each drive: a run with \
             filename=/dev/…",
            drives.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::gather::{Measurement, Parts, Server};

    /// IOPS of the measurement, or else the notes.
    fn read(job: &str, directions: &str) -> Result<f64, String> {
        let fio = format!(r#"{{"jobs": [{{"jobname": "a", {directions}}}]}}"#);
        let job = format!("[a]\nioengine=libaio\ndirect=1\nfilename=/dev/nvme0n1\n{job}\n");
        let mut server = Server::default();
        server.add("x", &Parts { fio: fio.as_bytes(), job: Some(job.as_bytes()), ..Parts::default() });
        server.measurements.first().map(|one| one.fio.iops()).ok_or_else(|| server.notes.join("\n"))
    }

    fn done(direction: &str, iops: u32, bytes: u32) -> String {
        format!(
            r#""{direction}": {{"iops": {iops}, "total_ios": {iops}, "bw_bytes": {}, "clat_ns": {{"mean": 5000, "max": 9}}}}"#,
            iops * bytes
        )
    }

    #[test]
    fn what_is_advised_is_what_is_lacking() {
        let many = r#""read": {"iops": 1000, "total_ios": 1000, "bw_bytes": 4096000, "runtime": 1000, "clat_ns": {"mean": 64000000, "max": 90000000}}"#;
        let file = "[b]\nfilename=/dev/nvme0n1\nioengine=libaio\ndirect=1\n";
        let fio = |options: &str| format!(r#"{{"jobs": [{{"jobname": "a", {options}{many}}}]}}"#);
        let why = |fio: &str, job: Option<&str>| {
            let parts = Parts { fio: fio.as_bytes(), job: job.map(str::as_bytes), ..Parts::default() };
            Measurement::read("x", &parts).unwrap_err()
        };
        let text = why(&fio(""), Some(file));
        assert!(text.contains("the job file has no section [a]"), "{text}");
        let text = why(&fio(""), Some(&file.replace("[b]", "[a]")));
        assert!(text.contains("this is not the job file that ran"), "{text}");
        let options = |engine: &str| {
            fio(&format!(
                r#""job options": {{{engine}"filename": "/dev/nvme0n1", "rw": "randread", "direct": "1", "iodepth": "9"}}, "#
            ))
        };
        let text = why(&options(""), None);
        assert!(text.contains("they name no ioengine, and psync, fio's default on Linux"), "{text}");
        let text = why(&options(r#""ioengine": "psync", "#), None);
        assert!(text.contains("these are not the options of all that ran"), "{text}");
    }

    #[test]
    fn ios_that_no_section_does_are_named() {
        for (job, of, expected) in [
            ("rw=randread", done("read", 1000, 4096), None),
            ("rw=randread", done("read", 1000, 4000), None),
            (
                "rw=randread",
                done("read", 1000, 131_072),
                Some("the reads had 131072 bytes on average, and the job's options say 4096"),
            ),
            ("bs=128k", done("read", 1000, 4096), Some("4096 bytes on average")),
            ("bsrange=4k-64k", done("read", 1000, 20_000), None),
            ("bsrange=4k-64k", done("read", 1000, 1 << 20), Some("say 4096 to 65536")),
            ("rw=randread", done("write", 1000, 4096), Some("fio did 1000 writes, and the job's options have none")),
            ("rw=write", done("read", 1000, 4096), Some("fio did 1000 reads")),
            ("rw=write", done("trim", 1000, 4096), Some("fio did 1000 trims")),
            ("rw=randtrim", done("trim", 1000, 4096), None),
            ("rw=randrw", done("mixed", 1000, 4096), None),
            ("rw=read", done("read", 10, 512), None),
        ] {
            match (read(job, &of), expected) {
                (Ok(_), None) => {}
                (Err(notes), Some(expected)) => assert!(notes.contains(expected) && notes.contains("--job"), "{notes}"),
                (found, _) => panic!("{job}: {of}: {found:?}"),
            }
        }
    }

    #[test]
    fn reads_that_verify_are_no_part_of_the_rate() {
        let both = format!("{}, {}", done("write", 1000, 4096), done("read", 5000, 4096));
        assert_eq!(read("rw=randwrite\nverify=crc32c", &both), Ok(1000.0));
        assert_eq!(read("rw=randrw\nverify=crc32c", &both), Ok(6000.0));
    }

    #[test]
    fn directions_that_fio_printed_as_one_are_noted() {
        let of = |rw: &str, direction: &str| {
            let fio = format!(r#"{{"jobs": [{{"jobname": "a", {}}}]}}"#, done(direction, 1000, 4096));
            let job = format!("[a]\ndirect=1\nfilename=/dev/nvme0n1\nrw={rw}\n");
            let mut server = Server::default();
            server.add("x", &Parts { fio: fio.as_bytes(), job: Some(job.as_bytes()), ..Parts::default() });
            server.notes.join("\n")
        };
        assert!(of("randrw", "mixed").starts_with("x: fio printed reads and writes as one (unified_rw_reporting=1)"));
        assert!(of("trimwrite", "mixed").contains("writes and trims as one"));
        assert_eq!(of("randread", "mixed") + &of("randread", "read"), "");
    }

    #[test]
    fn files_on_several_drives_are_noted() {
        let fio = format!(
            r#"{{"jobs": [{{"jobname": "a", {}}}], "disk_util": [{{"name": "sda"}}, {{"name": "sdb"}}]}}"#,
            done("read", 1000, 4096)
        );
        let of = |file: &str| {
            let mut server = Server::default();
            let job = format!("[a]\ndirect=1\n{file}\n");
            server.add("x", &Parts { fio: fio.as_bytes(), job: Some(job.as_bytes()), ..Parts::default() });
            (server.measurements[0].drives(), server.notes.join("\n"))
        };
        let (drives, notes) = of("directory=/mnt\nnrfiles=3\nsize=1g");
        assert!(drives == 1 && notes.contains("the files lie on sda, sdb"), "{drives}: {notes}");
        assert_eq!(of("filename=/dev/sda:/dev/sdb"), (2, String::new()));
    }

    #[test]
    fn an_engine_without_io_tells_nothing_of_drives() {
        let notes = read("ioengine=null", &done("read", 1000, 4096)).unwrap_err();
        assert!(notes.contains("ioengine=null does no I/O"), "{notes}");
    }
}

//! The job file of a measurement, where fio's output is all that there is; and the groups of jobs in one output.

use super::gather::{Parts, sections};
use super::named;
use super::part::part;
use crate::fio::{FioJob, options};
use crate::input::Problem;
use crate::report::figure::counted;
use import::fio_json::{self, FioOutput};
use import::links::Links;

/// A group of jobs that ran at the same time, and no other did.
pub(super) struct Group {
    /// The output's name, and the first job's if there are several groups.
    pub name: String,
    /// The jobs of the group.
    pub fio: FioOutput,
    /// Their part of the job file, if there is one.
    pub job: Option<String>,
}

/// The groups that ran one after another: fio begins one at `stonewall`. Of a job file that has no `stonewall`, and of jobs
/// with `new_group`, all ran together.
pub(super) fn groups(name: &str, fio: FioOutput, job: Option<&[u8]>) -> Vec<Group> {
    let text = job.map(|text| String::from_utf8_lossy(text).into_owned());
    let waits = |text: &String| ["stonewall", "wait_for_previous"].iter().any(|option| text.contains(option));
    let is_together = fio.jobs.iter().any(|job| has(job, "new_group") && !has(job, "stonewall"));
    let is_one = fio.jobs.iter().all(|job| job.group == fio.jobs[0].group);
    if is_one || is_together || text.as_ref().is_some_and(|text| !waits(text)) {
        return vec![Group { name: name.to_owned(), fio, job: text }];
    }
    let same = |a: &fio_json::FioJob, b: &fio_json::FioJob| a.group == b.group;
    let groups: Vec<&[fio_json::FioJob]> = fio.jobs.chunk_by(same).collect();
    let of_groups: Vec<Vec<String>> = groups.iter().map(|jobs| names(jobs)).collect();
    let group = |(at, jobs): (usize, &&[fio_json::FioJob])| {
        let job = text.as_ref().and_then(|text| part(text, &of_groups, at));
        Group { name: format!("{name}-{}", jobs[0].name), job, fio: FioOutput { jobs: jobs.to_vec(), ..fio.clone() } }
    };
    groups.iter().enumerate().map(group).collect()
}

/// The names of jobs.
pub(super) fn names(jobs: &[fio_json::FioJob]) -> Vec<String> {
    jobs.iter().map(|job| job.name.clone()).collect()
}

fn has(job: &fio_json::FioJob, option: &str) -> bool {
    job.options.iter().any(|(name, _)| name == option)
}

/// The job file of a measurement, and its sections: the given one, or one of the options that fio printed where there is
/// none, it is damaged, or it lacks a job that ran.
///
/// # Errors
/// There is neither.
pub(super) fn of(
    name: &str,
    fio: &FioOutput,
    parts: &Parts<'_>,
    notes: &mut Vec<String>,
) -> Result<(String, Vec<FioJob>), String> {
    let Some(text) = parts.job else { return of_options(name, fio, parts, notes) };
    let text = simulated(name, &String::from_utf8_lossy(text), fio, parts.links, notes);
    let why = match sections(&format!("{name}.fio"), &text, parts.cpus.unwrap_or(1)) {
        Ok(sections) => {
            let threads = sections.iter().map(|section| section.numjobs as usize).sum::<usize>();
            if threads >= fio.jobs.len() {
                return Ok((text, sections));
            }
            format!("{name}: the job file has {}, and fio's output {}", counted(threads, "job"), fio.jobs.len())
        }
        Err(error) => format!("{name}: {error}"),
    };
    let mut of_those = Vec::new();
    match of_options(name, fio, parts, &mut of_those) {
        Ok(found) => {
            notes.push(format!("{why}; the options that fio printed are used instead"));
            // Both may name the same drives.
            of_those.retain(|note| !notes.contains(note));
            notes.append(&mut of_those);
            Ok(found)
        }
        Err(_) => Err(why),
    }
}

/// A job file from the options that fio printed, and its sections. An option that is not known here is left out and noted:
/// fio knew it.
///
/// # Errors
/// fio printed no options, or they make no job file.
pub(super) fn of_options(
    name: &str,
    fio: &FioOutput,
    parts: &Parts<'_>,
    notes: &mut Vec<String>,
) -> Result<(String, Vec<FioJob>), String> {
    let cpus = parts.cpus.unwrap_or(1);
    let text = written(fio)
        .ok_or_else(|| format!("{name}: fio's output has no options of its jobs; valid: the job file behind --job"))?;
    let mut text = simulated(name, &text, fio, parts.links, notes);
    loop {
        let error = match sections(&format!("{name}.fio"), &text, cpus) {
            Ok(sections) if lasted(&sections, fio) => {
                notes.push(format!(
                    "{name}: fio measured for the whole `runtime`, and prints no flags of a job file: taken with time_based"
                ));
                text = text.replacen("[global]\n", "[global]\ntime_based\n", 1);
                continue;
            }
            Ok(sections) => return Ok((text, sections)),
            Err(error) => error,
        };
        let line = error.place.line.map(|line| line as usize - 1);
        let is_unknown = matches!(&*error.problem, Problem::UnknownKey { .. }) || options::is_newer(&error.key);
        let unknown = line.filter(|_| is_unknown);
        let Some(line) = unknown else { return Err(format!("{name}: {error}")) };
        notes.push(format!("{name}: the option {} is not known, and left out", error.key));
        let others = text.lines().enumerate().filter(|(at, _)| *at != line);
        text = others.map(|(_, text)| format!("{text}\n")).collect();
    }
}

/// A job file as it is simulated: on the drives that its names stand for, and without a ramp, since the scenario has one that
/// its short span allows.
fn simulated(name: &str, text: &str, fio: &FioOutput, links: Option<&Links>, notes: &mut Vec<String>) -> String {
    let line = |line: &str| match line.split_once('=').map(|(key, value)| (key.trim(), value.trim())) {
        Some(("ramp_time", _)) => {
            let note = format!("{name}: ramp_time is left out: the scenario has a ramp of its own");
            if !notes.contains(&note) {
                notes.push(note);
            }
            None
        }
        Some(("filename", files)) => {
            let mut found = Vec::new();
            let files = named::files(files, fio, links, &mut found);
            for note in found.into_iter().map(|note| format!("{name}: {note}")) {
                // Several sections may name the same drive.
                if !notes.contains(&note) {
                    notes.push(note);
                }
            }
            Some(format!("filename={files}\n"))
        }
        _ => Some(format!("{line}\n")),
    };
    text.lines().filter_map(line).collect()
}

/// The longest ramp of the jobs, in seconds. fio's runtimes are without it.
pub(super) fn ramp_s(fio: &FioOutput, parts: &Parts<'_>) -> f64 {
    let text = match parts.job {
        Some(text) => String::from_utf8_lossy(text).into_owned(),
        None => written(fio).unwrap_or_default(),
    };
    let seconds = |line: &str| {
        let (_, value) = line.split_once('=').filter(|(key, _)| key.trim() == "ramp_time")?;
        let alone = sections("ramp", &format!("[a]\nfilename=a\nsize=1m\nramp_time={}\n", value.trim()), 1).ok()?;
        Some(alone.first()?.load.ends.ramp_ns as f64 / 1e9)
    };
    text.lines().filter_map(seconds).fold(0.0, f64::max)
}

/// Whether jobs with a size took their whole runtime. Then it does no harm to take `time_based` as given, and fio prints no flag
/// that a job file has without a value.
fn lasted(sections: &[FioJob], fio: &FioOutput) -> bool {
    let measured_ns =
        fio.jobs.iter().flat_map(|job| &job.directions).map(|one| one.runtime_ms * 1e6).fold(0.0, f64::max);
    sections.iter().all(|FioJob { load, .. }| {
        let is_whole = load.ends.runtime_ns.is_some_and(|runtime_ns| measured_ns >= 0.9 * runtime_ns as f64);
        is_whole && !load.ends.time_based && load.files.size.is_some()
    })
}

/// The options as a job file. Without `group_reporting`, fio prints a job for each of `numjobs`: one section makes them.
fn written(fio: &FioOutput) -> Option<String> {
    let lines = |options: &[(String, String)], but: &[&str]| -> String {
        let kept = options.iter().filter(|(name, _)| !but.contains(&name.as_str()));
        // fio would read a line's end as the end of the value.
        let flat = |text: &str| text.replace(char::is_control, " ");
        // A flag of the command line, such as `--group_reporting`, is printed with an empty value.
        let line = |(name, value): &(String, String)| match value.is_empty() {
            true => format!("{}\n", flat(name)),
            false => format!("{}={}\n", flat(name), flat(value)),
        };
        kept.map(line).collect()
    };
    if fio.global_options.is_empty() && fio.jobs.iter().all(|job| job.options.is_empty()) {
        return None;
    }
    let mut text = format!("[global]\n{}", lines(&fio.global_options, &["name"]));
    let same =
        |a: &fio_json::FioJob, b: &fio_json::FioJob| a.name == b.name && a.options == b.options && a.group == b.group;
    for (index, jobs) in fio.jobs.chunk_by(same).enumerate() {
        let job = &jobs[0];
        let name: String = job.name.chars().filter(|c| !c.is_control() && !matches!(c, '[' | ']')).collect();
        let name = if name.is_empty() { format!("job{index}") } else { name };
        let of = |name: &str| job.options.iter().chain(&fio.global_options).find(|(known, _)| known == name);
        // Each of several clients prints one job for all of its threads.
        let threads = of("numjobs").filter(|_| of("group_reporting").is_some());
        let threads = threads.and_then(|(_, threads)| threads.parse::<usize>().ok()).unwrap_or(1);
        text += &match jobs.len() {
            1 => format!("[{name}]\n{}", lines(&job.options, &["name"])),
            count => {
                let numjobs = count.saturating_mul(threads);
                format!("[{name}]\n{}numjobs={numjobs}\n", lines(&job.options, &["name", "numjobs"]))
            }
        };
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::super::gather::{Parts, Server};

    /// fio's output with jobs: name, group, options, IOPS.
    fn output(jobs: &[(&str, u32, &str, u32)]) -> String {
        let job = |(name, group, options, iops): &(&str, u32, &str, u32)| {
            format!(
                r#"{{"jobname": "{name}", "groupid": {group}, "job options": {{"name": "{name}", {options}}}, "read": {{"iops": {iops},
                "total_ios": {iops}, "clat_ns": {{"mean": 5000, "max": 9}}}}}}"#
            )
        };
        format!(r#"{{"fio version": "fio-3.33", "jobs": [{}]}}"#, jobs.iter().map(job).collect::<Vec<_>>().join(","))
    }

    fn server(jobs: &[(&str, u32, &str, u32)], job: Option<&str>) -> Server {
        let mut server = Server::default();
        let (fio, stat) = (output(jobs), [&b"cpu 1 1 1 1"[..], b"cpu 2 2 2 2"]);
        let parts = Parts { fio: fio.as_bytes(), job: job.map(str::as_bytes), stat: Some(stat), ..Parts::default() };
        server.add("x", &parts);
        server
    }

    const ONE: &str = r#""rw": "randread", "filename": "/dev/nvme0n1", "numjobs": "3""#;

    #[test]
    fn each_of_numjobs_is_no_section() {
        let found = server(&[("a", 0, ONE, 100), ("a", 0, ONE, 110), ("a", 0, ONE, 90)], None);
        assert_eq!((found.measurements.len(), found.measurements[0].threads()), (1, 3));
        assert_eq!(found.measurements[0].job, "[global]\n[a]\nfilename=/dev/nvme0n1\nrw=randread\nnumjobs=3\n");
        // With group_reporting, one job stands for all.
        assert_eq!(server(&[("a", 0, ONE, 300)], None).measurements[0].threads(), 3);
    }

    #[test]
    fn an_array_is_taken_as_its_members() {
        let disks = r#""disk_util": [{"name": "dm-0", "read_ios": 900, "aggr_read_ios": 300}, {"name": "nvme1n1"}, {"name": "nvme2n1"}, {"name": "nvme3n1"}]"#;
        let fio = output(&[("a", 0, &ONE.replace("nvme0n1", "mapper/vg-data"), 100)]);
        let fio = fio.replacen('{', &format!("{{{disks}, "), 1);
        let job = "[a]\nnumjobs=3\nfilename = /dev/nvme3n1:/dev/dm-0\n";
        for (job, lines) in [
            (None, "filename=/dev/nvme1n1:/dev/nvme2n1:/dev/nvme3n1\n"),
            (Some(job), "filename=/dev/nvme3n1:/dev/nvme1n1:/dev/nvme2n1:/dev/nvme3n1\n"),
            // Damaged: fio's options stand in for it, and name the array too.
            (
                Some("[a]\nnumjobs=x\nfilename=/dev/mapper/vg-data\n"),
                "filename=/dev/nvme1n1:/dev/nvme2n1:/dev/nvme3n1\n",
            ),
            (
                Some("[a]\nfilename=/dev/dm-0\n[b]\nfilename=/dev/dm-0\n"),
                "filename=/dev/nvme1n1:/dev/nvme2n1:/dev/nvme3n1\n",
            ),
        ] {
            let job = job.map(str::as_bytes);
            let mut server = Server::default();
            server.add("x", &Parts { fio: fio.as_bytes(), job, ..Parts::default() });
            let found = &server.measurements[0];
            assert!(found.job.contains(lines) && found.drives() == 3, "{}: {:?}", found.job, server.notes);
            assert!(server.notes[0].contains("is made of nvme1n1, nvme2n1, nvme3n1"), "{:?}", server.notes);
            let notes = server.notes.iter().filter(|note| note.contains("is made of"));
            assert_eq!(notes.count(), 1, "{:?}", server.notes);
        }
    }

    #[test]
    fn a_job_with_a_size_that_took_its_whole_runtime_is_time_based() {
        let of = |measured_ms: u32| {
            let fio = format!(
                r#"{{"fio version": "fio-3.33", "global options": {{"size": "64m", "runtime": "10"}}, "jobs": [{{"jobname": "a", "groupid": 0,
                "job options": {{{ONE}}}, "read": {{"iops": 9, "total_ios": 90, "runtime": {measured_ms}, "clat_ns": {{"mean": 5000}}}}}}]}}"#
            );
            let mut server = Server::default();
            server.add("x", &Parts { fio: fio.as_bytes(), ..Parts::default() });
            server.measurements[0].job.contains("time_based")
        };
        assert_eq!([10_000, 9_999, 8_000].map(of), [true, true, false]);
    }

    #[test]
    fn an_option_of_a_newer_fio_is_left_out() {
        let newer = format!(r#"{ONE}, "ramp_size": "1m""#);
        let found = server(&[("a", 0, &newer, 300)], None);
        assert_eq!(found.measurements.len(), 1, "{:?}", found.notes);
        assert!(found.notes.iter().any(|note| note.contains("ramp_size")), "{:?}", found.notes);
    }

    #[test]
    fn clients_with_group_reporting_have_their_threads_each() {
        let grouped = format!(r#"{ONE}, "group_reporting": "1""#);
        let found = server(&[("a", 0, &grouped, 100), ("a", 0, &grouped, 110)], None);
        assert_eq!((found.measurements.len(), found.measurements[0].threads()), (1, 6), "{:?}", found.notes);
    }

    #[test]
    fn options_of_one_section_do_not_stand_for_a_group() {
        let of = |more: &str, clat: u32, job: Option<&str>| {
            let fio = format!(
                r#"{{"jobs": [{{"jobname": "a", "job options": {{"rw": "read", "ioengine": "libaio", "iodepth": "16", "filename": "/dev/nvme0n1"{more}}},
                "read": {{"iops": 30000, "total_ios": 300000, "runtime": 10000, "clat_ns": {{"mean": {clat}, "max": 9000000}}}},
                "job_runtime": 60010}}]}}"#
            );
            let mut server = Server::default();
            server.add("x", &Parts { fio: fio.as_bytes(), job: job.map(str::as_bytes), ..Parts::default() });
            (server.measurements.len(), server.notes.join("\n"))
        };
        let (count, notes) = of("", 500_000, None);
        assert!(count == 0 && notes.contains("about 6 threads ran") && notes.contains("--job"), "{notes}");
        assert_eq!(of(r#", "numjobs": "6""#, 500_000, None).0, 1);
        let (count, notes) = of(r#", "ramp_time": "50s""#, 500_000, None);
        assert!(
            count == 1 && notes.contains("ramp_time is left out"),
            "a ramp of five times the measured time: {notes}"
        );
        // 30,000 a second at 3 ms are 90.
        let (count, notes) = of(r#", "ramp_time": "50s""#, 3_000_000, None);
        assert!(count == 0 && notes.contains("90.0 I/Os were in flight") && notes.contains("allow 16"), "{notes}");
        let posix = r#", "ramp_time": "50s", "ioengine": "posixaio""#;
        assert!(of(posix, 3_000_000, None).1.contains("valid: iodepth=1, or libaio"));
        let whole =
            "[global]\nioengine=libaio\niodepth=16\nfilename=/dev/nvme0n1\n[a]\nrw=read\n[b]\nrw=write\nnumjobs=5\n";
        assert_eq!(of("", 3_000_000, Some(whole)).0, 1);
    }

    /// The scenario's ramp is shorter.
    #[test]
    fn a_ramp_of_the_job_is_left_out() {
        let file = "[a]\nnumjobs=3\nfilename=/dev/nvme0n1\nramp_time = 5s\nsize=1g\n";
        for (options, job) in [(format!(r#"{ONE}, "ramp_time": "5""#), None), (ONE.to_owned(), Some(file))] {
            let found = server(&[("a", 0, &options, 300)], job);
            assert!(!found.measurements[0].job.contains("ramp_time"), "{}", found.measurements[0].job);
        }
    }

    #[test]
    fn what_the_page_cache_answered_is_named() {
        let disks = r#""disk_util": [{"name": "nvme0n1", "read_ios": 20}]"#;
        let of = |more: &str| {
            let fio = output(&[("a", 0, &format!("{ONE}{more}"), 1000)]).replacen('{', &format!("{{{disks}, "), 1);
            let fio = fio.replace("\"total_ios\"", "\"runtime\": 10000, \"total_ios\"");
            let mut server = Server::default();
            server.add("x", &Parts { fio: fio.as_bytes(), ..Parts::default() });
            (server.measurements.len(), server.notes.join("\n"))
        };
        let (count, notes) = of("");
        assert!(count == 0 && notes.contains("1000 I/Os, and its drives 20: the page cache"), "{notes}");
        assert_eq!(of(r#", "direct": "0""#).0, 0);
        assert_eq!(of(r#", "direct": "1""#).0, 1, "a driver that does not count");
    }

    #[test]
    fn groups_that_ran_one_after_another_are_measurements() {
        let two = r#""rw": "read", "filename": "/dev/nvme0n1""#;
        let jobs = [("a", 0, ONE, 300), ("b", 1, two, 50), ("c", 1, two, 60)];
        let found = server(&jobs, None);
        let names: Vec<&str> = found.measurements.iter().map(|measurement| measurement.name.as_str()).collect();
        assert_eq!((names.as_slice(), found.measurements[1].fio.iops()), (&["x-a", "x-b"][..], 110.0));
        assert!(found.measurements[0].cpu.is_none() && found.notes[0].contains("2 groups"), "{:?}", found.notes);
        let file = "[global]\nfilename=/dev/nvme0n1\n[a]\nrw=randread\n[b]\nstonewall\nrw=read\n[c]\nrw=read\n";
        let found = server(&jobs, Some(file));
        assert_eq!(
            found.measurements[1].job,
            "[global]\nfilename=/dev/nvme0n1\n[b]\nstonewall\nrw=read\n[c]\nrw=read\n"
        );
        assert_eq!((found.measurements[0].threads(), found.measurements[1].threads()), (1, 2));
        let together = server(&jobs, Some(&file.replace("stonewall", "new_group")));
        assert_eq!((together.measurements.len(), together.measurements[0].cpu.is_some()), (1, true));
    }

    #[test]
    fn a_damaged_job_file_gives_way_to_fios_options() {
        let made = "[global]\n[a]\nfilename=/dev/nvme0n1\nnumjobs=3\nrw=randread\n";
        for (damaged, why) in [("[a]\nfilename=/dev/nvme0n1\nrw=rand", "rw"), ("\u{fffd}\0\u{1}", ""), ("", "")] {
            let found = server(&[("a", 0, ONE, 300)], Some(damaged));
            assert_eq!(found.measurements.len(), 1, "{damaged:?}: {:?}", found.notes);
            assert_eq!(found.measurements[0].job, made, "{damaged:?}");
            let note = &found.notes[0];
            assert!(note.contains("the options that fio printed are used instead") && note.contains(why), "{note}");
        }
        // The file was cut off behind its first section.
        let found = server(&[("a", 0, ONE, 300), ("b", 0, ONE, 200)], Some("[a]\nrw=read\nfilename=/dev/nvme0n1\n"));
        assert_eq!(found.measurements[0].threads(), 6);
        assert!(found.notes[0].contains("has 1 job, and fio's output 2"), "{:?}", found.notes);
        let mut without = Server::default();
        let old = output(&[("a", 0, "", 300)]).replace(r#""job options": {"name": "a", },"#, "");
        without.add("x", &Parts { fio: old.as_bytes(), job: Some(b"[a]\nrw=rand"), ..Parts::default() });
        assert!(without.measurements.is_empty() && without.notes[0].contains("rw"), "{:?}", without.notes);
    }

    #[test]
    fn flags_without_a_value_are_set() {
        let found = server(
            &[("a", 0, r#""rw": "read", "filename": "/dev/nvme0n1", "group_reporting": "", "thread": """#, 5)],
            None,
        );
        assert_eq!(
            found.measurements[0].job,
            "[global]\n[a]\nfilename=/dev/nvme0n1\ngroup_reporting\nrw=read\nthread\n"
        );
    }

    #[test]
    fn engines_that_are_taken_as_others_are_used_and_memory_is_not() {
        for options in [
            r#""ioengine": "io_uring_cmd", "cmd_type": "nvme", "filename": "/dev/ng0n1""#,
            r#""ioengine": "windowsaio", "filename": "\\\\.\\PhysicalDrive1""#,
        ] {
            let found = server(&[("a", 0, &format!(r#""rw": "read", {options}"#), 5)], None);
            assert_eq!(found.measurements.len(), 1, "{:?}", found.notes);
        }
        let two =
            r#""rw": "read", "ioengine": "windowsaio", "filename": "\\\\.\\PhysicalDrive1:\\\\.\\PhysicalDrive2""#;
        assert_eq!(server(&[("a", 0, two, 5)], None).measurements[0].drives(), 2);
        let memory = server(&[("a", 0, r#""rw": "read", "filename": "/dev/shm/x""#, 5)], None);
        assert!(
            memory.measurements.is_empty() && memory.notes[0].contains("/dev/shm/x lies in memory"),
            "{:?}",
            memory.notes
        );
    }

    #[test]
    fn options_of_another_fio_are_left_out_and_noted() {
        let found = server(&[("a", 0, r#""rw": "read", "filename": "/dev/nvme0n1", "brand_new": "1""#, 5)], None);
        assert_eq!(found.measurements[0].job, "[global]\n[a]\nfilename=/dev/nvme0n1\nrw=read\n");
        assert_eq!(found.notes, ["x: the option brand_new is not known, and left out"]);
        let wrong = server(&[("a", 0, r#""rw": "sideways""#, 5)], None);
        assert!(wrong.measurements.is_empty() && wrong.notes[0].contains("sideways"), "{:?}", wrong.notes);
    }
}

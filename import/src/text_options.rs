//! The options that fio's output for people lacks: from a command line in the text, or from the disks of its statistics.

use crate::command_line::{self, CommandLine};
use crate::disks::{self, Disk};
use crate::fio_json::{Direction, FioJob, FioOutput};
use std::collections::BTreeSet;

/// Adds what the banners lack: the options of the command line, or else the drives, without a cache in front of them.
pub(crate) fn add_options(output: &mut FioOutput, command: Option<CommandLine>) {
    let (is_known, command) = (command.is_some(), command.unwrap_or_default());
    let has_banner = output.jobs.iter().any(|job| job.options.iter().any(|(name, _)| name == "rw"));
    if !is_known && !has_banner {
        // The disks alone do not make a job: fio's defaults would stand for all that it did.
        return;
    }
    if has_banner && let Some(lost) = without_banner(&output.jobs, &command) {
        // fio's defaults would stand for what it did.
        output
            .notes
            .push(format!("the text lacks the line that fio prints of job {lost:?} before it runs, with its options"));
        output.jobs.iter_mut().for_each(|job| job.options.clear());
        return;
    }
    let is_of_banner = |(name, _): &&(String, String)| OF_BANNER.contains(&name.as_str());
    for job in &mut output.jobs {
        let has_own = has_rw(&job.options);
        let of_all = command.global.iter().filter(|option| has_banner && !has_own && is_of_banner(option));
        let of_name = command.jobs.iter().filter(|(name, _)| *name == job.name).flat_map(|(_, options)| options);
        job.options.extend(of_all.chain(of_name.filter(|option| !has_own || !is_of_banner(option))).cloned());
    }
    output.global_options = command.global.into_iter().filter(|option| !has_banner || !is_of_banner(&option)).collect();
    let is_file = |(name, _): &(String, String)| matches!(name.as_str(), "filename" | "directory");
    if !output.global_options.iter().any(is_file) {
        let hosts: BTreeSet<String> = output.jobs.iter().map(|job| job.host.clone()).collect();
        hosts.iter().for_each(|host| add_drives(output, host));
        if output.jobs.iter().any(|job| !job.options.iter().any(is_file)) {
            output.notes.push(
                "the text names neither files nor disks: one drive is assumed; valid: the job file behind --job"
                    .to_owned(),
            );
        }
    }
    if !is_known {
        output.notes.extend(paced(&output.jobs));
    }
    if is_known {
        output.notes.push("the command line in the text has options that fio did not print; they are taken".to_owned());
    } else if output.of_cache().is_none() {
        output.global_options.push(("direct".to_owned(), "1".to_owned()));
        output.notes.push(
            "the text does not say whether the page cache was bypassed: direct=1 is assumed; valid: the job file behind --job"
                .to_owned(),
        );
    }
}

fn has_rw(options: &[(String, String)]) -> bool {
    options.iter().any(|(name, _)| name == "rw" || name == "readwrite")
}

/// A job that neither a banner nor the command line tells of: with `--output` as the last option, fio prints the banners of
/// all jobs but the last elsewhere.
fn without_banner(jobs: &[FioJob], command: &CommandLine) -> Option<String> {
    let is_told = |job: &&FioJob| {
        has_rw(&job.options) || has_rw(&command.global) || command.jobs.iter().any(|(name, _)| *name == job.name)
    };
    jobs.iter().find(|job| !is_told(job)).map(|job| job.name.clone())
}

/// I/Os in flight of those that a depth allows, below which something else held them back.
const SHARE_MIN: f64 = 0.3;

/// A note on jobs that had few I/Os in flight: the text has no option that paces a job.
fn paced(jobs: &[FioJob]) -> Option<String> {
    let is_paced = |job: &&FioJob| {
        let of = |name: &str| job.options.iter().find(|(known, _)| known == name)?.1.parse::<f64>().ok();
        let most = of("iodepth").unwrap_or(1.0) * job.threads.unwrap_or(1.0);
        let latency = |one: &Direction| one.lat_ns.or(one.clat_ns).map(|lat_ns| one.iops * lat_ns / 1e9);
        let in_flight: Option<f64> = job.directions.iter().filter(|one| one.iops > 0.0).map(latency).sum();
        in_flight.is_some_and(|in_flight| in_flight > 0.0 && in_flight < most * SHARE_MIN)
    };
    let job = jobs.iter().find(is_paced)?;
    Some(format!(
        "job {:?} had few I/Os in flight: an option that the text does not have may pace it (rate, thinktime); valid: the job \
         file behind --job",
        job.name
    ))
}

/// Adds the disks of a host's statistics to its jobs as their files.
fn add_drives(output: &mut FioOutput, host: &str) {
    let disks: Vec<Disk> = output.disks.iter().filter(|disk| disk.host == host).cloned().collect();
    let drives: Vec<&str> = disks::reached(&disks).iter().map(|disk| disk.name.as_str()).collect();
    let files: Vec<String> = drives.iter().map(|name| format!("/dev/{name}")).collect();
    let has_files = |job: &FioJob| job.options.iter().any(|(name, _)| name == "filename" || name == "directory");
    let without = output.jobs.iter_mut().filter(|job| job.host == host && !has_files(job));
    let options: Vec<_> = without.map(|job| &mut job.options).collect();
    if drives.is_empty() || options.is_empty() {
        return;
    }
    options.into_iter().for_each(|options| options.push(("filename".to_owned(), files.join(":"))));
    let shown = drives.join(", ");
    output.notes.push(format!("the text has no file names; the disks of its statistics are taken: {shown}"));
    let others = disks.iter().filter(|disk| !drives.contains(&disk.name.as_str()));
    let arrays: Vec<&str> = others.map(|disk| disk.name.as_str()).collect();
    if !arrays.is_empty() {
        output.notes.push(disks::in_place_of(&arrays.join(", "), &shown));
    }
    output.notes.extend(drives.iter().filter_map(|drive| disks::as_one(drive)));
}

/// Adds the command line that stands before JSON without options, as fio printed it before version 2.7.
pub(crate) fn add_command(runs: &mut [FioOutput], text: &[u8]) {
    let [run] = runs else { return };
    let has_options = !run.global_options.is_empty() || run.jobs.iter().any(|job| !job.options.is_empty());
    if has_options || run.is_one_of_several {
        return;
    }
    let text = String::from_utf8_lossy(&text[..text.len().min(BEFORE_BYTES_MAX)]);
    let before = command_line::lines(&text).take_while(|line| !line.trim_start().starts_with('{'));
    let command = before.filter_map(|line| CommandLine::of_line(line.trim())).last();
    if command.is_some() {
        add_options(run, command);
    }
}

/// Most bytes before JSON that are looked at.
const BEFORE_BYTES_MAX: usize = 64 << 10;

/// Options that a banner or a job's head has, and their other names.
const OF_BANNER: [&str; 10] = [
    "rw",
    "readwrite",
    "bs",
    "blocksize",
    "bsrange",
    "blocksize_range",
    "ioengine",
    "iodepth",
    "numjobs",
    "group_reporting",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fio_text::tests::NEW;

    #[test]
    fn json_without_options_has_those_of_the_command_before_it() {
        let job = r#"{"jobname": "a", "read": {"iops": 1000, "runtime": 2000, "clat": {"mean": 5.0, "max": 9}}}"#;
        let json = format!(r#"{{"fio version": "fio-2.1.11", "jobs": [{job}]}}"#);
        let command = "# fio --name=a --rw=randread --filename=/dev/nvme0n1 --iodepth=4 --output-format=json";
        let found = FioOutput::parse(format!("{command}\n{json}\n").as_bytes()).unwrap();
        assert_eq!(found.global_options.len(), 3, "{:?}", found.global_options);
        assert!(found.notes.iter().any(|note| note.contains("the command line in the text")), "{:?}", found.notes);
        // What fio printed itself holds.
        let own = json.replace(r#""read""#, r#""job options": {"rw": "read"}, "read""#);
        let found = FioOutput::parse(format!("{command}\n{own}\n").as_bytes()).unwrap();
        assert!(found.global_options.is_empty(), "{:?}", found.global_options);
    }

    #[test]
    fn the_members_of_an_array_are_the_drives_and_not_the_array() {
        let of = |disks: &str| {
            let (before, _) = NEW.split_once("  nvme0n1: ios").unwrap();
            let found = FioOutput::parse(format!("{before}{disks}").as_bytes()).unwrap();
            (found.jobs[0].options.last().unwrap().1.clone(), found.notes.join("\n"))
        };
        let array = "    md0: ios=24100/1200300, merge=0/0, ticks=0/0, in_queue=0, util=0.00%, aggrios=10/0, aggrmerge=0/0, aggrutil=5%\n";
        let members = "  nvme0n1: ios=10/0, merge=0/0, util=5%\n  nvme1n1: ios=10/0, merge=0/0, util=5%\n";
        let (files, notes) = of(&format!("{array}{members}"));
        assert_eq!(files, "/dev/nvme0n1:/dev/nvme1n1");
        assert!(notes.contains("md0 is made of nvme0n1, nvme1n1"), "{notes}");
        let (files, notes) = of(array);
        assert_eq!(files, "/dev/md0");
        assert!(notes.contains("md0 is taken as one drive"), "{notes}");
    }

    #[test]
    fn without_a_banner_the_command_line_has_all_options() {
        let (_, results) = NEW.split_once("\n\n").unwrap();
        let found = FioOutput::parse(results.as_bytes()).unwrap();
        assert!(found.global_options.is_empty() && found.jobs[0].options.is_empty(), "{found:?}");
        let command = "$ fio --name=x --filename=/dev/nvme7n1 --rw=randrw --bs=8k --iodepth=16\n";
        let found = FioOutput::parse(format!("{command}{results}").as_bytes()).unwrap();
        let names: Vec<&str> = found.global_options.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["filename", "rw", "bs", "iodepth"]);
    }

    #[test]
    fn a_job_without_its_banner_does_not_have_the_defaults() {
        // As `fio --name=b … --name="a job" … --output=FILE` writes them: b's banner went to the terminal.
        let (banner, results) = NEW.split_once("a job: (groupid").unwrap();
        let (mine, sums) = results.split_once("\n\n").unwrap();
        let text = format!("{banner}b: (groupid{mine}\na job: (groupid{mine}\n\n{sums}");
        let found = FioOutput::parse(text.as_bytes()).unwrap();
        assert!(found.jobs.len() == 2 && found.jobs.iter().all(|job| job.options.is_empty()), "{:?}", found.jobs);
        assert!(found.notes.iter().any(|note| note.contains("of job \"b\"")), "{:?}", found.notes);
        let command = "$ fio --direct=1 --name=b --rw=read --name=a\\ job --rw=randrw --output=x\n";
        let found = FioOutput::parse(format!("{command}{text}").as_bytes()).unwrap();
        assert!(found.jobs[0].options.contains(&("rw".into(), "read".into())), "{:?}", found.jobs);
    }

    #[test]
    fn the_page_cache_is_where_the_disks_did_less_than_fio() {
        let with = |text: &str| {
            let found = FioOutput::parse(text.as_bytes()).unwrap();
            let mut options = found.global_options.clone();
            options.extend(found.jobs[0].options.iter().filter(|(name, _)| name == "filename").cloned());
            options.sort();
            let options: Vec<String> = options.iter().map(|(name, value)| format!("{name}={value}")).collect();
            (options.join(" "), found.of_cache().is_some(), found.notes.join("\n"))
        };
        let direct = NEW.replace("ios=24100/1200300", "ios=23600/1190000").replace("1000msec", "10000msec");
        let (options, is_cached, notes) = with(&direct);
        assert_eq!((options.as_str(), is_cached), ("direct=1 filename=/dev/nvme0n1", false));
        assert!(notes.contains("direct=1 is assumed"), "{notes}");
        let (options, is_cached, _) = with(&direct.replace("ios=23600", "ios=23"));
        assert_eq!((options.as_str(), is_cached), ("filename=/dev/nvme0n1", true));
        let short = direct.replace("10000msec", "900msec").replace("ios=23600", "ios=0");
        assert!(!with(&short).1, "fio reads the counters too rarely");
        let merged = direct.replace("ios=23600", "ios=23").replace("merge=0/1", "merge=23506/0");
        assert!(!with(&merged).1, "the kernel made large ones of adjacent ones");
        let command = "$ fio --name=x --filename=/dev/nvme7n1 --rw=read --size=1g --numjobs=2\n";
        let (options, _, notes) = with(&format!("{command}{direct}"));
        assert_eq!(options, "filename=/dev/nvme7n1 size=1g", "no direct");
        assert!(notes.contains("command line in the text"), "{notes}");
        let two =
            FioOutput::parse_all(format!("{command}{direct}$ fio --name=y --direct=1\n{direct}").as_bytes()).unwrap();
        assert_eq!(two.last().unwrap().global_options[0].0, "direct");
    }
}

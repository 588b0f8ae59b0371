//! fio's output for people (`--output-format=normal`) and for old scripts (`terse`, versions 2 to 5).
//!
//! Both say less than the JSON: neither has the job's options. Of these, the banner that fio prints before it starts has
//! `rw`, `bs`, `ioengine` and `iodepth`; the disk statistics name the devices. Source: fio's HOWTO, "Interpreting the output"
//! and "Terse output".

use crate::command_line::{self, CommandLine};
use crate::disks::{self, Disk};
use crate::fio_json::{ALL_CLIENTS, Direction, FioJob, FioOutput};
use crate::fio_terse;
use std::collections::BTreeSet;

/// Most bytes of a text. What fio prints for people is short.
const BYTES_MAX: usize = 4 << 20;

/// The runs of different jobs in a text, or none if it is no output of fio's.
pub(crate) fn parse(text: &[u8]) -> Option<Vec<FioOutput>> {
    let text = String::from_utf8_lossy(&text[..text.len().min(BYTES_MAX)]);
    let mut outputs = normal(&text).or_else(|| Some(vec![fio_terse::parse(&text)?]))?;
    let jobs = outputs.iter_mut().flat_map(|output| &mut output.jobs);
    for direction in jobs.flat_map(|job| &mut job.directions) {
        direction
            .percentiles_ns
            .retain(|(percent, value)| *percent > 0.0 && *percent <= 100.0 && (0.0..1e18).contains(value));
        direction.percentiles_ns.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    let last = outputs.last_mut()?;
    last.notes.push("this is fio's text, and says less than what --output-format=json prints".to_owned());
    Some(outputs)
}

/// The banner of a job.
#[derive(PartialEq, Debug)]
struct Banner {
    /// Empty, unless a client of fio's names it.
    host: String,
    name: String,
    group: i64,
    options: Vec<(String, String)>,
}

/// Most runs of other jobs that one text may hold.
const RUNS_MAX: usize = 1000;

/// What fio prints for people. Of several runs of the same jobs in one text, the last that is whole.
fn normal(text: &str) -> Option<Vec<FioOutput>> {
    let runs = runs(text);
    let mut found: Vec<FioOutput> = Vec::new();
    let mut whole = 0;
    for output in runs.iter().filter_map(|run| one_run(run)) {
        whole += 1;
        let jobs = |output: &FioOutput| -> Vec<_> {
            output.jobs.iter().map(|job| (job.name.clone(), job.group, job.options.clone())).collect()
        };
        let of_this = jobs(&output);
        match found.iter().rposition(|before| jobs(before) == of_this) {
            Some(at) => found[at] = output,
            None if found.len() < RUNS_MAX => found.push(output),
            None => {}
        }
    }
    let count = found.len();
    let last = found.last_mut()?;
    if runs.len() > 1 {
        let which = match (count, whole == runs.len()) {
            (1, true) => "the last is used",
            (1, false) => "the last whole one is used",
            _ => "the last whole one of each of the same jobs is used",
        };
        last.notes.push(format!("{} runs follow each other; {which}", runs.len()));
    }
    Some(found)
}

/// The runs in a text: a command or a banner behind results begins another.
fn runs(text: &str) -> Vec<&str> {
    let (mut runs, mut start, mut at, mut has_results) = (Vec::new(), 0, 0, false);
    for line in text.split_inclusive('\n') {
        let is_banner = line.contains(": (g=") && banner(line.trim()).is_some();
        if has_results && (is_banner || CommandLine::of_line(line).is_some()) {
            runs.push(&text[start..at]);
            (start, has_results) = (at, false);
        }
        has_results |= line.contains(": (groupid=");
        at += line.len();
    }
    runs.push(&text[start..]);
    runs
}

fn one_run(text: &str) -> Option<FioOutput> {
    let mut output = FioOutput::default();
    let mut banners: Vec<Banner> = Vec::new();
    let (mut direction, mut in_disks) = (None, false);
    let mut command = None;
    // A client of fio's prints `<host>` before the banners and before the results of each host.
    let mut host = String::new();
    for line in command_line::lines(text) {
        let line = line.trim();
        if let Some(named) = line.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')) {
            host = named.to_owned();
        } else if let Some(found) = banner(line) {
            banners.push(found);
        } else if banners.is_empty()
            && let Some(found) = CommandLine::of_line(line)
        {
            command = Some(found);
        } else if let Some(job) = head(line, &host, &banners) {
            output.jobs.push(job);
            // Results that `--status-interval` repeats follow the disks of those before.
            (direction, in_disks) = (None, false);
        } else if line.starts_with("fio-") && output.version.is_empty() {
            output.version = line.to_owned();
        } else if line.starts_with("Run status") || line.starts_with("Disk stats") {
            // The sums of all groups look like a job's own lines.
            (direction, in_disks) = (None, line.starts_with("Disk stats"));
        } else if in_disks {
            if let Some(disk) = Disk::of_line(line) {
                output.disks.retain(|before| before.name != disk.name || before.host != host);
                output.disks.push(Disk { host: host.clone(), ..disk });
            }
        } else if let Some(job) = output.jobs.last_mut() {
            detail(job, &mut direction, line);
        }
    }
    if output.jobs.len() > 1 {
        output.jobs.retain(|job| job.name != ALL_CLIENTS);
    }
    let is_whole = |job: &FioJob| job.error != 0 || job.user_percent.is_some();
    let count = output.jobs.len();
    output
        .jobs
        .retain(|job| is_whole(job) && (job.error != 0 || job.directions.iter().any(|part| part.runtime_ms > 0.0)));
    if output.jobs.len() < count {
        output.notes.push(format!("{} of {count} jobs did nothing, or are cut off", count - output.jobs.len()));
    }
    if output.jobs.is_empty() {
        return None;
    }
    add_options(&mut output, command);
    Some(output)
}

/// Adds what the banners lack: the options of the command line, or else the drives, without a cache in front of them.
fn add_options(output: &mut FioOutput, command: Option<CommandLine>) {
    let (is_known, command) = (command.is_some(), command.unwrap_or_default());
    let is_new = |(name, _): &(String, String)| !OF_BANNER.contains(&name.as_str());
    output.global_options = command.global.into_iter().filter(is_new).collect();
    for (name, options) in command.jobs {
        let of_name = output.jobs.iter_mut().filter(|job| job.name == name);
        of_name.for_each(|job| job.options.extend(options.iter().filter(|option| is_new(option)).cloned()));
    }
    let is_file = |(name, _): &(String, String)| matches!(name.as_str(), "filename" | "directory");
    if !output.global_options.iter().any(is_file) {
        let hosts: BTreeSet<String> = output.jobs.iter().map(|job| job.host.clone()).collect();
        hosts.iter().for_each(|host| add_drives(output, host));
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

/// `name: (g=0): rw=randread, bs=(R) 4096B-4096B, (W) …, ioengine=libaio, iodepth=32`
fn banner(line: &str) -> Option<Banner> {
    let (name, rest) = line.split_once(": (g=")?;
    let (host, name) = name.strip_prefix('<').and_then(|name| name.split_once("> ")).unwrap_or(("", name));
    let (group, rest) = rest.split_once("): ")?;
    let value = |key: &str| rest.split(", ").find_map(|part| part.strip_prefix(key)?.strip_prefix('='));
    let mut options: Vec<(String, String)> = ["rw", "ioengine", "iodepth"]
        .iter()
        .filter_map(|key| Some(((*key).to_owned(), value(key)?.to_owned())))
        .collect();
    // Reads, writes, trims: `bs=(R) 4096B-64.0KiB, (W) …` or, before version 2.99, `bs=4K-4K/4K-4K/4K-4K`.
    let sizes = rest.split_once("bs=")?.1.split(", ioengine").next()?;
    let sizes = sizes.split([',', '/']).map(|size| size.trim().trim_start_matches(|c: char| !c.is_ascii_digit()));
    let mut sizes: Vec<Vec<String>> = sizes.filter(|size| !size.is_empty()).map(ends).collect();
    if sizes.iter().all(|size| *size == sizes[0]) {
        sizes.truncate(1);
    }
    let is_fixed = sizes.iter().all(|size| size.first() == size.last());
    let text =
        |size: &Vec<String>| if is_fixed { size[0].clone() } else { format!("{}-{}", size[0], size[size.len() - 1]) };
    let key = if is_fixed { "bs" } else { "bsrange" };
    options.push((key.to_owned(), sizes.iter().map(text).collect::<Vec<_>>().join(",")));
    Some(Banner { host: host.to_owned(), name: name.to_owned(), group: group.parse().unwrap_or(0), options })
}

/// The bytes of `4096B-64.0KiB`, which no job file would say so.
fn ends(size: &str) -> Vec<String> {
    size.split('-').map(|end| bytes(end).map_or(end.to_owned(), |bytes| format!("{bytes:.0}"))).collect()
}

/// `name: (groupid=0, jobs=4): err= 0: pid=123: …`
fn head(line: &str, host: &str, banners: &[Banner]) -> Option<FioJob> {
    let (name, rest) = line.split_once(": (groupid=")?;
    let (group, rest) = rest.split_once("): err=")?;
    let (group, jobs) = group.split_once("jobs=")?;
    let (group, jobs) = (group.trim().trim_end_matches(',').parse().unwrap_or(0), jobs.trim().parse::<u32>().ok());
    let error = rest.trim_start().split(|c: char| !c.is_ascii_digit() && c != '-').next()?.parse().ok()?;
    let of_host = || banners.iter().filter(|banner| banner.host == host);
    let first = of_host().find(|banner| banner.name == name);
    let mut options = first.map(|banner| banner.options.clone()).unwrap_or_default();
    // Other sections of the group have banners of their own: these options are then not those of all its threads.
    let is_section = first.is_some_and(|first| of_host().all(|one| one.group != first.group || one == first));
    if let Some(jobs) = jobs.filter(|jobs| *jobs > 1 && is_section) {
        options.push(("numjobs".to_owned(), jobs.to_string()));
        options.push(("group_reporting".to_owned(), "1".to_owned()));
    }
    let threads = jobs.map(f64::from);
    Some(FioJob { name: name.to_owned(), host: host.to_owned(), group, error, options, threads, ..FioJob::default() })
}

/// A line below a job's head.
fn detail(job: &mut FioJob, direction: &mut Option<usize>, line: &str) {
    let names = [("read", 0), ("write", 1), ("trim", 2), ("mixed", 0)];
    let begun =
        names.iter().find_map(|(name, at)| Some((line.strip_prefix(name)?.trim_start().strip_prefix(':')?, *at)));
    if let Some((rest, at)) = begun {
        *direction = Some(at);
        begin(&mut job.directions[at], rest);
        return;
    }
    if let Some(rest) = line.strip_prefix("cpu").and_then(|rest| rest.trim_start().strip_prefix(':')) {
        let percent = |key| value(rest, key)?.trim_end_matches('%').parse().ok();
        (job.user_percent, job.system_percent) = (percent("usr="), percent("sys="));
        *direction = None;
    } else if line.starts_with("issued") {
        issued(job, line);
    } else if let Some(direction) = direction.map(|at| &mut job.directions[at]) {
        latency(direction, line);
    }
}

/// ` IOPS=234k, BW=914MiB/s (958MB/s)(17.9GiB/20001msec)` or ` io=1024.0MB, bw=10240KB/s, iops=2560, runt=102400msec`
fn begin(direction: &mut Direction, rest: &str) {
    direction.iops = value(rest, "IOPS=").or(value(rest, "iops=")).and_then(scaled).unwrap_or(0.0);
    // Since version 2.99 both are printed, in units of 1024 and 1000; `kb_base` tells which comes first.
    let in_brackets = rest.split_once(" (").and_then(|(_, other)| other.split(')').next());
    let in_1024 = in_brackets.filter(|other| other.contains('i') && other.ends_with("/s"));
    let first = value(rest, "BW=").or(value(rest, "bw="));
    direction.bandwidth_bps = in_1024.or(first).and_then(bytes).unwrap_or(0.0);
    let runtime = rest.rsplit_once("msec").map(|(before, _)| before.trim_end());
    let digits = runtime.map(|text| text.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or_default());
    direction.runtime_ms = digits.and_then(|digits| digits.parse().ok()).unwrap_or(0.0);
    direction.ios = (direction.iops * direction.runtime_ms / 1000.0).round() as u64;
}

/// `clat (usec): min=2, max=39107, avg=124.11, stdev=778.49`, or the percentiles' lines.
fn latency(direction: &mut Direction, line: &str) {
    if let Some(unit) = line.strip_prefix("clat percentiles (") {
        // The unit of the lines that follow stands in for a value until they come.
        direction.percentiles_ns = vec![(0.0, unit_ns(unit))];
    } else if let Some(values) = line.strip_prefix('|') {
        let Some(&(_, unit_ns)) = direction.percentiles_ns.first() else { return };
        let pairs = values.split(']').filter_map(|pair| {
            let (percent, value) = pair.split_once("th=[")?;
            let percent = percent.trim_start_matches([',', ' ', '|']).parse().ok()?;
            Some((percent, value.trim().trim_start_matches(">=").parse::<f64>().ok()? * unit_ns))
        });
        direction.percentiles_ns.extend(pairs);
    } else if let Some((name, rest)) = line.split_once('(')
        && let Some(mean) = value(rest, "avg=").and_then(scaled)
    {
        let mean = Some(mean * unit_ns(rest)).filter(|mean| mean.is_finite());
        match name.trim() {
            "slat" => direction.slat_ns = mean,
            "clat" => direction.clat_ns = mean,
            "lat" => (direction.lat_ns, direction.clat_ns) = (mean, direction.clat_ns.or(mean)),
            _ => {}
        }
    }
    if line.starts_with("bw ") || line.starts_with("iops") {
        direction.percentiles_ns.retain(|(percent, _)| *percent > 0.0);
    }
}

/// `issued rwts: total=23529,23691,0,0 …` or `issued : total=r=262144/w=0/d=0, …`: exact, where the rate is rounded.
fn issued(job: &mut FioJob, line: &str) {
    let Some((_, totals)) = line.split_once("total=") else { return };
    // A line that is cut off may end within a number.
    let Some((totals, _)) = totals.split_once("short") else { return };
    let totals = totals.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse::<u64>().ok());
    for (direction, total) in job.directions.iter_mut().zip(totals) {
        direction.percentiles_ns.retain(|(percent, _)| *percent > 0.0);
        if direction.runtime_ms > 0.0 {
            direction.ios = total;
            direction.iops = total as f64 / direction.runtime_ms * 1000.0;
        }
    }
}

/// The text behind `key`, up to what cannot belong to a number and its unit.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let rest = text.split_once(key)?.1.trim_start();
    Some(rest.split([',', ' ', '(', ')', ';']).next().unwrap_or_default())
}

/// `23.5k`
fn scaled(text: &str) -> Option<f64> {
    let (number, scale) = match text.char_indices().last()? {
        (at, 'k' | 'K') => (&text[..at], 1e3),
        (at, 'm' | 'M') => (&text[..at], 1e6),
        (at, 'g' | 'G') => (&text[..at], 1e9),
        _ => (text, 1.0),
    };
    number.parse::<f64>().ok().map(|number| number * scale).filter(|number| (0.0..1e18).contains(number))
}

/// `91.8MiB/s`, or before version 2.99 `91.8MB/s` with the same meaning: fio counts in 1024 unless it is told otherwise.
fn bytes(text: &str) -> Option<f64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let power = text[digits..].chars().next().and_then(|unit| "KMGT".find(unit.to_ascii_uppercase()));
    let power = power.map_or(0, |power| power + 1);
    // With `--unit_base=1`.
    let scale = if text[digits..].contains("bit") { 1.0 / 8.0 } else { 1.0 };
    let bytes = text[..digits].parse::<f64>().ok()? * 1024f64.powi(power as i32) * scale;
    Some(bytes).filter(|bytes| (0.0..1e18).contains(bytes))
}

/// Nanoseconds of the unit in `usec)`.
fn unit_ns(text: &str) -> f64 {
    match text.split(')').next().unwrap_or_default().trim() {
        "nsec" => 1.0,
        "msec" => 1e6,
        "sec" => 1e9,
        _ => 1e3,
    }
}

#[cfg(test)]
mod tests;

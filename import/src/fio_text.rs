//! fio's output for people (`--output-format=normal`) and for old scripts (`terse`, versions 2 to 5).
//!
//! Both say less than the JSON: neither has the job's options. Of these, the banner that fio prints before it starts has
//! `rw`, `bs`, `ioengine` and `iodepth`; the disk statistics name the devices. Source: fio's HOWTO, "Interpreting the output"
//! and "Terse output".

use crate::command_line::{self, CommandLine};
use crate::disks::Disk;
use crate::fio_banner::{Banner, banner, head, joined};
use crate::fio_job::rest_of;
use crate::fio_json::{ALL_CLIENTS, Direction, FioJob, FioOutput};
use crate::fio_results::Results;
use crate::fio_terse;
use crate::text_options::add_options;

/// Most bytes of a text. What fio prints for people is short.
const BYTES_MAX: usize = 4 << 20;

/// The runs of different jobs in a text, or none if it is no output of fio's.
pub(crate) fn parse(text: &[u8]) -> Option<Vec<FioOutput>> {
    let text = joined(&String::from_utf8_lossy(&text[..text.len().min(BYTES_MAX)]));
    let mut outputs = normal(&text).or_else(|| fio_terse::parse(&text))?;
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
    let mut results = Results::default();
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
            results.begin(job);
            (direction, in_disks) = (None, false);
        } else if line.starts_with("fio-") && output.version.is_empty() {
            output.version = line.to_owned();
        } else if line.starts_with("Run status") || line.starts_with("Disk stats") {
            // The sums of all groups look like a job's own lines.
            results.end();
            (direction, in_disks) = (None, line.starts_with("Disk stats"));
        } else if in_disks {
            if let Some(disk) = Disk::of_line(line) {
                output.disks.retain(|before| before.name != disk.name || before.host != host);
                output.disks.push(Disk { host: host.clone(), ..disk });
            }
        } else if let Some(job) = results.jobs.last_mut() {
            detail(job, &mut direction, line);
        }
    }
    if results.jobs.len() > 1 {
        results.jobs.retain(|job| job.name != ALL_CLIENTS);
    }
    (output.jobs, output.notes) = results.whole();
    if output.jobs.is_empty() {
        return None;
    }
    add_options(&mut output, command);
    Some(output)
}

/// A line below a job's head.
fn detail(job: &mut FioJob, direction: &mut Option<usize>, line: &str) {
    let names = [("read", 0), ("write", 1), ("trim", 2), ("mixed", 0)];
    let begun =
        names.iter().find_map(|(name, at)| Some((line.strip_prefix(name)?.trim_start().strip_prefix(':')?, *at)));
    if let Some((rest, at)) = begun {
        let is_sum = line.starts_with("mixed");
        // With `unified_rw_reporting=both` it stands behind its parts.
        if is_sum && job.directions.iter().any(|part| part.runtime_ms > 0.0) {
            *direction = None;
            return;
        }
        job.is_sum |= is_sum;
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
    } else if line.starts_with("fsync/fdatasync") {
        // The percentiles below are the syncs', and no direction's.
        *direction = None;
    } else if let Some(statistics) = line.strip_prefix("sync (") {
        let mean = value(statistics, "avg=").as_deref().and_then(scaled);
        job.syncs.lat_ns = mean.map(|mean| mean * unit_ns(statistics)).filter(|mean| mean.is_finite());
    } else if let Some(direction) = direction.map(|at| &mut job.directions[at]) {
        latency(direction, line);
    }
}

/// ` IOPS=234k, BW=914MiB/s (958MB/s)(17.9GiB/20001msec)` or ` io=1024.0MB, bw=10240KB/s, iops=2560, runt=102400msec`
fn begin(direction: &mut Direction, rest: &str) {
    let of_old = rest.contains("runt=").then(|| without_groups(rest));
    let rest = of_old.as_deref().unwrap_or(rest);
    direction.iops = value(rest, "IOPS=").or(value(rest, "iops=")).as_deref().and_then(scaled).unwrap_or(0.0);
    // Since version 2.99 both are printed, in units of 1024 and 1000; `kb_base` tells which comes first.
    let in_brackets = rest.split_once(" (").and_then(|(_, other)| other.split(')').next());
    // `MiB`, or `Mibit`; `Mbit` is of 1000.
    let is_in_1024 = |other: &&str| (other.contains("iB") || other.contains("ib")) && other.ends_with("/s");
    let in_1024 = in_brackets.filter(is_in_1024);
    let first = value(rest, "BW=").or(value(rest, "bw="));
    direction.bandwidth_bps = in_1024.or(first.as_deref()).and_then(bytes).unwrap_or(0.0);
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
        && let Some(mean) = value(rest, "avg=").as_deref().and_then(scaled)
    {
        let mean = Some(mean * unit_ns(rest)).filter(|mean| mean.is_finite());
        match name.trim() {
            "slat" => direction.slat_ns = mean,
            "clat" => direction.clat_ns = mean,
            "lat" => {
                direction.lat_ns = mean;
                direction.clat_ns = direction.clat_ns.or(rest_of(mean, direction.slat_ns));
            }
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
    let mut totals = totals.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse::<u64>().ok());
    for (direction, total) in job.directions.iter_mut().zip(totals.by_ref()) {
        direction.percentiles_ns.retain(|(percent, _)| *percent > 0.0);
        if direction.runtime_ms > 0.0 {
            direction.ios = total;
            direction.iops = total as f64 / direction.runtime_ms * 1000.0;
        }
    }
    // Since version 3.
    job.syncs.count = totals.next().unwrap_or(0);
}

/// A line without the commas that version 1 puts between groups of digits: `io=1,024MB`.
fn without_groups(line: &str) -> String {
    let is_digit = |at: Option<usize>| at.and_then(|at| line.as_bytes().get(at)).is_some_and(u8::is_ascii_digit);
    let kept = line.char_indices().filter(|&(at, sign)| {
        sign != ','
            || !is_digit(at.checked_sub(1))
            || !(1..4).all(|more| is_digit(Some(at + more)))
            || is_digit(Some(at + 4))
    });
    kept.map(|(_, sign)| sign).collect()
}

/// The text behind `key`, up to what cannot belong to a number and its unit. A comma before a digit is a decimal point of another
/// language: fio has a blank behind the commas between its figures.
fn value(text: &str, key: &str) -> Option<String> {
    let rest = text.split_once(key)?.1.trim_start();
    let is_point = |at: usize| rest[at + 1..].starts_with(|next: char| next.is_ascii_digit());
    let own = rest.char_indices().take_while(|&(at, sign)| match sign {
        ',' => is_point(at),
        _ => !matches!(sign, ' ' | '(' | ')' | ';'),
    });
    Some(own.map(|(_, sign)| if sign == ',' { '.' } else { sign }).collect())
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
pub(crate) fn bytes(text: &str) -> Option<f64> {
    let text = &text.replace(',', ".");
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
pub(crate) mod tests {
    use super::*;
    use crate::fio_terse::tests::line;
    use proptest::prelude::*;

    pub(crate) const NEW: &str =
        "a job: (g=0): rw=randrw, bs=(R) 4096B-4096B, (W) 4096B-4096B, (T) 4096B-4096B, ioengine=libaio, iodepth=4
...
fio-3.33
Starting 2 processes

a job: (groupid=0, jobs=2): err= 0: pid=27398: Mon Nov 23 13:02:56 2026
  read: IOPS=23.5k, BW=91.8MiB/s (96.3MB/s)(91.9MiB/1000msec)
    slat (nsec): min=1151, max=6021.5k, avg=56275.81, stdev=195458.86
    clat (usec): min=2, max=39107, avg=124.11, stdev=778.49
     lat (usec): min=8, max=39109, avg=180.38, stdev=809.67
    clat percentiles (usec):
     |  1.00th=[    9],  5.00th=[   10], 10.00th=[   11], 20.00th=[   12],
     | 99.99th=[27657]
   bw (  KiB/s): min=86288, max=86288, per=91.77%, avg=86288.00, stdev= 0.00, samples=2
  write: IOPS=1.2M, BW=4.5GiB/s (4.8GB/s)(4.5GiB/1000msec); 0 zone resets
    clat (msec): min=7, max=38917, avg=1.5K, stdev=825.19
  lat (usec)   : 4=0.01%, 10=9.17%, 20=29.75%, 50=8.12%, 100=16.63%
  cpu          : usr=2.60%, sys=21.05%, ctx=12698, majf=0, minf=25
     issued rwts: total=23529,1200001,0,0 short=0,0,0,0 dropped=0,0,0,0

Run status group 0 (all jobs):
   READ: bw=91.8MiB/s (96.3MB/s), 91.8MiB/s-91.8MiB/s (96.3MB/s-96.3MB/s), io=91.9MiB (96.4MB), run=1001-1001msec

Disk stats (read/write):
  nvme0n1: ios=24100/1200300, merge=0/1, ticks=1715/2779, in_queue=4494, util=52.61%
";
    const OLD: &str = "b: (g=0): rw=read, bs=4K-4K/8K-8K/4K-4K, ioengine=sync, iodepth=1
fio-2.1.11
b: (groupid=1, jobs=1): err= 5 (file:io_u.c:1, func=x): pid=7: Mon
  read : io=1024.0MB, bw=10240KB/s, iops=2560, runt=100000msec
    clat (usec): min=50, max= 1234, avg=80.00, stdev= 3.10
     lat (usec): min=50, max= 1234, avg=80.25, stdev= 3.10
    clat percentiles (usec):
     |  1.00th=[   73], 99.99th=[>=2000]
  cpu          : usr=1.00%, sys=2.00%, ctx=1, majf=0, minf=2
     issued    : total=r=256001/w=0/d=0, short=r=0/w=0/d=0
";

    #[test]
    fn syncs_are_no_writes() {
        let syncs = "  fsync/fdatasync/sync_file_range:\n    sync (usec): min=98, max=450, avg=170.25, stdev=12.00\n    sync percentiles \
                     (usec):\n     |  1.00th=[  110], 99.99th=[  440]\n  cpu  ";
        let text = NEW.replace("  cpu  ", syncs).replace("1200001,0,0", "1200001,0,1200000");
        let [found, plain] = [&text, NEW].map(|text| FioOutput::parse(text.as_bytes()).unwrap().jobs.remove(0));
        assert_eq!((found.syncs.count, found.syncs.lat_ns), (1_200_000, Some(170_250.0)));
        assert_eq!(found.directions, plain.directions);
        assert_eq!(plain.syncs, crate::fio_job::Syncs::default());
    }

    #[test]
    fn what_fio_prints_for_people_is_read() {
        let found = FioOutput::parse(NEW.as_bytes()).unwrap();
        let [job] = found.jobs.as_slice() else { panic!("{found:?}") };
        assert_eq!((found.version.as_str(), job.name.as_str(), job.error), ("fio-3.33", "a job", 0));
        let (read, write) = (&job.directions[0], &job.directions[1]);
        assert_eq!((read.ios, read.iops, read.runtime_ms), (23_529, 23_529.0, 1000.0));
        assert_eq!((write.iops, write.clat_ns), (1_200_001.0, Some(1.5e9)));
        assert_eq!((read.clat_ns, read.slat_ns, read.lat_ns), (Some(124_110.0), Some(56_275.81), Some(180_380.0)));
        assert_eq!(read.percentiles_ns[0], (1.0, 9000.0));
        assert_eq!((read.percentiles_ns.len(), read.percentiles_ns[4]), (5, (99.99, 27_657_000.0)));
        assert!((read.bandwidth_bps / (91.8 * 1048576.0) - 1.0).abs() < 1e-9);
        assert_eq!((job.user_percent, job.system_percent), (Some(2.6), Some(21.05)));
        let option = |key: &str| {
            job.options
                .iter()
                .chain(&found.global_options)
                .find(|(name, _)| name == key)
                .map(|(_, value)| value.as_str())
        };
        assert_eq!([option("rw"), option("iodepth"), option("numjobs")], [Some("randrw"), Some("4"), Some("2")]);
        assert_eq!([option("bs"), option("filename")], [Some("4096"), Some("/dev/nvme0n1")]);
        assert_eq!(found.notes.len(), 3);
    }

    #[test]
    fn a_decimal_comma_is_a_point() {
        let points = ["23.5k", "91.8MiB/s (96.3MB/s)", "avg=124.11", "usr=2.60%"];
        let commas = points.iter().fold(NEW.to_owned(), |text, part| text.replace(part, &part.replace('.', ",")));
        assert_ne!(commas, NEW);
        assert_eq!(FioOutput::parse(commas.as_bytes()).unwrap().jobs, FioOutput::parse(NEW.as_bytes()).unwrap().jobs);
    }

    #[test]
    fn a_client_prints_the_hosts() {
        let (banner, rest) = NEW.split_once('\n').unwrap();
        let results = rest.split_once("\n\n").unwrap().1;
        let all = results.replace("a job:", "All clients:");
        let text =
            format!("hostname=x, be=0\n<x> {banner}\n<y> {banner}\n<x> Starting\n<x> \n{results}<y> \n{results}{all}");
        let found = FioOutput::parse(text.as_bytes()).unwrap();
        let hosts: Vec<&str> = found.jobs.iter().map(|job| job.host.as_str()).collect();
        assert_eq!((hosts.as_slice(), found.disks.len()), (&["x", "y"][..], 2));
        assert!(found.jobs.iter().all(|job| job.options.len() == 7), "{:?}", found.jobs);
    }

    #[test]
    fn older_texts_are_read() {
        let found = FioOutput::parse(OLD.as_bytes()).unwrap();
        let job = &found.jobs[0];
        assert_eq!((job.group, job.error, found.version.as_str()), (1, 5, "fio-2.1.11"));
        let read = &job.directions[0];
        assert_eq!((read.ios, read.iops, read.clat_ns), (256_001, 2560.01, Some(80_000.0)));
        assert_eq!(read.percentiles_ns, [(1.0, 73_000.0), (99.99, 2_000_000.0)]);
        assert_eq!(read.bandwidth_bps, 10_240.0 * 1024.0);
        assert!(job.options.contains(&("bs".to_owned(), "4096,8192,4096".to_owned())));
        let range = banner("c: (g=0): rw=read, bs=512-4K/4K-4K/4K-4K, ioengine=sync, iodepth=1").unwrap();
        assert!(
            range.options.contains(&("bsrange".to_owned(), "512-4096,4096-4096,4096-4096".to_owned())),
            "{range:?}"
        );
        let new =
            banner("c: (g=0): rw=read, bs=(R) 4096B-64.0KiB, (W) 4096B-64.0KiB, ioengine=sync, iodepth=1").unwrap();
        assert!(new.options.contains(&("bsrange".to_owned(), "4096-65536".to_owned())), "{new:?}");
    }

    #[test]
    fn rates_are_read_in_every_base() {
        for (text, expected) in [
            (" IOPS=1, BW=64.0MiB/s (67.1MB/s)(1MiB/1000msec)", 67_108_864.0),
            (" IOPS=1, BW=67.1MB/s (64.0MiB/s)(1MB/1000msec)", 67_108_864.0),
            (" IOPS=1, BW=537Mbit/s (512Mibit/s)(1MB/1000msec)", 67_108_864.0),
            (" io=8MB, bw=65536KB/s, iops=1, runt=  1000msec", 67_108_864.0),
            (" io=8,192KB, bw=65,536KB/s, iops=1,600, runt= 1,000msec", 67_108_864.0),
        ] {
            let mut direction = Direction::default();
            begin(&mut direction, text);
            assert_eq!(direction.bandwidth_bps, expected, "{text}");
        }
    }

    #[test]
    fn the_options_of_a_group_of_several_sections_are_not_those_of_all() {
        let (banner, rest) = NEW.split_once('\n').unwrap();
        let threads = |text: &str| {
            let job = FioOutput::parse(text.as_bytes()).unwrap().jobs.remove(0);
            (job.threads, job.options.iter().any(|(name, _)| name == "numjobs"))
        };
        let other = banner.replace("a job", "b").replace("randrw", "read");
        assert_eq!(threads(NEW), (Some(2.0), true));
        assert_eq!(threads(&format!("{banner}\n{other}\n{rest}")), (Some(2.0), false));
        let later = other.replace("(g=0)", "(g=1)");
        assert_eq!(threads(&format!("{banner}\n{later}\n{rest}")), (Some(2.0), true));
    }

    #[test]
    fn of_several_runs_in_one_text_the_last_whole_one_is_read() {
        let disks = "Disk stats (read/write):\n  vda: ios=1/2, util=9%\n";
        let first = format!("{}{disks}", NEW.replace("23529", "11111"));
        let found = FioOutput::parse(format!("{first}{NEW}{disks}").as_bytes()).unwrap();
        assert_eq!((found.jobs.len(), found.jobs[0].directions[0].ios), (1, 23_529), "{found:?}");
        assert!(found.notes.contains(&"2 runs follow each other; the last is used".to_owned()), "{:?}", found.notes);
        let other = NEW.replace("rw=randrw", "rw=randread");
        let both = FioOutput::parse_all(format!("{first}{other}{disks}").as_bytes()).unwrap();
        let ios: Vec<u64> = both.iter().map(|run| run.jobs[0].directions[0].ios).collect();
        assert_eq!(ios, [11_111, 23_529]);
        assert!(both[1].notes.iter().any(|note| note.contains("of each of the same jobs")), "{:?}", both[1].notes);
        let cut = FioOutput::parse(format!("{first}{}", &NEW[..NEW.len() / 2]).as_bytes()).unwrap();
        assert_eq!(cut.jobs[0].directions[0].ios, 11_111);
        assert!(cut.notes.iter().any(|note| note.contains("the last whole one is used")), "{:?}", cut.notes);
    }

    #[test]
    fn what_is_cut_off_has_no_made_up_numbers() {
        let old = OLD.replace("err= 5 (file:io_u.c:1, func=x)", "err= 0");
        for text in [NEW, &old, &line("3")] {
            for length in 0..text.len() {
                let found = parse(&text.as_bytes()[..length]);
                let jobs = found.iter().flatten().flat_map(|found| &found.jobs);
                let whole = parse(text.as_bytes()).unwrap();
                let [whole] = whole.as_slice() else { panic!("{whole:?}") };
                // The CPU's line stands behind all rates; fio's exact counts may be missing.
                let near =
                    |at: usize, iops: f64| (iops / whole.jobs[0].directions[at].iops - 1.0).abs() < 0.01 || iops == 0.0;
                for job in jobs {
                    assert!((0..3).all(|at| near(at, job.directions[at].iops)), "{length} of {text}");
                }
            }
        }
        assert_eq!(parse(b"3;fio-3.1;a;0;0;1;2"), None);
        assert_eq!(parse(b"a: (groupid=0, jobs=1): err= 0: pid=1\n"), None);
    }

    proptest! {
        #[test]
        fn any_damage_is_read_without_a_panic(at in 0..NEW.len(), bytes in proptest::collection::vec(any::<u8>(), 0..9)) {
            for text in [NEW, OLD, &line("5")] {
                let mut text = text.as_bytes().to_vec();
                let at = at % text.len();
                text.splice(at..(at + 4).min(text.len()), bytes.iter().copied());
                let _ = parse(&text);
            }
        }
    }
}

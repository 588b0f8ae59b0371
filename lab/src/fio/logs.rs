//! The log files that a job asks for, in the form of fio 3.33.
//!
//! A line is `time, value, direction, block size, priority`; with `log_offset` the offset stands before the priority.
//! Times are in ms since counting began, latencies in ns, bandwidth in KiB/s.

use super::reporting::{Logs, Reporting};
use super::stat::{Moments, Stat};
use crate::kinds::storage::detail::{Details, Io, Issue, ThreadDetail};
use std::collections::BTreeMap;
use std::fmt::Write;

/// What one log shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bandwidth,
    /// Index into [`Io::latency_ns`].
    Latency(usize),
    Iops,
    Histograms,
    Issues,
}

/// One log of one thread.
struct Log<'a> {
    file: String,
    kind: Kind,
    reporting: &'a Reporting,
    thread: usize,
}

/// How long the span is, and what it stands for.
#[derive(Clone, Copy, Debug)]
pub struct SpanOfLogs {
    /// Simulated and counted, in ns.
    pub measured_ns: u64,
    /// True if it stands for a longer run time of the job.
    pub is_shortened: bool,
}

impl SpanOfLogs {
    /// The window of an average over `asked_ms`. If the span is shorter than ten windows because it stands for a longer
    /// one, the window is a fiftieth of it, at least 1 ms.
    pub fn window_ms(self, asked_ms: u64) -> u64 {
        let span_ms = self.measured_ns / 1_000_000;
        if self.is_shortened && span_ms < asked_ms.saturating_mul(10) { (span_ms / 50).max(1) } else { asked_ms }
    }
}

/// The names of the files that the threads ask for, each once, in order.
pub fn names<'a>(threads: impl Iterator<Item = &'a Reporting>) -> Vec<String> {
    let mut names = Vec::new();
    for log in threads.enumerate().flat_map(|(thread, reporting)| logs_of(thread, reporting)) {
        if !names.contains(&log.file) {
            names.push(log.file);
        }
    }
    names
}

/// Every file with its content, by name. `files`: the names of the drives.
pub fn write<'a>(
    threads: impl Iterator<Item = &'a Reporting>,
    details: &Details,
    files: &[&str],
    span: SpanOfLogs,
) -> BTreeMap<String, String> {
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    let mut issues: BTreeMap<String, Vec<&Issue>> = BTreeMap::new();
    for log in threads.enumerate().flat_map(|(thread, reporting)| logs_of(thread, reporting)) {
        let Some(detail) = details.threads.get(log.thread) else { continue };
        if log.kind == Kind::Issues {
            issues.entry(log.file).or_default().extend(&detail.issues);
        } else {
            texts.entry(log.file.clone()).or_default().push_str(&text(&log, detail, span));
        }
    }
    for (file, mut issues) in issues {
        // Threads that name the same file share it; the order is that of time.
        issues.sort_by_key(|issue| issue.at_ns);
        texts.insert(file, iolog(&issues, files, span));
    }
    texts
}

/// The logs of thread `thread`, which fio counts from 1.
fn logs_of(thread: usize, reporting: &Reporting) -> Vec<Log<'_>> {
    let logs = &reporting.logs;
    let own = [
        (&logs.bw, "bw", Kind::Bandwidth),
        (&logs.lat, "lat", Kind::Latency(2)),
        (&logs.lat, "slat", Kind::Latency(0)),
        (&logs.lat, "clat", Kind::Latency(1)),
        (&logs.iops, "iops", Kind::Iops),
        (&logs.hist, "clat_hist", Kind::Histograms),
    ];
    let named = own.into_iter().filter_map(|(prefix, suffix, kind)| {
        let prefix = match prefix.as_ref()?.as_str() {
            "" => base_name(&reporting.name),
            prefix => base_name(prefix),
        };
        let number = if logs.is_per_job { format!(".{}", thread + 1) } else { String::new() };
        Some(Log { file: format!("{prefix}_{suffix}{number}.log"), kind, reporting, thread })
    });
    let issues = logs.iolog.as_deref().filter(|name| !name.is_empty());
    let issues = issues.map(|name| Log { file: base_name(name).into(), kind: Kind::Issues, reporting, thread });
    named.chain(issues).collect()
}

/// The last part of a path: a job file chooses names in the folder of the logs and no other.
fn base_name(path: &str) -> &str {
    match path.rsplit(['/', '\\']).find(|part| !part.is_empty()) {
        Some("." | "..") | None => "log",
        Some(name) => name,
    }
}

fn text(log: &Log<'_>, detail: &ThreadDetail, span: SpanOfLogs) -> String {
    let logs = &log.reporting.logs;
    let average_ms = |own_ms: u64| match logs.average_ms {
        0 => None,
        ms => Some(span.window_ms(if own_ms == 500 { ms } else { ms.min(own_ms) })),
    };
    match log.kind {
        // fio opens the log of what an engine does not have, and leaves it empty.
        Kind::Latency(0) if detail.log.iter().all(|io| io.latency_ns[0] == 0) => String::new(),
        Kind::Histograms => histograms(detail, logs, span),
        Kind::Latency(kind) => match average_ms(500) {
            Some(ms) => averages(detail, logs, ms, kind),
            None => lines(detail, logs, |io| io.latency_ns[kind]),
        },
        Kind::Bandwidth => match average_ms(log.reporting.average_ms[0]) {
            Some(ms) => rates(detail, logs, ms, |io| io.bytes, |bytes, ms| bytes * 1000 / ms / 1024),
            None => lines(detail, logs, |io| io.bytes * 1_000_000 / io.latency_ns[1].max(1)),
        },
        Kind::Iops => match average_ms(log.reporting.average_ms[1]) {
            Some(ms) => rates(detail, logs, ms, |_| 1, |ios, ms| ios * 1000 / ms),
            None => lines(detail, logs, |_| 1),
        },
        Kind::Issues => String::new(),
    }
}

/// A line for each I/O.
fn lines(detail: &ThreadDetail, logs: &Logs, value: impl Fn(&Io) -> u64) -> String {
    let mut text = String::new();
    for io in &detail.log {
        line(&mut text, logs, (io.at_ns / 1_000_000, value(io), io.direction), (io.bytes, io.offset));
    }
    text
}

fn line(text: &mut String, logs: &Logs, (at_ms, value, direction): (u64, u64, u8), (bytes, offset): (u64, u64)) {
    let offset = if logs.has_offset { format!(", {offset}") } else { String::new() };
    let priority = if logs.has_priority { "0x0000" } else { "0" };
    writeln!(text, "{at_ms}, {value}, {direction}, {bytes}{offset}, {priority}").expect("a String takes all");
}

/// A line for the values of each window and direction, at the first I/O past the window's end.
fn averages(detail: &ThreadDetail, logs: &Logs, window_ms: u64, kind: usize) -> String {
    let mut text = String::new();
    let mut windows = [(0u64, Moments::default()); 3];
    let value = |window: &Moments| if logs.keeps_max { window.max } else { (window.mean + 0.5) as u64 };
    for io in &detail.log {
        let at_ms = io.at_ns / 1_000_000;
        let (since_ms, window) = &mut windows[usize::from(io.direction)];
        window.add(io.latency_ns[kind]);
        if at_ms - *since_ms >= window_ms {
            line(&mut text, logs, (at_ms, value(window), io.direction), (0, 0));
            (*since_ms, *window) = (at_ms - at_ms % window_ms, Moments::default());
        }
    }
    let end_ms = detail.span_ns / 1_000_000;
    for (direction, (_, window)) in windows.iter().enumerate().filter(|(_, (_, window))| window.count > 0) {
        line(&mut text, logs, (end_ms, value(window), direction as u8), (0, 0));
    }
    text
}

/// A line for each whole window and direction with I/Os.
fn rates(
    detail: &ThreadDetail,
    logs: &Logs,
    window_ms: u64,
    each: impl Fn(&Io) -> u64,
    rate: impl Fn(u64, u64) -> u64,
) -> String {
    let mut windows: BTreeMap<u64, [u64; 3]> = BTreeMap::new();
    for io in &detail.log {
        windows.entry(io.at_ns / (window_ms * 1_000_000)).or_default()[usize::from(io.direction)] += each(io);
    }
    let mut text = String::new();
    for (number, sums) in windows {
        let end_ms = (number + 1) * window_ms;
        if end_ms * 1_000_000 > detail.span_ns {
            continue;
        }
        for (direction, sum) in sums.into_iter().enumerate().filter(|(_, sum)| *sum > 0) {
            line(&mut text, logs, (end_ms, rate(sum, window_ms), direction as u8), (0, 0));
        }
    }
    text
}

/// A line for each window and direction: time, direction, block size, and the number of I/Os in each bucket.
fn histograms(detail: &ThreadDetail, logs: &Logs, span: SpanOfLogs) -> String {
    let mut text = String::new();
    if logs.hist_ms == 0 {
        return text;
    }
    let window_ms = span.window_ms(logs.hist_ms);
    let mut windows: [(Option<u64>, Stat); 3] = Default::default();
    for io in &detail.log {
        let at_ms = io.at_ns / 1_000_000;
        let (since_ms, stat) = &mut windows[usize::from(io.direction)];
        stat.add(io.latency_ns[1]);
        let since = *since_ms.get_or_insert(at_ms);
        if at_ms - since >= window_ms {
            let counts: Vec<String> = stat.coarse(1 << logs.hist_coarseness).iter().map(ToString::to_string).collect();
            writeln!(text, "{at_ms}, {}, {}, {}", io.direction, io.bytes, counts.join(", "))
                .expect("a String takes all");
            (*since_ms, *stat) = (Some(since + window_ms), Stat::default());
        }
    }
    text
}

/// Version 3: times in µs, and each file added, opened and closed.
fn iolog(issues: &[&Issue], files: &[&str], span: SpanOfLogs) -> String {
    let mut text = String::from("fio version 3 iolog\n");
    let mut used: Vec<u32> = Vec::new();
    for issue in issues {
        if !used.contains(&issue.drive) {
            used.push(issue.drive);
        }
    }
    let name = |drive: u32| files.get(drive as usize).copied().unwrap_or("unknown");
    for act in ["add", "open"] {
        used.iter().for_each(|&drive| writeln!(text, "0 {} {act}", name(drive)).expect("a String takes all"));
    }
    for issue in issues {
        let direction = ["read", "write", "trim", "sync"][usize::from(issue.direction)];
        let (at_us, file) = (issue.at_ns / 1000, name(issue.drive));
        writeln!(text, "{at_us} {file} {direction} {} {}", issue.offset, issue.bytes).expect("a String takes all");
    }
    let end_us = span.measured_ns / 1000;
    used.iter().for_each(|&drive| writeln!(text, "{end_us} {} close", name(drive)).expect("a String takes all"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: SpanOfLogs = SpanOfLogs { measured_ns: 10_000_000, is_shortened: true };

    fn reporting(logs: Logs) -> Reporting {
        Reporting { name: "a".into(), average_ms: [500, 500], logs, ..Reporting::default() }
    }

    fn io(at_us: u64, direction: u8, clat_ns: u64) -> Io {
        let latency_ns = [100, clat_ns, clat_ns + 100];
        Io { at_ns: at_us * 1000, direction, latency_ns, offset: 8192, bytes: 4096 }
    }

    fn details(log: Vec<Io>) -> Details {
        let issue = Issue { at_ns: 2_500, direction: 1, offset: 4096, bytes: 512, drive: 0 };
        let thread = ThreadDetail { span_ns: 10_000_000, log, issues: vec![issue], ..ThreadDetail::default() };
        Details { threads: vec![thread], ..Details::default() }
    }

    fn written(logs: Logs, log: Vec<Io>) -> BTreeMap<String, String> {
        let reporting = reporting(logs);
        write([&reporting].into_iter(), &details(log), &["/dev/nvme0n1"], SPAN)
    }

    #[test]
    fn files_are_named_as_fio_names_them_and_stay_in_their_folder() {
        let logs = Logs {
            bw: Some("../../etc/run".into()),
            lat: Some(String::new()),
            iolog: Some("/tmp/..".into()),
            is_per_job: true,
            ..Logs::default()
        };
        let shared = Logs { iops: Some("x".into()), is_per_job: false, ..Logs::default() };
        let jobs = [reporting(logs), reporting(shared.clone()), reporting(shared)];
        let expected = ["run_bw.1.log", "a_lat.1.log", "a_slat.1.log", "a_clat.1.log", "log", "x_iops.log"];
        assert_eq!(names(jobs.iter()), expected);
    }

    #[test]
    fn without_averages_each_io_has_a_line() {
        let logs = Logs { bw: Some("r".into()), lat: Some("r".into()), has_offset: true, ..Logs::default() };
        let files = written(logs, vec![io(1_500, 0, 80_000), io(2_000, 1, 40_000)]);
        assert_eq!(files["r_clat.log"], "1, 80000, 0, 4096, 8192, 0\n2, 40000, 1, 4096, 8192, 0\n");
        assert_eq!(files["r_bw.log"], "1, 51200, 0, 4096, 8192, 0\n2, 102400, 1, 4096, 8192, 0\n");
        assert_eq!(files["r_slat.log"].lines().next(), Some("1, 100, 0, 4096, 8192, 0"));
    }

    #[test]
    fn averages_are_over_windows_that_fit_the_span() {
        let logs = Logs {
            lat: Some("r".into()),
            iops: Some("r".into()),
            average_ms: 500,
            has_priority: true,
            ..Logs::default()
        };
        let files = written(logs, vec![io(100, 0, 10), io(200, 0, 21), io(1_200, 0, 50), io(2_900, 0, 7)]);
        assert_eq!(files["r_clat.log"], "1, 27, 0, 0, 0x0000\n2, 7, 0, 0, 0x0000\n", "500 ms became 1 ms");
        assert_eq!(files["r_iops.log"], "1, 2000, 0, 0, 0x0000\n2, 1000, 0, 0, 0x0000\n3, 1000, 0, 0, 0x0000\n");
        assert_eq!((SPAN.window_ms(500), SPAN.window_ms(1)), (1, 1));
        assert_eq!(SpanOfLogs { is_shortened: false, ..SPAN }.window_ms(500), 500);
    }

    #[test]
    fn histograms_and_issues_have_forms_of_their_own() {
        let logs = Logs {
            hist: Some("r".into()),
            hist_ms: 1,
            hist_coarseness: 6,
            iolog: Some("out".into()),
            ..Logs::default()
        };
        let files = written(logs, vec![io(100, 0, 10), io(1_500, 0, 130)]);
        let line = files["r_clat_hist.log"].trim_end();
        assert!(line.starts_with("1, 0, 4096, 1, 0, 1, 0, 0, "), "{line}");
        assert_eq!(line.split(", ").count(), 3 + 29);
        let lines =
            ["0 /dev/nvme0n1 add", "0 /dev/nvme0n1 open", "2 /dev/nvme0n1 write 4096 512", "10000 /dev/nvme0n1 close"];
        assert_eq!(files["out"], format!("fio version 3 iolog\n{}\n", lines.join("\n")));
    }
}

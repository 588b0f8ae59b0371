//! Whether the jobs of a measurement ran at the same time. They are simulated so, and fio's rates, each over the job's own
//! time, are summed.

use crate::fio::FioJob;
use import::fio_json::{self, FioOutput};
use std::collections::BTreeMap;

/// Jobs may begin or end apart by this share of the longest one's time.
const APART_MAX: f64 = 0.05;

/// Jobs that ran for less than this share of the longest one's time ended so early that the others were measured without them.
const SHORT_MAX: f64 = 0.5;

/// # Errors
/// A job began behind the end of another, or clearly later: no sum is the rate of all.
pub(super) fn began(sections: &[FioJob], fio: &FioOutput) -> Result<(), String> {
    let valid = "valid: jobs that run together, or a run of fio's for each";
    if let Some(name) = sections.iter().find_map(|section| section.load.start.wait_for.as_ref()) {
        return Err(format!("a job waited for the end of {name:?} (wait_for), and their rates are no sum; {valid}"));
    }
    let longest_s = fio.jobs.iter().map(runtime_ms).fold(0.0, f64::max) / 1000.0;
    for (apart_s, by) in [(asked_apart_s(sections), "startdelay"), (seen_apart_s(fio), "job_start")] {
        if longest_s > 0.0 && apart_s > longest_s * APART_MAX {
            return Err(format!(
                "jobs began up to {apart_s:.1} s apart ({by}) and ran for {longest_s:.1} s: their rates are no sum; {valid}"
            ));
        }
    }
    match runtimes_s(fio) {
        (shortest_s, longest_s) if shortest_s < longest_s * SHORT_MAX => Err(format!(
            "jobs ran for {shortest_s:.1} to {longest_s:.1} s: their rates are no sum; valid: one runtime for all, or a run of fio's \
             for each"
        )),
        _ => Ok(()),
    }
}

/// The shortest and the longest time that a job measured.
fn runtimes_s(fio: &FioOutput) -> (f64, f64) {
    let times = || fio.jobs.iter().map(|job| runtime_ms(job) / 1000.0).filter(|time_s| *time_s > 0.0);
    (times().fold(f64::INFINITY, f64::min), times().fold(0.0, f64::max))
}

/// By the options.
fn asked_apart_s(sections: &[FioJob]) -> f64 {
    let delays = || sections.iter().map(|section| section.load.start.delay_ns);
    let first = delays().map(|(least, _)| least).min().unwrap_or(0);
    let last = delays().map(|(_, most)| most).max().unwrap_or(0);
    last.saturating_sub(first) as f64 / 1e9
}

/// By what fio printed: the most on one host, since clocks of hosts differ.
fn seen_apart_s(fio: &FioOutput) -> f64 {
    let mut spans: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for (job, start_ms) in fio.jobs.iter().filter_map(|job| Some((job, job.start_ms?))) {
        let (first, last) = spans.entry(&job.host).or_insert((start_ms, start_ms));
        (*first, *last) = (first.min(start_ms), last.max(start_ms));
    }
    spans.values().map(|(first, last)| last - first).fold(0.0, f64::max) / 1000.0
}

/// Why counters over the time of all jobs do not go with the sum of their rates. None if they do.
pub(super) fn ended(fio: &FioOutput) -> Option<String> {
    let (shortest_s, longest_s) = runtimes_s(fio);
    (shortest_s < longest_s * (1.0 - APART_MAX)).then(|| {
        format!(
            "its jobs ran for {shortest_s:.1} to {longest_s:.1} s, and counters of the whole time do not go with the sum of their \
             rates: interrupts and CPU times give no rows; valid: one runtime for all"
        )
    })
}

/// The time that a job measured.
pub(super) fn runtime_ms(job: &fio_json::FioJob) -> f64 {
    job.directions.iter().map(|direction| direction.runtime_ms).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::super::gather::{Parts, Server};
    use super::*;

    /// The server of jobs `a` and `b` that ran for so long, with these options of `b`.
    fn of(runtimes_ms: [u32; 2], options: &str) -> Server {
        let job = |(name, runtime_ms): (&str, u32)| {
            format!(
                r#"{{"jobname": "{name}", "read": {{"iops": 1000, "total_ios": {runtime_ms}, "runtime": {runtime_ms},
                "clat_ns": {{"mean": 5000, "max": 9}}}}}}"#
            )
        };
        let [a, b] = [job(("a", runtimes_ms[0])), job(("b", runtimes_ms[1]))];
        let fio = format!(r#"{{"jobs": [{a}, {b}]}}"#);
        let job = format!("[global]\nfilename=/dev/nvme0n1\nrw=randread\ndirect=1\n[a]\n[b]\n{options}\n");
        let at = |count: u32| format!("CPU0\n 40: {count} IR-PCI-MSIX 1-edge nvme0q1\n PMN: 0 Posted\n");
        let (before, after) = (at(5), at(5005));
        let parts = Parts {
            fio: fio.as_bytes(),
            job: Some(job.as_bytes()),
            interrupts: Some([before.as_bytes(), after.as_bytes()]),
            stat: Some([b"cpu 0 0 0 0", b"cpu 10 0 10 80"]),
            is_enclosed: true,
            ..Parts::default()
        };
        let mut server = Server::default();
        server.add("x", &parts);
        server
    }

    #[test]
    fn jobs_that_do_not_begin_together_are_no_measurement() {
        for (options, said) in [("wait_for=a", "waited for the end of \"a\""), ("startdelay=6", "6.0 s apart")] {
            let server = of([5000, 5000], options);
            let notes = server.notes.join("\n");
            assert!(server.measurements.is_empty() && notes.contains(said), "{options}: {notes}");
        }
        assert_eq!(of([5000, 5000], "startdelay=200ms").measurements.len(), 1);
    }

    #[test]
    fn jobs_that_fio_saw_begin_apart_are_none_either() {
        let of = |hosts: [&str; 2], starts_ms: [u64; 2]| {
            let job = |at: usize| {
                format!(
                    r#"{{"jobname": "{at}", "hostname": "{}", "job_start": {}, "read": {{"iops": 1000, "total_ios": 5000,
                    "runtime": 5000, "clat_ns": {{"mean": 5000, "max": 9}}}}}}"#,
                    hosts[at], starts_ms[at]
                )
            };
            let fio = format!(r#"{{"jobs": [{}, {}]}}"#, job(0), job(1));
            seen_apart_s(&FioOutput::parse(fio.as_bytes()).unwrap())
        };
        assert_eq!(of(["", ""], [1_764_000_000_000, 1_764_000_006_500]), 6.5);
        assert_eq!(of(["a", "b"], [1_764_000_000_000, 1_764_000_006_500]), 0.0, "their clocks differ");
        assert_eq!(of(["", ""], [1_764_000_000_000, 0]), 0.0, "nothing is known of one");
    }

    #[test]
    fn counters_of_jobs_with_unlike_times_are_no_rows() {
        let of = |runtimes| {
            let server = of(runtimes, "");
            let one = &server.measurements[0];
            let rate = one.interrupts.as_ref().unwrap().per_second;
            (rate.is_some(), one.cpu.is_some(), server.notes.join("\n"))
        };
        let (rate, cpu, notes) = of([6000, 10_000]);
        assert!(!rate && !cpu && notes.contains("ran for 6.0 to 10.0 s"), "{notes}");
        let (rate, cpu, notes) = of([9_900, 10_000]);
        assert!(rate && cpu, "{notes}");
    }

    /// For most of its time the longer job had the drive for itself, so no time had the sum of both rates.
    #[test]
    fn rates_of_jobs_with_very_unlike_times_are_no_sum() {
        let server = of([2000, 10_000], "");
        let notes = server.notes.join("\n");
        assert!(
            server.measurements.is_empty() && notes.contains("ran for 2.0 to 10.0 s: their rates are no sum"),
            "{notes}"
        );
    }
}

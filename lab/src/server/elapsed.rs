//! The time between two readings of a measurement's counters.

use super::gather::Parts;
use super::job;
use import::cpu_time::uptime_s;
use import::fio_json::FioOutput;

/// What says how long it took.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Elapsed {
    /// `/proc/uptime` at both readings, in seconds.
    Uptime(f64),
    /// The readings enclose one run of fio's alone, which took so many seconds and did so many I/Os a second.
    Run {
        /// With its ramp.
        seconds: f64,
        /// I/Os a second.
        iops: f64,
        /// `/proc/uptime` at both readings, in seconds, where it says that they are further apart.
        apart_s: Option<f64>,
    },
    /// Nothing does.
    Unknown,
}

/// More interrupts than I/Os are of other work: each I/O has one at most, and those of a ramp may differ by this share.
const RAMP_SLACK: f64 = 1.05;
/// Readings may be further apart than a run by this share, for fio begins and ends outside of what it measures.
const APART_SLACK: f64 = 1.05;
/// Shares of the CPUs' time are the job's up to here: a run of ten seconds and fio's own start.
const DILUTED: f64 = 1.25;

impl Elapsed {
    /// The time between the readings of `parts`.
    pub(super) fn of(fio: &FioOutput, parts: &Parts<'_>) -> Self {
        let uptime = parts.uptime.and_then(|[before, after]| Some(uptime_s(after)? - uptime_s(before)?));
        let uptime = uptime.filter(|seconds| *seconds > 0.0);
        let directions = fio.jobs.iter().flat_map(|job| &job.directions);
        let measured_s = directions.map(|direction| direction.runtime_ms / 1000.0).fold(0.0, f64::max);
        let is_run = parts.is_enclosed && !fio.is_one_of_several && measured_s > 0.0;
        let seconds = measured_s + job::ramp_s(fio, parts);
        match uptime {
            Some(apart_s) if !is_run || apart_s <= seconds * APART_SLACK => Self::Uptime(apart_s),
            None if !is_run => Self::Unknown,
            apart_s => Self::Run { seconds, iops: fio.iops(), apart_s },
        }
    }

    /// Why shares of the CPUs' time between the readings are not the job's. None if they are.
    pub(super) fn is_diluted(self) -> Option<String> {
        let Self::Run { seconds, apart_s: Some(apart_s), .. } = self else { return None };
        if apart_s <= seconds * DILUTED {
            return None;
        }
        Some(format!(
            "its readings are {apart_s:.1} s apart, and the job ran for {seconds:.1} s of them: it is not used"
        ))
    }

    /// So many interrupts, a second. Where no clock says the time, a note says what was taken in its place, or what would do.
    pub(super) fn per_second(self, count: u64, notes: &mut Vec<String>) -> Option<f64> {
        let count = count as f64;
        match self {
            Self::Uptime(seconds) => Some(count / seconds),
            Self::Run { seconds, iops, apart_s } if count / seconds <= iops * RAMP_SLACK => {
                let why = match apart_s {
                    Some(apart_s) => format!("the readings are {apart_s:.1} s apart"),
                    None => "no /proc/uptime says the time between the readings".to_owned(),
                };
                notes.push(format!(
                    "interrupts: {why}; they are taken to enclose the job alone, and its {seconds:.1} s are used; work of others \
                     on its drives would be counted too"
                ));
                Some(count / seconds)
            }
            Self::Run { seconds, iops, .. } => {
                notes.push(format!(
                    "interrupts: {:.0} a second of the job's {seconds:.1} s are more than its {iops:.0} I/Os: the drives had other \
                     work between the readings, or I/Os were split; there is no rate; valid: readings right before and behind the \
                     job, or an archive with /proc/uptime beside each",
                    count / seconds
                ));
                None
            }
            Self::Unknown => {
                notes.push(
                    "interrupts: nothing says the time between the readings, and there is no rate; valid: /proc/uptime beside each \
                     reading, as in an archive of scripts/measure-server, or one run of fio's between the two readings"
                        .to_owned(),
                );
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::gather::Server;
    use super::*;

    /// The interrupts a second and the notes of a job of 2 s with 2,000 I/Os and so many interrupts.
    fn of(count: u32, is_enclosed: bool, options: &str, job: Option<&str>) -> (Option<f64>, String) {
        let fio = format!(
            r#"{{"jobs": [{{"jobname": "a", "job options": {{"filename": "/dev/nvme0n1", "rw": "randread", "direct": "1"{options}}},
            "read": {{"iops": 1000, "total_ios": 2000, "runtime": 2000, "clat_ns": {{"mean": 500000, "max": 900000}}}}}}]}}"#
        );
        let at = |count: u32| format!("CPU0\n 40: {count} IR-PCI-MSIX 1-edge nvme0q1\n PMN: 0 Posted\n");
        let (before, after) = (at(5), at(5 + count));
        let interrupts = Some([before.as_bytes(), after.as_bytes()]);
        let parts =
            Parts { fio: fio.as_bytes(), job: job.map(str::as_bytes), interrupts, is_enclosed, ..Parts::default() };
        let mut server = Server::default();
        server.add("x", &parts);
        let rate = server.measurements[0].interrupts.as_ref().and_then(|found| found.per_second);
        (rate, server.notes.join("\n"))
    }

    #[test]
    fn without_a_clock_a_run_between_the_readings_is_one() {
        let (rate, notes) = of(1600, true, "", None);
        assert!(rate == Some(800.0) && notes.contains("its 2.0 s are used"), "{rate:?} {notes}");
        let (rate, notes) = of(1600, false, "", None);
        assert!(rate.is_none() && notes.contains("nothing says the time between the readings"), "{notes}");
        let (rate, notes) = of(2400, true, "", None);
        assert!(rate.is_none() && notes.contains("1200 a second of the job's 2.0 s are more than its 1000"), "{notes}");
    }

    #[test]
    fn counters_around_several_runs_have_no_time() {
        let run = r#"{"jobs": [{"jobname": "a", "read": {"iops": 5, "total_ios": 10, "runtime": 2000}}]}"#;
        let of = |text: &str| {
            let fio = FioOutput::parse(text.as_bytes()).unwrap();
            Elapsed::of(&fio, &Parts { is_enclosed: true, ..Parts::default() })
        };
        assert_eq!(of(run), Elapsed::Run { seconds: 2.0, iops: 5.0, apart_s: None });
        assert_eq!(of(&format!("{run}\n{run}")), Elapsed::Unknown);
    }

    #[test]
    fn readings_long_before_and_after_a_run_have_its_time() {
        let run = r#"{"jobs": [{"jobname": "a", "read": {"iops": 5, "total_ios": 10, "runtime": 2000}}]}"#;
        let fio = FioOutput::parse(run.as_bytes()).unwrap();
        let of = |after: &str, is_enclosed: bool| {
            let uptime = Some([b"10.0 1".as_slice(), after.as_bytes()]);
            Elapsed::of(&fio, &Parts { uptime, is_enclosed, ..Parts::default() })
        };
        assert_eq!(of("12.05 1", true), Elapsed::Uptime(12.05 - 10.0));
        assert_eq!(of("11.5 1", true), Elapsed::Uptime(1.5));
        assert_eq!(of("70.0 1", false), Elapsed::Uptime(60.0));
        let apart = of("70.0 1", true);
        assert_eq!(apart, Elapsed::Run { seconds: 2.0, iops: 5.0, apart_s: Some(60.0) });
        let mut notes = Vec::new();
        assert_eq!(apart.per_second(8, &mut notes), Some(4.0));
        assert!(notes[0].contains("60.0 s apart") && notes[0].contains("its 2.0 s are used"), "{notes:?}");
        assert!(apart.is_diluted().is_some());
        // Fio's start and end.
        assert_eq!(of("12.4 1", true), Elapsed::Run { seconds: 2.0, iops: 5.0, apart_s: Some(12.4 - 10.0) });
        assert!(of("12.4 1", true).is_diluted().is_none());
    }

    #[test]
    fn interrupts_of_a_ramp_came_too() {
        let job = "[a]\nfilename=/dev/nvme0n1\nrw=randread\ndirect=1\nramp_time = 6s\n";
        for (options, job) in [(r#", "ramp_time": "6""#, None), ("", Some(job))] {
            let (rate, notes) = of(6400, true, options, job);
            assert!(rate == Some(800.0) && notes.contains("its 8.0 s are used"), "{rate:?} {notes}");
        }
    }
}

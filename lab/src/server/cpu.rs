//! The CPU time of a measurement: what `/proc/stat` says between its two readings.

use super::elapsed::Elapsed;
use super::gather::{Measurement, Parts};
use super::together::runtime_ms;
use crate::report::figure::counted;
use import::cpu_time::CpuTicks;

/// Least share of the CPUs' time that a note says was stolen, in per cent.
const STOLEN_MIN: f64 = 1.0;

/// user, system, interrupts and idle of all CPUs, in per cent. Notes say what is not used, and why.
pub(super) fn shares(parts: &Parts<'_>, elapsed: Elapsed, notes: &mut Vec<String>) -> Option<[f64; 4]> {
    let pair = parts.stat?;
    let is_one = pair.iter().all(|text| CpuTicks::count(text) < 2);
    let diluted = elapsed.is_diluted();
    let ticks = || Some((CpuTicks::parse(pair[0])?, CpuTicks::parse(pair[1])?));
    let ticks = if is_one && diluted.is_none() { ticks() } else { None };
    let shares = ticks.and_then(|(before, after)| before.shares_until(&after));
    if shares.is_none() {
        let why = match diluted {
            Some(why) => format!(": {why}"),
            None if is_one => " says nothing of the time between the readings".to_owned(),
            None => " has several readings in one file, and is not used".to_owned(),
        };
        notes.push(format!("/proc/stat{why}"));
    }
    let stolen = ticks.and_then(|(before, after)| before.stolen_until(&after)).filter(|share| *share >= STOLEN_MIN);
    notes.extend(stolen.map(|share| {
        format!("/proc/stat: the host gave {share:.0} % of the CPUs' time to others (steal), which is not modelled")
    }));
    shares
}

/// The CPUs whose time `/proc/stat` has, if it names them. In a container it may have fewer than `/proc/interrupts`.
pub(super) fn cpus(parts: &Parts<'_>) -> Option<u32> {
    parts.stat.iter().flatten().filter_map(|text| CpuTicks::cpus(text)).max()
}

/// A note where both files name other numbers of CPUs.
pub(super) fn disagree(of_stat: Option<u32>, of_interrupts: Option<u32>) -> Option<String> {
    let (stat, interrupts) = of_stat.zip(of_interrupts).filter(|(stat, interrupts)| stat != interrupts)?;
    Some(format!(
        "/proc/stat has {}, and /proc/interrupts {interrupts} (a container may see some alone): shares of CPU time are \
         taken of the {stat}",
        counted(stat, "CPU")
    ))
}

/// True if these CPUs ([`Measurement::cpus_of_shares`]) spent clearly more time in user mode than fio says of its threads.
pub(super) fn has_other_work(measurement: &Measurement, cpus: u32) -> bool {
    let (Some([user, ..]), Some(own)) = (measurement.cpu, threads_percent(measurement)) else { return false };
    user > own / f64::from(cpus) * 1.3 + 1.0
}

/// User time of all of fio's threads, in per cent of one CPU's. None if a job does not say its own.
fn threads_percent(measurement: &Measurement) -> Option<f64> {
    let jobs = &measurement.fio.jobs;
    let sections = &measurement.sections;
    let is_alone = jobs.len() as u32 == measurement.threads();
    let longest_ms = jobs.iter().map(runtime_ms).fold(0.0, f64::max);
    let mut sum = 0.0;
    for (at, job) in jobs.iter().enumerate() {
        let threads = if is_alone {
            1.0
        } else if sections.len() == jobs.len() {
            f64::from(sections[at].numjobs)
        } else {
            f64::from(measurement.threads()) / jobs.len() as f64
        };
        let of_time = if longest_ms > 0.0 { runtime_ms(job) / longest_ms } else { 1.0 };
        sum += job.user_percent? * threads * of_time;
    }
    (!jobs.is_empty()).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::super::write::values;
    use super::*;

    fn read(jobs: &[(&str, u32)], stat: [&str; 2], columns: u32) -> (Measurement, String) {
        let job = |(name, user): &(&str, u32)| {
            format!(
                r#"{{"jobname": "{name}", "usr_cpu": {user}, "read": {{"iops": 1000, "total_ios": 2000, "runtime": 2000,
                "clat_ns": {{"mean": 5000, "max": 9}}}}}}"#
            )
        };
        let fio = format!(r#"{{"jobs": [{}]}}"#, jobs.iter().map(job).collect::<Vec<_>>().join(","));
        let sections: String = jobs.iter().map(|(name, _)| format!("[{name}]\n")).collect();
        let text = format!("[global]\nfilename=/dev/nvme0n1\nrw=randread\ndirect=1\n{sections}");
        let header: String = (0..columns).map(|cpu| format!(" CPU{cpu}")).collect();
        let parts = Parts {
            fio: fio.as_bytes(),
            job: Some(text.as_bytes()),
            interrupts: Some([header.as_bytes(); 2]).filter(|_| columns > 0),
            stat: Some(stat.map(str::as_bytes)),
            ..Parts::default()
        };
        let (found, notes) = Measurement::read("x", &parts).unwrap();
        (found, notes.join("\n"))
    }

    #[test]
    fn other_work_is_told_by_all_jobs_in_any_order() {
        let of = |jobs: [(&str, u32); 2]| has_other_work(&read(&jobs, ["cpu 0 0 0 0", "cpu 31 0 18 151"], 0).0, 4);
        assert_eq!([of([("light", 2), ("heavy", 60)]), of([("heavy", 60), ("light", 2)])], [false, false]);
        assert!(of([("light", 2), ("other", 5)]));
    }

    #[test]
    fn shares_are_of_the_cpus_that_stat_has() {
        let stat = |numbers: &str| {
            let cpus: String = (0..4).map(|cpu| format!("cpu{cpu} 1 1 1 1\n")).collect();
            format!("cpu {numbers}\n{cpus}")
        };
        let (found, notes) = read(&[("a", 60)], [&stat("0 0 0 0"), &stat("15 0 10 75")], 64);
        assert!(notes.contains("/proc/stat has 4 CPUs, and /proc/interrupts 64"), "{notes}");
        let seconds = values(&found, Some(64)).into_iter().find(|(quantity, ..)| *quantity == "user_time");
        assert!(seconds.is_some_and(|(_, seconds, _)| (seconds - 0.15 * 4.0 * 33.0).abs() < 1e-9), "{seconds:?}");
    }

    #[test]
    fn stolen_time_is_noted() {
        let (found, notes) = read(&[("a", 60)], ["cpu 0 0 0 0 0 0 0 0", "cpu 20 0 10 20 0 0 0 50"], 0);
        assert_eq!(found.cpu, Some([20.0, 10.0, 0.0, 20.0]));
        assert!(notes.contains("50 % of the CPUs' time to others (steal)"), "{notes}");
    }
}

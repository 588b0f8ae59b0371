//! Jobs that ask for polled queues (`hipri=1`), where interrupts say whether the kernel had any.

use super::delivery::Delivered;
use super::gather::sections;
use crate::fio::FioJob;
use import::fio_json::FioOutput;

/// With so many interrupts for an I/O, the I/Os were not polled. A drive that combines them has one for 8 or so.
const OF_IOS_MIN: f64 = 0.1;

/// A job file and its sections.
type Job = (String, Vec<FioJob>);

/// The job as it ran: without `hipri` where its drives' interrupts served its I/Os. Linux clears the flag where the driver has
/// no polled queues (`nvme.poll_queues=0`), and fio does not learn of it.
pub(super) fn settled(
    (text, parsed): Job,
    interrupts: Option<&Delivered>,
    fio: &FioOutput,
    cpus: Option<u32>,
    notes: &mut Vec<String>,
) -> Job {
    let polls = |section: &FioJob| section.engine.polls();
    let Some(found) = interrupts.filter(|_| parsed.iter().any(polls)) else { return (text, parsed) };
    let Some(rate) = found.per_second else {
        notes.push("interrupts: the job polls (hipri=1): those that came are left out".to_owned());
        return (text, parsed);
    };
    let iops = fio.iops();
    let is_served = rate >= iops * OF_IOS_MIN && parsed.iter().all(polls);
    let plain = is_served.then(|| without_hipri(&text));
    let unpolled = plain.and_then(|plain| Some((sections("job", &plain, cpus.unwrap_or(1)).ok()?, plain)));
    let unpolled = unpolled.filter(|(sections, _)| !sections.iter().any(polls));
    let Some((unpolled, plain)) = unpolled else {
        notes.push(format!(
            "interrupts: the job polls (hipri=1): the {rate:.0} a second that came beside its {iops:.0} I/Os are left out"
        ));
        return (text, parsed);
    };
    notes.push(format!(
        "hipri=1 is not followed: {rate:.0} interrupts a second came for {iops:.0} I/Os, so the driver has no polled queues; \
         nvme.poll_queues=N would make them"
    ));
    (plain, unpolled)
}

fn without_hipri(text: &str) -> String {
    let is_hipri = |line: &&str| line.split('=').next().is_some_and(|key| key.trim() == "hipri");
    text.lines().filter(|line| !is_hipri(line)).map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::gather::{Measurement, Parts};

    /// The delivery, the rate and the notes of a job that polls, at so many interrupts in 2 s beside 100,000 I/Os a second.
    fn of(count: u32, hipri: &str) -> (&'static str, String, String) {
        let at = |count: u32| {
            format!("CPU0 CPU1\n 41: {count} 0 PCI-MSIX 1-edge nvme0q1\n LOC: 1 1 Local\n PMN: 0 0 Posted\n")
        };
        let fio = r#"{"jobs": [{"jobname": "a", "read": {"iops": 100000, "total_ios": 200000, "runtime": 2000,
            "clat_ns": {"mean": 310000, "max": 900000}}}]}"#;
        let job =
            format!("[a]\nioengine=io_uring\n{hipri}\ndirect=1\nrw=randread\niodepth=32\nfilename=/dev/nvme0n1\n");
        let (before, after) = (at(5), at(5 + count));
        let parts = Parts {
            fio: fio.as_bytes(),
            job: Some(job.as_bytes()),
            interrupts: Some([before.as_bytes(), after.as_bytes()]),
            uptime: Some([b"10.0 1", b"12.0 1"]),
            ..Parts::default()
        };
        let (found, notes) = Measurement::read("x", &parts).unwrap();
        (found.delivery(), found.job, notes.join("\n"))
    }

    #[test]
    fn a_job_whose_ios_had_interrupts_did_not_poll() {
        for hipri in ["hipri=1", "hipri", " hipri = 1"] {
            let (delivery, job, notes) = of(100_000, hipri);
            assert_eq!(delivery, "plain", "{notes}");
            assert!(
                !job.contains("hipri") && notes.contains("50000 interrupts a second came for 100000"),
                "{job}{notes}"
            );
        }
    }

    #[test]
    fn few_interrupts_beside_polled_ios_are_left_out_and_said() {
        let (delivery, job, notes) = of(4_000, "hipri=1");
        assert!(delivery == "polled" && job.contains("hipri=1"), "{job}");
        assert!(notes.contains("the 2000 a second that came beside its 100000 I/Os are left out"), "{notes}");
        let (delivery, _, notes) = of(2, "hipri=1");
        assert!(delivery == "polled" && notes.contains("too few") && notes.contains("are left out"), "{notes}");
    }
}

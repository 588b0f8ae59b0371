//! Jobs of a measurement that did no I/O: they load nothing, and are not simulated.

use super::job::names;
use super::part::section_of;
use import::fio_json::{FioJob, FioOutput};

/// Leaves them out, if others did I/Os. Returns a note, and the job file without their sections, if there is one.
pub(super) fn leave_out(fio: &mut FioOutput, job: Option<&[u8]>) -> Option<(String, Option<String>)> {
    let is_idle = |job: &FioJob| {
        let did = |one: &import::fio_json::Direction| one.ios > 0 || one.iops > 0.0;
        !job.directions.iter().any(did) && job.syncs.count == 0
    };
    let all = fio.jobs.len();
    let idle: Vec<FioJob> = fio.jobs.iter().filter(|job| is_idle(job)).cloned().collect();
    if idle.is_empty() || idle.len() == all {
        return None;
    }
    fio.jobs.retain(|job| !is_idle(job));
    let (idle, busy) = (names(&idle), names(&fio.jobs));
    // Of threads of one section, some may have done nothing: the section stays.
    let is_gone = |name: &str| idle.iter().any(|known| known == name) && busy.iter().all(|known| known != name);
    let mut is_kept = true;
    let without = |line: &&str| {
        if let Some(name) = section_of(line) {
            is_kept = !is_gone(name);
        }
        is_kept
    };
    let job = job.map(String::from_utf8_lossy);
    let job = job.map(|text| text.lines().filter(without).map(|line| format!("{line}\n")).collect());
    let note = format!("{} of {all} jobs did no I/O; left out: {}", idle.len(), idle.join(", "));
    Some((note, job))
}

#[cfg(test)]
mod tests {
    use super::super::gather::{Parts, Server};

    #[test]
    fn a_job_that_did_nothing_loads_nothing() {
        let job = |name: &str, iops: u32| {
            format!(
                r#"{{"jobname": "{name}", "job options": {{"name": "{name}", "filename": "/dev/nvme0n1", "rw": "randread"}},
                "read": {{"iops": {iops}, "total_ios": {iops}, "clat_ns": {{"mean": 5000, "max": 9}}}}}}"#
            )
        };
        let fio = format!(r#"{{"jobs": [{}, {}, {}]}}"#, job("a", 100), job("b", 0), job("c", 100));
        let file = "[global]\nfilename=/dev/nvme0n1\nrw=randread\n[a]\n[b]\niodepth=256\n[c]\n";
        for file in [None, Some(file)] {
            let mut server = Server::default();
            server.add("x", &Parts { fio: fio.as_bytes(), job: file.map(str::as_bytes), ..Parts::default() });
            let found = &server.measurements[0];
            assert!(found.threads() == 2 && !found.job.contains("[b]"), "{}", found.job);
            assert_eq!(server.notes, ["x: 1 of 3 jobs did no I/O; left out: b"]);
        }
    }
}

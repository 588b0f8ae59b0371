//! The memory that a simulated server takes. The process reports only its peak, so one test runs all sizes in
//! ascending order.

use lab::bench::peak_memory_mib;
use lab::interrupt::StopFlag;
use lab::kinds::storage::StorageVariant;
use lab::plan::Plan;
use lab::run::run_one;
use lab::scenario::Request;
use std::fmt::Write;
use std::path::Path;

/// The carried scenario of 8 drives, 64 jobs.
fn eight_drives() -> Plan {
    let mut plan = Request::of("spr-8-drives").plan().expect("a carried scenario");
    plan.spans.ramp_ns = 100_000;
    plan.spans.measured_ns = 500_000;
    plan
}

/// 1,024 drives with a CPU, a job and 64 I/Os in flight each. Managed queues would reserve a vector of every drive on
/// every CPU, and a CPU has 203.
fn thousand_drives(folder: &Path) -> Plan {
    let mut jobs = "[global]\nrw=randread\nbs=4k\nioengine=libaio\ndirect=1\niodepth=64\nruntime=30\n".to_owned();
    for drive in 0..1024 {
        write!(jobs, "[job{drive}]\nfilename=/dev/nvme{drive}n1\ncpus_allowed={drive}\n").expect("a String takes all");
    }
    std::fs::write(folder.join("jobs.fio"), jobs).expect("a scratch file");
    let scenario = "platform = \"emr\"\nworkload = \"jobs.fio\"\ncpus = 1024\nramp = \"20 us\"\nduration = \"200 us\"\n\
                    [drives]\nqueues = 1\nmanaged = false\n[set]\nfabric.cpus = \"1024\"\n";
    let path = folder.join("thousand.toml");
    std::fs::write(&path, scenario).expect("a scratch file");
    Request::of(path.display().to_string()).plan().expect("1,024 CPUs and drives are within bounds")
}

/// A job whose threads may sleep, on the first 1 MiB of a drive.
fn extent(folder: &Path) -> Plan {
    let path = folder.join("extent.fio");
    let job = "[a]\nfilename=/dev/nvme0n1\nsize=1m\nrw=randread\nbs=4k\nioengine=libaio\ndirect=1\niodepth=4\nruntime=1\n\
               time_based\n";
    std::fs::write(&path, job).expect("a scratch file");
    let mut plan = Request::of(path.display().to_string()).plan().expect("a job");
    (plan.spans.ramp_ns, plan.spans.measured_ns) = (100_000, 500_000);
    plan
}

#[test]
fn eight_drives_take_less_than_200_mb_and_1024_less_than_2_gb() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let folder = tempfile::tempdir().expect("a scratch folder");
    // Each run frees its machine: 40 that kept it took 245 MB.
    let plan = extent(folder.path());
    let trials = plan.trials();
    for seed in 1..=40 {
        run_one(trials.first().expect("a delivery"), seed, false, &StopFlag::default()).expect("it runs");
    }
    let peak_mib = peak_memory_mib().expect("/proc tells");
    assert!(peak_mib < 120.0, "40 small runs took {peak_mib:.0} MiB");
    for (plan, drives, most_mib) in [(eight_drives(), 8, 200.0), (thousand_drives(folder.path()), 1024, 2048.0)] {
        assert_eq!(plan.storage().unwrap().drives.len(), drives);
        let outcome = run_one(&plan.trial(StorageVariant::Posted).unwrap(), 1, false, &StopFlag::default())
            .expect("it runs")
            .outcome;
        let working = outcome.storage().unwrap().drives.iter().filter(|drive| drive.ios > 0).count();
        assert_eq!(working, drives, "every drive completes something");
        let peak_mib = peak_memory_mib().expect("/proc tells");
        println!("{drives} drives: {peak_mib:.0} MiB");
        assert!(peak_mib < most_mib, "{drives} drives took {peak_mib:.0} MiB, more than {most_mib}");
    }
}

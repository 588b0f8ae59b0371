//! Stock Linux as the baseline: where jobs run, which queue takes an I/O, and on which CPU it completes. Job files are
//! such as a stranger would bring.

mod common;

use common::{mean, outcomes, plan};
use lab::kinds::storage::StorageVariant::{self, Posted, Remapped, RemappedOurs};
use lab::outcome::{Outcome, Summary};

/// Random reads of 4 KiB with these further lines, for a moment, with these settings.
fn run(lines: &str, delivery: StorageVariant, sets: &[&str]) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job.fio");
    std::fs::write(&path, format!("[global]\nrw=randread\nbs=4k\ndirect=1\nioengine=libaio\n{lines}")).unwrap();
    let span = ["ramp=1ms", "duration=2ms"];
    let plan = plan(path.to_str().unwrap(), &[&span[..], sets].concat());
    outcomes(&plan, delivery, 1).remove(0)
}

fn figure(outcome: &Outcome, id: &str) -> f64 {
    mean(&Summary::over(std::slice::from_ref(outcome)).unwrap(), id)
}

const SIXTEEN: &str = "iodepth=64\nnumjobs=8\n[a]\nfilename=/dev/nvme0n1\n[b]\nfilename=/dev/nvme1n1\n";

/// Unpinned jobs spread over the CPUs, each submits to its CPU's queue and completes there: as fast as pinned ones.
#[test]
fn unpinned_jobs_are_as_fast_as_pinned_ones() {
    let pinned = format!("cpus_allowed=0-15\ncpus_allowed_policy=split\n{SIXTEEN}");
    for delivery in [Remapped, Posted] {
        let (free, bound) = (run(SIXTEEN, delivery, &[]), run(&pinned, delivery, &[]));
        let (iops, expected) = (figure(&free, "iops"), figure(&bound, "iops"));
        eprintln!("{delivery}: {iops:.0} unpinned, {expected:.0} pinned, {:?}", free.interrupts);
        assert!((iops / expected - 1.0).abs() < 0.05, "{delivery}: {iops} against {expected}");
        assert!(figure(&free, "local_completions") > 99.0, "{delivery}: {:?}", free.interrupts);
        let busy = free.cpus.iter().filter(|cpu| cpu.busy() > 0.1).count();
        assert_eq!(busy, 16, "{delivery}: a CPU a job");
    }
}

/// A mask is no place: eight jobs share four CPUs, and none of the four idles while a job waits.
#[test]
fn a_mask_of_cpus_is_shared_by_its_jobs() {
    let outcome = run("iodepth=64\ncpus_allowed=0-3\nnumjobs=8\n[a]\nfilename=/dev/nvme0n1\n", Remapped, &[]);
    assert_eq!(outcome.cpus.len(), 4);
    let busy: Vec<f64> = outcome.cpus.iter().map(|cpu| cpu.busy()).collect();
    assert!(busy.iter().all(|&busy| busy > 0.95), "{busy:?}");
    assert!(figure(&outcome, "iops") > 1e6, "{}", figure(&outcome, "iops"));
}

#[test]
fn more_drives_than_cpus_are_all_served() {
    let drives: String = (0..6).map(|drive| format!("[d{drive}]\nfilename=/dev/nvme{drive}n1\n")).collect();
    let outcome = run(&format!("iodepth=8\ncpus_allowed=0-2\n{drives}"), Posted, &["duration=8ms"]);
    let ios: Vec<u64> = outcome.storage().unwrap().drives.iter().map(|drive| drive.ios).collect();
    let (least, most) = (ios.iter().min().unwrap(), ios.iter().max().unwrap());
    assert!(*least * 3 > *most * 2, "{ios:?}");
}

/// The jobs of a drive with one queue run on both sockets. `rq_affinity` decides who completes.
#[test]
fn rq_affinity_chooses_the_cpu_that_completes() {
    let of = |affinity: &str| {
        let sets = ["drives.queues=1", affinity];
        let outcome = run("iodepth=8\nnumjobs=16\n[a]\nfilename=/dev/nvme0n1\n", Remapped, &sets);
        (outcome.interrupts, figure(&outcome, "iops"))
    };
    let (here, domain, submitter) =
        (of("options.rq_affinity=0").0, of("options.rq_affinity=1").0, of("options.rq_affinity=2").0);
    eprintln!("0: {here:?}\n1: {domain:?}\n2: {submitter:?}");
    assert_eq!((here.sent_completions, here.ipis), (0, 0));
    assert!(here.remote_completions > 10 * here.local_completions);
    // Half of the jobs are on the other socket.
    let all = domain.remote_completions + domain.local_completions;
    assert!((0.4..0.6).contains(&(domain.sent_completions as f64 / all as f64)), "{domain:?}");
    assert_eq!(submitter.remote_completions, 0);
    assert!(submitter.sent_completions > domain.sent_completions);
    for counts in [domain, submitter] {
        assert!(counts.ipis > 0 && counts.ipis <= counts.sent_completions, "{counts:?}");
    }
}

/// A CPU that is slow to answer finds many completions on its list: one interrupt carries them.
#[test]
fn an_ipi_carries_what_came_meanwhile() {
    let per_ipi = |idle_wake: &str| {
        let sets = ["drives.queues=1", "options.rq_affinity=2", idle_wake];
        let counts = run("iodepth=64\nnumjobs=2\n[a]\nfilename=/dev/nvme0n1\n", Remapped, &sets).interrupts;
        counts.sent_completions as f64 / counts.ipis as f64
    };
    let (quick, slow) = (per_ipi("cpu.block_softirq=100ns"), per_ipi("cpu.block_softirq=20us"));
    assert!(slow > 1.5 * quick, "{quick} and {slow} completions an IPI");
}

/// Sending completions back costs more than it saves where the lines are cheap to fetch: the case in which
/// `rq_affinity=2` loses.
#[test]
fn sending_back_loses_on_one_socket() {
    let iops = |affinity: &str| {
        let sets = ["drives.queues=2", affinity, "cpus=16"];
        figure(
            &run("iodepth=64\nnumjobs=16\n[a]\nfilename=/dev/nvme0n1\n[b]\nfilename=/dev/nvme1n1\n", Remapped, &sets),
            "iops",
        )
    };
    let (here, submitter) = (iops("options.rq_affinity=0"), iops("options.rq_affinity=2"));
    eprintln!("{here:.0} where they are reaped, {submitter:.0} sent back");
    assert!(submitter < here, "{submitter} against {here}");
}

/// Stock columns never look after a submission; ours do where a queue is shared.
#[test]
fn only_our_columns_check_after_a_submission() {
    let of = |delivery| run(SIXTEEN, delivery, &["drives.queues=4"]).interrupts;
    let (stock, ours) = (of(Remapped), of(RemappedOurs));
    assert_eq!((stock.looks, stock.reaped_by_check), (0, 0));
    assert!(ours.looks > 0 && ours.reaped_by_check > 0, "{ours:?}");
}

/// A drive with polled and interrupting jobs has queues of both kinds.
#[test]
fn polled_and_interrupting_jobs_share_a_drive() {
    let jobs = "iodepth=8\n[a]\nfilename=/dev/nvme0n1\n[b]\nioengine=io_uring\nhipri\nfilename=/dev/nvme0n1\n";
    let outcome = run(&format!("cpus_allowed=0-1\n{jobs}"), Remapped, &[]);
    let counts = outcome.interrupts;
    assert!(counts.reaped_by_interrupt > 0 && counts.reaped_by_poll > 0, "{counts:?}");
}

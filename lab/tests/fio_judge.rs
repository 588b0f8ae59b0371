//! Real fio judges what a simulated job does: the same number of I/Os in each direction, the same bytes, and the same
//! end. Skipped, with a line that says so, where fio is not installed.

mod common;

use common::fio::{self, Counts, counts, judged};
use lab::interrupt::StopFlag;
use lab::kinds::storage::{JobEnd, StorageVariant};
use lab::run;
use lab::scenario::Request;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Jobs that are judged at once: fio mostly sleeps.
const WORKERS: usize = 6;

/// How close the counts must be, and how the job ends here.
#[derive(Clone, Copy)]
enum Same {
    /// To the I/O.
    Exactly(&'static str),
    /// Within so many per cent: the end depends on the clock.
    Within(u64, &'static str),
}
use Same::{Exactly, Within};

const DONE: Same = Exactly("done");

/// Jobs: options in one line, separated by blanks. fio runs them with its null engine.
const JOBS: &[(&str, Same)] = &[
    // Orders and mixes.
    ("rw=read size=1m", DONE),
    ("rw=write size=1m bs=16k", DONE),
    ("rw=randread size=1m", DONE),
    ("rw=randwrite size=2m bs=8k", DONE),
    ("rw=randrw size=1m", DONE),
    ("rw=randrw size=4m rwmixread=70", DONE),
    ("rw=rw size=2m rwmixwrite=30", DONE),
    ("rw=readwrite size=1m bs=4k,8k", DONE),
    ("rw=randrw size=1m randseed=42", DONE),
    ("rw=randrw size=1m random_generator=tausworthe64 rwmixread=20", DONE),
    // Sizes.
    ("rw=write size=1m bsrange=1k-4k", DONE),
    ("rw=read size=2m bssplit=4k/50:16k/50", DONE),
    ("rw=rw size=2m bssplit=4k/50:8k/50,16k/50:32k/50", DONE),
    ("rw=write size=1m bsrange=1k-4k bs_unaligned=1", DONE),
    ("rw=randread size=1m bs=8k blockalign=4k norandommap", DONE),
    ("rw=randread size=2m bssplit=4k/50:16k/50", DONE),
    ("rw=randread size=256k bssplit=4k/60:8k/40", DONE),
    ("rw=randrw size=256k bssplit=8k/:4k/60", DONE),
    ("rw=randread size=1m bssplit=4k/50:16k/50 norandommap", DONE),
    ("rw=randread size=1m bsrange=4k-16k", DONE),
    ("rw=randrw size=1m bsrange=4k-16k", DONE),
    ("rw=randread size=1m bsrange=1k-9k bs_unaligned", DONE),
    ("rw=randrw size=1m bs=4k,16k bs_is_seq_rand=1", DONE),
    ("rw=randrw size=1m bsrange=4k-8k,16k-16k bs_is_seq_rand=1 percentage_random=50", DONE),
    // A shift register of ours visits the blocks in another order.
    ("rw=randread size=1m random_generator=lfsr bsrange=4k-16k", Within(3, "done")),
    // Offsets.
    ("rw=read:4k size=1m", DONE),
    ("rw=randread:8 size=1m norandommap", DONE),
    ("rw=randread:4 size=1m rw_sequencer=identical norandommap", DONE),
    ("rw=randread size=1m percentage_random=40 norandommap", DONE),
    ("rw=randread size=1m random_distribution=zipf:1.2 norandommap", DONE),
    ("rw=randread size=1m random_distribution=pareto:0.3 norandommap", DONE),
    ("rw=randread size=1m random_distribution=normal:20 norandommap", DONE),
    ("rw=randread size=1m random_distribution=zoned:60/10:30/20:10/70 norandommap", DONE),
    ("rw=read size=1m offset=256k", DONE),
    ("rw=read:-8k size=1m", DONE),
    ("rw=randread:0 size=1m norandommap", DONE),
    ("rw=randread:8k size=64m io_size=1m", DONE),
    ("rw=read,write size=1m", DONE),
    ("rw=write bs=4k:8k size=1m", DONE),
    ("rw=rw bs=x,8k size=1m", DONE),
    ("rw=read filename=x filesize=1m size=150%", DONE),
    ("rw=read size=64k thinktime=100ms thinktime_spin=2ms thinktime_blocks=4", DONE),
    // fio 3.33 sleeps for ever if a busy host spins for longer than the whole pause.
    ("rw=randread time_based size=1m runtime=3 thinktime=200ms thinktime_spin=50ms", Within(12, "runtime")),
    ("rw=randread size=1m random_generator=lfsr loops=2", DONE),
    ("rw=randrw size=1m percentage_random=30,60", DONE),
    ("rw=read size=1m offset=50% filesize=2m", DONE),
    ("rw=read size=2m zonemode=strided zonesize=64k zonerange=128k zoneskip=64k", DONE),
    ("rw=randread size=2m zonemode=strided zonesize=64k zonerange=128k", DONE),
    ("rw=rw size=2m zonemode=strided zonesize=64k zoneskip=64k", DONE),
    ("rw=randread size=2m zonemode=strided zonesize=64k zonerange=128k zoneskip=128k io_size=512k", DONE),
    ("rw=randread size=1m random_distribution=zoned_abs:60/256k:30/256k:10/512k norandommap", DONE),
    ("rw=randread size=1m random_distribution=zoned_abs:60/256k:40 norandommap", DONE),
    ("rw=randread size=1m random_distribution=zipf:0 norandommap", DONE),
    ("rw=randrw size=1m bssplit=4k/50:16k/40", DONE),
    ("rw=randrw size=1m bssplit=4k/33:8k/33:16k/33,8k/60:4k/70", DONE),
    ("rw=randrw size=1m rwmixread=90 rwmixwrite=50", DONE),
    // Ends.
    ("rw=read size=1m number_ios=100", DONE),
    ("rw=randrw size=1m number_ios=77 loops=2", DONE),
    ("rw=read size=1m loops=3", DONE),
    ("rw=randread size=512k loops=2", DONE),
    ("rw=read size=1m io_size=256k", DONE),
    ("rw=read size=1m io_size=3m", DONE),
    ("rw=randwrite size=1m io_size=2500k norandommap", DONE),
    ("rw=randread size=1m io_size=3m", DONE),
    ("rw=write size=1m nrfiles=4", DONE),
    ("rw=randread size=1m nrfiles=3 file_service_type=sequential", DONE),
    ("rw=randwrite size=1m nrfiles=5 file_service_type=roundrobin:4", DONE),
    ("rw=write filesize=128k nrfiles=6", DONE),
    ("rw=write size=1m verify=crc32c", DONE),
    ("rw=write size=256k fsync=4", DONE),
    ("rw=randrw size=1m verify=crc32c loops=2", DONE),
    ("rw=randwrite size=1m bsrange=4k-16k verify=crc32c", DONE),
    ("rw=randtrimwrite size=256k bsrange=4k-16k", DONE),
    ("rw=randrw size=1m nrfiles=3 loops=2", DONE),
    ("rw=read fill_device=1 size=1m", DONE),
    ("rw=read size=33% filesize=1m", DONE),
    ("rw=randread size=1m io_size=30% filesize=2m", DONE),
    ("rw=randread size=1m io_submit_mode=offload", DONE),
    ("rw=read size=64m max_latency=1ns rate_iops=100", Exactly("max_latency")),
    ("rw=read size=1m latency_target=1ns latency_window=100ms iodepth=4", Exactly("latency_target_missed")),
    ("rw=read size=1m latency_target=1ns latency_window=100ms latency_percentile=50 iodepth=4 rate_iops=1000", DONE),
    (
        "rw=read size=64m latency_target=1s latency_window=200ms iodepth=4 rate_iops=1000 runtime=5 time_based",
        Within(8, "latency_target"),
    ),
    (
        "rw=read size=64m latency_target=1s latency_window=100ms latency_percentile=99 iodepth=8 rate_iops=1000 runtime=5",
        Within(8, "latency_target"),
    ),
    (
        "rw=read size=64m latency_target=1s latency_window=100ms latency_run=1 iodepth=8 rate_iops=1000 runtime=1",
        Within(8, "runtime"),
    ),
    (
        "rw=read size=64m steadystate=iops:9% steadystate_duration=2 rate_iops=400 runtime=20 time_based",
        Within(12, "steadystate"),
    ),
    (
        "rw=read size=64m steadystate=bw_slope:9% steadystate_duration=2 steadystate_ramp_time=1 rate_iops=400 runtime=20",
        Within(12, "steadystate"),
    ),
    ("rw=read size=64m steadystate=iops:9% rate_iops=400 runtime=1 time_based", Within(5, "runtime")),
    ("rw=read size=64m thinktime=50ms rate_iops_min=100 runtime=6 time_based", Within(25, "rate_min")),
    ("rw=randrw size=64m thinktime=50ms rate_min=800k runtime=6 time_based", Within(25, "rate_min")),
    ("rw=read size=1m ramp_time=100ms rate_iops=1000", Within(10, "done")),
    // Paces, which end by the clock.
    ("rw=read size=64m rate_iops=500 runtime=1 time_based", Within(5, "runtime")),
    ("rw=randwrite size=64m rate=4m runtime=1 time_based", Within(5, "runtime")),
    ("rw=randrw size=64m rate_iops=400,200 runtime=1 time_based", Within(8, "runtime")),
    ("rw=read size=400k rate_iops=200", DONE),
    ("rw=read size=64m rate_iops=500 rate_process=poisson runtime=1 time_based", Within(20, "runtime")),
    ("rw=read size=64m thinktime=50000 runtime=1 time_based", Within(25, "runtime")),
    ("rw=read size=64m thinktime=50ms thinktime_blocks=16 runtime=1 time_based", Within(25, "runtime")),
    ("rw=read size=64m rate_iops=300 runtime=1", Within(5, "runtime")),
    ("rw=read size=64m bssplit=4k/50:16k/50 rate_iops=200 runtime=1 time_based", Within(5, "runtime")),
    ("rw=randrw size=64m rate_iops=300,100 rate_process=poisson runtime=1 time_based", Within(10, "runtime")),
    ("rw=rw size=64m rwmixread=80 rate_iops=200,200 runtime=1 time_based", Within(5, "runtime")),
    ("rw=read size=64m thinktime=10ms thinktime_iotime=100ms rate_iops=1000 runtime=1", Within(8, "runtime")),
    (
        "rw=write size=64m thinktime=50ms thinktime_blocks=4 thinktime_blocks_type=issue runtime=1",
        Within(25, "runtime"),
    ),
    (
        "rw=read size=64m thinktime=50ms rate_iops=1000 rate_ignore_thinktime=1 thinktime_blocks=100 runtime=1",
        Within(15, "runtime"),
    ),
    ("rw=read size=64m rate_iops=400 ramp_time=500ms runtime=1 time_based", Within(8, "runtime")),
    ("rw=read size=64m io_submit_mode=offload rate_iops=500 runtime=1 time_based", Within(5, "runtime")),
];

/// The files of several jobs, whose phases and ends depend on each other, with how each job ends.
const FILES: &[(&str, &[Same])] = &[
    ("[a]\nrw=write\nsize=1m\n[b]\nstonewall\nrw=randread\nsize=512k\n", &[DONE, DONE]),
    ("[a]\nrw=write\nsize=1m\n[a]\nstonewall\nrw=randread\nsize=512k\n", &[DONE, DONE]),
    ("[a]\nrw=write\nsize=1m\n[b]\nwait_for=a\nrw=read\nsize=256k\n[c]\nrw=read\nsize=128k\n", &[DONE, DONE, DONE]),
    ("[a]\nrw=randrw\nsize=512k\nnumjobs=3\n", &[DONE, DONE, DONE]),
    ("[a]\nrw=read\nsize=64k\nstartdelay=300ms\n[b]\nrw=write\nsize=64k\n", &[DONE, DONE]),
    (
        "[a]\nrw=write\nsize=1m\n[b]\nnew_group\nrw=read\nsize=1m\n[c]\nstonewall\nrw=trim\nsize=64k\n",
        &[DONE, DONE, DONE],
    ),
    ("[a]\nrw=randrw\nsize=256k\nnumjobs=3\nbssplit=4k/60:8k/40\n", &[DONE, DONE, DONE]),
    ("[a]\nrw=read\nsize=1m\nloops=2\n[b]\nstonewall\nrw=randread\nsize=1m\nloops=2\nbsrange=4k-8k\n", &[DONE, DONE]),
    ("[a]\nrw=read\nsize=64k\nstartdelay=100ms-300ms\n[b]\nrw=write\nsize=64k\n", &[DONE, DONE]),
    (
        "[a]\nrw=read\nsize=64m\nrate_iops=300\nruntime=1\n[b]\nwait_for_previous\nrw=randread\nsize=256k\n",
        &[Within(5, "runtime"), DONE],
    ),
    // Ends that end others: `exitall` of one job is that of all.
    (
        "[a]\nrw=read\nsize=400k\nrate_iops=200\n[b]\nexitall\nrw=write\nsize=64m\nrate_iops=200\nruntime=4\n",
        &[DONE, Within(10, "stopped")],
    ),
    (
        "[a]\nexitall\nexit_what=all\nrw=read\nsize=400k\nrate_iops=200\n[b]\nrw=write\nsize=64m\nrate_iops=200\nruntime=4\n\
         [c]\nstonewall\nrw=read\nsize=64k\n",
        &[DONE, Within(10, "stopped"), Exactly("stopped")],
    ),
    (
        "[a]\nexitall\nexit_what=stonewall\nrw=read\nsize=400k\nrate_iops=200\n[b]\nrw=write\nsize=64m\nrate_iops=200\nruntime=4\n\
         [c]\nstonewall\nrw=read\nsize=64k\n",
        &[DONE, Within(10, "stopped"), DONE],
    ),
    (
        "[a]\nexitall\nrw=read\nsize=200k\nrate_iops=200\n[b]\nnew_group\nrw=write\nsize=64m\nrate_iops=200\nruntime=1\n",
        &[DONE, Within(5, "runtime")],
    ),
    (
        "[a]\nexitall_on_error\nstartdelay=300ms\nrw=read\nsize=64m\nmax_latency=1ns\n[b]\nrw=write\nsize=64m\nrate_iops=200\nruntime=1\n",
        &[Exactly("max_latency"), Within(50, "stopped")],
    ),
    (
        "[a]\nexitall_on_error\nrw=read\nsize=200k\nrate_iops=200\n[b]\nrw=write\nsize=64m\nrate_iops=200\nruntime=1\n",
        &[DONE, Within(5, "runtime")],
    ),
    // Shares of a flow.
    (
        "[global]\nflow_sleep=500\nruntime=1\nsize=64m\nrw=read\n[a]\nflow=3\nrate_iops=300\n[b]\nflow=1\nrate_iops=900\n",
        &[Within(20, "runtime"), Within(20, "runtime")],
    ),
    (
        "[global]\nflow_sleep=1000\n[a]\nflow=2\nrw=read\nsize=64m\nrate_iops=400\nruntime=1\n\
         [b]\nflow=1\nrw=write\nsize=64m\nrate_iops=900\nruntime=1\n",
        &[Within(20, "runtime"), Within(20, "runtime")],
    ),
    (
        "[global]\nflow_sleep=500\n[a]\nflow=1\nrw=read\nsize=400k\nrate_iops=500\n[b]\nflow=1\nrw=write\nsize=64m\nrate_iops=500\nruntime=1\n",
        &[DONE, Within(20, "runtime")],
    ),
];

/// Jobs on files, by the engines themselves; skipped where fio says that the kernel refuses the engine.
const ON_FILES: &[&str] = &[
    "ioengine=libaio direct=1 rw=randread size=1m iodepth=8 io_submit_mode=offload",
    "ioengine=libaio direct=1 rw=randrw size=1m verify=crc32c iodepth=8",
    "ioengine=libaio direct=1 rw=randread size=1m iodepth=8 loops=2 file_service_type=random nrfiles=3",
    "ioengine=libaio direct=0 rw=randwrite size=1m fsync=16 iodepth=4",
    "ioengine=io_uring direct=1 rw=randread size=1m iodepth=8 sqthread_poll=1",
    "ioengine=psync direct=0 rw=randrw size=1m",
    "ioengine=psync direct=0 rw=write size=1m bs=16k end_fsync=1",
    "ioengine=psync direct=0 rw=randrw size=1m bssplit=4k/70:12k/30",
    "ioengine=sync direct=1 rw=read size=1m zonemode=strided zonesize=64k zonerange=256k zoneskip=0",
];

/// What the simulated jobs do.
fn simulated(folder: &Path, text: &str) -> Vec<JobEnd> {
    let path = folder.join("simulated.fio");
    std::fs::write(&path, text).unwrap();
    let sets = vec!["cpus=2".to_owned()];
    let plan = Request { sets, ..Request::of(path.to_str().unwrap()) }.plan();
    let plan = plan.unwrap_or_else(|error| panic!("{error}\n{text}"));
    let trial = plan.trial(StorageVariant::Remapped).unwrap();
    let outcome =
        run::run_one(&trial, 1, false, &StopFlag::default()).unwrap_or_else(|e| panic!("{e}\n{text}")).outcome;
    outcome.storage().unwrap().ends.clone()
}

/// What differs between fio's job and the simulated one; none if nothing does.
fn difference(fio: &Counts, job: &JobEnd, same: Same) -> Option<String> {
    let (Exactly(reason) | Within(_, reason)) = same;
    let near = |fio: u64, own: u64| match same {
        Exactly(_) => fio == own,
        Within(percent, _) => fio.abs_diff(own) * 100 <= percent * fio.max(20),
    };
    let pairs = fio.0.iter().zip(&job.ios).chain(fio.1.iter().zip(&job.bytes));
    let counts_agree = pairs.into_iter().all(|(&fio, &own)| near(fio, own));
    (!counts_agree || job.reason != reason)
        .then(|| format!("fio {:?} {:?}, simulated {:?} {:?}, ended: {}", fio.0, fio.1, job.ios, job.bytes, job.reason))
}

/// Runs `check` on every item, several at once, and fails with what differs.
fn all_agree<T: Sync>(items: &[T], check: impl Fn(&T) -> Vec<String> + Sync) {
    if !fio::is_there() {
        return;
    }
    let next = AtomicUsize::new(0);
    let work = || {
        let mut wrong = Vec::new();
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            // fio runs by the host's clock: on a busy host a job of its own now and then differs from itself. Ours does not.
            let mut different = check(item);
            for _ in 0..2 {
                if !different.is_empty() {
                    different = check(item);
                }
            }
            wrong.extend(different);
        }
        wrong
    };
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert!(wrong.is_empty(), "{} of {} differ\n{}", wrong.len(), items.len(), wrong.join("\n"));
}

/// What differs in a file with one section.
fn one_job(options: &str, engines: [&str; 2], same: Same) -> Vec<String> {
    // Each in a file of its own: fio draws by a job's place in its file.
    let folder = tempfile::tempdir().unwrap();
    let section = format!("[j]\n{}\n", options.replace(' ', "\n"));
    let [fio, ends] = engines.map(|engine| format!("[global]\n{engine}\n{section}"));
    let (fio, ends) = (counts(&judged(folder.path(), &fio)), simulated(folder.path(), &ends));
    match (&fio[..], &ends[..]) {
        ([fio], [end]) => difference(fio, end, same).map(|how| format!("{options}: {how}")).into_iter().collect(),
        _ => vec![format!("{options}: fio has {} jobs, of the simulated ones {} end", fio.len(), ends.len())],
    }
}

#[test]
fn jobs_do_what_fio_does() {
    all_agree(JOBS, |(options, same)| one_job(options, ["ioengine=null", "direct=1\nioengine=libaio"], *same));
}

#[test]
fn jobs_on_files_do_what_fio_does() {
    all_agree(ON_FILES, |options| {
        let engine = options.split(' ').next().unwrap();
        if refuses(engine) {
            eprintln!("skipped: the kernel refuses {engine}");
            return Vec::new();
        }
        one_job(options, ["", ""], DONE)
    });
}

/// True if the kernel refuses the engine, as some containers do.
fn refuses(engine: &str) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let mut fio = Command::new("timeout");
    let engine = format!("--{engine}");
    fio.args(["60", "fio", "--name=j", "--rw=read", "--size=4k", &engine]).current_dir(folder.path());
    !fio.output().unwrap().status.success()
}

#[test]
fn files_with_phases_and_ends_do_what_fio_does() {
    all_agree(FILES, |(sections, same)| {
        let folder = tempfile::tempdir().unwrap();
        let fio = counts(&judged(folder.path(), &format!("[global]\nioengine=null\n{sections}")));
        let ends = simulated(folder.path(), &format!("[global]\ndirect=1\nioengine=libaio\n{sections}"));
        if (fio.len(), ends.len()) != (same.len(), same.len()) {
            return vec![format!("{sections}: {} jobs of fio, {} simulated", fio.len(), ends.len())];
        }
        let pairs = fio.iter().zip(&ends).zip(*same);
        let how = |((fio, end), same): ((&Counts, &JobEnd), &Same)| {
            difference(fio, end, *same).map(|how| format!("{sections}{}: {how}", end.name))
        };
        pairs.filter_map(how).collect()
    });
}

/// The jobs of a group with `group_reporting` are one report of fio's, and end together.
#[test]
fn a_group_settles_together() {
    if !fio::is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let job = "rw=read\nsize=64m\nsteadystate=iops:9%\nsteadystate_duration=2\nruntime=20\ntime_based\n";
    let sections = format!("group_reporting\n[a]\n{job}rate_iops=300\n[b]\n{job}rate_iops=200\n");
    let fio = counts(&judged(folder.path(), &format!("[global]\nioengine=null\n{sections}")));
    let ends = simulated(folder.path(), &format!("[global]\ndirect=1\nioengine=libaio\n{sections}"));
    let own: u64 = ends.iter().map(|end| end.ios[0]).sum();
    assert!(fio.len() == 1 && own.abs_diff(fio[0].0[0]) * 100 <= 12 * own, "fio {:?}, simulated {own}", fio[0].0);
    assert!(ends.iter().all(|end| end.reason == "steadystate"), "{ends:?}");
}

//! What a report says of the spans that were simulated: whether they hold, and what they stand for.

use lab::fio;
use lab::interrupt::StopFlag;
use lab::kinds::storage::{Detail, Storage};
use lab::outcome::{Summary, Verdict};
use lab::report::{Class, RunReport, table};
use lab::run;
use lab::scenario::Request;

const HEAD: &str = "[global]\nioengine=libaio\ndirect=1\nbs=4k\nrw=randread\nfilename=/dev/nvme0n1\ntime_based\n";

/// The report of a job file in one delivery, and fio's JSON.
fn report(text: &str, delivery: &str) -> (RunReport, serde_json::Value) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job.fio");
    std::fs::write(&path, format!("{HEAD}{text}")).unwrap();
    let (platform, deliveries) = (Some("emr".to_owned()), Some(vec![delivery.into()]));
    let request = Request { platform, deliveries, seeds: Some(1), ..Request::of(path.to_str().unwrap()) };
    let mut plan = request.plan().unwrap();
    plan.work.of_mut::<Storage>().unwrap().experiment.detail = Detail::Figures;
    let outcome = run::run_one(&plan.trials()[0], 1, false, &StopFlag::default()).unwrap().outcome;
    let json = fio::json::document(&plan, &outcome, None).unwrap();
    let mut report = RunReport::new("job", "emr", Class::Predicted, vec![outcome]);
    report.spans = Some(plan.spans);
    (report, serde_json::from_str(&json).unwrap())
}

/// Eight jobs that fill one CPU: within ten milliseconds only some of them get a time slice.
#[test]
fn jobs_that_had_no_turn_make_a_span_too_short() {
    let (report, _) = report("[a]\niodepth=256\nruntime=10\ncpus_allowed=0\nnumjobs=8\n", "remapped");
    let steadiness = report.summaries[0].steadiness.clone().unwrap();
    assert_eq!(steadiness.verdict, Verdict::TooShort, "{steadiness:?}");
    assert!(steadiness.duration_ns >= 24_000_000, "a slice of each: {steadiness:?}");
}

/// Jobs that poll never sleep: each runs its time slices out, and a span needs many of all of them.
#[test]
fn jobs_that_poll_on_one_cpu_have_a_span_of_all_their_slices() {
    let (report, json) =
        report("[a]\nioengine=io_uring\nhipri\nruntime=1\ncpus_allowed=3\nnumjobs=64\ngroup_reporting\n", "polled");
    assert!(report.spans.unwrap().measured_ns >= 4 * 64 * 3_000_000);
    let mean_ns = json["jobs"][0]["read"]["clat_ns"]["mean"].as_f64().unwrap();
    assert!((3.5e6..4.5e6).contains(&mean_ns), "{mean_ns}");
}

/// Ten milliseconds and ten seconds both stand for ten seconds: what both have together is weighted.
#[test]
fn phases_that_are_shortened_unequally_are_weighted() {
    let text = "runtime=10\niodepth=32\ngroup_reporting\n[fast]\n[slow]\nwait_for=fast\nrate_iops=100\n";
    let (report, json) = report(text, "remapped");
    let summary = |index: usize| Summary::over(&[report.outcomes[0].phases[index].outcome.clone()]).unwrap();
    let [fast, slow] = [0, 1].map(|index| summary(index).estimate("iops").unwrap().mean);
    let both = json["jobs"][0]["read"]["iops"].as_f64().unwrap();
    assert!((both / (fast + slow) - 1.0).abs() < 0.01, "{both} of {fast} and {slow}");
    let all = report.summaries[0].estimate("iops").unwrap().mean;
    assert!((all / ((fast + slow) / 2.0) - 1.0).abs() < 0.01, "{all} of {fast} and {slow}");
    assert!(report.summaries[0].estimate("clat").is_none() && report.summaries[0].estimate("cpu_idle").is_none());
    let text = table::run(&report);
    assert!(text.contains("\nShortened by different factors: rates over the time"), "{text}");
    assert!(text.contains("\nShortened, phase 1: simulated 10."), "{text}");
    assert!(!text.contains("Shortened, phase 2"), "all of it is simulated: {text}");
    assert_eq!(text.matches("Bottleneck, ").count(), 2, "one of each phase: {text}");
}

/// A job with a pace is simulated for longer than the span of others, and the line says how long that was.
#[test]
fn the_line_of_a_shortened_phase_has_the_span_that_was_simulated() {
    let (report, _) = report("[a]\niodepth=1\nruntime=1\nnumjobs=250\nthinktime=1ms\n", "remapped");
    let ran = report.outcomes[0].span_ns;
    assert!(ran > 100_000_000, "{ran}");
    let text = table::run(&report);
    assert!(text.contains(&format!("\nShortened: simulated {}", ran / 1_000_000)), "{text}");
}

/// The CPU time of each phase is that of its own jobs.
#[test]
fn a_thread_has_the_cpu_time_of_its_phase_and_never_more_than_a_cpu() {
    let text = "ioengine=io_uring\niodepth=8\ntime_based=0\nnumber_ios=1000\n[polls]\nhipri\ncpus_allowed=0\n\
        [sleeps]\nstonewall\niodepth=1\ncpus_allowed=0\n[null]\nstonewall\nioengine=null\ncpus_allowed=0\n";
    let (_, json) = report(text, "remapped");
    let busy = |index: usize| ["usr_cpu", "sys_cpu"].map(|key| json["jobs"][index][key].as_f64().unwrap());
    let all: Vec<f64> = (0..3).map(|index| busy(index).iter().sum()).collect();
    assert!(all.iter().all(|share| *share <= 100.001), "{all:?}");
    assert!(all[0] > 95.0 && all[1] < 30.0, "{all:?}");
    assert!(busy(2)[0] > 90.0, "the null engine is application code: {json}");
}

/// As fio 3.33 with these jobs: fdatasync and the sync at a job's end are in no count.
#[test]
fn syncs_are_counted_as_fio_counts_them() {
    let text =
        "time_based=0\nsize=1m\nrw=write\n[d]\nfdatasync=1\n[f]\nstonewall\nfsync=4\n[e]\nstonewall\nend_fsync=1\n";
    let (_, json) = report(text, "remapped");
    let syncs = [0, 1, 2].map(|index| json["jobs"][index]["sync"]["total_ios"].as_u64().unwrap());
    assert_eq!(syncs, [0, 63, 0]);
}

/// A run lasts ten minutes at most: a job that begins a day later still has its I/Os.
#[test]
fn a_delay_of_a_day_leaves_a_job_its_ios() {
    let (report, json) = report("[a]\nruntime=1\nstartdelay=1d\n", "remapped");
    assert!(json["jobs"][0]["read"]["total_ios"].as_u64().unwrap() > 100, "{:?}", report.spans);
}

/// fio makes no call that sleeps where a thread of the kernel submits: its jobs share a CPU by time slices.
#[test]
fn a_job_whose_kernel_thread_submits_spins() {
    let one = "[a]\ncpus_allowed=0\n";
    let text = format!("ioengine=io_uring\nsqthread_poll\niodepth=1\n{one}[b]\nstonewall\nnumjobs=4\ncpus_allowed=0\n");
    let (report, json) = report(&text, "remapped");
    let busy = |index: usize, key: &str| json["jobs"][index][key].as_f64().unwrap();
    assert!(busy(0, "usr_cpu") > 80.0, "{}", json["jobs"][0]);
    let mean_ns = |index: usize| json["jobs"][index]["read"]["clat_ns"]["mean"].as_f64().unwrap();
    // A thread's own time begins with its first slice.
    let shares = [1, 2, 3, 4].map(|index| busy(index, "usr_cpu"));
    assert!(shares.iter().all(|share| (15.0..40.0).contains(share)), "{shares:?}: four share one CPU");
    assert!(mean_ns(1) > 3.0 * mean_ns(0), "{} and {}: {:?}", mean_ns(0), mean_ns(1), report.spans);
}

/// Defect: a duration that is set was lengthened for a paced job, or had no effect, without a word.
#[test]
fn a_duration_that_is_not_kept_says_so() {
    let warned = |text: &str| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job.fio");
        std::fs::write(&path, format!("{HEAD}{text}")).unwrap();
        let request = Request { sets: vec!["duration=5ms".into()], ..Request::of(path.to_str().unwrap()) };
        let warnings = request.plan().unwrap().warnings;
        let of_duration = warnings.into_iter().filter(|warning| warning.key == "duration");
        of_duration.map(|warning| warning.meaning).collect::<Vec<_>>()
    };
    let paced = "runtime=10\n[a]\niodepth=8\n[b]\nrate_iops=100\n";
    assert_eq!(warned(paced), ["not kept: 1.998 s are simulated, in which a paced job has its 200 I/Os"]);
    assert_eq!(warned("[a]\ntime_based=0\nsize=1m\n"), ["has no effect: each job runs to its own end"]);
    assert!(warned("runtime=10\n[a]\niodepth=8\n[b]\nstartdelay=2\n").is_empty());
    assert!(warned("runtime=10\n[a]\niodepth=8\n[b]\nstonewall\n").is_empty());
}

/// A job file whose whole runtime is simulated: each job's IOPS, and its reads and writes.
fn whole(text: &str) -> Vec<(f64, [u64; 2])> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job.fio");
    std::fs::write(&path, format!("{HEAD}{text}")).unwrap();
    let deliveries = Some(vec!["remapped".into()]);
    let sets = vec!["duration=runtime".into()];
    let request = Request { sets, deliveries, seeds: Some(1), ..Request::of(path.to_str().unwrap()) };
    let mut plan = request.plan().unwrap();
    plan.work.of_mut::<Storage>().unwrap().experiment.detail = Detail::Figures;
    let outcome = run::run_one(&plan.trials()[0], 1, false, &StopFlag::default()).unwrap().outcome;
    let json: serde_json::Value = serde_json::from_str(&fio::json::document(&plan, &outcome, None).unwrap()).unwrap();
    let ios = |job: &serde_json::Value, way: &str| job[way]["total_ios"].as_u64().unwrap();
    let of = |job: &serde_json::Value| (job["read"]["iops"].as_f64().unwrap(), [ios(job, "read"), ios(job, "write")]);
    json["jobs"].as_array().unwrap().iter().map(of).collect()
}

/// Defect: the ramp of a job was taken from its runtime, and a job alone stood still.
#[test]
fn a_ramp_takes_nothing_of_a_whole_runtime() {
    let of = |ramp: &str| whole(&format!("iodepth=8\n{ramp}runtime=50ms\n[a]\n[b]\nsize=1g\n"));
    let (without, with) = (of(""), of("ramp_time=50ms\n"));
    for ((iops, _), (expected, _)) in with.iter().zip(&without) {
        assert!((iops / expected - 1.0).abs() < 0.05, "{with:?}, and {without:?} without a ramp");
    }
    assert!(whole("ramp_time=50ms\nruntime=50ms\n[a]\nsize=1g\n")[0].0 > 10_000.0);
}

/// Defect: behind a ramp the mix was counted from zero, but held against what was counted before.
#[test]
fn a_ramp_leaves_the_mix() {
    let [reads, writes] =
        whole("rw=randrw\nrwmixread=30\niodepth=8\nramp_time=50ms\nruntime=50ms\n[a]\nsize=1g\n")[0].1;
    let share = reads as f64 / (reads + writes) as f64;
    assert!((0.28..0.32).contains(&share), "{reads} reads and {writes} writes");
}

/// Defect: a `trimwrite` had syncs. fio takes the write of each pair in place of one.
#[test]
fn pairs_of_trims_and_writes_have_no_sync() {
    let syncs = |way: &str| {
        let (_, json) = report(&format!("time_based=0\nsize=1m\nfsync=8\n[a]\nrw={way}\n"), "remapped");
        json["jobs"][0]["sync"]["total_ios"].as_u64().unwrap()
    };
    assert_eq!((syncs("write"), syncs("trimwrite")), (31, 0));
}

/// Defect: plain jobs ran as long as the longest, whatever their runtimes.
#[test]
fn a_plain_job_ends_before_a_longer_one() {
    let ran = whole("rw=read\nbs=1m\niodepth=8\n[a]\nruntime=40ms\n[b]\nruntime=200ms\n");
    let [(a, _), (b, _)] = ran[..] else { panic!("two jobs: {ran:?}") };
    assert!(b > 1.6 * a, "b has the drive for itself in four fifths of its time: {ran:?}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job.fio");
    std::fs::write(&path, format!("{HEAD}[a]\nruntime=10\n[b]\nruntime=600\n")).unwrap();
    let warnings = Request::of(path.to_str().unwrap()).plan().unwrap().warnings;
    let told: Vec<&str> = warnings.iter().filter(|one| one.key == "runtime").map(|one| one.meaning.as_str()).collect();
    assert!(told.len() == 1 && told[0].starts_with("10 s, and others run for 600 s"), "{told:?}");
}

/// Defect: delays were shortened by the longest runtime, and each job ran for a whole span: jobs met that never do.
#[test]
fn jobs_that_never_meet_are_not_simulated_together() {
    let text = "rw=read\nbs=1m\niodepth=8\n[a]\nruntime=360\n[b]\nstartdelay=720\nruntime=1080\n";
    let (_, json) = report(text, "remapped");
    let alone = report("rw=read\nbs=1m\niodepth=8\n[a]\nruntime=360\n", "remapped").1;
    let mean_ns =
        |json: &serde_json::Value, index: usize| json["jobs"][index]["read"]["clat_ns"]["mean"].as_f64().unwrap();
    for job in [0, 1] {
        let ratio = mean_ns(&json, job) / mean_ns(&alone, 0);
        assert!((0.9..1.1).contains(&ratio), "job {job}: {ratio} times the latency of a job alone");
    }
}

/// Defect: a pause behind ten thousand I/Os lay behind the span, whose rate was that without pauses.
#[test]
fn a_span_has_the_pauses_of_a_job_that_thinks() {
    for (pauses, least, most) in [
        // 10,000 I/Os take some 0.16 s.
        ("thinktime=1s\nthinktime_blocks=10000\n", 7_000.0, 11_000.0),
        ("thinktime=300ms\nthinktime_iotime=100ms\n", 10_000.0, 24_000.0),
    ] {
        let (_, json) = report(&format!("[a]\niodepth=4\nruntime=60\n{pauses}"), "remapped");
        let iops = json["jobs"][0]["read"]["iops"].as_f64().unwrap();
        assert!((least..most).contains(&iops), "{pauses}: {iops}");
    }
}

use super::*;
use crate::document::Document;
use crate::kinds::KINDS;
use crate::kinds::storage::{IoEngine, Storage, StorageVariant};

const JOB: &str = "[a]\nfilename=/dev/nvme0n1\ndirect=1\nioengine=libaio\ncpus_allowed=0-1\nrw=randread\niodepth=4\n";

/// Resolves `request` of a scenario `s.toml` with those lines, beside a job file `j.fio`.
fn resolve(lines: &str, job: &str, change: impl FnOnce(&mut Request)) -> Result<Plan, String> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("j.fio"), job).unwrap();
    let path = folder.path().join("s.toml");
    std::fs::write(&path, lines).unwrap();
    let mut request = Request::of(path.to_str().unwrap());
    change(&mut request);
    let prefix = format!("{}/", folder.path().display());
    request.plan().map_err(|error| error.to_string().replace(&prefix, ""))
}

/// A valid scenario with `lines` in it, from line 3.
fn with(lines: &str) -> Result<Plan, String> {
    resolve(&format!("platform = \"emr\"\nworkload = \"j.fio\"\n{lines}"), JOB, |_| {})
}

fn storage(plan: &Plan) -> &Storage {
    plan.storage().expect("a storage experiment")
}

fn variants(plan: &Plan) -> &[StorageVariant] {
    &plan.work.of::<Storage>().expect("a storage experiment").variants
}

/// A delivery that there is not, asked for on the command line.
#[test]
fn a_delivery_that_is_none_is_refused() {
    let error = resolve("platform = \"emr\"\nworkload = \"j.fio\"\n", JOB, |request| {
        request.deliveries = Some(vec!["pigeon".into()]);
    });
    assert_eq!(
        error.unwrap_err(),
        "--delivery: `pigeon` is no delivery; valid: remapped, posted, posted update=150ns, plain, polled, remapped threaded, posted threaded, remapped ours, posted ours"
    );
}

fn set(options: &[&str]) -> Result<Plan, String> {
    resolve("platform = \"emr\"\nworkload = \"j.fio\"\n", JOB, |request| {
        request.sets = options.iter().map(|option| (*option).to_owned()).collect();
    })
}

#[test]
fn every_carried_scenario_resolves() {
    assert!(names().count() >= 20);
    for name in names() {
        let plan = Request::of(name).plan().unwrap();
        assert_eq!(plan.name, name);
        let said: Vec<&str> = plan.warnings.iter().map(|warning| warning.key.as_str()).collect();
        let known: &[&str] = match name {
            // The published job of these says that it saves clock reads, which are not modelled.
            name if name.starts_with("azure") => &["gtod_reduce"],
            // A gain with a constant of its own.
            name if name.starts_with("gic-emag") || name.starts_with("gic-altra") => &["gic.distributor"],
            _ => &[],
        };
        assert_eq!(said, known, "{name}: {:?}", plan.warnings);
    }
}

#[test]
fn what_is_carried_is_what_stands_in_the_project() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios");
    let mut there: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.strip_suffix(".toml").map(str::to_owned))
        .collect();
    let mut carried: Vec<&str> = names().collect();
    there.sort();
    carried.sort_unstable();
    assert_eq!(there, carried);
    let from_disk = Request::of(folder.join("emr-uring.toml").to_str().unwrap()).plan().unwrap();
    let from_program = Request::of("emr-uring").plan().unwrap();
    assert_eq!(storage(&from_disk).drives, storage(&from_program).drives);
    assert_eq!(from_disk.spans, from_program.spans);
    assert_eq!(storage(&from_disk).jobs.len(), storage(&from_program).jobs.len());
}

#[test]
fn the_documented_scenario_resolves_with_every_key() {
    let text = include_str!("../../../docs/scenarios.md");
    let examples: Vec<&str> = text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    // A block a kind of experiment; the first is of a job file.
    let (example, others) = examples.split_first().unwrap();
    let job = include_str!("../../../scenarios/jobs/four-drives-uring.fio");
    let plan = resolve(&example.replace("jobs/four-drives-uring.fio", "j.fio"), job, |_| {}).unwrap();
    assert_eq!((storage(&plan).jobs[0].block_bytes, storage(&plan).rogue_msi_ns), (8192, Some(100_000)));
    for other in others {
        resolve(other, job, |_| {}).unwrap();
    }
    for key in read::keys().into_iter().filter(|key| *key != "jobs") {
        let is_there =
            examples.concat().lines().any(|line| line.starts_with(key) || line.starts_with(&format!("[{key}]")));
        assert!(is_there, "{key} is not documented");
    }
}

#[test]
fn every_key_is_documented_as_it_is_declared() {
    let document = Document::parse("s.toml", "workload = \"j.fio\"\n").unwrap();
    let drafts = KINDS.iter().map(|kind| (kind.draft)(&document.root(), "").unwrap());
    let keys = drafts.flat_map(|draft| draft.keys()).filter(|(key, _)| !key.starts_with("job."));
    let text = include_str!("../../../docs/scenarios.md");
    for (key, about) in keys.chain(common::KEYS.iter().map(key::Key::described)) {
        let name = key.rsplit('.').next().unwrap();
        let says = |line: &str| line.starts_with(&format!("{name} = ")) && line.ends_with(&format!("# {about}"));
        assert!(text.lines().any(says), "{key}: {about}");
    }
}

#[test]
fn the_published_job_has_a_thread_a_cpu_and_eight_a_drive() {
    let plan = Request::of("emr-4-drives").plan().unwrap();
    assert_eq!((plan.cpus, storage(&plan).drives.len(), storage(&plan).jobs.len()), (32, 4, 32));
    for (cpu, job) in storage(&plan).jobs.iter().enumerate() {
        assert_eq!(job.cpus, hal::CpuSet::of(hal::CpuId(cpu as u32)));
        assert_eq!((job.drive, job.iodepth, job.engine), (cpu / 8, 64, IoEngine::Libaio));
    }
    assert_eq!(storage(&plan).jobs[9].name, "drive-b.1");
    assert_eq!(storage(&plan).drives[0].name, "/dev/nvme6n1");
    assert_eq!((storage(&plan).drives[0].queues, storage(&plan).drives[0].queue_entries), (32, 1024));
    assert_eq!(variants(&plan), [StorageVariant::Remapped, StorageVariant::Posted]);
    assert_eq!(plan.seeds, [1, 2, 3]);
    assert_eq!(plan.spans.to_string(), "simulated 10 ms after 2 ms of ramp, standing for 30 s after 3 s");
    let plan = Request::of("spr-8-drives").plan().unwrap();
    assert_eq!((plan.cpus, storage(&plan).drives.len(), storage(&plan).jobs.len()), (64, 8, 64));
    assert_eq!(storage(&plan).jobs[63].cpus.to_string(), "63");
}

#[test]
fn split_counts_threads_over_all_jobs_as_fio_does() {
    let plan = Request::of("emr-low-qd4").plan().unwrap();
    let cpus: Vec<String> = storage(&plan).jobs.iter().map(|job| job.cpus.to_string()).collect();
    assert_eq!(cpus, ["0", "9", "18", "27"]);
    assert!(storage(&plan).jobs.iter().all(|job| job.iodepth == 4));
}

#[test]
fn a_job_file_alone_is_enough() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.fio");
    std::fs::write(&path, "[a]\nfilename=x\ndirect=1\nioengine=libaio\nnumjobs=2\nruntime=5ms\n").unwrap();
    let plan = Request::of(path.to_str().unwrap()).plan().unwrap();
    assert_eq!((plan.name.as_str(), plan.platform.name.as_str(), plan.cpus), ("mine", "emr", 64));
    assert_eq!(storage(&plan).jobs[1].cpus.len(), 64, "without cpus_allowed a job runs anywhere");
    assert_eq!(plan.spans.measured_ns, 5_000_000, "no longer than the job itself");
}

#[test]
fn settings_stand_over_the_scenario_and_the_command_line_over_both() {
    let lines = "duration = \"4 ms\"\nseeds = [7, 9]\n[job]\niodepth = 8\n[options]\nharvest_passes = 3\n\
                 [drives]\nqueues = 2\n[drives.\"/dev/nvme0n1\"]\nqueue_entries = 64\ncoalescing_entries = 8\n\
                 coalescing_time = \"200 us\"\n[set]\nfabric.dispatch = \"56 ns\"\n";
    let plan = with(lines).unwrap();
    assert_eq!(
        (plan.spans.measured_ns, storage(&plan).jobs[0].iodepth, plan.options.harvest_passes),
        (4_000_000, 8, 3)
    );
    assert_eq!((storage(&plan).drives[0].queues, storage(&plan).drives[0].queue_entries), (2, 64));
    assert_eq!(
        storage(&plan).drives[0].coalescing,
        Some(crate::kinds::storage::Coalescing { entries: 8, time_100us: 2 })
    );
    assert_eq!(plan.platform.fabric.dispatch.ps(), 56_000);
    assert_eq!(plan.seeds, [7, 9]);
    let plan = resolve(&format!("platform = \"emr\"\nworkload = \"j.fio\"\n{lines}"), JOB, |request| {
        request.sets = ["job.iodepth=16", "duration_ms=5", "fabric.dispatch=40ns"].map(String::from).to_vec();
        request.seeds = Some(2);
        request.platform = Some("spr".into());
        request.deliveries = Some(vec!["posted".into()]);
    })
    .unwrap();
    assert_eq!((storage(&plan).jobs[0].iodepth, plan.spans.measured_ns), (16, 5_000_000));
    assert_eq!((plan.platform.name.as_str(), plan.platform.fabric.dispatch.ps()), ("spr", 40_000));
    assert_eq!((plan.seeds.as_slice(), variants(&plan)), (&[1, 2][..], &[StorageVariant::Posted][..]));
}

#[test]
fn jobs_can_stand_in_the_scenario() {
    let plan = resolve(
        "platform = \"optane\"\n[[jobs]]\nname = \"fast\"\nfilename = \"x\"\ndirect = true\nioengine = \"io_uring\"\n\
         iodepth = 32\nbs = 512\n",
        "",
        |_| {},
    )
    .unwrap();
    assert_eq!((storage(&plan).jobs[0].name.as_str(), storage(&plan).jobs[0].block_bytes), ("fast", 512));
    assert_eq!(storage(&plan).drives[0].model, "optane");
    let error = resolve("platform = \"emr\"\n[[jobs]]\nfilename = \"x\"\niodepht = 3\n", "", |_| {}).unwrap_err();
    assert_eq!(error, "s.toml:4: iodepht: the name is unknown; valid: iodepth");
}

#[test]
fn wrong_scenarios_say_where_what_and_what_would_do() {
    let span = "valid: a time with ns, us, ms or s, from 1 us to 10 s";
    let cases = [
        ("duraton = \"4 ms\"", "s.toml:3: duraton: the name is unknown; valid: duration".to_owned()),
        ("duration = 4", format!("s.toml:3: duration: `4` has no unit; {span}")),
        ("duration = \"4 GHz\"", format!("s.toml:3: duration: `4 GHz` has the wrong unit `GHz`; {span}")),
        ("duration = \"-4 ms\"", format!("s.toml:3: duration: `-4 ms` is negative; {span}")),
        (
            "duration = \"4 s\"\nramp = \"9000 s\"",
            "s.toml:4: ramp: `9000 s` is out of bounds; \
            valid: a time with ns, us, ms or s, from 0 ns to 10 s"
                .into(),
        ),
        ("cpus = 65", "s.toml:3: cpus: `65` is more than platform emr has; valid: a whole number from 1 to 64".into()),
        ("cpus = 1", "j.fio:5: cpus_allowed: `0-1` names CPU 1, which does not exist; valid: CPUs 0-0".into()),
        (
            "deliveries = [\"remaped\"]",
            "s.toml:3: deliveries: `remaped` is no delivery; \
            valid: remapped, posted, posted update=150ns, plain, polled, remapped threaded, posted threaded, \
            remapped ours, posted ours"
                .into(),
        ),
        (
            "deliveries = [\"posted\", \"posted\"]",
            "s.toml:3: deliveries: `posted` stands twice; \
            valid: each delivery once"
                .into(),
        ),
        (
            "deliveries = [\"polled\"]",
            "s.toml:3: `polled` cannot serve job [a] (j.fio:1): libaio has no polled queues; \
            valid: ioengine=io_uring, or remapped, posted"
                .into(),
        ),
        (
            "seeds = 0",
            "s.toml:3: seeds: `0` is out of bounds; \
            valid: how many from 1 to 1000, or a list of whole numbers, each once"
                .into(),
        ),
        (
            "[options]\nharvest_pases = 2",
            "s.toml:4: options.harvest_pases: the name is unknown; \
            valid: options.harvest_passes"
                .into(),
        ),
    ];
    for (lines, message) in cases {
        assert_eq!(with(lines).unwrap_err(), message, "{lines}");
    }
}

#[test]
fn wrong_tables_say_where_what_and_what_would_do() {
    let cases = [
        (
            "[drives]\nqueues = 300",
            "s.toml:4: drives.queues: `300` is out of bounds; \
            valid: a whole number, from 1 to 128",
        ),
        (
            "[drives]\nmodel = \"floppy\"",
            "s.toml:4: drives.model: `floppy` is no kind of drive of platform emr; \
            valid: gen5",
        ),
        (
            "[drives.\"/dev/sda\"]\nqueues = 1",
            "s.toml:4: drives./dev/sda.queues: `/dev/sda` is no drive of a job; \
            valid: /dev/nvme0n1",
        ),
        (
            "[drives]\ncoalescing_time = \"150 us\"",
            "s.toml:4: drives.coalescing_time: `150 us` is no multiple of 100 us; \
            valid: 100 us to 25.5 ms in steps of 100 us",
        ),
        (
            "[job]\niodepth = 0",
            "s.toml:4: job.iodepth: `0` is out of bounds; \
            valid: a whole number from 1 to 65536",
        ),
        (
            "[job]\niodepth = 65537",
            "s.toml:4: job.iodepth: `65537` is out of bounds; \
            valid: a whole number from 1 to 65536",
        ),
        (
            "[job]\nbs = 1000",
            "j.fio:1: [a] bs: `1000` bytes are no whole blocks of 512 bytes: with direct=1 the kernel refuses each I/O \
            (EINVAL); valid: a multiple of 512, or direct=0; to fio `4KiB` is 4000 bytes and `4k` is 4096, unless kb_base=1000",
        ),
        (
            "[set]\nfabric.dispatch = \"56 GB/s\"",
            "s.toml:4: fabric.dispatch: `56 GB/s` has the wrong unit `GB/s`; \
            valid: a time with ns, us, ms or s, from 0 ns to 1 ms",
        ),
        ("[[jobs]]\nfilename = \"x\"", "s.toml:3: jobs: `[[jobs]]` stands beside `workload`; valid: one of them"),
    ];
    for (lines, message) in cases {
        assert_eq!(with(lines).unwrap_err(), message, "{lines}");
    }
}

#[test]
fn a_wrong_platform_or_workload_says_so() {
    let error = resolve("platform = \"emx\"\nworkload = \"j.fio\"\n", JOB, |_| {}).unwrap_err();
    assert_eq!(
        error,
        "s.toml:1: platform: `emx` is no platform; valid: emr, spr, optane, azure, dsa-loops, dsa-headline, rdma-vm, rdma-host, virtio-host, emag, altra, juno, or the path of a file (./my.toml)"
    );
    let error = resolve("platform = \"emr\"\nworkload = \"k.fio\"\n", JOB, |_| {}).unwrap_err();
    assert!(error.starts_with("s.toml:2: workload: `k.fio` cannot be read ("), "{error}");
    let error = resolve("platform = \"emr\"\n", JOB, |_| {}).unwrap_err();
    assert!(error.starts_with("s.toml: workload: must be given; "), "{error}");
}

#[test]
fn wrong_options_say_so_too() {
    assert_eq!(
        set(&["fabric.dispatch=-1ns"]).unwrap_err(),
        "--set: fabric.dispatch: `-1ns` is negative; \
        valid: a time with ns, us, ms or s, from 0 ns to 1 ms"
    );
    assert_eq!(
        set(&["fabrik.dispatch=1ns"]).unwrap_err(),
        "--set: fabrik.dispatch: the name is unknown; \
        valid: fabric.dispatch"
    );
    assert_eq!(
        set(&["drives.queues=0"]).unwrap_err(),
        "--set: drives.queues: `0` is out of bounds; \
        valid: a whole number, from 1 to 128"
    );
    assert_eq!(set(&["job.iodepht=2"]).unwrap_err(), "--set: job.iodepht: the name is unknown; valid: iodepth");
    let error =
        resolve("platform = \"emr\"\nworkload = \"j.fio\"\n", JOB, |request| request.seeds = Some(0)).unwrap_err();
    assert_eq!(error, "--seeds: `0` is out of bounds; valid: a whole number from 1 to 1000");
    let error = Request::of("emr-5-drives").plan().unwrap_err().to_string();
    assert!(error.starts_with("input: `emr-5-drives` is neither a file nor a scenario; valid: a scenario.toml, "));
    let error = Request::of("./none.toml").plan().unwrap_err().to_string();
    assert!(error.starts_with("./none.toml: cannot be read: "), "{error}");
}

#[test]
fn more_queues_than_vectors_is_an_error() {
    // A drive has no more queues than there are CPUs, whatever is asked for; only many drives run out of vectors.
    let mut lines = String::from("platform = \"emr\"\ncpus = 1\n[drives]\nqueues = 128\nmanaged = false\n");
    for drive in 0..102 {
        lines += &format!("[[jobs]]\nfilename = \"/dev/d{drive}\"\ndirect = 1\nioengine = \"libaio\"\n");
    }
    assert_eq!(
        resolve(&lines, "", |_| {}).unwrap_err(),
        "s.toml: drives.queues: `204` vectors are wanted, and 1 CPUs have 203; valid: fewer drives"
    );
    let managed = lines.replace("managed = false", "managed = true");
    assert_eq!(
        resolve(&managed, "", |_| {}).unwrap_err(),
        "s.toml: drives.managed: `204` vectors are wanted, and 1 CPUs have 203: each managed drive reserves one on every \
         CPU; valid: fewer drives, or managed=false"
    );
}

#[test]
fn a_delivery_that_is_asked_for_stands_over_hipri() {
    let mut request = Request::of("emr-polled");
    request.deliveries = Some(vec!["remapped".into(), "polled".into()]);
    let plan = request.plan().unwrap();
    assert_eq!(
        plan.warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["scenarios/jobs/four-drives-polled.fio:9: hipri: the deliveries asked for (--delivery) stand over it: \
          polled only where they say so"]
    );
    assert!(!storage(&plan).is_polled(&storage(&plan).jobs[0], StorageVariant::Remapped));
    assert!(storage(&plan).is_polled(&storage(&plan).jobs[0], StorageVariant::Polled));
    let plan = Request::of("emr-polled").plan().unwrap();
    assert_eq!(variants(&plan), [StorageVariant::Polled]);
}

proptest::proptest! {
    #[test]
    fn arbitrary_scenarios_never_panic(lines in "[ -~\n]{0,200}") {
        let _ = with(&lines);
    }

    #[test]
    fn arbitrary_settings_never_panic(key in "(cpu|fabric|drive|drives|job|options|ramp|cpus)?[.]?[a-z_.]{0,12}", value in "[ -~]{0,10}") {
        let _ = set(&[&format!("{key}={value}")]);
    }
}

#[test]
fn the_whole_runtime_is_simulated_up_to_ten_seconds() {
    let spans = |options: &str, sets: &[&str]| {
        let text = format!("[a]\nioengine=libaio\ndirect=1\nfilename=/dev/nvme0n1\n{options}\n");
        let sets = sets.iter().map(ToString::to_string).collect();
        let request = Request { sets, ..Request::of("job.fio") };
        request.plan_of(text.into_bytes()).map(|plan| plan.spans).map_err(|error| error.to_string())
    };
    let shortened = spans("runtime=30\nramp_time=3", &[]).unwrap();
    assert_eq!((shortened.measured_ns, shortened.is_shortened()), (10_000_000, true));
    let whole = spans("runtime=40ms\nramp_time=5ms", &["duration=runtime"]).unwrap();
    assert_eq!((whole.ramp_ns, whole.measured_ns, whole.is_shortened()), (5_000_000, 40_000_000, false));
    let bounded = spans("runtime=30\nramp_time=30", &["duration=runtime", "ramp=1ms"]).unwrap();
    assert_eq!((bounded.ramp_ns, bounded.measured_ns), (1_000_000, 10_000_000_000));
    assert!(bounded.is_shortened(), "to ten seconds");
    let error = spans("", &["duration=runtime"]).unwrap_err();
    assert!(error.contains("duration: `runtime` is not given by any job"), "{error}");
    let other = Request { sets: vec!["duration=runtime".into()], ..Request::of("rdma-deep") }.plan().unwrap_err();
    assert!(other.to_string().contains("`runtime` is for jobs on drives"), "{other}");
}

#[test]
fn long_ios_are_simulated_by_their_commands() {
    let of = |options: &str| {
        let job = format!("[a]\nfilename=/dev/nvme0n1\ndirect=1\nioengine=io_uring\nrw=randread\nbs=1g\n{options}");
        resolve("platform = \"emr\"\nworkload = \"j.fio\"\n", &job, |_| {}).unwrap()
    };
    // A turn of all I/Os in flight would be 5,300 s.
    let deep = of("iodepth=65536\n");
    assert!(deep.spans.ramp_ns + deep.spans.measured_ns < 300_000_000_000, "{:?}", deep.spans);
    let warned = |plan: &Plan, text: &str| plan.warnings.iter().any(|warning| warning.meaning.contains(text));
    assert!(warned(&deep, "134217728 commands of I/Os are in flight together"), "{:?}", deep.warnings);
    let long = of("size=100g\n");
    assert!(warned(&long, "after 100 I/Os of 2048 commands; a simulated span stands for it"), "{:?}", long.warnings);
    assert!(of("size=50g\n").warnings.is_empty(), "102,400 commands are simulated to their end");
    let told = |plan: &Plan| warned(plan, "it has no read that verifies");
    assert!(told(&of("size=100g\nrw=randwrite\nverify=crc32c\n")) && !told(&long));
}

//! `campanile import` on servers whose constants it cannot know: the machine itself plays the server, with constants drawn
//! from a third to three times their own, and prints what fio and the kernel would.

mod common;

use common::{mean, plan};
use import::archive::{Contents, Files};
use lab::advise::needs::Stated;
use lab::advise::rank::LEAST_THROUGHPUT;
use lab::advise::{self, Advice, Criterion, Question};
use lab::input::Place;
use lab::interrupt::StopFlag;
use lab::outcome::{CpuTime, Outcome, Summary};
use lab::platform::{Platform, Unit};
use lab::run;
use lab::scenario::Request;
use lab::server::fit;
use lab::server::gather::Server;
use lab::setting::Setting;
use std::path::Path;

/// Constants of emr's that are drawn beside all times and rates. With emr's own `fetch` it is never what limits a drive.
const DRAWN_TOO: &str = "drive.gen5.slots";
const FETCH: (&str, f64) = ("drive.gen5.fetch", 400.0);

/// Jobs as scripts/measure-server writes them: name, drives, options.
const JOBS: [(&str, usize, &str); 6] = [
    ("one-drive-depth-1", 1, "bs=4k\niodepth=1\ncpus_allowed=0"),
    ("one-drive-depth-32", 1, "bs=4k\niodepth=32\ncpus_allowed=0"),
    ("one-drive-full", 1, "bs=4k\niodepth=64\nnumjobs=8\ncpus_allowed=0-7\ncpus_allowed_policy=split"),
    ("one-drive-full-128k", 1, "bs=128k\niodepth=64\nnumjobs=8\ncpus_allowed=0-7\ncpus_allowed_policy=split"),
    ("one-cpu-all-drives", 4, "bs=4k\niodepth=32\ncpus_allowed=0"),
    ("all-drives-full", 4, "bs=4k\niodepth=64\nnumjobs=8\ncpus_allowed=0-31\ncpus_allowed_policy=split"),
];

/// CPUs of the server.
const CPUS: u64 = 32;

/// A job that was not measured, to predict.
const OTHER: (&str, usize, &str) =
    ("other", 4, "bs=8k\niodepth=16\nnumjobs=4\ncpus_allowed=0-15\ncpus_allowed_policy=split");

fn job((_, drives, options): (&str, usize, &str)) -> String {
    let head =
        format!("[global]\nioengine=libaio\ndirect=1\nrw=randread\nnorandommap=1\ngroup_reporting=1\n{options}\n");
    (0..drives).fold(head, |text, drive| text + &format!("[drive-{drive}]\nfilename=/dev/nvme{drive}n1\n"))
}

/// The server's own run of a job, with its secrets.
fn measured(folder: &Path, of: (&str, usize, &str), secrets: &[String]) -> Outcome {
    let path = folder.join(format!("{}.fio", of.0));
    std::fs::write(&path, job(of)).unwrap();
    let input = path.to_string_lossy().into_owned();
    let mut sets = secrets.to_vec();
    // Jobs that take turns on a CPU need many turns, and a slow job many I/Os: fio runs for seconds.
    let is_long = of.0.ends_with("-1") || of.0.starts_with("one-cpu");
    sets.extend(["cpus=32".into(), format!("duration={}", if is_long { "150ms" } else { "10ms" })]);
    run_of(&Request { platform: Some("emr".into()), sets, ..Request::of(input) })
}

fn run_of(request: &Request) -> Outcome {
    let request = Request { deliveries: Some(vec!["remapped".into()]), ..request.clone() };
    let plan = request.plan().unwrap();
    let trials = plan.trials();
    run::run_one(&trials[0], 1, false, &StopFlag::default()).unwrap().outcome
}

/// What the server would have printed, each figure off by at most `noise`.
fn printed(outcome: &Outcome, random: &mut Random) -> [(&'static str, String); 4] {
    let summary = Summary::over(std::slice::from_ref(outcome)).unwrap();
    let mut noisy = |id: &str| mean(&summary, id) * (1.0 + 0.03 * (2.0 * random.next() - 1.0));
    let (iops, clat) = (noisy("iops"), noisy("clat"));
    let fio = format!(
        "{{\"fio version\": \"fio-3.33\", \"jobs\": [{{\"jobname\": \"j\", \"error\": 0, \"read\": {{\"iops\": {iops}, \
         \"total_ios\": 1000, \"bw_bytes\": {bandwidth}, \"clat_ns\": {{\"mean\": {clat}, \"max\": 9, \"N\": 1000}}}}}}]}}",
        bandwidth = noisy("bandwidth")
    );
    // An outcome has the CPUs of the jobs; the others of the server are idle.
    let ticks = |of: fn(&CpuTime) -> u64| {
        let ns: u64 = outcome.cpus.iter().map(of).sum();
        (ns as f64 / (outcome.span_ns * CPUS) as f64 * 1e8) as u64
    };
    let (user, system, irq) = (ticks(|cpu| cpu.user_ns), ticks(|cpu| cpu.system_ns), ticks(|cpu| cpu.irq_ns));
    let idle = 100_000_000 - user - system - irq;
    let stat = format!("cpu  {user} 0 {system} {idle} 0 {irq} 0\n");
    [
        ("fio.json", fio),
        ("before/stat", "cpu  0 0 0 0 0 0 0\n".into()),
        ("after/stat", stat),
        ("job.fio", String::new()),
    ]
}

/// Splitmix64, for draws from a seed that is printed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The advice on a job: what an administrator could switch on.
fn advised(request: Request, points: Option<u32>) -> Advice {
    let among = ["posted", "rq_affinity", "threaded"].map(String::from).to_vec();
    let request = Request { deliveries: Some(vec!["remapped".into()]), seeds: Some(2), ..request };
    let by = Criterion::Throughput;
    let question = Question { request, among, stated: Stated::default(), cpu_budget: None, by, points };
    advise::advise(&question, &StopFlag::default()).unwrap()
}

/// True if `ours` has the true server's first remedy first, or tied with its first. "None needed" ties with a remedy whose
/// interval reaches down to what does not count.
fn is_right(truth: &Advice, ours: &Advice) -> bool {
    let [truth, verdict] = [truth, ours].map(|advice| &advice.verdicts[0]);
    let is_small = |name: &String| {
        let found = ours.candidates.iter().find(|candidate| candidate.name == *name);
        found.and_then(|candidate| candidate.changes.throughput).is_some_and(|gain| gain.low <= LEAST_THROUGHPUT)
    };
    let reaches = |name: &String| {
        let found = ours.candidates.iter().find(|candidate| candidate.name == *name);
        found.and_then(|candidate| candidate.changes.throughput).is_some_and(|gain| gain.high >= LEAST_THROUGHPUT)
    };
    match (&truth.first, &verdict.first) {
        (None, None) => true,
        (Some(right), Some(first)) => right == first || verdict.tied.contains(right) || truth.tied.contains(first),
        (None, Some(first)) => is_small(first),
        (Some(right), None) => reaches(right),
    }
}

/// Every time and rate of `base`, from a third to three times what it is.
fn secrets(base: &Platform, random: &mut Random) -> Vec<String> {
    let mut secrets = Vec::new();
    let mut media_mean = f64::INFINITY;
    for (key, spec, constant) in base.constants() {
        let is_drawn = matches!(spec.unit, Unit::Time | Unit::ByteRate) || key == DRAWN_TOO;
        if !is_drawn || constant.value == 0.0 {
            continue;
        }
        let centre = if key == FETCH.0 { FETCH.1 } else { constant.value };
        let drawn = (centre * 3f64.powf(2.0 * random.next() - 1.0)).clamp(spec.min, spec.max);
        let value = match &key[..] {
            DRAWN_TOO => drawn.round(),
            // The smallest time is not above the mean.
            "drive.gen5.media_floor" => drawn.min(media_mean),
            _ => drawn,
        };
        if key == "drive.gen5.media_mean" {
            media_mean = value;
        }
        secrets.push(format!("{key}={}", spec.unit.format(value)));
    }
    secrets
}

/// The server's archive, and what of it is missing: each job with a chance of one in six, CPU times and the list of
/// CPUs with one in four. Two jobs are always there.
fn archive(folder: &Path, secrets: &[String], random: &mut Random) -> (Files, Vec<String>) {
    let (mut files, mut missing) = (Files::new(), Vec::new());
    let mut may_miss = JOBS.len() - 2;
    for of in JOBS {
        if random.next() < 1.0 / 6.0 && may_miss > 0 {
            missing.push(of.0.to_owned());
            may_miss -= 1;
            continue;
        }
        let has_stat = random.next() >= 0.25;
        if !has_stat {
            missing.push(format!("{}/stat", of.0));
        }
        for (file, text) in printed(&measured(folder, of, secrets), random) {
            let text = if file == "job.fio" { job(of) } else { text };
            if has_stat || !file.ends_with("stat") {
                files.insert(format!("points/{}/{file}", of.0), text.into_bytes());
            }
        }
    }
    if random.next() >= 0.25 {
        files.insert("static/lscpu".into(), b"CPU(s): 32\nSocket(s): 1\n".to_vec());
    } else {
        missing.push("lscpu".into());
    }
    (files, missing)
}

/// What the blind test of one server gave.
struct Blind {
    /// The predicted IOPS of a job that was not measured.
    predicted: f64,
    /// The true IOPS.
    truth: f64,
    /// Whether the advice's interval of today's throughput holds the truth.
    inside: bool,
    /// Whether the right remedy came first or tied.
    advised: bool,
    /// How, for people.
    how: String,
}

/// Imports a server that `seed` draws, and predicts and advises on a job that was not measured.
fn blind(seed: u64) -> Blind {
    let mut random = Random(seed);
    let base = Platform::load(&Setting::new(Place::option("test"), "", "emr")).unwrap();
    let secrets = secrets(&base, &mut random);
    let folder = tempfile::tempdir().unwrap();
    let (files, missing) = archive(folder.path(), &secrets, &mut random);
    let server = Server::of_archive(&Contents::from(files));
    let out = folder.path().join("mine");
    let found = fit::import(server, &base, &out, &StopFlag::default()).unwrap();
    let iops = |outcome: Outcome| mean(&Summary::over(&[outcome]).unwrap(), "iops");
    let truth = iops(measured(folder.path(), OTHER, &secrets));
    let predicted = run_of(&Request {
        platform: Some(out.join("mine.toml").to_string_lossy().into_owned()),
        sets: vec!["cpus=32".into(), "duration=10ms".into()],
        ..Request::of(folder.path().join("other.fio").to_string_lossy().into_owned())
    });
    let other = folder.path().join("other.fio").to_string_lossy().into_owned();
    let on = |platform: String, sets: Vec<String>| Request {
        platform: Some(platform),
        sets: [sets, vec!["cpus=32".into(), "duration=4ms".into()]].concat(),
        ..Request::of(other.as_str())
    };
    let right = advised(on("emr".into(), secrets.clone()), Some(0));
    let ours = advised(on(out.join("mine.toml").to_string_lossy().into_owned(), Vec::new()), None);
    let decided: Vec<String> =
        found.decision.decided.iter().map(|d| format!("{} {}", d.key, d.unit.format(d.value))).collect();
    let verdicts = [&right, &ours].map(|advice| advice.verdicts[0].first.clone());
    let [low, high] = ours.today.throughput_range;
    Blind {
        predicted: iops(predicted),
        truth,
        inside: (low..=high).contains(&truth),
        advised: is_right(&right, &ours),
        how: format!(
            "right {:?}, advised {:?}; without {missing:?}; {secrets:?} against {decided:?}, errors {:?}",
            verdicts[0],
            verdicts[1],
            found
                .rows
                .iter()
                .zip(&found.decision.errors)
                .map(|(row, e)| format!("{} {:.1} {:+.1}", row.id, row.published.unwrap(), e * 100.0))
                .collect::<Vec<_>>()
        ),
    }
}

/// Nine of ten servers are predicted within 10 % or have the truth in their interval, and of nine of ten the right remedy
/// comes first or tied. `BLIND=50` for many, `BLIND=9..50` for those servers.
#[test]
fn servers_with_secrets_are_predicted() {
    let asked = std::env::var("BLIND").unwrap_or_else(|_| "2".to_owned());
    let (first, last) = asked.split_once("..").unwrap_or(("1", &asked));
    let [first, last]: [u64; 2] = [first, last].map(|seed| seed.parse().expect("BLIND=50, or BLIND=9..50"));
    let count = last + 1 - first;
    let (mut near, mut missed, mut wrong) = (0, Vec::new(), Vec::new());
    for seed in first..=last {
        let Blind { predicted, truth, inside, advised, how } = blind(seed);
        let error = predicted / truth - 1.0;
        println!(
            "server {seed}: {truth:.0} IOPS, predicted {:+.1} %, {} its interval; advised {}",
            error * 100.0,
            if inside { "inside" } else { "outside" },
            if advised { "right" } else { "wrong" }
        );
        if std::env::var_os("BLIND").is_some() {
            println!("{how}");
        }
        if !advised {
            wrong.push(format!("server {seed}: {how}"));
        }
        near += u64::from(error.abs() <= 0.10);
        if error.abs() > 0.10 && !inside {
            missed.push(format!("server {seed}: {:+.1} %: {how}", error * 100.0));
        }
    }
    println!("{near} of {count} within 10 %");
    println!("{} of {count} missed\n{}", missed.len(), missed.join("\n"));
    println!("{} of {count} advised otherwise\n{}", wrong.len(), wrong.join("\n"));
    assert!(missed.len() as u64 * 10 <= count.max(10), "{}", missed.join("\n"));
    assert!(wrong.len() as u64 * 10 <= count.max(10), "{}", wrong.join("\n"));
}

/// The files that an import writes are a platform, a scenario and rows that other commands take.
#[test]
fn the_files_of_an_import_are_taken_by_other_commands() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random(7);
    let mut files = Files::new();
    for (file, text) in printed(&measured(folder.path(), JOBS[0], &[]), &mut random) {
        let text = if file == "job.fio" { job(JOBS[0]) } else { text };
        files.insert(format!("points/a/{file}"), text.into_bytes());
    }
    let server = Server::of_archive(&Contents::from(files));
    let base = Platform::load(&Setting::new(Place::option("test"), "", "emr")).unwrap();
    let out = folder.path().join("mine");
    let found = fit::import(server, &base, &out, &StopFlag::default()).unwrap();
    assert!(found.decision.decided.iter().any(|d| d.key == "drive.measured.media_mean"), "{:?}", found.decision);
    let rows = lab::published::read(&out.join("rows.csv").to_string_lossy()).unwrap();
    assert_eq!(rows[0].platform, "mine");
    let scenario = plan(&out.join("a.toml").to_string_lossy(), &[]);
    assert_eq!(scenario.platform.name, "mine");
    let mut reproduce = std::process::Command::new(env!("CARGO_BIN_EXE_campanile"));
    let told = reproduce.args(["reproduce", "--rows"]).arg(out.join("rows.csv")).output().unwrap();
    let text = String::from_utf8(told.stdout).unwrap();
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    assert!(text.starts_with("YOURS\n") && text.contains("Rows of yours, fitted: "), "{text}");
}

/// No job at depth 1: the drive's time and its fetch explain the rows alike, so one of them is borrowed. What `import`
/// prints is of the file that it wrote.
#[test]
fn the_errors_are_those_of_the_platform_as_it_is_written() {
    let job = "[a]\nioengine=libaio\ndirect=1\nfilename=/dev/nvme0n1\nrw=randread\nbs=4k\niodepth=8\nruntime=10\n";
    let fio = r#"{"fio version": "fio-3.33", "jobs": [{"jobname": "a", "read": {"iops": 29000, "total_ios": 290000,
        "runtime": 10000, "bw_bytes": 118784000, "clat_ns": {"mean": 266000, "max": 999999, "N": 290000}}}]}"#;
    let files = [("points/a/fio.json", fio), ("points/a/job.fio", job), ("static/lscpu", "CPU(s): 8\nSocket(s): 1\n")];
    let files: Files = files.map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec())).into();
    let folder = tempfile::tempdir().unwrap();
    let base = Platform::load(&Setting::new(Place::option("test"), "", "emr")).unwrap();
    let (out, stop) = (folder.path().join("mine"), StopFlag::default());
    let found = fit::import(Server::of_archive(&Contents::from(files)), &base, &out, &stop).unwrap();
    let undecided = ["media_mean", "fetch"].map(|name| {
        let key = format!("drive.measured.{name}");
        found.decision.undecided.contains(&key)
    });
    assert!(undecided[0] != undecided[1], "{:?}", found.decision);
    let written = std::fs::read_to_string(out.join("mine.toml")).unwrap();
    let line =
        written.lines().find(|line| line.starts_with(if undecided[0] { "media_mean" } else { "fetch" })).unwrap();
    assert!(line.contains("borrowed from emr"), "{line}");
    let scenario = out.join("a.toml").to_string_lossy().into_owned();
    let plans = [(scenario.clone(), Request::of(&scenario).plan().unwrap())].into();
    let rows = lab::published::read(&out.join("rows.csv").to_string_lossy()).unwrap();
    let again = lab::calibrate::errors(&rows, &plans, &stop).unwrap();
    assert_eq!(found.decision.errors, again);
}

/// Two jobs on one drive, with a base whose drive is faster than what was measured, and with one that is slower.
#[test]
fn the_fit_stands_on_what_is_borrowed() {
    let fio = |name: &str, iops: u32, clat: u32| {
        format!(
            r#"{{"fio version": "fio-3.33", "jobs": [{{"jobname": "{name}", "read": {{"iops": {iops}, "total_ios": {iops},
            "runtime": 1000, "bw_bytes": {}, "clat_ns": {{"mean": {clat}, "max": 9999999, "N": {iops}}}}}}}]}}"#,
            iops * 4096
        )
    };
    let job = |depth: u32| {
        format!("[a]\nioengine=libaio\ndirect=1\nfilename=/dev/nvme0n1\nrw=randread\nbs=4k\niodepth={depth}\n")
    };
    let files = [
        ("points/one/fio.json", fio("a", 14_700, 66_300)),
        ("points/one/job.fio", job(1)),
        ("points/eight/fio.json", fio("a", 115_500, 67_200)),
        ("points/eight/job.fio", job(8)),
        ("static/lscpu", "CPU(s): 8\nSocket(s): 1\n".to_owned()),
    ];
    let files: Files = files.map(|(path, text)| (path.to_owned(), text.into_bytes())).into();
    let folder = tempfile::tempdir().unwrap();
    let emr = Platform::load(&Setting::new(Place::option("test"), "", "emr")).unwrap();
    let out = folder.path().join("mine");
    let import = |base: &Platform| {
        let server = Server::of_archive(&Contents::from(files.clone()));
        fit::import(server, base, &out, &StopFlag::default()).unwrap()
    };
    let written =
        || Platform::load(&Setting::new(Place::option("test"), "", out.join("mine.toml").to_string_lossy())).unwrap();
    let found = import(&emr);
    let drive = written().drive("measured").unwrap().clone();
    assert!(found.notes.iter().any(|note| note.contains("is assumed: remapped")), "{:?}", found.notes);
    assert_eq!((drive.link.value, drive.link.reason.as_str()), (emr.drives[0].1.link.value, "borrowed from emr"));
    assert!(found.decision.errors.iter().all(|error| error.abs() < 0.03), "{:?}", found.decision);
    assert!(drive.media_mean.region.len() > 4 && drive.media_mean.region == drive.media_floor.region, "{drive:?}");
    let share = drive.media_floor.value / drive.media_mean.value;
    let of_base = emr.drives[0].1.media_floor.value / emr.drives[0].1.media_mean.value;
    assert!((share / of_base - 1.0).abs() < 1e-3, "{share} against {of_base}");
    let media = found.ranges.iter().find(|range| range.key == "drive.measured.media_mean").unwrap();
    let [Some(low), Some(high)] = media.ends else { panic!("{media:?}") };
    assert!(low < drive.media_mean.value && drive.media_mean.value < high && high / low < 1.3, "{media:?}");

    let mut slow = emr.clone();
    slow.drives[0].1.fetch.value = 40_000.0;
    let found = import(&slow);
    let fetch = written().drive("measured").unwrap().fetch.clone();
    assert!(fetch.value < 10_000.0 && !fetch.reason.starts_with("borrowed"), "{fetch:?}");
    assert!(found.decision.errors.iter().all(|error| error.abs() < 0.03), "{:?}", found.decision);
}

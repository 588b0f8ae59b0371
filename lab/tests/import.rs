//! `campanile import` on what the machine prints as a server (`blind/`), and the files that it writes.

mod blind;
mod common;

use blind::{JOBS, Random, job, measured, printed};
use common::plan;
use import::archive::{Contents, Files};
use lab::input::Place;
use lab::interrupt::StopFlag;
use lab::platform::Platform;
use lab::scenario::Request;
use lab::server::fit;
use lab::server::gather::Server;
use lab::setting::Setting;

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
    // The fit begins with a drive that fetches no faster than what was measured: 60 us, at depth 1. That explains the rows as
    // well as the media's time does, and must not stay.
    let drive = scenario.platform.drive("measured").unwrap();
    assert_eq!((drive.fetch.value, drive.fetch.reason.as_str()), (base.drives[0].1.fetch.value, "borrowed from emr"));
    assert!((50_000.0..66_000.0).contains(&drive.media_mean.value), "{:?}", drive.media_mean);
    let mut reproduce = std::process::Command::new(env!("CARGO_BIN_EXE_campanile"));
    let told = reproduce.args(["reproduce", "--rows"]).arg(out.join("rows.csv")).output().unwrap();
    let text = String::from_utf8(told.stdout).unwrap();
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    assert!(text.starts_with("YOURS\n") && text.contains("Rows of yours, fitted: "), "{text}");
    // Defect: a quantity that no run has was told as a row without a figure.
    let rows = std::fs::read_to_string(out.join("rows.csv")).unwrap();
    std::fs::write(out.join("wrong.csv"), rows.replace(",iops,", ",iopz,")).unwrap();
    let mut calibrate = std::process::Command::new(env!("CARGO_BIN_EXE_campanile"));
    let told = calibrate.current_dir(&out).args(["calibrate", "--rows", "wrong.csv", "mine.toml"]).output().unwrap();
    let error = String::from_utf8(told.stderr).unwrap();
    assert!(told.status.code() == Some(2) && error.contains("`iopz` is no quantity of a"), "{error}");
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
    assert!(drive.media_mean.region.len() > 4 && drive.media_mean.region != drive.media_floor.region, "{drive:?}");
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

/// Jobs that write, as `measure-server --write` has them, decide the drive's constants of writes; nothing else takes their part.
#[test]
fn jobs_that_write_decide_what_writes_take() {
    let secrets =
        [("write_cached", 25_000.0, "25us"), ("write_random", 0.4e9, "0.4GB/s"), ("write_sequential", 2e9, "2GB/s")];
    let sets: Vec<String> = secrets.iter().map(|(name, _, text)| format!("drive.gen5.{name}={text}")).collect();
    let folder = tempfile::tempdir().unwrap();
    let mut files: Files = [("static/lscpu".to_owned(), b"CPU(s): 32\nSocket(s): 1\n".to_vec())].into();
    for (name, options) in [
        ("write-a-depth-1", "rw=randwrite\nbs=4k\niodepth=1\ncpus_allowed=0"),
        ("write-a-full", "rw=randwrite\nbs=4k\niodepth=64\nnumjobs=4\ncpus_allowed=0-3\ncpus_allowed_policy=split"),
        ("write-a-stream", "rw=write\nbs=128k\niodepth=32\ncpus_allowed=0"),
    ] {
        let of = (name, 1, options);
        let outcome = measured(folder.path(), of, &sets);
        let summary = lab::outcome::Summary::over(std::slice::from_ref(&outcome)).unwrap();
        let [iops, clat, bandwidth] = ["iops", "clat", "bandwidth"].map(|id| common::mean(&summary, id));
        let fio = format!(
            r#"{{"fio version": "fio-3.33", "jobs": [{{"jobname": "drive-0", "write": {{"iops": {iops}, "total_ios": 90000,
            "bw_bytes": {bandwidth}, "clat_ns": {{"mean": {clat}, "max": 9999999, "N": 90000}}}}}}]}}"#
        );
        files.insert(format!("points/{name}/fio.json"), fio.into_bytes());
        files.insert(format!("points/{name}/job.fio"), job(of).into_bytes());
    }
    let base = Platform::load(&Setting::new(Place::option("test"), "", "emr")).unwrap();
    let out = folder.path().join("mine");
    let found = fit::import(Server::of_archive(&Contents::from(files)), &base, &out, &StopFlag::default()).unwrap();
    for (name, value, _) in secrets {
        let key = format!("drive.measured.{name}");
        let decided = found.decision.decided.iter().find(|decided| decided.key == key);
        let off = decided.map(|decided| decided.value / value - 1.0);
        assert!(off.is_some_and(|off| off.abs() < 0.06), "{name}: {off:?}\n{:?}", found.decision);
    }
    let others = ["media_mean", "fetch"].map(|name| format!("drive.measured.{name}"));
    assert!(others.iter().all(|key| found.decision.undecided.contains(key)), "{:?}", found.decision);
}

/// What takes longer than is simulated is named with the bound, and nothing is fitted to it.
#[test]
fn latencies_of_seconds_are_named() {
    let fio = r#"{"fio version": "fio-3.33", "jobs": [{"jobname": "a", "job options": {"rw": "randread", "bs": "4k",
        "ioengine": "libaio", "iodepth": "64", "direct": "1", "filename": "/dev/nvme0n1"}, "read": {"iops": 40, "total_ios": 400,
        "runtime": 10000, "bw_bytes": 163840, "clat_ns": {"mean": 1600000000, "max": 4800000000, "N": 400}}}]}"#;
    let files: Files = [("points/a/fio.json".to_owned(), fio.as_bytes().to_vec())].into();
    let folder = tempfile::tempdir().unwrap();
    let base = Platform::load(&Setting::new(Place::option("test"), "", "emr")).unwrap();
    let server = Server::of_archive(&Contents::from(files));
    let error = fit::import(server, &base, &folder.path().join("mine"), &StopFlag::default()).unwrap_err();
    let fit::ImportError::Input(error) = error else { panic!("{error:?}") };
    assert!(error.to_string().contains("latency of 1.6 s is outside what is fitted; valid: 0.5 s"), "{error}");
}

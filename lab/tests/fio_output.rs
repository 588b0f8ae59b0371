//! Results in fio's own form: judged by fio 3.33 itself and by programs that read its JSON and its logs.

mod common;

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const CAMPANILE: &str = env!("CARGO_BIN_EXE_campanile");

/// Two sections and three threads: reads, writes, syncs, percentiles, a description.
const MIXED: &str = "[global]\nioengine=ENGINE\nreadwrite=randrw\nrwmixread=70\nbs=4k\niodepth=8\nsize=64m\ndirect=1\n\
    filename=/dev/nvme0n1\npercentile_list=50:99:99.9\n\
    [a]\nnumjobs=2\nfsync=16\ndescription=two of them\n\
    [b]\nlat_percentiles=1\nslat_percentiles=1\n\
    [c]\nrw=randtrim\nstonewall\n";

fn run(folder: &Path, arguments: &[&str]) -> Output {
    let output = Command::new(CAMPANILE).current_dir(folder).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Whether `program` is on the path; says so if it is not.
fn is_there(program: &str) -> bool {
    let is_there = Command::new(program).arg("--version").output().is_ok();
    if !is_there {
        eprintln!("skipped: {program} is not installed");
    }
    is_there
}

/// fio's JSON of a job file, of one delivery and one seed.
fn fio_json(folder: &Path, job: &str) -> Value {
    fs::write(folder.join("job.fio"), job).unwrap();
    let arguments = ["run", "job.fio", "--seeds", "1", "--delivery", "posted", "--set", "duration=1ms"];
    let output = run(folder, &[&arguments[..], &["--fio-json", "-"]].concat());
    serde_json::from_slice(&output.stdout).expect("standard output holds the JSON and nothing else")
}

/// The type at each path. The keys of options and bins are data, not form.
fn shape(value: &Value, path: &str, found: &mut BTreeMap<String, &'static str>) {
    let kind = match value {
        Value::Object(fields) => {
            let is_data = ["options", ".bins", ".percentile"].iter().any(|end| path.ends_with(end));
            for (key, value) in fields.iter().filter(|_| !is_data) {
                shape(value, &format!("{path}.{key}"), found);
            }
            "object"
        }
        Value::Array(items) => {
            items.iter().for_each(|item| shape(item, &format!("{path}[]"), found));
            "array"
        }
        Value::String(_) => "text",
        Value::Number(number) if number.is_f64() => "fraction",
        Value::Number(_) => "whole number",
        Value::Bool(_) | Value::Null => "other",
    };
    found.insert(path.into(), kind);
}

fn shape_of(value: &Value) -> BTreeMap<String, &'static str> {
    let mut found = BTreeMap::new();
    shape(value, "", &mut found);
    found
}

/// The form that fio 3.33 itself writes for the same file, with its null engine; where it is missing, the committed one.
#[test]
fn the_json_has_fios_keys_and_types() {
    let folder = tempfile::tempdir().unwrap();
    let job = MIXED.replace("ENGINE", "libaio").replace("stonewall\n", "new_group\n").replace("size=64m\n", "");
    let ours = shape_of(&fio_json(folder.path(), &job));
    let committed = include_str!("fio_form/keys.txt");
    let pair = |line: &'static str| line.split_once(" = ").map(|(path, kind)| (path.to_owned(), kind));
    let committed: BTreeMap<String, &str> = committed.lines().filter_map(pair).collect();
    let mut theirs: BTreeMap<String, &str> = committed.clone();
    if is_there("fio") {
        fs::write(folder.path().join("null.fio"), MIXED.replace("ENGINE", "null")).unwrap();
        let fio = Command::new("fio").current_dir(folder.path()).args(["--output-format=json+", "null.fio"]).output();
        let of_fio = shape_of(&serde_json::from_slice(&fio.unwrap().stdout).unwrap());
        let missing: Vec<_> = of_fio.iter().filter(|(path, kind)| committed.get(*path) != Some(*kind)).collect();
        assert!(missing.is_empty(), "fio_form/keys.txt lacks what fio writes: {missing:#?}");
        theirs.extend(of_fio);
    }
    let differing: Vec<_> = theirs.iter().filter(|(path, kind)| ours.get(*path) != Some(*kind)).collect();
    assert!(differing.is_empty(), "not as fio has it: {differing:#?}");
    let more: Vec<_> = ours.keys().filter(|path| !theirs.contains_key(*path)).collect();
    assert!(more.iter().all(|path| path.starts_with(".campanile")), "fio does not write {more:?}");
}

/// Directions together, as fio has them.
#[test]
fn mixed_directions_have_fios_keys_too() {
    if !is_there("fio") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for unified in ["mixed", "both"] {
        let job = MIXED.replace("[a]", &format!("unified_rw_reporting={unified}\n[a]"));
        let ours = job.replace("ENGINE", "libaio").replace("stonewall\n", "new_group\n").replace("size=64m\n", "");
        let ours = shape_of(&fio_json(folder.path(), &ours));
        fs::write(folder.path().join("null.fio"), job.replace("ENGINE", "null")).unwrap();
        let fio = Command::new("fio").current_dir(folder.path()).args(["--output-format=json+", "null.fio"]).output();
        let theirs = shape_of(&serde_json::from_slice(&fio.unwrap().stdout).unwrap());
        let differing: Vec<_> = theirs.iter().filter(|(path, kind)| ours.get(*path) != Some(*kind)).collect();
        assert!(differing.is_empty(), "{unified}: {differing:#?}");
        let jobs = |shape: &BTreeMap<String, &str>| shape.keys().filter(|path| path.starts_with(".jobs")).count();
        assert_eq!(jobs(&ours), jobs(&theirs), "{unified}");
    }
}

#[test]
fn the_json_and_the_outcome_agree() {
    let folder = tempfile::tempdir().unwrap();
    let job = MIXED.replace("ENGINE", "libaio").replace("stonewall\n", "new_group\n").replace("size=64m\n", "");
    fs::write(folder.path().join("job.fio"), job).unwrap();
    let arguments = ["run", "job.fio", "--seeds", "1", "--set", "duration=1ms"];
    let outputs = ["--fio-json", "{delivery}.json", "--json", "own.json"];
    run(folder.path(), &[&arguments[..], &outputs].concat());
    let read = |name: &str| -> Value { serde_json::from_slice(&fs::read(folder.path().join(name)).unwrap()).unwrap() };
    let own = read("own.json");
    for outcome in own["outcomes"].as_array().unwrap() {
        let fio = read(&format!("{}.json", outcome["delivery"].as_str().unwrap()));
        let jobs = fio["jobs"].as_array().unwrap();
        let names: Vec<_> =
            jobs.iter().map(|job| (job["jobname"].as_str().unwrap(), job["groupid"].as_u64())).collect();
        assert_eq!(names, [("a", Some(0)), ("a", Some(0)), ("b", Some(0)), ("c", Some(1))]);
        for (number, direction) in ["read", "write", "trim"].into_iter().enumerate() {
            let ios: u64 = jobs.iter().map(|job| job[direction]["total_ios"].as_u64().unwrap()).sum();
            assert_eq!(Some(ios), outcome["directions"][number]["ios"].as_u64(), "{direction}");
        }
        for job in jobs.iter().filter(|job| job["read"]["total_ios"] != 0) {
            let read = &job["read"];
            let bins = read["clat_ns"]["bins"].as_object().map(|bins| bins.values().filter_map(Value::as_u64).sum());
            assert_eq!(bins.unwrap_or(0), read["total_ios"].as_u64().unwrap(), "every I/O has its bin");
            let mean = |kind: &str| read[kind]["mean"].as_f64().unwrap();
            let (sum, total) = (mean("slat_ns") + mean("clat_ns"), mean("lat_ns"));
            assert!(total <= sum + 1.0 && total > 0.95 * sum, "total latency {total} of {sum}");
        }
        assert!(jobs[0]["sync"]["total_ios"].as_u64().unwrap() > 0, "fsync=16");
    }
}

/// The option `name` names the first job of its section, and the section the others.
#[test]
fn a_name_is_that_of_the_first_job() {
    if !common::fio::is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let text = "[global]\nioengine=ENGINE\ndirect=1\nname=all\nsize=16k\nfilename=x\n[a]\n[b]\nnumjobs=3\nname=own\n";
    let names = |json: &Value| -> Vec<String> {
        json["jobs"].as_array().unwrap().iter().map(|job| job["jobname"].as_str().unwrap().to_owned()).collect()
    };
    let ours = names(&fio_json(folder.path(), &text.replace("ENGINE", "libaio")));
    assert_eq!(ours, names(&common::fio::judged(folder.path(), &text.replace("ENGINE", "null"))));
    assert_eq!(ours, ["a", "own", "b", "b"]);
}

/// Each job of a phase is measured over its own time: the rates of two equal phases are those of the job alone.
#[test]
fn jobs_that_end_early_have_their_own_rates() {
    let folder = tempfile::tempdir().unwrap();
    let one = "[global]\nioengine=libaio\ndirect=1\nrw=read\nbs=4k\niodepth=8\nsize=4m\nfilename=/dev/nvme0n1\n[a]\n";
    let iops = |json: &Value, job: usize| json["jobs"][job]["read"]["iops"].as_f64().unwrap();
    let alone = iops(&fio_json(folder.path(), one), 0);
    let both = fio_json(folder.path(), &format!("{one}[b]\nstonewall\n"));
    for job in 0..2 {
        assert_eq!(both["jobs"][job]["read"]["total_ios"], 1024);
        assert!((iops(&both, job) / alone - 1.0).abs() < 0.05, "{} against {alone}", iops(&both, job));
    }
}

/// Asking for outputs changes no figure, and a run gives the same bytes again.
#[test]
fn outputs_change_nothing_and_are_the_same_each_time() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("job.fio"),
        "[a]\nioengine=libaio\ndirect=1\niodepth=8\nrw=randread\n\
        filename=/dev/nvme0n1\nwrite_lat_log=x\nwrite_iolog=x.iolog\n",
    )
    .unwrap();
    let plain = run(folder.path(), &["run", "job.fio", "--seeds", "1", "--set", "duration=1ms"]).stdout;
    let asked = |out: &str| {
        let json = format!("{out}.json");
        let arguments = ["run", "job.fio", "--seeds", "1", "--set", "duration=1ms"];
        let table = run(folder.path(), &[&arguments[..], &["--fio-json", &json, "--fio-logs", out]].concat()).stdout;
        let read = |name: String| fs::read_to_string(folder.path().join(name)).unwrap();
        (table, read(json), read(format!("{out}/x_clat.1.log")), read(format!("{out}/x.iolog")))
    };
    let (first, second) = (asked("one"), asked("two"));
    assert_eq!(first, second);
    assert_eq!(String::from_utf8_lossy(&first.0), String::from_utf8_lossy(&plain));
}

#[test]
fn the_four_drive_table_is_the_same_through_the_scenario_and_through_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let scenarios = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios");
    fs::create_dir(folder.path().join("jobs")).unwrap();
    // Names of their own, as a carried scenario has published rows beside it.
    fs::copy(scenarios.join("emr-4-drives.toml"), folder.path().join("four-drives.toml")).unwrap();
    for name in ["jobs/four-drives.fio", "four-drives.fio"] {
        fs::copy(scenarios.join("jobs/four-drives.fio"), folder.path().join(name)).unwrap();
    }
    let short = ["--seeds", "1", "--set", "duration=1ms"];
    let table = |file: &str| run(folder.path(), &[&["run", file][..], &short].concat()).stdout;
    let (scenario, job_file) = (table("four-drives.toml"), table("four-drives.fio"));
    assert_eq!(String::from_utf8_lossy(&scenario), String::from_utf8_lossy(&job_file));
}

#[test]
fn logs_hold_every_io_and_stay_in_their_folder() {
    let folder = tempfile::tempdir().unwrap();
    let job = "[a]\nioengine=libaio\ndirect=1\niodepth=8\nrw=randread\nfilename=/dev/nvme0n1\n\
        write_bw_log=../../x\nwrite_lat_log\nwrite_iops_log=/tmp/y\nwrite_iolog=../a.iolog\nlog_offset=1\n";
    fs::write(folder.path().join("job.fio"), job).unwrap();
    let arguments = ["run", "job.fio", "--seeds", "1", "--delivery", "posted", "--set", "duration=1ms"];
    let outputs = ["--fio-logs", "logs", "--fio-json", "x.json"];
    run(folder.path(), &[&arguments[..], &outputs].concat());
    let mut names: Vec<_> = fs::read_dir(folder.path().join("logs"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let logs = ["a_clat.1.log", "a_lat.1.log", "a_slat.1.log", "x_bw.1.log", "y_iops.1.log"];
    assert_eq!(names, [&["a.iolog"][..], &logs].concat());
    let json: Value = serde_json::from_slice(&fs::read(folder.path().join("x.json")).unwrap()).unwrap();
    let ios = json["jobs"][0]["read"]["total_ios"].as_u64().unwrap();
    let log = |name: &str| fs::read_to_string(folder.path().join("logs").join(name)).unwrap();
    for name in logs {
        let text = log(name);
        assert_eq!(text.lines().count() as u64, ios, "{name}");
        assert!(text.lines().all(|line| line.split(", ").count() == 6), "{name}: time, value, direction, size, offset");
    }
    let clat: u64 = log(logs[0]).lines().filter_map(|line| line.split(", ").nth(1)?.parse::<u64>().ok()).sum();
    let mean = json["jobs"][0]["read"]["clat_ns"]["mean"].as_f64().unwrap();
    assert!((clat as f64 / ios as f64 - mean).abs() < 1.0, "the log's mean is the JSON's");
    assert!(log("a.iolog").starts_with("fio version 3 iolog\n0 /dev/nvme0n1 add\n0 /dev/nvme0n1 open\n"));
    if is_there("fio") {
        let job = "[a]\nioengine=null\nread_iolog=logs/a.iolog\nreplay_redirect=disk\nfilename=disk\n";
        fs::write(folder.path().join("replay.fio"), job).unwrap();
        let fio = Command::new("fio").current_dir(folder.path()).args(["--output-format=json", "replay.fio"]).output();
        let replayed: Value = serde_json::from_slice(&fio.unwrap().stdout).unwrap();
        let issued = log("a.iolog").lines().filter(|line| line.contains(" read ")).count() as u64;
        assert_eq!(replayed["jobs"][0]["read"]["total_ios"].as_u64(), Some(issued), "fio replays the log");
    }
}

#[test]
fn what_cannot_be_written_is_said_before_the_run() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("job.fio"), "[a]\nioengine=libaio\ndirect=1\nfilename=/dev/nvme0n1\n").unwrap();
    let refused = |arguments: &[&str]| {
        let output = Command::new(CAMPANILE).current_dir(folder.path()).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let said = refused(&["run", "job.fio", "--fio-logs", "logs"]);
    assert!(said.contains("--fio-logs: `logs` would stay empty: no job asks for a log"), "{said}");
    let said = refused(&["run", "rdma-deep", "--fio-json", "x.json"]);
    assert!(said.contains("--fio-json: `x.json` is for jobs on drives"), "{said}");
    let said = refused(&["run", "rdma-deep", "--per-job"]);
    assert!(said.contains("--per-job: is for jobs on drives, which "), "{said}");
    assert!(refused(&["run", "job.fio", "--fio-json", "no/x.json"]).contains("cannot be written"));
    assert!(refused(&["run", "job.fio", "--fio-json", "x", "--json", "x"]).contains("is written twice"));
}

/// A span that shows no steady state says so: 1000 I/Os in flight a job and 2 ms, 16 MiB and 2 ms.
#[test]
fn a_span_that_misleads_says_so_and_media_are_never_more_than_busy() {
    for (sets, verdicts) in [
        (&["job.iodepth=1000", "duration=2ms"][..], &["too_short", "too_short"][..]),
        (&["job.bs=16m", "duration=2ms"], &["too_few", "too_few"]),
        (&["duration=2ms"], &["steady", "steady"]),
        (&["job.rw=randwrite", "job.iodepth=1", "duration=1ms", "ramp=0ns"], &[]),
    ] {
        let mut plan = common::plan("emr-4-drives", sets);
        plan.seeds.truncate(1);
        let runs = lab::run::run_all(&plan, false, &lab::interrupt::StopFlag::default()).unwrap();
        let outcomes: Vec<_> = runs.into_iter().map(|run| run.outcome).collect();
        let drives = outcomes.iter().flat_map(|outcome| &outcome.storage().unwrap().drives);
        let busiest = drives.map(|drive| drive.media_busy).fold(0.0, f64::max);
        assert!((0.0..=1.0).contains(&busiest), "{sets:?}: {busiest}");
        let report = lab::report::RunReport::new("x", "emr", lab::report::Class::Predicted, outcomes);
        let json = lab::report::json::run(&report).unwrap();
        for (verdict, delivery) in verdicts.iter().zip(["remapped", "posted"]) {
            assert!(json.contains(&format!("\"verdict\": \"{verdict}\"")), "{sets:?}, {delivery}");
        }
        let table = lab::report::table::run(&report);
        let warned = verdicts.iter().any(|verdict| *verdict != "steady");
        assert!(verdicts.is_empty() || table.contains("NOT STEADY") == warned, "{table}");
    }
}

/// Programs that read fio's results: Debian's fio_jsonplus_clat2csv and fio2gnuplot, and fio-plot of PyPI.
#[test]
fn what_reads_fio_reads_us() {
    let folder = tempfile::tempdir().unwrap();
    let name = "randread-iodepth-16-numjobs-2";
    let job = format!(
        "[global]\nioengine=libaio\nrw=randread\nbs=4k\ndirect=1\nfilename=/dev/nvme0n1\nruntime=30\ntime_based\n\
         slat_percentiles=1\nlat_percentiles=1\n\
         [bench]\niodepth=16\nnumjobs=2\ngroup_reporting\nlog_avg_msec=500\n\
         write_bw_log={name}\nwrite_lat_log={name}\nwrite_iops_log={name}\n"
    );
    fs::write(folder.path().join("job.fio"), job).unwrap();
    fs::create_dir(folder.path().join("out")).unwrap();
    let arguments = ["run", "job.fio", "--seeds", "1", "--delivery", "posted", "--set", "duration=5ms"];
    run(folder.path(), &[&arguments[..], &["--fio-json", "out/r.json", "--fio-logs", "out"]].concat());
    let out = folder.path().join("out");
    let reads = |program: &Path, arguments: &[&str]| {
        let output = Command::new(program).current_dir(&out).args(arguments).output().unwrap();
        let said = [&output.stdout[..], &output.stderr].concat();
        assert!(output.status.success(), "{}: {}", program.display(), String::from_utf8_lossy(&said));
    };
    if is_there("fio_jsonplus_clat2csv") {
        reads(Path::new("fio_jsonplus_clat2csv"), &["r.json", "clat.csv"]);
        let csv = fs::read_to_string(out.join("clat_job0.csv")).unwrap();
        let json: Value = serde_json::from_slice(&fs::read(out.join("r.json")).unwrap()).unwrap();
        let ios = json["jobs"][0]["read"]["total_ios"].to_string();
        assert!(csv.contains(&format!(", {ios}, 1.0")), "the cumulative count ends with every read");
    }
    if is_there("fio2gnuplot") {
        reads(Path::new("fio2gnuplot"), &["-p", "*_bw.*.log", "-d", "plots"]);
    }
    let Some(fio_plot) = fio_plot() else { return };
    let common = ["-i", ".", "-T", "t", "-d", "16", "-n", "2", "-r", "randread"];
    for (kind, picture) in
        [(&["-l"][..], "bars.png"), (&["-g", "-t", "bw", "lat", "iops"], "lines.png"), (&["-H"], "hist.png")]
    {
        reads(&fio_plot, &[&common[..], kind, &["-o", picture]].concat());
        assert!(fs::metadata(out.join(picture)).unwrap().len() > 1000, "{picture}");
    }
}

/// fio-plot in an environment of its own, beside the built files; none if it cannot be had.
fn fio_plot() -> Option<PathBuf> {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fio-plot");
    let program = home.join("bin/fio-plot");
    let ran = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
    // An environment names its own folder in every program, so one that was moved is there and does not run.
    if ran(Command::new(&program).arg("--help")) {
        return Some(program);
    }
    _ = fs::remove_dir_all(&home);
    let pip = home.join("bin/pip");
    let made = ran(Command::new("python3").args(["-m", "venv"]).arg(&home))
        && ran(Command::new(pip).args(["install", "--quiet", "--timeout", "10", "--retries", "1", "fio-plot==1.1.21"]));
    if !made {
        eprintln!("skipped: fio-plot could not be installed");
        // A half of an environment would be taken for a whole one.
        _ = fs::remove_dir_all(&home);
    }
    made.then_some(program)
}

/// Each phase has its own verdict, on the terminal, on the page and in the document.
#[test]
fn each_phase_says_whether_it_is_steady() {
    let folder = tempfile::tempdir().unwrap();
    let job = "[global]\nioengine=libaio\ndirect=1\nbs=4k\niodepth=8\nfilename=/dev/nvme0n1\nrw=randread\n\
        [even]\nsize=8m\n[short]\nstonewall\nsize=2m\n[long]\nsize=12m\n";
    fs::write(folder.path().join("job.fio"), job).unwrap();
    let arguments = ["run", "job.fio", "--seeds", "1", "--json", "own.json", "--html", "own.html"];
    let text = String::from_utf8(run(folder.path(), &arguments).stdout).unwrap();
    let second = text.find("Phase 2 of 2: short, long").expect("two phases");
    let said = "NOT STEADY, posted: the fifths of the phase differ by ";
    assert!(text.find(said).is_some_and(|at| at > second), "{text}");
    assert_eq!(text.matches(said).count(), 1, "the first phase is steady:\n{text}");
    let page = fs::read_to_string(folder.path().join("own.html")).unwrap();
    assert!(page.contains("<h2>Phase 2 of 2: short, long</h2>") && page.contains(said));
    let own: Value = serde_json::from_slice(&fs::read(folder.path().join("own.json")).unwrap()).unwrap();
    for phase in own["outcomes"][0]["phases"].as_array().unwrap() {
        let timeline = &phase["outcome"]["timeline"];
        let ios: u64 = timeline["ios"].as_array().unwrap().iter().filter_map(Value::as_u64).sum();
        let all = phase["outcome"]["directions"][0]["ios"].as_u64().unwrap();
        assert!(ios <= all && ios > all * 9 / 10, "{ios} of {all}");
        assert_eq!(timeline["ends_itself"], true);
    }
}

/// What is in flight at the end of a ramp has the latency that it has, from its call on.
#[test]
fn a_ramp_leaves_no_mark_on_total_latencies() {
    let folder = tempfile::tempdir().unwrap();
    let job = "[a]\nioengine=libaio\ndirect=1\nrw=randread\nbs=4k\niodepth=8\nfilename=/dev/nvme0n1\n\
        ramp_time=2ms\nruntime=4ms\ntime_based\nrate_iops=50000\nsize=64m\n";
    let read = &fio_json(folder.path(), job)["jobs"][0]["read"];
    let mean = |kind: &str| read[kind]["mean"].as_f64().unwrap();
    assert!(mean("lat_ns") <= mean("slat_ns") + mean("clat_ns") + 1.0, "{read}");
    assert!(mean("lat_ns") > mean("clat_ns"));
}

/// Jobs as fio's users know them, only if they are asked for.
#[test]
fn jobs_are_shown_one_by_one_if_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let job = "[a]\nioengine=libaio\ndirect=1\nrw=randrw\nbs=4k\niodepth=8\nfilename=/dev/nvme0n1\nsize=4m\nlat_percentiles=1\n";
    fs::write(folder.path().join("job.fio"), job).unwrap();
    let text = |more: &[&str]| {
        let output = run(folder.path(), &[&["run", "job.fio", "--seeds", "1"], more].concat());
        String::from_utf8(output.stdout).unwrap()
    };
    let (plain, shown) = (text(&[]), text(&["--per-job"]));
    let own = shown.strip_prefix(&plain).expect("it stands below the table");
    for part in [
        "posted, seed 1",
        "a: group 0",
        "  read: ",
        "  write: ",
        "slat least",
        "clat percentiles p1 ",
        "lat percentiles ",
        "I/O depths",
        "8: ",
        "completion latency < ",
    ] {
        assert!(own.contains(part), "{part}:\n{own}");
    }
}

/// Key by key, type by type and, where both count, value by value: jobs that wait, fail and report in other ways.
#[test]
fn jobs_of_six_kinds_have_fios_keys() {
    const KINDS: [&str; 6] = [
        "[j]\nrw=read\nsize=64m\nsteadystate=iops:9%\nsteadystate_duration=1\nrate_iops=400\nruntime=20\ntime_based\n",
        "[j]\nrw=read\nsize=64m\nsteadystate=bw_slope:100\nsteadystate_duration=9\nrate_iops=400\nruntime=1\ntime_based\n",
        "[j]\nrw=read\nsize=64m\nlatency_target=1s\nlatency_window=100ms\nlatency_percentile=99.5\niodepth=4\nrate_iops=1000\nruntime=5\n",
        "group_reporting\nnumjobs=2\n[a]\nrw=randrw\nsize=1m\n[b]\nnew_group\nrw=trim\nsize=1m\n",
        "[j]\nrw=randrw\nsize=1m\nlat_percentiles=1\nclat_percentiles=0\npercentile_list=50:99.9\nfsync=8\n",
        "[j]\nrw=read\nsize=1m\nmax_latency=1ns\n[k]\nstonewall\nrw=write\nsize=64k\nclat_percentiles=0\ndescription=last\n",
    ];
    if !is_there("fio") {
        return;
    }
    for kind in KINDS {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("null.fio"), format!("[global]\nioengine=null\n{kind}")).unwrap();
        let fio = Command::new("fio").current_dir(folder.path()).args(["--output-format=json+", "null.fio"]).output();
        let text = String::from_utf8(fio.unwrap().stdout).unwrap();
        let theirs: Value = serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap();
        let ours = fio_json(folder.path(), &format!("[global]\nioengine=libaio\ndirect=1\n{kind}"));
        let (theirs, ours) = (theirs["jobs"].as_array().unwrap(), ours["jobs"].as_array().unwrap());
        assert_eq!(theirs.len(), ours.len(), "{kind}");
        for (theirs, ours) in theirs.iter().zip(ours) {
            let (form, own) = (shape_of(theirs), shape_of(ours));
            let differing: Vec<_> = form.iter().filter(|(path, kind)| own.get(*path) != Some(*kind)).collect();
            assert!(differing.is_empty(), "{kind}: {differing:#?}");
            let more: Vec<_> = own.keys().filter(|path| !form.contains_key(*path)).collect();
            assert!(more.is_empty(), "{kind}: fio does not write {more:?}");
            let same = [
                "jobname",
                "groupid",
                "error",
                "desc",
                "job options",
                "latency_target",
                "latency_percentile",
                "latency_window",
            ];
            for key in same {
                assert_eq!(theirs[key], ours[key], "{kind}: {key}");
            }
            for key in ["ss", "duration", "attained"] {
                assert_eq!(theirs["steadystate"][key], ours["steadystate"][key], "{kind}: {key}");
            }
        }
    }
}

/// A job that is cut before its end says so; one that runs to its end does not.
#[test]
fn a_size_beyond_what_is_simulated_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let said = |size: &str| {
        let job = format!("[a]\nioengine=libaio\ndirect=1\nrw=read\nbs=4k\nfilename=/dev/nvme0n1\nsize={size}\n");
        fs::write(folder.path().join("job.fio"), job).unwrap();
        let output = run(folder.path(), &["run", "job.fio", "--seeds", "1", "--set", "duration=1ms"]);
        String::from_utf8(output.stderr).unwrap().contains("size: the job would end after 26214400 I/Os")
    };
    assert!(said("100g"));
    assert!(!said("1m"));
}

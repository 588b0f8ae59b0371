//! A server that the model cannot give back: every command says so before its figures.

use std::path::Path;
use std::process::{Command, Output};

/// Depth 1 with a rate that its latency contradicts: a throttle, which the model lacks.
const FIO: &str = r#"{"fio version": "fio-3.33", "jobs": [{"jobname": "a", "read": {"iops": 10000, "total_ios": 100000,
    "runtime": 10000, "bw_bytes": 40960000, "clat_ns": {"mean": 20000, "max": 90000, "N": 100000}}}]}"#;
const JOB: &str =
    "[a]\nioengine=libaio\ndirect=1\nfilename=/dev/nvme0n1\nrw=randread\nbs=4k\niodepth=1\nruntime=1\ntime_based\n";

fn campanile(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_campanile")).current_dir(folder).args(arguments).output().unwrap()
}

/// Standard output and standard error.
fn texts(output: &Output) -> [String; 2] {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

#[test]
fn a_server_that_does_not_fit_is_named_by_import_run_and_advise() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("fio.json"), FIO).unwrap();
    std::fs::write(folder.join("a.fio"), JOB).unwrap();
    let arguments = ["import", "--fio-json", "fio.json", "--job", "a.fio", "--out", "mine", "--json", "import.json"];
    let import = campanile(folder, &arguments);
    let [text, error] = texts(&import);
    assert!(import.status.success(), "{error}");
    let said =
        "DOES NOT FIT: 2 of 2 rows are off by more than the 3 % of noise; do not rely on figures of this platform";
    assert!(text.contains(said), "{text}");
    let (_, behind) = text.split_once(said).unwrap();
    let lines: Vec<&str> = behind.lines().skip(1).take(2).collect();
    for line in &lines {
        assert!(line.contains("fio/") && line.contains("perhaps a limit that is not modelled"), "{line}");
    }
    let percent = |line: &str| -> f64 { line.split_whitespace().nth(1).unwrap().parse().unwrap() };
    assert!(percent(lines[0]).abs() >= percent(lines[1]).abs(), "the worst stands first: {lines:?}");
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(folder.join("import.json")).unwrap()).unwrap();
    assert_eq!(json["misses"].as_array().map(Vec::len), Some(2), "{json}");

    let misses = "mine misses measurements that it was fitted to by more than their noise: fio/";
    let run = ["run", "a.fio", "--platform", "mine/mine.toml", "--set", "duration=2ms", "--seeds", "1"];
    let run = campanile(folder, &run);
    let [text, error] = texts(&run);
    assert!(run.status.success() && [text, error.clone()].concat().contains(misses), "{error}");

    let advise = ["advise", "a.fio", "--platform", "mine/mine.toml", "--set", "duration=2ms", "--among", "posted"];
    let advise = campanile(folder, &advise);
    let [text, error] = texts(&advise);
    assert!(advise.status.success(), "{error}");
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let caution = flat.find(&format!("Not to be relied on: {misses}")).unwrap_or_else(|| panic!("{text}"));
    let verdict = flat.find("None needed").or_else(|| flat.find("Throughput:")).unwrap_or_else(|| panic!("{text}"));
    assert!(caution < verdict, "{text}");
}

/// Where everything is given back, nobody warns.
#[test]
fn a_server_that_fits_is_not_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("fio.json"), FIO.replace("20000,", "95000,")).unwrap();
    std::fs::write(folder.join("a.fio"), JOB).unwrap();
    let import = campanile(folder, &["import", "--fio-json", "fio.json", "--job", "a.fio", "--out", "mine"]);
    let [text, error] = texts(&import);
    assert!(import.status.success() && !text.contains("DOES NOT FIT"), "{text}{error}");
    let platform = std::fs::read_to_string(folder.join("mine/mine.toml")).unwrap();
    assert!(!platform.contains("misses"), "{platform}");
    let run = ["run", "a.fio", "--platform", "mine/mine.toml", "--set", "duration=2ms", "--seeds", "1"];
    let [text, error] = texts(&campanile(folder, &run));
    assert!(!text.contains("misses measurements") && !error.contains("misses measurements"), "{text}{error}");
}

/// A job's options, what its reads and its writes did, and what `import` prints of it; the measurement has the platform's name.
fn imported_slow(folder: &Path, options: &str, reads: &str, writes: &str) -> (String, String) {
    let slow = format!(
        r#"{{"fio version": "fio-3.33", "jobs": [{{"jobname": "slow", "job options": {{"rw": "randrw", "filename": "/dev/nvme0n1",
        "direct": "1", "ioengine": "libaio", "bs": "4k", {options}}}, "read": {{{reads}}}, "write": {{{writes}}}}}]}}"#
    );
    std::fs::write(folder.join("slow.json"), slow).unwrap();
    let import = campanile(folder, &["import", "--fio-json", "slow.json", "--out", "slow"]);
    let [text, error] = texts(&import);
    assert!(import.status.success(), "{error}");
    assert!(folder.join("slow/slow.toml").exists() && folder.join("slow/slow-2.toml").exists(), "{text}");
    (text, std::fs::read_to_string(folder.join("slow/rows.csv")).unwrap())
}

/// I/Os that take longer than the usual span, one of them in a hundred a write: not every row has a figure in each run of the fit.
#[test]
fn a_row_without_a_figure_is_left_out_and_the_others_are_fitted() {
    let folder = tempfile::tempdir().unwrap();
    let of = |iops: f64| {
        let ios = (iops * 400.0) as u32;
        format!(
            r#""iops": {iops}, "total_ios": {ios}, "runtime": 400000, "clat_ns": {{"mean": 400000000, "max": 900000000}}"#
        )
    };
    let options = r#""rwmixread": "99", "runtime": "400""#;
    let (text, rows) = imported_slow(folder.path(), options, &of(2.475), &of(0.025));
    assert!(text.contains("slow-2/read_clat: no I/O of it ends in the span that is simulated"), "{text}");
    // Whoever calibrates with the rows again meets only what was used.
    assert!(rows.contains("slow-2/iops") && !rows.contains("slow-2/read_clat"), "{rows}");
}

/// I/Os that take as long as the usual span.
#[test]
fn slow_drives_are_simulated_for_longer() {
    let folder = tempfile::tempdir().unwrap();
    let part = r#""iops": 6.67, "total_ios": 400, "runtime": 60000, "clat_ns": {"mean": 300000000, "max": 900000000}"#;
    let (text, rows) = imported_slow(folder.path(), r#""iodepth": "4", "runtime": "60""#, part, part);
    assert!(!text.contains("DOES NOT FIT") && !text.contains("no I/O of it ends"), "{text}");
    assert!(["iops", "read_clat", "write_clat"].iter().all(|what| rows.contains(&format!("slow-2/{what}"))), "{rows}");
}

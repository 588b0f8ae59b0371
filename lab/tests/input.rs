//! Wrong input on the command line gives exit code 2 and one line that names valid input. Nothing is written.

use std::path::Path;
use std::process::{Command, Output};

fn campanile(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_campanile")).current_dir(folder).args(arguments).output().expect("it starts")
}

/// Runs in a folder that holds `scenario` as `s.toml`. Returns the code, the error text and the names in the folder.
fn fail(scenario: &str, arguments: &[&str]) -> (i32, String, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("s.toml"), scenario).unwrap();
    let output = campanile(folder.path(), arguments);
    assert!(output.stdout.is_empty());
    let names =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap(), names.collect())
}

#[test]
fn a_wrong_scenario_ends_with_2_and_leaves_nothing() {
    let scenario = "platform = \"emr\"\nduraton = \"5 ms\"\n";
    let (code, error, names) = fail(scenario, &["run", "s.toml", "--json", "out.json", "--html", "out.html"]);
    assert_eq!(code, 2);
    assert_eq!(error, "campanile: s.toml:2: duraton: the name is unknown; valid: duration\n");
    assert_eq!(names, ["s.toml"]);
}

#[test]
fn an_output_that_cannot_be_written_ends_with_2_before_the_run() {
    let (code, error, names) = fail("", &["run", "emr-4-drives", "--json", "no/such/folder/out.json"]);
    assert_eq!(code, 2);
    assert_eq!(
        error,
        "campanile: --json: `no/such/folder/out.json` cannot be written (entity not found); \
         valid: a file in a folder that is there and writable\n"
    );
    assert_eq!(names, ["s.toml"]);
}

#[test]
fn a_manifest_or_a_search_that_cannot_be_written_ends_before_the_run() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("out.json.manifest.json")).unwrap();
    // None of them would end soon.
    let cases: [(&[&str], &str); 4] = [
        (&["bench", "--json", "out.json"], "--json: `out.json.manifest.json` is a folder; "),
        (&["reproduce", "--json", "out.json"], "--json: `out.json.manifest.json` is a folder; "),
        (&["check", "--minutes", "60", "--json", "missing/x"], "--json: `missing/x` cannot be written ("),
        (&["check", "--minutes", "60", "--trace", "missing/x"], "--trace: `missing/x` cannot be written ("),
    ];
    for (arguments, message) in cases {
        let output = campanile(folder.path(), arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.starts_with(&format!("campanile: {message}")), "{error}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn advice_on_a_span_in_which_nothing_ended_is_an_error() {
    let arguments = ["advise", "emr-low-qd1", "--among", "posted", "--seeds", "1", "--points", "1"];
    let slow = ["--set", "drive.gen5.media_mean=900ms", "--set", "ramp=100us", "--set", "duration=200us"];
    let (code, error, _) = fail("", &[&arguments[..], &slow].concat());
    assert_eq!(code, 1, "{error}");
    let expected =
        "campanile: as it is today: nothing ended in the simulated 0.2 ms behind a ramp of 0.1 ms, so that nothing";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn every_command_refuses_what_it_does_not_know() {
    let cases: [(&[&str], &str); 5] = [
        (&["run", "emr-4-drives", "--set", "fabric.dispatch=-5ns"], "--set: fabric.dispatch: `-5ns` is negative; "),
        (&["reproduce", "H44"], "reproduce: H44: the name is unknown; valid: "),
        (&["calibrate", "emx"], "calibrate: `emx` is no platform; valid: emr, spr, optane, azure, "),
        (&["advise", "emr-4-drives", "--today", "psted"], "--today: `psted` is no delivery; valid: "),
        (&["irqs", "nowhere"], "input: `nowhere` is neither a file nor a scenario; "),
    ];
    for (arguments, message) in cases {
        let (code, error, _) = fail("", arguments);
        assert_eq!(code, 2, "{error}");
        assert!(error.starts_with(&format!("campanile: {message}")), "{error}");
    }
}

/// A scenario of one job, with something changed.
fn scenario(from: &str, to: &str) -> String {
    let right = "platform = \"emr\"\nduration = \"2 ms\"\ncpus = 4\n\n[[jobs]]\nfilename = \"/dev/nvme0n1\"\n\
                 cpus_allowed = \"0\"\nrw = \"randread\"\nioengine = \"libaio\"\niodepth = 4\n\n[drives]\nqueues = 4\n";
    assert!(right.contains(from), "{from}");
    right.replace(from, to)
}

#[test]
fn every_kind_of_wrong_value_has_its_line_and_what_would_be_valid() {
    let time = "valid: a time with ns, us, ms or s, from 1 us to 10 s";
    let cases = [
        ("duration", "duraton", "2: duraton: the name is unknown; valid: duration".into()),
        ("2 ms", "2 GB", format!("2: duration: `2 GB` has the wrong unit `GB`; {time}")),
        ("\"2 ms\"", "2", format!("2: duration: `2` has no unit; {time}")),
        ("2 ms", "-2 ms", format!("2: duration: `-2 ms` is negative; {time}")),
        ("2 ms", "900 s", format!("2: duration: `900 s` is out of bounds; {time}")),
        ("\"0\"", "\"9\"", "7: cpus_allowed: `9` names CPU 9, which does not exist; valid: CPUs 0-3".into()),
        ("= 4\n\n[[", "= 9999\n\n[[", "3: cpus: `9999` is out of bounds; valid: a whole number, from 1 to 1024".into()),
        ("queues = 4", "queues = 300", "13: drives.queues: `300` is out of bounds; valid: ".into()),
        ("iodepth = 4", "iodepth = 70000", "iodepth: `70000` is out of bounds; ".into()),
        ("emr", "emx", "1: platform: `emx` is no platform; valid: emr, spr, optane, ".into()),
        ("\"emr\"", "[", "unexpected `=` in array, expected value, `]`".into()),
    ];
    for (from, to, message) in cases {
        let (code, error, names) = fail(&scenario(from, to), &["run", "s.toml", "--json", "out.json"]);
        assert_eq!(code, 2, "{error}");
        assert!(error.starts_with("campanile: s.toml:") && error.contains(&message), "expected {message}\ngot {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert_eq!(names, ["s.toml"], "nothing is written");
    }
}

#[test]
fn more_queues_than_vectors_are_refused() {
    let platform = "base = \"emr\"\nabout = \"few vectors\"\n[drive.gen5]\n\
                    vectors = { value = 3, reason = \"a small drive\" }\n";
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("few.toml"), platform).unwrap();
    std::fs::write(folder.path().join("s.toml"), scenario("\"emr\"", "\"./few.toml\"")).unwrap();
    let output = campanile(folder.path(), &["run", "s.toml"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("drives.queues: `4`") && error.contains("from 1 to 2"), "{error}");
}

#[test]
fn an_old_output_stays_when_the_input_is_wrong_and_is_replaced_when_it_is_right() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("out.json"), "old").unwrap();
    std::fs::write(path("wrong.toml"), scenario("2 ms", "-2 ms")).unwrap();
    std::fs::write(path("right.toml"), scenario("", "")).unwrap();
    let run = |name| campanile(folder.path(), &["run", name, "--seeds", "1", "--json", "out.json"]);
    assert_eq!(run("wrong.toml").status.code(), Some(2));
    assert_eq!(std::fs::read_to_string(path("out.json")).unwrap(), "old");
    let output = run("right.toml");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(std::fs::read_to_string(path("out.json")).unwrap().starts_with("{\n  \"scenario\": \"right\""));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3, "nothing else stays");
}

#[test]
fn what_is_not_modelled_is_a_warning_and_what_cannot_be_honoured_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let job = "[a]\nfilename=/dev/nvme0n1\nrw=randread\niodepth=4\nioengine=libaio\ndirect=1\n";
    std::fs::write(folder.path().join("warn.fio"), format!("{job}gtod_reduce=1\n")).unwrap();
    std::fs::write(folder.path().join("error.fio"), format!("{job}zonemode=zbd\n")).unwrap();
    let run = |name| campanile(folder.path(), &["run", name, "--seeds", "1", "--set", "duration=1ms"]);
    let (warned, refused) = (run("warn.fio"), run("error.fio"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(warned.status.code(), Some(0));
    assert!(text(&warned.stderr).starts_with("warning: warn.fio:7: gtod_reduce: not modelled"));
    assert!(text(&warned.stdout).contains("IOPS together"));
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).starts_with("campanile: error.fio:7: zonemode: `zbd` needs a zoned drive"));
}

#[cfg(unix)]
#[test]
fn an_interrupted_run_prints_what_it_has_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    // The run takes minutes: only the signal can end it within the test's time.
    let mut arguments = vec!["run", "emr-4-drives", "--seeds", "40", "--json", "out.json"];
    arguments.extend(["--set", "ramp=1ms", "--set", "duration=200ms"]);
    let child = Command::new(env!("CARGO_BIN_EXE_campanile"))
        .current_dir(folder.path())
        .args(arguments)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_secs(2));
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let output = child.wait_with_output().unwrap();
    let (out, error) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(130), "{out}{error}");
    assert!(out.contains("INTERRUPTED: the figures cover only the completed runs."), "{out}");
    assert!(out.contains("IOPS together"), "{out}");
    assert!(error.contains("campanile: interrupted; the figures cover only the completed runs"), "{error}");
    let json = std::fs::read_to_string(folder.path().join("out.json")).unwrap();
    assert!(json.contains("\"interrupted\": true"));
}

#[test]
fn irqs_shows_every_level_of_every_line() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("s.toml"), scenario("", "")).unwrap();
    let output = campanile(folder.path(), &["irqs", "s.toml", "--delivery", "posted", "--json", "lines.json"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let header: Vec<&str> = text.lines().next().unwrap().split("  ").filter(|name| !name.is_empty()).collect();
    let names = ["irq", "handlers", "flow", "domain", "chip", "hwirq", "masked", "pending", "flags", "affinity"];
    assert_eq!(header.iter().map(|name| name.trim()).collect::<Vec<_>>()[..10], names);
    for chip in ["DMAR-MSI", "PCI-MSIX", "INTEL-IR", "APIC"] {
        assert!(text.contains(chip), "{chip} in\n{text}");
    }
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("lines.json")).unwrap()).unwrap();
    let lines = json.as_array().unwrap();
    assert_eq!(lines.len(), 5, "four queues and the IOMMU's fault event");
    let first = lines.iter().find(|line| line["handlers"][0] == "nvme0n1q1").expect("the first queue's line");
    assert_eq!(first["levels"].as_array().unwrap().len(), 3);
    assert_eq!((&first["affinity"], &first["effective"]["cpu"]), (&serde_json::json!([0]), &serde_json::json!(0)));
    assert!(first["count"].as_u64().unwrap() > 10, "it was loaded: {first}");
}

/// People give one of our files where another is meant.
#[test]
fn a_file_of_ours_in_anothers_place_is_told_where_it_belongs() {
    let sweep = "scenario = \"emr-4-drives\"\n[grid]\n\"job.iodepth\" = [1, 4]\n";
    for command in ["run", "advise", "lint"] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("s.toml"), sweep).unwrap();
        let output = campanile(folder.path(), &[command, "s.toml"]);
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        assert!(
            said.contains("is a sweep, and no ") && said.contains("valid: campanile sweep s.toml"),
            "{command}: {said}"
        );
        assert_ne!(output.status.code(), Some(0));
    }
    // A job file whose section has the name of a key of ours, and that happens to be TOML.
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("j.fio"), "[drive]\nsize=65536\n").unwrap();
    assert_eq!(campanile(folder.path(), &["lint", "j.fio"]).status.code(), Some(0));
    let (code, error, _) = fail("platform = \"emr\"\nworkload = \"a.fio\"\n", &["sweep", "s.toml"]);
    assert!(code == 2 && error.contains("s.toml: is a scenario, and no sweep; valid: campanile run s.toml"), "{error}");
    let (code, error, _) = fail("", &["sweep", "emr-4-drives"]);
    assert!(code == 2 && error.contains("valid: a file with scenario = \"emr-4-drives\" and [grid]"), "{error}");
    let (_, error, _) = fail("", &["rerun", "."]);
    assert!(error.contains("is a folder, and no result; valid: "), "{error}");
    let (_, error, _) = fail(sweep, &["rerun", "s.toml"]);
    assert!(error.contains("is no JSON (") && error.contains("valid: the JSON, the trace"), "{error}");
}

#[test]
fn an_import_of_files_without_an_output_says_so() {
    let (code, error, _) = fail("about = \"x\"\n", &["import", "."]);
    assert_eq!(code, 2);
    assert!(error.contains("no measurement can be used: it holds no output of fio's (1 file); valid: "), "{error}");
}

#[test]
fn a_platform_of_ones_own_is_calibrated_with_rows_of_ones_own() {
    let (code, error, _) = fail("about = \"mine\"\nbase = \"emr\"\n", &["calibrate", "s.toml"]);
    assert!(code == 2 && error.contains("valid: --rows with a file of rows whose platform is s"), "{error}");
}

#[test]
fn points_that_are_the_same_and_a_value_with_two_units_are_refused() {
    let points = "scenario = \"emr-4-drives\"\n[[points]]\n\"job.iodepth\" = 1\n[[points]]\n\"job.iodepth\" = 1\n";
    let (code, error, _) = fail(points, &["sweep", "s.toml"]);
    assert!(code == 2 && error.contains("points: `point 2` is the same as one before"), "{error}");
    let platform =
        "about = \"x\"\nbase = \"emr\"\n[fabric]\ndispatch = { value = \"60 ns\", unit = \"ns\", reason = \"x\" }\n";
    let (code, error, _) = fail(platform, &["run", "emr-4-drives", "--platform", "s.toml"]);
    assert!(code == 2 && error.contains("`60 ns` has a unit, and `unit` stands beside it"), "{error}");
}

#[test]
fn rows_of_ones_own_that_are_none_are_refused() {
    let (code, error, _) = fail(
        "id,platform,scenario,delivery,quantity,value,unit,use,files,source\n",
        &["reproduce", "--rows", "s.toml"],
    );
    assert!(code == 2 && error.contains("s.toml: holds no row; valid: "), "{error}");
}

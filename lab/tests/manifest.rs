//! Every result says how it is made again, and is made again to the byte.

use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const JOB: &str = "[a]\nfilename=/dev/nvme0n1\ndirect=1\nioengine=libaio\ncpus_allowed=0-1\nrw=randread\n\
                   iodepth=${DEPTH}\nbs=4k\n";
const SCENARIO: &str = "platform = \"emr\"\ncpus = 2\nramp = \"100 us\"\nduration = \"200 us\"\nseeds = 2\n\
                        deliveries = [\"remapped\", \"posted\"]\nworkload = \"j.fio\"\n";

/// A folder with a scenario and its job file.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("s.toml"), SCENARIO).unwrap();
    std::fs::write(folder.path().join("j.fio"), JOB).unwrap();
    folder
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_campanile"));
    command.current_dir(folder).env("DEPTH", "4").args(arguments);
    command
}

fn campanile(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).output().expect("it starts")
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap()
}

#[test]
fn a_run_names_its_inputs_settings_and_jobs_and_no_output() {
    let folder = folder();
    text(&campanile(folder.path(), &["run", "s.toml", "--set", "fabric.dispatch=50ns", "--json", "a.json"]));
    text(&campanile(folder.path(), &["run", "s.toml", "--set", "fabric.dispatch=50ns", "--json=b.json"]));
    let result = read(folder.path(), "a.json");
    assert_eq!(result, read(folder.path(), "b.json"), "the name of an output changes no byte");
    let manifest = &serde_json::from_str::<Value>(&result).unwrap()["manifest"];
    assert_eq!(manifest["schema"], "campanile run");
    assert_eq!(manifest["arguments"], serde_json::json!(["run", "s.toml", "--set", "fabric.dispatch=50ns"]));
    let paths: Vec<&str> =
        manifest["inputs"].as_array().unwrap().iter().map(|input| input["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["j.fio", "platforms/emr.toml", "s.toml"]);
    // SHA-256 of the three letters is in the module's own test; here the file's as a whole is another's to compute.
    assert_eq!(manifest["inputs"][2]["bytes"], SCENARIO.len());
    assert_eq!(manifest["variables"]["DEPTH"], "4");
    assert_eq!(manifest["settings"]["fabric.dispatch"], "50ns");
    assert_eq!(manifest["settings"]["options.harvest_passes"], "2");
    assert_eq!(manifest["jobs"][0]["options"]["iodepth"], "4");
}

#[test]
fn a_result_is_made_again_to_the_byte() {
    let folder = folder();
    text(&campanile(folder.path(), &["run", "s.toml", "--json", "a.json"]));
    let said = text(&campanile(folder.path(), &["rerun", "a.json"]));
    assert!(said.starts_with("result: the same ") && said.lines().count() == 1, "{said}");
    // Another variable and another file: what was read then counts, and the change is said.
    std::fs::write(folder.path().join("j.fio"), JOB.replace("4k", "8k")).unwrap();
    let output = command(folder.path(), &["rerun", "a.json"]).env("DEPTH", "9").output().unwrap();
    let said = text(&output);
    assert!(said.contains("input j.fio: CHANGED, ") && said.contains("its content then is used\n"), "{said}");
    assert!(said.contains("result: the same "), "{said}");
}

#[test]
fn a_trace_and_fios_json_are_made_again() {
    let folder = folder();
    text(&campanile(folder.path(), &["run", "s.toml", "--trace", "t", "--fio-json", "{delivery}.json"]));
    for result in ["t", "remapped.json", "posted.json"] {
        let said = text(&campanile(folder.path(), &["rerun", result]));
        assert!(said.starts_with("result: the same ") && said.lines().count() == 1, "{result}: {said}");
    }
    assert_ne!(read(folder.path(), "remapped.json"), read(folder.path(), "posted.json"));
    let result = read(folder.path(), "posted.json").replace("\"iops\"", "\"iosp\"");
    std::fs::write(folder.path().join("posted.json"), result).unwrap();
    assert_eq!(campanile(folder.path(), &["rerun", "posted.json"]).status.code(), Some(1));
}

#[test]
fn a_result_that_differs_is_named_and_the_place_too() {
    let folder = folder();
    text(&campanile(folder.path(), &["run", "s.toml", "--json", "a.json"]));
    let result = read(folder.path(), "a.json").replace("\"seed\": 2", "\"seed\": 3");
    std::fs::write(folder.path().join("a.json"), result).unwrap();
    let output = campanile(folder.path(), &["rerun", "a.json"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("result: DIFFERS\n  outcomes[1].seed: 3 then, 2 now\n"), "{said}");
}

#[test]
fn a_result_without_a_manifest_and_a_newer_one_are_refused_by_name() {
    let folder = folder();
    for (result, why) in [
        ("{}", "old.json: has no manifest: "),
        ("[]", "old.json: has no manifest: "),
        ("{\"manifest\": {\"schema_version\": 7}}", "old.json: manifest.schema_version: has form 7, which is newer "),
        (
            "{\"manifest\": {\"schema_version\": 0}}",
            "old.json: manifest.schema_version: has form 0, which no program wrote",
        ),
        ("{\"manifest\": {\"schema_version\": 1}}", "old.json: manifest: is damaged: missing field"),
        ("{", "old.json: is no JSON ("),
    ] {
        std::fs::write(folder.path().join("old.json"), result).unwrap();
        let output = campanile(folder.path(), &["rerun", "old.json"]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && said.starts_with(&format!("campanile: {why}")), "{said}");
    }
}

#[test]
fn a_list_has_its_manifest_beside_it() {
    let folder = folder();
    text(&campanile(folder.path(), &["irqs", "s.toml", "--delivery", "posted", "--json", "lines.json"]));
    let manifest: Value = serde_json::from_str(&read(folder.path(), "lines.json.manifest.json")).unwrap();
    assert_eq!(manifest["arguments"], serde_json::json!(["irqs", "s.toml", "--delivery", "posted"]));
    for file in ["lines.json", "lines.json.manifest.json"] {
        let output = campanile(folder.path(), &["rerun", file]);
        let said = String::from_utf8(output.stderr).unwrap();
        let why = format!("{file}: manifest: campanile irqs is not run again; valid: a result of run or sweep");
        assert!(output.status.code() == Some(2) && said.contains(&why), "{said}");
    }
}

#[test]
fn a_search_names_its_first_seed() {
    let folder = folder();
    let arguments = ["check", "--scenario", "pc-plain", "--seeds", "1", "--json", "c.json"];
    text(&campanile(folder.path(), &arguments));
    let manifest = &serde_json::from_str::<Value>(&read(folder.path(), "c.json")).unwrap()["manifest"];
    assert!(manifest["settings"]["first_seed"].as_str().unwrap().starts_with("0x"), "{manifest}");
}

/// Runs with `input` on standard input.
fn piped(folder: &Path, arguments: &[&str], input: &str) -> Output {
    let mut child = command(folder, arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    child.stdin.take().expect("piped").write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn a_scenario_and_a_job_file_come_from_standard_input() {
    let folder = folder();
    let scenario = text(&piped(folder.path(), &["run", "-", "--json", "-"], SCENARIO));
    let result: Value = serde_json::from_str(&scenario).expect("standard output has the JSON alone");
    assert_eq!(
        (&result["scenario"], &result["outcomes"][0]["delivery"]),
        (&"standard-input".into(), &"remapped".into())
    );
    std::fs::write(folder.path().join("a.json"), &scenario).unwrap();
    assert!(text(&campanile(folder.path(), &["rerun", "a.json"])).starts_with("result: the same "));
    let sets = ["--set", "duration=200us", "--set", "ramp=100us", "--seeds", "1", "--set", "cpus=2"];
    let job =
        text(&piped(folder.path(), &[&["run", "-", "--delivery", "posted", "--json", "-"], &sets[..]].concat(), JOB));
    assert_eq!(serde_json::from_str::<Value>(&job).unwrap()["outcomes"].as_array().unwrap().len(), 1);
    let output = piped(folder.path(), &["run", "-"], "platform = \"emr\"\nduraton = 1\n");
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "campanile: -:2: duraton: the name is unknown; valid: duration\n"
    );
}

/// The files that only the simulated rows read were no inputs, and no setting stood there.
#[test]
fn advice_and_a_calibration_name_their_settings_and_inputs() {
    let folder = folder();
    let advise = ["advise", "s.toml", "--among", "rq_affinity", "--seeds", "1", "--points", "0", "--kernel", "6.10"];
    text(&campanile(folder.path(), &[&advise[..], &["--cpu-budget", "50%", "--json", "a.json"]].concat()));
    let manifest = &serde_json::from_str::<Value>(&read(folder.path(), "a.json")).unwrap()["manifest"];
    let settings = &manifest["settings"];
    assert_eq!((&settings["platform"], &settings["deliveries"]), (&"emr".into(), &serde_json::json!(["remapped"])));
    assert_eq!(settings["options.harvest_passes"], "2", "defaults are settings too");
    assert_eq!(settings["advise.among"], serde_json::json!(["rq_affinity"]));
    assert_eq!((&settings["advise.kernel"], &settings["advise.cpu_budget"]), (&"6.10".into(), &"50%".into()));
    assert_eq!(manifest["jobs"][0]["options"]["iodepth"], "4");

    let platform = "about = \"mine\"\nbase = \"emr\"\n[fabric]\n\
                    dispatch = { value = 112, unit = \"ns\", fit = true, reason = \"r\" }\n";
    std::fs::write(folder.path().join("mine.toml"), platform).unwrap();
    let scenario = SCENARIO.replace("\"emr\"", "\"mine.toml\"").replace("200 us", "400 us");
    std::fs::write(folder.path().join("m.toml"), scenario).unwrap();
    let rows = |file: &str, delivery: &str| {
        let header = "id,platform,scenario,delivery,quantity,value,unit,use,files,source";
        let row = format!("{header}\nX1,mine,a test,{delivery},iops,110,kIOPS,fit,{file},a test\n");
        std::fs::write(folder.path().join("rows.csv"), row).unwrap();
        campanile(folder.path(), &["calibrate", "./mine.toml", "--rows", "rows.csv", "--json", "c.json"])
    };
    for (file, delivery, expected) in [
        ("gone.toml", "remapped", "rows.csv:2: row X1: files: `gone.toml` cannot be read"),
        (
            "m.toml",
            "psoted",
            "rows.csv:2: row X1: delivery: `psoted` is no delivery of m.toml; valid: remapped, posted",
        ),
    ] {
        let output = rows(file, delivery);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && error.contains(expected), "{error}");
    }
    let said = text(&rows("m.toml", "remapped"));
    assert!(!said.contains("all together"), "of one constant there is one interval: {said}");
    let result = serde_json::from_str::<Value>(&read(folder.path(), "c.json")).unwrap();
    if let Some(held) = result["constants"][0]["held"].as_object() {
        assert_eq!(held["joint"], held["alone"]);
    }
    let manifest = &result["manifest"];
    let paths: Vec<&str> =
        manifest["inputs"].as_array().unwrap().iter().map(|input| input["path"].as_str().unwrap()).collect();
    assert!(
        ["j.fio", "m.toml", "mine.toml", "rows.csv"].iter().all(|name| paths.iter().any(|path| path.ends_with(name))),
        "{paths:?}"
    );
    assert_eq!(manifest["variables"]["DEPTH"], "4");
    assert_eq!(manifest["settings"]["scenarios"]["m.toml"]["platform"], "mine");
    assert_eq!(manifest["settings"]["rows"], serde_json::json!(["X1"]));
    assert_eq!(manifest["jobs"][0]["name"], "m.toml: a");
}

/// Defect: the manifest of `reproduce` named the rows alone.
#[test]
fn a_reproduction_names_the_inputs_and_settings_of_its_scenarios() {
    let folder = folder();
    text(&campanile(folder.path(), &["reproduce", "H4", "--json", "r.json"]));
    let manifest: Value = serde_json::from_str(&read(folder.path(), "r.json.manifest.json")).unwrap();
    assert_eq!(manifest["settings"]["rows"], serde_json::json!(["H4"]));
    let scenario = &manifest["settings"]["scenarios"]["emr-4-drives"];
    assert_eq!((&scenario["platform"], &scenario["options.harvest_passes"]), (&"emr".into(), &"2".into()));
    for path in ["scenarios/published.csv", "scenarios/emr-4-drives.toml", "platforms/emr.toml"] {
        let input = manifest["inputs"].as_array().unwrap().iter().find(|input| input["path"] == path).unwrap();
        assert_eq!(input["sha256"].as_str().unwrap().len(), 64, "{path}");
    }
    assert!(!manifest["jobs"].as_array().unwrap().is_empty());
}

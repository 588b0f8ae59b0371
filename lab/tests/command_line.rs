//! The command line as people and shells meet it.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

const SCENARIO: &str = "platform = \"emr\"\ncpus = 2\nramp = \"100 us\"\nduration = \"200 us\"\nseeds = 1\n\
    deliveries = [\"remapped\", \"posted\"]\n[[jobs]]\nfilename = \"/dev/nvme0n1\"\nioengine = \"libaio\"\ndirect = true\n\
    rw = \"randread\"\ncpus_allowed = \"0-1\"\niodepth = 4\n";

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_campanile"));
    command.current_dir(folder).args(arguments);
    command
}

fn text(folder: &Path, arguments: &[&str]) -> String {
    let output = command(folder, arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("s.toml"), SCENARIO).unwrap();
    folder
}

#[test]
fn a_table_fits_forty_columns() {
    let folder = folder();
    for columns in [40, 60, 80] {
        let output = command(folder.path(), &["run", "s.toml"]).env("COLUMNS", columns.to_string()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let wide = text.lines().find(|line| line.chars().count() > columns);
        assert!(text.contains("IOPS together") && wide.is_none(), "{columns}: {wide:?}\n{text}");
        assert!(!text.contains("n/a"), "{text}");
        let output = command(folder.path(), &["irqs", "s.toml"]).env("COLUMNS", columns.to_string()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let wide = text.lines().find(|line| line.chars().count() > columns);
        assert!(text.contains("nvme") && wide.is_none(), "{columns}: {wide:?}\n{text}");
    }
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let folder = folder();
    for arguments in [&["list", "keys"][..], &["run", "s.toml"], &["check", "--list"], &["completions", "bash"]] {
        let mut child =
            command(folder.path(), arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        drop(child.stdout.take());
        let mut error = String::new();
        child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
        assert!(child.wait().unwrap().success() && error.is_empty(), "{arguments:?}: {error}");
    }
}

#[test]
fn a_closed_pipe_of_messages_changes_no_exit_code() {
    let folder = folder();
    std::fs::write(folder.path().join("bad.fio"), "[a]\nrw=reed\n").unwrap();
    for (arguments, code) in [(&["lint", "bad.fio"][..], 1), (&["run", "bad.fio"], 2), (&["run", "s.toml"], 0)] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = command(folder.path(), arguments);
        let status = command.stdout(Stdio::null()).stderr(writer).status().expect("it starts");
        assert_eq!(status.code(), Some(code), "{arguments:?}");
    }
}

#[test]
fn lists_have_scenarios_platforms_and_keys() {
    let folder = folder();
    let list: serde_json::Value = serde_json::from_str(&text(folder.path(), &["list", "--json"])).unwrap();
    let names = |what: &str| -> Vec<&str> {
        list[what].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect()
    };
    assert!(names("scenarios").contains(&"emr-4-drives") && names("platforms").contains(&"juno"));
    let keys = list["keys"].as_array().unwrap();
    let key = keys.iter().find(|key| key["key"] == "fabric.dispatch").unwrap();
    assert!(key["unit"] == "ns" && key["max"].is_number() && key["valid"].as_str().unwrap().contains("a time with ns"));
    let search = text(folder.path(), &["check", "--scenario", "pc-plain", "--seeds", "1", "--json", "-"]);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&search).unwrap()["histories"], 1);
    // What is listed can be set.
    let one = text(folder.path(), &["run", "s.toml", "--set", "options.harvest_passes=3", "--json", "-"]);
    assert!(one.contains("\"options.harvest_passes\": \"3\""));
}

#[test]
fn a_typing_error_gets_the_nearest_name() {
    let folder = folder();
    for (arguments, near) in [
        (&["run", "emr-4-drive"][..], "or one of emr-4-drives"),
        (&["run", "s.toml", "--set", "fabric.dispach=1ns"], "valid: fabric.dispatch"),
        (&["run", "s.toml", "--seds", "1"], "--seeds"),
        (&["swep", "s.toml"], "sweep"),
    ] {
        let output = command(folder.path(), arguments).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && error.contains(near), "{error}");
    }
}

#[test]
fn completions_and_man_pages_are_generated() {
    let folder = folder();
    for shell in ["bash", "zsh", "fish"] {
        assert!(text(folder.path(), &["completions", shell]).contains("reproduce"), "{shell}");
    }
    text(folder.path(), &["man", "pages"]);
    let page = std::fs::read_to_string(folder.path().join("pages/campanile-run.1")).unwrap();
    assert!(page.contains(".TH") && page.contains("seeds"));
}

#[test]
fn a_sweep_is_run_resumed_merged_and_run_again() {
    let folder = folder();
    let sweep = "scenario = \"s.toml\"\n[grid]\n\"job.iodepth\" = [1, 2, 0]\n";
    std::fs::write(folder.path().join("w.toml"), sweep).unwrap();
    let said = text(folder.path(), &["sweep", "w.toml"]);
    assert!(said.contains("6 runs in w-results: 0 done before, 6 now\n"), "{said}");
    assert!(said.contains("2 runs not possible, column `error` says why\n"), "{said}");
    assert!(said.contains("2 of 2 points are not steady, column `steadiness` says why"), "{said}");
    assert!(text(folder.path(), &["sweep", "w.toml"]).contains("6 done before, 0 now"));
    for shard in ["1/2", "2/2"] {
        let said = text(folder.path(), &["sweep", "w.toml", "--shard", shard, "--out", "parts", "--jobs", "1"]);
        assert!(said.contains(&format!("3 runs of shard {shard} in parts")), "{said}");
    }
    text(folder.path(), &["merge", "parts", "--out", "merged"]);
    for name in ["results.csv", "results.parquet", "page.html", "manifest.json"] {
        let read = |from: &str| std::fs::read(folder.path().join(from).join(name)).unwrap();
        assert!(read("w-results") == read("merged"), "{name}");
    }
    let said = text(folder.path(), &["rerun", "merged/manifest.json"]);
    for name in ["results.csv", "results.parquet", "page.html"] {
        assert!(said.contains(&format!("{name}: the same ")), "{said}");
    }
    std::fs::write(folder.path().join("merged/page.html"), "another").unwrap();
    let output = command(folder.path(), &["rerun", "merged/manifest.json"]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.code() == Some(1) && said.contains("page.html: DIFFERS"), "{said}");
    std::fs::write(folder.path().join("w.toml"), sweep.replace(", 0]", ", 3]")).unwrap();
    let output = command(folder.path(), &["sweep", "w.toml"]).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && error.contains("holds runs of another sweep"), "{error}");
}

#[test]
fn a_sweep_of_which_no_run_was_possible_ends_with_1() {
    let folder = folder();
    let sweep = "scenario = \"s.toml\"\ndeliveries = [\"posted\"]\n[grid]\n\"job.iodepth\" = [0, 100000]\n";
    std::fs::write(folder.path().join("w.toml"), sweep).unwrap();
    let judged = |arguments: &[&str]| {
        let output = command(folder.path(), arguments).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1), "{error}");
        assert!(error.contains("campanile: none of 2 runs was possible; the first: "), "{error}");
    };
    judged(&["sweep", "w.toml"]);
    assert!(folder.path().join("w-results/results.csv").exists(), "the table says why");
    text(folder.path(), &["sweep", "w.toml", "--shard", "1/2", "--out", "parts"]);
    text(folder.path(), &["sweep", "w.toml", "--shard", "2/2", "--out", "parts"]);
    judged(&["merge", "parts"]);
}

#[test]
fn the_lines_of_a_job_in_phases_have_its_interrupts() {
    let folder = folder();
    let job = "[global]\nfilename=/dev/nvme0n1\ndirect=1\nrw=randread\nnumber_ios=50\n[a]\n[b]\nstonewall\n";
    std::fs::write(folder.path().join("j.fio"), job).unwrap();
    text(folder.path(), &["irqs", "j.fio", "--set", "cpus=1", "--json", "lines.json"]);
    let lines = std::fs::read_to_string(folder.path().join("lines.json")).unwrap();
    let lines: serde_json::Value = serde_json::from_str(&lines).unwrap();
    let counts: u64 = lines.as_array().unwrap().iter().filter_map(|line| line["count"].as_u64()).sum();
    assert!(counts >= 100, "{lines}");
}

#[test]
fn an_import_names_a_file_that_another_option_takes() {
    let folder = folder();
    let fio = r#"{"jobs": [{"jobname": "a", "read": {"iops": 9}}]}"#;
    for (name, text) in
        [("f.json", fio), ("irq", "CPU0\n 34: 7 PCI-MSI 1-edge nvme0q1\n"), ("soft", "CPU0\n BLOCK: 7\n")]
    {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    for (arguments, expected) in [
        (
            &["--fio-json", "f.json", "--interrupts", "irq", "f.json"][..],
            "`f.json` is what fio printed, which --fio-json takes",
        ),
        (&["--fio-json", "f.json", "--job", "irq"], "--job: `irq` is /proc/interrupts, which --interrupts takes"),
        (
            &["--fio-json", "f.json", "--interrupts", "soft", "soft"],
            "`soft` is /proc/softirqs; valid: /proc/interrupts",
        ),
        (&["irq"], "but /proc/interrupts, which --interrupts takes"),
    ] {
        let output = command(folder.path(), &[&["import"], arguments].concat()).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && error.contains(expected), "{:?} {error}", output.status);
    }
}

//! `campanile lint` tells everything at once, with line and column, and judges as `campanile run` does.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn campanile(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_campanile"))
        .current_dir(folder)
        .env_remove("DEPTH")
        .args(arguments)
        .output()
        .expect("it starts")
}

/// Lints `text` as `j.fio`: the exit code and what it printed.
fn lint(text: &str, arguments: &[&str]) -> (i32, String) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("j.fio"), text).unwrap();
    let output = campanile(folder.path(), &[&["lint", "j.fio"], arguments].concat());
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

const GOOD: &str = "[global]\nioengine=libaio\ndirect=1\n[a]\nfilename=/dev/nvme0n1\nnice=5\niodepth=8x\n";

#[test]
fn every_option_is_shown_with_how_it_is_taken() {
    let (code, text) = lint(GOOD, &[]);
    assert_eq!(code, 0, "{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "j.fio:2:1: ioengine=libaio: modelled: the calls that submit and reap");
    assert!(
        lines.contains(&"j.fio:6:1: nice=5: not modelled: all threads and requests have the same priority"),
        "{text}"
    );
    assert!(lines.contains(&"j.fio:7:1: warning: iodepth: fio reads `8x` as 8"), "{text}");
    assert_eq!(*lines.last().unwrap(), "j.fio: it runs; 2 warnings, 0 refused");
}

#[test]
fn all_errors_are_told_at_once() {
    let text = "bs=4k\n[a]\n  iodepht=64\nrw=shuffle\nsize=${NOPE}\ndirect\n[b]\nsprandom=1\nnice=3\n";
    let (code, text) = lint(text, &[]);
    assert_eq!(code, 1);
    for refused in [
        "j.fio:1:1: refused: an option before the first [section]",
        "j.fio:3:3: refused: iodepht: the name is unknown; valid: iodepth",
        "j.fio:4:1: refused: rw: `shuffle` is no value; valid: read, write, ",
        "j.fio:5:1: refused: size: `${NOPE}` is a variable that is not set; valid: --define NOPE=VALUE, ",
        "j.fio:6:1: refused: direct: `direct` has no value; valid: 0 or 1",
        "j.fio:8:1: refused: sprandom: `1` is for an option of a newer fio than 3.33; ",
        "j.fio:9:1: warning: nice: not modelled: ",
    ] {
        assert!(text.contains(refused), "{refused}\nin\n{text}");
    }
    assert!(text.ends_with("j.fio: it does not run; 1 warnings, 6 refused\n"), "{text}");
}

#[test]
fn a_file_of_very_many_wrong_options_is_judged_soon() {
    let began = std::time::Instant::now();
    let unknown: String = (0..30_000).map(|number| format!("key_{number} = 1\n")).collect();
    let unset: String = (0..30_000).map(|number| format!("size=${{NOPE_{number}}}\n")).collect();
    let (code, text) = lint(&format!("[fabric]\n{unknown}{unset}"), &[]);
    assert_eq!(code, 1);
    assert!(text.contains("j.fio:2:1: refused: key_0: the name is unknown; valid: "), "the first have near names");
    let last = "j.fio:30001:1: refused: key_29999: `1` is for a name that is unknown; valid: an option of fio 3.33";
    assert!(text.contains(last) && text.ends_with("0 warnings, 60000 refused\n"));
    // A look through all that are not set for each option alone takes minutes.
    assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
}

#[test]
fn each_job_that_cannot_be_read_is_told() {
    let text = "[global]\ndirect=1\nfilename=/dev/nvme0n1\n[a]\nioengine=rados\n[b]\nioengine=net\n";
    let (code, text) = lint(text, &[]);
    assert_eq!(code, 1);
    assert!(text.contains("j.fio:5:1: refused: ioengine: `rados`"), "{text}");
    assert!(text.contains("j.fio:7:1: refused: ioengine: `net`"), "{text}");
}

#[test]
fn json_has_the_same() {
    let (_, text) = lint(GOOD, &["--json"]);
    let all: Value = serde_json::from_str(&text).unwrap();
    let one = &all[0];
    assert_eq!((&one["file"], &one["runs"]), (&"j.fio".into(), &true.into()));
    let nice = one["options"].as_array().unwrap().iter().find(|option| option["option"] == "nice").unwrap();
    assert_eq!((&nice["line"], &nice["column"], &nice["section"]), (&6.into(), &1.into(), &"a".into()));
    assert_eq!((&nice["value"], &nice["taken"]), (&"5".into(), &"not modelled".into()));
    assert_eq!(one["findings"][0]["level"], "warning");
}

#[test]
fn run_and_lint_agree() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("good.fio", &GOOD.replace("8x", "${DEPTH}"));
    write("bad.fio", &GOOD.replace("libaio", "rados"));
    let code = |arguments: &[&str]| campanile(folder.path(), arguments).status.code().unwrap();
    let run = ["--seeds", "1", "--set", "ramp=10us", "--set", "duration=50us"];
    assert_eq!(code(&["lint", "good.fio", "--define", "DEPTH=4"]), 0);
    assert_eq!(code(&[&["run", "good.fio", "--define", "DEPTH=4"][..], &run].concat()), 0);
    assert_eq!((code(&["lint", "good.fio"]), code(&["run", "good.fio"])), (1, 2));
    assert_eq!((code(&["lint", "bad.fio"]), code(&["run", "bad.fio"])), (1, 2));
    assert_eq!(code(&["lint", "absent.fio"]), 1);
}

#[test]
fn a_variable_of_the_environment_is_recorded_in_the_result() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("j.fio"), GOOD.replace("8x", "${DEPTH}")).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_campanile"))
        .current_dir(folder.path())
        .env("DEPTH", "4")
        .args(["run", "j.fio", "--seeds", "1", "--set", "ramp=10us", "--set", "duration=50us", "--json", "o.json"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json = std::fs::read_to_string(folder.path().join("o.json")).unwrap();
    assert!(json.contains("${DEPTH}: is `4`, from the environment"), "{json}");
}

/// Defect: the input was read twice, and a pipe has it once.
#[test]
fn a_job_file_from_a_pipe_is_judged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in");
    std::fs::write(&path, GOOD).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_campanile"))
        .args(["lint", "-"])
        .stdin(std::fs::File::open(path).unwrap())
        .output()
        .expect("it starts");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.ends_with("-: it runs; 2 warnings, 0 refused\n"), "{text}");
}

/// Defect: such a job vanished without a word, and a file of such jobs ended with "the machine stands still" alone.
#[test]
fn jobs_behind_the_end_of_their_drive_are_told() {
    let (code, text) = lint("[a]\nfilename=/dev/nvme0n1\noffset=1t\n[b]\noffset=1g\nfilename=/dev/nvme0n1\n", &[]);
    assert_eq!(code, 0, "{text}");
    let told = "j.fio:1:1: warning: offset: [a] begins at byte 1099511627776, behind the end of /dev/nvme0n1 (the simulated drive has \
                1024 GiB): it does no I/O, as in fio";
    assert!(text.contains(told) && !text.contains("[b] begins"), "{text}");
}

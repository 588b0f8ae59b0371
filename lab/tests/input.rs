//! Wrong input on the command line: exit code 2, one line that says what would be valid, nothing written.

use std::path::Path;
use std::process::{Command, Output};

fn campanile(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_campanile")).current_dir(folder).args(arguments).output().expect("it starts")
}

/// Runs in a folder that holds `scenario` as `s.toml`; gives the code, the error text and the names in the folder.
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
    assert_eq!(error, "campanile: s.toml:2: duraton: nothing has this name; valid: duration\n");
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
fn every_command_refuses_what_it_does_not_know() {
    let cases: [(&[&str], &str); 4] = [
        (&["run", "emr-4-drives", "--set", "fabric.dispatch=-5ns"], "--set: fabric.dispatch: `-5ns` is negative; "),
        (&["reproduce", "H44"], "reproduce: H44: nothing has this name; valid: "),
        (&["calibrate", "emx"], "calibrate: `emx` is no platform; valid: emr, spr, optane, "),
        (&["irqs", "nowhere"], "input: `nowhere` is neither a file nor a scenario; "),
    ];
    for (arguments, message) in cases {
        let (code, error, _) = fail("", arguments);
        assert_eq!(code, 2, "{error}");
        assert!(error.starts_with(&format!("campanile: {message}")), "{error}");
    }
}

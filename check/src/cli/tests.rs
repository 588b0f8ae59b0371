use super::*;
use clap::Parser;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    check: CheckArgs,
}

fn parse(line: &str) -> Result<CheckArgs, clap::error::ErrorKind> {
    Cli::try_parse_from(line.split(' ')).map(|cli| cli.check).map_err(|error| error.kind())
}

fn refused(line: &str) -> String {
    let args = parse(line).expect("clap takes it");
    execute(&args, crate::scenarios::all()).expect_err("refused").to_string()
}

#[test]
fn what_is_wrong_is_named_with_what_would_be_valid() {
    assert!(refused("check --scenario pc").contains("valid is pc-plain, "));
    assert!(refused("check --faults fire").contains("--faults fire: valid is all, none, or of "));
    assert!(
        refused("check --scenario parts --faults fire")
            .ends_with("valid is all or none: these scenarios have no faults")
    );
    assert!(refused("check --replay 1").contains("needs one --scenario"));
    assert!(refused("check --scenario pc-plain --replay 1 --keep x").contains("numbers of events"));
    let said = refused("check --scenario pc-plain --replay 0x5eed --keep 99999");
    assert!(said.starts_with("--keep 99999: the history has no such event; valid are events 1 to "), "{said}");
    assert!(refused("check --scenario pc-plain --replay 1 --set cpus=99").contains("1 to 8"));
    // In a search too, which would tell it as a finding of a history.
    for line in ["check --scenario pc-plain --set cpus=0", "check --scenario pc-plain --guided --set cpus=0"] {
        assert!(refused(line).contains("pc-plain: --set cpus=0: valid is 1 to 8"), "{line}");
    }
    assert!(refused("check --single-faults its/fire").contains("or a part: aborts/"));
    assert!(
        refused("check --scenario pc-plain --replay 1 --reseed cpu=1")
            .contains("valid is PART=SEED, with machine, load")
    );
    assert!(refused("check --scenario pc-plain --replay 1 --at 4").contains("--at 4: valid is NUMBER=NS"));
    assert!(refused("check --without gravity").contains("--without gravity: valid is of "));
    for line in [
        "check --seeds 0",
        "check --seeds 1 --minutes 1",
        "check --replay 1 --seeds 3",
        "check --seed five",
        // What these print is no document.
        "check --list --json -",
        "check --scenario parts --replay 1 --json -",
        "check --scenario gicv3 --single-faults its/message-late --position 1 --json -",
        "check --scenario gicv3 --systematic its/move+disable --schedule ab --json -",
        "check --keep 1",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
    assert_eq!(parse("check --seed 0x5eed").expect("hex").seed, Some(0x5eed));
}

#[test]
fn a_search_for_a_time_runs_every_search_and_says_what_it_spent() {
    let folder = tempfile::tempdir().expect("a folder");
    let json = folder.path().join("found.json");
    let mut args = parse("check --scenario gicv2,gicv3 --minutes 0.05 --seed 7 --jobs 1").expect("valid");
    args.json = Some(json.clone());
    assert_eq!(execute(&args, crate::scenarios::all()).expect("it runs"), 0);
    let said: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&json).expect("written")).expect("JSON");
    let spent = said["spent"].as_array().expect("a list");
    for (on, search) in [("gicv2", "random"), ("gicv3", "orders"), ("gicv2", "faults"), ("eoimode", "forms")] {
        let is_it = |row: &&serde_json::Value| row["on"] == on && row["search"] == search;
        assert!(
            spent.iter().find(is_it).is_some_and(|row| row["units"].as_u64() > Some(0)),
            "{on} {search}: {spent:?}"
        );
    }
    assert!(said["histories"].as_u64() > Some(0) && said["seconds"].as_f64() > Some(2.0), "{said}");
    // What is set by hand is of random histories alone.
    let mut args = parse("check --scenario gicv2 --minutes 0.01 --seed 7 --faults none --jobs 1").expect("valid");
    args.json = Some(json.clone());
    assert_eq!(execute(&args, crate::scenarios::all()).expect("it runs"), 0);
    let said: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&json).expect("written")).expect("JSON");
    assert_eq!(said["spent"].as_array().map(Vec::len), Some(1), "{said}");
}

#[test]
fn files_that_are_touched_are_for_a_search_for_a_time() {
    assert!(parse("check --touched irq/src/flow.rs").is_err());
    let args = parse("check --minutes 1 --touched irq/src/flow.rs README.md").expect("valid");
    assert_eq!(args.touched, ["irq/src/flow.rs", "README.md"]);
}

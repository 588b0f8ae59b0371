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
    assert!(refused("check --replay 1").contains("needs one --scenario"));
    assert!(refused("check --scenario pc-plain --replay 1 --keep x").contains("numbers of events"));
    assert!(refused("check --scenario pc-plain --replay 1 --set cpus=99").contains("1 to 8"));
    assert!(refused("check --single-faults its/fire").contains("or a part: edge/level-stuck, "));
    assert!(refused("check --scenario pc-plain --replay 1 --reseed cpu=1").contains("valid is PART=SEED"));
    assert!(refused("check --scenario pc-plain --replay 1 --at 4").contains("--at 4: valid is NUMBER=NS"));
    assert!(refused("check --without gravity").contains("--without gravity: valid is of "));
    for line in ["check --seeds 1 --minutes 1", "check --replay 1 --seeds 3", "check --seed five", "check --keep 1"] {
        assert!(parse(line).is_err(), "{line}");
    }
    assert_eq!(parse("check --seed 0x5eed").expect("hex").seed, Some(0x5eed));
}

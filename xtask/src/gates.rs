//! Instruction gates: runs programs of `benches` under cachegrind and compares with the figures of
//! `benches/gates.toml`.
//!
//! It counts instructions because they repeat to a fraction of a per cent on a busy host. Times do not.

use std::path::Path;
use std::process::{Command, Output};
use toml::{Table, Value};

/// One figure with a limit.
#[derive(Debug)]
struct Gate {
    name: String,
    program: String,
    arguments: Vec<String>,
    short: String,
    long: String,
    unit: String,
    instructions: f64,
    /// The limit of this figure, or of the file.
    tolerance_percent: f64,
    /// Other lines of the program's output, and how many of each a unit may take.
    counts: Vec<(String, f64)>,
}

/// Measures every gate, prints it, and returns the failures.
pub(crate) fn check(root: &Path) -> Vec<String> {
    if !cfg!(target_arch = "x86_64") {
        println!("gates: the figures are of x86_64; nothing is compared on this machine");
        return Vec::new();
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        return vec!["gates: valgrind is missing; on Debian and Ubuntu: apt-get install valgrind".into()];
    }
    let file = root.join("benches/gates.toml");
    let gates = std::fs::read_to_string(&file).map_err(|error| error.to_string()).and_then(|text| parse(&text));
    match gates {
        Ok(gates) => gates.iter().filter_map(|gate| run(root, gate).err()).collect(),
        Err(error) => vec![format!("{}: {error}", file.display())],
    }
}

fn parse(text: &str) -> Result<Vec<Gate>, String> {
    let table: Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
    let tolerance_percent = tolerance(&table)?.ok_or("`tolerance_percent` is missing")?;
    let gates = table.get("gate").and_then(Value::as_array).ok_or("there is no [[gate]]")?;
    gates.iter().map(|value| gate(value, tolerance_percent)).collect()
}

fn tolerance(table: &Table) -> Result<Option<f64>, String> {
    let percent = number(table, "tolerance_percent");
    match percent {
        Some(percent) if !(0.0..100.0).contains(&percent) => {
            Err(format!("`tolerance_percent` is {percent}, and is to be from 0 to 100"))
        }
        percent => Ok(percent),
    }
}

fn gate(value: &Value, tolerance_percent: f64) -> Result<Gate, String> {
    let table = value.as_table().ok_or("`gate` is to be a table")?;
    let name = table.get("name").and_then(Value::as_str).ok_or("a gate has no `name`")?;
    let text = |key: &str| {
        table.get(key).and_then(Value::as_str).map(str::to_owned).ok_or(format!("gate {name}: `{key}` is to be a text"))
    };
    let arguments = text("arguments")?.split_whitespace().map(str::to_owned).collect();
    let instructions = number(table, "instructions").filter(|&figure| figure > 0.0);
    Ok(Gate {
        name: name.to_owned(),
        program: text("program")?,
        arguments,
        short: text("short")?,
        long: text("long")?,
        unit: text("unit")?,
        tolerance_percent: tolerance(table)
            .map_err(|error| format!("gate {name}: {error}"))?
            .unwrap_or(tolerance_percent),
        counts: counts(table).map_err(|error| format!("gate {name}: {error}"))?,
        instructions: instructions.ok_or(format!("gate {name}: `instructions` is to be a number above 0"))?,
    })
}

fn counts(gate: &Table) -> Result<Vec<(String, f64)>, String> {
    let Some(counts) = gate.get("counts") else { return Ok(Vec::new()) };
    let counts = counts.as_table().ok_or("`counts` is to be a table")?;
    let count =
        |name: &String| number(counts, name).filter(|&figure| figure > 0.0).map(|figure| (name.clone(), figure));
    counts.keys().map(|name| count(name).ok_or(format!("`counts.{name}` is to be a number above 0"))).collect()
}

fn number(table: &Table, key: &str) -> Option<f64> {
    table.get(key).and_then(|value| value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64)))
}

fn run(root: &Path, gate: &Gate) -> Result<(), String> {
    let failed = |error: String| format!("gate {}: {error}", gate.name);
    build(root, &gate.program).map_err(failed)?;
    let (short, long) =
        (count(root, gate, &gate.short).map_err(failed)?, count(root, gate, &gate.long).map_err(failed)?);
    let figures = std::iter::once(("instructions", gate.instructions))
        .chain(gate.counts.iter().map(|(name, figure)| (name.as_str(), *figure)));
    for (index, (what, committed)) in figures.enumerate() {
        let of = |count: &Counts| (count.counted[index], count.units);
        let measured = per_unit(of(&short), of(&long)).map_err(failed)?;
        println!(
            "{:<24} {measured:8.2} {what} per {} (committed: {committed:.2})",
            gate.name,
            gate.unit.trim_end_matches('s')
        );
        judge(measured, committed, gate.tolerance_percent).map_err(|error| failed(format!("{what}: {error}")))?;
    }
    Ok(())
}

/// The counts of one run: instructions, then the counts that the gate names, and the units.
struct Counts {
    counted: Vec<u64>,
    units: u64,
}

/// One count of a run, and its units.
type Count = (u64, u64);

fn per_unit(short: Count, long: Count) -> Result<f64, String> {
    match (long.0.checked_sub(short.0), long.1.checked_sub(short.1)) {
        (Some(counted), Some(units)) if units > 0 => Ok(counted as f64 / units as f64),
        _ => Err(format!("the long run did no more than the short one: {short:?} and {long:?} (count, units)")),
    }
}

fn judge(measured: f64, committed: f64, tolerance_percent: f64) -> Result<(), String> {
    let change_percent = (measured / committed - 1.0) * 100.0;
    if change_percent > tolerance_percent {
        return Err(format!("{measured:.2} is {change_percent:.1} % above the committed {committed:.2}"));
    }
    if change_percent < -tolerance_percent {
        println!("  {:.1} % below: commit {measured:.2}, so that it stays", -change_percent);
    }
    Ok(())
}

fn build(root: &Path, program: &str) -> Result<(), String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let arguments = ["build", "--quiet", "--release", "--package", "campanile-benches", "--bin", program];
    let built = Command::new(cargo).current_dir(root).args(arguments).status().map_err(|error| error.to_string())?;
    if built.success() { Ok(()) } else { Err(format!("`{program}` does not build")) }
}

fn count(root: &Path, gate: &Gate, last: &str) -> Result<Counts, String> {
    let target = std::env::var("CARGO_TARGET_DIR").map_or_else(|_| root.join("target"), |dir| root.join(dir));
    let output = Command::new("valgrind")
        .args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"])
        .arg(target.join("release").join(&gate.program))
        .args(&gate.arguments)
        .arg(last)
        .output()
        .map_err(|error| error.to_string())?;
    let (stdout, stderr) = texts(&output);
    if !output.status.success() {
        return Err(format!("{} under cachegrind: {}\n{stderr}", gate.program, output.status));
    }
    let instructions = after(&stderr, "refs:").ok_or(format!("cachegrind counted nothing:\n{stderr}"))?;
    let line = |name: &str| after(&stdout, name).ok_or(format!("`{}` printed no line `{name} N`", gate.program));
    let counted = gate.counts.iter().map(|(name, _)| line(name));
    let counted = std::iter::once(Ok(instructions)).chain(counted).collect::<Result<_, _>>()?;
    Ok(Counts { counted, units: line(&gate.unit)? })
}

fn texts(output: &Output) -> (String, String) {
    (String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The number behind a word, with or without separators of thousands.
fn after(text: &str, word: &str) -> Option<u64> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let place = words.iter().position(|&found| found == word)?;
    words.get(place + 1)?.replace(',', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cachegrind_and_program_outputs_are_read() {
        assert_eq!(after("==27200== I   refs:      251,343,435\n", "refs:"), Some(251_343_435));
        assert_eq!(after("events 12\nios 3\n", "ios"), Some(3));
        assert_eq!(after("events", "events"), None);
    }

    #[test]
    fn set_up_cancels() {
        assert_eq!(per_unit((1_000, 10), (3_000, 20)), Ok(200.0));
        assert!(per_unit((1_000, 10), (3_000, 10)).is_err());
    }

    #[test]
    fn more_than_the_tolerance_fails_less_never_does() {
        assert!(judge(102.9, 100.0, 3.0).is_ok());
        assert!(judge(103.1, 100.0, 3.0).is_err());
        assert!(judge(50.0, 100.0, 3.0).is_ok());
    }

    #[test]
    fn a_bad_gate_is_named() {
        let error = parse("tolerance_percent = 3\n[[gate]]\nname = \"x\"").expect_err("it lacks everything");
        assert_eq!(error, "gate x: `arguments` is to be a text");
        assert!(parse("tolerance_percent = -1").is_err());
    }

    #[test]
    fn the_committed_gates_are_well_formed() {
        let gates = parse(include_str!("../../benches/gates.toml")).expect("the file of the house");
        assert!(!gates.is_empty());
    }
}

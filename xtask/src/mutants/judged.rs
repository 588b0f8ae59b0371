//! `cargo xtask mutants --judge`: known defects of the notification path, each in our image on a QEMU that posts
//! interrupts. A judge that finds nothing wrong with a wrong image proves nothing about a right one.

use super::copy::Copy;
use super::patch::Mutant;
use super::{Options, build, kill, write_text};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The defects, by the number that begins the name of the patch: of the descriptor, of its handler, and of a CPU's way
/// offline.
const NUMBERS: [&str; 10] = ["04", "05", "06", "09", "10", "13", "18", "19", "20", "21"];
/// The judged run hangs if it takes this long. Each of its parts ends by itself ten seconds after its last completion.
const LIMIT: Duration = Duration::from_secs(300);

/// The judge's finding on one image.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Verdict {
    mutant: String,
    defect: String,
    /// The failures, one a line; empty if the judge finds nothing.
    failures: Vec<String>,
}

/// Judges the image as it is and with each defect; returns what is wrong with the judge: it must pass the first. Which of
/// the others it finds is printed, and written to `--json`.
///
/// # Errors
/// A build or a run that could not be made.
pub(super) fn run(root: &Path, mutants: &[Mutant], options: &Options) -> Result<Vec<String>, String> {
    let judge = build::judge(root)?;
    let copy = Copy::new(root, 0)?;
    let clean = ask(&judge, &copy)?;
    println!("without any defect: {}", if clean.is_empty() { "passes" } else { "FAILS" });
    if !clean.is_empty() {
        return Ok(clean);
    }
    let mut verdicts = Vec::new();
    for mutant in mutants.iter().filter(|mutant| NUMBERS.iter().any(|number| mutant.name.starts_with(number))) {
        mutant.apply(&copy.root)?;
        let asked = ask(&judge, &copy);
        mutant.mend(&copy.root)?;
        let failures = asked.map_err(|error| format!("{}: {error}", mutant.name))?;
        println!(
            "{:<32} {}",
            mutant.name,
            failures.first().and_then(|told| told.lines().next()).unwrap_or("not found")
        );
        verdicts.push(Verdict { mutant: mutant.name.clone(), defect: mutant.defect.clone(), failures });
        if let Some(file) = &options.json {
            write_text(file, &json(&verdicts))?;
        }
    }
    let found = verdicts.iter().filter(|verdict| !verdict.failures.is_empty()).count();
    println!("the judge finds {found} of {} defects", verdicts.len());
    match (found, verdicts.len()) {
        (_, 0) => Err("none of these defects is one of the notification path".into()),
        (0, _) => Ok(vec!["the judge finds no defect".into()]),
        _ => Ok(Vec::new()),
    }
}

/// Builds the copy's image and judges it; the failures.
fn ask(judge: &Path, copy: &Copy) -> Result<Vec<String>, String> {
    let image = build::image(copy)?;
    let [rows, log]: [PathBuf; 2] = ["judged.json", "killer.log"].map(|name| copy.target.join(name));
    _ = std::fs::remove_file(&rows);
    let mut command = Command::new(judge);
    command.args(["boot", "judges", "--image"]).arg(image).arg("--json").arg(&rows);
    let ended = kill::run(&mut command, &log, LIMIT, |_| false)?;
    let Some(status) = ended.status else { return Ok(vec!["the judge does not end".into()]) };
    let text = std::fs::read_to_string(&rows).unwrap_or_default();
    let failures = failures(&text).ok_or_else(|| {
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        format!("the judge wrote no rows: {}", said.lines().last().unwrap_or_default())
    })?;
    if status.success() == failures.is_empty() { Ok(failures) } else { Err(format!("{status}, and {failures:?}")) }
}

/// The rows that do not pass.
fn failures(json: &str) -> Option<Vec<String>> {
    let rows: Vec<serde_json::Value> = serde_json::from_str(json).ok()?;
    let failed = rows.iter().filter(|row| row["pass"] != true);
    let told = |row: &serde_json::Value| {
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let what =
            if row["note"].is_string() { text("note") } else { format!("{}: {}", text("quantity"), row["value"]) };
        format!("{}: {what}", text("case"))
    };
    Some(failed.map(told).collect())
}

fn json(verdicts: &[Verdict]) -> String {
    let row = |Verdict { mutant, defect, failures }: &Verdict| serde_json::json!({ "mutant": mutant, "defect": defect, "failures": failures });
    serde_json::Value::from_iter(verdicts.iter().map(row)).to_string() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_fail_are_told() {
        let rows = r#"[{"case": "storm", "quantity": "strays", "value": 3.0, "pass": false},
            {"case": "storm", "quantity": "failures", "value": 1.0, "note": "ours: no completion for 10 s"},
            {"case": "storm", "quantity": "reads", "value": 9.0, "pass": true}]"#;
        let told = ["storm: strays: 3.0", "storm: ours: no completion for 10 s"].map(str::to_owned);
        assert_eq!(failures(rows), Some(told.into()));
        assert_eq!(failures(""), None, "no file is no verdict");
        assert_eq!(failures("[]"), Some(Vec::new()));
    }
}

//! What a run found, kept in a file after each change.

use super::catalogue::Drawn;
use crate::mutants::{Kill, write_text};
use serde_json::{Value, json};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What became of a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// It does not compile: no change.
    NotBuilt,
    /// It is on the list, with this reason.
    Equivalent(String),
    Judged(Kill),
}

impl Outcome {
    pub(super) fn kill(&self) -> Option<&Kill> {
        if let Self::Judged(kill) = self { Some(kill) } else { None }
    }

    fn read(text: &str) -> Self {
        match text.split_once(": ") {
            _ if text == "not built" => Self::NotBuilt,
            Some(("equivalent", reason)) => Self::Equivalent(reason.to_owned()),
            _ => Self::Judged(Kill::read(text)),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotBuilt => f.write_str("not built"),
            Self::Equivalent(reason) => write!(f, "equivalent: {reason}"),
            Self::Judged(kill) => write!(f, "{kill}"),
        }
    }
}

/// A change and its outcome.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) outcome: Outcome,
    /// Run time, without building.
    pub(super) seconds: f64,
}

impl Row {
    pub(super) fn of(change: &Drawn, outcome: Outcome, ran: Duration) -> Self {
        Self { name: change.name.clone(), kind: change.kind.to_owned(), outcome, seconds: ran.as_secs_f64() }
    }

    fn read(value: &Value) -> Option<Self> {
        let text = |key: &str| Some(value.get(key)?.as_str()?.to_owned());
        Some(Self {
            name: text("change")?,
            kind: text("kind")?,
            outcome: Outcome::read(&text("found_by")?),
            seconds: value.get("seconds")?.as_f64()?,
        })
    }
}

/// The results so far, and their file.
pub(super) struct Results {
    file: Option<PathBuf>,
    seed: u64,
    print: u64,
    rows: Vec<Row>,
}

impl Results {
    /// Goes on with `file` if there is one.
    ///
    /// # Errors
    /// If it cannot be read, or is of another seed or another tree.
    pub(super) fn open(file: Option<&Path>, seed: u64, print: u64) -> Result<Self, String> {
        let mut results = Self { file: file.map(Path::to_owned), seed, print, rows: Vec::new() };
        let Some(file) = file.filter(|file| file.exists()) else { return Ok(results) };
        let failed = |why: String| format!("{}: {why}", file.display());
        let text = std::fs::read_to_string(file).map_err(|error| failed(error.to_string()))?;
        let value: Value = serde_json::from_str(&text).map_err(|error| failed(error.to_string()))?;
        let hold = |key: &str, expected: u64| match value.get(key).and_then(Value::as_u64) {
            Some(found) if found == expected => Ok(()),
            Some(found) => Err(failed(format!("its {key} is {found}, this run's {expected}; name another file"))),
            None => Err(failed(format!("it has no {key}"))),
        };
        hold("seed", seed)?;
        hold("tree", print)?;
        let rows = value.get("changes").and_then(Value::as_array).ok_or(failed("it has no changes".into()))?;
        results.rows = rows
            .iter()
            .map(|row| Row::read(row).ok_or(failed(format!("{row} is no row"))))
            .collect::<Result<_, _>>()?;
        println!("{}: {} changes are done", file.display(), results.rows.len());
        Ok(results)
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.rows.iter().any(|row| row.name == name)
    }

    /// The changes that count.
    pub(super) fn judged(&self) -> usize {
        self.rows.iter().filter(|row| row.outcome != Outcome::NotBuilt).count()
    }

    pub(super) fn add(&mut self, row: Row) -> Result<(), String> {
        self.rows.push(row);
        let Some(file) = &self.file else { return Ok(()) };
        let row = |row: &Row| json!({ "change": row.name, "kind": row.kind, "found_by": row.outcome.to_string(), "seconds": (row.seconds * 10.0).round() / 10.0 });
        let value =
            json!({ "seed": self.seed, "tree": self.print, "changes": self.rows.iter().map(row).collect::<Vec<_>>() });
        // Beside and renamed: a run that is ended here keeps the earlier file.
        let beside = file.with_extension("part");
        write_text(&beside, &(serde_json::to_string_pretty(&value).map_err(|error| error.to_string())? + "\n"))?;
        std::fs::rename(&beside, file).map_err(|error| format!("{}: {error}", file.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, outcome: Outcome) -> Row {
        Row { name: name.into(), kind: "behaves".into(), outcome, seconds: 1.5 }
    }

    #[test]
    fn a_run_goes_on_where_it_stopped() {
        let file = std::env::temp_dir().join(format!("campanile-random-{}.json", std::process::id()));
        _ = std::fs::remove_file(&file);
        let mut results = Results::open(Some(&file), 7, 9).unwrap();
        let outcomes = [
            Outcome::NotBuilt,
            Outcome::Equivalent("a log: only".into()),
            Outcome::Judged(Kill::Check("ends (correctness), gic".into())),
            Outcome::Judged(Kill::Test("irq: a::b".into())),
            Outcome::Judged(Kill::None),
        ];
        for (number, outcome) in outcomes.into_iter().enumerate() {
            results.add(row(&number.to_string(), outcome)).unwrap();
        }
        let again = Results::open(Some(&file), 7, 9).unwrap();
        assert_eq!(again.rows, results.rows);
        assert_eq!((again.judged(), again.has("0"), again.has("9")), (4, true, false));
        assert!(Results::open(Some(&file), 8, 9).is_err_and(|error| error.contains("seed is 7")));
        assert!(Results::open(Some(&file), 7, 1).is_err_and(|error| error.contains("tree is 9")));
        std::fs::remove_file(&file).unwrap();
    }
}

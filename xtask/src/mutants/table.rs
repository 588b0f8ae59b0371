//! The kill table of docs/reliability.md.

use super::patch::{Mutant, load};
use super::{Kill, Killed};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

const DOCUMENT: &str = "docs/reliability.md";
const BEGIN: &str = "<!-- kill table: begin, written by cargo xtask mutants --table -->\n";
const END: &str = "<!-- kill table: end -->";
const SURVIVES: &str = "**survives**";

/// Results of runs, one line per mutant: `[{"mutant": …, "killed_by": …, "seconds": …}]`.
pub(super) fn to_json<'a>(killed: impl Iterator<Item = &'a Killed>) -> String {
    let rows = killed.map(|row| {
        let seconds = (row.seconds * 10.0).round() / 10.0;
        serde_json::json!({ "mutant": row.mutant, "killed_by": row.kill.to_string(), "seconds": seconds })
    });
    let lines: Vec<_> = rows.map(|row| format!("  {row}")).collect();
    format!("[\n{}\n]\n", lines.join(",\n"))
}

/// The rows of such a file.
fn from_json(text: &str) -> Result<Vec<Killed>, String> {
    let rows: Vec<serde_json::Value> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let row = |row: &serde_json::Value| {
        Some(Killed {
            mutant: row.get("mutant")?.as_str()?.to_owned(),
            kill: Kill::read(row.get("killed_by")?.as_str()?),
            seconds: row.get("seconds")?.as_f64()?,
        })
    };
    rows.iter().map(|value| row(value).ok_or(format!("{value} is no row of a run"))).collect()
}

/// Writes the results of `files` into the document; rows of a later file replace those of an earlier one, and those that
/// the document has. A mutant without a row is shown as not run.
pub(super) fn write(root: &Path, files: &[String]) -> Result<(), String> {
    let path = root.join(DOCUMENT);
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{DOCUMENT}: {error}"))?;
    let (before, table_text, after) = around(&text)?;
    let mut killed: BTreeMap<String, Killed> =
        table_text.lines().filter_map(recorded).map(|row| (row.mutant.clone(), row)).collect();
    for file in files {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
        let rows = from_json(&text).map_err(|error| format!("{file}: {error}"))?;
        killed.extend(rows.into_iter().map(|row| (row.mutant.clone(), row)));
    }
    let mutants = load(root)?;
    let new = format!("{before}{BEGIN}{}{END}{after}", table(&mutants, &killed));
    std::fs::write(&path, new).map_err(|error| format!("{DOCUMENT}: {error}"))
}

/// The document before its table, the table, and the document behind it.
fn around(text: &str) -> Result<(&str, &str, &str), String> {
    let missing = || format!("{DOCUMENT} has no place for the kill table");
    let (before, rest) = text.split_once(BEGIN).ok_or_else(missing)?;
    let (table, after) = rest.split_once(END).ok_or_else(missing)?;
    Ok((before, table, after))
}

/// The result in a line of the table; none of a mutant that was not run.
fn recorded(line: &str) -> Option<Killed> {
    let mut cells = line.strip_prefix("| ")?.strip_suffix(" |")?.rsplitn(3, " | ");
    let (seconds, killed_by) = (cells.next()?.parse().ok()?, cells.next()?.replace("\\|", "|"));
    let mutant = cells.next()?.split(" |").next()?.to_owned();
    let kill = if killed_by.starts_with(SURVIVES) { Kill::None } else { Kill::read(&killed_by) };
    Some(Killed { mutant, kill, seconds })
}

fn table(mutants: &[Mutant], killed: &BTreeMap<String, Killed>) -> String {
    let mut text = summary(mutants, killed);
    text.push_str(
        "| mutant | the defect | what a user would have suffered | killed by | s |\n|---|---|---|---|---:|\n",
    );
    for mutant in mutants {
        let row = killed.get(&mutant.name);
        let killed_by = match (row.map(|row| &row.kill), &mutant.survives) {
            (None, _) => "not run yet".to_owned(),
            (Some(Kill::None), why) => format!("{SURVIVES}: {}", why.as_deref().unwrap_or("not looked into yet")),
            (Some(kill), _) => kill.to_string(),
        };
        let seconds = row.map_or("–".into(), |row| row.seconds.ceil().to_string());
        let cells = [&mutant.name, &mutant.defect, &mutant.suffers, &killed_by].map(|cell| cell.replace('|', "\\|"));
        let _ = writeln!(text, "| {} | {seconds} |", cells.join(" | "));
    }
    text
}

fn summary(mutants: &[Mutant], killed: &BTreeMap<String, Killed>) -> String {
    let rows: Vec<&Kill> = mutants.iter().filter_map(|mutant| Some(&killed.get(&mutant.name)?.kill)).collect();
    let share = |is: fn(&Kill) -> bool| {
        let count = rows.iter().filter(|kill| is(kill)).count();
        format!("{count} ({:.1} %)", 100.0 * count as f64 / rows.len().max(1) as f64)
    };
    let not_run = match mutants.len() - rows.len() {
        0 => String::new(),
        rest => format!(" {rest} more were not run yet."),
    };
    let (all, check) = (share(Kill::is_one), share(Kill::is_by_check));
    format!("{} mutants: {all} killed, {check} of them by `check` alone.{not_run}\n\n", rows.len())
}

/// Checks the table: every mutant has a row, and every row a mutant. Returns the differences.
pub(crate) fn check(root: &Path) -> Vec<String> {
    let Ok(text) = std::fs::read_to_string(root.join(DOCUMENT)) else { return Vec::new() };
    let (mutants, rows) = match (load(root), rows(&text)) {
        (Ok(mutants), Ok(rows)) => (mutants, rows),
        (Err(error), _) | (_, Err(error)) => return vec![error],
    };
    let without_row = mutants.iter().filter(|mutant| !rows.contains(&mutant.name.as_str()));
    let without_patch = rows.iter().filter(|row| !mutants.iter().any(|mutant| mutant.name == **row));
    let without_row = without_row.map(|mutant| format!("{DOCUMENT}: the kill table has no row for {}", mutant.name));
    without_row.chain(without_patch.map(|row| format!("{DOCUMENT}: there is no mutants/{row}.patch"))).collect()
}

/// The mutants that the document's table names.
fn rows(text: &str) -> Result<Vec<&str>, String> {
    let (_, table, _) = around(text)?;
    let is_name = |cell: &&str| cell.starts_with(|first: char| first.is_ascii_digit());
    Ok(table.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next()).filter(is_name).collect())
}

/// The mutants that the table says survive: a sample does not fail for them.
pub(super) fn survivors(root: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(root.join(DOCUMENT)).unwrap_or_default();
    let survives = |line: &&str| line.contains(&format!("| {SURVIVES}"));
    let name = |line: &str| Some(line.strip_prefix("| ")?.split(" |").next()?.to_owned());
    text.lines().filter(survives).filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_go_out_and_come_back() {
        let killed = [
            Killed { mutant: "01-a".into(), kill: Kill::Check("lost".into()), seconds: 1.25 },
            Killed { mutant: "02-b".into(), kill: Kill::Test("irq/lib: x".into()), seconds: 3.0 },
            Killed { mutant: "03-c".into(), kill: Kill::None, seconds: 60.0 },
        ];
        let back = from_json(&to_json(killed.iter())).unwrap();
        let said: Vec<_> = back.iter().map(|row| (row.kill.to_string(), row.seconds)).collect();
        assert_eq!(said, [("check: lost".into(), 1.3), ("test: irq/lib: x".into(), 3.0), ("none".into(), 60.0)]);
        assert!(from_json("[{}]").is_err());
    }

    #[test]
    fn a_result_is_read_from_its_line() {
        let read = |line| recorded(line).map(|row| (row.mutant, row.kill.to_string(), row.seconds));
        let of = |name: &str, kill: &str, seconds| Some((name.to_owned(), kill.to_owned(), seconds));
        assert_eq!(read("| 01-a | a \\| b | c | check: lost, pc | 3 |"), of("01-a", "check: lost, pc", 3.0));
        assert_eq!(read("| 02-b | a | b | **survives**: why | 61 |"), of("02-b", "none", 61.0));
        assert_eq!((read("| 03-c | a | b | not run yet | – |"), read("|---|---|---|---|---:|")), (None, None));
    }

    #[test]
    fn the_rows_of_a_document_are_found() {
        let text = format!("x\n{BEGIN}| mutant | s |\n|---|---|\n| 01-a | x |\n| 02-b | **survives** |\n{END}\ny");
        assert_eq!(rows(&text), Ok(vec!["01-a", "02-b"]));
        assert!(rows("nothing").is_err());
    }
}

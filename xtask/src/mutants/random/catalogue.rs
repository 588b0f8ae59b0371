//! All changes that cargo-mutants can make, and the known equivalent ones.

use super::switch::{Edit, Place};
use crate::mutants::patch::Mutant;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The rooms that kernels embed.
pub(super) const PACKAGES: [&str; 4] = ["campanile-irq", "campanile-drivers", "campanile-systems", "campanile-sched"];

/// Changes that change nothing that anybody can see, each with a reason.
const EQUIVALENTS: &str = "mutants/equivalent.toml";

/// A change that can be drawn.
#[derive(Debug)]
pub(super) struct Drawn {
    /// File, change, and a number if the file has several of that description. It holds no line, so it stays the same
    /// while other code moves.
    pub(super) name: String,
    pub(super) package: String,
    /// What the changed function does: "behaves", "formats" or "configures".
    pub(super) kind: &'static str,
    pub(super) mutant: Mutant,
    pub(super) file: String,
    /// The same change as positions.
    pub(super) edit: Edit,
}

#[cfg(test)]
impl Drawn {
    /// A change that is only named.
    pub(super) fn named(name: &str) -> Self {
        let mutant = Mutant::of_diff(name, "x", "\n@@ -1 +1 @@\n").expect("a diff");
        let place = Place { line: 1, column: 1 };
        let edit = Edit { start: place, end: place, text: String::new() };
        let file = "irq/src/x.rs".to_owned();
        Self { name: name.to_owned(), package: "campanile-irq".to_owned(), kind: "behaves", mutant, file, edit }
    }
}

/// Asks cargo-mutants about the tree at `root`.
///
/// # Errors
/// If there is no cargo-mutants, or it says what cannot be read.
pub(super) fn list(root: &Path) -> Result<Vec<Drawn>, String> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(root).args(["mutants", "--list", "--json", "--diff", "--no-config", "--colors", "never"]);
    cargo.args(PACKAGES.iter().flat_map(|package| ["--package", package]));
    let output = cargo.output().map_err(|error| format!("cargo: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cargo mutants: {} (cargo install --locked cargo-mutants)", said.trim()));
    }
    let found: Vec<serde_json::Value> =
        serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo mutants: {error}"))?;
    let mut numbers = BTreeMap::new();
    found.iter().map(|value| read(value, &mut numbers).ok_or(format!("cargo mutants: {value}"))).collect()
}

fn read(value: &serde_json::Value, numbers: &mut BTreeMap<String, u32>) -> Option<Drawn> {
    let text = |key: &str| value.get(key)?.as_str();
    let file = text("file")?;
    // "file:line:column: description"
    let description = text("name")?.split_once(": ")?.1;
    let name = format!("{file}: {description}");
    let number = numbers.entry(name.clone()).and_modify(|number| *number += 1).or_insert(1);
    let name = if *number == 1 { name } else { format!("{name} #{number}") };
    let function = value
        .get("function")
        .and_then(|function| Some((function.get("function_name")?.as_str()?, function.get("return_type")?.as_str()?)));
    let place = |end: &str| {
        let place = value.get("span")?.get(end)?;
        let number = |key: &str| Some(place.get(key)?.as_u64()? as usize);
        Some(Place { line: number("line")?, column: number("column")? })
    };
    let edit = Edit { start: place("start")?, end: place("end")?, text: text("replacement")?.to_owned() };
    Some(Drawn {
        file: file.to_owned(),
        edit,
        mutant: Mutant::of_diff(&name, file, text("diff")?)?,
        package: text("package")?.to_owned(),
        kind: function.map_or("behaves", |(function, result)| kind(function, result)),
        name,
    })
}

/// Sorts by what the function is for. `function`: its path; `result`: its return type, with the arrow.
fn kind(function: &str, result: &str) -> &'static str {
    let last = function.rsplit("::").next().unwrap_or(function);
    if last == "fmt" || result.ends_with("String") || result.ends_with("str") {
        "formats"
    } else if result.contains("Self") || last == "default" || last.starts_with("with_") {
        "configures"
    } else {
        "behaves"
    }
}

/// A number that changes with the list of changes.
pub(super) fn fingerprint(drawn: &[Drawn]) -> u64 {
    drawn.iter().fold(drawn.len() as u64, |print, change| crate::mutants::mix(print, &change.name))
}

/// The reasons by name.
pub(super) fn equivalents(root: &Path) -> Result<BTreeMap<String, String>, String> {
    let file = root.join(EQUIVALENTS);
    let text = std::fs::read_to_string(&file).map_err(|error| format!("{EQUIVALENTS}: {error}"))?;
    toml::from_str(&text).map_err(|error| format!("{EQUIVALENTS}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_keeps_its_name_when_lines_move() {
        let of = |line: u32| {
            serde_json::json!({
                "file": "irq/src/x.rs", "package": "campanile-irq", "name": format!("irq/src/x.rs:{line}:5: replace == with != in f"),
                "function": { "function_name": "f", "return_type": "-> bool" }, "replacement": "!=",
                "span": { "start": { "line": line, "column": 5 }, "end": { "line": line, "column": 7 } },
                "diff": "--- irq/src/x.rs\n+++ replace == with !=\n@@ -1,1 +1,1 @@\n-a == b\n+a != b\n",
            })
        };
        let mut numbers = BTreeMap::new();
        let names: Vec<_> = [3, 9].iter().map(|&line| read(&of(line), &mut numbers).unwrap().name).collect();
        assert_eq!(names, ["irq/src/x.rs: replace == with != in f", "irq/src/x.rs: replace == with != in f #2"]);
        assert!(read(&serde_json::json!({ "file": "x" }), &mut numbers).is_none());
    }

    #[test]
    fn what_formats_or_configures_is_told_apart() {
        assert_eq!(kind("<impl Display for X>::fmt", "-> fmt::Result"), "formats");
        assert_eq!(kind("Kind::name", "-> &'static str"), "formats");
        assert_eq!(kind("Builder::new", "-> Self"), "configures");
        assert_eq!(kind("IrqCore<H>::handle", "-> bool"), "behaves");
    }

    #[test]
    fn the_list_of_equivalents_is_read() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a room of the house");
        for (name, reason) in equivalents(root).unwrap() {
            assert!(name.contains(": re") && reason.len() > 20, "{name}: {reason}");
            let file = name.split(':').next().unwrap_or_default();
            assert!(root.join(file).is_file(), "{file} is no file");
        }
    }
}

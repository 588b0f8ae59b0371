//! `cargo xtask tidy`: the rules of the house that a program can check.
//!
//! - the law: which room may depend on which;
//! - the rooms that are embedded are `no_std`;
//! - a file has one subject: at most 500 lines, tests included;
//! - a function has one step to tell: at most 70 lines;
//! - the modules of the machine form layers (`layers.rs`);
//! - little bring-up of systems outside `systems/`, see [`crate::bringup`];
//! - nothing unfinished, nothing ignored, no path of somebody's machine;
//! - links between the documents lead somewhere, and the source files that they name exist.

use crate::bringup::{self, BringUp};
use std::fs;
use std::path::{Path, PathBuf};
use toml::Table;

/// Each room with the rooms it may depend on. `drivers` and `irq` never see `machine`, and `machine` never sees them.
const LAW: [(&str, &[&str]); 19] = [
    ("spec", &[]),
    ("hal", &[]),
    ("metal", &["hal"]),
    ("irq", &["spec", "hal"]),
    ("sched", &["hal"]),
    ("drivers", &["irq", "spec", "hal"]),
    ("systems", &["irq", "drivers", "spec", "hal"]),
    ("machine", &["spec", "hal", "sched"]),
    ("bridge", &["machine", "spec"]),
    ("check", &["spec", "hal", "irq", "sched", "drivers", "systems", "machine"]),
    ("lab", &["spec", "hal", "irq", "sched", "drivers", "systems", "machine", "bridge", "check", "qemu", "import"]),
    ("qemu", &[]),
    ("import", &[]),
    ("python", &["lab"]),
    ("conformance", &["spec", "hal", "irq", "sched", "drivers", "systems", "machine", "check", "lab"]),
    ("benches", &["spec", "hal", "irq", "sched", "drivers", "systems", "machine", "lab"]),
    ("fuzz", &["spec", "hal", "irq", "sched", "drivers", "systems", "machine", "lab", "bridge", "import"]),
    ("boot", &["spec", "hal", "metal", "irq", "sched", "drivers", "systems"]),
    ("xtask", &[]),
];

/// Rooms that a kernel embeds.
const NO_STD: [&str; 7] = ["spec", "hal", "metal", "irq", "sched", "drivers", "systems"];

/// Lines of a file.
const LINES_MAX: usize = 500;

/// Lines of a function, from its `fn` to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;

/// Strings that no source may contain. They are written in two halves, so that this file does not contain them.
const UNWANTED: [(&str, &str); 6] = [
    (concat!("to", "do!("), "unfinished code"),
    (concat!("unimple", "mented!("), "unfinished code"),
    (concat!("FIX", "ME"), "an unfinished mark"),
    (concat!("#[ig", "nore"), "a test that nobody runs"),
    (concat!("/ro", "ot/"), "a path of one machine"),
    (concat!("/ho", "me/"), "a path of one machine"),
];

/// Checks the tree at `root`; every finding is a line.
pub(crate) fn check(root: &Path) -> Vec<String> {
    let mut findings = law(root);
    let mut files = Vec::new();
    walk(root, &mut files);
    files.sort();
    let mut bring_ups = Vec::new();
    for file in &files {
        let Ok(text) = fs::read_to_string(file) else { continue };
        let name = file.strip_prefix(root).unwrap_or(file).display().to_string();
        match file.extension().and_then(|ending| ending.to_str()) {
            Some("rs") => {
                source(&name, &text, &mut findings);
                bring_ups.extend(bringup::find(&name, &text));
            }
            Some("md") => {
                links(file, &name, &text, &mut findings);
                mentions(root, &name, &text, &mut findings);
            }
            _ => {}
        }
    }
    findings.extend(too_much(&bring_ups));
    findings
}

/// Prints how many lines of bring-up stand outside `systems/`, and lists each function if there are too many.
fn too_much(bring_ups: &[BringUp]) -> Vec<String> {
    let lines: usize = bring_ups.iter().map(|own| own.lines).sum();
    let (count, max) = (bring_ups.len(), bringup::LINES_MAX);
    println!("bring-up outside systems/: {lines} lines in {count} functions, of {max} at most");
    if lines <= max {
        return Vec::new();
    }
    bring_ups.iter().map(|own| format!("{}: {} lines of bring-up; systems/ does it", own.place, own.lines)).collect()
}

/// The dependencies of every room against the law.
fn law(root: &Path) -> Vec<String> {
    let mut findings = Vec::new();
    for (room, allowed) in LAW {
        let file = root.join(room).join("Cargo.toml");
        let manifest = match fs::read_to_string(&file).map(|text| text.parse::<Table>()) {
            Ok(Ok(manifest)) => manifest,
            Ok(Err(error)) => {
                findings.push(format!("{room}/Cargo.toml: {error}"));
                continue;
            }
            Err(_) => {
                findings.push(format!("{room}/Cargo.toml: missing, but ARCHITECTURE.md names the room"));
                continue;
            }
        };
        for dependency in dependencies(&manifest) {
            let is_room = LAW.iter().any(|(known, _)| *known == dependency);
            if is_room && !allowed.contains(&dependency.as_str()) {
                let allowed = if allowed.is_empty() { "nothing of ours".into() } else { allowed.join(", ") };
                findings.push(format!("{room}/Cargo.toml: depends on {dependency}; the law allows {allowed}"));
            }
        }
        let library = fs::read_to_string(root.join(room).join("src/lib.rs")).unwrap_or_default();
        if NO_STD.contains(&room) && !library.contains("#![no_std]") {
            findings.push(format!("{room}/src/lib.rs: is embedded in kernels, so it must be no_std"));
        }
    }
    for example in folders(&root.join("examples")) {
        let name = format!("examples/{}", example.file_name().unwrap_or_default().to_string_lossy());
        let manifest = fs::read_to_string(example.join("Cargo.toml")).unwrap_or_default().parse().unwrap_or_default();
        embedded(&name, &manifest, &example, &mut findings);
    }
    findings
}

/// An example stands for a foreign kernel: it has no std, and only its tests may depend on more than a kernel embeds.
fn embedded(name: &str, manifest: &Table, folder: &Path, findings: &mut Vec<String>) {
    let product = manifest.get("dependencies").and_then(|table| table.as_table());
    for (dependency, value) in product.into_iter().flatten() {
        let room = room_of(dependency, value);
        if LAW.iter().any(|(known, _)| *known == room) && !NO_STD.contains(&room.as_str()) {
            findings.push(format!("{name}/Cargo.toml: depends on {room}, which no kernel embeds"));
        }
    }
    if !fs::read_to_string(folder.join("src/lib.rs")).unwrap_or_default().contains("#![no_std]") {
        findings.push(format!("{name}/src/lib.rs: is an example for kernels, so it must be no_std"));
    }
}

/// The folders right below `folder`, in order.
fn folders(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut folders: Vec<_> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

/// Names of all dependencies of a manifest, those for tests and targets too.
fn dependencies(manifest: &Table) -> Vec<String> {
    let kinds = ["dependencies", "dev-dependencies", "build-dependencies"];
    let targets = manifest.get("target").and_then(|targets| targets.as_table());
    let tables = targets.into_iter().flat_map(|targets| targets.values()).filter_map(|target| target.as_table());
    std::iter::once(manifest)
        .chain(tables)
        .flat_map(|table| kinds.iter().filter_map(|kind| table.get(*kind)?.as_table()))
        .flat_map(|table| table.iter().map(|(name, value)| room_of(name, value)))
        .collect()
}

/// The room of a dependency; the package may be renamed.
fn room_of(name: &str, value: &toml::Value) -> String {
    let package = value.as_table().and_then(|table| table.get("package")?.as_str()).unwrap_or(name);
    match package {
        "campanile" => "lab".into(),
        package => package.strip_prefix("campanile-").unwrap_or(package).into(),
    }
}

fn source(name: &str, text: &str, findings: &mut Vec<String>) {
    let lines = text.lines().count();
    if lines > LINES_MAX {
        findings.push(format!("{name}: {lines} lines; over {LINES_MAX} it has more than one subject"));
    }
    for (function, lines) in long_functions(text) {
        findings.push(format!("{name}: {function} has {lines} lines; over {FUNCTION_LINES_MAX} it can be divided"));
    }
    for (index, line) in text.lines().enumerate() {
        for (unwanted, what) in UNWANTED {
            if line.contains(unwanted) {
                findings.push(format!("{name}:{}: {what}: {unwanted}", index + 1));
            }
        }
    }
}

/// Functions over the limit: name and lines. The tree is formatted, so a function's closing brace stands alone, as
/// deep as its `fn`.
fn long_functions(text: &str) -> Vec<(String, usize)> {
    let mut open: Vec<(usize, String, usize)> = Vec::new();
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let depth = line.len() - line.trim_start().len();
        if line.trim() == "}"
            && let Some(place) = open.iter().rposition(|(of, ..)| *of == depth)
        {
            let (_, name, start) = open.swap_remove(place);
            let lines = index + 1 - start;
            if lines > FUNCTION_LINES_MAX {
                found.push((name, lines));
            }
        } else if let Some(name) = function_name(line)
            && !line.ends_with([';', '}'])
        {
            open.retain(|(of, ..)| *of < depth);
            open.push((depth, name.to_owned(), index));
        } else if line.trim_start().starts_with(')') && line.ends_with(';') {
            // A declaration without a body.
            open.retain(|(of, ..)| *of != depth);
        }
    }
    found
}

/// The name of the function whose declaration begins on this line.
fn function_name(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("fn ")?;
    let is_prefix = |word: &str| {
        word.starts_with("pub") || matches!(word, "const" | "async" | "unsafe" | "extern" | "\"C\"" | "in" | "default")
    };
    if !before.split_whitespace().all(|word| is_prefix(word) || word.ends_with(')')) {
        return None;
    }
    let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_')?;
    (end > 0).then_some(&rest[..end])
}

/// Relative links of a document.
fn links(file: &Path, name: &str, text: &str, findings: &mut Vec<String>) {
    for (index, line) in text.lines().enumerate() {
        for target in line.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            let outside = target.is_empty() || target.contains("://");
            if !outside && !file.parent().is_some_and(|folder| folder.join(target).exists()) {
                findings.push(format!("{name}:{}: the link to {target} leads nowhere", index + 1));
            }
        }
    }
}

/// Source files that a document names from the root, `src` left out or not.
fn mentions(root: &Path, name: &str, text: &str, findings: &mut Vec<String>) {
    for (index, line) in text.lines().enumerate() {
        for path in line.split('`').skip(1).step_by(2).filter(|word| word.ends_with(".rs") && !word.contains('*')) {
            let Some((room, rest)) = path.split_once('/') else { continue };
            let is_room = LAW.iter().any(|(known, _)| *known == room);
            if is_room && !root.join(path).exists() && !root.join(room).join("src").join(rest).exists() {
                findings.push(format!("{name}:{}: there is no {path}", index + 1));
            }
        }
    }
}

/// Files below `folder`, without what is built, hidden or made by a run.
fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        let skipped = name == "target" || name == "out" || name.to_string_lossy().starts_with('.');
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && !skipped => walk(&path, files),
            Ok(kind) if kind.is_file() => files.push(path),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renamed_room_is_still_that_room() {
        let manifest: Table =
            "[target.'cfg(x)'.dev-dependencies]\nx = { package = \"campanile-machine\", path = \"..\" }\n"
                .parse()
                .expect("valid TOML");
        assert_eq!(dependencies(&manifest), ["machine"]);
    }

    #[test]
    fn a_room_that_breaks_the_law_is_found() {
        let root = std::env::temp_dir().join(format!("campanile-tidy-{}", std::process::id()));
        for (room, _) in LAW {
            fs::create_dir_all(root.join(room).join("src")).expect("a scratch folder");
            let dependency = if room == "irq" { "[dependencies]\nmachine.workspace = true\n" } else { "" };
            fs::write(root.join(room).join("Cargo.toml"), dependency).expect("a scratch file");
            fs::write(root.join(room).join("src/lib.rs"), "#![no_std]\n").expect("a scratch file");
        }
        let findings = check(&root);
        fs::remove_dir_all(&root).expect("the scratch folder goes");
        assert_eq!(findings, ["irq/Cargo.toml: depends on machine; the law allows spec, hal"]);
    }

    #[test]
    fn an_example_that_no_kernel_could_build_is_found() {
        let folder = scratch_library("#![no_std]\n");
        let manifest = "[dependencies]\nirq.workspace = true\nmachine.workspace = true\n".parse().expect("valid TOML");
        let mut findings = Vec::new();
        embedded("examples/x", &manifest, &folder, &mut findings);
        assert_eq!(findings, ["examples/x/Cargo.toml: depends on machine, which no kernel embeds"]);
        fs::write(folder.join("src/lib.rs"), "").expect("a scratch file");
        embedded("examples/x", &Table::new(), &folder, &mut findings);
        fs::remove_dir_all(&folder).expect("the scratch folder goes");
        assert_eq!(findings.len(), 2);
    }

    fn scratch_library(library: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("campanile-example-{}", std::process::id()));
        fs::create_dir_all(folder.join("src")).expect("a scratch folder");
        fs::write(folder.join("src/lib.rs"), library).expect("a scratch file");
        folder
    }

    #[test]
    fn a_document_that_names_a_file_that_went_is_found() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a room of the house");
        let mut findings = Vec::new();
        mentions(root, "A.md", "`xtask/tidy.rs`, `xtask/src/tidy.rs`, `run/x86.rs`\n`irq/gone.rs`", &mut findings);
        assert_eq!(findings, ["A.md:2: there is no irq/gone.rs"]);
    }

    #[test]
    fn a_long_file_is_found() {
        let mut findings = Vec::new();
        source("irq/src/flow.rs", &"\n".repeat(500), &mut findings);
        assert!(findings.is_empty());
        source("irq/src/tests.rs", &"\n".repeat(501), &mut findings);
        assert_eq!(findings.len(), 1);
    }

    #[test]
    fn a_long_function_is_found_and_its_neighbours_are_not() {
        let body = "        step();\n".repeat(69);
        let text = format!(
            "extern \"C\" {{\n    fn declared(\n    );\n}}\nimpl X {{\n    fn short() {{\n    }}\n    pub(crate) fn long(\n    ) {{\n{body}    }}\n}}\n"
        );
        assert_eq!(long_functions(&text), [("long".to_owned(), 72)]);
        assert_eq!(long_functions(&text.replacen("        step();\n", "", 2)), []);
    }
}

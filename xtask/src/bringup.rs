//! Bring-up outside `systems/`: kept small, so that only one place knows the order of hardware.
//!
//! The check counts the lines of each function that calls a set-up function of the core or of a controller, except in
//! the rooms that own these functions.

use std::path::Path;

/// The greatest sum of their lines.
pub(crate) const LINES_MAX: usize = 500;

/// Rooms that may call their own set-up functions, in code and unit tests.
const OWNERS: [&str; 7] = ["systems/", "irq/", "drivers/", "hal/", "spec/", "xtask/", "target/"];

/// Calls that make a function a bring-up.
const CALLS: [&str; 12] = [
    "IrqCore::new(",
    ".set_system_vector(",
    ".set_root_chip(",
    ".set_deadline_hook(",
    "Lapic::new(",
    "lapic.enable(",
    "VectorDomain::new(",
    "RemapUnit::new(",
    "RemapDomain::",
    "PostedMsi::new(",
    "GicV2::new(",
    "GicV3::new(",
];

/// A function that brings something up.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct BringUp {
    /// File and line.
    pub(crate) place: String,
    /// How many lines it has.
    pub(crate) lines: usize,
}

/// The functions of `text` that bring something up.
pub(crate) fn find(name: &str, text: &str) -> Vec<BringUp> {
    let path = Path::new(name);
    if OWNERS.iter().any(|owner| path.starts_with(owner)) {
        return Vec::new();
    }
    let lines: Vec<&str> = text.lines().collect();
    let calls = |line: &str| {
        let code = line.trim_start();
        !code.starts_with("//") && !code.starts_with("use ") && CALLS.iter().any(|call| code.contains(call))
    };
    let mut found: Vec<(usize, usize)> = (0..lines.len())
        .filter(|&index| calls(lines[index]))
        .map(|index| function_of(&lines, index).unwrap_or((index, index)))
        .collect();
    found.dedup();
    let place = |start: usize| format!("{name}:{}", start + 1);
    found.into_iter().map(|(start, end)| BringUp { place: place(start), lines: end - start + 1 }).collect()
}

/// First and last line of the innermost function that holds line `index`, in formatted source.
fn function_of(lines: &[&str], index: usize) -> Option<(usize, usize)> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let begins = |line: &str| {
        let words = line.trim_start().split(' ').take_while(|word| !word.contains('('));
        let mut words = words.filter(|word| !["pub", "const", "async", "unsafe"].contains(word));
        line.trim_start().starts_with("pub(") && line.contains(" fn ") || words.next() == Some("fn") || {
            line.trim_start().starts_with("fn ")
        }
    };
    (0..=index).rev().filter(|&start| begins(lines[start])).find_map(|start| {
        let depth = indent(lines[start]);
        let closes = |line: &str| indent(line) == depth && line.trim() == "}";
        let end = (start..lines.len()).find(|&end| closes(lines[end]) || end == start && lines[end].ends_with('}'))?;
        (end >= index).then_some((start, end))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
fn other() {
    run();
}

impl Rig {
    pub(crate) fn set_up(&self) {
        let core = IrqCore::new(hal, config);
        let lapic = Lapic::new(hal);
    }

    fn quiet(&self) {}
}
";

    #[test]
    fn lines_of_functions_that_bring_up_are_counted_once() {
        let found = find("lab/src/run.rs", TEXT);
        assert_eq!(found, [BringUp { place: "lab/src/run.rs:6".into(), lines: 4 }]);
    }

    #[test]
    fn the_rooms_that_have_set_up_functions_may_call_them() {
        assert_eq!(find("systems/src/pc/builder.rs", TEXT), []);
    }

    #[test]
    fn what_is_only_named_is_not_counted() {
        assert_eq!(find("lab/src/run.rs", "// IrqCore::new(hal)\nfn f() {\n    run();\n}\n"), []);
    }
}

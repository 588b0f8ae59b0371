//! The README's table is the program's output. `UPDATE_README=1 cargo test --test readme` writes it anew.

use std::path::{Path, PathBuf};
use std::process::Command;

const MARKER: &str = "<!-- table: campanile ";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("lab is a room of the house").into()
}

/// The command behind the marker, and the range of its fenced block in the text.
fn table(readme: &str) -> (Vec<&str>, std::ops::Range<usize>) {
    let marker = readme.find(MARKER).expect("README.md marks its table with `<!-- table: campanile … -->`");
    let (command, rest) = readme[marker + MARKER.len()..].split_once(" -->\n").expect("the marker ends its line");
    let block = rest.strip_prefix("```text\n").expect("a fenced block of text follows the marker");
    let start = readme.len() - block.len();
    let length = block.find("```\n").expect("the block ends");
    (command.split_whitespace().collect(), start..start + length)
}

#[test]
fn the_readmes_table_is_what_the_program_prints() {
    let path = root().join("README.md");
    let readme = std::fs::read_to_string(&path).unwrap();
    let (arguments, block) = table(&readme);
    let run = Command::new(env!("CARGO_BIN_EXE_campanile")).current_dir(root()).args(&arguments).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let printed = String::from_utf8(run.stdout).unwrap();
    if std::env::var_os("UPDATE_README").is_some_and(|value| value == "1") {
        let updated = [&readme[..block.start], printed.as_str(), &readme[block.end..]].concat();
        return std::fs::write(&path, updated).unwrap();
    }
    let differing = printed.lines().zip(readme[block.clone()].lines()).find(|(now, then)| now != then);
    assert!(
        printed == readme[block],
        "README.md no longer shows what `campanile {}` prints; the first line that differs (now, README): {differing:#?}\n\
         UPDATE_README=1 cargo test --test readme writes it anew",
        arguments.join(" ")
    );
}

/// `fitted.rs` checks the 2 %; this test checks the counts beside it.
#[test]
fn the_readme_counts_free_constants_and_fitted_rows() {
    let rows = lab::published::rows().unwrap();
    let free = lab::reproduce::free_constants(&lab::reproduce::plans(&rows).unwrap()).unwrap();
    let count = |of: fn(&lab::report::table::FreeConstants) -> usize| free.iter().map(of).sum::<usize>();
    let claim = format!("{} free constants for {} fitted rows", count(|one| one.count), count(|one| one.fitted));
    assert!(
        std::fs::read_to_string(root().join("README.md")).unwrap().contains(&claim),
        "README.md should say {claim}"
    );
}

#[test]
fn a_readme_without_the_table_is_refused() {
    let whole = "a\n<!-- table: campanile run x -->\n```text\none\ntwo\n```\nb\n";
    let (arguments, block) = table(whole);
    assert_eq!((arguments, &whole[block]), (vec!["run", "x"], "one\ntwo\n"));
    for broken in ["a\n```text\none\n```\n", "<!-- table: campanile run x -->\none\n"] {
        assert!(std::panic::catch_unwind(|| table(broken)).is_err(), "{broken}");
    }
}

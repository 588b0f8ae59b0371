//! docs/fio.md has the table of options as the program has it. `UPDATE_DOCS=1 cargo test --test fio_docs` writes it.

use lab::fio::options::{self, Meaning};
use std::fmt::Write as _;

const BEGIN: &str = "<!-- The table of options: written by lab/tests/fio_docs.rs -->\n";

fn table() -> String {
    let mut text = String::from("| option | of | what it is here |\n|---|---|---|\n");
    for option in options::all().iter().filter(|option| option.meaning != Meaning::Foreign) {
        let alias = option.alias.map_or(String::new(), |alias| format!(", `{alias}`"));
        let engines: Vec<&str> =
            option.engines.iter().copied().filter(|engine| lab::fio::judge::ENGINES.contains(engine)).collect();
        let of = if engines.is_empty() { "all".to_owned() } else { engines.join(", ") };
        let except = |unless: &[&str]| match unless {
            [] => String::new(),
            some => format!(" (not {})", some.join(", ")),
        };
        let meaning = match &option.meaning {
            Meaning::Modelled(how) => format!("modelled: {how}"),
            Meaning::NoEffect(why) => format!("without effect: {why}"),
            Meaning::Ignored { unless, consequence } => format!("a warning{}: {consequence}", except(unless)),
            Meaning::Refused { unless, why, valid } => format!("refused{}: {why}; valid: {valid}", except(unless)),
            Meaning::Foreign => continue,
        };
        let _ = writeln!(text, "| `{}`{alias} | {of} | {meaning} |", option.name);
    }
    text
}

#[test]
fn the_document_has_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/fio.md");
    let document = std::fs::read_to_string(path).unwrap();
    let (before, after) = document.split_once(BEGIN).expect("the document has a place for the table");
    let written = format!("{before}{BEGIN}{}", table());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &written).unwrap();
    } else {
        assert!(after == table(), "docs/fio.md is old: UPDATE_DOCS=1 cargo test --package campanile --test fio_docs");
    }
}

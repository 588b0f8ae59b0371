//! `cargo xtask`: checks of the house that are not tests of a room.

mod bringup;
mod gates;
mod layers;
mod mutants;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask tidy     the law between the rooms, layers, sizes, unfinished marks, dead links
       cargo xtask gates    instructions per unit of work, against benches/gates.toml";

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the project");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let findings = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["gates"] => gates::check(root),
        ["tidy"] => [tidy::check(root), layers::check(root), mutants::table::check(root)].concat(),
        ["mutants", ref options @ ..] => mutants::run(root, options),
        _ => {
            eprintln!("{USAGE}\n{}", mutants::USAGE);
            return ExitCode::from(2);
        }
    };
    for finding in &findings {
        eprintln!("{finding}");
    }
    if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

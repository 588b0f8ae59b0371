//! `campanile lint`.

use crate::cli::{self, Failure, LintArgs};
use crate::lint::{Lint, lint};
use crate::scenario::Request;

pub(super) fn run(args: &LintArgs) -> Result<(), Failure> {
    let request = |file: &String| Request {
        input: file.clone(),
        platform: args.platform.clone(),
        sets: args.sets.clone(),
        defines: args.defines.clone(),
        ..Request::default()
    };
    let lints: Vec<Lint> = args.files.iter().map(|file| lint(&request(file))).collect();
    if args.json {
        cli::print(&(serde_json::to_string_pretty(&lints).expect("findings are plain data") + "\n"))?;
    } else {
        cli::print(&lints.iter().map(Lint::text).collect::<String>())?;
    }
    match lints.iter().filter(|lint| !lint.runs).count() {
        0 => Ok(()),
        refused => Err(Failure::Refused(refused)),
    }
}

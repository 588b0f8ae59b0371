//! Many changes in one build: a switch in each changed function asks, when the program runs, which change was drawn.
//!
//! What does not compile in this form is taken out and left to a build of its own, which decides as if there were no batch.

use super::blame::{self, Branches};
use super::catalogue::Drawn;
use super::switch;
use super::tests::CONFORMANCE;
use crate::mutants::build::{self, Program};
use crate::mutants::copy::Copy;
use crate::mutants::{Options, write_text};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

/// The programs that hold the changes.
pub(in crate::mutants) struct Batch {
    pub(in crate::mutants) copy: Copy,
    /// `campanile check`; none if it is not to run.
    pub(in crate::mutants) check: Option<PathBuf>,
    programs: Vec<Program>,
    /// The changes in them by name.
    numbers: BTreeMap<String, u32>,
}

impl Batch {
    /// Builds `changes` into `copy`, which is of the unchanged tree.
    ///
    /// # Errors
    /// If the tree does not compile, whatever is taken out.
    pub(super) fn build(copy: Copy, changes: &[&Drawn], options: &Options) -> Result<Self, String> {
        let mut source = Source::read(&copy, changes)?;
        let packages: BTreeSet<&str> = changes.iter().map(|change| change.package.as_str()).collect();
        let named = |packages: &mut dyn Iterator<Item = &str>| -> Vec<String> {
            packages.flat_map(|package| ["--package".to_owned(), package.to_owned()]).collect()
        };
        let arguments = |command: &[&str], packages: Vec<String>| -> Vec<String> {
            command.iter().map(|&word| word.to_owned()).chain(packages).collect()
        };
        let checked = arguments(&["check", "--keep-going"], named(&mut packages.iter().copied()));
        source.settle("checking the changed crates", &checked)?;
        let check = if options.without_check {
            None
        } else {
            let wanted = ["build", "--package", build::CHECK, "--bin", build::CHECK].map(str::to_owned);
            let messages = source.settle("building `campanile check`", &wanted)?;
            Some(build::program(&messages, build::CHECK)?)
        };
        let tested = named(&mut packages.iter().copied().chain([CONFORMANCE]));
        let messages = source.settle("building the tests", &arguments(&["test", "--no-run"], tested))?;
        let programs = build::programs(&messages).collect();
        let out = source.out;
        let numbers = numbered(changes).filter(|(number, _)| !out.contains(number));
        let numbers = numbers.map(|(number, change)| (change.name.clone(), number)).collect();
        Ok(Self { copy, check, programs, numbers })
    }

    /// The number of `change`, if it is in the programs.
    pub(super) fn number(&self, change: &Drawn) -> Option<u32> {
        self.numbers.get(&change.name).copied()
    }

    /// The test programs for a change of `package`, its own first.
    pub(super) fn tests(&self, package: &str) -> Vec<&Program> {
        let folder = |package: &str| self.copy.root.join(folder(package));
        let of = |package| self.programs.iter().filter(move |program| program.folder == package);
        of(folder(package)).chain(of(folder(CONFORMANCE))).collect()
    }
}

/// The folder of a room's package.
fn folder(package: &str) -> &str {
    package.trim_start_matches("campanile-")
}

/// Numbers from 1: 0 is no change.
fn numbered<'a>(changes: &[&'a Drawn]) -> impl Iterator<Item = (u32, &'a Drawn)> {
    (1..).zip(changes.iter().copied())
}

/// The changed files of the copy.
struct Source<'a> {
    copy: &'a Copy,
    changes: Vec<(u32, &'a Drawn)>,
    /// The files as they were, by their paths in the tree.
    files: BTreeMap<String, String>,
    /// Roots of the changed crates.
    roots: BTreeSet<String>,
    /// The changes that are not, or no longer, in the copy.
    out: BTreeSet<u32>,
    branches: Branches,
}

impl<'a> Source<'a> {
    fn read(copy: &'a Copy, changes: &[&'a Drawn]) -> Result<Self, String> {
        let roots: BTreeSet<_> =
            changes.iter().map(|change| format!("{}/src/lib.rs", folder(&change.package))).collect();
        let mut files = BTreeMap::new();
        for file in changes.iter().map(|change| &change.file).chain(&roots) {
            let text = fs::read_to_string(copy.root.join(file)).map_err(|error| format!("{file}: {error}"))?;
            files.insert(file.clone(), text);
        }
        let changes = numbered(changes).collect();
        Ok(Self { copy, changes, files, roots, out: BTreeSet::new(), branches: Branches::new() })
    }

    /// Builds until nothing that is still in is at fault. Returns cargo's messages.
    fn settle(&mut self, what: &str, arguments: &[String]) -> Result<String, String> {
        loop {
            self.write()?;
            println!("{what}, with {} changes", self.changes.len() - self.out.len());
            let messages = match build::attempt(self.copy, arguments)? {
                Ok(messages) => return Ok(messages),
                Err(messages) => messages,
            };
            let fault = blame::at_fault(&messages, &self.branches);
            if fault.is_empty() {
                let first = build::errors(&messages).next();
                let said = first.as_ref().and_then(|error| error.get("rendered")?.as_str()).unwrap_or_default();
                return Err(format!("{what}: no change is at fault for: {said}"));
            }
            println!("  {} of them do not compile like this, and are left for builds of their own", fault.len());
            self.out.extend(fault);
        }
    }

    /// Writes the files with the changes that are in. A file that is as it is to be keeps its time.
    fn write(&mut self) -> Result<(), String> {
        for (file, source) in &self.files {
            let of = self.changes.iter().filter(|(number, change)| change.file == *file && !self.out.contains(number));
            let edits: Vec<_> = of.map(|&(number, change)| (number, &change.edit)).collect();
            let switched = switch::rewrite(source, &edits).map_err(|error| format!("{file}: {error}"))?;
            let text = if self.roots.contains(file) { switch::with_root(&switched.text) } else { switched.text };
            self.out.extend(switched.refused);
            self.branches.insert(file.clone(), switched.branches);
            let path = self.copy.root.join(file);
            if !fs::read_to_string(&path).is_ok_and(|present| present == text) {
                write_text(&path, &text)?;
            }
        }
        Ok(())
    }
}

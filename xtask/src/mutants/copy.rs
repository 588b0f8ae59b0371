//! The copy of the tree in which mutants are built. It lies under `target/` and is kept from run to run, so builds
//! stay warm.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A copy of the tree at `from`.
#[derive(Clone)]
pub(crate) struct Copy {
    /// Its path.
    pub(crate) root: PathBuf,
    /// The folder of its build results, outside the copy.
    pub(crate) target: PathBuf,
}

impl Copy {
    /// The copy for job number `job`. Makes it equal to the present files at `from` that git tracks.
    pub(crate) fn new(from: &Path, job: usize) -> Result<Self, String> {
        Self::named(from, &job.to_string())
    }

    /// The copy of this name, in the same way.
    pub(crate) fn named(from: &Path, name: &str) -> Result<Self, String> {
        let folder = from.join("target/mutants");
        let copy = Self { root: folder.join(format!("tree-{name}")), target: folder.join(format!("build-{name}")) };
        let tracked = tracked(from)?;
        for file in &tracked {
            renew(&from.join(file), &copy.root.join(file))?;
        }
        let mut present = Vec::new();
        files(&copy.root, &mut present);
        for file in present {
            let known = file.strip_prefix(&copy.root).is_ok_and(|file| tracked.contains(file));
            if !known {
                fs::remove_file(&file).map_err(|error| format!("{}: {error}", file.display()))?;
            }
        }
        Ok(copy)
    }
}

/// Makes `to` equal to `from`. A file that is already equal keeps its time, so cargo does not rebuild it.
fn renew(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", to.display());
    let Ok(content) = fs::read(from) else {
        // Git tracks the file, and the tree no longer has it.
        return Ok(());
    };
    if fs::read(to).is_ok_and(|present| present == content) {
        return Ok(());
    }
    fs::create_dir_all(to.parent().unwrap_or(to)).map_err(failed)?;
    fs::copy(from, to).map(drop).map_err(failed)
}

fn tracked(root: &Path) -> Result<BTreeSet<PathBuf>, String> {
    let output = Command::new("git").current_dir(root).args(["ls-files", "-z"]).output();
    let output = output.map_err(|error| format!("git: {error}"))?;
    if !output.status.success() {
        return Err(format!("git ls-files: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let names = String::from_utf8_lossy(&output.stdout);
    Ok(names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from).collect())
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files(&entry.path(), found),
            _ => found.push(entry.path()),
        }
    }
}

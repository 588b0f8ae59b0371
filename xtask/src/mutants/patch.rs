//! A known defect: a patch with a header.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Tests that may kill a mutant: one target of one package.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Suite {
    pub(crate) package: String,
    /// `lib`, or the name of a file in `tests/`.
    pub(crate) target: String,
    /// Arguments for libtest: parts of names, or `--skip` with one.
    pub(crate) choice: Vec<String>,
    /// Built with `--cfg loom`: every interleaving of a small model.
    pub(crate) loom: bool,
}

/// A known defect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mutant {
    /// The file's name without its ending.
    pub(crate) name: String,
    /// The whole patch, read once: the run keeps using it even if the file changes.
    text: String,
    /// The defect.
    pub(crate) defect: String,
    /// The damage to a user.
    pub(crate) suffers: String,
    /// Its origin, or the rule that it breaks.
    pub(crate) source: String,
    /// Why no check finds it, for a mutant that is known to survive.
    pub(crate) survives: Option<String>,
    /// The tests that run if `campanile check` does not find it.
    pub(crate) suites: Vec<Suite>,
}

/// All mutants of the tree at `root`, in order of their names.
pub(crate) fn load(root: &Path) -> Result<Vec<Mutant>, String> {
    let folder = root.join("mutants");
    let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|ending| ending == "patch"));
    files.sort();
    files.into_iter().map(read).collect()
}

fn read(file: PathBuf) -> Result<Mutant, String> {
    let text = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    parse(&file, &text).map_err(|error| format!("{}: {error}", file.display()))
}

fn parse(file: &Path, text: &str) -> Result<Mutant, String> {
    let (header, _) = text.split_once("\ndiff --git ").ok_or("there is no `diff --git` in it")?;
    let field = |name: &str| {
        let found = values(header, name).next().filter(|value| !value.is_empty());
        found.map(str::to_owned).ok_or(format!("the header has no `{name}:`"))
    };
    let suites = ["Tests", "Loom"]
        .into_iter()
        .flat_map(|name| values(header, name).map(move |value| suite(value, name == "Loom")));
    Ok(Mutant {
        name: file.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        text: text.to_owned(),
        defect: field("Defect")?,
        suffers: field("Suffers")?,
        source: field("Source")?,
        survives: field("Survives").ok(),
        suites: suites.collect::<Result<_, _>>()?,
    })
}

fn values<'a>(header: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    header.lines().filter_map(move |line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

fn suite(value: &str, loom: bool) -> Result<Suite, String> {
    let mut words = value.split_whitespace().map(str::to_owned);
    let (Some(package), Some(target)) = (words.next(), words.next()) else {
        return Err(format!("`{value}` is to be a package, a target of it, and perhaps a choice of its tests"));
    };
    Ok(Suite { package, target, choice: words.collect(), loom })
}

/// A `git` that treats `folder` as outside any repository. Inside a repository, git would skip patches of other
/// folders.
fn git(folder: &Path) -> Command {
    let mut git = Command::new("git");
    git.current_dir(folder).env("GIT_CEILING_DIRECTORIES", folder.parent().unwrap_or(folder)).arg("apply");
    git
}

impl Mutant {
    /// A change of one `file` that somebody else made up. Its `diff` begins with the two lines that name files.
    pub(crate) fn of_diff(name: &str, file: &str, diff: &str) -> Option<Self> {
        let hunks = &diff[diff.find("\n@@ ")?..];
        Some(Self {
            name: name.to_owned(),
            text: format!("diff --git a/{file} b/{file}\n--- a/{file}\n+++ b/{file}{hunks}"),
            defect: String::new(),
            suffers: String::new(),
            source: String::new(),
            survives: None,
            suites: Vec::new(),
        })
    }

    /// The files that it changes.
    pub(crate) fn files(&self) -> impl Iterator<Item = &str> {
        self.text.lines().filter_map(|line| line.strip_prefix("+++ b/"))
    }

    /// True if the patch applies to the tree at `root`.
    pub(crate) fn check(&self, root: &Path) -> Result<(), String> {
        self.run(git(root).arg("--check"))
    }

    /// Applies the defect to the tree at `root`.
    pub(crate) fn apply(&self, root: &Path) -> Result<(), String> {
        self.run(&mut git(root))
    }

    /// Removes the defect again.
    pub(crate) fn mend(&self, root: &Path) -> Result<(), String> {
        self.run(git(root).arg("--reverse"))
    }

    fn run(&self, git: &mut Command) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("git: {error}");
        let mut child =
            git.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(failed)?;
        // Git reads the whole patch before it prints anything.
        child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(self.text.as_bytes())).map_err(failed)?;
        let output = child.wait_with_output().map_err(failed)?;
        if output.status.success() {
            return Ok(());
        }
        let why = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
        Err(format!("{} applies no more: {why}", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "Defect: too late\nSuffers: a hang\nSource: a mail\nTests: irq lib --skip poll\nTests: conformance a\n\
                         Loom: irq loom_posted\n\ndiff --git a/irq/x.rs b/irq/x.rs\n--- a/irq/x.rs\n+++ b/irq/x.rs\n";

    #[test]
    fn a_header_is_read() {
        let mutant = parse(Path::new("mutants/07-late.patch"), PATCH).unwrap();
        assert_eq!((mutant.name.as_str(), mutant.suffers.as_str()), ("07-late", "a hang"));
        let suites: Vec<_> =
            mutant.suites.iter().map(|suite| (suite.target.as_str(), suite.choice.join(" "), suite.loom)).collect();
        assert_eq!(suites.len(), 3);
        assert_eq!(suites[0], ("lib", "--skip poll".into(), false));
        assert_eq!(suites[2], ("loom_posted", String::new(), true));
    }

    #[test]
    fn what_a_header_lacks_is_named() {
        let without = PATCH.replace("Suffers: a hang\n", "");
        assert_eq!(parse(Path::new("x"), &without), Err("the header has no `Suffers:`".into()));
        assert!(parse(Path::new("x"), "Defect: x").is_err());
    }

    /// The check of `cargo xtask mutants --verify`, in every run of the tests.
    #[test]
    fn every_patch_of_the_house_applies() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a room of the house");
        let mutants = load(root).unwrap();
        assert!(mutants.len() >= 45, "{} mutants", mutants.len());
        let wrong: Vec<_> = mutants.iter().filter_map(|mutant| mutant.check(root).err()).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}

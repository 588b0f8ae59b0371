//! Builds the killers of a mutant, and finds the resulting programs.

use super::copy::Copy;
use super::patch::Suite;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How the error of a change begins that does not compile.
pub(super) const NOT_BUILT: &str = "does not compile";

/// The profile of `Cargo.toml` that mutants are built with.
const PROFILE: &str = "mutants";

/// The package and the program of `campanile check`.
pub(super) const CHECK: &str = "campanile-check";

/// A test program.
pub(crate) struct Program {
    pub(crate) file: PathBuf,
    /// The folder in which it runs: its package's.
    pub(crate) folder: PathBuf,
}

/// Builds `campanile check`.
pub(crate) fn check(copy: &Copy) -> Result<PathBuf, String> {
    let messages = cargo(copy, false, &["build", "--package", CHECK, "--bin", CHECK])?;
    program(&messages, CHECK)
}

/// Builds `campanile` of the tree at `root`, which judges images.
pub(crate) fn judge(root: &Path) -> Result<PathBuf, String> {
    let mut cargo = cargo_of(root);
    cargo.args(["build", "--release", "--package", "campanile", "--bin", "campanile"]);
    program(&messages(&mut cargo)?, "campanile")
}

/// Builds the copy's image for `q35`.
pub(crate) fn image(copy: &Copy) -> Result<PathBuf, String> {
    let mut cargo = cargo_of(&copy.root);
    cargo.args(["build", "--release", "--package", "campanile-boot", "--target", "x86_64-unknown-none"]);
    cargo.arg("--target-dir").arg(&copy.target);
    program(&messages(&mut cargo)?, "campanile-boot")
}

/// The only program of `package`.
pub(super) fn program(messages: &str, package: &str) -> Result<PathBuf, String> {
    let program = programs(messages).next().map(|program| program.file);
    program.ok_or_else(|| format!("{package} was built and is not there"))
}

/// Builds a test program.
pub(crate) fn test(copy: &Copy, suite: &Suite) -> Result<Program, String> {
    let Suite { package, target, loom, .. } = suite;
    let target = if target == "lib" { &["--lib"][..] } else { &["--test", target] };
    let messages = cargo(copy, *loom, &[&["test", "--no-run", "--package", package], target].concat())?;
    test_programs(&messages).next().ok_or(format!("{package} has no test program {}", suite.target))
}

/// Builds all test programs of `packages`.
pub(crate) fn tests(copy: &Copy, packages: &[&str]) -> Result<Vec<Program>, String> {
    let mut arguments = vec!["test", "--no-run"];
    arguments.extend(packages.iter().flat_map(|package| ["--package", package]));
    Ok(test_programs(&cargo(copy, false, &arguments)?).collect())
}

/// Runs cargo in the copy; returns its messages.
fn cargo(copy: &Copy, loom: bool, arguments: &[&str]) -> Result<String, String> {
    let mut cargo = cargo_of(&copy.root);
    cargo.args(arguments).args(["--profile", PROFILE]);
    // A loom model shares no build results with the ordinary tests.
    cargo.arg("--target-dir").arg(if loom { copy.target.join("loom") } else { copy.target.clone() });
    if loom {
        cargo.env("RUSTFLAGS", "--cfg loom");
    }
    messages(&mut cargo)
}

/// Runs cargo in the copy. Returns its messages, with those of the compiler; if it failed, as the inner error.
pub(super) fn attempt(copy: &Copy, arguments: &[String]) -> Result<Result<String, String>, String> {
    let mut cargo = cargo_of(&copy.root);
    cargo.args(arguments).args(["--profile", PROFILE, "--quiet", "--locked", "--message-format", "json"]);
    cargo.arg("--target-dir").arg(&copy.target).stderr(Stdio::piped());
    let output = cargo.output().map_err(|error| format!("cargo: {error}"))?;
    let messages = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(Ok(messages));
    }
    // An error of cargo itself is no message.
    if errors(&messages).next().is_none() {
        return Err(format!("cargo: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(Err(messages))
}

/// Whether the compiler takes `package`, before any code is made.
pub(super) fn checks(copy: &Copy, package: &str) -> Result<bool, String> {
    let arguments = ["check", "--package", package].map(str::to_owned);
    attempt(copy, &arguments).map(|messages| messages.is_ok())
}

/// The compiler's errors among cargo's messages.
pub(super) fn errors(messages: &str) -> impl Iterator<Item = serde_json::Value> {
    messages.lines().filter_map(|line| {
        let mut message: serde_json::Value = serde_json::from_str(line).ok()?;
        let message = message.get_mut("message")?.take();
        message.get("level")?.as_str()?.starts_with("error").then_some(message)
    })
}

/// Cargo in the tree at `root`, without the settings of the tree that this program belongs to.
fn cargo_of(root: &Path) -> Command {
    let mut cargo = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
    cargo.current_dir(root).env_remove("CARGO_TARGET_DIR").env_remove("RUSTFLAGS").env_remove("CARGO_INCREMENTAL");
    cargo
}

/// Runs cargo; returns its messages.
fn messages(cargo: &mut Command) -> Result<String, String> {
    cargo.args(["--quiet", "--locked", "--message-format", "json-render-diagnostics"]).stderr(Stdio::piped());
    let output = cargo.output().map_err(|error| format!("cargo: {error}"))?;
    if !output.status.success() {
        return Err(failure(&String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Why a build failed: the compiler's first error. A compiler that was killed, or that met a full disk, has none and says
/// nothing about the change: then all that was printed.
fn failure(stderr: &str) -> String {
    let first = stderr.lines().find(|line| line.starts_with("error"));
    match first.filter(|line| !line.starts_with("error: could not compile")) {
        Some(error) => format!("{NOT_BUILT}: {error}"),
        None => format!("cargo failed: {}", stderr.trim()),
    }
}

/// The programs that cargo's messages name.
pub(super) fn programs(messages: &str) -> impl Iterator<Item = Program> {
    programs_of(messages, |_| true)
}

/// Those that run tests: cargo builds a package's own programs beside its integration tests.
fn test_programs(messages: &str) -> impl Iterator<Item = Program> {
    programs_of(messages, |message| message["profile"]["test"] == true)
}

fn programs_of(messages: &str, is_meant: fn(&serde_json::Value) -> bool) -> impl Iterator<Item = Program> {
    messages.lines().filter_map(move |line| {
        let message: serde_json::Value = serde_json::from_str(line).ok().filter(is_meant)?;
        let manifest = Path::new(message.get("manifest_path")?.as_str()?);
        Some(Program { file: message.get("executable")?.as_str()?.into(), folder: manifest.parent()?.to_owned() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_that_failed_without_an_error_tells_all() {
        let wrong =
            "warning: unused\nerror[E0308]: mismatched types\n --> x.rs\nerror: could not compile `x` due to 1 error";
        assert_eq!(failure(wrong), "does not compile: error[E0308]: mismatched types");
        let killed = "LLVM ERROR: no space\nerror: could not compile `x` (lib)\n\nCaused by:\n  (signal: 6, SIGABRT)\n";
        assert_eq!(failure(killed), format!("cargo failed: {}", killed.trim()));
    }

    #[test]
    fn programs_are_found_in_what_cargo_says() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","manifest_path":"/x/irq/Cargo.toml","target":{"kind":["lib"],"#,
            r#""name":"campanile_irq"},"executable":"/t/deps/campanile_irq-1"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","manifest_path":"/x/hal/Cargo.toml","target":{"kind":["lib"],"#,
            r#""name":"campanile_hal"},"executable":null}"#,
            "\n{\"reason\":\"build-finished\",\"success\":true}\n",
        );
        let built: Vec<_> = programs(messages).collect();
        assert_eq!(built.len(), 1);
        assert_eq!(built[0].folder, Path::new("/x/irq"));
        let beside = concat!(
            r#"{"manifest_path":"/x/c/Cargo.toml","profile":{"test":false},"executable":"/t/check"}"#,
            "\n",
            r#"{"manifest_path":"/x/c/Cargo.toml","profile":{"test":true},"executable":"/t/deps/histories-1"}"#,
        );
        let tests: Vec<_> = test_programs(beside).map(|program| program.file).collect();
        assert_eq!(tests, [Path::new("/t/deps/histories-1")]);
    }
}

//! Names the commit that is built, if the source stands in its own git tree. Manifests of results have it.

use std::path::Path;
use std::process::Command;

/// What a result depends on: changes elsewhere (documents, tests of other rooms) are none.
const SOURCES: [&str; 13] = [
    "spec",
    "hal",
    "irq",
    "sched",
    "drivers",
    "systems",
    "machine",
    "bridge",
    "check",
    "qemu",
    "import",
    "platforms",
    "scenarios",
];

fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

fn main() {
    let Some(root) = Path::new(env!("CARGO_MANIFEST_DIR")).parent() else { return };
    for source in SOURCES.iter().chain(&["lab/src", "lab/build.rs", "Cargo.lock"]) {
        println!("cargo::rerun-if-changed={}", root.join(source).display());
    }
    // A source that was unpacked inside somebody else's tree has no commit.
    let top = git(root, &["rev-parse", "--show-toplevel"]);
    let is_own = top.and_then(|top| Path::new(&top).canonicalize().ok()) == root.canonicalize().ok();
    let Some(commit) = git(root, &["rev-parse", "HEAD"]).filter(|_| is_own) else { return };
    for name in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(root, &["rev-parse", "--git-path", name]) {
            let path = root.join(path);
            if path.exists() {
                println!("cargo::rerun-if-changed={}", path.display());
            }
        }
    }
    let mut changed = vec!["status", "--porcelain", "--untracked-files=no", "--", "lab/src"];
    changed.extend(SOURCES);
    let is_changed = git(root, &changed).is_none_or(|text| !text.is_empty());
    println!("cargo::rustc-env=CAMPANILE_COMMIT={commit}{}", if is_changed { " with changes" } else { "" });
}

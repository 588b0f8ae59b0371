//! Builds the images, and names the tools that building and running them needs.

use crate::{BootError, pinned};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The tools and settings of one instruction set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Tools {
    pub(crate) target: &'static str,
    pub(crate) qemu: &'static str,
}

/// For QEMU's `virt`.
pub(crate) const AARCH64: Tools = Tools { target: "aarch64-unknown-none-softfloat", qemu: "qemu-system-aarch64" };

/// For QEMU's `q35`.
pub(crate) const X86_64: Tools = Tools { target: "x86_64-unknown-none", qemu: "qemu-system-x86_64" };

/// A prerequisite that is missing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Missing {
    /// QEMU, a kernel, or a tool that builds guests; the text is the reason that the fetching script gave.
    Download(String),
    /// A target of the compiler.
    Target(&'static str),
    /// The source tree from which this program was built.
    Sources(PathBuf),
    /// A network of a run's own; the text is the reason.
    Network(String),
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Download(why) | Self::Network(why) => f.write_str(why),
            Self::Target(target) => write!(f, "the compiler has no {target} (rustup target add {target})"),
            Self::Sources(path) => write!(f, "guests are built from their sources, but {} is missing", path.display()),
        }
    }
}

/// A built image, and the QEMU that runs it.
pub(crate) struct Image {
    pub(crate) file: PathBuf,
    pub(crate) qemu: PathBuf,
}

impl Image {
    /// Builds the image, optimized.
    ///
    /// # Errors
    /// [`BootError`].
    pub(crate) fn build(tools: Tools) -> Result<Self, BootError> {
        let root = pinned::sources();
        tools.check(root).map_err(BootError::Missing)?;
        let qemu = pinned::qemu()?.join(tools.qemu);
        let mut cargo = Command::new("cargo");
        cargo.current_dir(root).args(["build", "--release", "--package", "campanile-boot"]);
        cargo.args(["--locked", "--message-format", "json-render-diagnostics", "--target", tools.target]);
        let output = cargo.output().map_err(|error| BootError::Io("cargo".into(), error))?;
        if !output.status.success() {
            return Err(BootError::Build(String::from_utf8_lossy(&output.stderr).into()));
        }
        let said = String::from_utf8_lossy(&output.stdout);
        let messages = said.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let mut built = messages.filter_map(|message| message["executable"].as_str().map(PathBuf::from));
        let file = built.next_back().ok_or_else(|| BootError::Build("cargo names no executable".into()))?;
        Ok(Self { file, qemu })
    }
}

impl Tools {
    fn check(self, root: &Path) -> Result<(), Missing> {
        let sources = root.join("boot/Cargo.toml");
        if !sources.exists() {
            return Err(Missing::Sources(sources));
        }
        let mut rustc = Command::new("rustc");
        rustc.current_dir(root).args(["--print", "target-libdir", "--target", self.target]);
        let folder = rustc.output().map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        let is_there = folder.is_ok_and(|folder| !folder.is_empty() && Path::new(&folder).is_dir());
        if is_there { Ok(()) } else { Err(Missing::Target(self.target)) }
    }
}

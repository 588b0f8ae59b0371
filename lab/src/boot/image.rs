//! The images, and what it takes to build and run them.

use super::BootError;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What an instruction set needs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Tools {
    pub(super) target: &'static str,
    pub(super) qemu: &'static str,
    /// Debian's package of it.
    pub(super) package: &'static str,
}

/// For QEMU's `virt`.
pub(super) const AARCH64: Tools =
    Tools { target: "aarch64-unknown-none-softfloat", qemu: "qemu-system-aarch64", package: "qemu-system-arm" };

/// For QEMU's `q35`.
pub(super) const X86_64: Tools =
    Tools { target: "x86_64-unknown-none", qemu: "qemu-system-x86_64", package: "qemu-system-x86" };

/// What is not installed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Missing {
    /// QEMU: the program, and Debian's package of it.
    Qemu(&'static str, &'static str),
    /// A target of the compiler.
    Target(&'static str),
    /// The sources from which this program was built.
    Sources(PathBuf),
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Qemu(program, package) => {
                write!(f, "no {program} on the path (Debian: apt-get install {package})")
            }
            Self::Target(target) => write!(f, "the compiler has no {target} (rustup target add {target})"),
            Self::Sources(path) => write!(f, "the image is built from its sources, and {} is gone", path.display()),
        }
    }
}

/// An image that is built.
pub(super) struct Image(pub(super) PathBuf);

impl Image {
    /// Builds the image, optimized.
    ///
    /// # Errors
    /// [`BootError`].
    pub(super) fn build(tools: Tools) -> Result<Self, BootError> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
        tools.check(root).map_err(BootError::Missing)?;
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
        built.next_back().map(Self).ok_or_else(|| BootError::Build("cargo names no executable".into()))
    }
}

impl Tools {
    fn check(self, root: &Path) -> Result<(), Missing> {
        let sources = root.join("boot/Cargo.toml");
        if !sources.exists() {
            return Err(Missing::Sources(sources));
        }
        let qemu = Command::new(self.qemu).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !qemu.is_ok_and(|status| status.success()) {
            return Err(Missing::Qemu(self.qemu, self.package));
        }
        let mut rustc = Command::new("rustc");
        rustc.current_dir(root).args(["--print", "target-libdir", "--target", self.target]);
        let folder = rustc.output().map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        let is_there = folder.is_ok_and(|folder| !folder.is_empty() && Path::new(&folder).is_dir());
        if is_there { Ok(()) } else { Err(Missing::Target(self.target)) }
    }
}

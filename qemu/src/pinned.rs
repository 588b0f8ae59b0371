//! The folders in which `scripts/fetch-qemu` has put QEMU and the kernels of Linux guests.

use crate::{BootError, Missing};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The exit code of a script whose prerequisites are missing; its output names them.
const CANNOT: i32 = 77;

/// The source tree from which this program was built. It holds the images and the scripts.
pub(crate) fn sources() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// The folder of QEMU's programs. The first use may download them.
///
/// # Errors
/// [`BootError`].
pub(crate) fn qemu() -> Result<PathBuf, BootError> {
    script("fetch-qemu", &[]).map(PathBuf::from)
}

/// The folder of the kernels of Linux guests. The first use may download them.
///
/// # Errors
/// [`BootError`].
pub(crate) fn kernels() -> Result<PathBuf, BootError> {
    script("fetch-qemu", &["kernels"]).map(PathBuf::from)
}

/// The output of a script of `scripts/`.
///
/// # Errors
/// [`Missing::Download`] with the script's reason, or [`BootError::Io`].
pub(crate) fn script(name: &str, arguments: &[&str]) -> Result<String, BootError> {
    let path = sources().join("scripts").join(name);
    if !path.exists() {
        return Err(BootError::Missing(Missing::Sources(path)));
    }
    let output = Command::new(path).args(arguments).current_dir(sources()).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| BootError::Io(format!("scripts/{name}"), error))?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match output.status.code() {
        Some(0) => Ok(said),
        Some(CANNOT) => Err(BootError::Missing(Missing::Download(said))),
        _ => Err(BootError::Build(format!("scripts/{name} ended with {}", output.status))),
    }
}

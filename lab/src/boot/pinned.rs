//! The pinned QEMU, and the kernels of Linux guests.

use super::{BootError, Missing};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The exit code of a script that cannot have what it needs; its output says why.
const CANNOT: i32 = 77;

/// Where the sources lie from which this program was built: the images and the scripts are there.
pub(super) fn sources() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// The folder of QEMU and kernels, downloaded if this is the first use of it.
///
/// # Errors
/// [`BootError`].
pub(super) fn folder() -> Result<PathBuf, BootError> {
    script("fetch-qemu", &[]).map(PathBuf::from)
}

/// What a script of `scripts/` prints.
///
/// # Errors
/// [`Missing::Download`] with the script's reason, or [`BootError::Io`].
pub(super) fn script(name: &str, arguments: &[&str]) -> Result<String, BootError> {
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

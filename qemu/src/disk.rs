//! The file of a drive, and QEMU's argument for it.

use crate::BootError;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Bytes of every drive: the images expect 2,048 blocks of 512 bytes.
pub(crate) const BYTES: u64 = 1 << 20;

/// An empty drive, by QEMU's name for it.
pub(crate) struct Disk {
    id: String,
    file: PathBuf,
}

impl Disk {
    /// Creates the file in `folder`.
    ///
    /// # Errors
    /// [`BootError::Io`].
    pub(crate) fn create(folder: &Path, id: impl Into<String>) -> Result<Self, BootError> {
        let id = id.into();
        let file = folder.join(&id);
        let made = File::create(&file).and_then(|file| file.set_len(BYTES));
        made.map_err(|error| BootError::Io("the drive's file".into(), error))?;
        Ok(Self { id, file })
    }

    /// QEMU's `-drive` argument.
    pub(crate) fn argument(&self) -> String {
        format!("if=none,id={},format=raw,cache=unsafe,file={}", self.id, self.file.display())
    }
}

//! Output files: refused before the run when they cannot be written, and never seen half-written.

use crate::input::{InputError, Place, Problem};
use crate::inputs;
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A file that appears complete, all at once. If it is dropped without [`AtomicFile::commit`], it leaves nothing
/// behind.
#[derive(Debug)]
pub struct AtomicFile {
    path: PathBuf,
    /// A temporary file beside the target. None if the target is not a regular file (a pipe, a terminal): then the
    /// bytes go there directly.
    beside: Option<NamedTempFile>,
}

/// The name of standard output.
const STANDARD_OUTPUT: &str = "-";

impl AtomicFile {
    /// Prepares to write `path`, which the command-line option `option` names; `-` is standard output.
    ///
    /// # Errors
    /// The folder is missing or not writable, or `path` is a folder, or the command has read it.
    pub fn prepare(option: &str, path: &Path) -> Result<Self, InputError> {
        if path == Path::new(STANDARD_OUTPUT) {
            return Ok(Self { path: path.to_owned(), beside: None });
        }
        let valid = "a file in a folder that is there and writable";
        let wrong = |why: String| InputError::value(&Place::option(option), "", path.display(), why, valid);
        // Follows symbolic links, so that a link stays and its target is replaced.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        match fs::metadata(&target) {
            Ok(metadata) if metadata.is_dir() => return Err(wrong("is a folder".into())),
            Ok(metadata) if !metadata.is_file() => return Ok(Self { path: target, beside: None }),
            Ok(_) if inputs::is_input(&target) => return Err(wrong("is an input of this command".into())),
            Ok(metadata) if metadata.permissions().readonly() => return Err(wrong("is read-only".into())),
            Ok(_) | Err(_) => {}
        }
        if target.file_name().is_none() {
            return Err(wrong("names no file".into()));
        }
        let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let beside =
            builder().tempfile_in(folder).map_err(|error| wrong(format!("cannot be written ({})", error.kind())))?;
        Ok(Self { path: target, beside: Some(beside) })
    }

    /// True if it is standard output.
    pub fn is_standard_output(&self) -> bool {
        self.path == Path::new(STANDARD_OUTPUT)
    }

    /// True if it is a regular file, and no pipe, terminal or device.
    pub fn is_regular(&self) -> bool {
        self.beside.is_some()
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes `bytes` as the whole file. If it is standard output, a reader that has closed the pipe is no failure.
    ///
    /// # Errors
    /// The system's error, or the command has read the file; an old file, if there was one, is then unchanged.
    pub fn commit(self, bytes: &[u8]) -> Result<(), InputError> {
        let place = Place::file(self.path.display().to_string());
        // It may have been read after it was prepared.
        if inputs::is_input(&self.path) {
            return Err(InputError::new(
                &place,
                "",
                Problem::Io("is an input of this command, and not overwritten".into()),
            ));
        }
        let written = match self.beside {
            None if self.is_standard_output() => to_standard_output(bytes),
            Some(mut beside) => write_and_rename(&mut beside, bytes).and_then(|()| {
                beside.persist(&self.path).map_err(|error| error.error)?;
                Ok(())
            }),
            None => fs::OpenOptions::new().write(true).open(&self.path).and_then(|mut file| file.write_all(bytes)),
        };
        written.map_err(|error| InputError::new(&place, "", Problem::Io(format!("cannot be written: {error}"))))
    }
}

/// Writes to standard output. A closed pipe (`| head`) is no failure.
pub fn to_standard_output(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// Writes a line to standard error. A closed pipe (`2>&1 | head`) is no failure, as it is none on standard output: `eprintln!`
/// panics there.
pub(crate) fn say(line: fmt::Arguments<'_>) {
    // Where nobody hears, nobody hears of that either.
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Everything is on the disk before the rename makes it visible.
fn write_and_rename(beside: &mut NamedTempFile, bytes: &[u8]) -> io::Result<()> {
    beside.write_all(bytes)?;
    beside.as_file().sync_all()
}

/// Hides the temporary file, and gives it the permissions that any new file gets.
fn builder() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".campanile-");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    builder
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_old_or_new_and_nothing_else_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.json");
        fs::write(&path, "old").unwrap();
        let file = AtomicFile::prepare("--json", &path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old", "not before commit");
        drop(file);
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), names(folder.path()).len()), ("old", 1));
        AtomicFile::prepare("--json", &path).unwrap().commit(b"new").unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), names(folder.path()).len()), ("new", 1));
    }

    #[test]
    fn what_a_command_has_read_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("in.toml");
        fs::write(&path, "old").unwrap();
        let before = AtomicFile::prepare("--json", &path).unwrap();
        let name = path.to_string_lossy();
        inputs::noted(inputs::Given::default(), || inputs::note_file(&name, b"old", false));
        let error = AtomicFile::prepare("--json", &path).unwrap_err().to_string();
        assert!(error.contains("is an input of this command; valid: "), "{error}");
        assert!(before.commit(b"new").unwrap_err().to_string().contains("is an input of this command"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        inputs::noted(inputs::Given::default(), || inputs::note_hash(&path));
        assert!(AtomicFile::prepare("--json", &path).is_err());
        // Another command's input, or a file of a folder that was read.
        inputs::noted(inputs::Given::default(), || inputs::note_hash_within(&path));
        AtomicFile::prepare("--json", &path).unwrap().commit(b"new").unwrap();
    }

    #[test]
    fn what_cannot_be_written_is_refused_before_the_run() {
        let folder = tempfile::tempdir().unwrap();
        let error = AtomicFile::prepare("--html", folder.path()).unwrap_err().to_string();
        assert!(error.ends_with("is a folder; valid: a file in a folder that is there and writable"), "{error}");
        let error = AtomicFile::prepare("--html", &folder.path().join("no/such.html")).unwrap_err().to_string();
        assert!(error.starts_with("--html: `") && error.contains("cannot be written ("), "{error}");
        assert!(names(folder.path()).is_empty());
    }

    #[cfg(unix)]
    #[test]
    fn a_link_stays_and_a_device_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("out"), folder.path().join("link"));
        fs::write(&path, "old").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        AtomicFile::prepare("--json", &link).unwrap().commit(b"new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().file_type().is_symlink());
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        AtomicFile::prepare("--json", Path::new("/dev/null")).unwrap().commit(b"new").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }
}

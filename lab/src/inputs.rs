//! What a command reads: input files, and variables of the environment. They are noted, so that a manifest can name
//! them, and they can be given again, so that a result can be made again after its files have changed.
//!
//! Notes belong to the thread that reads, between the begin and the end of [`noted`].

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A longer input is named by its hash alone.
const TEXT_BYTES_MAX: usize = 256 << 10;

/// One input file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// As it was named; `-` for standard input.
    pub path: String,
    /// True if the program carries it.
    #[serde(default)]
    pub built_in: bool,
    /// Its length.
    pub bytes: u64,
    /// SHA-256 of its content, in hexadecimal.
    pub sha256: String,
    /// Its content, if that is text and not long. The program carries the texts of built-in inputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// What was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// Files in the order of their paths.
    pub files: BTreeMap<String, Input>,
    /// Variables of the environment that were asked for and are set.
    pub variables: BTreeMap<String, String>,
    /// The contents of the files that are not built in.
    contents: BTreeMap<String, Arc<[u8]>>,
}

/// Contents that stand in for files and for the environment.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// By path. Other files are read from the disk.
    pub files: BTreeMap<String, Arc<[u8]>>,
    /// Instead of the environment.
    pub variables: Option<BTreeMap<String, String>>,
}

impl Read {
    /// All of it, to be read again.
    pub fn given(&self) -> Given {
        Given { files: self.contents.clone(), variables: Some(self.variables.clone()) }
    }

    /// Takes what another reading has noted too.
    pub fn add(&mut self, other: Self) {
        self.files.extend(other.files);
        self.variables.extend(other.variables);
        self.contents.extend(other.contents);
    }
}

thread_local! {
    static NOTES: RefCell<Option<Notes>> = const { RefCell::new(None) };
    /// The files that the last [`noted`] read: no output may take their place.
    static READ: RefCell<Vec<PathBuf>> = const { RefCell::new(Vec::new()) };
}

/// What the thread reads from, and what it has read if that is asked for.
struct Notes {
    given: Given,
    read: Option<Read>,
}

/// Runs `read`. Returns its result and what it read on this thread.
pub fn noted<T>(given: Given, read: impl FnOnce() -> T) -> (T, Read) {
    let outer = NOTES.replace(Some(Notes { given, read: Some(Read::default()) }));
    READ.take();
    let result = read();
    let notes = NOTES.replace(outer);
    (result, notes.and_then(|notes| notes.read).unwrap_or_default())
}

/// Whether this command has read the file, whose path has no links.
pub(crate) fn is_input(path: &Path) -> bool {
    READ.with_borrow(|files| files.iter().any(|file| file == path))
}

/// Runs `read` with these contents. Notes nothing, and so hashes nothing.
pub fn with<T>(given: Given, read: impl FnOnce() -> T) -> T {
    let outer = NOTES.replace(Some(Notes { given, read: None }));
    let result = read();
    NOTES.replace(outer);
    result
}

/// SHA-256 of `bytes`, in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes all");
        text
    })
}

/// The content that stands in for the file `path`.
pub(crate) fn given_file(path: &str) -> Option<Arc<[u8]>> {
    NOTES.with_borrow(|notes| notes.as_ref()?.given.files.get(path).cloned())
}

/// Whether there is a file `path`, or what stands in for it.
pub(crate) fn is_there(path: &str) -> bool {
    given_file(path).is_some() || std::path::Path::new(path).exists()
}

/// Notes a file that was read.
pub(crate) fn note_file(path: &str, bytes: &[u8], built_in: bool) {
    NOTES.with_borrow_mut(|notes| {
        let Some(read) = notes.as_mut().and_then(|notes| notes.read.as_mut()) else { return };
        let text = || String::from_utf8(bytes.to_vec()).ok();
        let is_kept = !built_in && bytes.len() <= TEXT_BYTES_MAX;
        let input = Input {
            path: path.to_owned(),
            built_in,
            bytes: bytes.len() as u64,
            sha256: sha256(bytes),
            text: if is_kept { text() } else { None },
        };
        read.files.insert(path.to_owned(), input);
        if !built_in {
            read.contents.insert(path.to_owned(), bytes.into());
            keep(Path::new(path));
        }
    });
}

/// No output of this command may take the file's place.
fn keep(path: &Path) {
    let path = std::fs::canonicalize(path);
    READ.with_borrow_mut(|files| files.extend(path.ok()));
}

/// Notes a file by its hash alone. A file that cannot be read, or is no regular file, is not noted.
pub(crate) fn note_hash(path: &Path) {
    if NOTES.with_borrow(|notes| notes.as_ref().is_some_and(|notes| notes.read.is_some())) {
        keep(path);
    }
    note_hash_within(path);
}

/// As [`note_hash`], for a file of a folder, which may hold earlier outputs too.
pub(crate) fn note_hash_within(path: &Path) {
    if !path.is_file() {
        return;
    }
    let Ok(mut file) = std::fs::File::open(path) else { return };
    let (mut hash, mut bytes, mut part) = (Sha256::new(), 0, vec![0; 1 << 16]);
    while let Ok(length @ 1..) = file.read(&mut part) {
        hash.update(&part[..length]);
        bytes += length as u64;
    }
    let path = path.to_string_lossy().into_owned();
    let sha256 = hexadecimal(&hash.finalize());
    NOTES.with_borrow_mut(|notes| {
        let Some(read) = notes.as_mut().and_then(|notes| notes.read.as_mut()) else { return };
        read.files.insert(path.clone(), Input { path, built_in: false, bytes, sha256, text: None });
    });
}

/// A variable of the environment, or what stands in for it.
pub(crate) fn variable(name: &str) -> Option<String> {
    NOTES.with_borrow_mut(|notes| {
        let instead = notes.as_ref().and_then(|notes| notes.given.variables.as_ref());
        let value = match instead {
            Some(variables) => variables.get(name).cloned(),
            None => std::env::var(name).ok(),
        };
        if let (Some(read), Some(value)) = (notes.as_mut().and_then(|notes| notes.read.as_mut()), &value) {
            read.variables.insert(name.to_owned(), value.clone());
        }
        value
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::read_file;

    #[test]
    fn a_hash_is_the_one_of_the_standard() {
        // FIPS 180-4's example of one block.
        assert_eq!(sha256(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn what_is_read_is_noted_and_can_be_given_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt").to_string_lossy().into_owned();
        std::fs::write(&path, "one").unwrap();
        let (text, read) = noted(Given::default(), || read_file(&path).unwrap());
        assert_eq!((text.as_slice(), read.files[&path].text.as_deref()), (b"one".as_slice(), Some("one")));
        std::fs::write(&path, "two").unwrap();
        let (text, again) = noted(read.given(), || read_file(&path).unwrap());
        assert_eq!((text.as_slice(), again == read), (b"one".as_slice(), true));
        assert_eq!(with(read.given(), || read_file(&path).unwrap()), b"one");
        assert_eq!(read_file(&path).unwrap(), b"two", "outside nothing is given");
    }

    #[test]
    fn variables_that_are_given_stand_instead_of_the_environment() {
        let variables = BTreeMap::from([("DEPTH".to_owned(), "4".to_owned())]);
        let given = Given { variables: Some(variables.clone()), ..Given::default() };
        let (values, read) = noted(given, || [variable("DEPTH"), variable("PATH")]);
        assert_eq!((values, read.variables), ([Some("4".into()), None], variables));
    }
}

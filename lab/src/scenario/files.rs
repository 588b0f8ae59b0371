//! The source of a scenario and of its files: the disk, or the program itself.

use super::carried;
use crate::input::{InputError, Place, Problem, STANDARD_INPUT, nearest, read_beginning, read_file};
use crate::inputs;
use std::path::Path;

/// A source of files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Files {
    /// The disk.
    Disk,
    /// The built-in files.
    Carried,
}

impl Files {
    /// The source of `input` and its path there: a bare name is a scenario that the program carries.
    pub fn locate(input: &str) -> Result<(Self, String), InputError> {
        if input == STANDARD_INPUT || input.contains(['/', '\\', '.']) || inputs::is_there(input) {
            return Ok((Self::Disk, input.to_owned()));
        }
        let path = format!("scenarios/{input}.toml");
        match carried::text(&path) {
            Some(_) => Ok((Self::Carried, path)),
            None => {
                let known = nearest(input, carried::names()).join(", ");
                let valid = format!("a scenario.toml, a job.fio, or one of {known}");
                Err(InputError::value(&Place::file("input"), "", input, "is neither a file nor a scenario", valid))
            }
        }
    }

    /// The file at `path`.
    pub fn read(self, path: &str) -> Result<Vec<u8>, String> {
        match self {
            Self::Carried => {
                let text = carried::text(path).ok_or("not carried")?;
                inputs::note_file(path, text.as_bytes(), true);
                Ok(text.as_bytes().to_vec())
            }
            Self::Disk => read_file(path),
        }
    }

    /// As [`Self::read`], of an input that was named on the command line.
    pub fn input(self, path: &str) -> Result<Vec<u8>, InputError> {
        let unread = |error| InputError::new(&Place::file(path), "", Problem::Io(format!("cannot be read: {error}")));
        self.read(path).map_err(unread)
    }

    /// The file that an `include` in the file `from` names, with its path: from the current folder, or else beside `from`,
    /// as fio looks for it.
    pub fn included(self, name: &str, from: &str) -> Result<(String, Vec<u8>), String> {
        let path = match self {
            Self::Disk if inputs::is_there(name) => name.to_owned(),
            _ => Self::beside(name, from),
        };
        let bytes = self.read(&path)?;
        Ok((path, bytes))
    }

    /// As [`Self::included`], of a log: its first `most` bytes, and whether there are more. `-` is standard input.
    pub fn beginning(self, name: &str, from: &str, most: u64) -> Result<(String, Vec<u8>, bool), String> {
        let path = match self {
            Self::Disk if name == STANDARD_INPUT || inputs::is_there(name) => name.to_owned(),
            _ => Self::beside(name, from),
        };
        let (bytes, has_more) = match self {
            Self::Carried => (self.read(&path)?, false),
            Self::Disk => read_beginning(&path, most)?,
        };
        Ok((path, bytes, has_more))
    }

    /// The path of `name` as written in the file `from`: beside it.
    pub fn beside(name: &str, from: &str) -> String {
        match Path::new(from).parent() {
            Some(folder) => folder.join(name).to_string_lossy().into_owned(),
            None => name.to_owned(),
        }
    }
}

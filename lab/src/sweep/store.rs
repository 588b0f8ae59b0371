//! The file of a shard's finished runs: one line each, with a hash of its own.
//!
//! A line is appended when its run has ended. A line whose hash does not fit (torn by a crash, a full disk, an editor) is
//! left out, and its run is done again. The first line names the sweep and the shard.

use super::Sweep;
use crate::input::{InputError, Place, Problem};
use crate::inputs::sha256;
use crate::manifest::Manifest;
use crate::outcome::Span;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Mutex;

/// Digits of a line's hash.
const HASH_DIGITS: usize = 16;
/// The form of the files. A file that does not say has form 1, whose runs lack what steadiness is judged by.
const FORM: u32 = 2;
/// The ending of the files.
const ENDING: &str = "runs";

/// A part of a sweep: run `k` belongs to shard `k % count + 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Shard {
    /// From 1 to `count`.
    pub number: u64,
    /// How many there are.
    pub count: u64,
}

impl Shard {
    /// The only one.
    pub const WHOLE: Self = Self { number: 1, count: 1 };

    /// Whether a run belongs to it.
    pub fn has(self, run: u64) -> bool {
        run % self.count == self.number - 1
    }

    /// The name of its file.
    pub fn file_name(self) -> String {
        format!("shard-{}-of-{}.{ENDING}", self.number, self.count)
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.count)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse::<u64>().ok();
        let shard = text.split_once('/').and_then(|(i, n)| Some(Self { number: number(i)?, count: number(n)? }));
        shard
            .filter(|shard| (1..=shard.count).contains(&shard.number))
            .ok_or_else(|| format!("valid is i/n, i from 1 to n: 1/4 to 4/4; `{text}` is not"))
    }
}

/// One finished run.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Its number.
    pub run: u64,
    /// Why it could not run; then it has no values.
    pub error: Option<String>,
    /// Id, unit and value of each quantity that applies, in the order of the tables.
    pub values: Vec<(String, String, f64)>,
    /// What its steadiness is judged by: the whole run, then each of its phases.
    pub spans: Vec<Span>,
}

/// A [`Record`] as a line has it. Values are the shortest texts that are read as the same number.
#[derive(Serialize, Deserialize)]
struct Line {
    run: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    values: Vec<(String, String, String)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    spans: Vec<Span>,
}

impl Record {
    pub(super) fn line(&self) -> String {
        let value = |(id, unit, value): &(String, String, f64)| (id.clone(), unit.clone(), value.to_string());
        let values = self.values.iter().map(value).collect();
        hashed(&Line { run: self.run, error: self.error.clone(), values, spans: self.spans.clone() })
    }

    pub(super) fn read(text: &str) -> Option<Self> {
        let Line { run, error, values, spans }: Line = unhashed(text)?;
        let value = |(id, unit, value): (String, String, String)| Some((id, unit, value.parse().ok()?));
        Some(Self { run, error, values: values.into_iter().map(value).collect::<Option<_>>()?, spans })
    }
}

/// The first line of a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The form of the file.
    #[serde(default = "first_form")]
    pub form: u32,
    /// [`Sweep::identity`].
    pub identity: String,
    /// Which part of the sweep this is.
    pub shard: Shard,
    /// What makes the sweep again.
    pub manifest: Manifest,
}

fn first_form() -> u32 {
    1
}

impl Header {
    /// That of a shard of a sweep, in this program's form.
    pub fn new(sweep: &Sweep, shard: Shard) -> Self {
        Self { form: FORM, identity: sweep.identity(), shard, manifest: sweep.manifest.clone() }
    }
}

fn hashed(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value).expect("plain data");
    format!("{} {text}\n", &sha256(text.as_bytes())[..HASH_DIGITS])
}

fn unhashed<T: for<'de> Deserialize<'de>>(line: &str) -> Option<T> {
    let (hash, text) = line.split_once(' ')?;
    let is_whole = hash == &sha256(text.as_bytes())[..HASH_DIGITS];
    is_whole.then(|| serde_json::from_str(text).ok()).flatten()
}

/// What a file holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Content {
    /// The sweep and the shard.
    pub header: Header,
    /// Finished runs by their numbers.
    pub records: BTreeMap<u64, Record>,
    /// Lines that are damaged.
    pub torn: u64,
}

impl Content {
    /// Reads a file of finished runs.
    ///
    /// # Errors
    /// The file cannot be read, or its first line is damaged.
    pub fn read(path: &Path) -> Result<Self, InputError> {
        let place = Place::file(path.display().to_string());
        let io = |error: io::Error| InputError::new(&place, "", Problem::Io(format!("cannot be read: {error}")));
        let bytes = std::fs::read(path).map_err(io)?;
        Self::of(&bytes).ok_or_else(|| {
            let why = "is no file of finished runs, or its first line is damaged; valid: shard-i-of-n.runs of a sweep";
            InputError::new(&place, "", Problem::Syntax(why.into()))
        })
    }

    /// None if the first line is damaged.
    fn of(bytes: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(bytes);
        let mut lines = text.split('\n');
        let header = unhashed(lines.next()?)?;
        let mut content = Self { header, records: BTreeMap::new(), torn: 0 };
        for line in lines.filter(|line| !line.is_empty()) {
            match Record::read(line) {
                Some(record) => _ = content.records.insert(record.run, record),
                None => content.torn += 1,
            }
        }
        Some(content)
    }
}

/// An open file of finished runs. While it is open, no other process can open it so.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    file: Mutex<File>,
}

impl Store {
    /// Opens the file of a shard in `folder`, or begins it. Returns the finished runs and the number of damaged lines.
    ///
    /// # Errors
    /// The folder is not writable, another process has the file, or it belongs to another sweep.
    pub fn open(folder: &Path, sweep: &Sweep, shard: Shard) -> Result<(Self, BTreeMap<u64, Record>, u64), InputError> {
        let path = folder.join(shard.file_name());
        let place = Place::file(path.display().to_string());
        let io = |error: io::Error| InputError::new(&place, "", Problem::Io(format!("cannot be written: {error}")));
        std::fs::create_dir_all(folder).map_err(io)?;
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let why = "is being written by another process; valid: wait for it, another shard, or another --out";
                return Err(InputError::new(&place, "", Problem::Syntax(why.into())));
            }
            // A file system without locks.
            Err(TryLockError::Error(_)) => {}
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(io)?;
        let header = Header::new(sweep, shard);
        let (records, torn) = match Content::of(&bytes) {
            Some(content) => {
                is_same_sweep(&place, &content.header, &header)?;
                if !bytes.ends_with(b"\n") {
                    file.write_all(b"\n").map_err(io)?;
                }
                (content.records, content.torn)
            }
            None if bytes.contains(&b'\n') => {
                let why =
                    "is no file of finished runs, or its first line is damaged; valid: another --out, or no such file";
                return Err(InputError::new(&place, "", Problem::Syntax(why.into())));
            }
            // Its first line was torn before its end, so no run is lost.
            None => {
                let torn = bytes.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).count();
                file.set_len(0).and_then(|()| file.seek(SeekFrom::Start(0))).map_err(io)?;
                file.write_all(hashed(&header).as_bytes()).map_err(io)?;
                (BTreeMap::new(), torn as u64)
            }
        };
        Ok((Self { path, file: Mutex::new(file) }, records, torn))
    }

    /// Appends a finished run.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn append(&self, record: &Record) -> Result<(), InputError> {
        let mut file = self.file.lock().unwrap_or_else(|error| error.into_inner());
        file.write_all(record.line().as_bytes()).map_err(|error| {
            let place = Place::file(self.path.display().to_string());
            InputError::new(&place, "", Problem::Io(format!("cannot be written: {error}")))
        })
    }
}

/// Refuses runs of another sweep, or of another program: together they would be one table of two things.
pub fn is_same_sweep(place: &Place, found: &Header, wanted: &Header) -> Result<(), InputError> {
    if (found.form, &found.identity) == (wanted.form, &wanted.identity) {
        return Ok(());
    }
    let program = |manifest: &Manifest| {
        let commit = manifest.commit.as_ref().map(|commit| format!(" ({commit})")).unwrap_or_default();
        format!("{}{commit}", manifest.version)
    };
    let (then, now) = (program(&found.manifest), program(&wanted.manifest));
    let why = match then == now {
        true if found.form != wanted.form => {
            format!("holds runs in form {}, and this program writes form {}", found.form, wanted.form)
        }
        true => "holds runs of another sweep, or of one whose files have changed".to_owned(),
        false => format!("holds runs of version {then}, and this is {now}"),
    };
    Err(InputError::new(place, "", Problem::Syntax(why + "; valid: another --out, or no such file")))
}

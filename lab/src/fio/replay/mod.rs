//! Logs of I/Os that a job repeats in place of its own (`read_iolog`): fio's versions 2 and 3, and blktrace's records, as
//! `blkparse` prints them or as the kernel writes them.
//!
//! Waits are fio's: a time stamp is a distance from the record before it, and the wait begins when that record's I/O is
//! issued. A slow drive delays what follows; nothing is made up for.

mod blktrace;
mod iolog;
#[cfg(test)]
mod tests;

use super::Entry;
use super::job::{BLOCK_MAX, FioJob};
use crate::input::{InputError, Place, Problem, Warning};
use crate::kinds::storage::load::{DIRECTIONS, Replayed};
use crate::kinds::storage::{Pattern, Trims};
use crate::setting::Setting;
use std::collections::HashMap;
use std::sync::Arc;

/// Bytes of one log that are read.
pub const BYTES_MAX: u64 = 64 << 20;
/// Entries of one log that are kept; more than a run simulates.
const ENTRIES_MAX: usize = 1_000_000;
/// Files and drives of one log.
const FILES_MAX: usize = 4096;
/// The longest trim, in bytes.
const TRIM_BYTES_MAX: u64 = 1 << 31;

/// `read_iolog` and the options of a replay.
#[derive(Clone, PartialEq, Debug)]
pub struct Replay {
    /// The names of the logs, with their place.
    pub setting: Setting,
    /// `replay_no_stall`: without waits.
    no_stall: bool,
    /// `replay_redirect`: the file of all I/Os.
    redirect: Option<String>,
    /// `replay_time_scale`, in per cent of the logged speed.
    time_scale: u64,
    /// `replay_scale`: offsets are divided by it.
    scale: u64,
    /// `replay_align`: offsets are multiples of it.
    align: u64,
    /// `replay_skip`: reads, writes, trims, syncs.
    skip: [bool; DIRECTIONS + 1],
    /// The logs, read: the first for the first clone of the section, and so on.
    pub logs: Vec<Arc<Log>>,
}

/// One log.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Log {
    /// Names of files and drives.
    pub files: Vec<String>,
    /// What is done, in order. Every clone that repeats the log has it.
    pub entries: Arc<[Replayed]>,
    /// I/Os by direction.
    pub ios: [u64; DIRECTIONS],
    /// Bytes of the longest read or write.
    pub longest: u64,
    /// The end of the file that is used furthest, in bytes.
    pub end: u64,
    /// True if its rest is left out.
    pub is_cut: bool,
}

impl Log {
    /// Directions, as a job has them.
    pub fn pattern(&self) -> Pattern {
        let [reads, writes, trims] = self.ios;
        let trims = if trims > 0 && reads + writes == 0 { Trims::Alone } else { Trims::None };
        let read_percent = match (reads, writes) {
            (_, 0) if trims == Trims::None => 100,
            (0, _) => 0,
            _ => (reads * 100 / (reads + writes)).clamp(1, 99) as u8,
        };
        Pattern { random: false, read_percent, trims }
    }
}

/// Reads a file: its path, as it was found, its first [`BYTES_MAX`] bytes, and whether there are more.
pub type ReadLog<'a> = &'a dyn Fn(&str) -> Result<(String, Vec<u8>, bool), String>;

impl Replay {
    /// The options of a replay; none if the job has no `read_iolog`. `get` finds an option of the job.
    ///
    /// # Errors
    /// An option has no valid value.
    pub(super) fn of<'a>(get: impl Fn(&str) -> Option<&'a Entry>, kb_base: u64) -> Result<Option<Self>, InputError> {
        let Some(entry) = get("read_iolog") else { return Ok(None) };
        entry.text("the path of a log")?;
        let flag = |name: &str| get(name).map_or(Ok(false), Entry::flag);
        let number = |name: &str, default| get(name).map_or(Ok(default), |entry| entry.number(0..=1 << 32, kb_base));
        let mut skip = [false; DIRECTIONS + 1];
        if let Some(entry) = get("replay_skip") {
            for word in entry.setting.text.split(',').filter(|word| !word.is_empty()) {
                let known = ["read", "write", "trim", "sync"].iter().position(|known| *known == word);
                let known = known.ok_or_else(|| entry.wrong("names no kind of I/O", "read, write, trim, sync"))?;
                skip[known] = true;
            }
        }
        Ok(Some(Self {
            setting: entry.setting.clone(),
            no_stall: flag("replay_no_stall")?,
            redirect: get("replay_redirect").map(|entry| entry.setting.text.clone()).filter(|name| !name.is_empty()),
            time_scale: number("replay_time_scale", 100)?.max(1),
            scale: number("replay_scale", 1)?.max(1),
            align: number("replay_align", 1)?.max(1),
            skip,
            logs: Vec::new(),
        }))
    }

    /// The log of a section's thread number `clone`.
    pub fn log(&self, clone: u32) -> Option<&Arc<Log>> {
        self.logs.get(clone as usize % self.logs.len().max(1))
    }

    fn parse(&self, path: &str, bytes: &[u8]) -> Result<Log, InputError> {
        let mut reader = Reader::new(self, path);
        if blktrace::is_binary(bytes) {
            blktrace::binary(&mut reader, bytes)?;
        } else if let Some(version) = iolog::version(bytes) {
            iolog::read(&mut reader, version, bytes)?;
        } else if blktrace::is_text(bytes) {
            blktrace::text(&mut reader, bytes)?;
        } else {
            let why = "is no log: it begins with neither `fio version 2 iolog`, `fio version 3 iolog` nor a record of \
                       blktrace, in its binary form or as blkparse prints it by default";
            return Err(InputError::new(&Place::line(path, 1), "", Problem::Syntax(why.into())));
        }
        if reader.log.ios == [0; DIRECTIONS] {
            let why = "has no I/O that could be repeated";
            return Err(InputError::new(&Place::file(path), "", Problem::Syntax(why.into())));
        }
        Ok(Log { entries: reader.entries.into(), ..reader.log })
    }
}

/// Reads the logs of `jobs`.
///
/// # Errors
/// A log cannot be read, or one of its lines is no record; the error names file, line and column.
pub fn load(jobs: &mut [FioJob], read: ReadLog<'_>, warnings: &mut Vec<Warning>) -> Result<(), InputError> {
    for job in jobs {
        let (name, numjobs) = (job.name.clone(), job.numjobs);
        let Some(replay) = &mut job.replay else { continue };
        let paths = super::job::split_names(&replay.setting.text);
        if paths.is_empty() {
            return Err(replay.setting.wrong("names no log", "the path of a log"));
        }
        for (path, _) in paths.iter().zip(0..numjobs) {
            let unread = |why| replay.setting.wrong(format!("cannot be read ({why})"), "the path of a log");
            let (path, mut bytes, has_more) = read(path).map_err(unread)?;
            if has_more && !blktrace::is_binary(&bytes) {
                // The last line is cut off.
                bytes.truncate(bytes.iter().rposition(|&byte| byte == b'\n').unwrap_or(0));
            }
            let log = replay.parse(&path, &bytes)?;
            if log.is_cut || has_more {
                let count = log.ios.iter().sum::<u64>();
                let meaning = format!("job [{name}] repeats the first {count} I/Os of {path}, which has more");
                let key = "read_iolog".to_owned();
                warnings.push(Warning { place: replay.setting.place.clone(), key, meaning });
            }
            replay.logs.push(Arc::new(log));
        }
    }
    Ok(())
}

/// A log while it is read.
struct Reader<'a> {
    replay: &'a Replay,
    path: &'a str,
    /// Its entries are in `entries` yet.
    log: Log,
    entries: Vec<Replayed>,
    /// The number of each file.
    numbers: HashMap<String, usize>,
    /// The time stamp of the last record; 0: none yet.
    last: u64,
}

impl<'a> Reader<'a> {
    fn new(replay: &'a Replay, path: &'a str) -> Self {
        Self { replay, path, log: Log::default(), entries: Vec::new(), numbers: HashMap::new(), last: 0 }
    }

    /// True if the log has all the entries, or files, that are kept.
    fn is_full(&mut self) -> bool {
        self.log.is_cut = self.entries.len() >= ENTRIES_MAX || self.log.files.len() >= FILES_MAX;
        self.log.is_cut
    }

    /// An error at a line and column, both from 1.
    fn wrong(&self, (line, column): (u32, u32), why: impl Into<String>) -> InputError {
        let place = Place { file: self.path.to_owned(), line: Some(line), column: Some(column) };
        InputError::new(&place, "", Problem::Syntax(why.into()))
    }

    /// The wait of a record with this time stamp in us, as fio's `delay_since_ttime`: none before the first that is not 0.
    fn wait_until(&mut self, stamp_us: u64) -> u64 {
        let last = std::mem::replace(&mut self.last, stamp_us);
        if last == 0 || self.replay.no_stall || stamp_us < last {
            return 0;
        }
        let gap_ns = u128::from(stamp_us - last) * 1_000 * 100 / u128::from(self.replay.time_scale);
        u64::try_from(gap_ns).unwrap_or(u64::MAX)
    }

    fn push_gap(&mut self, gap_ns: u64) {
        if gap_ns > 0 {
            self.entries.push(Replayed::Gap(gap_ns));
        }
    }

    /// The file's number, if it is known. `replay_redirect` makes all files one.
    fn file(&self, name: &str) -> Option<usize> {
        let name = self.replay.redirect.as_deref().unwrap_or(name);
        self.numbers.get(name).copied()
    }

    /// The number of a file, known from now on.
    fn add(&mut self, name: &str) -> usize {
        self.file(name).unwrap_or_else(|| {
            let (name, number) = (self.replay.redirect.as_deref().unwrap_or(name), self.log.files.len());
            self.log.files.push(name.to_owned());
            self.numbers.insert(name.to_owned(), number);
            number
        })
    }

    /// An I/O at `at` (line, column).
    fn io(&mut self, at: (u32, u32), (direction, file): (usize, usize), range: (u64, u64)) -> Result<(), InputError> {
        let (offset, bytes) = range;
        let (most, kind) = if direction == 2 { (TRIM_BYTES_MAX, "a trim") } else { (BLOCK_MAX, "an I/O") };
        if bytes > most {
            return Err(self.wrong(at, format!("`{bytes}` bytes are more than {kind} may have; valid: up to {most}")));
        }
        let offset = offset / self.replay.scale;
        let offset = offset - offset % self.replay.align;
        let Some(end) = offset.checked_add(bytes).filter(|&end| end < 1 << 62) else {
            return Err(self.wrong(at, format!("offset `{offset}` is beyond any file")));
        };
        // fio issues nothing for it, and counts nothing.
        if bytes == 0 {
            return Ok(());
        }
        self.log.ios[direction] += 1;
        self.log.end = self.log.end.max(end);
        if direction < 2 {
            self.log.longest = self.log.longest.max(bytes);
        }
        self.entries.push(Replayed::Io(direction, file, offset, bytes));
        Ok(())
    }
}

/// The words of a line with their columns, from 1.
fn words(line: &str) -> Vec<(u32, &str)> {
    let at = |word: &str| 1 + (word.as_ptr() as usize - line.as_ptr() as usize) as u32;
    line.split_ascii_whitespace().map(|word| (at(word), word)).collect()
}

/// A whole number of one of a log's fields.
fn number(reader: &Reader<'_>, line: u32, (column, word): (u32, &str), what: &str) -> Result<u64, InputError> {
    let number = super::number::integer(word).filter(|(value, rest)| *value >= 0 && rest.is_empty());
    number
        .map(|(value, _)| value as u64)
        .ok_or_else(|| reader.wrong((line, column), format!("`{word}` is no {what}; valid: a whole number")))
}

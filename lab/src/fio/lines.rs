//! The grammar: sections and entries, each with its line and column. It is fio's (`init.c`, `__parse_jobs_ini`): general
//! INI readers lose line numbers and bare keys.

use super::kind::ValueKind;
use super::options;
use crate::input::{InputError, Place, Problem};
use crate::setting::Setting;

/// Deepest nesting of `include`. fio has no bound, and crashes at a cycle.
const INCLUDE_DEPTH_MAX: u32 = 32;
/// Files that all `include` lines read together: each of a file's lines may name a file of many more.
const INCLUDES_MAX: u32 = 1000;
/// The longest line that fio reads as one.
const LINE_BYTES_MAX: usize = 8190;

/// What fio takes for a blank: the C library's `isspace`, of ASCII alone. A no-break space is a letter to it.
pub(super) fn is_blank(c: char) -> bool {
    c.is_ascii_whitespace() || c == '\u{b}'
}

/// One option of a section.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Place, name as written, value. A bare key has an empty value.
    pub setting: Setting,
    /// True if the entry has no `=`.
    pub bare: bool,
}

/// `[name]` and its options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Section {
    /// Between the brackets.
    pub name: String,
    /// The line of the brackets.
    pub place: Place,
    /// In the file's order.
    pub entries: Vec<Entry>,
}

impl Section {
    /// True if its options hold for the job sections below it. fio compares the first six letters.
    pub fn is_global(&self) -> bool {
        self.name.starts_with("global")
    }
}

/// Reads the file that an `include` names: path as written, file that includes it.
pub type Include<'a> = &'a dyn Fn(&str, &str) -> Result<(String, Vec<u8>), String>;

/// The sections of a job file.
///
/// # Errors
/// The text is not a job file; the error names the line.
pub fn sections(file: &str, text: &[u8], include: Include<'_>) -> Result<Vec<Section>, InputError> {
    let (sections, errors) = read(file, text, include);
    errors.into_iter().next().map_or(Ok(sections), Err)
}

/// The sections of a job file, and everything that is no part of one.
pub fn read(file: &str, text: &[u8], include: Include<'_>) -> (Vec<Section>, Vec<InputError>) {
    let mut reader = Reader { include, includes: 0, sections: Vec::new(), errors: Vec::new() };
    reader.file(file, text, 0);
    (reader.sections, reader.errors)
}

/// A command line in a file.
const COMMAND_LINE: &str = "is a command line of fio, and job files are read: --name=a becomes the line [a], and each other \
    --name=value below it name=value";

struct Reader<'a> {
    include: Include<'a>,
    /// Files that were included.
    includes: u32,
    sections: Vec<Section>,
    errors: Vec<InputError>,
}

impl Reader<'_> {
    fn file(&mut self, file: &str, text: &[u8], depth: u32) {
        if text.starts_with(b"\xff\xfe") || text.starts_with(b"\xfe\xff") {
            let why = "is UTF-16, of which fio reads nothing; save it as UTF-8".to_owned();
            self.errors.push(InputError::new(&Place::file(file), "", Problem::Syntax(why)));
            return;
        }
        for (index, bytes) in text.split(|&byte| byte == b'\n').enumerate() {
            let mut place = Place::line(file, index as u32 + 1);
            if let Err(error) = self.line(&mut place, bytes, depth) {
                self.errors.push(error);
            }
        }
    }

    fn line(&mut self, place: &mut Place, bytes: &[u8], depth: u32) -> Result<(), InputError> {
        let syntax = |place: &Place, why: &str| Err(InputError::new(place, "", Problem::Syntax(why.into())));
        if bytes.len() > LINE_BYTES_MAX {
            return syntax(place, "is longer than the 8,190 bytes that fio reads as one line");
        }
        // A comment may be in any encoding.
        let end = bytes.iter().position(|byte| matches!(byte, b';' | b'#')).unwrap_or(bytes.len());
        if bytes[..end].contains(&0) {
            return syntax(place, "has a zero byte, at which fio ends the line");
        }
        let text = String::from_utf8_lossy(&bytes[..end]);
        let text = text.trim_end_matches(|c: char| c.is_ascii_whitespace() || c.is_ascii_control());
        let line = text.trim_start_matches(is_blank);
        if line.is_empty() {
            return Ok(());
        }
        place.column = Some(1 + text[..text.len() - line.len()].chars().count() as u32);
        if line.starts_with('\u{feff}') {
            return syntax(
                place,
                "begins with a byte order mark, which fio does not read; save it as UTF-8 without one",
            );
        }
        if let Some(name) = line.strip_prefix('[') {
            if depth > 0 {
                return syntax(place, "begins a section, which an included file may not");
            }
            let Some(name) = name.strip_suffix(']') else {
                return syntax(place, "a section's name has no `]` at its end");
            };
            if name.is_empty() {
                return syntax(place, "a section has no name; valid: [global] or [job]");
            }
            self.sections.push(Section { name: name.to_owned(), place: place.clone(), entries: Vec::new() });
            return Ok(());
        }
        if self.sections.is_empty() {
            if line.starts_with("--") || line.starts_with("fio ") {
                return syntax(place, COMMAND_LINE);
            }
            return syntax(place, "an option before the first [section]");
        }
        match line.strip_prefix("include") {
            Some(path) => self.included(place, path.get(1..).unwrap_or_default().trim_matches(is_blank), depth),
            None => {
                let entry = entry(line, place.clone())?;
                self.sections.last_mut().expect("there is one").entries.push(entry);
                Ok(())
            }
        }
    }

    fn included(&mut self, place: &Place, path: &str, depth: u32) -> Result<(), InputError> {
        let wrong = |why: String| InputError::value(place, "include", path, why, "the path of a file with options");
        if self.includes > INCLUDES_MAX {
            return Ok(());
        }
        if depth >= INCLUDE_DEPTH_MAX {
            return Err(wrong(format!("nests deeper than {INCLUDE_DEPTH_MAX} files")));
        }
        if self.includes >= INCLUDES_MAX {
            // One error is enough: every line behind it would have another.
            self.includes += 1;
            return Err(wrong(format!("is one file more than the {INCLUDES_MAX} that may be included")));
        }
        self.includes += 1;
        let (file, text) = (self.include)(path, &place.file).map_err(|why| wrong(format!("cannot be read ({why})")))?;
        self.file(&file, &text, depth + 1);
        Ok(())
    }
}

fn entry(line: &str, place: Place) -> Result<Entry, InputError> {
    let (name, value) = match line.split_once('=') {
        Some((name, value)) => (name.trim_end_matches(is_blank), Some(value)),
        None => (line, None),
    };
    if name.is_empty() || name.contains(is_blank) {
        let why = format!("`{line}` is neither name=value nor a name");
        return Err(InputError::new(&place, "", Problem::Syntax(why)));
    }
    let value = value.unwrap_or_default();
    let text = value.trim_start_matches(is_blank);
    // fio compares a word with its blanks, and finds no such value.
    let is_literal = |name: &str| {
        let is_words = options::find(name).is_some_and(|option| matches!(option.kind, ValueKind::Values(_)));
        is_words || matches!(name, "buffer_pattern" | "verify_pattern" | "replay_skip")
    };
    if text != value && is_literal(name) {
        let why = "has a blank before it, which fio takes as part of the value";
        return Err(InputError::value(&place, name, value, why, format!("{name}={text}")));
    }
    Ok(Entry { setting: Setting::new(place, name, text), bare: !line.contains('=') })
}

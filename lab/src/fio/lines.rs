//! The grammar: sections and entries, each with its line. General INI readers lose line numbers and bare keys.

use crate::input::{InputError, Place, Problem};
use crate::setting::Setting;

/// Deepest nesting of `include`: enough for real files, and small enough to stop a cycle.
const INCLUDE_DEPTH_MAX: u32 = 8;

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
    /// True if its options hold for the job sections below it. fio compares the first six letters and ignores case.
    pub fn is_global(&self) -> bool {
        self.name.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("global"))
    }
}

/// Reads the file that an `include` names: path as written, file that includes it.
pub type Include<'a> = &'a dyn Fn(&str, &str) -> Result<(String, Vec<u8>), String>;

/// The sections of a job file.
///
/// # Errors
/// The text is not a job file; the error names the line.
pub fn sections(file: &str, text: &[u8], include: Include<'_>) -> Result<Vec<Section>, InputError> {
    let mut sections = Vec::new();
    read(file, text, include, 0, &mut sections)?;
    Ok(sections)
}

fn read(
    file: &str,
    text: &[u8],
    include: Include<'_>,
    depth: u32,
    sections: &mut Vec<Section>,
) -> Result<(), InputError> {
    for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let place = Place::line(file, index as u32 + 1);
        let syntax = |why: &str| InputError::new(&place, "", Problem::Syntax(why.into()));
        let line = std::str::from_utf8(line).map_err(|_| syntax("is no UTF-8 text"))?;
        let line = line.split([';', '#']).next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        if let Some(path) = line.strip_prefix("include").filter(|rest| rest.starts_with([' ', '\t'])) {
            let path = path.trim();
            let wrong = |why: String| InputError::value(&place, "include", path, why, "the path of a job file");
            if depth >= INCLUDE_DEPTH_MAX {
                return Err(wrong(format!("nests deeper than {INCLUDE_DEPTH_MAX} files")));
            }
            let (file, text) = include(path, file).map_err(|error| wrong(format!("cannot be read ({error})")))?;
            read(&file, &text, include, depth + 1, sections)?;
        } else if let Some(name) = line.strip_prefix('[') {
            let name = name.strip_suffix(']').ok_or_else(|| syntax("a section's name has no `]` at its end"))?.trim();
            if name.is_empty() {
                return Err(syntax("a section has no name; valid: [global] or [job]"));
            }
            sections.push(Section { name: name.to_owned(), place, entries: Vec::new() });
        } else {
            let section = sections.last_mut().ok_or_else(|| syntax("an option before the first [section]"))?;
            section.entries.push(entry(line, place)?);
        }
    }
    Ok(())
}

fn entry(line: &str, place: Place) -> Result<Entry, InputError> {
    let (name, value) = match line.split_once('=') {
        Some((name, value)) => (name.trim(), Some(value.trim())),
        None => (line, None),
    };
    if name.is_empty() || name.contains(char::is_whitespace) {
        let why = format!("`{line}` is neither name=value nor a name");
        return Err(InputError::new(&place, "", Problem::Syntax(why)));
    }
    if let Some(value) = value
        && (value.contains("${") || value.starts_with('$'))
    {
        let why = "is a variable, which would make the result depend on who runs it";
        return Err(InputError::value(&place, name, value, why, "the value itself"));
    }
    Ok(Entry { setting: Setting::new(place, name, value.unwrap_or_default()), bare: value.is_none() })
}

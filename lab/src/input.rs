//! The origin of input, and the errors in it.

use crate::inputs;
use crate::report::figure::counted;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::io::Read as _;

/// The largest input file: far larger than real ones, so that reading a wrong path (a device, a disk image) ends
/// quickly.
const BYTES_MAX: u64 = 16 << 20;

/// The name of standard input.
pub(crate) const STANDARD_INPUT: &str = "-";

/// An input file's bytes. The reported size is not trusted, because a device may report any.
///
/// `-` is standard input, which can be read once.
pub(crate) fn read_file(path: &str) -> Result<Vec<u8>, String> {
    match read_beginning(path, BYTES_MAX)? {
        (_, true) => Err(format!("it has more than {BYTES_MAX} bytes")),
        (bytes, false) => Ok(bytes),
    }
}

/// The first `most` bytes of a file, and whether there are more.
pub(crate) fn read_beginning(path: &str, most: u64) -> Result<(Vec<u8>, bool), String> {
    let mut bytes = Vec::new();
    if let Some(given) = inputs::given_file(path) {
        bytes.extend_from_slice(&given);
    } else {
        let read = match path {
            STANDARD_INPUT => std::io::stdin().take(most + 1).read_to_end(&mut bytes),
            path => std::fs::File::open(path).and_then(|file| file.take(most + 1).read_to_end(&mut bytes)),
        };
        read.map_err(|error| error.to_string())?;
    }
    // One byte behind the beginning is noted too, and says that there is more.
    inputs::note_file(path, &bytes, false);
    let has_more = bytes.len() as u64 > most;
    bytes.truncate(most as usize);
    Ok((bytes, has_more))
}

/// A place in a file or on the command line that a user can go to and correct.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Place {
    /// The file's path as it was given, `--set` and the like for the command line.
    pub file: String,
    /// The line, from 1, where there is one.
    pub line: Option<u32>,
    /// The column, from 1, where it is known. Errors are shown without it.
    pub column: Option<u32>,
}

impl Place {
    /// A whole file.
    pub fn file(file: impl Into<String>) -> Self {
        Self { file: file.into(), line: None, column: None }
    }

    /// One line of a file.
    pub fn line(file: impl Into<String>, line: u32) -> Self {
        Self { file: file.into(), line: Some(line), column: None }
    }

    /// An option of the command line.
    pub fn option(option: impl Into<String>) -> Self {
        Self::file(option)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}", self.file),
            None => f.write_str(&self.file),
        }
    }
}

/// Wrong input: its place, its key, the problem, and valid alternatives. Ends the program with code 2.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InputError {
    /// Where.
    pub place: Place,
    /// The dotted key or the option; empty when the whole file is wrong.
    pub key: String,
    /// The error.
    pub problem: Box<Problem>,
}

/// How the text of [`Problem::UnknownKey`] begins.
pub(crate) const UNKNOWN_NAME: &str = "the name is unknown";

/// The possible problems of input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Problem {
    /// The file cannot be read or written; the text is the system's.
    Io(String),
    /// The text does not follow the grammar.
    Syntax(String),
    /// The name is unknown. The error lists the nearest valid names, or all of them when none is near.
    UnknownKey {
        /// Valid names.
        valid: Vec<String>,
    },
    /// A required key is missing.
    Missing {
        /// The valid values.
        valid: String,
    },
    /// The value is invalid.
    Value {
        /// The value as given.
        value: String,
        /// The problem, as the rest of the sentence "`value` …".
        why: String,
        /// The valid values.
        valid: String,
    },
}

impl InputError {
    /// An error at `place` about `key`.
    pub fn new(place: &Place, key: impl Into<String>, problem: Problem) -> Self {
        Self { place: place.clone(), key: key.into(), problem: Box::new(problem) }
    }

    /// An invalid value.
    pub fn value(
        place: &Place,
        key: impl Into<String>,
        value: impl fmt::Display,
        why: impl Into<String>,
        valid: impl Into<String>,
    ) -> Self {
        let problem = Problem::Value { value: value.to_string(), why: why.into(), valid: valid.into() };
        Self::new(place, key, problem)
    }

    /// The valid values, if the error names them.
    pub fn valid(&self) -> Option<String> {
        match &*self.problem {
            Problem::Value { valid, .. } | Problem::Missing { valid } => Some(valid.clone()),
            Problem::UnknownKey { valid } => Some(valid.join(", ")),
            Problem::Io(_) | Problem::Syntax(_) => None,
        }
    }

    /// Whether a name is unknown, so that no value of it would be valid.
    pub fn is_unknown_name(&self) -> bool {
        matches!(*self.problem, Problem::UnknownKey { .. })
    }

    /// An unknown name; `valid` lists all valid names.
    pub fn unknown<'a>(place: &Place, key: &str, valid: impl IntoIterator<Item = &'a str>) -> Self {
        Self::new(place, key, Problem::UnknownKey { valid: nearest(key, valid) })
    }
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", visible(&self.key))?;
        }
        match &*self.problem {
            Problem::Io(text) | Problem::Syntax(text) => f.write_str(&visible(text)),
            Problem::UnknownKey { valid } => write!(f, "{UNKNOWN_NAME}; valid: {}", valid.join(", ")),
            Problem::Missing { valid } => write!(f, "must be given; valid: {valid}"),
            Problem::Value { value, why, valid } => write!(f, "`{}` {why}; valid: {valid}", visible(value)),
        }
    }
}

impl std::error::Error for InputError {}

/// A warning that a reader of the result needs: an option that is not modelled, a span that was cut.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Warning {
    /// Where.
    pub place: Place,
    /// The option or key.
    pub key: String,
    /// The consequence for the result.
    pub meaning: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.place, visible(&self.key), visible(&self.meaning))
    }
}

impl Warning {
    /// The texts of `warnings` for a reader. What is said of several lines of a file is one text.
    pub fn texts(warnings: &[Self]) -> Vec<String> {
        let mut found: Vec<(&Self, usize)> = Vec::new();
        let mut known = HashMap::new();
        for warning in warnings {
            let at = *known.entry((&warning.place.file, &warning.key, &warning.meaning)).or_insert(found.len());
            match found.get_mut(at) {
                Some((_, others)) => *others += 1,
                None => found.push((warning, 0)),
            }
        }
        let text = |(warning, others): (&Self, usize)| match others {
            0 => warning.to_string(),
            others => format!("{warning} (and {} of this file)", counted(others, "other line")),
        };
        found.into_iter().map(text).collect()
    }
}

/// A text whose characters can all be told apart: blanks beyond ASCII's, marks without a width and control characters stand as
/// `<U+00A0>`. Word processors and pages of the web put them where nobody sees them.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let one = |c: char| if is_hidden(c) { format!("<U+{:04X}>", u32::from(c)) } else { c.to_string() };
    Cow::Owned(text.chars().map(one).collect())
}

fn is_hidden(c: char) -> bool {
    // Soft hyphen, joiners and directions, and the byte order mark.
    let is_without_width = matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2064}' | '\u{feff}');
    let is_blank = c.is_whitespace() && !c.is_ascii();
    is_blank || is_without_width || c.is_control() && !matches!(c, '\n' | '\t')
}

/// The names of `valid` that resemble `given`, at most three. When none is near: all of them, or their number.
pub(crate) fn nearest<'a>(given: &str, valid: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    const LIST_MAX: usize = 24;
    let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    // Names are in small letters, those of published rows in great ones.
    let small = given.to_ascii_lowercase();
    let mut by_distance: Vec<(usize, &str)> = valid
        .into_iter()
        .map(|name| {
            let name_small = name.to_ascii_lowercase();
            let whole = edit_distance(&small, &name_small);
            (whole.min(edit_distance(&last(&small), &last(&name_small)) + 1), name)
        })
        .collect();
    by_distance.sort_by_key(|&(distance, _)| distance);
    if let Some((0, name)) = by_distance.first() {
        return vec![(*name).to_owned()];
    }
    let near = |&&(distance, _): &&(usize, &str)| distance <= 1 + given.chars().count().min(40) / 4;
    let close: Vec<String> = by_distance.iter().take(3).filter(near).map(|&(_, name)| name.to_owned()).collect();
    if !close.is_empty() {
        return close;
    }
    let mut all: Vec<String> = by_distance.iter().take(LIST_MAX).map(|&(_, name)| name.to_owned()).collect();
    all.sort();
    if by_distance.len() > LIST_MAX {
        all.truncate(3);
        all.push(format!("and {} others", by_distance.len() - 3));
    }
    all
}

/// The distance by insertions, deletions, replacements and swaps; of long strings only the first 64 characters are
/// looked at.
fn edit_distance(a: &str, b: &str) -> usize {
    let short = |text: &str| text.chars().take(64).collect::<String>();
    strsim::osa_distance(&short(a), &short(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_lines_have_is_one_text() {
        let at = |line: u32, key: &str| Warning {
            place: Place::line("a.fio", line),
            key: key.into(),
            meaning: "cut".into(),
        };
        let texts = Warning::texts(&[at(2, "size"), at(4, "size"), at(5, "loops"), at(9, "size")]);
        assert_eq!(texts, ["a.fio:2: size: cut (and 2 other lines of this file)", "a.fio:5: loops: cut"]);
    }

    #[test]
    fn an_error_says_where_what_and_what_would_do() {
        let error =
            InputError::value(&Place::line("a.toml", 3), "cpus", -1, "is negative", "a whole number from 1 to 1024");
        assert_eq!(error.to_string(), "a.toml:3: cpus: `-1` is negative; valid: a whole number from 1 to 1024");
    }

    #[test]
    fn what_nobody_sees_is_shown() {
        let error = InputError::value(&Place::line("a.fio", 2), "rw", "read\u{a0}", "is none", "read");
        assert_eq!(error.to_string(), "a.fio:2: rw: `read<U+00A0>` is none; valid: read");
        let error = InputError::unknown(&Place::option("--set"), "cpu.eoi\u{200b}", ["cpu.eoi"]);
        assert_eq!(error.to_string(), "--set: cpu.eoi<U+200B>: the name is unknown; valid: cpu.eoi");
        assert!(matches!(visible("a b\tß\n"), Cow::Borrowed(_)));
        assert_eq!(visible("a\u{1b}[0m"), "a<U+001B>[0m");
    }

    #[test]
    fn an_unknown_name_gets_near_ones_or_all() {
        let valid = ["fabric.dispatch", "fabric.posted_update", "cpu.eoi"];
        let error = InputError::unknown(&Place::option("--set"), "fabric.dispach", valid);
        assert_eq!(error.to_string(), "--set: fabric.dispach: the name is unknown; valid: fabric.dispatch");
        let error = InputError::unknown(&Place::option("--set"), "zzz", valid);
        assert_eq!(
            error.to_string(),
            "--set: zzz: the name is unknown; valid: cpu.eoi, fabric.dispatch, fabric.posted_update"
        );
    }

    #[test]
    fn a_missing_group_is_no_distance() {
        let error = InputError::unknown(&Place::option("--set"), "dispatch", ["fabric.dispatch", "cpu.eoi"]);
        assert_eq!(error.to_string(), "--set: dispatch: the name is unknown; valid: fabric.dispatch");
    }
}

//! The tables of counts in a document. A line `<!-- boot: CASE | CASE -->` begins one, `<!-- boot: end -->` ends it; what
//! lies between them is written from the rows of these cases.

use crate::Row;
use crate::report::figure;
use std::fmt;
use std::fmt::Write;

const BEGIN: &str = "<!-- boot: ";
const CLOSE: &str = " -->";
const END: &str = "<!-- boot: end -->";

/// The reason why a document's tables cannot be written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DocumentError {
    /// No line begins a table.
    NoTable,
    /// The table that begins in this line, counted from one, has no end.
    NoEnd(usize),
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTable => write!(f, "it has no table: a line `{BEGIN}CASE | CASE{CLOSE}` begins one"),
            Self::NoEnd(line) => write!(f, "line {line}: the table has no `{END}`"),
        }
    }
}

impl std::error::Error for DocumentError {}

/// The document with new tables, and the cases for whose table there were no rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Document {
    /// The whole text.
    pub text: String,
    /// Cases that did not run. The tables that name one of them are as they were.
    pub missing: Vec<String>,
}

/// Writes the tables of `text` all of whose cases are among `rows`.
///
/// # Errors
/// [`DocumentError`].
pub fn document(text: &str, rows: &[Row]) -> Result<Document, DocumentError> {
    let mut new = Document { text: String::with_capacity(text.len()), missing: Vec::new() };
    let mut tables = 0;
    let mut lines = text.split_inclusive('\n').enumerate();
    while let Some((number, line)) = lines.next() {
        new.text.push_str(line);
        let Some(cases) = line.trim_end().strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(CLOSE)) else {
            continue;
        };
        if line.trim_end() == END {
            continue;
        }
        tables += 1;
        let mut old = String::new();
        let end = loop {
            let (_, line) = lines.next().ok_or(DocumentError::NoEnd(number + 1))?;
            if line.trim_end() == END {
                break line;
            }
            if line.starts_with(BEGIN) {
                return Err(DocumentError::NoEnd(number + 1));
            }
            old.push_str(line);
        };
        let cases: Vec<&str> = cases.split(" | ").map(str::trim).collect();
        let absent = cases.iter().filter(|case| rows.iter().all(|row| row.case != **case));
        let absent: Vec<String> = absent.map(|&case| case.to_owned()).collect();
        if absent.is_empty() {
            new.text.push_str(&table(&cases, rows));
        } else {
            new.text.push_str(&old);
            new.missing.extend(absent);
        }
        new.text.push_str(end);
    }
    if tables == 0 { Err(DocumentError::NoTable) } else { Ok(new) }
}

/// A column for each case, and one for Linux beside it where Linux has a figure; a row for each quantity.
fn table(cases: &[&str], rows: &[Row]) -> String {
    let mut quantities: Vec<&str> = Vec::new();
    for row in rows.iter().filter(|row| cases.contains(&row.case.as_str())) {
        if !quantities.contains(&row.quantity.as_str()) {
            quantities.push(&row.quantity);
        }
    }
    let has_peer = |case: &str| rows.iter().any(|row| row.case == case && row.peer_value.is_some());
    let mut text = "| |".to_owned();
    let mut columns = 0;
    for case in cases {
        let _ = write!(text, " {case} |");
        columns += 1;
        if has_peer(case) {
            text.push_str(" Linux |");
            columns += 1;
        }
    }
    let _ = writeln!(text, "\n|---|{}", "---:|".repeat(columns));
    for quantity in quantities {
        let _ = write!(text, "| {} |", quantity.replace('|', "\\|"));
        for case in cases {
            let row = rows.iter().find(|row| row.case == *case && row.quantity == quantity);
            let _ = write!(text, " {} |", row.map_or_else(String::new, |row| grouped(row.value)));
            if has_peer(case) {
                let _ = write!(text, " {} |", row.and_then(|row| row.peer_value).map_or_else(String::new, grouped));
            }
        }
        text.push('\n');
    }
    text
}

/// The figure with a comma between thousands.
fn grouped(value: f64) -> String {
    let figure = figure(value);
    let (whole, rest) = figure.find('.').map_or((&figure[..], ""), |point| figure.split_at(point));
    let digits = whole.trim_start_matches('-').len();
    let mut text = whole[..whole.len() - digits].to_owned();
    for (index, digit) in whole[whole.len() - digits..].chars().enumerate() {
        if index > 0 && (digits - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(case: &str, quantity: &str, value: f64, peer_value: Option<f64>) -> Row {
        Row { case: case.into(), quantity: quantity.into(), value, peer_value, pass: true, ..Row::default() }
    }

    const TEXT: &str = "# Title\n\n<!-- boot: a, 1 CPU | b -->\nold\n<!-- boot: end -->\n\nafter\n<!-- boot: c -->\nkept\n\
                        <!-- boot: end -->";

    #[test]
    fn tables_whose_cases_ran_are_written_anew() {
        let rows = [
            row("a, 1 CPU", "reads", 1_234_567.0, Some(999.0)),
            row("b", "reads", 1000.0, None),
            row("b", "reads a | b", 0.2774, None),
        ];
        let Document { text, missing } = document(TEXT, &rows).unwrap();
        let table = "| | a, 1 CPU | Linux | b |\n|---|---:|---:|---:|\n| reads | 1,234,567 | 999 | 1,000 |\n\
                     | reads a \\| b |  |  | 0.277 |\n";
        assert_eq!(text, TEXT.replace("old\n", table));
        assert_eq!(missing, ["c"]);
        assert_eq!(document(&text, &rows).unwrap().text, text, "again changes nothing");
    }

    #[test]
    fn a_document_without_a_whole_table_is_refused() {
        assert_eq!(document("text\n", &[]), Err(DocumentError::NoTable));
        assert_eq!(document("\n<!-- boot: a -->\n| |\n", &[]), Err(DocumentError::NoEnd(2)));
        let two = "<!-- boot: a -->\nprose\n<!-- boot: b -->\n<!-- boot: end -->\n";
        assert_eq!(document(two, &[]), Err(DocumentError::NoEnd(1)), "what lies between is not a table's");
    }

    #[test]
    fn thousands_are_grouped() {
        let figures = [0.0, 12.0, 123.0, 1234.5, -1234.0, -123.0, 12_345_678.0].map(grouped);
        assert_eq!(figures, ["0", "12", "123", "1,234.500", "-1,234", "-123", "12,345,678"]);
    }
}

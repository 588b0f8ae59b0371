//! The text of `/proc/interrupts`, whatever was made of it, and where readings begin in it.

use crate::encoding::{self, plain};
use crate::interrupt_line::without_grep;
use crate::interrupts::is_header;
use crate::lsirq;

/// The text of a file in the kernel's form, and whether lsirq printed it.
pub(crate) fn of(bytes: &[u8]) -> (String, bool) {
    let text = String::from_utf8_lossy(&plain(bytes)).replace('\0', "");
    let has_header = |text: &String| text.lines().any(is_header);
    let of_bare = || encoding::bare(text.as_bytes()).map(|text| String::from_utf8_lossy(&text).into_owned());
    let of_table = || of_separated(&text).filter(has_header);
    let of_other = || of_bare().filter(has_header).or_else(|| of_json(&text).filter(has_header)).or_else(of_table);
    let text = if has_header(&text) { text } else { of_other().unwrap_or(text) };
    match lsirq::as_lines(&text) {
        Some(lines) => (lines, true),
        None => (text, false),
    }
}

/// The lines with which readings begin, those that name CPUs.
pub(crate) fn headers(lines: &[String]) -> Vec<usize> {
    // A narrow terminal breaks one into several.
    let begins = |at: &usize| is_header(&lines[*at]) && !(*at > 0 && is_header(&lines[at - 1]));
    let all: Vec<usize> = (0..lines.len()).filter(begins).collect();
    let ends = all.iter().skip(1).copied().chain([lines.len()]);
    let is_of_devices = |(at, end): &(usize, usize)| lines[*at..*end].iter().any(|line| is_numbered(line));
    // `/proc/softirqs` has such a line too.
    let of_devices: Vec<usize> = all.iter().copied().zip(ends).filter(is_of_devices).map(|(at, _)| at).collect();
    if of_devices.is_empty() { all } else { of_devices }
}

/// Whether a line is of a device's interrupt.
fn is_numbered(line: &str) -> bool {
    without_grep(line).split_once(':').is_some_and(|(id, _)| id.trim().parse::<u32>().is_ok())
}

/// The lines of a string of JSON, or of a list of such (`stdout_lines` of what runs commands on many hosts).
fn of_json(text: &str) -> Option<String> {
    let lines = text[text.find("CPU0")?..].replace("\\n", "\n").replace("\\t", "\t");
    let is_of_json = |c: char| c.is_whitespace() || matches!(c, '"' | ',' | ']' | '}');
    Some(lines.lines().map(|line| line.trim_matches(is_of_json).to_owned() + "\n").collect())
}

/// What stands between the cells of a table that a spreadsheet wrote.
const SEPARATORS: [char; 3] = [',', ';', '\t'];

/// The lines of a table with separators and perhaps quotes, if its head names CPUs.
fn of_separated(text: &str) -> Option<String> {
    let cells = |line: &str, separator: char| {
        let (mut quoted, mut spread) = (false, String::with_capacity(line.len() * 2));
        for c in line.chars() {
            match c {
                '"' => quoted = !quoted,
                c if c == separator && !quoted => spread.push_str("  "),
                c => spread.push(c),
            }
        }
        spread
    };
    let is_head =
        |separator: &char| text.lines().any(|line| line.contains("CPU0") && is_header(&cells(line, *separator)));
    let separator = SEPARATORS.into_iter().find(is_head)?;
    Some(text.lines().map(|line| cells(line, separator) + "\n").collect())
}

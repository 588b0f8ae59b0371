//! What `lsirq` and `irqtop` of util-linux print, in the form of `/proc/interrupts` with one CPU.
//!
//! ```text
//! IRQ  TOTAL NAME
//!  35   9999 IR-PCI-MSIX-0000:01:00.0    1-edge      nvme0q1
//! ```
//!
//! Source: util-linux, `sys-utils/lsirq.c`, `irqtop.c` and `irq-common.c`. Options choose JSON (`-J`), pairs (`-P`), no head (`-n`)
//! and the columns (`-o`).

use crate::fio_job::text_of;
use crate::json_text::object_with;
use serde_json::Value;

/// The lines of the kernel's file: number, sum of all CPUs, name. None if the text is of neither program, or [lacks](lacks) one of
/// these.
pub(crate) fn as_lines(text: &str) -> Option<String> {
    let Some((columns, lines)) = table(text) else {
        return of_json(text).or_else(|| of_pairs(text)).or_else(|| without_head(text));
    };
    lacking(|column| columns.contains(&column)).is_none().then(|| {
        let lines: String = lines.lines().filter_map(|line| of_columns(&columns, line)).collect();
        format!("CPU0\n{lines}")
    })
}

/// What a text of these programs lacks to tell of interrupts, if it is one: `-o` chose other columns.
pub(crate) fn lacks(text: &str) -> Option<String> {
    let lack = match (table(text), entries(text)) {
        (Some((columns, _)), _) => lacking(|column| columns.contains(&column)),
        (None, Some(entries)) => {
            lacking(|column| entries.first().is_some_and(|entry| entry.get(column.to_ascii_lowercase()).is_some()))
        }
        (None, None) => {
            let pairs = text.lines().find(|line| ["TOTAL=\"", "NAME=\""].iter().all(|sign| line.contains(sign)))?;
            lacking(|column| pairs.contains(&format!("{column}=\"")))
        }
    };
    lack.map(|column| format!("lsirq printed no column {column}; valid: lsirq, or lsirq -o {}", NEEDED.join(",")))
}

/// Columns that a reading needs.
const NEEDED: [&str; 3] = ["IRQ", "TOTAL", "NAME"];

fn lacking(has: impl Fn(&str) -> bool) -> Option<&'static str> {
    NEEDED.into_iter().find(|column| !has(column))
}

/// The columns, in the order of `-o`, and what stands below them.
fn table(text: &str) -> Option<(Vec<&str>, &str)> {
    let (head, columns) = text.lines().find_map(|line| Some((line, columns(line)?)))?;
    Some((columns, text.split_once(head)?.1))
}

fn columns(line: &str) -> Option<Vec<&str>> {
    let is_column = |name: &str| NEEDED.contains(&name) || name == "DELTA";
    // Most lines are none, and may be long.
    let names: Vec<&str> = line.split_whitespace().take_while(|name| is_column(name)).collect();
    (names.len() > 1 && line.split_whitespace().all(is_column)).then_some(names)
}

/// A line of a table. A name alone has blanks within.
fn of_columns(columns: &[&str], line: &str) -> Option<String> {
    let at = columns.iter().position(|column| *column == "NAME")?;
    let (mut rest, mut fields) = (line.trim(), Vec::new());
    for column in &columns[..at] {
        let (field, more) = rest.split_once(char::is_whitespace)?;
        fields.push((*column, field));
        rest = more.trim_start();
    }
    for column in columns[at + 1..].iter().rev() {
        let (more, field) = rest.rsplit_once(char::is_whitespace)?;
        fields.push((*column, field));
        rest = more.trim_end();
    }
    let of = |name: &str| fields.iter().find(|(column, _)| *column == name).map(|(_, field)| *field);
    Some(format!("{}: {} {rest}\n", of("IRQ")?, of("TOTAL")?))
}

/// Most bytes of JSON, which takes many times as much memory.
const JSON_BYTES_MAX: usize = 4 << 20;

/// The interrupts of JSON.
fn entries(text: &str) -> Option<Vec<Value>> {
    if text.len() > JSON_BYTES_MAX || !text.contains("\"interrupts\"") {
        return None;
    }
    object_with(text, "interrupts")?.get("interrupts")?.as_array().cloned()
}

fn of_json(text: &str) -> Option<String> {
    let line = |entry: &Value| {
        let of = |name: &str| entry.get(name).map(|value| text_of(value).replace(char::is_control, " "));
        Some(format!("{}: {} {}\n", of("irq")?, of("total")?, of("name").unwrap_or_default()))
    };
    let lines: String = entries(text)?.iter().filter_map(line).collect();
    (!lines.is_empty()).then(|| format!("CPU0\n{lines}"))
}

/// `IRQ="35" TOTAL="9999" NAME="…"`.
fn of_pairs(text: &str) -> Option<String> {
    let line = |line: &str| {
        let of = |name: &str| {
            let (_, rest) = line.split_once(&format!("{name}=\""))?;
            rest.split_once('"').map(|(value, _)| value)
        };
        let total = of("TOTAL").filter(|total| total.trim().parse::<u64>().is_ok())?;
        Some(format!("{}: {total} {}\n", of("IRQ")?, of("NAME").unwrap_or_default()))
    };
    let lines: String = text.lines().filter_map(line).collect();
    (!lines.is_empty()).then(|| format!("CPU0\n{lines}"))
}

/// Lines without a head. All must be such lines, and one of a device with a trigger.
fn without_head(text: &str) -> Option<String> {
    let line = |line: &str| {
        let (id, rest) = line.trim().split_once(char::is_whitespace)?;
        let (total, name) = rest.trim_start().split_once(char::is_whitespace)?;
        let is_id = id.len() <= ID_MAX && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'/');
        let is_line = is_id && total.parse::<u64>().is_ok() && name.trim_start().starts_with(char::is_alphabetic);
        is_line.then(|| format!("{id}: {total} {}\n", name.trim_start()))
    };
    let is_device = |line: &str| {
        let mut words = line.split_whitespace();
        words.next().is_some_and(|id| id.parse::<u32>().is_ok())
            && words.any(|word| word.ends_with("-edge") || matches!(word, "Edge" | "Level"))
    };
    let lines: Option<String> = text.lines().filter(|line| !line.trim().is_empty()).map(line).collect();
    lines.filter(|_| text.lines().any(is_device)).map(|lines| format!("CPU0\n{lines}"))
}

/// Most characters of an interrupt's number or name: `IPI10`.
const ID_MAX: usize = 6;

#[cfg(test)]
mod tests {
    use crate::interrupts::Interrupts;

    #[test]
    fn every_form_is_the_same() {
        let plain = "IRQ  TOTAL NAME\nLOC 123456 Local timer interrupts\n 35   9999 IR-PCI-MSIX-0000:01:00.0    1-edge      nvme0q1\n";
        let expected = Interrupts::parse(plain.as_bytes());
        assert_eq!(
            (expected.lines.len(), expected.lines[1].total(), expected.lines[1].nvme_queue()),
            (2, 9999, Some((0, 1)))
        );
        let json = r#"{"interrupts": [{"irq": "LOC", "total": 123456, "name": "Local timer interrupts"},
            {"irq": "35", "total": 9999, "name": "IR-PCI-MSIX-0000:01:00.0    1-edge      nvme0q1"}]}"#;
        let pairs = "IRQ=\"LOC\" TOTAL=\"123456\" NAME=\"Local timer interrupts\"\nIRQ=\"35\" TOTAL=\"9999\" \
                     NAME=\"IR-PCI-MSIX-0000:01:00.0    1-edge      nvme0q1\"\n";
        let headless = plain.split_once('\n').unwrap().1;
        for text in [json, pairs, headless] {
            let found = Interrupts::parse(text.as_bytes());
            assert_eq!((&found.lines, found.has_header), (&expected.lines, false), "{text}");
        }
    }

    #[test]
    fn columns_may_stand_in_any_order() {
        let expected = Interrupts::parse(b"IRQ TOTAL NAME\n 35 9999 IR-PCI-MSIX-0000:01:00.0 1-edge nvme0q1\n").lines;
        for text in [
            "IRQ NAME                                     TOTAL\n 35 IR-PCI-MSIX-0000:01:00.0 1-edge nvme0q1   9999\n",
            "NAME IRQ DELTA TOTAL\nIR-PCI-MSIX-0000:01:00.0 1-edge nvme0q1 35 7 9999\n",
            "TOTAL DELTA IRQ NAME\n9999 7 35 IR-PCI-MSIX-0000:01:00.0 1-edge nvme0q1\n",
        ] {
            assert_eq!(Interrupts::parse(text.as_bytes()).lines, expected, "{text}");
        }
    }

    #[test]
    fn a_column_that_is_missing_is_named() {
        for (text, column) in [
            (
                "NAME                                       TOTAL\nIR-PCI-MSIX-0000:01:00.0 1-edge nvme0q1     99\n",
                "IRQ",
            ),
            ("IRQ NAME\n 35 IR-PCI-MSIX-0000:01:00.0 1-edge nvme0q1\n", "TOTAL"),
            ("IRQ TOTAL\n 35 99\n", "NAME"),
            ("TOTAL=\"99\" NAME=\"IR-PCI-MSIX-0000:01:00.0 1-edge nvme0q1\"\n", "IRQ"),
            (r#"{"interrupts": [{"irq": "35", "name": "IR-PCI-MSIX-0000:01:00.0 1-edge nvme0q1"}]}"#, "TOTAL"),
        ] {
            let found = Interrupts::parse(text.as_bytes());
            let note = format!("lsirq printed no column {column}; valid: lsirq, or lsirq -o IRQ,TOTAL,NAME");
            assert_eq!((found.lines.len(), found.notes), (0, vec![note]), "{text}");
        }
    }

    #[test]
    fn other_texts_are_none_of_it() {
        for text in [
            "",
            "a 1 b\n",
            "35 9999 nvme0q1\n",
            "35 9999 PCI-MSI 1-edge nvme0q1\nnot a line\n",
            "TOTAL=\"x\" IRQ=\"1\"\n",
        ] {
            assert!(Interrupts::parse(text.as_bytes()).lines.is_empty(), "{text}");
        }
    }
}

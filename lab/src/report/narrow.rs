//! Reports for terminals that are narrower than the tables: a line for each figure, and no line wider than the terminal.

use super::table::{self, WIDTH};
use super::{Class, Row, RunReport, figure};
use std::fmt::Write as _;
use std::io::IsTerminal;
use unicode_width::UnicodeWidthStr;

/// The narrowest layout.
const WIDTH_MIN: u16 = 24;

/// Columns of standard output: the terminal's, or those of `COLUMNS`, or else [`WIDTH`].
pub fn width() -> u16 {
    let of_terminal = || {
        let is_terminal = std::io::stdout().is_terminal();
        is_terminal.then(terminal_size::terminal_size).flatten().map(|(terminal_size::Width(columns), _)| columns)
    };
    let of_environment = || std::env::var("COLUMNS").ok()?.parse::<u16>().ok().filter(|columns| *columns > 0);
    of_terminal().or_else(of_environment).unwrap_or(WIDTH).max(WIDTH_MIN)
}

/// [`table::run`] within so many columns.
pub fn run(report: &RunReport, columns: u16) -> String {
    let wide = table::run(report);
    if fits(&wide, columns) {
        return wide;
    }
    fold(&table::run_with(report, summary, published), columns)
}

/// [`table::reproduce`] within so many columns.
pub fn reproduce(rows: &[Row], free: &[table::FreeConstants], columns: u16) -> String {
    let wide = table::reproduce(rows, free);
    if fits(&wide, columns) {
        return wide;
    }
    let of_class = |class: Class| rows.iter().filter(move |row| row.class == class).collect::<Vec<_>>();
    let mut text = String::new();
    for (class, title) in Class::TITLES {
        let of_class = of_class(class);
        if !of_class.is_empty() {
            text += &format!("{title}\n{}\n", published(&of_class));
        }
    }
    fold(&(text + &table::closing_line(rows) + "\n"), columns)
}

fn fits(text: &str, columns: u16) -> bool {
    columns >= WIDTH || text.lines().all(|line| line.width() <= usize::from(columns))
}

/// The figures of a run: each quantity, and under it a line for each variant.
fn summary(report: &RunReport) -> String {
    let Some(first) = report.summaries.first() else { return "nothing was run\n".into() };
    let name = report.summaries.iter().map(|summary| summary.delivery.width()).max().unwrap_or(0);
    let mut text = String::new();
    let mut heading = None;
    for (at, quantity) in report.quantities().iter().enumerate() {
        if report.summaries.iter().filter_map(|s| s.figures[at].estimate).all(|estimate| estimate.mean == 0.0) {
            continue;
        }
        if heading.replace(quantity.heading) != Some(quantity.heading) {
            let _ = writeln!(text, "{}", quantity.heading);
        }
        let _ = writeln!(text, " {}", quantity.label);
        for (index, summary) in report.summaries.iter().enumerate() {
            let now = summary.figures[at].estimate;
            let change = figure::change(quantity.unit, first.figures[at].estimate, now).filter(|_| index > 0);
            let change = change.map(|change| format!("  {change}")).unwrap_or_default();
            let _ = writeln!(text, "  {:name$} {}{change}", summary.delivery, figure::estimate(quantity.unit, now));
        }
    }
    text
}

/// Rows beside the published ones: three short lines each.
fn published(rows: &[&Row]) -> String {
    let mut text = String::new();
    for row in rows {
        let unit = row.unit.split(" (").next().unwrap_or(&row.unit);
        let origin = row.from.as_ref().unwrap_or(&row.delivery);
        let _ = writeln!(text, "{} {}, {origin}: {}, {unit}", row.id, row.platform, row.quantity);
        let half = row.ci95.map(|half| format!(" ±{}", figure::plain_beside(row.value, half))).unwrap_or_default();
        let _ = writeln!(text, "  here {}{half}", figure::plain(row.value));
        if let Some(interval) = &row.interval {
            let ends = [interval.low, interval.high].map(|end| figure::plain_beside(row.value, end));
            let _ = writeln!(text, "  from {} to {}", ends[0], ends[1]);
        }
        if let Some(value) = row.published {
            let _ = writeln!(text, "  published {} ({})", figure::plain(value), table::error(row));
        }
    }
    text
}

/// Cuts lines at blanks so that they fit; what follows is indented. Lines across are shortened.
pub fn fold(text: &str, columns: u16) -> String {
    let columns = usize::from(columns);
    let mut folded = String::new();
    for line in text.lines() {
        if line.width() <= columns {
            folded += line;
        } else if line.chars().all(|c| matches!(c, '─' | '═')) {
            folded.extend(line.chars().take(columns));
        } else {
            fold_line(&mut folded, line, columns);
        }
        folded.push('\n');
    }
    folded
}

fn fold_line(folded: &mut String, line: &str, columns: usize) {
    let indent = line.len() - line.trim_start().len();
    let next = (indent + 2).min(columns / 2);
    let mut used = indent.min(columns / 2);
    folded.extend(std::iter::repeat_n(' ', used));
    let mut is_first = true;
    for word in line.split_whitespace() {
        if !is_first && used + 1 + word.width() > columns {
            folded.push('\n');
            folded.extend(std::iter::repeat_n(' ', next));
            used = next;
        } else if !is_first {
            folded.push(' ');
            used += 1;
        }
        is_first = false;
        // A word that is wider than the terminal is cut.
        for letter in word.chars() {
            if used >= columns {
                folded.push('\n');
                folded.extend(std::iter::repeat_n(' ', next));
                used = next;
            }
            folded.push(letter);
            used += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{report, rows};

    #[test]
    fn a_narrow_terminal_gets_no_wider_line() {
        for columns in [24, 40, 60, 79] {
            for text in [run(&report(), columns), reproduce(&rows(), &[], columns)] {
                let wide = text.lines().find(|line| line.width() > usize::from(columns));
                assert_eq!(wide, None, "{columns}");
            }
        }
        let text = run(&report(), 40);
        assert!(text.contains(" IOPS together\n  remapped 2.000 ±"), "{text}");
        assert!(text.contains("H4 emr, posted: iops_per_drive, 1/s\n"), "{text}");
    }

    #[test]
    fn a_wide_terminal_gets_the_table() {
        assert_eq!(run(&report(), 100), table::run(&report()));
        assert_eq!(run(&report(), 240), table::run(&report()));
    }

    #[test]
    fn lines_are_folded_at_blanks_and_long_words_cut() {
        assert_eq!(fold("  one two three\n", 10), "  one two\n    three\n");
        assert_eq!(fold("────────────", 4), "────\n");
        assert_eq!(fold("abcdefghijkl", 8), "abcdefgh\n  ijkl\n");
    }
}

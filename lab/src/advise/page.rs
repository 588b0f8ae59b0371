//! The advice as one self-contained page.

use super::change::Change;
use super::text::{basis, change, conclusion, head, marks, not_applicable, place, remarks};
use super::{Advice, Candidate};
use crate::report::html::{document, html_table, row, section, with_data};
use crate::report::plots::escape;
use std::fmt::Write as _;

/// The page. It needs no other file.
pub fn page(advice: &Advice) -> String {
    let paragraphs =
        |lines: &[String]| lines.iter().map(|line| format!("<p>{}</p>\n", escape(line))).collect::<String>();
    let mut head = head(advice);
    let title = head.remove(0);
    let interrupted = if advice.interrupted {
        "<p class=\"warn\">Interrupted: the figures cover only the completed runs.</p>\n"
    } else {
        ""
    };
    let warnings: String =
        advice.warnings.iter().map(|warning| format!("<p class=\"warn\">{}</p>\n", escape(warning))).collect();
    let body = [
        format!("<header>\n<h1>{}</h1>\n{interrupted}{}{warnings}</header>\n", escape(&title), paragraphs(&head)),
        section("Advice", paragraphs(&conclusion(advice))),
        section("Throughput", bars(&advice.candidates)),
        section("Remedies", table(&advice.candidates)),
        section("Over the budget of CPUs", table(&advice.over_budget)),
        section("Not ranked", reasons(refused(advice))),
        section("Does not apply", reasons(not_applicable(advice))),
        section("How to read this", paragraphs(&basis(advice))),
    ];
    let data = serde_json::to_string_pretty(advice).expect("advice is plain data") + "\n";
    with_data(&document(&title, &body.concat()), "advice.json", "application/json", &data)
}

/// A bar for each remedy from zero, with its interval behind it.
fn bars(candidates: &[Candidate]) -> String {
    let changes: Vec<(&Candidate, Change)> =
        candidates.iter().filter_map(|candidate| Some((candidate, candidate.changes.throughput?))).collect();
    let end = changes.iter().map(|(_, change)| change.low.abs().max(change.high.abs())).fold(1.0, f64::max);
    if changes.is_empty() {
        return String::new();
    }
    let mut html = format!(
        "<figure class=\"wide\"><figcaption>Change of the throughput; the ends are ±{end:.0} %, the band behind a bar is \
         its interval</figcaption><div class=\"bars\">\n"
    );
    let at = |percent: f64| 50.0 + percent / end * 50.0;
    for (candidate, Change { percent, low, high }) in changes {
        let (left, right) = (at(percent.min(0.0)), at(percent.max(0.0)));
        writeln!(
            html,
            "<div class=\"bar\"><span class=\"name\">{}</span><span class=\"rail\" title=\"{}\">\
             <u style=\"left:{:.2}%;width:{:.2}%\"></u><i class=\"s0\" style=\"left:{left:.2}%;width:{:.2}%\"></i></span>\
             <span class=\"total\">{percent:+.1} %</span></div>",
            escape(&candidate.name),
            escape(&candidate.bottleneck),
            at(low),
            at(high) - at(low),
            (right - left).max(0.3),
        )
        .expect("a String takes all");
    }
    html + "</div></figure>\n"
}

fn table(candidates: &[Candidate]) -> String {
    if candidates.is_empty() {
        return String::new();
    }
    let line = |candidate: &Candidate| {
        let changes = &candidate.changes;
        let figures = [changes.throughput, changes.p99, changes.p99_9, changes.cpu];
        let words = format!("{}{}", candidate.how, remarks(candidate));
        let name = format!("{}{}", candidate.name, marks(candidate));
        let first = [(place(candidates, candidate), true), (escape(&name), false)];
        let last =
            [(escape(&candidate.bottleneck), false), (format!("<div class=\"words\">{}</div>", escape(&words)), false)];
        row(first.into_iter().chain(figures.map(|figure| (change(figure), true))).chain(last))
    };
    let header = [
        ("place", true),
        ("remedy", false),
        ("throughput, %", true),
        ("p99, %", true),
        ("p99.9, %", true),
        ("CPU time of an I/O, %", true),
        ("bottleneck with it", false),
        ("how, and what it needs", false),
    ];
    html_table(&header.map(|(name, n)| (name.into(), n)), &candidates.iter().map(line).collect::<String>())
}

fn refused(advice: &Advice) -> Vec<(String, &str)> {
    advice.refused.iter().map(|refused| (refused.name.clone(), refused.why.as_str())).collect()
}

/// What is not ranked, each with its reason.
fn reasons(of: Vec<(String, &str)>) -> String {
    let rows: String = of.iter().map(|(name, why)| row([(escape(name), false), (escape(why), false)])).collect();
    if rows.is_empty() { rows } else { html_table(&[("remedy".into(), false), ("why".into(), false)], &rows) }
}

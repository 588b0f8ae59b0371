//! The page of a run: one self-contained file, readable in light and dark and on a phone.

use std::fmt::Write;

use base64::Engine as _;

use super::plots::{self, Axes, Bar, Series, escape};
use super::{RunReport, figure, table};
use crate::manifest::Manifest;
use crate::outcome::{Bottleneck, Headline, Summary, Timeline, Unit};

/// The whole page. It needs no other file.
pub fn page(report: &RunReport) -> String {
    let sections = [
        header(report),
        tiles(report),
        phases(report),
        own(report),
        section("Coalescing over time", coalescing(report)),
        section("What limited it", utilisation(report)),
        section("All figures", summary_table(report)),
        section("Faults", faults(report)),
        section("Beside the published figures", published(report)),
        section("Interrupt table", interrupts(report)),
        section("Constants and their reasons", constants(report)),
        section("How to read this", HOW_TO_READ.into()),
    ];
    let page = document(&report.scenario, &sections.concat());
    let data = super::json::run(report).expect("a report is plain data");
    let page = with_data(&page, &format!("{}.json", report.scenario), "application/json", &data);
    report.manifest.as_ref().map_or_else(|| page.clone(), |manifest| with_manifest(&page, manifest))
}

/// A page with its data as a file to save. The link holds them, so the page still needs no other file.
pub fn with_data(page: &str, file: &str, kind: &str, data: &str) -> String {
    let content = base64::engine::general_purpose::STANDARD.encode(data);
    let link = format!(
        "<p class=\"data\"><a download=\"{0}\" href=\"data:{kind};base64,{content}\">Save the data of this page \
         ({0}, {1} KB)</a></p>\n</header>",
        escape(file),
        data.len().div_ceil(1000)
    );
    page.replacen("</header>", &link, 1)
}

/// A page with its manifest as the last section.
pub fn with_manifest(page: &str, manifest: &Manifest) -> String {
    let line = escape(&format!("campanile {}", manifest.arguments.join(" ")));
    let body = format!(
        "<p><code>{line}</code></p>\n<details><summary>Manifest</summary><div class=\"scroll\" tabindex=\"0\"><pre>{}</pre></div></details>\n",
        escape(&manifest.text())
    );
    page.replacen("</main>", &(section("How to make it again", body) + "</main>"), 1)
}

/// A section for each phase, of an experiment that has several.
fn phases(report: &RunReport) -> String {
    let body = |phase: &RunReport| {
        let span_ns = phase.summaries.iter().map(|summary| summary.span_ns).min().unwrap_or(0);
        let unsteady = phase.unsteady();
        let unsteady = unsteady.lines().map(|line| format!("<p class=\"warn\">{}</p>\n", escape(line)));
        let span = format!("<p class=\"soft\">{}</p>\n", escape(&figure::duration(span_ns as f64)));
        section(&escape(&phase.scenario), span + &unsteady.collect::<String>() + &summary_table(phase))
    };
    report.phases().iter().map(body).collect()
}

/// The sections that only this kind of experiment has.
fn own(report: &RunReport) -> String {
    report.outcomes.first().map_or_else(String::new, |outcome| outcome.section.measured().page(report))
}

/// A page from its title and the finished HTML of its body.
pub(crate) fn document(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>\n{}</style>\n</head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n",
        include_str!("page.css"),
    )
}

const HOW_TO_READ: &str = "\
<p>Every figure is of a simulated machine that ran real driver and interrupt code. <b>Fitted</b> figures are rows that \
the platform's constants were calibrated with; <b>predicted</b> ones were not used for that. Only figures called \
measured come from a host's clock or counters.</p>
<p>± is the half-width of the 95 % confidence interval of the mean over the seeds (Student's t). A change within it \
means nothing.</p>
<p><b>MSIs</b> are the messages that devices wrote; <b>notifications</b> the interrupts that CPUs took for posted \
ones. Fewer notifications than MSIs is coalescing. <b>Handlers</b> are the devices' own, run from either.</p>
<p>The <b>bottleneck</b> is the busiest of drive media, drive link, MSI path and CPU, if it is at least 90 % busy. If \
none is, what is kept in flight bounds the load.</p>
<p>Stages are the mean of each part of an I/O's life. Submission and application work of one job overlaps with the \
waiting of its other requests: the stages explain latency, not throughput.</p>
";

pub(crate) fn section(title: &str, body: String) -> String {
    if body.is_empty() { body } else { format!("<section>\n<h2>{title}</h2>\n{body}</section>\n") }
}

/// One quantity as bars, one for each variant that has it; empty when none has.
pub(crate) fn variant_bars(report: &RunReport, title: &str, id: &str, unit: Unit, class: &str) -> String {
    let bar = |summary: &Summary| {
        let mean = summary.estimate(id)?.mean;
        let text = figure::value(unit, mean);
        Some(Bar { name: summary.delivery.clone(), parts: vec![(class.into(), mean, text.clone())], total: text })
    };
    let bars: Vec<Bar> = report.summaries.iter().filter_map(bar).collect();
    if bars.is_empty() { String::new() } else { plots::bars(title, &bars) }
}

fn header(report: &RunReport) -> String {
    let provenance = escape(&report.provenance());
    let mut html = format!("<header>\n<h1>{}</h1>\n<p class=\"soft\">{provenance}</p>\n", escape(&report.scenario));
    if report.interrupted {
        html += "<p class=\"warn\">Interrupted: the figures cover only the completed runs.</p>\n";
    }
    let warnings = report.warnings.iter().map(|w| format!("<p class=\"warn\">{}</p>\n", escape(w)));
    let unsteady = report.unsteady();
    let unsteady = unsteady.lines().map(|line| format!("<p class=\"warn\">{}</p>\n", escape(line)));
    html + &warnings.chain(unsteady).collect::<String>() + "</header>\n"
}

fn tiles(report: &RunReport) -> String {
    let (Some(first), Some(outcome)) = (report.summaries.first(), report.outcomes.first()) else {
        return "<p>Nothing was run.</p>\n".into();
    };
    let Headline { id, unit, name, beside } = outcome.section.measured().headline();
    let tile = |summary: &Summary| {
        let mean = |id, unit| summary.estimate(id).map_or("–".into(), |e| figure::value(unit, e.mean));
        let change = figure::change(unit, first.estimate(id), summary.estimate(id));
        let against = match change {
            Some(change) if summary.delivery != first.delivery => format!("{change} {name} against {}", first.delivery),
            _ if report.summaries.len() > 1 => "what the others are compared with".into(),
            _ => String::new(),
        };
        let policy = report.policy(&summary.delivery).map(|policy| format!("<span>Policy: {}</span>", escape(policy)));
        format!(
            "<div class=\"tile\"><span>{}</span><b>{} {name}</b><span>{}</span><span>{} {}</span>\
             <span>Bottleneck: {}</span>{}</div>\n",
            escape(&summary.delivery),
            mean(id, unit),
            escape(&against),
            mean(beside.0, beside.1),
            beside.2,
            escape(&summary.bottleneck.to_string()),
            policy.unwrap_or_default()
        )
    };
    format!("<div class=\"tiles\">\n{}</div>\n", report.summaries.iter().map(tile).collect::<String>())
}

/// A tick without the zeros behind the point.
pub(crate) fn axis(unit: Unit, value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    let text = figure::value(unit, value);
    let (number, suffix) = text.split_once(' ').unwrap_or((&text, ""));
    let number = if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    format!("{number} {suffix}").trim_end().into()
}

fn coalescing(report: &RunReport) -> String {
    let plot = |summary: &Summary| -> Option<String> {
        let timeline = &report.first_outcome(&summary.delivery)?.timeline;
        let course = |(colour, (name, counts)): (usize, (&String, &Vec<u64>))| Series {
            name: if name == "ios" { "I/Os".into() } else { name.replace("msis", "MSIs") },
            points: course(timeline, counts),
            dashed: false,
            colour: [3, 0, 1, 2][colour % 4],
        };
        let all = timeline.counts.iter().enumerate().map(course);
        let shown: Vec<Series> = all.filter(|s| s.points.iter().any(|p| p.1 > 0.0)).collect();
        let axes = Axes {
            title: &summary.delivery,
            x: "time in the measured span",
            y: "per second",
            x_tick: |x| axis(Unit::Nanoseconds, x),
            y_tick: |y| axis(Unit::PerSecond, y),
        };
        (!shown.is_empty()).then(|| plots::lines(&axes, &shown))
    };
    let plots: String = report.summaries.iter().filter_map(plot).collect();
    if plots.is_empty() { plots } else { format!("<div class=\"plots\">\n{plots}</div>\n") }
}

/// Counts as rates, at the middle of their buckets.
fn course(timeline: &Timeline, counts: &[u64]) -> Vec<(f64, f64)> {
    let width = timeline.bucket_ns as f64;
    counts.iter().enumerate().map(|(at, &count)| ((at as f64 + 0.5) * width, count as f64 * 1e9 / width)).collect()
}

fn utilisation(report: &RunReport) -> String {
    let chart = |summary: &Summary| {
        let bar = |&(candidate, busy): &(Bottleneck, f64)| {
            let percent = figure::value(Unit::Percent, busy * 100.0);
            let class = if candidate == summary.bottleneck.bottleneck { "drive2" } else { "cpu2" };
            let busy = busy.clamp(0.0, 1.0);
            Bar {
                name: candidate.to_string().replace("MSI path (", "").replace(')', ""),
                parts: vec![
                    (class.into(), busy, format!("busy {percent}")),
                    ("idle".into(), 1.0 - busy, "free".into()),
                ],
                total: percent.clone(),
            }
        };
        let bars: Vec<Bar> = summary.bottleneck.utilisation.iter().filter(|c| c.1 > 0.0).map(bar).collect();
        plots::bars(&format!("{}: {}", summary.delivery, summary.bottleneck), &bars)
    };
    let charts: String = report.summaries.iter().map(chart).collect();
    if charts.is_empty() { charts } else { format!("<div class=\"plots\">\n{charts}</div>\n") }
}

fn summary_table(report: &RunReport) -> String {
    let Some((first, others)) = report.summaries.split_first() else { return String::new() };
    let mut header = vec![(String::new(), false)];
    header.extend(report.summaries.iter().map(|s| (s.delivery.clone(), true)));
    header.extend(others.iter().map(|s| (format!("{} against {}", s.delivery, first.delivery), true)));
    let mut rows = String::new();
    let mut heading = None;
    for (at, quantity) in report.quantities().iter().enumerate() {
        let estimates: Vec<_> = report.summaries.iter().map(|s| s.figures[at].estimate).collect();
        if estimates.iter().flatten().all(|e| e.mean == 0.0) {
            continue;
        }
        if heading.replace(quantity.heading) != Some(quantity.heading) {
            writeln!(
                rows,
                "<tr class=\"head\"><th scope=\"colgroup\" colspan=\"{}\">{}</th></tr>",
                header.len(),
                quantity.heading
            )
            .expect("a String takes all");
        }
        let figures = estimates.iter().map(|&e| figure::estimate(quantity.unit, e));
        let changes = estimates[1..].iter();
        let changes = changes.map(|&now| figure::change(quantity.unit, estimates[0], now).unwrap_or("–".into()));
        rows += &row(std::iter::once((quantity.label.into(), false)).chain(figures.chain(changes).map(|f| (f, true))));
    }
    html_table(&header, &rows)
}

fn faults(report: &RunReport) -> String {
    let of = |summary: &Summary| {
        let line = |fault: &crate::outcome::Fault| {
            row([
                (escape(&summary.delivery), false),
                (escape(&fault.kind), false),
                (fault.requester_name(), false),
                (fault.count.to_string(), true),
                (escape(&fault.text), false),
            ])
        };
        summary.faults.iter().map(line).collect::<String>()
    };
    let rows: String = report.summaries.iter().map(of).collect();
    let header =
        [("delivery", false), ("kind", false), ("requester", false), ("count", true), ("what happened", false)];
    if rows.is_empty() { rows } else { html_table(&header.map(|(name, n)| (name.into(), n)), &rows) }
}

fn published(report: &RunReport) -> String {
    let line = |r: &super::Row| {
        let optional = |value: Option<f64>, none: &str| (value.map_or(none.into(), figure::plain), true);
        row([
            (escape(&r.id), false),
            (escape(&r.delivery), false),
            (escape(&format!("{}, {}", r.quantity, r.unit)), false),
            (figure::plain(r.value), true),
            (r.ci95.map_or("–".into(), |half| figure::plain_beside(r.value, half)), true),
            optional(r.published, "–"),
            (table::error(r), true),
            (r.class.name().into(), false),
        ])
    };
    let header = [
        ("id", false),
        ("delivery", false),
        ("quantity, unit", false),
        ("here", true),
        ("±", true),
        ("published", true),
        ("error", true),
        ("class", false),
    ];
    let rows: String = report.published.iter().map(line).collect();
    if rows.is_empty() { rows } else { html_table(&header.map(|(name, n)| (name.into(), n)), &rows) }
}

fn interrupts(report: &RunReport) -> String {
    let of = |summary: &Summary| {
        let outcome = report.first_outcome(&summary.delivery).filter(|o| !o.interrupt_table.is_empty())?;
        Some(format!(
            "<details open><summary>{}, seed {}</summary><div class=\"scroll\" tabindex=\"0\"><pre>{}</pre></div></details>\n",
            escape(&summary.delivery),
            outcome.seed,
            escape(&lines_that_came(&outcome.interrupt_table))
        ))
    };
    report.summaries.iter().filter_map(of).collect()
}

/// The table without the lines that never fired on any CPU: a drive has a queue for every CPU, and a job uses few.
fn lines_that_came(table: &str) -> String {
    let cpus = table.lines().next().map_or(0, |header| header.split_whitespace().count());
    let is_quiet = |line: &&str| {
        let counts: Vec<&str> = line.split_whitespace().skip(1).take(cpus).collect();
        counts.len() == cpus && counts.iter().all(|&count| count == "0")
    };
    let (quiet, kept): (Vec<&str>, Vec<&str>) = table.lines().partition(is_quiet);
    let note = if quiet.is_empty() { String::new() } else { format!("\n({} lines that never came)", quiet.len()) };
    kept.join("\n") + &note
}

fn constants(report: &RunReport) -> String {
    let line = |c: &super::ConstantRow| {
        let kind = if c.free { "fitted" } else { "held" };
        row([(escape(&c.name), false), (escape(&c.value), true), (kind.into(), false), (escape(&c.reason), false)])
    };
    let header = [("constant", false), ("value", true), ("", false), ("reason", false)];
    let rows: String = report.constants.iter().map(line).collect();
    if rows.is_empty() { rows } else { html_table(&header.map(|(name, n)| (name.into(), n)), &rows) }
}

/// A table from header cells and finished rows; the flag says that a column is of numbers.
pub(crate) fn html_table(header: &[(String, bool)], rows: &str) -> String {
    let cell = |(name, number): &(String, bool)| {
        let class = if *number { " class=\"n\"" } else { "" };
        if name.is_empty() { "<td></td>".into() } else { format!("<th scope=\"col\"{class}>{}</th>", escape(name)) }
    };
    let header: String = header.iter().map(cell).collect();
    // A keyboard scrolls only what it can reach.
    format!(
        "<div class=\"scroll\" tabindex=\"0\"><table><thead><tr>{header}</tr></thead>\n<tbody>\n{rows}</tbody></table></div>\n"
    )
}

/// A row of finished HTML; the flag says that a cell is a number. The first cell names the row.
pub(crate) fn row(cells: impl IntoIterator<Item = (String, bool)>) -> String {
    let class = |number| if number { " class=\"n\"" } else { "" };
    let cell = |(at, (content, number)): (usize, (String, bool))| match at {
        0 if !content.is_empty() => format!("<th scope=\"row\"{}>{content}</th>", class(number)),
        _ => format!("<td{}>{content}</td>", class(number)),
    };
    format!("<tr>{}</tr>\n", cells.into_iter().enumerate().map(cell).collect::<String>())
}

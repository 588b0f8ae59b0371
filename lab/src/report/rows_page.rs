//! The page of `reproduce`: every published row beside ours, its error as a bar, and what the model leaves out.

use super::html::{document, html_table, row, section, with_data};
use super::plots::{self, Axes, Series, escape};
use super::study::Study;
use super::table::{self, FreeConstants};
use super::{Class, Interval, Row, figure};
use std::fmt::Write;

/// The error that fitted rows may have, in per cent.
const FIT_PERCENT: f64 = 2.0;

/// The whole page, with a part for each study. It needs no other file.
pub fn rows_page(rows: &[Row], free: &[FreeConstants]) -> String {
    let parts: String = Study::ALL.into_iter().map(|study| part(study, &study.rows(rows), free)).collect();
    let page = document(
        "Published figures and ours",
        &(header(rows) + &parts + &section("What every figure leaves out", LEFT_OUT.into())),
    );
    let data = super::json::reproduce(rows).expect("rows are plain data");
    with_data(&page, "reproduce.json", "application/json", &data)
}

/// One study: a summary of its figures, its plots and tables, and the limits of its model.
fn part(study: Study, rows: &[&Row], free: &[FreeConstants]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let of = |class| rows.iter().copied().filter(|row| row.class == class).collect::<Vec<&Row>>();
    let titled = |title: &str, body: String| {
        if body.is_empty() { body } else { format!("<h3>{title}</h3>\n{body}") }
    };
    let fitted = of(Class::Fitted);
    let free = table::free_constants(&fitted, free);
    let fitted_note = format!("<p class=\"soft\">{}</p>\n", escape(free.trim_end()).replace('\n', "<br>"));
    let (spread_fitted, spread_predicted) = (spread(rows, Class::Fitted), spread(rows, Class::Predicted));
    let body = [
        format!(
            "<p>{}: {}.</p>\n<p class=\"soft\">Left out: {}</p>\n",
            study.subject(),
            escape(&sentence(&spread_fitted, &spread_predicted)),
            study.left_out()
        ),
        errors(rows),
        courses(rows),
    ];
    let tables = Class::TITLES.map(|(class, title)| {
        titled(title, table_of(&of(class), if class == Class::Fitted { &fitted_note } else { "" }))
    });
    section(study.title(), body.concat() + &tables.concat())
}

/// A plot for each quantity with three or more variants that have a number in their name: passes, interrupts.
fn courses(rows: &[&Row]) -> String {
    let mut groups: Vec<Course<'_>> = Vec::new();
    for &row in rows {
        let Some(number) = number_in(&row.delivery) else { continue };
        match groups.iter_mut().find(|(platform, quantity, _)| (*platform, *quantity) == (&row.platform, &row.quantity))
        {
            Some((.., points)) => points.push((number, row)),
            None => groups.push((&row.platform, &row.quantity, vec![(number, row)])),
        }
    }
    let plot = |(platform, quantity, mut points): Course<'_>| {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let line = |name: &str, of: fn(&Row) -> Option<f64>, colour| Series {
            name: name.into(),
            points: points.iter().filter_map(|(x, row)| Some((*x, of(row)?))).collect(),
            dashed: false,
            colour,
        };
        let axes = Axes {
            title: &format!("{quantity}, {platform}"),
            x: "the number in the variant's name",
            y: "as published",
            x_tick: |x| figure::plain(x).trim_end_matches(".00").into(),
            y_tick: |y| figure::plain(y).trim_end_matches(".00").into(),
        };
        plots::lines(&axes, &[line("ours", |row| Some(row.value), 0), line("published", |row| row.published, 1)])
    };
    let plots: String = groups.into_iter().filter(|(.., points)| points.len() >= 3).map(plot).collect();
    if plots.is_empty() { plots } else { format!("<div class=\"plots\">\n{plots}</div>\n") }
}

/// A platform, a quantity, and its rows by the number of their variants.
type Course<'a> = (&'a str, &'a str, Vec<(f64, &'a Row)>);

/// The one whole number of a name.
fn number_in(name: &str) -> Option<f64> {
    let mut numbers = name.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
    let first = numbers.next()?.parse().ok()?;
    numbers.next().is_none().then_some(first)
}

const LEFT_OUT: &str = "\
<p>CPUs have one frequency, one shallow idle state and no second thread. Drives have no garbage collection and no \
thermal limit. Every row is a steady state of milliseconds that stands for 30 seconds; none was measured on the \
published machines.</p>
<p>Rows without a published value are withheld from us: their figure stands for itself. A row that says so in its \
words (what is counted is not stated, no model will give it) keeps the error that it has.</p>
";

fn header(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "<header>\n<h1>Published figures and ours</h1>\n<p>Nothing was run.</p>\n</header>\n".into();
    }
    let rows: Vec<&Row> = rows.iter().collect();
    let (fitted, predicted) = (spread(&rows, Class::Fitted), spread(&rows, Class::Predicted));
    let tile = |title: &str, Spread { rows, compared, within, worst }: &Spread| {
        let worst = worst.map_or("no published value to compare with".into(), |row| {
            format!("greatest error {} ({})", table::error(row), escape(&row.id))
        });
        format!(
            "<div class=\"tile\"><span>{title}</span><b>{within} of {compared} within {FIT_PERCENT} %</b>\
             <span>{worst}</span><span>{rows} rows, {} of them without a published value</span></div>\n",
            rows - compared
        )
    };
    format!(
        "<header>\n<h1>Published figures and ours</h1>\n<p>On the simulated machines, {}; none was measured on the \
         published ones.</p>\n</header>\n<div class=\"tiles\">\n{}{}</div>\n",
        escape(&sentence(&fitted, &predicted)),
        tile("Fitted", &fitted),
        tile("Predicted", &predicted)
    )
}

/// The result of the figures, in a sentence.
fn sentence(fitted: &Spread<'_>, predicted: &Spread<'_>) -> String {
    let part = |what: &str, Spread { compared, within, worst, .. }: &Spread<'_>| match worst {
        Some(worst) => format!(
            "{within} of {compared} {what} with a published value lie within {FIT_PERCENT} % of it (the furthest is {}, \
             {})",
            worst.id,
            table::error(worst)
        ),
        None => format!("no {what} has a published value"),
    };
    format!("{}, and {}", part("rows that the constants were fitted to", fitted), part("predictions", predicted))
}

/// The deviation of a class of rows from the published values.
struct Spread<'a> {
    rows: usize,
    compared: usize,
    /// Within [`FIT_PERCENT`].
    within: usize,
    worst: Option<&'a Row>,
}

fn spread<'a>(rows: &[&'a Row], class: Class) -> Spread<'a> {
    let of_class = || rows.iter().copied().filter(move |row| row.class == class);
    let error = |row: &Row| row.error_percent.map_or(0.0, f64::abs);
    let compared = || of_class().filter(|row| row.error_percent.is_some());
    Spread {
        rows: of_class().count(),
        compared: compared().count(),
        within: compared().filter(|row| error(row) <= FIT_PERCENT).count(),
        worst: compared().max_by(|a, b| error(a).total_cmp(&error(b))),
    }
}

/// A bar for each row, starting at the published value; it points left if ours is less. Nothing without rows to
/// compare.
fn errors(rows: &[&Row]) -> String {
    let compared: Vec<(&Row, f64)> = rows.iter().copied().filter_map(|row| Some((row, row.error_percent?))).collect();
    let greatest = compared.iter().map(|(_, error)| error.abs()).fold(0.0, f64::max);
    if compared.is_empty() {
        return String::new();
    }
    let end = [FIT_PERCENT, 5.0, 10.0, 20.0, 50.0].into_iter().find(|&end| end >= greatest).unwrap_or(greatest.ceil());
    let band = FIT_PERCENT / end * 50.0;
    let mut html = format!(
        "<figure class=\"wide\"><figcaption>Ours against published; the band is ±{FIT_PERCENT} %, the ends ±{end} %\
         </figcaption><div class=\"bars\">\n"
    );
    for (row, error) in compared {
        let colour = if row.class == Class::Fitted { "s0" } else { "s1" };
        let class = row.class.name().trim_start_matches("simulated, ");
        let width = (error.abs() / end * 50.0).max(0.3);
        let left = if error < 0.0 { 50.0 - width } else { 50.0 };
        writeln!(
            html,
            "<div class=\"bar\"><span class=\"name\"><b>{}</b> {}</span><span class=\"rail\" title=\"{class}: {}\">\
             <u style=\"left:{:.2}%;width:{:.2}%\"></u><i class=\"{colour}\" style=\"left:{left:.2}%;width:{width:.2}%\">\
             </i></span><span class=\"total\">{}</span></div>",
            escape(&row.id),
            escape(&row.delivery),
            escape(&row.quantity),
            50.0 - band,
            2.0 * band,
            table::error(row)
        )
        .expect("a String takes all");
    }
    html + "</div><ul class=\"legend\"><li><i class=\"s0\"></i>fitted</li><li><i class=\"s1\"></i>predicted, informed, derived</li></ul></figure>\n"
}

fn span(value: f64, range: Interval) -> String {
    let of = |end| figure::plain_beside(value, end);
    format!("{} to {}", of(range.low), of(range.high))
}

fn table_of(rows: &[&Row], note: &str) -> String {
    let carried = rows.iter().any(|row| row.interval.is_some());
    let line = |r: &&Row| {
        let cells = [
            (escape(&r.id), false),
            (escape(&r.platform), false),
            (format!("<div class=\"words\">{}</div>", escape(&r.scenario)), false),
            (escape(r.from.as_ref().unwrap_or(&r.delivery)), false),
            (escape(&format!("{}, {}", r.quantity, r.unit)), false),
            (figure::plain(r.value), true),
            (r.ci95.map_or("–".into(), |half| figure::plain_beside(r.value, half)), true),
            (r.published.map_or("–".into(), figure::plain), true),
            (table::error(r), true),
        ];
        let interval = (r.interval.map_or("–".into(), |range| span(r.value, range)), true);
        row(cells.into_iter().chain(carried.then_some(interval)))
    };
    let header = [
        ("id", false),
        ("platform", false),
        ("scenario", false),
        (if rows.iter().all(|row| row.from.is_some()) { "from" } else { "delivery" }, false),
        ("quantity, unit", false),
        ("here", true),
        ("±", true),
        ("published", true),
        ("error", true),
    ];
    let interval = carried.then_some(("as far as the fitted rows let the constants move", true));
    let header: Vec<_> = header.into_iter().chain(interval).map(|(name, n)| (name.into(), n)).collect();
    let lines: String = rows.iter().map(line).collect();
    if lines.is_empty() { lines } else { html_table(&header, &lines) + note }
}

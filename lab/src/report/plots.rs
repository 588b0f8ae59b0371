//! Plots as inline SVG. Their colours are classes of the page's style sheet, so that they follow light and dark.

use std::fmt::Write;

/// One line of a plot.
pub(crate) struct Series {
    /// As the legend names it; its colour follows from its place in the list.
    pub name: String,
    /// (x, y), ascending in x; values that are not finite are left out.
    pub points: Vec<(f64, f64)>,
    /// Drawn dashed: a second reading of a series of the same colour.
    pub dashed: bool,
    /// Index of the colour.
    pub colour: usize,
}

/// The title of a plot and the labels of its axes.
pub(crate) struct Axes<'a> {
    pub title: &'a str,
    pub x: &'a str,
    pub y: &'a str,
    /// Prints a tick of the x axis.
    pub x_tick: fn(f64) -> String,
    /// Prints a tick of the y axis.
    pub y_tick: fn(f64) -> String,
}

/// One bar, stacked from parts.
pub(crate) struct Bar {
    pub name: String,
    /// Class of the fill, length, and tooltip.
    pub parts: Vec<(String, f64, String)>,
    /// Printed behind the bar.
    pub total: String,
}

const WIDTH: f64 = 440.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 44.0;
/// Most points of a line that are drawn as dots.
const DOTS_MAX: usize = 24;

/// Text that is safe in HTML, as content and in an attribute.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A line plot with both axes from zero, with its legend.
pub(crate) fn lines(axes: &Axes<'_>, series: &[Series]) -> String {
    let finite = || series.iter().flat_map(|s| &s.points).filter(|(x, y)| x.is_finite() && y.is_finite());
    let x_step = step(finite().map(|p| p.0).fold(0.0, f64::max));
    let y_step = step(finite().map(|p| p.1).fold(0.0, f64::max));
    let (x_end, y_end) = (x_step.1, y_step.1);
    let at = |x: f64, y: f64| {
        (LEFT + x / x_end * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - y / y_end * (HEIGHT - TOP - BOTTOM))
    };
    let mut svg = format!(
        "<figure><figcaption>{0}</figcaption><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{0}\">\n",
        escape(axes.title)
    );
    for y in ticks(y_step) {
        let (left, top) = at(0.0, y);
        line(&mut svg, "grid", (left, top), (WIDTH - RIGHT, top));
        text(&mut svg, "end", (left - 6.0, top + 4.0), &(axes.y_tick)(y));
    }
    for x in ticks(x_step) {
        let (left, bottom) = at(x, 0.0);
        line(&mut svg, "axis", (left, bottom), (left, bottom + 4.0));
        // The last one ends with the picture.
        let (anchor, at) = if x < x_end { ("middle", left) } else { ("end", WIDTH - 2.0) };
        text(&mut svg, anchor, (at, bottom + 17.0), &(axes.x_tick)(x));
    }
    line(&mut svg, "axis", at(0.0, 0.0), at(x_end, 0.0));
    text(&mut svg, "middle", ((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 8.0), axes.x);
    for series in series {
        polyline(&mut svg, axes, series, &at);
    }
    svg += "</svg>\n";
    let keys = series.iter().map(|s| (format!("line s{}{}", s.colour, if s.dashed { " dashed" } else { "" }), &s.name));
    svg + &legend(keys) + &format!("<p class=\"y\">Vertical: {}.</p></figure>\n", escape(axes.y))
}

/// Horizontal stacked bars on one scale, without a legend.
pub(crate) fn bars(title: &str, bars: &[Bar]) -> String {
    let length = |bar: &Bar| bar.parts.iter().map(|part| part.1).sum::<f64>();
    let longest = bars.iter().map(length).fold(0.0, f64::max);
    let mut html = format!("<figure class=\"wide\"><figcaption>{}</figcaption><div class=\"bars\">\n", escape(title));
    for bar in bars {
        let Bar { name, total, .. } = bar;
        write!(html, "<div class=\"bar\"><span class=\"name\">{}</span><span class=\"track\">", escape(name))
            .expect("a String takes all");
        for (class, size, hint) in bar.parts.iter().filter(|part| part.1 > 0.0) {
            let percent = size / longest * 100.0;
            write!(html, "<i class=\"{class}\" style=\"width:{percent:.3}%\" title=\"{}\"></i>", escape(hint))
                .expect("a String takes all");
        }
        writeln!(html, "</span><span class=\"total\">{}</span></div>", escape(total)).expect("a String takes all");
    }
    html + "</div></figure>\n"
}

/// Keys of colours with their names.
pub(crate) fn legend<'a>(keys: impl Iterator<Item = (String, &'a String)>) -> String {
    let key = |(class, name): (String, &String)| format!("<li><i class=\"{class}\"></i>{}</li>", escape(name));
    format!("<ul class=\"legend\">{}</ul>\n", keys.map(key).collect::<String>())
}

/// A round step and the end of an axis that holds `greatest`, in four to six steps.
fn step(greatest: f64) -> (f64, f64) {
    if greatest <= 0.0 {
        return (1.0, 1.0);
    }
    let magnitude = 10f64.powf((greatest / 4.0).log10().floor());
    let round = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|m| m * magnitude * 5.0 >= greatest).unwrap_or(10.0);
    let step = round * magnitude;
    (step, (greatest / step).ceil() * step)
}

fn ticks((step, end): (f64, f64)) -> impl Iterator<Item = f64> {
    (0..=(end / step).round() as u32).map(move |n| f64::from(n) * step)
}

fn line(svg: &mut String, class: &str, from: (f64, f64), to: (f64, f64)) {
    let ((x1, y1), (x2, y2)) = (from, to);
    writeln!(svg, "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>")
        .expect("a String takes all");
}

fn text(svg: &mut String, anchor: &str, (x, y): (f64, f64), content: &str) {
    writeln!(svg, "<text text-anchor=\"{anchor}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escape(content))
        .expect("a String takes all");
}

fn polyline(svg: &mut String, axes: &Axes<'_>, series: &Series, at: &impl Fn(f64, f64) -> (f64, f64)) {
    let finite: Vec<(f64, f64)> =
        series.points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite()).collect();
    let places = finite.iter().map(|&(x, y)| at(x, y));
    let joined: Vec<String> = places.clone().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let (colour, dashed) = (series.colour, if series.dashed { " dashed" } else { "" });
    writeln!(svg, "<polyline class=\"line s{colour}{dashed}\" points=\"{}\"/>", joined.join(" "))
        .expect("a String takes all");
    // With few points, each measurement gets a dot; many points form a curve over time. Either way each has its values as
    // a tooltip, over a place that is large enough to point at.
    let dot = if finite.len() <= DOTS_MAX { "dot" } else { "hidden dot" };
    for ((x, y), &(x_value, y_value)) in places.zip(&finite) {
        writeln!(
            svg,
            "<g><circle class=\"{dot} s{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.6\"/><circle class=\"target\" \
             cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"9\"/><title>{}: {}, {}</title></g>",
            escape(&series.name),
            escape(&(axes.x_tick)(x_value)),
            escape(&(axes.y_tick)(y_value)),
        )
        .expect("a String takes all");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_a_round_value_that_holds_all() {
        for (greatest, expected) in [(8.7, (2.0, 10.0)), (1.0, (0.2, 1.0)), (230.0, (50.0, 250.0)), (0.0, (1.0, 1.0))] {
            let (step, end) = step(greatest);
            assert!((step - expected.0).abs() < 1e-9 && (end - expected.1).abs() < 1e-9, "{greatest}: {step}, {end}");
            assert!(ticks((step, end)).count() <= 7);
        }
    }
}

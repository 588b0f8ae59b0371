//! Figures as a person reads them: four digits, a prefix, a confidence on the same scale.

use crate::outcome::{Estimate, Unit};
use std::fmt;

/// A count with its noun, whose plural ends in `s`: `1 point`, `2 points`.
pub(crate) fn counted<N: fmt::Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let end = if count == N::from(1) { "" } else { "s" };
    format!("{count} {noun}{end}")
}

/// `is` or `are`, behind a count.
pub(crate) fn are<N: PartialEq + From<u8>>(count: N) -> &'static str {
    if count == N::from(1) { "is" } else { "are" }
}

/// A scale on which a figure is printed.
struct Scale {
    factor: f64,
    suffix: &'static str,
}

const fn scale(factor: f64, suffix: &'static str) -> Scale {
    Scale { factor, suffix }
}

/// Largest first; the last one takes everything smaller.
fn scales(unit: Unit) -> &'static [Scale] {
    match unit {
        Unit::PerSecond => const { &[scale(1e9, " G"), scale(1e6, " M"), scale(1e3, " k"), scale(1.0, "")] },
        Unit::BytesPerSecond => {
            const { &[scale(1e9, " GB/s"), scale(1e6, " MB/s"), scale(1e3, " kB/s"), scale(1.0, " B/s")] }
        }
        Unit::Percent => const { &[scale(1.0, " %")] },
        Unit::Ratio => const { &[scale(1.0, "")] },
        Unit::Nanoseconds => const { &[scale(1e9, " s"), scale(1e6, " ms"), scale(1e3, " µs"), scale(1.0, " ns")] },
    }
}

fn scale_of(unit: Unit, value: f64) -> &'static Scale {
    let scales = scales(unit);
    scales.iter().find(|scale| value.abs() >= scale.factor).unwrap_or(&scales[scales.len() - 1])
}

/// Decimals that give four digits; shares and plain ratios keep two at most.
fn decimals(unit: Unit, scaled: f64) -> usize {
    let most = if matches!(unit, Unit::Percent | Unit::Ratio) { 2 } else { 3 };
    match scaled.abs() {
        x if x >= 1000.0 => 0,
        x if x >= 100.0 => 1.min(most),
        x if x >= 10.0 => 2.min(most),
        _ => most,
    }
}

/// A value with its prefix and unit: `2.184 M`, `230.1 µs`, `84.21 %`.
pub(crate) fn value(unit: Unit, value: f64) -> String {
    let scale = scale_of(unit, value);
    let scaled = value / scale.factor;
    format!("{scaled:.*}{}", decimals(unit, scaled), scale.suffix)
}

/// A mean with its confidence on the same scale: `2.184 ±0.009 M`; of one seed without it, `–` of nothing.
pub(crate) fn estimate(unit: Unit, estimate: Option<Estimate>) -> String {
    let Some(Estimate { mean, ci95, .. }) = estimate else { return "–".into() };
    let scale = scale_of(unit, mean);
    let scaled = mean / scale.factor;
    let decimals = decimals(unit, scaled);
    let confidence = ci95.map(|half| format!(" ±{:.decimals$}", half / scale.factor)).unwrap_or_default();
    format!("{scaled:.decimals$}{confidence}{}", scale.suffix)
}

/// How `now` compares with `before`: `+35.2 %`, of shares in points: `-12.4 pt`. Nothing against zero.
pub(crate) fn change(unit: Unit, before: Option<Estimate>, now: Option<Estimate>) -> Option<String> {
    let (before, now) = (before?.mean, now?.mean);
    match unit {
        Unit::Percent => Some(format!("{} pt", signed(now - before))),
        _ if before == 0.0 => None,
        _ => Some(format!("{} %", signed((now / before - 1.0) * 100.0))),
    }
}

/// With its sign and one decimal; never `-0.0`.
pub(crate) fn signed(value: f64) -> String {
    format!("{:+.1}", if value.abs() < 0.05 { 0.0 } else { value })
}

/// A figure in a published unit: `1,991,000`, `313.0`, `3.25`.
pub(crate) fn plain(value: f64) -> String {
    plain_beside(value, value)
}

/// A figure with as many decimals as its greater neighbour has: a confidence beside its mean.
pub(crate) fn plain_beside(neighbour: f64, value: f64) -> String {
    match neighbour.abs() {
        x if x >= 10_000.0 => thousands(value),
        x if x >= 100.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A duration in ns, without trailing zeros: `33 s`, `1.5 ms`.
pub(crate) fn duration(ns: f64) -> String {
    let scale = scale_of(Unit::Nanoseconds, ns);
    format!("{}{}", (ns / scale.factor * 1000.0).round() / 1000.0, scale.suffix)
}

fn thousands(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
    for (at, digit) in digits.chars().enumerate() {
        if at != 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 { format!("-{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_digits_and_a_prefix() {
        assert_eq!(value(Unit::PerSecond, 2_184_200.0), "2.184 M");
        assert_eq!(value(Unit::PerSecond, 185_300.0), "185.3 k");
        assert_eq!(value(Unit::PerSecond, 0.0), "0.000");
        assert_eq!(value(Unit::Nanoseconds, 313_000.0), "313.0 µs");
        assert_eq!(value(Unit::Percent, 84.214), "84.21 %");
        assert_eq!(value(Unit::BytesPerSecond, 13.3e9), "13.30 GB/s");
    }

    #[test]
    fn confidence_is_on_the_scale_of_its_mean() {
        let of = |mean, ci95| estimate(Unit::PerSecond, Some(Estimate { mean, ci95, seeds: 3 }));
        assert_eq!(of(2_184_200.0, Some(9_400.0)), "2.184 ±0.009 M");
        assert_eq!(of(2_184_200.0, None), "2.184 M");
        assert_eq!(estimate(Unit::Ratio, None), "–");
    }

    #[test]
    fn changes() {
        let of = |mean| Some(Estimate { mean, ci95: None, seeds: 1 });
        assert_eq!(change(Unit::PerSecond, of(2.0), of(3.0)).unwrap(), "+50.0 %");
        assert_eq!(change(Unit::Percent, of(100.0), of(75.0)).unwrap(), "-25.0 pt");
        assert_eq!(change(Unit::PerSecond, of(0.0), of(3.0)), None);
    }

    #[test]
    fn one_is_no_plural() {
        assert_eq!([0_u64, 1, 2].map(|count| counted(count, "I/O")), ["0 I/Os", "1 I/O", "2 I/Os"]);
        assert_eq!([0_usize, 1, 2].map(are), ["are", "is", "are"]);
    }

    #[test]
    fn published_figures_as_published() {
        assert_eq!(plain(1_991_000.0), "1,991,000");
        assert_eq!(plain(-12_345.6), "-12,346");
        assert_eq!(plain_beside(1_991_000.0, 9_400.0), "9,400");
        assert_eq!(signed(-0.04), "+0.0");
        assert_eq!(plain(313.0), "313.0");
        assert_eq!(plain(3.25), "3.25");
        assert_eq!(
            (duration(33e9).as_str(), duration(1.5e6).as_str(), duration(0.0).as_str()),
            ("33 s", "1.5 ms", "0 ns")
        );
    }
}

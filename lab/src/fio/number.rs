//! Numbers as fio reads them: the C library's habits, units of bytes and time, expressions in parentheses.

use super::expression;
use super::lines::is_blank;

/// The longest text of a floating-point number that is looked at.
const FLOAT_BYTES_MAX: usize = 64;

/// The unit of a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Bytes, or a plain number: k, m, g, t, p.
    Bytes,
    /// A time, read in microseconds: us, ms, s, m, h, d.
    Time {
        /// Microseconds of a bare number.
        bare_us: i64,
    },
}

/// A number that has been read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Number {
    /// Its value; a time is in microseconds.
    pub value: i64,
    /// True for `50%`.
    pub is_percent: bool,
    /// What a reader of the file may not expect.
    pub odd: Option<String>,
}

impl Number {
    /// Reads `text` as fio does. With `kb_base` 1024, fio's default, `k` and `kb` are 1024 and `kib` is 1000; with 1000
    /// it is the other way round.
    ///
    /// # Errors
    /// There is no number, or it is too large: the rest of the sentence "`value` …".
    pub(super) fn read(text: &str, unit: Unit, kb_base: u64) -> Result<Self, &'static str> {
        if text.starts_with('(') {
            let value = expression::evaluate(text, unit)?;
            return Ok(Self { value, is_percent: false, odd: None });
        }
        let (number, rest) = integer(text).ok_or(if text.is_empty() { "has no value" } else { "is not a number" })?;
        let suffix = if text.contains("0x") || text.contains("0X") { "" } else { rest };
        let (factor, is_known) = match unit {
            Unit::Bytes => bytes(suffix, kb_base),
            Unit::Time { bare_us } => time(suffix, bare_us),
        };
        let value = number.checked_mul(factor).ok_or("is too large")?;
        let is_percent = unit == Unit::Bytes && suffix.starts_with('%');
        let odd = match unit {
            _ if is_known => None,
            Unit::Bytes => Some(format!("fio reads `{text}` as {value}")),
            Unit::Time { .. } => Some(format!("fio does not know the unit of `{text}` and reads {value} us")),
        };
        Ok(Self { value, is_percent, odd })
    }

    /// What fio makes of a number that reads otherwise, for an error: `1.5G` is 1. Empty if it is what it seems.
    pub(super) fn as_read(&self) -> String {
        self.odd.as_ref().map_or(String::new(), |odd| format!(" ({odd}: it takes whole numbers alone)"))
    }
}

/// The C library's whole number at the start of `text` (hexadecimal if `text` has a `0x`), and what follows it. A number
/// beyond 64 bits is none.
pub(super) fn integer(text: &str) -> Option<(i64, &str)> {
    let trimmed = text.trim_start_matches(is_blank);
    let (sign, digits) = match trimmed.as_bytes().first() {
        Some(b'-') => (-1i64, &trimmed[1..]),
        Some(b'+') => (1, &trimmed[1..]),
        _ => (1, trimmed),
    };
    let is_hex = text.contains("0x") || text.contains("0X");
    let body = if is_hex { digits.strip_prefix("0x").or(digits.strip_prefix("0X")).unwrap_or(digits) } else { digits };
    let is_digit = |c: char| if is_hex { c.is_ascii_hexdigit() } else { c.is_ascii_digit() };
    let end = body.find(|c| !is_digit(c)).unwrap_or(body.len());
    let value = i64::from_str_radix(&body[..end], if is_hex { 16 } else { 10 }).ok()?;
    Some((sign * value, &body[end..]))
}

/// The C library's floating-point number at the start of `text`.
pub(super) fn float(text: &str) -> Option<f64> {
    let text = text.trim_start_matches(is_blank);
    let ends = (1..=text.len().min(FLOAT_BYTES_MAX)).rev().filter(|&end| text.is_char_boundary(end));
    ends.map(|end| &text[..end]).find_map(|start| {
        let last = start.as_bytes()[start.len() - 1];
        if last.is_ascii_digit() || last == b'.' { start.parse().ok() } else { None }
    })
}

/// The factor of a suffix of bytes, and whether the whole suffix is one that fio means.
fn bytes(suffix: &str, kb_base: u64) -> (i64, bool) {
    let end = suffix.find([':', '-', ',', '/']).unwrap_or(suffix.len());
    let lower = suffix[..end].to_ascii_lowercase();
    let Some(first) = lower.chars().next() else { return (1, true) };
    if first == '%' {
        return (1, true);
    }
    let Some(power) = "kmgtp".find(first) else { return (1, false) };
    let is_swapped = lower[1..].starts_with("ib");
    let base: i64 = if (kb_base == 1024) == is_swapped { 1000 } else { 1024 };
    (base.pow(power as u32 + 1), matches!(&lower[1..], "" | "b" | "ib"))
}

/// The factor of a suffix of time, and whether the whole suffix is one that fio means.
fn time(suffix: &str, bare_us: i64) -> (i64, bool) {
    if !suffix.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return (bare_us, suffix.is_empty() || suffix.starts_with(['-', ':', ',']));
    }
    let lower = suffix.to_ascii_lowercase();
    match lower.as_str() {
        "s" => (1_000_000, true),
        "m" => (60_000_000, true),
        "h" => (3_600_000_000, true),
        "d" => (86_400_000_000, true),
        _ if lower.starts_with("us") => (1, matches!(lower.as_str(), "us" | "usec")),
        _ if lower.starts_with("ms") => (1000, matches!(lower.as_str(), "ms" | "msec")),
        _ => (1, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str, kb_base: u64) -> Result<i64, &'static str> {
        Number::read(text, Unit::Bytes, kb_base).map(|number| number.value)
    }

    #[test]
    fn sizes_are_fios() {
        let cases = [
            ("4096", 4096),
            ("4k", 4096),
            ("4K", 4096),
            ("4kb", 4096),
            // fio knows `kib` only: `ki` is a `k` and an `i` that it does not read.
            ("4ki", 4096),
            ("4KiB", 4000),
            ("4 k", 4),
            ("4x", 4),
            ("0x200", 512),
            ("1m", 1 << 20),
            ("2g", 2 << 30),
            ("-4", -4),
        ];
        for (text, bytes) in cases {
            assert_eq!(value(text, 1024), Ok(bytes), "{text}");
        }
        assert_eq!((value("4k", 1000), value("4KiB", 1000)), (Ok(4000), Ok(4096)));
        assert_eq!(value("9999999p", 1024), Err("is too large"));
        for text in ["", "k", "-", "99999999999999999999"] {
            assert!(value(text, 1024).is_err(), "{text}");
        }
    }

    #[test]
    fn a_unit_that_fio_does_not_read_is_odd() {
        let odd = |text| Number::read(text, Unit::Bytes, 1024).unwrap().odd;
        assert_eq!((odd("4k"), odd("4kib"), odd("50%")), (None, None, None));
        assert_eq!(odd("4Ki").unwrap(), "fio reads `4Ki` as 4096");
        let time = |text| Number::read(text, Unit::Time { bare_us: 1_000_000 }, 1024).unwrap();
        assert_eq!((time("30").value, time("5m").value, time("500ms").value), (30_000_000, 300_000_000, 500_000));
        assert_eq!(time("10sec").odd.unwrap(), "fio does not know the unit of `10sec` and reads 10 us");
    }

    #[test]
    fn floats_end_where_the_c_library_ends() {
        assert_eq!((float("1.2:0.5"), float("99."), float("x"), float("")), (Some(1.2), Some(99.0), None, None));
        assert_eq!((float("5e"), float("1e3z")), (Some(5.0), Some(1000.0)));
    }
}

//! Quantities with their units, as text: `"2 ms"`, `"13.3 GB/s"`, `"4 KiB"`.

use crate::input::InputError;
use crate::setting::Setting;

/// The dimension of a quantity, which decides its units and its base.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Base: nanoseconds.
    Time,
    /// Base: bytes a second.
    ByteRate,
    /// Base: bytes.
    Size,
    /// A whole number of things, without a unit.
    Count,
    /// A plain factor, without a unit.
    Ratio,
    /// Per cent.
    Percent,
    /// `true` or `false`.
    Flag,
    /// When a drive sends again: a word.
    Resend,
}

impl Unit {
    /// The names of its units, each with its size in the base.
    pub fn names(self) -> &'static [(&'static str, f64)] {
        match self {
            Self::Time => &[("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9), ("ps", 1e-3)],
            Self::ByteRate => &[("B/s", 1.0), ("kB/s", 1e3), ("MB/s", 1e6), ("GB/s", 1e9), ("GiB/s", 1_073_741_824.0)],
            Self::Size => &[("B", 1.0), ("KiB", 1024.0), ("MiB", 1_048_576.0), ("kB", 1e3), ("MB", 1e6)],
            Self::Percent => &[("%", 1.0)],
            Self::Count | Self::Ratio => &[("", 1.0)],
            Self::Flag => &[("true", 1.0), ("false", 0.0)],
            Self::Resend => &[("per_entry", 0.0), ("per_unacknowledged_batch", 1.0), ("after_doorbell", 2.0)],
        }
    }

    /// Whether its values are words instead of numbers.
    fn is_word(self) -> bool {
        matches!(self, Self::Flag | Self::Resend)
    }

    /// A value in the base unit, printed with the most readable unit.
    pub fn format(self, value: f64) -> String {
        if self.is_word() {
            let name = self.names().iter().find(|(_, of)| *of == value).map(|(name, _)| *name);
            return name.unwrap_or_default().to_owned();
        }
        let mut best = self.names()[0];
        for &(name, size) in self.names() {
            if size <= value.abs() && size > best.1 && name != "µs" && !(self == Self::ByteRate && name.contains('i'))
            {
                best = (name, size);
            }
        }
        let space = if best.0.is_empty() { "" } else { " " };
        format!("{}{space}{}", (value / best.1 * 1e6).round() / 1e6, best.0)
    }

    /// Reads a setting as a quantity from `min` to `max` (in the base unit).
    ///
    /// # Errors
    /// The text has no number, no unit or a wrong unit, is not whole where it must be, or is out of bounds.
    pub fn read(self, setting: &Setting, min: f64, max: f64) -> Result<f64, InputError> {
        let valid = self.valid(min, max);
        let wrong = |why: &str| InputError::value(&setting.place, &setting.key, &setting.text, why, valid.as_str());
        let text = setting.text.trim();
        if self.is_word() {
            let word = self.names().iter().find(|(name, _)| *name == text);
            let why = if self == Self::Flag { "is neither true nor false" } else { "is no mode" };
            return word.map(|&(_, value)| value).ok_or_else(|| wrong(why));
        }
        let (number, unit) = text.split_at(number_len(text));
        let number: f64 = number.replace('_', "").parse().map_err(|_| wrong("is not a number"))?;
        // Unicode has two signs of micro that look the same: U+00B5, and Greek mu, which it prefers.
        let unit = unit.trim().replace('\u{3bc}', "\u{b5}");
        let Some(&(_, size)) = self.names().iter().find(|(name, _)| *name == unit) else {
            return Err(match unit.as_str() {
                "" => wrong("has no unit"),
                unit => wrong(&format!("has the wrong unit `{unit}`")),
            });
        };
        let value = number * size;
        if number < 0.0 && min >= 0.0 {
            return Err(wrong("is negative"));
        }
        if !(min..=max).contains(&value) {
            return Err(wrong("is out of bounds"));
        }
        if matches!(self, Self::Count | Self::Size) && value.fract() != 0.0 {
            return Err(wrong("is not whole"));
        }
        Ok(value)
    }

    /// The valid values, in words.
    pub fn valid(self, min: f64, max: f64) -> String {
        let kind = match self {
            Self::Flag => return "true or false".into(),
            Self::Resend => return self.names().iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
            Self::Count => "a whole number",
            Self::Ratio => "a number",
            Self::Percent => "a percentage such as \"40 %\"",
            Self::Time => "a time with ns, us, ms or s",
            Self::ByteRate => "a rate with B/s, kB/s, MB/s or GB/s",
            Self::Size => "a size with B, KiB or MiB",
        };
        format!("{kind}, from {} to {}", self.format(min), self.format(max))
    }
}

/// The length of the number at the beginning of a text, with its exponent: that of `1e-5 s` is 4.
pub(super) fn number_len(text: &str) -> usize {
    let is_sign = |c: char| matches!(c, '+' | '-');
    let digits = text.find(|c: char| !matches!(c, '0'..='9' | '.' | '_') && !is_sign(c)).unwrap_or(text.len());
    let exponent = text[digits..].strip_prefix(['e', 'E']).map(|rest| rest.strip_prefix(is_sign).unwrap_or(rest));
    let Some(exponent) = exponent.filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) else { return digits };
    let end = exponent.find(|c: char| !c.is_ascii_digit()).unwrap_or(exponent.len());
    text.len() - exponent.len() + end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::Place;

    fn read(unit: Unit, text: &str) -> Result<f64, String> {
        let setting = Setting::new(Place::line("p.toml", 7), "cpu.eoi", text);
        unit.read(&setting, 0.0, 1e6).map_err(|error| error.to_string())
    }

    #[test]
    fn quantities_are_read_in_their_base() {
        assert_eq!(read(Unit::Time, "30 ns"), Ok(30.0));
        assert_eq!(read(Unit::Time, "0.5us"), Ok(500.0));
        for (text, expected) in [("1e-7 s", 100.0), ("1E2 ns", 100.0), ("2.5e+2ns", 250.0)] {
            assert_eq!(read(Unit::Time, text), Ok(expected), "{text}");
        }
        assert!(read(Unit::Time, "1e s").unwrap_err().contains("the wrong unit `e s`"));
        assert!(read(Unit::Time, "1e400 s").unwrap_err().contains("out of bounds"));
        assert_eq!(read(Unit::Time, "0.5 \u{b5}s"), Ok(500.0));
        assert_eq!(read(Unit::Time, "0.5 \u{3bc}s"), Ok(500.0));
        assert_eq!(read(Unit::Size, "4 KiB"), Ok(4096.0));
        assert_eq!(read(Unit::Count, "1_000"), Ok(1000.0));
        assert_eq!(read(Unit::Flag, "true"), Ok(1.0));
        assert_eq!(read(Unit::Resend, "after_doorbell"), Ok(2.0));
        assert_eq!(Unit::Resend.format(1.0), "per_unacknowledged_batch");
        assert_eq!(Unit::ByteRate.format(13.3e9), "13.3 GB/s");
        assert_eq!(Unit::Time.format(112.0), "112 ns");
        assert_eq!(Unit::Time.format(2e6), "2 ms");
    }

    #[test]
    fn a_wrong_unit_or_value_says_what_would_do() {
        let valid = "valid: a time with ns, us, ms or s, from 0 ns to 1 ms";
        assert_eq!(read(Unit::Time, "30"), Err(format!("p.toml:7: cpu.eoi: `30` has no unit; {valid}")));
        assert_eq!(
            read(Unit::Time, "30 GHz"),
            Err(format!("p.toml:7: cpu.eoi: `30 GHz` has the wrong unit `GHz`; {valid}"))
        );
        assert_eq!(read(Unit::Time, "-30 ns"), Err(format!("p.toml:7: cpu.eoi: `-30 ns` is negative; {valid}")));
        assert_eq!(read(Unit::Time, "3 s"), Err(format!("p.toml:7: cpu.eoi: `3 s` is out of bounds; {valid}")));
        assert_eq!(read(Unit::Time, "soon"), Err(format!("p.toml:7: cpu.eoi: `soon` is not a number; {valid}")));
        assert_eq!(
            read(Unit::Count, "1.5"),
            Err("p.toml:7: cpu.eoi: `1.5` is not whole; valid: a whole number, from 0 to 1000000".into())
        );
        assert_eq!(
            read(Unit::Resend, "sometimes"),
            Err("p.toml:7: cpu.eoi: `sometimes` is no mode; \
                 valid: per_entry, per_unacknowledged_batch, after_doorbell"
                .into())
        );
        assert_eq!(
            read(Unit::Flag, "maybe"),
            Err("p.toml:7: cpu.eoi: `maybe` is neither true nor false; valid: true or false".into())
        );
    }
}

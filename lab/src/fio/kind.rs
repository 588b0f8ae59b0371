//! The types of fio's values, and which texts they take (fio's `parse.c`).

use super::number::{Number, Unit, float, integer};
use super::special;

/// Longest list of floats that fio keeps, if the table does not say another.
const FLOATS_MAX: usize = 20;

/// The type of an option's value, with fio's bounds. A bound of 0 is none, as in fio.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ValueKind {
    /// Any text.
    Store,
    /// A text with a grammar of its own.
    Text,
    /// One of these words; some take more after a `:`.
    Values(Vec<&'static str>),
    /// Some of these words, separated by commas.
    Multi(Vec<&'static str>),
    /// One to three numbers, for reads, writes and trims.
    Numbers {
        /// The unit of a bare number.
        unit: Unit,
        /// The least.
        min: i64,
        /// The most.
        max: i64,
        /// True for 32-bit numbers.
        is_int: bool,
        /// Must be a power of two.
        pow2: bool,
        /// May be two numbers, the least and the most of what is drawn.
        is_range: bool,
    },
    /// Bytes, a percentage (`50%`) or zones (`3z`).
    Size,
    /// One to three ranges: `4k-16k`.
    Range,
    /// Numbers separated by `:`, within thousandths of these bounds.
    Floats {
        /// The least, in thousandths.
        min_milli: i64,
        /// The most, in thousandths; 0 with `min_milli` 0: unbounded.
        max_milli: i64,
        /// The most numbers; fio leaves further ones out.
        most: usize,
    },
    /// 0 or 1.
    Bool,
    /// A bare name, or a number: 0 is false.
    Set,
    /// Removed from fio. True if fio still takes it.
    Deprecated(bool),
}

/// Why a value is refused: the rest of the sentence "`value` …", and what would be valid.
pub type Wrong = (String, String);

impl ValueKind {
    /// The type as the table writes it.
    pub(super) fn read(text: &'static str) -> Option<Self> {
        let mut words = text.split(' ');
        let (name, rest): (_, Vec<&'static str>) = (words.next()?, words.collect());
        let list = || rest.first().map_or(Vec::new(), |values| values.split(',').collect());
        let numbers = |unit: Unit, is_int: bool| -> Option<Self> {
            let (mut unit, mut min, mut max, mut pow2, mut is_range) = (unit, 0, 0, false, false);
            for word in &rest {
                match (*word, word.split_once("..")) {
                    ("s", _) => unit = Unit::Time { bare_us: 1_000_000 },
                    ("us", _) => unit = Unit::Time { bare_us: 1 },
                    ("pow2", _) => pow2 = true,
                    ("range", _) => is_range = true,
                    (_, Some((low, high))) => {
                        min = low.parse().ok()?;
                        max = if high.is_empty() { 0 } else { high.parse().ok()? };
                    }
                    _ => return None,
                }
            }
            Some(Self::Numbers { unit, min, max, is_int, pow2, is_range })
        };
        match name {
            "store" => Some(Self::Store),
            "text" => Some(Self::Text),
            "values" => Some(Self::Values(list())),
            "multi" => Some(Self::Multi(list())),
            "int" => numbers(Unit::Bytes, true),
            "ull" | "bytes" => numbers(Unit::Bytes, false),
            "time" => numbers(Unit::Time { bare_us: 1 }, false),
            "size" => Some(Self::Size),
            "range" => Some(Self::Range),
            "bool" => Some(Self::Bool),
            "set" => Some(Self::Set),
            "deprecated" => Some(Self::Deprecated(rest.first() == Some(&"soft"))),
            "floats" => {
                let milli = |text: &str| Some((float(text)? * 1000.0) as i64);
                let (mut min_milli, mut max_milli, mut most) = (0, 0, FLOATS_MAX);
                for word in &rest {
                    match word.split_once("..") {
                        Some((low, high)) => (min_milli, max_milli) = (milli(low)?, milli(high)?),
                        None => most = word.parse().ok()?,
                    }
                }
                Some(Self::Floats { min_milli, max_milli, most })
            }
            _ => None,
        }
    }

    /// Checks a value as fio does, and returns what is odd in a value that fio takes. `name` is the option's main name,
    /// `text` is none for a bare name.
    ///
    /// # Errors
    /// fio refuses the value.
    pub fn check(&self, name: &str, text: Option<&str>, kb_base: u64) -> Result<Vec<String>, Wrong> {
        if matches!(self, Self::Numbers { is_range: true, .. })
            && let Some((least, most)) = text.and_then(|text| text.split_once(['-', ':']))
            && !least.is_empty()
        {
            let ends = [least, most].map(|end| self.check(name, Some(end), kb_base));
            return ends.into_iter().collect::<Result<Vec<_>, _>>().map(|odd| odd.concat());
        }
        let Some(text) = text else { return self.bare(name) };
        match self {
            Self::Store if text.is_empty() => Err(("has no value".into(), format!("{name}=…"))),
            Self::Store | Self::Text => special::check(name, text, kb_base),
            Self::Values(values) => {
                let mut odd = one_of(values, text)?;
                odd.extend(special::check(name, text, kb_base)?);
                Ok(odd)
            }
            Self::Multi(values) => {
                let good = text.split(',').any(|part| one_of(values, part).is_ok());
                if good { Ok(Vec::new()) } else { one_of(values, text) }
            }
            Self::Deprecated(true) => Ok(vec!["fio takes it and does not use it".into()]),
            Self::Deprecated(false) => Err(("is no option any more".into(), "a job without it".into())),
            Self::Range => self.parts(text, |_, part| range(part, kb_base)),
            Self::Floats { .. } => self.parts(text, |at, part| self.float(at, part)),
            Self::Bool | Self::Set => self.parts(text, |_, part| self.flag(part)),
            Self::Numbers { .. } | Self::Size => {
                let mut odd = self.parts(text, |_, part| self.number(part, kb_base))?;
                odd.extend(special::check(name, text, kb_base)?);
                Ok(odd)
            }
        }
    }

    /// A bare name.
    fn bare(&self, name: &str) -> Result<Vec<String>, Wrong> {
        match self {
            Self::Set => Ok(Vec::new()),
            Self::Text if name.starts_with("write_") => Ok(Vec::new()),
            Self::Deprecated(_) => self.check(name, Some(""), 1024),
            _ => Err(("has no value".into(), self.valid())),
        }
    }

    /// Reads every part of a value as fio does: one good part is enough, and a bad one beside it is left out.
    fn parts(
        &self,
        text: &str,
        read: impl Fn(usize, &str) -> Result<Vec<String>, Wrong>,
    ) -> Result<Vec<String>, Wrong> {
        let mut rest = Some(text);
        let (mut good, mut wrong, mut odd, mut at) = (false, None, Vec::new(), 0);
        let mut is_behind_sign = false;
        while let Some(part) = rest {
            let end = match self {
                Self::Floats { .. } => part.find(':'),
                Self::Range => part.find(','),
                _ => part.find(',').or_else(|| part.find(':')).or_else(|| part.find('-')),
            };
            // The sign of a number is a separator too, before which nothing stands. Behind it fio reads the number once more, without
            // its sign; what was read with it stays if that fails.
            match read(at, part) {
                Ok(more) => {
                    good = true;
                    odd.extend(more);
                }
                Err(why) => {
                    if !part.is_empty() && good && !is_behind_sign {
                        odd.push(format!("fio leaves out `{part}`, which {}", why.0));
                    }
                    wrong.get_or_insert(why);
                }
            }
            is_behind_sign = end == Some(0) && part.starts_with('-');
            rest = end.map(|end| &part[end + 1..]);
            at += 1;
        }
        match wrong {
            Some(wrong) if !good => Err(wrong),
            _ => Ok(odd),
        }
    }

    fn flag(&self, part: &str) -> Result<Vec<String>, Wrong> {
        let wrong = |why: &str| Err((why.to_owned(), "0 or 1".to_owned()));
        let part = part.split([',', ':']).next().unwrap_or_default();
        let Some((value, rest)) = integer(part) else { return wrong("is no boolean") };
        if *self == Self::Bool && value > 1 {
            return wrong("is out of bounds");
        }
        Ok(if rest.is_empty() || rest.starts_with('-') {
            vec![]
        } else {
            vec![format!("fio reads `{part}` as {value}")]
        })
    }

    fn number(&self, part: &str, kb_base: u64) -> Result<Vec<String>, Wrong> {
        let valid = || self.valid();
        let (unit, min, max, is_int, pow2) = match self {
            Self::Numbers { unit, min, max, is_int, pow2, .. } => (*unit, *min, *max, *is_int, *pow2),
            _ => (Unit::Bytes, 0, 0, false, false),
        };
        // fio looks at the end of the whole value, whatever stands between.
        if let Some(zones) = part.strip_suffix('z') {
            let is_zones = *self == Self::Size && zones.parse::<u64>().is_ok();
            let why = if *self == Self::Size { "is no number of zones" } else { "counts zones, which it cannot" };
            return if is_zones { Ok(Vec::new()) } else { Err((why.into(), valid())) };
        }
        let part = part.split(',').next().unwrap_or_default();
        let number = Number::read(part, unit, kb_base).map_err(|why| (why.to_owned(), valid()))?;
        let value = number.value;
        if pow2 && (value <= 0 || value & (value - 1) != 0) {
            return Err(("is no power of two".into(), "a power of two".into()));
        }
        if number.is_percent {
            let is_more =
                (value > 100).then(|| format!("is more than the whole: fio reads `{part}` as nearly 2^64 bytes"));
            return if *self == Self::Size {
                Ok(is_more.into_iter().collect())
            } else {
                Err(("is a percentage".into(), valid()))
            };
        }
        if is_int && u32::try_from(value.unsigned_abs()).is_err() {
            return Err((format!("is out of bounds{}", number.as_read()), valid()));
        }
        // fio keeps 32 bits and compares them with a sign: 2712M is below 0.
        let too_small = min != 0 && if is_int { i64::from(value as i32) < min } else { (value as u64) < min as u64 };
        if too_small || (max != 0 && value > max) {
            let why = if value < 0 { "is negative" } else { "is out of bounds" };
            return Err((format!("{why}{}", number.as_read()), valid()));
        }
        Ok(number.odd.into_iter().collect())
    }

    /// One number of a list.
    fn float(&self, at: usize, part: &str) -> Result<Vec<String>, Wrong> {
        let Self::Floats { min_milli, max_milli, most } = *self else { return Ok(Vec::new()) };
        if at >= most {
            return Err((format!("is beyond {most} numbers"), format!("at most {most}")));
        }
        let Some(value) = float(part) else { return Err(("is no number".into(), self.valid())) };
        let milli = (value * 1000.0) as i64;
        if (min_milli != 0 || max_milli != 0) && !(min_milli..=max_milli).contains(&milli) {
            return Err(("is out of bounds".into(), self.valid()));
        }
        Ok(Vec::new())
    }

    /// The valid values, for an error.
    pub fn valid(&self) -> String {
        match self {
            Self::Store | Self::Text => "a text".into(),
            Self::Values(values) | Self::Multi(values) => listed(values),
            Self::Numbers { unit: Unit::Time { .. }, .. } => "a time such as 30, 30s, 5m, 500ms or 10us".into(),
            Self::Numbers { min, max: 0, is_int, .. } => {
                let most = if *is_int { u64::from(u32::MAX) } else { i64::MAX as u64 };
                format!("a whole number from {min} to {most}")
            }
            Self::Numbers { min, max, .. } => format!("a whole number from {min} to {max}"),
            Self::Size => "a size such as 1g, 50% or 0".into(),
            Self::Range => "a range such as 4k-16k".into(),
            Self::Floats { max_milli: 0, .. } => "numbers separated by `:`".into(),
            Self::Floats { min_milli, max_milli, .. } => {
                format!("numbers from {} to {} separated by `:`", min_milli / 1000, max_milli / 1000)
            }
            Self::Bool => "0 or 1".into(),
            Self::Set => "the name alone, 0 or 1".into(),
            Self::Deprecated(_) => "a job without it".into(),
        }
    }
}

/// Words as a list in English.
fn listed(values: &[&str]) -> String {
    match values {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

/// A word of `values`, alone or before a `:` or `,`.
fn one_of(values: &[&str], text: &str) -> Result<Vec<String>, Wrong> {
    let end = text.find(',').or_else(|| text.find(':')).unwrap_or(text.len());
    // fio compares as many letters as the longer one has, so that a longer word is no match.
    if values.iter().any(|value| *value == &text[..end] || *value == text) {
        let is_list = text[end..].starts_with(',');
        return Ok(is_list.then(|| format!("fio reads `{text}` as `{}`", &text[..end])).into_iter().collect());
    }
    let why = if text.starts_with(' ') { "begins with a blank, which fio takes as part of it" } else { "is no value" };
    Err((why.into(), listed(values)))
}

fn range(part: &str, kb_base: u64) -> Result<Vec<String>, Wrong> {
    let wrong = |why: &str| (why.to_owned(), "a range such as 4k-16k".to_owned());
    let part = part.split(',').next().unwrap_or_default();
    let (low, high) = part.split_once('-').or_else(|| part.split_once(':')).ok_or_else(|| wrong("is no range"))?;
    let mut odd = Vec::new();
    for end in [low, high] {
        let number = Number::read(end, Unit::Bytes, kb_base).map_err(wrong)?;
        odd.extend(number.odd);
    }
    Ok(odd)
}

#[cfg(test)]
mod tests {
    use crate::fio::options;

    fn takes(name: &str, text: &str) -> bool {
        options::find(name).unwrap().kind.check(name, Some(text), 1024).is_ok()
    }

    #[test]
    fn numbers_of_32_bits_are_compared_with_a_sign() {
        // fio 3.33: "verify_interval: min value out of range: 2843738112 (80 min)".
        assert!(!takes("verify_interval", "2712M"));
        assert!(takes("verify_interval", "2047M") && takes("verify_interval", "80"));
        assert!(!takes("verify_interval", "79") && !takes("verify_offset", "3g"));
        // Without a least value there is nothing to compare with.
        assert!(takes("thinktime", "3000000000us"));
    }
}

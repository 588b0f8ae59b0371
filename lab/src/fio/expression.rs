//! Arithmetic in values: fio's expressions in parentheses, and the sums with `$ncpus` that it hands to `bc`.
//!
//! The grammar is fio's (`exp/expression-parser.y`): `+ -` bind least, then a suffix, then `* /`, `^`, `%`, and a sign
//! binds most. So `(1+2)*3k` is 9k, and `(1+2)+3k` is 3 + 3k.

use super::number::Unit;

/// Deepest nesting of parentheses and signs.
const DEPTH_MAX: u32 = 64;

/// The value of an expression in fio's units: microseconds of a time, in which a number without any unit has `unit`'s.
///
/// # Errors
/// It is no expression, divides by zero or is too large: the rest of the sentence "`value` …".
pub(super) fn evaluate(text: &str, unit: Unit) -> Result<i64, &'static str> {
    let is_time = matches!(unit, Unit::Time { .. });
    let mut reader = Reader { rest: text, suffixes: Some(is_time), has_unit: false };
    let value = reader.sum(0)?;
    reader.blanks();
    // fio takes no notice of what follows a comment sign or a separator.
    if !reader.rest.is_empty() && !reader.rest.starts_with(['#', ':', ',']) {
        return Err("is no expression");
    }
    let factor = match unit {
        Unit::Time { bare_us } if !reader.has_unit => bare_us as f64,
        _ => 1.0,
    };
    whole(value * factor)
}

/// The result of `bc` for a whole-number expression.
///
/// # Errors
/// It is no such expression, or divides by zero.
pub(super) fn calculate(text: &str) -> Result<i64, &'static str> {
    let mut reader = Reader { rest: text, suffixes: None, has_unit: false };
    let value = reader.sum(0)?;
    reader.blanks();
    if reader.rest.is_empty() { whole(value) } else { Err("is no sum of whole numbers") }
}

fn whole(value: f64) -> Result<i64, &'static str> {
    // A double holds every whole number up to 2^53; sizes stay below that.
    const MOST: f64 = (1u64 << 53) as f64;
    if value.abs() <= MOST { Ok(value as i64) } else { Err("is too large") }
}

struct Reader<'t> {
    rest: &'t str,
    /// Whether suffixes are times; none: there are no suffixes, and a quotient is whole.
    suffixes: Option<bool>,
    has_unit: bool,
}

impl Reader<'_> {
    fn blanks(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
    }

    fn take(&mut self, signs: &[char]) -> Option<char> {
        self.blanks();
        let sign = self.rest.chars().next().filter(|sign| signs.contains(sign))?;
        self.rest = &self.rest[1..];
        Some(sign)
    }

    fn sum(&mut self, depth: u32) -> Result<f64, &'static str> {
        let mut value = self.suffixed(depth)?;
        while let Some(sign) = self.take(&['+', '-']) {
            let other = self.suffixed(depth)?;
            value = if sign == '+' { value + other } else { value - other };
        }
        Ok(value)
    }

    fn suffixed(&mut self, depth: u32) -> Result<f64, &'static str> {
        let mut value = self.product(depth)?;
        let Some(is_time) = self.suffixes else { return Ok(value) };
        loop {
            self.blanks();
            let end = self.rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(self.rest.len());
            let Some(factor) = factor(&self.rest[..end], is_time) else { return Ok(value) };
            value *= factor;
            self.has_unit = true;
            self.rest = &self.rest[end..];
        }
    }

    fn product(&mut self, depth: u32) -> Result<f64, &'static str> {
        let mut value = self.power(depth)?;
        while let Some(sign) = self.take(&['*', '/']) {
            let other = self.power(depth)?;
            if sign == '/' && other == 0.0 {
                return Err("divides by zero");
            }
            let is_whole = value.fract() == 0.0 && other.fract() == 0.0;
            value = match sign {
                '*' => value * other,
                _ if is_whole => (value / other).trunc(),
                _ => value / other,
            };
        }
        Ok(value)
    }

    fn power(&mut self, depth: u32) -> Result<f64, &'static str> {
        if depth > DEPTH_MAX {
            return Err("nests too deeply");
        }
        let base = self.remainder(depth)?;
        match self.take(&['^']) {
            Some(_) => Ok(base.powf(self.power(depth + 1)?)),
            None => Ok(base),
        }
    }

    fn remainder(&mut self, depth: u32) -> Result<f64, &'static str> {
        let mut value = self.signed(depth)?;
        while self.take(&['%']).is_some() {
            let other = self.signed(depth)?;
            if other == 0.0 {
                return Err("divides by zero");
            }
            if value.fract() != 0.0 || other.fract() != 0.0 {
                return Err("takes the remainder of a fraction");
            }
            value %= other;
        }
        Ok(value)
    }

    fn signed(&mut self, depth: u32) -> Result<f64, &'static str> {
        if depth > DEPTH_MAX {
            return Err("nests too deeply");
        }
        if self.take(&['-']).is_some() {
            return Ok(-self.signed(depth + 1)?);
        }
        if self.take(&['(']).is_some() {
            let value = self.sum(depth + 1)?;
            return self.take(&[')']).map(|_| value).ok_or("has no closing parenthesis");
        }
        self.literal()
    }

    fn literal(&mut self) -> Result<f64, &'static str> {
        self.blanks();
        if let Some(hex) = self.rest.strip_prefix("0x").filter(|_| self.suffixes.is_some()) {
            let end = hex.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(hex.len());
            let value = u32::from_str_radix(&hex[..end], 16).map_err(|_| "has no number where one should be")?;
            self.rest = &hex[end..];
            return Ok(f64::from(value));
        }
        let is_part = |c: char| c.is_ascii_digit() || (c == '.' && self.suffixes.is_some());
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let value = self.rest[..end].parse().map_err(|_| "has no number where one should be")?;
        self.rest = &self.rest[end..];
        Ok(value)
    }
}

/// The factor of a suffix in an expression. Here `kib` is always 1000.
fn factor(suffix: &str, is_time: bool) -> Option<f64> {
    let lower = suffix.to_ascii_lowercase();
    let factor: u64 = match lower.as_str() {
        "us" => 1,
        "ms" => 1000,
        "s" => 1_000_000,
        "m" if is_time => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        "k" | "kb" => 1 << 10,
        "m" | "mb" => 1 << 20,
        "g" | "gb" => 1 << 30,
        "t" | "tb" => 1 << 40,
        "p" | "pb" => 1 << 50,
        "kib" => 1000,
        "mib" => 1_000_000,
        "gib" => 1_000_000_000,
        "pib" => 1_000_000_000_000,
        _ => return None,
    };
    Some(factor as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn precedence_is_fios() {
        let bytes = |text| evaluate(text, Unit::Bytes);
        assert_eq!(bytes("(1+2)*3k"), Ok(9216));
        assert_eq!(bytes("(1+2)+3k"), Ok(3 + 3072));
        assert_eq!(bytes("(2^10)"), Ok(1024));
        assert_eq!(bytes("(7/2)"), Ok(3));
        assert_eq!(bytes("(1.5*4k)"), Ok(6144));
        assert_eq!(bytes("(-3+5%3)"), Ok(-1));
        assert_eq!(bytes("(0x10)"), Ok(16));
        for text in ["(", "()", "(1", "(1)x", "(1/0)", "(1+)", "(1.5%2)"] {
            assert!(bytes(text).is_err(), "{text}");
        }
        assert!(bytes(&"(".repeat(100_000)).is_err(), "deep nesting ends");
    }

    #[test]
    fn a_time_without_a_unit_has_the_options_unit() {
        let seconds = |text| evaluate(text, Unit::Time { bare_us: 1_000_000 });
        assert_eq!((seconds("(2*3)"), seconds("(1m)"), seconds("(2*3ms)")), (Ok(6_000_000), Ok(60_000_000), Ok(6000)));
    }

    #[test]
    fn sums_for_bc_are_whole() {
        assert_eq!((calculate("8*2"), calculate("8/3"), calculate("(8-1)*2")), (Ok(16), Ok(2), Ok(14)));
        assert!(calculate("8*2k").is_err());
        assert!(calculate("/dev/8").is_err());
    }
}

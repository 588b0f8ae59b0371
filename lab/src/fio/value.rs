//! How fio writes numbers, sizes, times, booleans and CPU lists.

use super::Entry;
use crate::input::InputError;
use hal::{CpuId, CpuSet};
use std::ops::RangeInclusive;

/// The highest CPU number that a list may name.
const CPU_MAX: u32 = 4095;

impl Entry {
    /// An error about the value, or about the key if the key is bare.
    pub(super) fn wrong(&self, why: impl Into<String>, valid: impl Into<String>) -> InputError {
        let setting = &self.setting;
        let shown = if self.bare { &setting.key } else { &setting.text };
        InputError::value(&setting.place, &setting.key, shown, why, valid)
    }

    /// The text of an option that needs one.
    pub(super) fn text(&self, valid: &str) -> Result<&str, InputError> {
        match self.setting.text.as_str() {
            "" => Err(self.wrong("has no value", valid)),
            text => Ok(text),
        }
    }

    /// 0 or 1; a bare key is 1.
    pub(super) fn flag(&self) -> Result<bool, InputError> {
        match self.setting.text.as_str() {
            "" if self.bare => Ok(true),
            "1" | "true" => Ok(true),
            "0" | "false" => Ok(false),
            _ => Err(self.wrong("is no boolean", "0 or 1")),
        }
    }

    /// A whole number, with a size suffix if it has one.
    pub(super) fn number(&self, range: RangeInclusive<u64>, kb_base: u64) -> Result<u64, InputError> {
        let valid = format!("a whole number from {} to {}", range.start(), range.end());
        let text = self.text(&valid)?;
        if text.starts_with('-') {
            return Err(self.wrong("is negative", valid));
        }
        match size(text, kb_base) {
            Some(value) if range.contains(&value) => Ok(value),
            Some(_) => Err(self.wrong("is out of bounds", valid)),
            None => Err(self.wrong("is not a number", valid)),
        }
    }

    /// A time in nanoseconds; without a suffix it is in units of `bare_ns`.
    pub(super) fn time_ns(&self, bare_ns: u64) -> Result<u64, InputError> {
        let valid = "a time such as 30, 30s, 5m, 500ms or 10us";
        let text = self.text(valid)?;
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let unit_ns = match text[digits..].trim().to_ascii_lowercase().as_str() {
            "" => bare_ns,
            "us" | "usec" => 1_000,
            "ms" | "msec" => 1_000_000,
            "s" | "sec" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "d" => 86_400_000_000_000,
            _ => return Err(self.wrong("is no time", valid)),
        };
        let number: u64 = text[..digits].parse().map_err(|_| self.wrong("is no time", valid))?;
        number.checked_mul(unit_ns).ok_or_else(|| self.wrong("is too long", valid))
    }

    /// A list of CPUs: `0,2-4`.
    pub(super) fn cpus(&self) -> Result<CpuSet, InputError> {
        let valid = format!("CPU numbers and ranges up to {CPU_MAX}: 0-7 or 0,2-4");
        let wrong = |why: &str| self.wrong(why, valid.as_str());
        let number = |text: &str| match text.trim().parse::<u32>() {
            Ok(cpu) if cpu <= CPU_MAX => Ok(cpu),
            Ok(_) => Err(wrong("names a CPU out of bounds")),
            Err(_) => Err(wrong("is no list of CPUs")),
        };
        let mut set = CpuSet::new();
        for item in self.text(&valid)?.split(',') {
            let (first, last) = item.split_once('-').unwrap_or((item, item));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(wrong("has a range that ends before it begins"));
            }
            (first..=last).for_each(|cpu| set.insert(CpuId(cpu)));
        }
        Ok(set)
    }
}

/// A size: `4096`, `0x1000`, `4k`, `4kb`, `4ki`. With `kb_base=1024`, fio's default, `k` is 1024 and `ki` is 1000;
/// with `kb_base=1000` it is the other way round (HOWTO, "Parameter types", int).
fn size(text: &str, kb_base: u64) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    if let Some(hex) = text.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok();
    }
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let letters = suffix.strip_suffix('b').unwrap_or(suffix);
    let (letter, swapped) = match letters.strip_suffix('i') {
        Some(letter) => (letter, true),
        None => (letters, false),
    };
    let power = match letter {
        "" if !swapped => return Some(number),
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return None,
    };
    let other = if kb_base == 1024 { 1000 } else { 1024 };
    let base: u64 = if swapped { other } else { kb_base };
    number.checked_mul(base.checked_pow(power)?)
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_are_fios() {
        let cases = [("4096", 4096), ("4k", 4096), ("4K", 4096), ("4kb", 4096), ("4ki", 4000), ("4KiB", 4000)];
        for (text, bytes) in cases {
            assert_eq!(size(text, 1024), Some(bytes), "{text}");
        }
        assert_eq!(size("4k", 1000), Some(4000));
        assert_eq!(size("4KiB", 1000), Some(4096));
        assert_eq!(size("0x200", 1024), Some(512));
        assert_eq!(size("1m", 1024), Some(1 << 20));
        assert_eq!(size("2g", 1024), Some(2 << 30));
        for text in ["", "k", "4x", "4i", "-4", "99999999999999999999", "9999999p", "4 k"] {
            assert_eq!(size(text, 1024), None, "{text}");
        }
    }
}

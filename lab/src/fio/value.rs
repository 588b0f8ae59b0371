//! How fio writes numbers, sizes, times, booleans and CPU lists.

use super::Entry;
use super::lines::is_blank;
use super::number::{Number, Unit, integer};
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

    /// True for a weight of `flow` below 0, as older versions have it. fio 3.33 passes over it.
    pub(super) fn is_old_weight(&self) -> bool {
        self.setting.text.starts_with('-')
    }

    /// The text of an option that needs one.
    pub(super) fn text(&self, valid: &str) -> Result<&str, InputError> {
        match self.setting.text.as_str() {
            "" => Err(self.wrong("has no value", valid)),
            text => Ok(text),
        }
    }

    /// The word at the start of the value: what stands before a `,` or a `:`.
    pub(super) fn word(&self) -> &str {
        self.setting.text.split([',', ':']).next().unwrap_or_default()
    }

    /// 0 or 1; a bare key is 1.
    pub(super) fn flag(&self) -> Result<bool, InputError> {
        match self.setting.text.as_str() {
            "" if self.bare => Ok(true),
            "1" | "true" => Ok(true),
            "0" | "false" => Ok(false),
            text => match integer(text) {
                Some((value, _)) => Ok(value != 0),
                None => Err(self.wrong("is no boolean", "0 or 1")),
            },
        }
    }

    /// A whole number, with a size suffix if it has one.
    pub(super) fn number(&self, range: RangeInclusive<u64>, kb_base: u64) -> Result<u64, InputError> {
        let valid = format!("a whole number from {} to {}", range.start(), range.end());
        let number = Number::read(self.text(&valid)?, Unit::Bytes, kb_base);
        let out_of_bounds = || self.wrong(format!("is out of bounds{}", self.as_read(kb_base)), valid.as_str());
        match number.map_err(|why| self.wrong(why, valid.as_str()))? {
            Number { is_percent: true, .. } => Err(self.wrong("is a percentage", valid)),
            Number { value, .. } if value < 0 => Err(self.wrong("is negative", valid)),
            Number { value, .. } if range.contains(&(value as u64)) => Ok(value as u64),
            _ => Err(out_of_bounds()),
        }
    }

    /// See [`Number::as_read`].
    pub(super) fn as_read(&self, kb_base: u64) -> String {
        Number::read(&self.setting.text, Unit::Bytes, kb_base).map_or(String::new(), |number| number.as_read())
    }

    /// A time in nanoseconds; without a suffix it is in units of `bare_ns`.
    pub(super) fn time_ns(&self, bare_ns: u64) -> Result<u64, InputError> {
        let valid = "a time such as 30, 30s, 5m, 500ms or 10us";
        let unit = Unit::Time { bare_us: (bare_ns / 1000) as i64 };
        let number = Number::read(self.text(valid)?, unit, 1024).map_err(|why| self.wrong(why, valid))?;
        let us = u64::try_from(number.value).map_err(|_| self.wrong("is negative", valid))?;
        us.checked_mul(1000).ok_or_else(|| self.wrong("is too large", valid))
    }

    /// A list of CPUs: `0,2-4`. As in fio it ends before an empty part, and a part is its leading digits.
    pub(super) fn cpus(&self) -> Result<CpuSet, InputError> {
        let valid = format!("CPU numbers and ranges up to {CPU_MAX}: 0-7 or 0,2-4");
        let wrong = |why: &str| self.wrong(why, valid.as_str());
        let number = |text: &str| match integer(text) {
            Some((cpu, _)) if (0..=i64::from(CPU_MAX)).contains(&cpu) => Ok(cpu as u32),
            Some(_) => Err(wrong("names a CPU out of bounds")),
            None => Err(wrong("is no list of CPUs")),
        };
        let mut set = CpuSet::new();
        for item in self.text(&valid)?.trim_matches(is_blank).split(',').take_while(|item| !item.is_empty()) {
            let mut ends = item.split('-').take_while(|end| !end.is_empty());
            let first = number(ends.next().unwrap_or_default())?;
            let last = ends.last().map_or(Ok(first), number)?;
            if first > last {
                return Err(wrong("has a range that ends before it begins"));
            }
            (first..=last).for_each(|cpu| set.insert(CpuId(cpu)));
        }
        if set.is_empty() { Err(wrong("names no CPU")) } else { Ok(set) }
    }
}

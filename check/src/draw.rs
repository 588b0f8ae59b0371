//! Draws a history. Everything is a function of the seed and of the values set by hand. Leaving out one part does not
//! change the draws of another.

use machine::Stream;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

/// FNV-1a.
pub(crate) fn hash(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Random draws from one stream.
pub struct Draw(Stream);

impl Draw {
    /// The stream `name` of `seed`, number `index` of its kind.
    pub fn new(seed: u64, name: &str, index: u32) -> Self {
        // The streams of two names are independent.
        Self(Stream::new(seed, hash(name.bytes()).wrapping_add(index.into())))
    }

    /// A number from 0 up to, not including, `count`; 0 if `count` is 0.
    pub fn below(&mut self, count: u64) -> u64 {
        ((u128::from(self.0.next()) * u128::from(count)) >> 64) as u64
    }

    /// One of `range`, both ends included.
    pub fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        range.start() + self.below(range.end() - range.start() + 1)
    }

    /// True this many times in a hundred.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of `from`.
    ///
    /// # Panics
    /// When there is none.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }

    /// A time between `least_ns` and `most_ns`, uniform on a logarithmic scale.
    pub fn time_ns(&mut self, least_ns: u64, most_ns: u64) -> u64 {
        let octaves = u64::from((most_ns / least_ns.max(1)).max(1).ilog2());
        let base = least_ns.max(1) << self.below(octaves + 1);
        self.within(base.min(most_ns)..=(2 * base - 1).min(most_ns).max(base.min(most_ns)))
    }
}

/// A number that describes a machine or its load.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Knob {
    /// Its name, for `--set`.
    pub name: &'static str,
    /// The drawn or set value.
    pub value: u64,
    /// The simplest value, towards which it is shrunk.
    pub least: u64,
    /// Names of the values, if they are not numbers.
    pub choices: &'static [&'static str],
}

impl Knob {
    /// How `--set` names this value of it.
    pub fn text_of(&self, value: u64) -> String {
        self.choices.get(value as usize).map_or_else(|| value.to_string(), |choice| (*choice).into())
    }
}

impl fmt::Display for Knob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.text_of(self.value))
    }
}

/// A `--set` that does not fit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnobError {
    /// The name that was set.
    pub name: String,
    /// Its value.
    pub value: String,
    /// The valid values.
    pub valid: String,
}

impl fmt::Display for KnobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--set {}={}: valid is {}", self.name, self.value, self.valid)
    }
}

/// The knobs of a history. Each is drawn from a stream of its own, so that setting one leaves the others as they are.
pub struct Knobs {
    seed: u64,
    set: BTreeMap<String, String>,
    drawn: Vec<Knob>,
    errors: Vec<KnobError>,
}

impl Knobs {
    /// The knobs of `seed`, some of them set by hand.
    pub fn new(seed: u64, set: BTreeMap<String, String>) -> Self {
        Self { seed, set, drawn: Vec::new(), errors: Vec::new() }
    }

    /// A number of `range`, whose start is the simplest.
    pub fn number(&mut self, name: &'static str, range: RangeInclusive<u64>) -> u64 {
        let least = *range.start();
        self.number_with(name, range.clone(), least, |draw| draw.within(range))
    }

    /// The same, with another distribution than the uniform one.
    pub fn number_with(
        &mut self,
        name: &'static str,
        range: RangeInclusive<u64>,
        least: u64,
        draw: impl FnOnce(&mut Draw) -> u64,
    ) -> u64 {
        let drawn = draw(&mut Draw::new(self.seed, name, 0));
        let value = match self.set.remove(name) {
            None => drawn,
            Some(text) => text.parse().ok().filter(|value| range.contains(value)).unwrap_or_else(|| {
                let valid = format!("{} to {}", range.start(), range.end());
                self.errors.push(KnobError { name: name.into(), value: text, valid });
                drawn
            }),
        };
        self.drawn.push(Knob { name, value, least, choices: &[] });
        value
    }

    /// One of `choices`, the first of which is the simplest; its index.
    pub fn choice(&mut self, name: &'static str, choices: &'static [&'static str]) -> usize {
        let drawn = Draw::new(self.seed, name, 0).below(choices.len() as u64) as usize;
        let value = match self.set.remove(name) {
            None => drawn,
            Some(text) => choices.iter().position(|choice| *choice == text).unwrap_or_else(|| {
                self.errors.push(KnobError { name: name.into(), value: text, valid: choices.join(", ") });
                drawn
            }),
        };
        self.drawn.push(Knob { name, value: value as u64, least: 0, choices });
        value
    }

    /// True this many times in a hundred; false is simpler.
    pub fn chance(&mut self, name: &'static str, percent: u64) -> bool {
        self.number_with(name, 0..=1, 0, |draw| draw.percent(percent).into()) == 1
    }

    /// The drawn values, in order.
    ///
    /// # Errors
    /// A `--set` of something that this history does not have, or of a value out of range.
    pub fn finish(self) -> Result<Vec<Knob>, KnobError> {
        if let Some(error) = self.errors.into_iter().next() {
            return Err(error);
        }
        match self.set.into_iter().next() {
            None => Ok(self.drawn),
            Some((name, value)) => {
                let names: Vec<_> = self.drawn.iter().map(|knob| knob.name).collect();
                Err(KnobError { name, value, valid: names.join(", ") })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_a_knob_shifts_no_other() {
        let draw = |set: &[(&str, &str)]| {
            let set = set.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            let mut knobs = Knobs::new(7, set);
            knobs.number("cpus", 1..=8);
            knobs.choice("delivery", &["plain", "remapped", "posted"]);
            knobs.number("load", 10..=1000);
            knobs.finish()
        };
        let free = draw(&[]).expect("nothing was set");
        let set = draw(&[("cpus", "3"), ("delivery", "plain")]).expect("both exist");
        assert_eq!((set[0].value, set[1].value, set[2].value), (3, 0, free[2].value));
        assert_eq!(draw(&[("cpu", "3")]).unwrap_err().to_string(), "--set cpu=3: valid is cpus, delivery, load");
        assert_eq!(draw(&[("cpus", "9")]).unwrap_err().to_string(), "--set cpus=9: valid is 1 to 8");
        assert!(draw(&[("delivery", "x")]).is_err());
    }

    #[test]
    fn draws_stay_within_their_bounds() {
        let mut draw = Draw::new(1, "bounds", 0);
        for _ in 0..2000 {
            assert!((5..=9).contains(&draw.within(5..=9)));
            assert!((100..=70_000).contains(&draw.time_ns(100, 70_000)));
            assert!(draw.below(3) < 3);
        }
        assert_eq!(draw.time_ns(50, 50), 50);
    }
}

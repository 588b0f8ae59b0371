//! A key that a scenario or `--set` can set: its name, meaning, default, type, bounds and target, declared in
//! one place.

use crate::input::{InputError, Place};
use crate::platform::Unit;
use crate::setting::Setting;
use serde::Serialize;

/// One key of a `T`.
pub struct Key<T: 'static> {
    /// The dotted key.
    pub name: &'static str,
    /// Its meaning, as in docs/scenarios.md.
    pub about: &'static str,
    /// The default, written as a setting. None if the default cannot be written as a value.
    pub default: Option<&'static str>,
    /// The type of its value, and the effect.
    pub value: Value<T>,
}

/// The type of a key's value, and the effect.
pub enum Value<T> {
    /// A number with a unit.
    Quantity {
        /// The unit. Bounds and number are in its base.
        unit: Unit,
        /// Smallest.
        min: f64,
        /// Largest.
        max: f64,
        /// Sets it.
        set: fn(&mut T, f64),
    },
    /// One of several words.
    Word {
        /// The words.
        words: &'static [&'static str],
        /// The error text for any other word.
        wrong: &'static str,
        /// Sets the word of this index.
        set: fn(&mut T, usize),
    },
    /// Anything else.
    Text(fn(&mut T, &Setting) -> Result<(), InputError>),
}

/// What `campanile list` says of a key.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Described {
    /// The dotted key.
    pub key: String,
    /// Its meaning.
    pub about: String,
    /// The default, if it can be written as a value. Of a constant: the platform's value.
    pub default: Option<String>,
    /// The valid values: form, unit and bounds.
    pub valid: String,
    /// The base of the unit, of a number.
    pub unit: Option<&'static str>,
    /// Smallest, in that unit.
    pub min: Option<f64>,
    /// Largest.
    pub max: Option<f64>,
}

impl Described {
    /// A number of a unit, between bounds.
    pub fn quantity(key: String, about: String, default: Option<String>, unit: Unit, [min, max]: [f64; 2]) -> Self {
        let base = unit.names().iter().find(|(_, size)| *size == 1.0).map_or("", |(name, _)| name);
        let is_word = matches!(unit, Unit::Flag | Unit::Resend);
        let number = |value: f64| (!is_word).then_some(value);
        let valid = unit.valid(min, max);
        Self { key, about, default, valid, unit: (!is_word).then_some(base), min: number(min), max: number(max) }
    }
}

impl<T> Key<T> {
    /// All that is known of it. `blank` is a target to try on: a text that is wrong tells what would be valid.
    pub fn in_full(&self, blank: &mut T) -> Described {
        let (key, about) = (self.name.to_owned(), self.about.to_owned());
        let default = self.default.map(str::to_owned);
        let valid = match self.value {
            Value::Quantity { unit, min, max, .. } => {
                return Described::quantity(key, about, default, unit, [min, max]);
            }
            Value::Word { words, .. } => words.join(", "),
            Value::Text(set) => match set(blank, &Setting::new(Place::option("list"), self.name, "?")) {
                Err(error) => error.valid().unwrap_or_default(),
                Ok(()) => String::new(),
            },
        };
        Described { key, about, default, valid, unit: None, min: None, max: None }
    }

    /// Its name and its meaning.
    pub fn described(&self) -> (String, &'static str) {
        (self.name.to_owned(), self.about)
    }

    /// Takes a setting of this key.
    ///
    /// # Errors
    /// The value has the wrong form or is out of bounds.
    pub fn set(&self, target: &mut T, setting: &Setting) -> Result<(), InputError> {
        match self.value {
            Value::Quantity { unit, min, max, set } => set(target, unit.read(setting, min, max)?),
            Value::Word { words, wrong, set } => {
                let text = setting.text.trim();
                let found = words.iter().position(|&word| word == text);
                set(target, found.ok_or_else(|| setting.wrong(wrong, words.join(", ")))?);
            }
            Value::Text(set) => set(target, setting)?,
        }
        Ok(())
    }
}

/// Takes a setting if one of `keys` has its name. Returns whether one has.
///
/// # Errors
/// As [`Key::set`].
pub fn apply<T>(keys: &[Key<T>], target: &mut T, setting: &Setting) -> Result<bool, InputError> {
    let key = keys.iter().find(|key| key.name == setting.key);
    key.map_or(Ok(false), |key| key.set(target, setting).map(|()| true))
}

/// Every default by its key, written as a setting.
pub fn defaults<T>(keys: &[Key<T>]) -> impl Iterator<Item = (&'static str, &'static str)> {
    keys.iter().filter_map(|key| Some((key.name, key.default?)))
}

/// Sets every default.
///
/// # Panics
/// A default is not a valid value of its key; a test of every kind excludes this.
pub fn set_defaults<T>(keys: &[Key<T>], target: &mut T) {
    for key in keys {
        if let Some(text) = key.default {
            let setting = Setting::new(Place::option("default"), key.name, text);
            key.set(target, &setting).unwrap_or_else(|error| panic!("{error}"));
        }
    }
}

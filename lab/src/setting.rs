//! One value for one key, from a TOML file or from `--set`, with the place to name when it is wrong.

use crate::input::{InputError, Place, Problem};

/// A dotted key and the text of its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setting {
    /// The place where it was given.
    pub place: Place,
    /// The dotted key.
    pub key: String,
    /// The value: a string's contents, or a number or flag as it is written.
    pub text: String,
}

impl Setting {
    /// A setting.
    pub fn new(place: Place, key: impl Into<String>, text: impl Into<String>) -> Self {
        Self { place, key: key.into(), text: text.into() }
    }

    /// A setting from `--set`: `key=value`. A key may carry its unit: `duration_ms=5` is `duration=5 ms`.
    ///
    /// # Errors
    /// There is no `=`, or no name before it.
    pub fn from_option(option: &str) -> Result<Self, InputError> {
        let place = Place::option("--set");
        let (key, text) = option.split_once('=').unwrap_or(("", ""));
        let (key, text) = (key.trim(), text.trim());
        if key.is_empty() {
            let why = format!("`{option}` is no key=value; valid: fabric.dispatch=56ns, duration=5ms and the like");
            return Err(InputError::new(&place, "", Problem::Syntax(why)));
        }
        if let Some((stem, unit)) = key.rsplit_once('_')
            && matches!(unit, "ns" | "us" | "ms" | "s")
            && text.parse::<f64>().is_ok()
        {
            return Ok(Self::new(place, stem, format!("{text} {unit}")));
        }
        Ok(Self::new(place, key, text))
    }

    /// The error that this value is wrong.
    pub fn wrong(&self, why: impl Into<String>, valid: impl Into<String>) -> InputError {
        InputError::value(&self.place, &self.key, &self.text, why, valid)
    }

    /// The error for an unknown key; `names` lists all valid keys.
    pub fn unknown<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> InputError {
        InputError::unknown(&self.place, &self.key, names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_a_key_and_a_value() {
        let setting = Setting::from_option("fabric.dispatch = 56 ns").unwrap();
        assert_eq!((setting.key.as_str(), setting.text.as_str()), ("fabric.dispatch", "56 ns"));
        let setting = Setting::from_option("duration_ms=5").unwrap();
        assert_eq!((setting.key.as_str(), setting.text.as_str()), ("duration", "5 ms"));
        assert_eq!(
            Setting::from_option("nonsense").unwrap_err().to_string(),
            "--set: `nonsense` is no key=value; valid: fabric.dispatch=56ns, duration=5ms and the like"
        );
    }
}

//! The kind's own part of an experiment while its settings are read.

use super::common::Common;
use super::files::Files;
use super::key::{self, Described, Key};
use crate::input::{InputError, Place, Warning};
use crate::kinds::{Kind, Variant};
use crate::plan::{Spans, Work};
use crate::platform::Platform;
use crate::setting::Setting;

/// An experiment of some kind while its settings are read. Later settings replace earlier ones.
pub trait Draft {
    /// Every key of the kind with its meaning, as in docs/scenarios.md.
    fn keys(&self) -> Vec<(String, &'static str)>;

    /// Every key of the kind in full. `platform` bounds some.
    fn in_full(&self, platform: &Platform) -> Vec<Described>;

    /// The kind's defaults, each with its key.
    fn defaults(&self) -> Vec<(&'static str, &'static str)>;

    /// Takes a setting if its key belongs to the kind. Returns whether it did.
    ///
    /// # Errors
    /// The value is wrong.
    fn apply(&mut self, setting: &Setting) -> Result<bool, InputError>;

    /// Reads the files that the scenario names.
    ///
    /// # Errors
    /// One cannot be read or is wrong.
    fn read_files(&mut self, _files: Files) -> Result<(), InputError> {
        Ok(())
    }

    /// Resolves the settings.
    ///
    /// # Errors
    /// They contradict each other or the platform, or a requested variant does not belong to the kind.
    fn resolve(&self, common: &Common, asked: Option<Asked>) -> Result<Resolved, InputError>;
}

/// A kind's resolved draft.
pub struct Resolved {
    /// CPUs of the machine.
    pub cpus: u32,
    /// The experiment.
    pub work: Work,
    /// How long.
    pub spans: Spans,
    /// Warnings that a reader of the result needs.
    pub warnings: Vec<Warning>,
}

/// A draft that has only the experiment, set by its keys.
pub struct Keyed<K: 'static> {
    keys: &'static [Key<K>],
    experiment: K,
    resolve: fn(&K, &Common, Option<Asked>) -> Result<Resolved, InputError>,
}

impl<K: Kind> Keyed<K> {
    /// `blank` with every key's default.
    pub fn boxed(
        keys: &'static [Key<K>],
        blank: K,
        resolve: fn(&K, &Common, Option<Asked>) -> Result<Resolved, InputError>,
    ) -> Box<dyn Draft> {
        let mut experiment = blank;
        key::set_defaults(keys, &mut experiment);
        Box::new(Self { keys, experiment, resolve })
    }
}

impl<K: Kind> Draft for Keyed<K> {
    fn keys(&self) -> Vec<(String, &'static str)> {
        self.keys.iter().map(Key::described).collect()
    }

    fn in_full(&self, _platform: &Platform) -> Vec<Described> {
        self.keys.iter().map(|key| key.in_full(&mut self.experiment.clone())).collect()
    }

    fn defaults(&self) -> Vec<(&'static str, &'static str)> {
        key::defaults(self.keys).collect()
    }

    fn apply(&mut self, setting: &Setting) -> Result<bool, InputError> {
        key::apply(self.keys, &mut self.experiment, setting)
    }

    fn resolve(&self, common: &Common, asked: Option<Asked>) -> Result<Resolved, InputError> {
        (self.resolve)(&self.experiment, common, asked)
    }
}

/// The requested variants, by their names.
pub struct Asked {
    /// The place of the request.
    pub place: Place,
    /// Their names, in order.
    pub names: Vec<Setting>,
}

impl Asked {
    /// Reads each name.
    ///
    /// # Errors
    /// A name is not a variant, or occurs twice.
    pub fn variants<V: Variant>(&self) -> Result<Vec<V>, InputError> {
        let mut variants = Vec::new();
        for name in &self.names {
            let variant = V::read(name)?;
            if variants.contains(&variant) {
                return Err(name.wrong("stands twice", "each delivery once"));
            }
            variants.push(variant);
        }
        Ok(variants)
    }
}

/// The variants that are asked for, or else `default`.
///
/// # Errors
/// As [`Asked::variants`].
pub fn variants_or<V: Variant>(asked: Option<Asked>, default: impl Into<Vec<V>>) -> Result<Vec<V>, InputError> {
    asked.map_or_else(|| Ok(default.into()), |asked| asked.variants())
}

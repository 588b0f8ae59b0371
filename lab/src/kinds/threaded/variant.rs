//! How the line is held back: the variants of an experiment on a threaded interrupt.

use super::Threaded;
use crate::input::InputError;
use crate::kinds::Variant;
use crate::setting::Setting;
use std::fmt;

/// How the line is held back until its thread is done.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ThreadedVariant {
    /// EOImode 0: the line is masked before the thread runs; the thread unmasks it.
    Mask,
    /// EOImode 1: the line stays active until its thread deactivates it.
    EoiMode1,
}

impl ThreadedVariant {
    /// Both variants.
    pub const ALL: [Self; 2] = [Self::Mask, Self::EoiMode1];

    /// Its name on the command line and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mask => "mask",
            Self::EoiMode1 => "eoimode1",
        }
    }
}

impl fmt::Display for ThreadedVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Variant for ThreadedVariant {
    type Kind = Threaded;

    fn read(name: &Setting) -> Result<Self, InputError> {
        let found = Self::ALL.into_iter().find(|variant| variant.name() == name.text.trim());
        found.ok_or_else(|| name.wrong("is no variant", Self::ALL.map(Self::name).join(", ")))
    }
}

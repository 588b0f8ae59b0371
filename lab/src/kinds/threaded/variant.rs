//! How the line is held back: the variants of an experiment on a threaded interrupt.

use super::Threaded;
use crate::input::InputError;
use crate::kinds::Variant;
use crate::setting::Setting;
use std::fmt;

/// How the line is held back until its thread is done, and by whose driver.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ThreadedVariant {
    /// Stock Linux on a CPU that booted at EL2: EOImode 1, dropped and deactivated in the interrupt. The line is masked
    /// before the thread runs, and the thread unmasks it.
    Mask,
    /// Stock Linux in a guest: the same with EOImode 0.
    MaskEoiMode0,
    /// Linux with the series of 2021: EOImode 1, and the line stays active until its thread deactivates it.
    EoiMode1,
    /// This project's driver: as the series, without a poll that the architecture does not demand.
    Ours,
}

impl ThreadedVariant {
    /// Every variant.
    pub const ALL: [Self; 4] = [Self::Mask, Self::MaskEoiMode0, Self::EoiMode1, Self::Ours];
    /// The two that were measured, and ours.
    pub const COMPARED: [Self; 3] = [Self::Mask, Self::EoiMode1, Self::Ours];

    /// Its name on the command line and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mask => "mask",
            Self::MaskEoiMode0 => "mask eoimode=0",
            Self::EoiMode1 => "eoimode1",
            Self::Ours => "ours",
        }
    }

    /// True if the line is masked while its thread works.
    pub fn masks(self) -> bool {
        matches!(self, Self::Mask | Self::MaskEoiMode0)
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

//! The state of the tuning, for people.

use super::{Sample, Setting};
use core::fmt;

/// How often things happened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Times that the level in effect changed.
    pub changes: u64,
    /// Steps that were asked for, changes or not.
    pub steps: u64,
    /// Steps that the device refused.
    pub failed: u64,
    /// Steps that were not answered in time.
    pub late: u64,
    /// Answers to steps that nobody waited for.
    pub strays: u64,
    /// Steps after which the device had something else than it was told.
    pub quantised: u64,
    /// Searches through the table.
    pub searches: u64,
}

/// A controller at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TuningView {
    /// Its name.
    pub algorithm: &'static str,
    /// What it does.
    pub phase: &'static str,
    /// The level in effect, as far as it knows.
    pub level: usize,
    /// The highest of the table.
    pub level_last: usize,
    /// What the table says of the level.
    pub setting: Setting,
    /// What the device said it has, when it said so.
    pub actual: Option<Setting>,
    /// The level it wants, when another.
    pub wanted: Option<usize>,
    /// The last sample that it took a decision on.
    pub sample: Option<Sample>,
    /// How often things happened.
    pub counts: Counts,
}

impl fmt::Display for TuningView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { algorithm, phase, level, level_last, setting, .. } = self;
        write!(f, "{algorithm}: {phase} at level {level} of 0 to {level_last} ({setting})")?;
        if let Some(actual) = self.actual.filter(|actual| actual != setting) {
            write!(f, ", device has {actual}")?;
        }
        if let Some(wanted) = self.wanted {
            write!(f, ", wants level {wanted}")?;
        }
        writeln!(f)?;
        if let Some(sample) = &self.sample {
            writeln!(f, "  last sample: {sample}")?;
        }
        let Counts { changes, steps, failed, late, strays, quantised, searches } = self.counts;
        writeln!(
            f,
            "  changes {changes} steps {steps} failed {failed} late {late} strays {strays} quantised {quantised} \
             searches {searches}"
        )
    }
}

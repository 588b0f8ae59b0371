//! The state of the tuning, for people.

use super::{Sample, Setting};
use core::fmt;

/// Counts of events.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Changes of the level in effect.
    pub changes: u64,
    /// Steps that were requested, whether or not they changed the level.
    pub steps: u64,
    /// Steps that the device refused.
    pub failed: u64,
    /// Steps that were not answered in time.
    pub late: u64,
    /// Answers to steps that the controller did not wait for.
    pub strays: u64,
    /// Steps after which the device had another setting than the requested one.
    pub quantised: u64,
    /// Searches through the table.
    pub searches: u64,
}

/// A controller at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TuningView {
    /// Its name.
    pub algorithm: &'static str,
    /// Its present activity.
    pub phase: &'static str,
    /// The level in effect, as far as the controller knows.
    pub level: usize,
    /// The highest level of the table.
    pub level_last: usize,
    /// The table's setting for the level.
    pub setting: Setting,
    /// The setting that the device reported, if it did.
    pub actual: Option<Setting>,
    /// The level that the controller wants, if it differs.
    pub wanted: Option<usize>,
    /// The last sample on which the controller decided.
    pub sample: Option<Sample>,
    /// Counts of events.
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

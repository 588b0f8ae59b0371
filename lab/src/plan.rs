//! The resolved experiment: plain data with every choice made.
//!
//! [`Plan`] has the parts that every experiment has. Its [`Work`] has the workload, whose kind has a folder in
//! `kinds`.

mod trial;
mod work;

pub use trial::Trial;
pub use work::{Comparison, Load, Work};

use crate::fio::logs::SpanOfLogs;
use crate::input::{InputError, Place, Warning};
use crate::kinds::Variant;
use crate::platform::{Platform, Unit};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// One experiment: a machine, a workload, and the variants of it that are compared.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// Its name: the scenario's, or the job file's without its ending.
    pub name: String,
    /// The file that it was read from.
    pub source: Place,
    /// The server's constants.
    pub platform: Platform,
    /// CPUs of the machine, from 0; at most those of the platform.
    pub cpus: u32,
    /// Its workload and variants.
    pub work: Work,
    /// One run for each seed, in order. No seed occurs twice.
    pub seeds: Vec<u64>,
    /// The simulated spans, and the spans that they stand for.
    pub spans: Spans,
    /// Settings that every kind has.
    pub options: Options,
    /// Every setting by its key, as text: defaults, the scenario's, and those of the command line over them.
    pub settings: BTreeMap<String, String>,
    /// Warnings that a reader of the result needs.
    pub warnings: Vec<Warning>,
}

impl Plan {
    /// Its variants, in order.
    pub fn trials(&self) -> Vec<Trial<'_>> {
        self.work.trials(self)
    }

    /// One variant; it need not be among the compared ones.
    ///
    /// # Errors
    /// The variant is of another kind, or the experiment does not run in it.
    pub fn trial<V: Variant>(&self, variant: V) -> Result<Trial<'_>, InputError> {
        self.work.trial(self, variant)
    }

    /// Checks that the machine can be built and the experiment can run.
    ///
    /// # Errors
    /// The first problem, with its place and valid alternatives.
    pub fn validate(&self) -> Result<(), InputError> {
        let wrong = |key: &str, value: String, why: &str, valid: String| {
            Err(InputError::value(&self.source, key, value, why, valid))
        };
        self.platform.validate()?;
        let most = self.platform.fabric.cpus.whole();
        if self.cpus == 0 || u64::from(self.cpus) > most {
            return wrong("cpus", self.cpus.to_string(), "is out of bounds", format!("1 to {most}"));
        }
        if self.work.names().is_empty() {
            return wrong("deliveries", "[]".into(), "is empty", "at least one".into());
        }
        if self.seeds.is_empty() {
            return wrong("seeds", "[]".into(), "is empty", "at least one".into());
        }
        if self.spans.measured_ns == 0 {
            return wrong("duration", "0".into(), "measures nothing", "a time such as 10 ms".into());
        }
        self.work.validate(self)
    }
}

/// A simulated span that stands for a longer one: fio's 30 s are long past the steady state of a simulated drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Spans {
    /// Time simulated before counting begins.
    pub ramp_ns: u64,
    /// Time simulated and counted.
    pub measured_ns: u64,
    /// The job's `ramp_time`; `ramp_ns` stands for it.
    pub asked_ramp_ns: u64,
    /// The job's `runtime`; `measured_ns` stands for it. None if the job names none.
    pub asked_runtime_ns: Option<u64>,
}

impl Spans {
    /// The longest ramp or measured span: a second of a busy server takes minutes to simulate.
    pub const WHOLE_MAX_NS: u64 = 10_000_000_000;

    /// The span as log files show it.
    pub fn of_logs(&self) -> SpanOfLogs {
        SpanOfLogs { measured_ns: self.measured_ns, is_shortened: self.is_shortened() }
    }

    /// True if the measured span stands for a longer run time.
    pub fn is_shortened(&self) -> bool {
        self.asked_runtime_ns.is_some_and(|runtime_ns| runtime_ns > self.measured_ns)
    }
}

impl fmt::Display for Spans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |ns: u64| Unit::Time.format(ns as f64);
        write!(f, "simulated {} after {} of ramp", time(self.measured_ns), time(self.ramp_ns))?;
        match self.asked_runtime_ns {
            Some(runtime_ns) => write!(f, ", standing for {} after {}", time(runtime_ns), time(self.asked_ramp_ns)),
            None => Ok(()),
        }
    }
}

/// Settings that every kind has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Harvest passes of the notification handler before the final one.
    pub harvest_passes: u32,
    /// The limit of the watchdog. It records a longer interrupt as a fault, and reports the longest. None: no
    /// watchdog.
    pub interrupt_limit_ns: Option<u64>,
}

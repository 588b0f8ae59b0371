//! Settings that every experiment has: the same keys in a scenario's tables and with `--set`.

use super::draft::Draft;
use super::key::{self, Key, Value};
use super::{DURATION_NS, RAMP_NS};
use crate::fio::Variables;
use crate::input::InputError;
use crate::plan::{Options, Spans};
use crate::platform::{Platform, Unit};
use crate::setting::Setting;

/// The longest ramp or duration.
const SPAN_MAX_NS: f64 = Spans::WHOLE_MAX_NS as f64;

/// Keys of every experiment.
pub(super) const KEYS: &[Key<Common>] = &[
    Key {
        name: "cpus",
        about: "without it: as many as the jobs name",
        default: None,
        value: Value::Text(|common, setting| {
            let cpus = Unit::Count.read(setting, 1.0, 1024.0)? as u32;
            common.cpus = Some((cpus, setting.clone()));
            Ok(())
        }),
    },
    Key {
        name: "ramp",
        about: "simulated before anything is counted",
        default: None,
        value: Value::Quantity {
            unit: Unit::Time,
            min: 0.0,
            max: SPAN_MAX_NS,
            set: |common, ns| common.ramp_ns = Some(ns as u64),
        },
    },
    Key {
        name: "duration",
        about: "simulated and counted; stands for fio's runtime; \"runtime\": that itself, up to 10 s",
        default: None,
        value: Value::Text(|common, setting| {
            if setting.text.trim() == "runtime" {
                common.whole_runtime = Some(setting.clone());
                return Ok(());
            }
            common.whole_runtime = None;
            common.duration = Some((Unit::Time.read(setting, 1e3, SPAN_MAX_NS)? as u64, setting.clone()));
            Ok(())
        }),
    },
    Key {
        name: "options.harvest_passes",
        about: "of the notification handler, before the final one",
        default: Some("2"),
        value: Value::Quantity {
            unit: Unit::Count,
            min: 0.0,
            max: 64.0,
            set: |common, passes| common.options.harvest_passes = passes as u32,
        },
    },
    Key {
        name: "options.interrupt_limit",
        about: "watchdog: a longer interrupt is a recorded fault; without it none watches",
        default: None,
        value: Value::Quantity {
            unit: Unit::Time,
            min: 100.0,
            max: SPAN_MAX_NS,
            set: |common, ns| common.options.interrupt_limit_ns = Some(ns as u64),
        },
    },
];

/// The common part of an experiment while its settings are read. Later settings replace earlier ones.
pub struct Common {
    /// The server's constants.
    pub platform: Platform,
    /// The keys of every kind of experiment.
    pub options: Options,
    /// What `${VAR}` stands for in job files.
    pub variables: Variables,
    cpus: Option<(u32, Setting)>,
    ramp_ns: Option<u64>,
    /// The duration, and the setting that it comes from.
    duration: Option<(u64, Setting)>,
    /// The setting that asks for the whole runtime of the jobs.
    whole_runtime: Option<Setting>,
}

impl Common {
    pub(super) fn new(platform: Platform, variables: Variables) -> Self {
        let options = Options { harvest_passes: 0, interrupt_limit_ns: None };
        let mut common =
            Self { platform, options, variables, cpus: None, ramp_ns: None, duration: None, whole_runtime: None };
        key::set_defaults(KEYS, &mut common);
        common
    }

    /// Takes one setting, which may belong to the kind's `draft`.
    pub(super) fn apply(&mut self, draft: &mut dyn Draft, setting: &Setting) -> Result<(), InputError> {
        if key::apply(KEYS, self, setting)? {
            return Ok(());
        }
        if Platform::has_group_of(&setting.key) {
            return self.platform.set(setting);
        }
        if draft.apply(setting)? { Ok(()) } else { Err(self.unknown(draft, setting)) }
    }

    /// The error for an unknown key.
    fn unknown(&self, draft: &dyn Draft, setting: &Setting) -> InputError {
        let (constants, kind) = (self.platform.constants(), draft.keys());
        let keys = KEYS.iter().map(|key| key.name).chain(constants.iter().map(|(key, ..)| key.as_str()));
        setting.unknown(keys.chain(kind.iter().map(|(key, _)| key.as_str())))
    }

    /// The CPUs of the machine: those that are asked for, else `wanted` by the workload, else the platform's.
    ///
    /// # Errors
    /// More are asked for than the platform has.
    pub fn cpus_or(&self, wanted: Option<u32>) -> Result<u32, InputError> {
        let most = self.platform.fabric.cpus.whole() as u32;
        match &self.cpus {
            Some((cpus, setting)) if *cpus > most => {
                let why = format!("is more than platform {} has", self.platform.name);
                Err(setting.wrong(why, format!("a whole number from 1 to {most}")))
            }
            Some((cpus, _)) => Ok(*cpus),
            None => Ok(wanted.unwrap_or(most).min(most)),
        }
    }

    /// The setting that asks for the whole runtime of the jobs, if one does.
    pub(super) fn whole_runtime(&self) -> Option<&Setting> {
        self.whole_runtime.as_ref()
    }

    /// The setting of the duration, if one sets it to a time.
    pub fn duration(&self) -> Option<&Setting> {
        self.duration.as_ref().filter(|_| self.whole_runtime.is_none()).map(|(_, setting)| setting)
    }

    /// The simulated spans. Unless the duration is set, it is at most `shortest_ns`.
    pub fn spans(&self, shortest_ns: u64) -> Spans {
        self.spans_of_turns(shortest_ns, 0)
    }

    /// The spans of jobs with such a runtime and ramp, whose work in flight takes `turn_ns`. A runtime that is asked for as
    /// a whole is simulated up to [`Spans::WHOLE_MAX_NS`].
    ///
    /// # Errors
    /// The whole runtime is asked for, and the jobs have none.
    pub fn spans_of_jobs(&self, runtime_ns: Option<u64>, ramp_ns: u64, turn_ns: u64) -> Result<Spans, InputError> {
        let runtime_ns = runtime_ns.filter(|&ns| ns > 0);
        let asked = Spans {
            asked_ramp_ns: ramp_ns,
            asked_runtime_ns: runtime_ns,
            ..self.spans_of_turns(runtime_ns.unwrap_or(u64::MAX), turn_ns)
        };
        match (&self.whole_runtime, runtime_ns) {
            (None, _) => Ok(asked),
            (Some(setting), None) => {
                Err(setting.wrong("is not given by any job", "a time such as 10 ms, or jobs with a runtime"))
            }
            (Some(_), Some(runtime_ns)) => {
                let most = Spans::WHOLE_MAX_NS;
                let ramp_ns = self.ramp_ns.unwrap_or(ramp_ns.min(most));
                Ok(Spans { ramp_ns, measured_ns: runtime_ns.min(most), ..asked })
            }
        }
    }

    /// The same for a load whose work in flight takes `turn_ns`: unless set, the ramp is at least a turn, and the duration
    /// at least four.
    pub fn spans_of_turns(&self, shortest_ns: u64, turn_ns: u64) -> Spans {
        let duration_ns = DURATION_NS.max(turn_ns.saturating_mul(4)).min(shortest_ns);
        Spans {
            ramp_ns: self.ramp_ns.unwrap_or(RAMP_NS.max(turn_ns)),
            measured_ns: self.duration.as_ref().map_or(duration_ns, |(ns, _)| *ns),
            asked_ramp_ns: 0,
            asked_runtime_ns: None,
        }
    }
}
